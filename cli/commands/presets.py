"""`gen presets`: list, show and check presets; import and export presets of other tools."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from ...common.errors import UsageError
from ...common.files import is_stdin, write_file_atomically
from ...common.flags import CompletionKind
from ...common.text import join_alternatives
from ...presets.foreign.registry import FORMATS, described_export_formats
from ...requests.sources import check_grammar, import_file, open_preset, preset_text, section_choice_message
from ..command_line import GenCommand
from ..command_options import takes_options
from ..flags import REQUIRED, Options, argument, flag
from ..messages import BAD_USAGE, fail, print_note, report_failures


@dataclass(frozen=True, kw_only=True)
class PresetNameOptions(Options):
    """The argument of commands that read one preset."""

    name: str = argument(
        "NAME",
        display_name="NAME",
        help="Name of a preset, a file, or FILE#NAME for one preset in a file with several.",
        default=REQUIRED,
        completion_kind=CompletionKind.PRESET_FILE,
    )


@dataclass(frozen=True, kw_only=True)
class PresetImportOptions(Options):
    """The options of `gen presets import`."""

    file: str = argument(
        "FILE",
        display_name="FILE",
        help="Preset of another tool, FILE#NAME for one of several, or a GGUF; - reads stdin.",
        default=REQUIRED,
        completion_kind=CompletionKind.FILE,
    )
    format: str | None = flag(
        "--from",
        metavar="FORMAT",
        help=f"Format: {join_alternatives(FORMATS)}. [detected]",
        completion_kind=CompletionKind.IMPORT_FORMAT,
    )
    section: str | None = flag(
        "--section", metavar="NAME", help="Name of one preset in a file with several, like FILE#NAME."
    )
    save: str | None = flag(
        "--save", metavar="NAME", help="Save the preset in your preset folder, for -P NAME. [print the preset]"
    )
    force: bool = flag("--force", help="With --save: replace an existing preset of this name.", default=False)

    def check(self) -> None:
        """Raise ``UsageError`` for ``--force`` without ``--save``, and for a name that ``-P`` would not find."""
        if self.force and self.save is None:
            raise UsageError("--force needs --save")
        if self.save is not None:
            _check_preset_name(self.save)


def _check_preset_name(name: str) -> None:
    """Raise ``UsageError`` for a name that ``-P`` would not find."""
    has_forbidden_character = any(character in name for character in '/\\:*?"<>|')
    has_spaces_around = name.strip() != name
    is_hidden_file = name.startswith(".")
    if not name or not name.isprintable() or has_forbidden_character or has_spaces_around or is_hidden_file:
        raise UsageError(f"--save: {name!r} is not a file name on every system; use letters and digits")
    if name.lower().endswith((".yaml", ".yml")):
        raise UsageError(f"--save: the name must not have an extension; use {Path(name).stem!r}")
    if name == "model":
        raise UsageError("--save: 'model' is reserved for the settings of the GGUF's author; use another name")


@dataclass(frozen=True, kw_only=True)
class PresetExportOptions(Options):
    """The options of `gen presets export`."""

    name: str = argument(
        "NAME",
        display_name="NAME",
        help="Name of a preset, a file (also of other tools), or FILE#NAME for one of several.",
        default=REQUIRED,
        completion_kind=CompletionKind.PRESET_FILE,
    )
    to: str = flag(
        "--to",
        metavar="FORMAT",
        help=f"Format: {join_alternatives(described_export_formats())}.",
        default=REQUIRED,
        completion_kind=CompletionKind.EXPORT_FORMAT,
    )


app = typer.Typer(
    help="List, show, check, import and export presets.",
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def presets(context: typer.Context) -> None:
    """List, show, check, import and export presets. Without a command, list them."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list", cls=GenCommand)
def list_() -> None:
    """List the presets in ./presets, in your config folder, and the built-in ones."""
    with report_failures():
        from ...presets.errors import PresetError
        from ...presets.preset import load_preset
        from ...presets.search import list_presets
        from ..render.table import Column, print_table

        rows = []
        for entry in list_presets():
            try:
                description = load_preset(str(entry.path)).description
            except PresetError as error:
                description = f"broken: {error}"
            hidden = " (hidden)" if entry.is_shadowed else ""
            rows.append((entry.name, f"{entry.origin}{hidden}", description))
        print_table(["preset", "from", Column("what it is for", is_text=True)], rows)


@app.command(cls=GenCommand)
@takes_options(PresetNameOptions)
def show(options: PresetNameOptions) -> None:
    """Print a preset as YAML.

    A file of another tool is converted to a preset of gen, as by gen presets import.
    """
    from ..text import terminal_safe

    sys.stdout.write(terminal_safe(preset_text(options.name, print_note), sys.stdout))


@app.command(cls=GenCommand)
@takes_options(PresetNameOptions)
def check(options: PresetNameOptions) -> None:
    """Check a preset, and report where an error is."""
    preset = open_preset(options.name, print_note)
    steps = [sampler.about.name for sampler in preset.samplers()]
    if "grammar" in preset.settings:
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
    """Convert a preset of another tool to a preset of gen, and print or save it.

    Comments in the preset name the source of each step. Unsupported settings are reported on stderr.
    """
    from ...presets.errors import PresetError
    from ...presets.foreign.preset_file import MissingSectionError
    from ...presets.foreign.recognition import AmbiguousFormatError
    from ...presets.search import split_section
    from ..text import terminal_safe

    file, section = split_section(options.file)
    if section is not None and options.section is not None:
        raise PresetError(f"--section: {options.file} already names the section {section!r}; leave --section out")
    if section is None:
        section = options.section
    try:
        imported = import_file(Path(file), options.format, section)
    except MissingSectionError as error:
        raise PresetError(section_choice_message(error, "--section NAME")) from None
    except AmbiguousFormatError as error:
        raise PresetError(f"{error} with --from FORMAT") from None
    if imported.other_format is not None:
        print_note(f"the content looks like {imported.other_format}; it is read as {imported.format}")
    for sentence in imported.unsupported_settings:
        print_note(sentence)
    if options.save is None:
        sys.stdout.write(terminal_safe(imported.yaml_text(), sys.stdout))
    else:
        folder = Path() if is_stdin(Path(file)) else Path(file).parent
        _save(options.save, imported.yaml_text(folder), may_replace=options.force)


@app.command(cls=GenCommand)
@takes_options(PresetExportOptions)
def export(options: PresetExportOptions) -> None:
    """Print a preset in the format of another tool.

    Settings that the format does not support are reported on stderr.
    """
    from ...presets.foreign.formats import export_preset
    from ..text import terminal_safe

    exported = export_preset(open_preset(options.name, print_note), options.to)
    for sentence in exported.unsupported_settings:
        print_note(sentence)
    sys.stdout.write(terminal_safe(exported.text.rstrip("\n") + "\n", sys.stdout))


def _save(name: str, text: str, *, may_replace: bool) -> None:
    """Write a preset to the user's folder atomically."""
    from ...presets.search import BUILT_IN, config_folder, find_preset, list_presets

    built_in_names = {entry.name.lower() for entry in list_presets() if entry.path.parent == BUILT_IN}
    if name.lower() in built_in_names and not may_replace:
        fail(
            f"--save: {name!r} is a built-in preset, which yours would hide; use another name, or add --force",
            BAD_USAGE,
        )
    path = config_folder() / "presets" / f"{name}.yaml"
    existing = [other for other in (path, path.with_suffix(".yml")) if other.exists()]
    if existing and not may_replace:
        fail(f"{existing[0]} already exists; --force replaces it", BAD_USAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file_atomically(path, lambda file: file.write(text.encode()))
    print_note(f"saved as {path}; use it with -P {shlex.quote(name)}")
    found_path = find_preset(name).path
    if not found_path.samefile(path):
        print_note(f"here, -P {shlex.quote(name)} finds {found_path} first")
