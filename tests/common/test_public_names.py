"""The public names of version 0.1 still work: under the same name, or as an old name in `RENAMED`."""

import inspect
import re
from pathlib import Path

import pytest
from logitsmith.common.renamed import RENAMED

from ..record_public_names import exports, public_names

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").splitlines()
RELEASED = {name: shown for name, _, shown in (line.removesuffix(")").partition("(") for line in LINES)}
"""The parameters of each public name of version 0.1, as the file shows them; empty for other names."""
PRESENT = public_names()
EXPORTED = dict(exports())


def present_name(name):
    """Return the present name of a public name of version 0.1."""
    package, _, export = name.rpartition(".")
    if name in PRESENT:
        return name
    owner = present_name_of_export(package)
    if owner in EXPORTED:
        return f"{owner}.{renamed_members(EXPORTED[owner]).get(export, export)}"
    return present_name_of_export(name)


def present_name_of_export(name):
    package, _, export = name.rpartition(".")
    return f"{package}.{renamed_in_package(package).get(export, export)}"


def renamed_in_package(package):
    modules = {f"{package}.constraint"} if package.endswith("grammars") else set()
    return {old: new for module in {package, *modules} for old, new in RENAMED.get(module, {}).items()}


def renamed_members(exported):
    return {
        old: new
        for base in reversed(exported.__mro__)
        for old, new in RENAMED.get(f"{base.__module__}.{base.__qualname__}", {}).items()
    }


def renamed_parameters(name):
    """Return the new name of each old parameter of a function, method or class."""
    if name in EXPORTED:
        owner = EXPORTED[name]
        full_name = f"{owner.__module__}.{owner.__qualname__}"
        members = renamed_members(owner) if inspect.isclass(owner) else {}
        return {**members, **RENAMED.get(full_name, {}), **RENAMED.get(f"{full_name}.__init__", {})}
    owner_name, _, method = name.rpartition(".")
    function = getattr(EXPORTED[owner_name], method)
    return RENAMED.get(f"{function.__module__}.{function.__qualname__}", {})


@pytest.mark.parametrize("name", RELEASED)
def test_a_name_of_the_release_before_works(name):
    new_name = present_name(name)
    assert new_name in PRESENT
    shown = RELEASED[name]
    if not shown:
        return
    new_names = renamed_parameters(new_name)
    before, present = shown.split(", "), PRESENT[new_name]
    assert present is not None
    required = set()
    known = {parameter.removesuffix("=") for parameter in present}
    keyword_only = before.index("*") if "*" in before else len(before)
    for index, parameter in enumerate(before):
        plain = parameter.removesuffix("=")
        renamed = new_names[plain] if new_names.get(plain) in known else plain
        assert renamed in known, f"{plain} is neither a parameter nor an old name"
        if index < keyword_only and plain.isidentifier():
            assert present[index].removesuffix("=") == renamed, "another position"
        if parameter.isidentifier():
            required.add(renamed)
    assert [p for p in present if p.isidentifier() and p not in required] == [], "a new required parameter"


def test_the_changelog_lists_the_old_names():
    rows = re.findall(r"^  \| `([\w.]+)` \| (`.*`) \|$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    listed = {
        f"logitsmith.{owner}": dict(re.findall(r"`(\w+)` → `(\w+)`", names))
        for owner, names in rows
        if " → " in names
    }
    assert listed == {owner: dict(names) for owner, names in RENAMED.items()}
