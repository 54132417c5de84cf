"""Another package's sampler: installed by pip, named in a preset, loaded for nobody else."""

import json
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
FILES = {
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


def test_its_page(gen, installed):
    assert "keep every n-th token id" in gen("samplers", "even_only", PYTHONPATH=installed).out


def test_listed_but_not_loaded(gen, installed):
    out = gen("samplers", PYTHONPATH=installed).out
    assert "even_only: offered by another package, even_only_sampler:EvenOnly" in out
    assert "was loaded" not in out
    assert "was loaded" not in gen("x", "-n", "1", PYTHONPATH=installed).out


def test_a_broken_one_is_reported_by_name_and_breaks_nothing_else(gen, home, installed):
    path = preset(home, "[broken, dist]")
    result = gen("x", "-P", path, code=2, PYTHONPATH=installed)
    assert "the plug-in 'broken' (broken_sampler:Broken) failed to load: out of order" in result.err
    assert gen("x", "-n", "2", "--seed", "1", PYTHONPATH=installed).out
    assert "even_only was loaded" in gen("x", "-P", preset(home, "[even_only]"), PYTHONPATH=installed).out


def test_one_that_ends_the_process_or_fails_at_work_is_reported_by_name(gen, installed):
    result = gen("x", "--chain", "exits > dist", code=2, PYTHONPATH=installed)
    assert "the plug-in 'exits' (exits_sampler:Exits) failed to load: it called sys.exit(3)" in result.err
    result = gen("x", "--chain", "boom > dist", code=1, PYTHONPATH=installed)
    assert result.err == "gen: boom: apply failed: ValueError: kaput\n"


def test_one_that_leaves_nothing_to_choose_from_keeps_the_rows(gen, installed):
    assert gen("x", "-n", "2", "--chain", "top-k1 > even-only(step=1000000)", PYTHONPATH=installed).out


def test_one_with_a_name_that_is_taken_is_listed_as_hidden(gen, installed):
    out = gen("samplers", PYTHONPATH=installed).out
    assert "top_p: offered by another package, even_only_sampler:EvenOnly (hidden by the built-in top_p)" in out
