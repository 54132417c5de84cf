"""Every name in the `__all__` of a package can be imported, whatever was imported before."""

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

ROOMS = ["engine", "grammars", "logprobs", "models", "presets", "recover", "samplers"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_there_and_none_is_a_module(room):
    module = import_module(f"logitsmith.{room}")
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
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


@pytest.mark.parametrize("room", [*ROOMS, "samplers.batch"])
def test_a_room_lists_its_names_before_they_are_imported(room):
    program = f"import logitsmith.{room} as room\nprint(sorted(set(room.__all__) - set(dir(room))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
