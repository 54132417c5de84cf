"""How the words of a command line become values, and what is used of Typer for it."""

import ast
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from logitsmith.cli.app import COMMANDS, Commands, app
from logitsmith.cli.command_line import GenCommand, GenGroup
from logitsmith.cli.command_options import command_line_of
from logitsmith.cli.options.output import Format
from logitsmith.common.errors import UsageError
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ..docs.test_commands import LEAVES

ROOT = Path(__file__).parents[2]
RUN = get_command(app).get_command(None, "run")


def read(*words, command=RUN, path="gen run"):
    """The values of the given flags and arguments, and how the flags were typed."""
    return command_line_of(command.make_context(path, list(words)))


VALUES = {
    "a flag of several letters with one dash": (["-ngl", "99"], {"gpu_layers": 99}),
    "a sign after it": (["-ngl=99"], {"gpu_layers": 99}),
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
    "text that begins with a dash": (["-n", "3", "--", "-text"], {"max_tokens": 3, "prompt": "-text"}),
    "stdin": (["-"], {"prompt": "-"}),
    "no text": ([""], {"prompt": ""}),
    "a path": (["-f", "a.txt"], {"file": Path("a.txt")}),
    "a choice": (["--format", "jsonl"], {"format": Format.jsonl}),
    "a reader of the flag": (["-t", "0", "-tb", "4"], {"threads": None, "batch_threads": 4}),
    "an integer with underscores": (["-s", "1_000"], {"seed": 1000}),
    "an integer with a point": (["-s", " -7.00 "], {"seed": -7}),
    "a number in powers of ten": (["--temp", "1e-3"], {"temp": 0.001}),
    "an infinite number": (["--temp", "inf"], {"temp": float("inf")}),
}


@pytest.mark.parametrize(("words", "values"), VALUES.values(), ids=VALUES)
def test_words_become_values(words, values):
    found = read(*words).values
    assert found == values
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in values.items()
    }


def test_a_flag_is_called_as_it_was_typed_last():
    assert read("-n5", "--top_k", "3", "--stop", "a", "-r", "b", "word").typed_names == {
        "max_tokens": "-n",
        "top_k": "--top-k",
        "stop": "-r",
    }


def test_an_absent_flag_has_its_default_in_each_call():
    context = RUN.make_context("gen run", ["-s", "7"])
    again = RUN.make_context("gen run", [])
    assert (context.params["seed"], again.params["seed"], again.params["batch_size"]) == (7, None, 512)


REFUSED = {
    "no flag": (["--zyx"], "there is no flag --zyx; gen run --help lists the flags"),
    "one letter": (["-x"], "there is no flag -x; to use text that begins with a dash: gen run [FLAGS] -- TEXT"),
    "bundled letters": (["-vs"], "there is no flag -vs; to use text"),
    "a sign after one letter": (["-n=5"], "-n=5: write -n 5"),
    "one dash too few": (["-temp", "1"], "there is no flag -temp; write --temp"),
    "a switch with a value": (["--chat=1"], "--chat takes no value; use --chat alone"),
    "no value": (["--temp"], "--temp needs a value after it"),
    "no integer": (["-s", "7.5"], "-s: '7.5' is not an integer"),
    "digits of another script": (["-s", "٣"], "-s: '٣' is not an integer"),
    "an integer that Python does not read": (["-s", "9" * 5000], "is not an integer of supported length"),
    "no number": (["--temp", "warm"], "--temp: 'warm' is not a number"),
    "none of the choices": (["--logprobs-from", "x"], "--logprobs-from: 'x' is not model, chain or both"),
    "the name as typed": (["--reverse-prompt=a", "--predict", "x"], "--predict: 'x' is not an integer"),
    "the first of two": (["-n", "x", "--temp", "y"], "-n: 'x' is not an integer"),
    "words too many": (["a", "b", "c"], "unexpected argument 'b c'; put quotes around a prompt of several words"),
}


@pytest.mark.parametrize(("words", "sentence"), REFUSED.values(), ids=REFUSED)
def test_wrong_words_are_refused(words, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)) as refused:
        read(*words)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("words", [["-h"], ["x", "--help"], ["-n", "x", "--help"]], ids=" ".join)
def test_help_comes_before_wrong_values(capsys, words):
    with pytest.raises(typer.Exit):
        read(*words)
    assert capsys.readouterr().out.startswith("Usage: gen run")


def test_help_may_be_a_value():
    assert read("-p", "--help").values == {"prompt_option": "--help"}


def test_no_library_is_imported_to_read_words(environment):
    program = (
        "import sys\nfrom logitsmith.cli.app import app\nfrom typer.main import get_command\n"
        "command = get_command(app).get_command(None, 'run')\n"
        "command.make_context('gen run', ['x', '-f', 'a', '-n', '1_0', '--lookup', '3', '--temp', '1e3'])\n"
        "print('pydantic' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    assert done.stderr == b"False\n"


USUAL = {
    int: ["0", "7", "-1", " 12", "1_000", "3.0", "x", "2.5", ""],
    float: ["0", "0.5", "-1.25", "1e3", "inf", ".5", " 1", "x", ""],
    str: ["a", "two words", "é", "-5", "--chat", ""],
    Path: ["a.txt", "-", "/tmp/x"],
}


def usual_line(command, chance):
    """Words that a plain command of Typer's can read: no underscores, and each flag with its value."""
    words = []
    flags = [flag for flag in command.flags if flag.field != "help"]
    for flag in chance.sample(flags, k=min(len(flags), chance.choice((1, 2, 3)))):
        texts = USUAL.get(flag.value_type, ["nope", *flag.choices])
        if flag.flag.parse is not None:
            texts = ["on", "off", "auto", "all", "0", "8", "x"]
        if flag.names_a_file:
            texts = [text for text in texts if text]  # an empty name is refused
        if flag.is_argument:
            words.append(chance.choice([text for text in texts if not text.startswith("-")]))
        elif not flag.takes_value:
            words.append(chance.choice(flag.names))
        else:
            name, text = chance.choice(flag.names), chance.choice(texts)
            words.extend([f"{name}={text}"] if len(name) > 2 and chance.random() < 0.3 else [name, text])
    return words


def outcome(command, words):
    """The values of all flags as the function of the command gets them; None for a wrong line."""
    try:
        params = command.make_context("gen x", list(words)).params
    except Exception as error:
        if getattr(error, "exit_code", None) != 2:
            raise
        return None
    return {name: None if value == () else value for name, value in params.items()}


@pytest.mark.parametrize(
    ("words", "command"),
    [leaf for leaf in LEAVES if len(leaf[1].flags) > 1],
    ids=[" ".join(words) for words, command in LEAVES if len(command.flags) > 1],
)
def test_a_plain_command_of_typers_reads_the_same(words, command):
    chance = random.Random(" ".join(words))
    plain_app = typer.Typer(add_completion=False)
    plain_app.command()(command.callback.__wrapped__)
    plain = get_command(plain_app)
    assert type(plain) is TyperCommand
    for line in (usual_line(command, chance) for _ in range(20)):
        if any(flag.flag.optional_value and name in line for flag in command.flags for name in flag.names):
            continue  # Typer has no value that may be left out
        assert outcome(command, line) == outcome(plain, line), line


FROM_TYPER = {
    "typer": {"Argument", "Context", "Exit", "Option", "Typer"},
    "typer.core": {"TyperCommand", "TyperGroup"},
    "typer.main": {"get_command"},
}
"""What the product uses of Typer: documented names, which a release may not take away without notice."""
METHODS = {"format_help", "get_command", "get_help", "get_help_option", "list_commands", "parse_args"}
METHODS |= {"resolve_command"}
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
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


OWN = {name for path in FILES for name in defined_names(ast.parse(path.read_text()))}


def private_names(tree):
    """The private attributes that a module uses and the project does not define; of other objects, the module."""
    in_module = set(defined_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            is_own = ast.unparse(node.value) in ("self", "cls", "super()")
            if node.attr not in (OWN if is_own else in_module) | PUBLIC:
                yield node.attr


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_only_documented_names_of_libraries_are_used(path):
    tree = ast.parse(path.read_text())
    assert [found for found in names_of_typer(tree) if found[1] not in FROM_TYPER.get(found[0], ())] == []
    assert set(private_names(tree)) == PRIVATE.get(str(path.relative_to(ROOT)), set())


def test_each_name_of_typer_that_is_allowed_is_used():
    used = {found for path in FILES for found in names_of_typer(ast.parse(path.read_text()))}
    assert used == {(module, name) for module, names in FROM_TYPER.items() for name in names}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(GenCommand, TyperCommand), (GenGroup, TyperGroup), (Commands, TyperGroup)]
)
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
def test_every_command_is_read_by_our_own_reader(name):
    command = get_command(app).get_command(None, name)
    assert isinstance(command, GenGroup if hasattr(command, "commands") else GenCommand)
    assert all(isinstance(sub, GenCommand) for sub in getattr(command, "commands", {}).values())
