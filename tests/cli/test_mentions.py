"""Command lines and flags that messages, help texts and docstrings mention: each exists."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest
from logitsmith.presets.llama_cpp_flags import llama_cpp_flags

from ..docs.test_commands import COMMANDS, names_of_flags

ROOT = Path(__file__).parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src" / "logitsmith").iterdir() if path.is_symlink())
OWN_FLAGS = {"--help", "-h", "--version"}
LLAMA_CPPS_FLAGS = {
    name
    for flag in json.loads((Path(__file__).parent / "llama_cpp_flags.json").read_text())["flags"]
    for name in flag["names"]
}
"""Names that messages explain to users of llama.cpp."""
PLACEHOLDER = "…"
"""In place of what an f-string fills in."""
MENTION = re.compile(r"(?<![\w./-])gen (?=[\w\"'…-])(.*?)(?=[;,:()|`\n\]]|</|\.(?:\s|$)| or | gen |$)")
FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
LONG_FLAG = re.compile(r"(?<![\w<-])--[a-z][a-z-]*[a-z]")
VERBS = {
    *("adds", "always", "calls", "cannot", "computes", "copies", "deletes", "does", "downloads", "draws", "ends"),
    *("finds", "has", "is", "keeps", "lists", "makes", "measures", "needs", "never", "prints", "reads"),
    *("runs", "samples", "searches", "sets", "was", "writes"),
}
"""Verbs and adverbs that make ``gen``, or a command before them, the subject of a sentence."""
FILTERS = {"pass", "concat", "scan", "check"}
"""Names of filters that a chat template cannot call: a name with a space is not a name in Jinja."""
FLAGS_OF_OTHERS = {
    *("--force-reinstall", "--no-cache-dir", "--no-binary", "--no-deps", "--head", "--env"),
    *("--allowlist-unicode-rule", "--json"),
}
"""Flags of pip, ray and docker, and two that no program of llama.cpp has."""
SHELL_SCRIPTS = ROOT / "cli" / "commands" / "completion.py"
"""Its texts are scripts, in which ``gen`` is a word of another program's command line."""


def texts(path):
    """The texts of a module, with the lines where they begin; an f-string has a mark for each value."""
    tree = ast.parse(path.read_text())
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = [part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values]
            yield node.lineno, "".join(values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


@cache
def texts_of_the_project():
    """The texts of all modules, each after its place."""
    found = [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for room in ROOMS
        for path in sorted((ROOT / "src" / "logitsmith" / room).resolve().rglob("*.py"))
        if path != SHELL_SCRIPTS
        for line, text in texts(path)
        if text.removeprefix("gen ") not in FILTERS
    ]
    return found + [(f"llama.cpp's {flag.names[0]}", flag.advice) for flag in llama_cpp_flags() if flag.advice]


def problem(mention):
    """The word of a command line that does not exist; None if all do, or if it is not a command line."""
    words = mention.split()
    command = COMMANDS["run"]
    if words[0] in COMMANDS:
        command = COMMANDS[words.pop(0)]
        subcommands = getattr(command, "commands", {})
        if words and words[0] in subcommands:
            command = subcommands[words.pop(0)]
        elif subcommands and words and words[0].isalpha() and words[0].islower() and words[0] not in VERBS:
            return words[0]
    elif words[0] in VERBS:
        return None
    elif words[0][0].islower():
        return words[0]
    known = names_of_flags(command) | OWN_FLAGS
    return next((flag for flag in FLAG.findall(" ".join(words)) if flag not in known), None)


def test_command_lines_that_are_mentioned_exist():
    mentions = [
        (match[1].strip(), place) for place, text in texts_of_the_project() for match in MENTION.finditer(text)
    ]
    assert len(mentions) > 100
    assert [(place, mention) for mention, place in mentions if problem(mention)] == []


WRONG = {
    "grammars try json": "try",
    "modles": "modles",
    "run --no-such-flag 3": "--no-such-flag",
    "--endpoint URL": "--endpoint",
    "presets show NAME --top": "--top",
}


@pytest.mark.parametrize(("mention", "word"), WRONG.items())
def test_a_command_line_that_does_not_exist_is_found(mention, word):
    assert problem(mention) == word


def test_flags_that_are_mentioned_in_sentences_exist():
    sentences = [
        (place, text)
        for place, text in texts_of_the_project()
        if not all(word.startswith("-") for word in text.split())
    ]
    mentioned = {(flag, place) for place, text in sentences for flag in LONG_FLAG.findall(text)}
    known = OWN_FLAGS.union(*map(names_of_flags, COMMANDS.values()), LLAMA_CPPS_FLAGS, FLAGS_OF_OTHERS)
    assert {(flag, place) for flag, place in mentioned if flag not in known} == set()


LISTS = {name: command.help for name, command in COMMANDS.items() if getattr(command, "commands", None)}


@pytest.mark.parametrize("name", LISTS)
def test_the_summary_of_a_group_names_its_commands(name):
    verbs = re.match(r"(List, [a-z, ]+ and [a-z]+) \w+\.", LISTS[name])
    if verbs:
        assert set(re.findall(r"[a-z]+", verbs[1].lower())) - {"and"} <= set(COMMANDS[name].commands)
