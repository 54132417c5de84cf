"""Merge and rename modules of the packages, and rewrite every import of the project.

    python tools/move_modules.py PLAN.json

PLAN.json has the following keys. All except ``map`` are optional. Modules are paths without ``.py``. A module that
is not named stays where it is.

- ``map``: for each new module, the old modules that it is made of.
- ``renamed``: ``"OLD NAME": NAME`` for each definition that gets another name.
- ``docs``: the docstring of a new module; without it, the docstring of its first old module is used.
- ``faces``: the public names of a package, which are imported when they are first used.

Imports inside the packages name the module that defines a name. Other imports use the public name of a package if
there is one. Strings that name a module (``logitsmith.PACKAGE.MODULE.NAME``) are rewritten, too. The bodies of
functions and classes are not changed otherwise. Run ``ruff check --fix`` and ``ruff format`` afterwards, which
sort and join the imports. Everything that cannot be moved safely is printed.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {"chats", "cli", "cluster", "common", "engine", "grammars", "jobs", "logprobs", "models", "presets"}
ROOMS |= {"recover", "samplers"}
DROPPED = "pass  # dropped"
_FACE_NAMES = {"__all__", "__getattr__"}
_PACKAGE = "logitsmith"


class Place(NamedTuple):
    """A definition, by its module and name; ``name`` is None for the module as an object."""

    module: str | None
    name: str | None


class Edit(NamedTuple):
    """A range of bytes in a file, and the bytes that replace it."""

    start: int
    end: int
    text: str


class Project:
    """All Python files in git, and the definitions and imports of each module of the packages."""

    def __init__(self, root: Path) -> None:
        command = ["git", "ls-files", "*.py"]
        names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
        self.sources = {name: (root / name).read_text() for name in names if (root / name).exists()}
        self.trees = {name: ast.parse(source) for name, source in self.sources.items()}
        self.modules = {name[:-3] for name in self.sources if name.partition("/")[0] in ROOMS}
        self.defined: dict[str, set[str]] = {}
        self.external: dict[str, set[str]] = {}
        self.imported: dict[str, dict[str, Place]] = {}
        for module in self.modules:
            self.defined[module], self.external[module], self.imported[module] = set(), set(), {}
            self._scan(module, self.trees[f"{module}.py"].body)

    def _scan(self, module: str, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                    self.defined[module].add(node.name)
                case ast.Assign():
                    names = (name for target in node.targets for name in ast.walk(target))
                    self.defined[module] |= {name.id for name in names if isinstance(name, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name)):
                    self.defined[module].add(name)
                case ast.If() | ast.Try():
                    self._scan(module, [*node.body, *node.orelse])
                case ast.With():
                    self._scan(module, node.body)
                case ast.Import():
                    self.external[module] |= {alias.asname for alias in node.names if alias.asname}
                case ast.ImportFrom():
                    places = self.places(f"{module}.py", node)
                    self.imported[module] |= {alias.asname or alias.name: place for place, alias in places}
                    if not places:
                        self.external[module] |= {alias.asname or alias.name for alias in node.names}

    def module_at(self, parts: list[str]) -> str | None:
        """Return the module or package with this dotted path; None if it is not part of the project."""
        path = "/".join(parts)
        return next((found for found in (path, f"{path}/__init__") if found in self.modules), None)

    def places(self, file: str, node: ast.ImportFrom) -> list[tuple[Place, ast.alias]]:
        """Return the definitions that an import names; nothing if it imports from elsewhere."""
        parts = (node.module or "").split(".") if node.module else []
        if node.level == 0:
            if parts[:1] != [_PACKAGE]:
                return []
            base = parts[1:]
        elif file.partition("/")[0] not in ROOMS:
            return []
        else:
            package = file.split("/")[:-1]
            base = [*package[: len(package) - node.level + 1], *parts]
        module = self.module_at(base)
        found = []
        for alias in node.names:
            inner = self.module_at([*base, alias.name])
            is_name = module is not None and (inner is None or alias.name in self.face_names(module))
            found.append((Place(module, alias.name) if is_name else Place(inner, None), alias))
        return found

    def face_names(self, module: str) -> set[str]:
        """Return ``__all__`` of a package."""
        if not module.endswith("__init__") or module not in self.modules:
            return set()
        for node in self.trees[f"{module}.py"].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return set(ast.literal_eval(node.value)) if isinstance(node.value, ast.List) else set()
        return set()

    def defining(self, place: Place) -> Place:
        """Follow imports to the module that defines a name."""
        seen = set()
        while place.module and place.name and place not in seen:
            seen.add(place)
            if place.name in self.defined[place.module]:
                break
            place = self.imported[place.module].get(place.name, place)
        return place

    def knows(self, place: Place) -> bool:
        """Return whether a module defines the name, or imports it from another project."""
        module, name = place
        return module in self.modules and name in self.defined[module] | self.external[module]

    def is_face(self, module: str) -> bool:
        """Return whether a package contains only imports."""
        for node in self.trees[f"{module}.py"].body:
            is_import = isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.If)
            names = [node.name] if isinstance(node, ast.FunctionDef) else []
            names += [ast.unparse(target) for target in getattr(node, "targets", [])]
            if not is_import and not (names and set(names) <= _FACE_NAMES):
                return False
        return module.endswith("__init__")


class Mover:
    """Executes a plan; ``problems``: messages about what has to be changed by hand."""

    def __init__(self, project: Project, plan: dict[str, Any]) -> None:
        self.project = project
        self.map: dict[str, list[str]] = plan["map"]
        self.docs: dict[str, str] = plan.get("docs", {})
        faces: dict[str, list[str]] = plan.get("faces", {})
        self.faces = {f"{package}/__init__": names for package, names in faces.items()}
        self.renamed = {tuple(key.split()): new for key, new in plan.get("renamed", {}).items()}
        self.new_of = {module: module for module in project.modules}
        self.new_of |= {old: new for new, olds in self.map.items() for old in olds}
        lazy = (module for module in project.modules if "lazy_exports" in project.defined[module])
        self._lazy_module = next(lazy, "")
        self.problems = [f"{old} is not a module" for old in self.new_of if old not in project.modules]

    def new_place(self, place: Place) -> tuple[str, str]:
        """Return the new module and the new name of a definition."""
        module, name = str(place.module), str(place.name)
        return self.new_of[module], self.renamed.get((module, name), name)

    def run(self, root: Path) -> None:
        """Rewrite all files."""
        faces = {module for module in self.project.modules if self.project.is_face(module)}
        texts = {file: _File(self, file).rewritten() for file in self.project.sources}
        moved = {file: text for file, text in texts.items() if file.partition("/")[0] not in ROOMS}
        planned = set(self.faces) | set(self.map)
        for module in self.project.modules:
            if self.new_of[module] == module and module not in planned:
                moved[f"{module}.py"] = texts[f"{module}.py"]
        for new, olds in self.map.items():
            parts = {old: texts[f"{old}.py"] for old in self._by_dependency(olds) if old not in faces}
            if parts:
                first = next(old for old in olds if old in parts)
                moved[f"{new}.py"] = self._merged(new, parts, first)
        for file in [file for file in moved if file.partition("/")[0] in ROOMS]:
            for depth in range(1, file.count("/") + 1):
                package = "/".join([*file.split("/")[:depth], "__init__"])
                moved.setdefault(f"{package}.py", self._face(package))
        for file in self.project.sources:
            if file not in moved:
                (root / file).unlink()
        for file, text in moved.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)

    def _by_dependency(self, olds: list[str]) -> list[str]:
        """Return the old modules of a new one, each after the modules that it needs while it is imported."""
        needed: dict[str, set[str]] = {old: set() for old in olds}
        for old in olds:
            for node in self.project.trees[f"{old}.py"].body:
                if isinstance(node, ast.ImportFrom):
                    places = (self.project.defining(place) for place, _ in self.project.places(f"{old}.py", node))
                    needed[old] |= {place.module for place in places if place.module in needed} - {old}
        ordered: list[str] = []
        while len(ordered) < len(olds):
            rest = [old for old in olds if old not in ordered]
            ready = next((old for old in rest if needed[old] <= set(ordered)), None)
            if ready is None:
                self.problems.append(f"these import each other: {', '.join(rest)}")
            ordered.append(ready or rest[0])
        return ordered

    def _merged(self, new: str, parts: dict[str, str], first: str) -> str:
        sections = {old: _sections(text) for old, text in parts.items()}
        doc = f'"""{self.docs[new]}"""' if new in self.docs else sections[first].doc
        if len(parts) == 1:
            return _with_doc(parts[first], doc)
        owners: dict[str, str] = {}
        for old in parts:
            for name in self.project.defined[old]:
                new_name = self.renamed.get((old, name), name)
                if owners.setdefault(new_name, old) != old:
                    self.problems.append(f"{new}: {new_name} is defined in {owners[new_name]} and in {old}")
        imports = list(dict.fromkeys(line for part in sections.values() for line in part.imports))
        known = {name for line in imports for name in _imported_names(line)}
        for_types = dict.fromkeys(line for part in sections.values() for line in part.for_types)
        needed = [line for line in for_types if not set(_imported_names(line)) <= known]
        if needed:
            imports.append("from typing import TYPE_CHECKING")
            imports.append("if TYPE_CHECKING:\n" + textwrap.indent("\n".join(needed), "    "))
        bodies = [part.body.strip("\n") for part in sections.values() if part.body.strip()]
        return "\n\n".join(
            [
                doc,
                "from __future__ import annotations",
                "\n".join(dict.fromkeys(imports)),
                "\n\n\n".join(bodies),
                "",
            ]
        )

    def _face(self, package: str) -> str:
        """Return the source of a package that imports its public names when they are first used."""
        old = self.project.trees.get(f"{package}.py")
        doc = self.docs.get(package) or (old and ast.get_docstring(old)) or "A package without a docstring."
        names = self.faces.get(package)
        if not names:
            return f'"""{doc}"""\n'
        modules: dict[str, list[str]] = defaultdict(list)
        for name in names:
            module, new_name = self.new_place(self.project.defining(self.imported_as(package, name)))
            shown = name if name == new_name else f"{new_name} as {name}"
            modules[relative_name(package, module)].append(shown)
        lazy = relative_name(package, self.new_of[self._lazy_module])
        return "\n".join(
            [
                f'"""{doc}"""',
                "from __future__ import annotations",
                "from typing import TYPE_CHECKING",
                f"from {lazy} import lazy_exports",
                "if TYPE_CHECKING:",
                *(f"    from {module} import {', '.join(each)}" for module, each in sorted(modules.items())),
                f"__all__ = {sorted(names)!r}",
                "__getattr__, __dir__ = lazy_exports(__name__)",
                "",
            ]
        )

    def imported_as(self, package: str, name: str) -> Place:
        """Return the old place of a package's public name, in the old package or in a new module of it."""
        for old in [package, *(old for old, new in self.new_of.items() if new == package)]:
            if old in self.project.modules and name in self.project.imported[old]:
                return self.project.imported[old][name]
        folder = package.removesuffix("__init__")
        inner = [module for module in sorted(self.project.modules) if self.new_of[module].startswith(folder)]
        owners = [module for module in inner if name in self.project.defined[module]]
        if len(owners) != 1:
            self.problems.append(f"{package}: {name} is defined in {owners or 'no module'}")
        return Place(owners[0] if owners else package, name)


class _File:
    """A file, and the edits that its imports need."""

    def __init__(self, mover: Mover, file: str) -> None:
        self._mover, self._project, self._file = mover, mover.project, file
        self._tree = self._project.trees[file]
        self._data = self._project.sources[file].encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._old = file[:-3] if file.partition("/")[0] in ROOMS else None
        self._new = mover.new_of[self._old] if self._old else None
        self._objects = self._module_objects()
        self._attributes = self._names_of_objects()

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _module_objects(self) -> dict[str, str]:
        """Return the modules that are imported as objects, by their names in this file."""
        return {
            alias.asname or alias.name: place.module
            for node in ast.walk(self._tree)
            if isinstance(node, ast.ImportFrom)
            for place, alias in self._project.places(self._file, node)
            if place.name is None and place.module is not None
        }

    def _names_of_objects(self) -> dict[str, set[str]]:
        """Return modules whose names are imported instead, by these modules' names in this file."""
        names = {
            name: set[str]()
            for name, module in self._objects.items()
            if self._new is not None and (module.endswith("__init__") or self._mover.new_of[module] == self._new)
        }
        attributes = [node for node in ast.walk(self._tree) if isinstance(node, ast.Attribute)]
        inside = {id(node.value) for node in attributes if not node.attr.startswith("__")}
        for attribute in attributes:
            if isinstance(attribute.value, ast.Name) and attribute.value.id in names:
                names[attribute.value.id].add(attribute.attr)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and node.id in names and id(node) not in inside:
                del names[node.id]
        return names

    def rewritten(self) -> str:
        """Return the source with new imports, names and strings."""
        edits = [edit for node in ast.walk(self._tree) for edit in self._edits_of(node)]
        edits += self._renames()
        parts, position = [], 0
        for edit in sorted(edits):
            if edit.start >= position:
                parts += [self._data[position : edit.start].decode(), edit.text]
                position = edit.end
        text = "".join([*parts, self._data[position:].decode()])
        text = re.sub(rf"( +){DROPPED}\n(?=(?:\n*)\1\S)", "", text)
        lines = (
            line if re.match(r"\s*(from|import) ", line) else self._strings(line) for line in text.split("\n")
        )
        return "\n".join(lines)

    def _edits_of(self, node: ast.AST) -> Iterator[Edit]:
        if isinstance(node, ast.ImportFrom):
            statements = self._statements(node)
            if statements is None:
                return
            start = self._offset(node.lineno, node.col_offset)
            end = self._data.find(b"\n", self._offset(node.end_lineno or 0, node.end_col_offset or 0))
            comments = re.findall(r"#.*", self._data[start:end].decode())
            comment = f"  {comments[0]}" if comments else ""
            indent = " " * node.col_offset
            if statements:
                yield Edit(start, end, f"\n{indent}".join(f"{each}{comment}" for each in statements))
            else:
                yield Edit(self._offset(node.lineno, 0), end + 1, f"{indent}{DROPPED}\n" if indent else "")
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._objects
        ):
            place = self._project.defining(Place(self._objects[node.value.id], node.attr))
            if not self._project.knows(place):
                return
            prefix = "" if node.value.id in self._attributes else f"{node.value.id}."
            start = self._offset(node.lineno, node.col_offset)
            end = self._offset(node.end_lineno or 0, node.end_col_offset or 0)
            yield Edit(start, end, prefix + self._mover.new_place(place)[1])

    def _statements(self, node: ast.ImportFrom) -> list[str] | None:
        """Return the imports that replace an import; None if it stays."""
        places = self._project.places(self._file, node)
        if not places or any(place.module is None for place, _ in places):
            return None
        names: dict[str, list[str]] = defaultdict(list)
        for place, alias in places:
            for module, name in self._imports_of(place, alias):
                names[module].append(name)
        return [f"from {module} import {', '.join(dict.fromkeys(each))}" for module, each in names.items()]

    def _imports_of(self, place: Place, alias: ast.alias) -> Iterator[tuple[str, str]]:
        local, suffix = alias.asname or alias.name, f" as {alias.asname}" if alias.asname else ""
        module, name = str(place.module), place.name
        new_module = self._mover.new_of[module]
        if name is None and local in self._attributes:
            for attribute in sorted(self._attributes[local]):
                yield from self._import_of_name(self._project.defining(Place(module, attribute)), "")
        elif name is None:
            *package, last = new_module.removesuffix("/__init__").split("/")
            shown = f"{last} as {local}" if last != local else last
            yield self._module_name("/".join([*package, "__init__"])), shown
        elif self._old is None and self._is_in_face(new_module, name):
            yield self._module_name(new_module), f"{name}{suffix}"
        else:
            yield from self._import_of_name(self._project.defining(place), suffix)

    def _import_of_name(self, place: Place, suffix: str) -> Iterator[tuple[str, str]]:
        if not self._project.knows(place):
            self._mover.problems.append(f"{self._file}: {place.name} of {place.module} is defined nowhere")
            return
        module, name = self._mover.new_place(place)
        suffix = "" if suffix == f" as {name}" else suffix
        if module != self._new:
            yield self._module_name(module), f"{name}{suffix}"
        elif suffix not in ("", f" as {name}"):
            self._mover.problems.append(f"{self._file}: {name}{suffix} is in the same module now")

    def _is_in_face(self, module: str, name: str) -> bool:
        if not module.endswith("__init__"):
            return False
        return name in (
            self._mover.faces[module] if module in self._mover.faces else self._project.face_names(module)
        )

    def _module_name(self, module: str) -> str:
        if self._new is None:
            return ".".join([_PACKAGE, *module.removesuffix("__init__").rstrip("/").split("/")]).rstrip(".")
        return relative_name(self._new, module)

    def _renames(self) -> Iterator[Edit]:
        """Yield edits of names that have changed, in their module and where they are imported."""
        renamed = {name: new for (module, name), new in self._mover.renamed.items() if module == self._old}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom):
                for place, alias in self._project.places(self._file, node):
                    found = self._project.defining(place)
                    if (found.module, found.name) in self._mover.renamed and alias.asname is None:
                        renamed[alias.name] = self._mover.renamed[found.module, found.name]
        for node in ast.walk(self._tree):
            match node:  # a TypeVar's name is also its first argument
                case ast.Call(func=ast.Name("TypeVar"), args=[ast.Constant(str(name)), *_]) if name in renamed:
                    start = self._offset(node.args[0].lineno, node.args[0].col_offset)
                    yield Edit(start, start + len(name) + 2, f'"{renamed[name]}"')
            if isinstance(node, ast.Name) and node.id in renamed:
                start = self._offset(node.lineno, node.col_offset)
                yield Edit(start, start + len(node.id.encode()), renamed[node.id])
            elif (
                isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in renamed and node.col_offset == 0
            ):
                start = self._data.find(f" {node.name}".encode(), self._offset(node.lineno, 0)) + 1
                yield Edit(start, start + len(node.name.encode()), renamed[node.name])

    def _strings(self, line: str) -> str:
        """Return a line with the new names of the modules that its strings and comments name."""
        return re.sub(rf"\b{_PACKAGE}\.([a-z_0-9]+(?:\.[A-Za-z_0-9]+)*)", self._new_dotted, line)

    def _new_dotted(self, match: re.Match[str]) -> str:
        parts = match[1].split(".")
        for length in range(len(parts), 0, -1):
            module = self._project.module_at(parts[:length])
            if module is None:
                continue
            new, rest = self._mover.new_of[module], parts[length:]
            if rest and rest[0] in self._project.defined[module]:
                new, rest[0] = self._mover.new_place(Place(module, rest[0]))
            return ".".join([_PACKAGE, *new.removesuffix("/__init__").split("/"), *rest])
        return match[0]


class _Sections(NamedTuple):
    """The source of a module: docstring, imports, imports for type checkers only, and everything else."""

    doc: str
    imports: list[str]
    for_types: list[str]
    body: str


def _sections(text: str) -> _Sections:
    tree, lines = ast.parse(text), text.split("\n")
    found = _Sections("", [], [], "")
    body, previous = [], 0
    for node in tree.body:
        decorators = getattr(node, "decorator_list", [])
        start = (decorators[0].lineno if decorators else node.lineno) - 1
        before, source = lines[previous:start], "\n".join(lines[start : node.end_lineno])
        previous = node.end_lineno or 0
        if node is tree.body[0] and isinstance(node, ast.Expr):
            found = found._replace(doc=source)
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        elif isinstance(node, ast.Import | ast.ImportFrom) and "E402" not in source:
            found.imports.extend([line for line in before if line.strip()] + [source])
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
            inner = (each for each in node.body if not isinstance(each, ast.Pass))
            found.for_types.extend(
                "\n".join(line[4:] for line in lines[each.lineno - 1 : each.end_lineno]) for each in inner
            )
        else:
            body += [*before, source]
    return found._replace(body="\n".join([*body, *lines[previous:]]))


def _imported_names(statement: str) -> list[str]:
    node = ast.parse(statement.partition("\n#")[0]).body
    return [alias.asname or alias.name for each in node for alias in getattr(each, "names", [])]


def _with_doc(text: str, doc: str) -> str:
    first = ast.parse(text).body[0]
    return "\n".join([doc, *text.split("\n")[first.end_lineno :]])


def relative_name(importer: str, module: str) -> str:
    """Return the relative name by which a module imports another one."""
    package, parts = importer.split("/")[:-1], module.split("/")
    if parts[-1] == "__init__":
        parts.pop()
    common = 0
    while common < min(len(package), len(parts)) and package[common] == parts[common]:
        common += 1
    return "." * (len(package) - common + 1) + ".".join(parts[common:])


def main(plan: Path, say: Callable[[str], object] = print) -> int:
    """Execute a plan, and print what has to be changed by hand. Return the exit code."""
    mover = Mover(Project(ROOT), json.loads(plan.read_text()))
    mover.run(ROOT)
    for problem in mover.problems:
        say(problem)
    return 1 if mover.problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
