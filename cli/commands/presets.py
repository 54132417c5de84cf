"""`gen presets`: list, show and check preset files."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..errors import report_failures
from ..inputs.grammar import check_grammar

app = typer.Typer(help="List, show and check presets.", rich_markup_mode="rich", add_completion=False)

Name = Annotated[str, typer.Argument(help="A preset's name, or a file.")]


@app.callback(invoke_without_command=True)
def presets(context: typer.Context) -> None:
    """List, show and check presets. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_() -> None:
    """List the presets that a name finds: ./presets, your config folder, the built-in ones."""
    with report_failures():
        from ...presets import list_presets
        from ..render.tables import show_presets

        show_presets(list_presets())


@app.command()
def show(name: Name) -> None:
    """Print a preset's YAML."""
    with report_failures():
        from ...presets import find_preset
        from ..render.text import terminal_safe

        text = find_preset(name).path.read_text(encoding="utf-8", errors="replace")
        sys.stdout.write(terminal_safe(text, sys.stdout))


@app.command()
def check(file: Name) -> None:
    """Say whether a preset file is right; if not, what is wrong and where."""
    with report_failures():
        from ...presets import load_preset

        preset = load_preset(file)
        steps = [sampler.about.name for sampler in preset.samplers()]
        if preset.grammar is not None:
            check_grammar(preset)
        print(f"{file}: ok ({' > '.join(steps)})")


@app.command()
def schema() -> None:
    """Print the JSON Schema of preset files, for your editor."""
    with report_failures():
        import json

        from ...presets import preset_json_schema

        print(json.dumps(preset_json_schema(), indent=2, ensure_ascii=False))
