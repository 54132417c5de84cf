"""The wheel holds everything, and works in a clean environment outside the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tools.man_pages import man_pages

from .test_layering import FOLDERS, ROOMS

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The folder of the source archive and the wheel, and what the build printed."""
    folder = tmp_path_factory.mktemp("build")
    # Each worker builds in a tree of its own, because setuptools writes into it.
    tree = folder / "tree"
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(tree)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return folder, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(build):
    (path,) = build[0].glob("logitsmith-*.whl")
    return path


def tracked_files():
    """The files of the package as they are installed."""
    found = {"logitsmith/__init__.py", "logitsmith/py.typed"}
    for room in ROOMS:
        folder = ROOT / FOLDERS.get(room, room)
        tracked = subprocess.run(["git", "ls-files"], cwd=folder, check=True, capture_output=True, text=True)
        found |= {f"logitsmith/{room}/{name}" for name in tracked.stdout.split()}
    return found


def test_the_build_warns_of_no_package(build):
    assert "absent from the `packages` configuration" not in build[1]


def test_the_source_archive_holds_what_the_wheel_needs_and_no_tests(build):
    (path,) = build[0].glob("logitsmith-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "tools/man_pages.py"} <= names
    assert {f"src/{name}" for name in tracked_files()} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_every_file_of_the_rooms_is_in_the_wheel(wheel):
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("logitsmith/")}
    assert found == tracked_files()


def test_the_manual_pages_are_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".data/data/share/man/man1/" in name]
        pages = {name.rpartition("/")[2]: archive.read(name).decode() for name in names}
    assert pages == man_pages(version("logitsmith"))


def test_wheel_works_in_a_clean_environment(wheel, tmp_path):
    place = tmp_path / "venv"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True, capture_output=True
    )
    # The dependencies come from here; a path entry brings no .pth, so that the editable install stays out.
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib"), "XDG_CONFIG_HOME": str(tmp_path)}

    def gen(*arguments):
        return subprocess.run(
            [place / "bin" / "gen", *arguments],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    where = subprocess.run(
        [python, "-c", "import logitsmith.cli as c; print(c.__file__)"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert str(place) in where.stdout
    assert "deterministic" in gen("presets")
    assert gen("The capital of France is", "-P", "deterministic", "-n", "2") == " Paris."
