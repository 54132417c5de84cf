"""The pages of the built-in presets and grammars, from their files."""

from __future__ import annotations

from pathlib import Path

import yaml

from .markdown import block, plain, table

ROOT = Path(__file__).parents[2]

_PRESETS = """# Built-in presets

`gen "PROMPT" -P NAME` uses a preset, and `gen presets show NAME` prints it. Your own file `presets/NAME.yaml`
takes precedence over the built-in preset of the same name. [Presets](../presets.md) explains the keys.

"""
_GRAMMARS = """# Built-in grammars

`gen --grammar NAME` constrains the text with a grammar. `gen grammars show NAME` prints the grammar, and
`gen grammars sample NAME` prints random texts that match it, without a model. See [Grammars](../grammars.md).

"""


def presets_page() -> str:
    """Markdown of the presets that come with the package, each with its file."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in _files("presets", "*.yaml")}
    summaries = {name: yaml.safe_load(text).get("description", "") for name, text in files.items()}
    rows = [(f"[`{name}`](#{name})", plain(summary)) for name, summary in summaries.items()]
    sections = [f"## {name} {{ #{name} }}\n\n{block(text, 'yaml')}" for name, text in files.items()]
    return _PRESETS + table(("preset", "what it is for"), rows) + "\n" + "\n".join(sections)


def grammars_page() -> str:
    """Markdown of the grammars that come with the package, each with what its file says first."""
    comments = {path.stem: _comment(path) for path in _files("grammars", "*.gbnf")}
    rows = [(f"[`{name}`](#{name})", plain(lines[0])) for name, lines in comments.items()]
    sections = [
        f"## {name} {{ #{name} }}\n\n**{plain(lines[0])}.** {plain(' '.join(lines[1:]))}\n"
        for name, lines in comments.items()
    ]
    return _GRAMMARS + table(("grammar", "what it is"), rows) + "\n" + "\n".join(sections)


def _files(room: str, pattern: str) -> list[Path]:
    return sorted((ROOT / room).rglob(pattern), key=lambda path: path.stem)


def _comment(path: Path) -> list[str]:
    """The lines of the comment with which a file begins."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return lines
