"""The README's tour: `python -m docs.tools.tour` runs its commands, and writes what they print into the README.

Another processor computes other logits, and so other words. `tour_logprobs.json` contains the logprobs of the
machine that wrote the README. On a machine with other logprobs the outputs may differ, too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
LOGPROBS = Path(__file__).with_name("tour_logprobs.json")
_MEASURE = 'gen score "The sea was calm, and no one on the pier had expected that." --format json'
_BEGIN, _END = "## A tour", "## Where to read more"


def tour(readme: str) -> dict[str, str]:
    """Return the output of each command of the tour, according to the README."""
    section = readme.partition(_BEGIN)[2].partition(_END)[0]
    return dict(map(_parsed, _BLOCK.findall(section)))


def run(command: str, folder: Path) -> str:
    """Run a command in an empty folder without a user's config, and return its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        check=True,
        text=True,
    )
    return result.stdout


def measure_logprobs(folder: Path) -> list[float | None]:
    """Return the logprobs of a text, in nats, exactly as this machine computes them."""
    logprobs: list[float | None] = json.loads(run(_MEASURE, folder))["token_logprobs"]
    return logprobs


def _parsed(block: str) -> tuple[str, str]:
    """Return command and output of a block. A line that ends in ``|`` continues on the next line."""
    lines = block.splitlines()
    count = next(i for i, line in enumerate(lines, start=1) if not line.rstrip().endswith("|"))
    return "\n".join(lines[:count]).removeprefix("$ "), "\n".join(lines[count:])


def _renewed(readme: str, folder: Path) -> str:
    """Return the README with the outputs of this machine."""
    before, rest = readme.split(_BEGIN)
    section, after = rest.split(_END)

    def block(found: re.Match[str]) -> str:
        command, _ = _parsed(found[1])
        output = "\n".join(line.rstrip() for line in run(command, folder).splitlines())
        return f"```console\n$ {command}\n{output}\n```"

    return before + _BEGIN + _BLOCK.sub(block, section) + _END + after


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        LOGPROBS.write_text(json.dumps(measure_logprobs(Path(name))) + "\n", encoding="utf-8")
        README.write_text(_renewed(README.read_text(encoding="utf-8"), Path(name)), encoding="utf-8")
