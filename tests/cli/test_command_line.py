"""How the words of a command line become values, and what is used of Typer for it."""

import ast
from functools import cache
from pathlib import Path

import pytest
import typer
from logitsmith.cli.app import Commands
from logitsmith.cli.command_line import GenCommand
from logitsmith.cli.command_table import COMMANDS, load_command
from logitsmith.cli.options.output import Format
from logitsmith.common.errors import UsageError
from typer.core import TyperCommand, TyperGroup

ROOT = Path(__file__).parents[2]
RUN = load_command("run")
WrongLine = typer.BadParameter.__base__  # of all errors that Typer finds in a line


def parse(*words, **facts):
    return RUN.make_context("gen run", list(words), help_option_names=["--help", "-h"], **facts)


def read(*words):
    """The values of the flags and arguments that are typed."""
    context = parse(*words)
    sources = {name: context.get_parameter_source(name).name for name in context.params}
    return {name: value for name, value in context.params.items() if sources[name] == "COMMANDLINE"}


VALUES = {
    "a flag of several letters with one dash": (["-ngl", "99"], {"gpu_layers": "99"}),
    "a sign after it": (["-ngl=99"], {"gpu_layers": "99"}),
    "a number below zero": (["-n", "-1"], {"max_tokens": -1}),
    "a number in the same word": (["-n5"], {"max_tokens": 5}),
    "a number below zero in the same word": (["-n-1"], {"max_tokens": -1}),
    "a value after a sign": (["--top-k=40"], {"top_k": 40}),
    "underscores": (["--top_k=40", "--min_p", "0.5"], {"top_k": 40, "min_p": 0.5}),
    "a flag that switches off": (["-no-cnv"], {"chat": False}),
    "the same with two dashes": (["--no-cnv"], {"chat": False}),
    "the last one of two": (["--chat", "--no-chat"], {"chat": False}),
    "a number that may be left out, and is": (["--trace", "word"], {"trace": 20, "prompt": "word"}),
    "a number that may be left out, before a flag": (["--trace", "-n", "3"], {"trace": 20, "max_tokens": 3}),
    "a number that may be left out, and is not": (["--trace", "7", "word"], {"trace": 7, "prompt": "word"}),
    "a repeated flag": (["--stop", "a", "x", "-r", "b"], {"stop": ["a", "b"], "prompt": "x"}),
    "a flag as a value": (["-p", "--chat"], {"prompt_option": "--chat"}),
    "a number after a sign and one letter": (["-n=5"], {"max_tokens": 5}),
    "the last one of two names": (["--temp", "1", "--temperature", "2"], {"temp": 2.0}),
    "a name that is not in the columns of the help": (["--display-prompt"], {"echo": True}),
    "one that switches off": (["--no-display-prompt"], {"echo": False}),
    "a word for which nothing is typed": (["--loop-guard", "word"], {"loop_guard": "stop", "prompt": "word"}),
    "text that begins with a dash": (["-n", "3", "--", "-text"], {"max_tokens": 3, "prompt": "-text"}),
    "stdin": (["-"], {"prompt": "-"}),
    "no text": ([""], {"prompt": ""}),
    "a path": (["-f", "a.txt"], {"file": Path("a.txt")}),
    "a choice": (["--format", "jsonl"], {"format": Format.jsonl}),
    "a reader of the flag": (["-t", "0", "-tb", "4"], {"threads": None, "batch_threads": 4}),
    "an integer with underscores": (["-s", "1_000"], {"seed": 1000}),
    "an integer between spaces": (["-s", " -7 "], {"seed": -7}),
    "a number in powers of ten": (["--temp", "1e-3"], {"temp": 0.001}),
    "llama.cpp's names": (
        ["--temperature", "0.3", "--reverse-prompt", "x", "-ngl", "all", "--repeat_last_n=4"],
        {"temp": 0.3, "stop": ["x"], "gpu_layers": "all", "repeat_last_n": 4},
    ),
    "an infinite number": (["--temp", "inf"], {"temp": float("inf")}),
}


@pytest.mark.parametrize(("words", "values"), VALUES.values(), ids=VALUES)
def test_words_become_values(words, values):
    found = read(*words)
    assert found == values
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in values.items()
    }


def test_an_absent_flag_has_its_default_in_each_call():
    context, again = parse("-s", "7"), parse()
    assert (context.params["seed"], again.params["seed"], again.params["batch_size"]) == (7, None, 512)


REFUSED = {
    "no flag": (["--zyx"], "--zyx"),
    "nearly a flag": (["--tmep", "1"], "--temp"),
    "one letter": (["-x"], "-x"),
    "bundled letters": (["-vs"], "-vs"),
    "one dash too few": (["-temp", "1"], "-temp"),
    "a switch with a value": (["--chat=1"], "--chat"),
    "no value": (["--temp"], "--temp"),
    "no integer": (["-s", "7.5"], "-s"),
    "digits of another script": (["-s", "x٣"], "-s"),
    "an integer that Python does not read": (["-s", "9" * 5000], "-s"),
    "no number": (["--temp", "warm"], "--temp"),
    "none of the choices": (["--logprobs-from", "x"], "--logprobs-from"),
    "an empty name of a file": (["-f", ""], "-f"),
    "words too many": (["a", "b", "c"], "b c"),
}


@pytest.mark.parametrize(("words", "named"), REFUSED.values(), ids=REFUSED)
def test_wrong_words_are_refused(words, named):
    with pytest.raises((WrongLine, UsageError)) as refused:
        read(*words)
    error = refused.value
    assert named in (str(error) if isinstance(error, UsageError) else error.format_message())
    assert error.exit_code == 2


@pytest.mark.parametrize("words", [["-h"], ["x", "--help"], ["-n", "x", "--help"]], ids=" ".join)
def test_help_comes_before_wrong_values(capsys, words):
    with pytest.raises(typer.Exit):
        read(*words)
    assert "Usage: gen run" in capsys.readouterr().out


def test_help_may_be_a_value():
    assert read("-p", "--help") == {"prompt_option": "--help"}


def test_words_are_left_alone_while_they_are_typed():
    assert parse("-pps", "--zyx", resilient_parsing=True).params["prompt"] is None


FROM_TYPER = {
    "typer": {"Argument", "BadParameter", "Context", "Exit", "Option", "Typer"},
    "typer.core": {"TyperCommand", "TyperGroup"},
    "typer.main": {"get_command", "get_install_completion_arguments"},
}
"""What the product uses of Typer: public names, which a release may not take away without notice."""
METHODS = {"__init__", "parse_args", "resolve_command"}
ROOMS = sorted(path.resolve() for path in (ROOT / "src" / "logitsmith").iterdir() if path.is_symlink())
FOLDERS = [*ROOMS, ROOT / "tools", ROOT / "docs" / "tools"]
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
PUBLIC = {"_replace", "_asdict", "_exit"}
"""Of NamedTuple and of os: the underscore is part of a documented name."""
PRIVATE = {
    "cli/interrupt.py": {"_HANDLER"},  # a name of the type stubs
    "engine/model.py": {"_Hash"},  # likewise
}


def names_of_typer(tree):
    """The names of Typer or click that a module uses, each with the module that has it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("typer", "click"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                (alias.name, "*")
                for alias in node.names
                if alias.name.partition(".")[0] in ("typer", "click") and (alias.name != "typer" or alias.asname)
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "typer":
            yield "typer", node.attr


def defined_names(tree):
    """The names of functions, of fields, and of attributes that a module sets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def own_names():
    return {name for path in FILES for name in defined_names(tree_of(path))}


def private_names(tree):
    """The private attributes that a module uses and the project does not define; of other objects, the module."""
    in_module = set(defined_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            is_own = ast.unparse(node.value) in ("self", "cls", "super()")
            if node.attr not in (own_names() if is_own else in_module) | PUBLIC:
                yield node.attr


def test_only_documented_names_of_libraries_are_used():
    names = {str(path.relative_to(ROOT)): set(names_of_typer(tree_of(path))) for path in FILES}
    unknown = {
        path: {name for name in found if name[1] not in FROM_TYPER.get(name[0], ())}
        for path, found in names.items()
    }
    assert {path: found for path, found in unknown.items() if found} == {}
    private = {str(path.relative_to(ROOT)): set(private_names(tree_of(path))) for path in FILES}
    assert {path: found for path, found in private.items() if found} == PRIVATE


def test_each_name_of_typer_that_is_allowed_is_used():
    used = {found for path in FILES for found in names_of_typer(tree_of(path))}
    assert used == {(module, name) for module, names in FROM_TYPER.items() for name in names}


@pytest.mark.parametrize(("ours", "theirs"), [(GenCommand, TyperCommand), (Commands, TyperGroup)])
def test_our_commands_override_documented_methods_alone(ours, theirs):
    overridden = {name for name, value in vars(ours).items() if callable(value) and hasattr(theirs, name)}
    assert overridden
    assert overridden <= METHODS


def test_the_walk_sees_private_names():
    tree = ast.parse(
        "import typer.models, click\nimport typer as t\nfrom typer import Abort\ntyper.BadParameter\nit._long"
    )
    whole = {("typer.models", "*"), ("click", "*"), ("typer", "*")}
    assert set(names_of_typer(tree)) == whole | {("typer", "Abort"), ("typer", "BadParameter")}
    assert list(private_names(tree)) == ["_long"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_knows_the_forms_of_llama_cpp(name):
    command = load_command(name)
    assert all(isinstance(each, GenCommand) for each in getattr(command, "commands", {"": command}).values())
