"""The manual pages gen.1, gen-run.1 and so on, made from the declarations that ``gen --help`` shows.

setup.py adds them to the wheel. To read one:

    python tools/man_pages.py FOLDER && man FOLDER/gen-run.1
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logitsmith.cli.app import INTRODUCTION, app
from logitsmith.cli.command_table import COMMANDS, load_command
from typer.main import get_command

_FILES = (
    ("~/.config/logitsmith/config.yaml", "your default model and preset"),
    ("~/.config/logitsmith/presets/, ./presets/", "presets by name"),
    ("~/.config/logitsmith/grammars/, ./grammars/", "grammars by name"),
)
_VARIABLES = (
    ("GEN_MODEL", "the model of a run without \\-m"),
    ("XDG_CONFIG_HOME", "in place of ~/.config"),
    ("NO_COLOR", "no colors, if it is set and not empty"),
)
_EXIT_CODES = (("0", "success"), ("1", "a failure"), ("2", "wrong usage"), ("130", "ended by Ctrl\\-C"))


def man_pages(version: str) -> dict[str, str]:
    """Return the pages by file name, in the roff of man(7)."""
    group: Any = get_command(app)
    commands = {name: load_command(name) for name in COMMANDS}
    pages = {f"gen-{name}.1": _command_page(name, command, version) for name, command in commands.items()}
    pages["gen.1"] = "\n".join(_overview(INTRODUCTION, group, commands, version)) + "\n"
    return pages


def _overview(text: str, group: Any, commands: dict[str, Any], version: str) -> Iterator[str]:
    paragraphs = [part for part in text.strip().split("\n\n") if not part.startswith("  ")]
    description = "\n\n".join(paragraphs)
    examples = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    yield from _head("gen", _one_line(paragraphs[0]).rstrip("."), version)
    yield ".SH SYNOPSIS"
    yield '.B gen\n"PROMPT" [OPTIONS]\n.br\n.B gen\nCOMMAND [OPTIONS]'
    yield f".SH DESCRIPTION\n{_paragraphs(description)}"
    yield ".SH COMMANDS"
    for name, command in commands.items():
        yield f".TP\n.BR gen\\-{_roff(name)} (1)\n{_roff(_summary(command))}"
    yield ".SH OPTIONS"
    yield from _options(group)
    for title, rows in (("FILES", _FILES), ("ENVIRONMENT", _VARIABLES), ("EXIT STATUS", _EXIT_CODES)):
        yield f".SH {title}"
        for name, meaning in rows:
            yield f".TP\n.B {_roff(name)}\n{meaning}"
    yield ".SH EXAMPLES\n.nf"
    yield from (_roff(example) for example in examples)
    yield ".fi"


def _command_page(name: str, command: Any, version: str) -> str:
    lines = list(_head(f"gen-{name}", _summary(command).rstrip("."), version))
    subcommands: dict[str, Any] = getattr(command, "commands", None) or {}
    usages = _usages(name, command, subcommands)
    synopsis = (f".B {_roff(usage)}\n{_roff(_arguments(leaf))}[OPTIONS]" for usage, leaf in usages)
    lines.extend([".SH SYNOPSIS", "\n.br\n".join(synopsis)])
    lines.extend([".SH DESCRIPTION", _paragraphs(_text(command))])
    if not subcommands:
        lines.extend([".SH OPTIONS", *_options(command)])
    for sub, leaf in subcommands.items():
        lines.append(f".SH {_roff(f'gen {name} {sub}'.upper())}")
        lines.append(_paragraphs(_text(leaf)))
        lines.extend(_options(leaf))
    lines.append(".SH SEE ALSO\n.BR gen (1)")
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> str:
    return "\n.PP\n".join(_roff(_one_line(part)) for part in text.split("\n\n"))


def _usages(name: str, command: Any, subcommands: dict[str, Any]) -> list[tuple[str, Any]]:
    if not subcommands:
        return [(f"gen {name}", command)]
    return [(f"gen {name} {sub}", leaf) for sub, leaf in subcommands.items()]


def _head(name: str, summary: str, version: str) -> Iterator[str]:
    yield f'.TH "{_roff(name.upper())}" 1 "" "logitsmith {_roff(version)}" "User Commands"'
    yield f".SH NAME\n{_roff(name)} \\- {_roff(summary)}"


def _arguments(command: Any) -> str:
    return "".join(f"{each.display_name_raw} " for each in command.params if each.param_type_name == "argument")


def _options(command: Any) -> Iterator[str]:
    """Yield the arguments, then the options in the order of the help, with their panels as headings."""
    context = command.make_context("gen", [], resilient_parsing=True)
    panel = None
    parameters = command.get_params(context)
    for parameter in sorted(parameters, key=lambda each: each.param_type_name):
        title = parameter.rich_help_panel
        if title is not None and title != panel:
            yield f".SS {_roff(title)}"
        panel = title
        names, meaning = parameter.get_help_record(context)
        yield f".TP\n.B {_roff(names)}\n{_roff(_one_line(meaning))}"


def _text(command: Any) -> str:
    return inspect.cleandoc(command.help or "").split("\f")[0].strip()


def _summary(command: Any) -> str:
    return _one_line(_text(command).split("\n\n")[0])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _roff(text: str) -> str:
    """Return the text of a help, in which a backslash precedes a bracket, so that roff prints it verbatim."""
    escaped = text.replace("\\[", "[").replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    escaped = "".join(character if character.isascii() else f"\\[u{ord(character):04X}]" for character in escaped)
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, page in man_pages("").items():
        (folder / file_name).write_text(page, encoding="utf-8")
