"""Every public name of a package can be imported, by programs and by type checkers, in any order."""

import ast
import subprocess
import sys
from importlib import import_module
from inspect import isclass, isroutine
from pathlib import Path
from types import ModuleType

import pytest

ROOMS = ["samplers.batch", "decide", "engine", "grammars", "logprobs", "models", "presets", "recover", "samplers"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_there_and_none_is_a_module(room):
    module = import_module(f"logitsmith.{room}")
    assert module.__all__
    for name in module.__all__:
        assert not isinstance(getattr(module, name), ModuleType), name
    with pytest.raises(AttributeError, match="nonsuch"):
        _ = module.nonsuch


@pytest.mark.parametrize("room", ["grammars", "logprobs", "recover"])
def test_no_public_name_is_hidden_by_a_module_of_that_name(room):
    program = (
        f"import pkgutil, types, logitsmith.{room} as room\n"
        "names = {found.name for found in pkgutil.iter_modules(room.__path__)}\n"
        "print(sorted(names & set(room.__all__)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("room", ROOMS)
def test_type_checkers_and_programs_import_the_same_names(room):
    tree = ast.parse(Path(import_module(f"logitsmith.{room}").__file__).read_text())
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = {
        (f"{'.' * node.level}{node.module}", alias.name, alias.asname)
        for node in block.body
        for alias in node.names
    }
    assignment = next(node for node in tree.body if isinstance(node, ast.Assign))
    assert ast.unparse(assignment.targets[0]) == "(__getattr__, __dir__, __all__)"
    names_by_module = ast.literal_eval(assignment.value.args[1])
    assert imported == {(module, name, name) for module, names in names_by_module.items() for name in names}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_lists_its_names_before_they_are_imported(room):
    program = f"import logitsmith.{room} as room\nprint(sorted(set(room.__all__) - set(dir(room))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("room", [*ROOMS, "samplers.batch"])
def test_every_public_class_and_function_says_what_it_is(room):
    module = import_module(f"logitsmith.{room}")
    described = {
        name: thing for name in module.__all__ if isroutine(thing := getattr(module, name)) or isclass(thing)
    }
    undocumented = [
        name for name, thing in described.items() if not thing.__doc__ or thing.__doc__.startswith(f"{name}(")
    ]
    assert undocumented == []  # a dataclass without a docstring gets its signature as one
