"""The README's tour: each command runs, and prints what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from logitsmith.samplers import catalogue

README = (Path(__file__).parent.parent / "README.md").read_text()
TOUR = README.split("## A tour")[1].split("## Reference")[0]


def blocks():
    """(command, output) of each console block of the tour."""
    for block in re.findall(r"```console\n(.*?)```", TOUR, re.DOTALL):
        lines = block.splitlines()
        count = next(i for i, line in enumerate(lines, start=1) if not line.rstrip().endswith("|"))
        yield "\n".join(lines[:count]).removeprefix("$ "), "\n".join(lines[count:])


CASES = dict(blocks())


def test_the_tour_was_found():
    assert len(CASES) >= 6
    assert all("gen " in command for command in CASES)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "output"), CASES.items(), ids=range(len(CASES)))
def test_tour(command, output, tmp_path):
    # Another processor computes other logits, so this is a proof for the machine that the README was made on.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in output.splitlines()]


def samplers_table():
    """The README's table of samplers, out of what the samplers say of themselves."""
    lines = ["| sampler | main parameter | what it does | source |", "|---|---|---|---|"]
    for name, cls in catalogue().items():
        main = f"`{cls.about.main}`" if cls.about.main else ""
        cells = (cell.replace("|", "\\|") for cell in (f"`{name}`", main, cls.about.summary, cls.about.reference))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_table_of_samplers_is_up_to_date():
    found = README.split("<!-- samplers -->\n")[1].split("\n<!-- /samplers -->")[0]
    assert found == samplers_table()


def test_every_built_in_preset_is_named():
    section = README.split("### Presets")[1].split("### ")[0]
    for path in (Path(__file__).parent.parent / "presets").glob("*.yaml"):
        assert f"`{path.stem}`" in section
