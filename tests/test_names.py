"""Names: no two public classes share one, so that a name means one thing in the whole project."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ["cli", "cluster", "common", "engine", "grammars", "logprobs", "models", "presets", "recover", "samplers"]

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


# Sentences of these packages reach users of Python, who have no flags; the command line names flags in advice.
# In presets/ a value's origin is what the user typed, and cluster/ serves the command line alone.
PACKAGES_WITHOUT_FLAGS = ["common", "engine", "grammars", "logprobs", "models", "recover", "samplers"]
FLAG = re.compile(r"(?:^|[\s('\"])--?(?!inf\b)[a-z]+(?:-[a-z]+)*(?![\w-])")
NAMED_FLAGS = {
    "-m": "the origin of a model's path, as `locate` returns it",
    "gen batch writes them with --logprobs N": "names its command",
}
"""The strings that may name a flag, and why."""


def strings_but_docstrings(tree):
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


@pytest.mark.parametrize("package", PACKAGES_WITHOUT_FLAGS)
def test_no_sentence_for_python_names_a_flag(package):
    found = {
        (str(path.relative_to(ROOT)), text)
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in strings_but_docstrings(ast.parse(path.read_text()))
        if FLAG.search(text) and not any(allowed in text for allowed in NAMED_FLAGS)
    }
    assert found == set()


ADVICE_OF_OURS = {"LENIENT_HINT", "advice", "error.advice", "self.advice"}
"""The expressions that advice may be, besides a string: constants, and the advice of another error."""


def test_advice_holds_no_values_of_the_user():
    found = {
        (str(path.relative_to(ROOT)), ast.unparse(keyword.value))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "").endswith("Error")
        for keyword in call.keywords
        if keyword.arg == "advice" and not isinstance(keyword.value, ast.Constant)
    }
    assert {pair for pair in found if pair[1] not in ADVICE_OF_OURS} == set()


def test_no_two_public_classes_share_a_name():
    shared = {name: paths for name, paths in public_classes().items() if len(paths) > 1 and name not in SHARED}
    assert shared == {}


def test_each_exception_is_needed():
    classes = public_classes()
    assert [name for name in SHARED if len(classes[name]) < 2] == []
