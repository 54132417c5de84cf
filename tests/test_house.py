"""The house by topic: no module without a reason of its own, and rooms that stay within their budgets."""

import re

import pytest

from .test_layering import MODULES, ROOMS, ROOT, modules_imported

EXTENSION_POINTS = (
    *("samplers.methods.", "recover.methods.", "recover.endpoints.", "presets.foreign."),
    *("cli.commands.", "cli.render.", "serve."),
)
"""A module more here is a sampler, a method, a format, a command, an API more."""
SHORTEST = 60
"""A module of fewer lines is a paragraph of another one."""
LONGEST = 700

EXCEPTIONS = {
    "common.lazy": "every face imports it, and nothing else of common/",
    "engine.beam_search": "an algorithm that is proven by itself",
    "jobs.errors": "as below",
    "models.errors": "the errors of a room are imported by all of its modules",
    "presets.errors": "as above",
    "recover.errors": "as above",
    "samplers.errors": "as above",
    "presets.config_table": "pydantic must not be imported where there is no config.yaml",
    "cli.app": "`gen` itself: cli/__init__ starts it",
    "cli.chat.loop": "prompt_toolkit must not be imported by a command that only lists chats",
    "cli.chat.commands": "the table of a chat's commands grows by itself",
    "cli.completion.shells": "the scripts of three shells, beside what stands in them",
    "engine.template_sandbox": "what a template may do is read apart from which template there is",
    "grammars.completion_search": "an algorithm that is proven by itself",
    "grammars.gbnf.automaton": "an algorithm that is proven by itself",
    "grammars.gbnf.completion": "what ends a sentence of GBNF, beside the translation",
    "grammars.gbnf.lexemes": "one half of the translation; the parser is the other",
    "grammars.regex_syntax": "lark must not be imported by a run without a regex",
    "grammars.schema_errors": "imported when a schema is wrong",
    "recover.journal": "the format of checkpoints, which outlives a version",
    "samplers.batch.candidates": "an algorithm that is proven by itself",
}
"""Short modules and modules with one importer, each with the reason why it stands alone."""


def importers():
    found = {name: set() for name in MODULES}
    for name, path in MODULES.items():
        for imported in modules_imported(path):
            found[imported].add(name)
    return found


def test_every_module_is_imported():
    by_name = ("logitsmith.samplers.methods.", "logitsmith.cli.commands.")
    unused = {name for name, found in importers().items() if not found and not name.startswith(by_name)}
    assert {name for name in unused if MODULES[name].name not in ("__init__.py", "__main__.py")} == set()


def lines(name):
    return len(MODULES[name].read_text().splitlines())


def modules_that_need_a_reason():
    found = importers()
    for name, path in MODULES.items():
        short_name = name.removeprefix("logitsmith.")
        if path.name in ("__init__.py", "__main__.py") or short_name.startswith(EXTENSION_POINTS):
            continue
        others = [other for other in found[name] if MODULES[other].name != "__init__.py"]
        in_room = [other for other in others if other.split(".")[1] == name.split(".")[1]]
        if lines(name) < SHORTEST or len(others) == len(in_room) == 1:
            yield short_name


def test_a_module_that_could_be_part_of_another_one_has_a_reason():
    assert sorted(modules_that_need_a_reason()) == sorted(EXCEPTIONS)
    assert len(EXCEPTIONS) <= 30


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_read_in_one_go(name):
    assert lines(name) <= LONGEST


def test_a_room_stays_within_its_budget():
    rows = re.findall(r"^\| \d \| `(\w+)/` \| ([\d,]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    budgets = {room: int(budget.replace(",", "")) for room, budget in rows}
    assert set(budgets) == set(ROOMS)
    for room, budget in budgets.items():
        count = sum(lines(name) for name in MODULES if name.split(".")[1] == room)
        assert count <= 1.1 * budget, f"{room}/ has {count:,} lines; its budget in ARCHITECTURE.md is {budget:,}"


def test_every_module_stands_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = {part for words in re.findall(r"`([\w/.]+)`", text) for part in re.split(r"[/.]", words)}
    unnamed = [
        name
        for name, path in MODULES.items()
        if path.name not in ("__init__.py", "__main__.py")
        and not name.removeprefix("logitsmith.").startswith((*EXTENSION_POINTS[:5], "logprobs.report."))
        and not name.endswith(".errors")
        and name.rpartition(".")[2] not in named
    ]
    assert unnamed == []
