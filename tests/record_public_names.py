"""Write tests/public_names.txt: the public names of a release, with the parameters of functions and methods.

git archive RELEASE | tar x -C FOLDER, and install it into a virtual environment, whose Python then runs
python -W ignore tests/record_public_names.py > tests/public_names.txt

A line is a full name. Parameters follow in parentheses: `=` marks a default, and those after `*` need their name.
`tests/common/test_public_names.py` compares the file with the present names.
"""

import dataclasses
import inspect
import re
from importlib import import_module

PACKAGES = ["samplers", "samplers.batch", "grammars", "logprobs", "engine", "models", "presets", "recover"]
ATTRIBUTE = re.compile(r"self\.([a-z]\w*)\s*(?::[^=\n]+)?=[^=]")


def exports():
    """Yield the name of each export of the packages, and the object."""
    for package in PACKAGES:
        module = import_module(f"logitsmith.{package}")
        for name in module.__all__:
            yield f"logitsmith.{package}.{name}", getattr(module, name)


def parameters(function):
    """Return the parameters as a line shows them; None for what cannot be called or is written in C."""
    try:
        signature = inspect.signature(inspect.unwrap(function))
    except (TypeError, ValueError):
        return None
    shown = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        shown.append(f"{star}{parameter.name}{'' if parameter.default is parameter.empty else '='}")
    return shown


def members(exported):
    """Yield the public members of a class that logitsmith defines, with their parameters."""
    found = {}
    for base in reversed(exported.__mro__):
        if not base.__module__.startswith("logitsmith."):
            continue
        names = {**dict.fromkeys(inspect.get_annotations(base)), **vars(base)}
        names |= dict.fromkeys(ATTRIBUTE.findall(inspect.getsource(base)), None)
        if dataclasses.is_dataclass(base):
            names |= {field.name: None for field in dataclasses.fields(base)}
        found |= {
            name: value for name, value in names.items() if not name.startswith("_") and name != "model_config"
        }
    for name, value in sorted(found.items()):
        if type(value).__name__ != "_OldAttribute":
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            yield name, parameters(function) if inspect.isfunction(function) else None


def public_names():
    """Return the parameters of each public name; None for a name that is not a class, function or method."""
    names = {}
    for name, exported in exports():
        is_documented = inspect.isclass(exported) or inspect.isfunction(exported)
        names[name] = parameters(exported) if is_documented else None
        if inspect.isclass(exported):
            names |= {f"{name}.{member}": shown for member, shown in members(exported)}
    return names


if __name__ == "__main__":
    for full_name, shown in public_names().items():
        print(full_name if shown is None else f"{full_name}({', '.join(shown)})")
