"""Lists of arguments and attributes in docstrings name exactly those that the code has."""

import ast
import re

import pytest

from .test_layering import FILES, ROOT

MAX_UNLISTED_ARGUMENTS = 3
SECTION = re.compile(r"^(Args|Attributes):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^[ ]{4}(?! )([\w*, `]+?)(?: \([^)]*\))?:(?: |$)", re.MULTILINE)


def listed(docstring, section):
    """Return the names that a section lists; None if the docstring does not have the section."""
    for title, body in SECTION.findall(f"{docstring}\n"):
        if title == section:
            return [name.strip("`* ") for entry in ENTRY.findall(body) for name in entry.split(",")]
    return None


def arguments(node):
    found = node.args
    in_order = (*found.posonlyargs, *found.args, found.vararg, *found.kwonlyargs, found.kwarg)
    names = [argument.arg for argument in in_order if argument]
    return [name for name in names if name not in ("self", "cls")]


def is_public(name):
    return not name.startswith("_")


def attributes(node):
    """Public attributes of a class: annotated fields, and those that its constructor sets."""
    names = fields(node)
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            for part in ast.walk(function):
                targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
                for target in targets:
                    is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
                    names += [target.attr] if is_own and isinstance(part, ast.Assign | ast.AnnAssign) else []
    return {name for name in names if is_public(name)}


def fields(node):
    return [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]


def definitions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node, ast.get_docstring(node) or ""


def constructor(node):
    return next((part for part in node.body if getattr(part, "name", "") == "__init__"), None)


def faults(path):
    for node, docstring in definitions(path):
        place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef):
            named = listed(docstring, "Attributes")
            if named is not None and not attributes(node) <= set(named):
                yield f"{place} does not list {sorted(attributes(node) - set(named))}"
            defined = attributes(node) | {getattr(part, "name", "") for part in node.body}
            if named is not None and not set(named) <= defined and not node.bases:
                yield f"{place} lists {sorted(set(named) - defined)}, which it does not have"
            named = listed(docstring, "Args")
            expected = arguments(constructor(node)) if constructor(node) else fields(node)
            if named is not None and named != expected:
                yield f"{place} lists {named} and takes {expected}"
        else:
            named = listed(docstring, "Args")
            if named is not None and named != arguments(node):
                yield f"{place} lists {named} and takes {arguments(node)}"
            if (
                docstring
                and named is None
                and is_public(node.name)
                and len(arguments(node)) > MAX_UNLISTED_ARGUMENTS
            ):
                yield f"{place} has {len(arguments(node))} arguments and no Args:"


VERBS = (
    "Builds|Collects|Compares|Compiles|Computes|Continues|Converts|Creates|Decides|Decodes|Describes|Detects|Divides|"
    "Draws|Finds|Generates|Handles|Holds|Inserts|Keeps|Loads|Makes|Measures|Parses|Prints|Reads|Recovers|Removes|"
    "Replaces|Returns|Runs|Sends|Serves|Shows|Splits|Stores|Turns|Wraps|Writes|Yields"
)
VERBS_THAT_ARE_NOUNS, OBJECTS = (
    "Answers|Checks|Counts|Queries|Records|Repeats|Requests|Samples",
    "an?|each|one|the",
)
THIRD_PERSON = re.compile(rf"({VERBS})\b|({VERBS_THAT_ARE_NOUNS}) ({OBJECTS})\b")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_classes_are_described_by_noun_phrases(path):
    tree = ast.parse(path.read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    docstrings = [ast.get_docstring(node) or "" for node in (tree, *classes)]
    assert [text.partition("\n")[0] for text in docstrings if THIRD_PERSON.match(text)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arguments_and_attributes_are_listed(path):
    assert list(faults(path)) == []
