"""The imports run one way: a room imports only from floors below its own."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "logitsmith"
FLOORS = {
    "cli": 6,
    "compare": 5,
    "serve": 5,
    "jobs": 4,
    "chats": 4,
    "requests": 3,
    "recover": 3,
    "decide": 3,
    "presets": 2,
    "engine": 2,
    "samplers": 1,
    "grammars": 1,
    "logprobs": 1,
    "cluster": 1,
    "models": 1,
    "common": 0,
}
# A folder named requests would hide the package of this name from programs that are started beside it.
FOLDERS = {"requests": "request"}
ROOMS = [room for room in FLOORS if (ROOT / room).is_dir()]
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@cache
def nodes(path):
    """The nodes of a file's syntax tree that a rule of this file is about."""
    found = (ast.Import, ast.ImportFrom, ast.Call)
    return tuple(node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, found))


@cache
def imports(path):
    """Absolute names of the modules that a file imports."""
    return frozenset(names_in(nodes(path), path))


def names_in(statements, path):
    package = ["logitsmith", *path.relative_to(ROOT).parent.parts]
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            name = str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""
            dots = len(name) - len(name.lstrip("."))
            yield ".".join([*(package[: len(package) - dots + 1] if dots else []), name.lstrip(".")])


def module_name(path):
    return ".".join(["logitsmith", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


def modules_imported(path):
    """The modules of the project that a file imports, inside functions and for type checkers as well."""
    found = imports(path) & set(MODULES)
    # `from ..presets import settings` names a module. Its package does not count as a separate import.
    packages = {name for name in found if MODULES[name].name == "__init__.py"}
    return found - {name for name in packages if not any(names_from(path, name))} - {module_name(path)}


def names_from(path, package):
    """The names that a file imports from the `__init__.py` of a package, without modules."""
    parts = ["logitsmith", *path.relative_to(ROOT).parent.parts]
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else []
            if ".".join([*base, *(node.module or "").split(".")]).rstrip(".") == package:
                yield from (alias.name for alias in node.names if f"{package}.{alias.name}" not in MODULES)


def circles():
    """Groups of modules that import each other, directly or by way of others."""
    arrows = {name: modules_imported(path) for name, path in MODULES.items()}
    reachable = {name: set() for name in arrows}
    for name in arrows:
        waiting = [name]
        while waiting:
            new = arrows[waiting.pop()] - reachable[name]
            reachable[name] |= new
            waiting.extend(new)
    return sorted({tuple(sorted(o for o in reachable[name] if name in reachable[o])) for name in arrows} - {()})


def test_every_module_is_imported():
    by_name = (
        *("logitsmith.samplers.methods.", "logitsmith.cli.commands.", "logitsmith.presets.foreign."),
        "logitsmith.grammars.compile_worker",
    )
    imported = set().union(*(modules_imported(path) for path in MODULES.values()))
    unused = {name for name in MODULES if name not in imported and not name.startswith(by_name)}
    assert {name for name in unused if MODULES[name].name not in ("__init__.py", "__main__.py")} == set()


def test_no_modules_import_each_other():
    assert circles() == []


IMPORTED_BY_NAME = {
    "common/lazy.py",
    "samplers/registry.py",
    "presets/foreign/registry.py",
    "cli/command_table.py",
}
"""Modules that import another one by a name that is computed: faces, samplers, formats, commands."""


def test_what_is_imported_by_a_computed_name_is_known():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and not isinstance(node.args[0], ast.Constant)
    }
    assert found == IMPORTED_BY_NAME


def room_of(path):
    return path.relative_to(ROOT).parts[0]


def importers_of(package):
    """The files that import a package or a module of it."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        if any(name.split(".")[0] == package for name in imports(path))
    }


def rooms_imported(path):
    parts = (name.split(".") for name in imports(path))
    return {part[1] for part in parts if part[0] == "logitsmith" and len(part) > 1 and part[1] in FLOORS}


def test_imports_go_down():
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path in FILES
        for other in rooms_imported(path) - {room_of(path)}
        if FLOORS[other] >= FLOORS[room_of(path)]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("llama_cpp", "engine/native/binding.py"),
        ("ray", "cluster/connection.py"),
        ("huggingface_hub", "models/hub.py"),
    ],
)
def test_one_module_imports_it(package, module):
    assert importers_of(package) == {module}


def test_model_files_need_no_llama_cpp():
    program = (
        "import sys\n"
        "from logitsmith.engine import list_models, read_facts, read_summaries, resolve_model\n"
        "(entry, *_) = list_models()\n"
        "list(read_summaries([entry])), read_facts(resolve_model(str(entry.path)))\n"
        "print(sorted({'llama_cpp', 'numpy', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("package", "folder"), [("prompt_toolkit", "cli/chat"), ("sqlite3", "chats")])
def test_only_the_chat_needs_it(package, folder):
    importers = importers_of(package)
    assert importers
    assert all(path.startswith(f"{folder}/") for path in importers)


@pytest.mark.parametrize(
    ("arguments", "packages"),
    [
        (["--help"], {"prompt_toolkit", "sqlite3"}),
        (["chat", "--list"], {"prompt_toolkit", "markdown_it", "llama_cpp", "numpy"}),
        (["run", "x", "--show-config"], {"prompt_toolkit", "markdown_it"}),  # llama_cpp imports sqlite3
        pytest.param(["run", "x", "-n", "1"], {"prompt_toolkit", "markdown_it"}, marks=pytest.mark.slow),
    ],
)
def test_no_other_command_imports_what_the_chat_needs(arguments, packages):
    program = (
        "import sys\n"
        "from logitsmith.cli import main\n"
        "try:\n"
        f"    main({arguments})\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        f"print(sorted({packages} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.endswith("[]\n")


def test_only_the_cli_prints_and_it_needs_no_numpy():
    assert {path.split("/")[0] for path in importers_of("numpy")} & {"cli"} == set()
    printing = {room_of(path) for path in FILES for node in nodes(path) if is_print(node)}
    assert printing == {"cli"}


def is_print(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def test_this_test_sees_imports():
    assert rooms_imported(ROOT / "engine" / "decoder.py") >= {"samplers", "grammars"}
    assert rooms_imported(ROOT / "engine" / "token_records.py") >= {"samplers", "logprobs"}
    assert modules_imported(ROOT / "models" / "resolve.py") >= {"logitsmith.models.errors"}


def test_it_sees_imports_by_a_function():
    source = (
        "import importlib\nimportlib.import_module('..cli.app', __package__)\n__import__('logitsmith.engine')\n"
    )
    calls = ast.walk(ast.parse(source))
    assert {"logitsmith.cli.app", "logitsmith.engine"} <= set(names_in(calls, ROOT / "models" / "resolve.py"))


def test_every_room_has_a_floor_and_a_link():
    links = {path.name: str(path.readlink()) for path in ROOT.iterdir() if path.is_symlink()}
    assert links == {room: f"../../{FOLDERS.get(room, room)}" for room in FLOORS}
    packages = {path.parent.name for path in ROOT.parent.parent.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks", "docs"} == {FOLDERS.get(room, room) for room in FLOORS}


def test_every_room_has_a_public_api():
    for room in ROOMS:
        if room not in ("cluster", "common", "jobs", "requests", "chats", "compare", "serve"):  # not in the manual
            assert "__all__" in (ROOT / room / "__init__.py").read_text()
