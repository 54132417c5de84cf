"""The plug-in of examples/: found where it is installed, and it leaves its letters out."""

import os
import re
import subprocess
import sys

import pytest

from .conftest import EXAMPLES

PLUGIN = EXAMPLES / "plugin"
PROJECT = (PLUGIN / "pyproject.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The search path of Python with the package on it, as an installation would leave it, made without pip."""
    folder = tmp_path_factory.mktemp("site")
    points = re.search(r'\[project\.entry-points\."(.+?)"\]\n((?:\w+ = ".+"\n)+)', PROJECT)
    about = folder / "logitsmith_lipogram-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: logitsmith-lipogram\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{points[1]}]\n{points[2]}".replace('"', ""))
    return os.pathsep.join(filter(None, [str(folder), str(PLUGIN), os.environ.get("PYTHONPATH")]))


def test_it_leaves_out_its_letters(gen, installed):
    preset = str(EXAMPLES / "presets" / "lipogram.yaml")
    text = gen("Once upon a time", "-P", preset, "-n", "24", "--seed", "1", PYTHONPATH=installed)
    assert len(text) > 20
    assert "e" not in text.lower()


def test_set_puts_it_in_at_its_stage(gen, installed):
    arguments = ["x", "--chain", "min_tokens3 > top_k40 > temp0.8", "--set", "lipogram.letters=e", "--show-config"]
    text = gen(*arguments, PYTHONPATH=installed)
    names = re.findall(r"\b(min_tokens|lipogram|top_k|temperature)\b", text[text.index("chain") :])
    assert list(dict.fromkeys(names)) == ["min_tokens", "lipogram", "top_k", "temperature"]


def test_its_page(gen, installed):
    assert "never write certain letters" in gen("samplers", "lipogram", PYTHONPATH=installed)


@pytest.mark.slow
def test_pip_installs_it(gen, tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(PLUGIN)]
    subprocess.run(pip, check=True, capture_output=True)
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    assert "never write certain letters" in gen("samplers", "lipogram", PYTHONPATH=path)
