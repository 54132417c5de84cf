"""Names of the release before: they work, and warn with the new name."""

import inspect
from collections import namedtuple
from dataclasses import dataclass
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
