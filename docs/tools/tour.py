"""The README's tour: `python -m docs.tools.tour` runs its commands, and writes what they print into the README.

Another processor computes other logits, and so other words. Logprobs of this machine stand beside this module:
where they differ, the outputs may differ too.
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
_MEASURE = 'gen score "The sea was calm, and nobody on the pier had expected that." --format json'
_BEGIN, _END = "## A tour", "## Where to go on"


def tour(readme: str) -> dict[str, str]:
    """What each command of the tour prints, according to the README."""
    section = readme.partition(_BEGIN)[2].partition(_END)[0]
    return dict(map(_parsed, _BLOCK.findall(section)))


def run(command: str, folder: Path) -> str:
    """What a command prints, in an empty folder and without a user's config."""
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
    """Logprobs of a text, nats, to the last bit as this machine computes them."""
    logprobs: list[float | None] = json.loads(run(_MEASURE, folder))["token_logprobs"]
    return logprobs


def _parsed(block: str) -> tuple[str, str]:
    """Command and output of a block; a line that ends in ``|`` goes on in the next one."""
    lines = block.splitlines()
    count = next(i for i, line in enumerate(lines, start=1) if not line.rstrip().endswith("|"))
    return "\n".join(lines[:count]).removeprefix("$ "), "\n".join(lines[count:])


def _renewed(readme: str, folder: Path) -> str:
    """The README with the outputs as they are on this machine."""
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
