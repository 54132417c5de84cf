"""Names: no two public classes share one, so that a name means one thing in the whole project."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ["cli", "cluster", "common", "engine", "grammars", "logprobs", "presets", "recover", "samplers"]

SHARED = {
    "Vocabulary": "samplers/ and grammars/ each need a protocol of the engine's class, and may not import it",
}
"""The names that several classes may have, and why."""


def public_classes():
    """The modules in which each public class is defined, by its name."""
    modules = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(str(path.relative_to(ROOT)))
    return modules


def test_no_two_public_classes_share_a_name():
    shared = {name: paths for name, paths in public_classes().items() if len(paths) > 1 and name not in SHARED}
    assert shared == {}


def test_each_exception_is_needed():
    classes = public_classes()
    assert [name for name in SHARED if len(classes[name]) < 2] == []
