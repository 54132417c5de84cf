"""Docstrings name every parameter: what stands under ``Args:`` is what the function takes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ["cli", "common", "engine", "grammars", "logprobs", "models", "presets", "recover", "samplers"]
MOST_WITHOUT_A_LIST = 3

SECTION = re.compile(r"^Args:\n((?: +.*\n?|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\w+):", re.MULTILINE)

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def documented(room: str) -> Iterator[tuple[str, Documented, str]]:
    """Where it stands, the function or class, and its docstring."""
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, Documented) and (docstring := ast.get_docstring(node)) is not None:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}", node, docstring


def listed(docstring: str) -> list[str] | None:
    """The names under ``Args:``; None without that section."""
    section = SECTION.search(docstring)
    return None if section is None else ENTRY.findall(section[1])


def parameters(node: Documented) -> list[str]:
    """A function's parameters, or those of a class: of its constructor, else its fields."""
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                return parameters(inner)
        return [
            inner.target.id
            for inner in node.body
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
        ]
    given = node.args
    arguments = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    names = [argument.arg for argument in arguments if argument is not None]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


@pytest.mark.parametrize("room", ROOMS)
def test_the_list_of_arguments_is_complete_and_in_order(room):
    for title, node, docstring in documented(room):
        names = listed(docstring)
        assert names is None or names == parameters(node), title


@pytest.mark.parametrize("room", ROOMS)
def test_a_public_function_of_many_parameters_lists_them(room):
    for title, node, docstring in documented(room):
        if not isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert len(parameters(node)) <= MOST_WITHOUT_A_LIST or listed(docstring) is not None, title
