"""What another package offers: installed by pip, loaded when it is named; what is broken harms nobody."""

import json
import re
import subprocess
import sys
import zipfile

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

MODULE = '''
from typing import ClassVar

from logitsmith.samplers import SamplerInfo, Sampler
from pydantic import Field

print("even_only was loaded", flush=True)


class EvenOnly(Sampler):
    """Keep the tokens whose id is a multiple of the step."""

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="even_only",
        summary="keep every n-th token id",
        formula="keep i if i mod step == 0",
        reference="nobody",
        llama_cpp="not in llama.cpp",
        main_parameter="step",
    )
    step: int = Field(default=2, ge=1, description="the modulus")

    def apply(self, candidates):
        divisible = candidates.ids % self.step == 0
        if divisible.any():
            candidates.filter_rows(divisible)


class Boom(Sampler):
    about: ClassVar[SamplerInfo] = SamplerInfo(name="boom", summary="s", formula="f", reference="r", llama_cpp="l")

    def apply(self, candidates):
        raise ValueError("kaput")
'''
COMMANDS = '''
import sys

import typer
from logitsmith.common.errors import LogitsmithError

app = typer.Typer()
number = 3


@app.command()
def ends(code: int) -> None:
    """End with a code."""
    sys.exit(code)


@app.command()
def fails(kind: str) -> str:
    """Fail."""
    if kind == "sentence":
        raise LogitsmithError("no luck")
    return "a value that is no exit code"


def untyped(thing: 'Nothing') -> None:
    """Take what has no type."""
'''
FORMATS = """
from logitsmith.presets import Format, ForeignStep, Imported, PresetError


def read(file):
    return Imported([ForeignStep("top_k", {"k": int(file.text.split()[1])})])


def fail(file):
    raise ValueError("kaput")


FIRST = Format("first", "First", "a first", read, recognize=lambda file: float(file.text.startswith("topk ")))
FRAIL = Format("frail", "Frail", "a frail one", fail, fail, recognize=fail)
OTHER = Format("another", "Other", "another", read)
EMPTY = Format("empty", "Empty", "nothing")
"""
FILES = {
    "odd_commands.py": COMMANDS,
    "odd_formats.py": FORMATS,
    "even_only_sampler.py": MODULE,
    "exits_sampler.py": "raise SystemExit(3)\n",
    "broken_sampler.py": "raise RuntimeError('out of order')\n",
    "even_only-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: even-only\nVersion: 1.0\n",
    "even_only-1.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    "even_only-1.0.dist-info/entry_points.txt": (
        "[logitsmith.samplers]\neven-only = even_only_sampler:EvenOnly\nbroken = broken_sampler:Broken\n"
        "boom = even_only_sampler:Boom\nexits = exits_sampler:Exits\ntop-p = even_only_sampler:EvenOnly\n"
        "[logitsmith.commands]\nodd = odd_commands:app\nbroken = broken_sampler:Broken\nrun = odd_commands:app\n"
        "number = odd_commands:number\nuntyped = odd_commands:untyped\ntwo words = odd_commands:app\n"
        "[logitsmith.preset_formats]\nfirst = odd_formats:FIRST\nfrail = odd_formats:FRAIL\n"
        "broken = broken_sampler:Broken\nollama = odd_formats:FIRST\nhf = odd_formats:FIRST\n"
        "other = odd_formats:OTHER\nempty = odd_formats:EMPTY\n"
    ),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which pip installed the package."""
    folder = tmp_path_factory.mktemp("plugin")
    wheel = folder / "even_only-1.0-py3-none-any.whl"
    record = "even_only-1.0.dist-info/RECORD"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        archive.writestr(record, "".join(f"{name},,\n" for name in (*FILES, record)))
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--target", str(target), str(wheel)], check=True, capture_output=True)
    return str(target)


def preset(home, chain):
    (home / "work" / "mine.yaml").write_text(f"chain: {chain}\nmax_tokens: 6\n")
    return "./mine.yaml"


def test_used_from_a_preset(gen, home, installed):
    arguments = ["The sea", "-P", preset(home, "[even-only: 3, greedy]"), "--format", "jsonl"]
    out = gen(*arguments, PYTHONPATH=installed).out.splitlines()
    assert out[0] == "even_only was loaded"
    events = [json.loads(line) for line in out[1:]]
    ids = [event["id"] for event in events if event["event"] == "token"]
    assert len(ids) == 6
    assert all(token % 3 == 0 for token in ids)
    assert "unknown sampler 'even-only'" in gen(*arguments, code=2).err  # where the package is not installed


def test_its_parameters_are_checked(gen, home, installed):
    result = gen("x", "-P", preset(home, "[even-only: 0]"), code=2, PYTHONPATH=installed)
    assert "mine.yaml: chain[0].even_only.step: 0 is not ≥ 1" in result.err


def test_listed_but_not_loaded(gen, installed):
    out = gen("samplers", PYTHONPATH=installed).out
    assert "even_only: offered by another package, even_only_sampler:EvenOnly" in out
    assert "was loaded" not in out
    assert "was loaded" not in gen("x", "-n", "1", PYTHONPATH=installed).out


def test_a_broken_one_is_reported_by_name_and_breaks_nothing_else(gen, home, installed):
    path = preset(home, "[broken, dist]")
    result = gen("x", "-P", path, code=2, PYTHONPATH=installed)
    assert "the plug-in 'broken' of even-only (broken_sampler:Broken) failed to load: out of order" in result.err
    assert gen("x", "-n", "2", "--seed", "1", PYTHONPATH=installed).out
    assert "even_only was loaded" in gen("x", "-P", preset(home, "[even_only]"), PYTHONPATH=installed).out


def test_one_that_ends_the_process_or_fails_at_work_is_reported_by_name(gen, installed):
    result = gen("x", "--chain", "exits > dist", code=2, PYTHONPATH=installed)
    assert "the plug-in 'exits' of even-only (exits_sampler:Exits) failed to load: it called sys.exit(3)\n" in (
        result.err
    )
    result = gen("x", "--chain", "boom > dist", code=1, PYTHONPATH=installed)
    assert result.err == "gen: boom: apply failed: ValueError: kaput\n"


def test_one_that_leaves_nothing_to_choose_from_keeps_the_rows(gen, installed):
    assert gen("x", "-n", "2", "--chain", "top-k1 > even-only(step=1000000)", PYTHONPATH=installed).out


def test_commands_of_another_package(gen, installed):
    listed = gen("--help", PYTHONPATH=installed).out
    _, *section = listed[listed.index("─ Plug-ins ─") :].splitlines()
    names = [line.split()[1] for line in section if "Command of the package" in line]
    assert names == ["odd", "broken", "number", "untyped"]
    assert "End with a code." in gen("odd", "--help", PYTHONPATH=installed).out
    assert gen("odd", "ends", "7", code=7, PYTHONPATH=installed).err == ""
    assert gen("odd", "fails", "x", PYTHONPATH=installed).err == ""
    assert gen("odd", "fails", "sentence", code=1, PYTHONPATH=installed).err == "gen: no luck\n"
    assert "Missing argument" in gen("odd", "ends", code=2, PYTHONPATH=installed).err
    assert "'two' is not a command" not in gen("two words", "-n", "1", PYTHONPATH=installed).err  # a prompt
    assert "Continue a prompt" in gen("run", "--help", PYTHONPATH=installed).out


@pytest.mark.parametrize("name", ["broken", "number", "untyped"])
def test_a_broken_command_is_named_where_it_is_used(gen, installed, name):
    error = gen(name, "--help", code=1, PYTHONPATH=installed).err
    assert error.startswith(f"gen: the plug-in '{name}' of even-only ")


def test_formats_of_another_package(gen, home, installed):
    (home / "work" / "theirs").write_text("topk 5\n")
    result = gen("presets", "import", "theirs", PYTHONPATH=installed)
    assert "  - top_k: {k: 5}\n  - dist\n" in result.out
    names = re.findall(r"^gen: note: the plug-in '(\w+)' of even-only ", result.err, re.MULTILINE)
    assert sorted(names) == ["broken", "empty", "frail", "hf", "ollama", "other"]
    assert gen("presets", "import", "theirs", "--from", "FIRST", PYTHONPATH=installed).out
    result = gen("presets", "export", "creative", "--to", "frail", code=2, PYTHONPATH=installed)
    assert result.err.startswith("gen: the plug-in 'frail' of even-only (odd_formats:FRAIL) ")
    result = gen("presets", "import", "theirs", "--from", "broken", code=2, PYTHONPATH=installed)
    assert "'broken' of even-only (broken_sampler:Broken) " in result.err
    assert "first" in gen("presets", "import", "theirs", "--from", "zzz", code=2, PYTHONPATH=installed).err


def test_the_doctor_lists_all_of_them(gen, installed):
    result = gen("doctor", "--format", "json", code=1, PYTHONPATH=installed)
    report = json.loads(result.out[result.out.index("{\n") :])  # one module prints a line when it is imported
    states = {(row["kind"], row["name"]): row["state"] for row in report["plugins"]}
    assert states["sampler", "top_p"] == "hidden by the built-in top_p"
    assert states["command", "odd"] == "works"
    assert states["command", "run"] == "gen has a command of this name"
    assert states["command", "broken"] == "cannot be used"
    assert states["command", "two words"].startswith("the name of a command is a letter")
    assert states["preset format", "first"] == "works"
    assert states["preset format", "hf"] == "gen has a format of this name"
    assert states["preset format", "empty"] == "cannot be used"
    assert {row["package"] for row in report["plugins"]} == {"even-only"}
    assert len([row for row in report["problems"] if row["problem"].startswith("the plug-in ")]) == 8
