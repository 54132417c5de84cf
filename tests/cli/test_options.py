"""Options classes: each flag is declared once, and its field says what is true."""

import re
from dataclasses import dataclass

import pytest
import typer
from logitsmith.cli.command_line import GenCommand
from logitsmith.cli.command_options import (
    TypedFlags,
    advice_words,
    check_options,
    declared_flags,
    takes_options,
)
from logitsmith.cli.command_table import COMMANDS, load_command
from logitsmith.cli.commands.batch import BatchOptions
from logitsmith.cli.commands.recover import RecoverOptions
from logitsmith.cli.commands.run import RunOptions
from logitsmith.cli.commands.score import ScoreOptions
from logitsmith.cli.flags import REQUIRED, Options, argument, flag, iterate_flags
from logitsmith.cli.messages import flag_sentence
from logitsmith.common.errors import LogitsmithError, UsageError, Word
from logitsmith.common.flags import POSITIVE, at_least
from logitsmith.presets.parameter_names import MAIN_SAMPLER_FLAGS, SAMPLER_FLAGS
from logitsmith.presets.setting_table import SETTINGS
from logitsmith.samplers import find_sampler
from typer.testing import CliRunner


@dataclass(frozen=True, kw_only=True)
class Numbers(Options):
    count: int = flag("-n", "--count", help="How many. [1]", default=1, limit=at_least(1, minus_one_meaning="all"))
    share: float | None = flag("--share", help="How much.", limit=POSITIVE, required_companions="a --count")


@dataclass(frozen=True, kw_only=True)
class Example(Options):
    typed_flags: TypedFlags
    name: str = argument("NAME", display_name="the name", help="Whose.", default=REQUIRED)
    numbers: Numbers
    tags: list[str] | None = flag("-t", "--tag", help="Repeatable.", display_name="--tag")
    folder: list[str] | None = flag("--folder", help="A path.", is_path=True)

    def check(self):
        if self.name == "nobody":
            raise UsageError("nobody has no options")


def invoke(*arguments):
    """The options that a command gets, or the message."""
    app, seen = typer.Typer(pretty_exceptions_enable=False), []
    app.command(cls=GenCommand)(takes_options(Example)(seen.append))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == (0 if seen else 2)
    return seen[0] if seen else result.stderr


def test_a_command_gets_one_object():
    options = invoke("me", "-n", "3", "--tag", "a", "-t", "b")
    assert (options.name, options.numbers.count, options.numbers.share) == ("me", 3, None)
    assert (options.tags, options.typed_flags.fields_of_flags) == (["a", "b"], {"name", "count", "tags"})
    assert [described.name for described, _ in iterate_flags(options)] == [
        "the name",
        "-n",
        "--share",
        "--tag",
        "--folder",
    ]


def test_a_text_is_utf8_and_a_path_may_be_anything():
    options = {"typed_flags": TypedFlags(), "name": "me", "numbers": Numbers()}
    check_options(Example(**options, folder=["\udcff"]))
    with pytest.raises(UsageError, match="--tag is not UTF-8"):
        check_options(Example(**options, tags=["\udcff"]))


def test_flags_that_are_given_can_be_refused():
    given = TypedFlags(frozenset({"share"}))
    given.reject(Numbers, required_companions=["another one"], why="is not looked at")
    with pytest.raises(UsageError, match="--share is for a --count"):
        given.reject(Numbers, required_companions=["a --count"], why="is for a --count")


@pytest.mark.parametrize("cls", [RunOptions, BatchOptions, ScoreOptions, RecoverOptions])
def test_no_two_flags_of_a_command_share_a_name(cls):
    names = [name for flag in declared_flags(cls) for name in flag.names]
    assert len(names) == len(set(names))


def test_a_flag_sets_a_setting_or_a_parameter_that_there_is():
    targets = [flag.flag.setting_name for flag in declared_flags(RunOptions) if flag.flag.setting_name is not None]
    assert len(targets) > 40
    for sampler, *parameter in (target.split(".") for target in targets if target not in SETTINGS):
        fields = find_sampler(sampler).model_fields
        assert (parameter == [] and not fields) or parameter[0] in fields, (sampler, parameter)


def test_the_type_of_a_flag_is_that_of_its_parameter():
    for declared in (*MAIN_SAMPLER_FLAGS, *SAMPLER_FLAGS):
        sampler, _, parameter = (declared.setting_name or "").partition(".")
        if parameter and declared.value_type in (int, float):
            assert find_sampler(sampler).model_fields[parameter].annotation is declared.value_type, declared.name


FLAG_IN_TEXT = re.compile(r"(?<![\w-])--?[a-z][\w-]*", re.IGNORECASE)


def options_classes():
    """The options class of each command by its name, also of commands of groups."""
    for name in COMMANDS:
        command = load_command(name)
        for full_name, each in {name: command, **getattr(command, "commands", {})}.items():
            for cls in all_subclasses(Options):
                if tuple(declared_flags(cls)) == getattr(each.callback, "flags", None):
                    yield pytest.param(cls, id=name if each is command else f"{name} {full_name}")


def all_subclasses(cls):
    for subclass in cls.__subclasses__():
        yield subclass
        yield from all_subclasses(subclass)


@pytest.mark.parametrize("cls", list(options_classes()))
def test_advice_names_only_flags_that_the_command_has(cls):
    flags = {name for declared in declared_flags(cls) for name in (*declared.flag.names, *declared.flag.negatives)}
    for word in Word:
        text = flag_sentence(LogitsmithError("a", advice=("try ", word)), advice_words(cls))
        assert set(FLAG_IN_TEXT.findall(text)) <= flags
        is_of_setting = word not in (Word.BASIS_FROM_ROWS, Word.CHECKPOINT, Word.RESUME, Word.WAIT_FOR_SERVER)
        assert text != "a" or not (is_of_setting and "--set" in flags), word
