"""Names of the release before: they work, and warn with the new name."""

import copy
import inspect
import sys
from collections import namedtuple
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import resolve_name

import pytest
from logitsmith.common import renamed


def supported(decorated, **new_names):
    decorated.__qualname__ = decorated.__name__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renamed, "RENAMED", {f"{__name__}.{decorated.__name__}": new_names})
        return renamed.supports_old_names(decorated)


def frozen_facts():
    @dataclass(frozen=True, slots=True)
    class Facts:
        max_count: int = 3
        summary: str = ""

        def double(self):
            return 2 * self.max_count

    return supported(Facts, most="max_count", twice="double")


def test_an_attribute_and_a_method():
    facts = frozen_facts()(max_count=5)
    with pytest.warns(DeprecationWarning, match="Facts: most is now called max_count; the old name works until"):
        assert facts.most == 5
    with pytest.warns(DeprecationWarning, match="Facts: twice is now called double"):
        assert facts.twice() == 10


def test_a_method_of_the_class():
    facts = frozen_facts()
    with pytest.warns(DeprecationWarning, match="double"):
        assert facts.twice(facts(4)) == 8


def test_an_attribute_is_set():
    class Settings:
        max_count = 3

    settings = supported(Settings, most="max_count")()
    with pytest.warns(DeprecationWarning, match="max_count"):
        settings.most = 7
    assert settings.max_count == 7


def test_an_argument_of_a_constructor_warns_where_it_is_called():
    facts = frozen_facts()
    with pytest.warns(DeprecationWarning, match="most is now called max_count") as caught:
        assert facts(most=8, summary="x") == facts(8, "x")
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match="most and max_count are one argument"):
        facts(most=8, max_count=9)


def test_an_argument_of_a_named_tuple():
    pair = supported(namedtuple("Pair", "first second"), some="first")
    with pytest.warns(DeprecationWarning, match="some is now called first"):
        assert pair(some=1, second=2).first == 1


def test_an_argument_of_a_function():
    def count_of(max_count=3):
        return max_count

    new = supported(count_of, most="max_count")
    with pytest.warns(DeprecationWarning, match="count_of: most is now called max_count"):
        assert new(most=9) == 9
    assert new(4) == new(max_count=4) == 4


def test_a_function_without_such_arguments_is_not_wrapped():
    def count_of(max_count=3):
        return max_count

    assert supported(count_of, other="elsewhere") is count_of


def test_a_subclass_with_the_old_names():
    class Endpoint:
        max_biases = 1
        hook_calls = ()

        def __init_subclass__(cls, **keywords):
            super().__init_subclass__(**keywords)
            cls.hook_calls = (*cls.hook_calls, cls.__name__)

        def limits(self):
            return self.max_biases, self.name()

        def name(self):
            return "base"

    base = supported(Endpoint, most_biases="max_biases", called="name")
    with pytest.warns(DeprecationWarning, match="is now called") as caught:

        class Mine(base):
            most_biases = 300

            def called(self):
                return "mine"

    assert len(caught) == 2
    assert Mine().limits() == (300, "mine")
    assert Mine.hook_calls == ("Mine",)


def supported_endpoint():
    class Endpoint:
        def name(self):
            return "base"

    return supported(Endpoint, called="name")


@pytest.mark.filterwarnings("ignore:.* is now called")
@pytest.mark.parametrize("old_in_first", [False, True])
@pytest.mark.parametrize("old_in_second", [False, True])
@pytest.mark.parametrize("calls_old", [False, True])
def test_subclasses_call_super_by_either_name(old_in_first, old_in_second, calls_old):
    def method(own_name, cell):
        def name(self):
            parent = super(cell[0], self)
            return own_name + " > " + (parent.called() if calls_old else parent.name())

        return name

    first_cell, second_cell = [], []
    first = type(
        "First", (supported_endpoint(),), {"called" if old_in_first else "name": method("first", first_cell)}
    )
    first_cell.append(first)
    second = type("Second", (first,), {"called" if old_in_second else "name": method("second", second_cell)})
    second_cell.append(second)
    third = type("Third", (second,), {})
    assert third().called() == third().name() == "second > first > base"
    assert first().called() == "first > base"


def test_a_class_method_calls_super_by_the_old_name():
    class Facts:
        @classmethod
        def of_text(cls, text):
            return [cls.__name__, text]

    base = supported(Facts, read="of_text")
    with pytest.warns(DeprecationWarning, match="is now called"):  # noqa: PT031 - the class and the call

        class Mine(base):
            @classmethod
            def read(cls, text):
                return [*super().read(text), "mine"]

        assert Mine.of_text("x") == Mine.read("x") == ["Mine", "x", "mine"]


def test_a_mixin_defines_an_old_name():
    class Mixin:
        def called(self):
            return "mixin > " + super().called()

    with pytest.warns(DeprecationWarning, match="Mine: called is now called name"):

        class Mine(Mixin, supported_endpoint()):
            pass

    with pytest.warns(DeprecationWarning, match="called is now called name"):
        assert Mine().name() == "mixin > base"


def test_a_subclass_for_both_releases_does_not_warn():
    class Mine(supported_endpoint()):
        def name(self):
            return "new"

        def called(self):
            return "old"

    assert (Mine().name(), Mine().called()) == ("new", "old")


def test_replace_accepts_the_old_name():
    original = frozen_facts()(max_count=5, summary="x")
    with pytest.warns(DeprecationWarning, match="Facts: most is now called max_count") as caught:
        changed = replace(original, most=8)
    assert changed == replace(original, max_count=8)
    assert caught[0].filename == __file__


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace")
def test_copy_replace_accepts_the_old_name():
    with pytest.warns(DeprecationWarning, match="Facts: most is now called max_count") as caught:
        assert copy.replace(frozen_facts()(), most=8).max_count == 8
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("owner", "old_name", "new_name"),
    [
        (owner, old_name, new_name)
        for owner, names in renamed.RENAMED.items()
        for old_name, new_name in names.items()
    ],
)
def test_every_new_name_exists(owner, old_name, new_name):
    found = resolve_name(owner)
    if isinstance(found, type):
        assert isinstance(inspect.getattr_static(found, old_name), renamed._OldAttribute)
        is_set = f"self.{new_name}" in inspect.getsource(found)
        parameters = inspect.signature(found).parameters
        assert hasattr(found, new_name) or new_name in parameters or is_set
    elif not callable(found):
        with pytest.warns(DeprecationWarning, match=f"{old_name} is now called {new_name}"):
            getattr(found, old_name)
    else:
        with pytest.raises(TypeError, match=f"{old_name} and {new_name} are one argument"):
            found(**{old_name: None, new_name: None})


def test_a_name_of_a_package():
    samplers = import_module("logitsmith.samplers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renamed, "RENAMED", {"logitsmith.samplers": {"Row": "Candidates"}})
        with pytest.warns(DeprecationWarning, match="samplers: Row is now called Candidates") as caught:
            from logitsmith.samplers import Row
    assert Row is samplers.Candidates
    assert caught[0].filename == __file__
    with pytest.raises(ImportError, match="cannot import name 'Column'"):
        from logitsmith.samplers import Column  # noqa: F401
