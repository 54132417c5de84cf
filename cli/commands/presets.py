"""`gen presets`: list, show and check preset files; import and export those of other tools."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer

from ...common.files import is_stdin
from ..command_line import GenCommand, GenGroup
from ..errors import BAD_USAGE, fail, note, report_failures
from ..jobs.sources import check_grammar, import_file, list_sections, open_preset, preset_text, report
from ..options.presets import PresetExportOptions, PresetImportOptions, PresetNameOptions
from ..options.signature import takes_options

app = typer.Typer(
    help="List, show, check, import and export presets.",
    add_completion=False,
    cls=GenGroup,
)


@app.callback(invoke_without_command=True)
def presets(context: typer.Context) -> None:
    """List, show, check, import and export presets. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list", cls=GenCommand)
def list_() -> None:
    """List the presets that a name finds: ./presets, your config folder, the built-in ones."""
    with report_failures():
        from ...presets.search import list_presets
        from ..render.tables import show_presets

        show_presets(list_presets())


@app.command(cls=GenCommand)
@takes_options(PresetNameOptions)
def show(options: PresetNameOptions) -> None:
    """Print a preset's YAML.

    A file of another tool is printed as a preset of gen, as gen presets import does.
    """
    from ..render.run import terminal_safe

    sys.stdout.write(terminal_safe(preset_text(options.name), sys.stdout))


@app.command(cls=GenCommand)
@takes_options(PresetNameOptions)
def check(options: PresetNameOptions) -> None:
    """Say whether a preset file is right; if not, what is wrong and where."""
    preset = open_preset(options.name)
    steps = [sampler.about.name for sampler in preset.samplers()]
    if preset.grammar is not None:
        check_grammar(preset)
    print(f"{options.name}: ok ({' > '.join(steps) or 'no steps'})")


@app.command(cls=GenCommand)
def schema() -> None:
    """Print the JSON Schema of preset files, for your editor."""
    with report_failures():
        import json

        from ...presets.schema import preset_json_schema

        print(json.dumps(preset_json_schema(), indent=2, ensure_ascii=False))


@app.command("import", cls=GenCommand)
@takes_options(PresetImportOptions)
def import_(options: PresetImportOptions) -> None:
    """Print a preset of another tool as one of ours.

    Comments tell where each step comes from. What cannot be carried over is reported on stderr.
    """
    from ...presets.errors import PresetError
    from ...presets.foreign.draft import MissingSectionError
    from ...presets.foreign.formats import AmbiguousFormatError
    from ...presets.search import split_section
    from ..render.run import terminal_safe

    file, section = split_section(options.file)
    if section is not None and options.section is not None:
        raise PresetError(f"--section: {options.file} already names the section {section!r}; leave --section out")
    try:
        imported = import_file(Path(file), options.format, options.section if section is None else section)
    except MissingSectionError as error:
        raise PresetError(list_sections(error, "--section NAME")) from None
    except AmbiguousFormatError as error:
        raise PresetError(f"{error} with --from FORMAT") from None
    if imported.other_format is not None:
        report([f"the content looks like {imported.other_format}; it is read as {imported.format}"])
    report(imported.reported)
    if options.save is None:
        sys.stdout.write(terminal_safe(imported.yaml_text(), sys.stdout))
    else:
        folder = Path() if is_stdin(Path(file)) else Path(file).parent
        _save(options.save, imported.yaml_text(folder), may_replace=options.force)


@app.command(cls=GenCommand)
@takes_options(PresetExportOptions)
def export(options: PresetExportOptions) -> None:
    """Print a preset in the format of another tool.

    What that format cannot say is reported on stderr.
    """
    from ...presets.foreign.formats import export_preset
    from ..render.run import terminal_safe

    exported = export_preset(open_preset(options.name), options.to)
    report(exported.reported)
    sys.stdout.write(terminal_safe(exported.text.rstrip("\n") + "\n", sys.stdout))


def _save(name: str, text: str, *, may_replace: bool) -> None:
    """Write a preset into the user's folder, whole or not at all."""
    from ...common.files import write_whole_file
    from ...presets.search import config_folder, find_preset

    path = config_folder() / "presets" / f"{name}.yaml"
    existing = [other for other in (path, path.with_suffix(".yml")) if other.exists()]
    if existing and not may_replace:
        fail(f"{existing[0]} exists; --force replaces it", BAD_USAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole_file(path, lambda file: file.write(text.encode()))
    note(f"saved as {path}; use it with -P {shlex.quote(name)}")
    found = find_preset(name).path
    if not found.samefile(path):
        note(f"here, -P {shlex.quote(name)} finds {found} first")
