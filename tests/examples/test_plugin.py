"""The plug-in of examples/: its sampler, command and format work where it is installed, and nowhere else."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

from .conftest import EXAMPLES

PLUGIN = EXAMPLES / "plugin"
PROJECT = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The search path of Python with the package on it, as an installation would leave it, made without pip."""
    folder = tmp_path_factory.mktemp("site")
    about = folder / "logitsmith_lipogram-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: logitsmith-lipogram\nVersion: 1.0\n")
    lines = []
    for group, points in PROJECT["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return os.pathsep.join(filter(None, [str(folder), str(PLUGIN), os.environ.get("PYTHONPATH")]))


@pytest.fixture
def result(tmp_path):
    """Run `gen`; returns stdout, stderr and the exit code, whatever it is."""

    def run(*arguments, stdin="", **environment):
        done = subprocess.run(
            [sys.executable, "-m", "logitsmith.cli", *arguments],
            input=stdin,
            cwd=tmp_path,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "NO_COLOR": "1", **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout, done.stderr, done.returncode

    return run


def test_it_leaves_out_its_letters(gen, installed):
    preset = str(EXAMPLES / "presets" / "lipogram.yaml")
    text = gen("Once upon a time", "-P", preset, "-n", "24", "--seed", "1", PYTHONPATH=installed)
    assert len(text) > 20
    assert "e" not in text.lower()


def test_set_puts_it_in_at_its_stage(gen, installed):
    arguments = ["x", "--chain", "min_tokens3 > top_k40 > temp0.8", "--set", "lipogram.letters=e", "--show-config"]
    text = gen(*arguments, PYTHONPATH=installed)
    steps = text[text.index("chain") :]
    places = [steps.index(name) for name in ("min_tokens", "lipogram", "top_k", "temperature")]
    assert places == sorted(places)


def test_its_page(gen, installed):
    assert "never write certain letters" in gen("samplers", "lipogram", PYTHONPATH=installed)


def test_its_command(gen, result, installed):
    assert "letters" in gen("--help", PYTHONPATH=installed)
    help_page = gen("letters", "-h", PYTHONPATH=installed)
    assert "gen letters [OPTIONS]" in help_page
    assert "--without" in help_page
    assert result("letters", "-", stdin="Bad cab", PYTHONPATH=installed) == ("efghijklmnopqrstuvwxyz\n", "", 0)
    out, err, code = result("letters", "-", "--without", "bz", stdin="Bad cab", PYTHONPATH=installed)
    assert (out, err, code) == ("efghijklmnopqrstuvwxyz\n", "the text contains b\n", 1)
    _, err, code = result("letters", "no such file", PYTHONPATH=installed)
    assert code == 2
    assert "no such file" in err


def test_its_command_is_completed(gen, installed):
    variables = {"_GEN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    variables["PYTHONPATH"] = installed
    assert "letters\t" in gen(_TYPER_COMPLETE_ARGS="gen le", **variables)
    assert "--without\t" in gen(_TYPER_COMPLETE_ARGS="gen letters --w", **variables)


def test_its_format(gen, result, installed, tmp_path):
    (tmp_path / "card.yaml").write_text("without: e\ntemperature: 0.7\ncolor: red\n")
    yaml, note, _ = result("presets", "import", "card.yaml", PYTHONPATH=installed)
    assert note == "gen: note: color: a card has no such key\n"
    assert "(lipogram-card)" in yaml
    assert "  - lipogram: {letters: e}  # without\n" in yaml
    exported = result("presets", "export", "card.yaml", "--to", "card", PYTHONPATH=installed)
    assert exported[0] == "without: e\ntemperature: 0.7\n"
    assert "card.yaml: read as a lipogram card" in exported[1]
    _, reports, _ = result("presets", "export", "creative", "--to", "lipogram_card", PYTHONPATH=installed)
    assert "a card has no such step" in reports


def test_nothing_of_it_is_there_without_the_package(gen, result, tmp_path):
    (tmp_path / "card.yaml").write_text("without: e\ntemperature: 0.7\n")
    assert "letters" not in gen("--help")
    assert "unknown format 'card'" in result("presets", "import", "card.yaml", "--from", "card")[1]


def test_the_doctor_lists_it(gen, installed):
    report = json.loads(gen("doctor", "--format", "json", PYTHONPATH=installed))
    rows = [(row["kind"], row["name"], row["package"], row["state"]) for row in report["plugins"]]
    package = "logitsmith-lipogram"
    assert rows == [
        ("sampler", "lipogram", package, "works"),
        ("command", "letters", package, "works"),
        ("preset format", "lipogram-card", package, "works"),
    ]


@pytest.mark.slow
def test_pip_installs_it(gen, tmp_path):
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(PLUGIN)]
    subprocess.run(pip, check=True, capture_output=True)
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    assert "never write certain letters" in gen("samplers", "lipogram", PYTHONPATH=path)
    assert "--without" in gen("letters", "--help", PYTHONPATH=path)
