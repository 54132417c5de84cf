"""Run the fast tests in environments with other versions of Python or of the dependencies.

    python tools/try_environments.py pythons FOLDER
    python tools/try_environments.py dependencies FOLDER

``pythons`` uses every supported Python on this machine, and runs the tests of the packages that depend most on the
version of Python. ``dependencies`` runs all fast tests twice: with the oldest Python and the lowest versions that
pyproject.toml allows, and with the newest Python and the newest versions. Each environment is created in FOLDER
and kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.11", "3.12", "3.13")
ALSO_TESTED = ("3.14",)
ROOMS = ("tests/cli", "tests/chats", "tests/jobs", "tests/samplers", "tests/presets")
FOLDERS = (
    "~/.pyenv/versions/{}.*/bin",
    "~/.local/share/uv/python/cpython-{}.*/bin",
    "/opt/homebrew/opt/python@{}/bin",
)
"""Folders where version managers install Pythons, which are often not on PATH."""


class Environment(NamedTuple):
    """An environment, and the tests to run in it.

    Attributes:
        name: name of the environment's folder.
        python: path of the Python that creates the environment.
        options: arguments of tools/install.py after the extras.
        tests: paths for pytest; empty for all tests.
    """

    name: str
    python: str
    options: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def find_python(version: str) -> str | None:
    """Return the path of a Python of this version, such as ``3.12``; None if there is none."""
    name = f"python{version}"
    found = [shutil.which(name)]
    for pattern in FOLDERS:
        root, *parts = Path(pattern.format(version)).expanduser().parts
        found += sorted(str(path / name) for path in Path(root).glob(str(Path(*parts))))
    return next((path for path in found if path is not None and _answers(path, version)), None)


def _answers(path: str, version: str) -> bool:
    """Return whether a program is a Python of this version; pyenv also has programs for absent versions."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version


def environments(kind: str, pythons: dict[str, str]) -> list[Environment]:
    """Return the environments of ``pythons`` or ``dependencies``, given the path of each version of Python."""
    if kind == "pythons":
        return [Environment(f"python{version}", path, tests=ROOMS) for version, path in pythons.items()]
    paths = list(pythons.values())
    return [Environment("lowest", paths[0], ("--lowest",)), Environment("newest", paths[-1])]


def prepare_and_test(environment: Environment, folder: Path) -> bool:
    """Create the environment, install logitsmith and run the tests. Return whether all tests passed."""
    place = folder / environment.name
    python = str(place / "bin" / "python")
    return all(
        subprocess.run(command, cwd=ROOT, check=False).returncode == 0
        for command in (
            [environment.python, "-m", "venv", str(place)],
            [python, "tools/install.py", "model,test", *environment.options],
            [python, "-m", "pip", "--disable-pip-version-check", "check"],
            [python, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", *environment.tests],
        )
    )


def main(kind: str, folder: Path) -> int:
    """Test each environment, and print a line for each Python. Return the exit code."""
    found = {version: find_python(version) for version in (*SUPPORTED, *ALSO_TESTED)}
    pythons = {version: path for version, path in found.items() if path is not None}
    if not pythons:
        print(f"no Python {' or '.join(SUPPORTED)} on PATH or in {', '.join(FOLDERS)}", file=sys.stderr)
        return 1
    results = {}
    for environment in environments(kind, pythons):
        print(f"== {environment.name}: {environment.python}", flush=True)
        results[environment.name] = prepare_and_test(environment, folder)
    for version in SUPPORTED:
        if found[version] is None:
            print(f"python{version}: not found here, not tested")
    for name, has_passed in results.items():
        print(f"{name}: {'passed' if has_passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2]).absolute()))
    except KeyboardInterrupt:
        sys.exit(130)
