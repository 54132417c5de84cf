"""The screens of `gen` at 80 and 50 columns, kept as text: the help of every command, and its tables.

``python -m tests.record_screens`` writes them again; look at what changed before you commit it.
"""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from logitsmith.cli.app import COMMANDS

from .gen_server import GenServer

SCREENS = Path(__file__).parent / "screens"
WIDTHS = (80, 50)
GROUPS = {
    "grammars": ("list", "show", "check", "sample"),
    "models": ("list", "show", "pull"),
    "presets": ("list", "show", "check", "schema", "import", "export"),
}
RUN = [
    {"event": "start", "version": "0.1.0", "model": "model.gguf", "prompt": "Once", "seed": 7},
    *(
        {
            "event": "token", "index": index, "id": 2, "token": text, "text": text, "bytes": list(text.encode()),
            "logprob": -0.01 - index, "entropy": 0.08 + index, "logprobs_from": "model",
            "top_logprobs": [
                {"id": 2, "token": text, "bytes": list(text.encode()), "logprob": -0.01 - index},
                {"id": 3, "token": " in", "bytes": [32, 105, 110], "logprob": -5.1},
            ],
        }
        for index, text in enumerate([" upon", " a", " time", ",", " extraordinarily", "東京"])
    ),
]  # fmt: skip


def command_lines():
    """The command lines whose screens are kept, by the name of the screen."""
    lines = {"gen --help": ["--help"]}
    for name in COMMANDS:
        lines[f"gen {name} --help"] = [name, "--help"]
        for subcommand in GROUPS.get(name, ()):
            lines[f"gen {name} {subcommand} --help"] = [name, subcommand, "--help"]
    tables = ["samplers", "samplers dry", "samplers temperature", "samplers xtc", "presets", "grammars"]
    tables += ["inspect run.jsonl", "inspect run.jsonl --top 2"]
    lines |= {f"gen {words}": words.split() for words in tables}
    return lines


def file_of(name, columns):
    """Return the file of a screen."""
    return SCREENS / f"{name.replace(' ', '_')}.{columns}.txt"


def take_screen(server, words, columns, folder):
    """Run a command in a folder on a terminal of this width, and return what it shows."""
    (folder / "run.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in RUN))
    kept = {key: value for key, value in os.environ.items() if key not in ("GEN_MODEL", "COLUMNS", "FORCE_COLOR")}
    environment = {**kept, "XDG_CONFIG_HOME": str(folder), "NO_COLOR": "1", "TERM": "xterm"}
    screen, code = server.run_on_terminal(words, columns=columns, cwd=folder, env=environment, timeout=60)
    assert code == 0, screen
    return "\n".join(line.rstrip() for line in screen.splitlines()) + "\n"


def record():
    """Write all screens, and remove those of commands that are gone."""
    SCREENS.mkdir(exist_ok=True)
    files = set()
    with GenServer(dict(os.environ)) as server, TemporaryDirectory() as folder:
        for name, words in command_lines().items():
            for columns in WIDTHS:
                file = file_of(name, columns)
                file.write_text(take_screen(server, words, columns, Path(folder)))
                files.add(file)
    for file in set(SCREENS.iterdir()) - files:
        file.unlink()
    print(f"{len(files)} screens in {SCREENS}")


if __name__ == "__main__":
    sys.exit(record())
