"""Take the picture of the terminal: `python -m docs.tools.screenshot` runs the commands and writes the SVG."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "images" / "terminal.svg"
COLUMNS = 100

COMMANDS = (
    'gen "The sea was" -n 24 --seed 7 --chain "temp0.8 > typical0.19 > tfs0.97 > top-p0.6"',
    'gen "A user record:" --grammar json --seed 3',
    'gen "The sea was" -n 24 --seed 7 --format jsonl | gen inspect --color always | head -2',
    'gen next "The sea was" --top 4 --seed 7',
)

_BACKGROUND, _FOREGROUND = (24, 26, 31), (208, 212, 220)
_RED, _GREEN, _YELLOW = (224, 108, 117), (152, 195, 121), (229, 192, 123)
_BLUE, _MAGENTA, _CYAN = (97, 175, 239), (198, 120, 221), (86, 182, 194)
_THEME = TerminalTheme(
    _BACKGROUND,
    _FOREGROUND,
    [_BACKGROUND, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _FOREGROUND],
)
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def terminal_output(command: str) -> str:
    """Run a command on a terminal, and return its output with the escape codes of colors."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**environment, "PATH": path},
    ) as process:
        os.close(follower)
        output = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return output.decode().replace("\r\n", "\n")


def picture(outputs: dict[str, str]) -> str:
    """Return an SVG of the commands and their outputs. It loads no file or font from another host."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, output) in enumerate(outputs.items()):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        console.print(Text.from_ansi(output.strip("\n")))
    svg = console.export_svg(title="gen", theme=_THEME, unique_id="terminal")
    return _FONT_FACE.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # on Linux the end of a terminal's output is an error
        return b""


if __name__ == "__main__":
    PICTURE.write_text(picture({command: terminal_output(command) for command in COMMANDS}), encoding="utf-8")
