"""Lookup of presets, grammars and chat templates by their names or files.

Functions call ``note`` with a message for each setting that cannot be imported. None reports nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import input_name, is_stdin, read_input

if TYPE_CHECKING:
    from ..grammars.spec import GrammarSpec
    from ..presets.foreign.conversion import ImportedPreset
    from ..presets.foreign.preset_file import MissingSectionError
    from ..presets.preset import Preset

    Note = Callable[[str], object]


def open_preset(name: str, note: Note | None = None) -> Preset:
    """Return a preset by its name or file, as ``--preset`` accepts it, except ``model``."""
    # Raises ``PresetError``.
    # The file may be a preset of another tool, or a GGUF model with sampling settings. If it is ambiguous, the
    # message contains the command that resolves it.
    from ..presets.preset import load_preset
    from ..presets.search import is_file_reference, split_section

    if not is_file_reference(name):
        return load_preset(name)
    from ..presets.errors import PresetError
    from ..presets.foreign.formats import LoadedPreset, load_any_preset

    file, section = split_section(name)
    if _is_gguf(Path(file)):
        if section is not None:
            raise PresetError(f"{file}: a model holds one preset only, and no section {section!r}")
        imported = _import_gguf(Path(file))
        loaded = LoadedPreset(imported.preset, "llama.cpp", tuple(imported.unsupported_settings))
    else:
        with _suggest_commands(file):
            loaded = load_any_preset(name)
    if loaded.format is not None and note is not None:
        _report_import(name, loaded.format, loaded.unsupported_settings, note)
    return loaded.preset


def preset_text(name: str, note: Note) -> str:
    """Return the YAML of a preset, imported if it is another tool's or a model's."""
    # Raises ``PresetError``, ``OSError``.
    # An invalid preset of logitsmith is returned verbatim.
    from ..presets.errors import PresetError
    from ..presets.foreign.formats import import_text, is_foreign
    from ..presets.search import find_preset, is_file_reference, split_section
    from ..presets.yaml_reader import read_text

    if not is_file_reference(name):
        path = find_preset(name).path
        return read_text(path, path.name)
    file, section = split_section(name)
    if _is_gguf(Path(file)):
        imported = import_file(Path(file), None, section)
    else:
        text = read_text(Path(file), file)
        with _suggest_commands(file):
            if not is_foreign(text, file):
                if section is not None:
                    raise PresetError(f"{file}: the file holds one preset only, and no section {section!r}")
                return text
            imported = import_text(text, file, section=section)
    _report_import(name, imported.format, imported.unsupported_settings, note)
    return imported.yaml_text()


def preset_of_model(metadata: Mapping[str, str], note: Note) -> Preset | None:
    """Return the preset in the metadata of a model; None if the metadata contain no sampling settings."""
    from ..presets.foreign.formats import import_metadata

    imported = import_metadata(metadata)
    if imported is None:
        return None
    for message in imported.unsupported_settings:
        note(message)
    return imported.preset


def import_file(path: Path, format_name: str | None, section: str | None) -> ImportedPreset:
    """Import a preset of another tool, or a model's sampling settings. Raises ``PresetError``, ``OSError``."""
    # A preset of logitsmith is an error, too. The path ``-`` is stdin.
    from ..presets.errors import PresetError
    from ..presets.foreign.formats import import_preset, import_text

    if _is_gguf(path):
        if section is not None:
            raise PresetError(f"{path}: a model holds one preset only, and no section {section!r}")
        if format_name not in (None, "llama.cpp"):
            raise PresetError(f"{path}: it is a GGUF file, whose settings are llama.cpp's; leave --from out")
        return _import_gguf(path)
    if is_stdin(path):
        from ..presets.yaml_reader import MAX_FILE_BYTES, decode_text

        text = decode_text(read_input(path, MAX_FILE_BYTES), input_name(path))
        imported = import_text(text, input_name(path), format_name, section)
    else:
        imported = import_preset(path, format_name, section)
    return imported


_GGUF_MAGIC = b"GGUF"


def _is_gguf(path: Path) -> bool:
    """Return whether a file begins like a GGUF. A pipe is not opened, because it can be read only once."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    except (OSError, ValueError):
        return False


def _import_gguf(path: Path) -> ImportedPreset:
    """Import the sampling settings of a GGUF model. Raises ``PresetError`` if it has none."""
    from ..models.gguf import read_metadata
    from ..presets.errors import PresetError
    from ..presets.foreign.formats import import_metadata

    imported = import_metadata(read_metadata(path))
    if imported is None:
        raise PresetError(f"{path}: this model names no sampling settings (general.sampling.*)")
    return imported


def _report_import(name: str, format_name: str, unsupported_settings: Sequence[str], note: Note) -> None:
    from ..presets.foreign.registry import find_format

    note(f"{name}: read as {find_format(format_name).description}")
    for message in unsupported_settings:
        note(message)


@contextmanager
def _suggest_commands(file: str) -> Iterator[None]:
    """While inside, errors for an ambiguous file become messages with the command that resolves the ambiguity."""
    from ..presets.errors import PresetError
    from ..presets.foreign.preset_file import MissingSectionError
    from ..presets.foreign.recognition import AmbiguousFormatError

    try:
        yield
    except MissingSectionError as error:
        raise PresetError(section_choice_message(error, f"-P {shlex.quote(f'{file}#NAME')}")) from None
    except AmbiguousFormatError as error:
        raise PresetError(f"{error}: gen presets import {shlex.quote(file)} --from FORMAT --save NAME") from None


def section_choice_message(error: MissingSectionError, usage: str) -> str:
    """Return a message that lists the presets of a file, one a line; ``usage``: the flag that chooses one."""
    names = "".join(f"\n  {name}" for name in error.names)
    return f"{error.origin}: the file holds {len(error.names)} presets; choose one by {usage}:{names}"


def grammar_folders() -> list[tuple[str, Path]]:
    """Return the names and paths of the folders that are searched for grammars before the library."""
    from ..presets.search import config_folder

    user_folder = config_folder() / "grammars"
    return [("./grammars", Path("grammars")), (str(user_folder), user_folder)]


def find_grammar_source(name: str, root: str = "root", *, is_lenient: bool = False) -> GrammarSpec:
    """Return a grammar by its name or file, whose ending shows its kind. Raises ``GrammarError``."""
    from ..grammars.errors import GrammarError
    from ..grammars.spec import KIND_OF_SUFFIX, GrammarSpec, read_grammar_file, resolve_grammar

    path = Path(name)
    kind = KIND_OF_SUFFIX.get(path.suffix)
    if kind is not None:
        if root != "root" and kind != "gbnf":
            raise GrammarError(f"{name}: --root names a rule of GBNF, and this is a {path.suffix} file")
        if is_lenient and kind != "json_schema":
            raise GrammarError(f"{name}: --schema-lenient is for a JSON Schema, and this is a {path.suffix} file")
        source = read_grammar_file(path)
        text = source.rstrip("\r\n") if kind == "regex" else source
        return GrammarSpec(name, kind, text, root, schema_lenient=is_lenient)
    if "/" in name or path.suffix:
        raise GrammarError(f"{name}: the ending of a grammar file must be one of {', '.join(KIND_OF_SUFFIX)}")
    if is_lenient:
        raise GrammarError(f"{name}: --schema-lenient is for a JSON Schema, and this is GBNF")
    return resolve_grammar({"name": name, "root": root}, grammar_folders())


def check_grammar(preset: Preset) -> None:
    """Raise ``GrammarError`` for a preset with an invalid grammar."""
    from ..common.errors import Word
    from ..grammars.errors import GrammarError
    from ..grammars.spec import resolve_grammar
    from ..presets.settings import preset_folder

    grammar_value = preset.settings.get("grammar", {})
    try:
        grammar = resolve_grammar(grammar_value, grammar_folders(), preset_folder(preset))
        grammar.check()
    except GrammarError as error:
        raise error.within(preset.origin, {Word.SCHEMA_LENIENT: "schema_lenient: true"}) from None


def report_schema(grammar: GrammarSpec, note: Note) -> None:
    """Report the ignored parts of a JSON Schema, and whether it allows keys that it does not name."""
    report_ignored_schema_paths(grammar, note)
    pointer = grammar.open_object
    if pointer is not None:  # allowing keys that a schema does not name is seldom intended
        place = f" at {pointer}" if pointer else ""
        note(f'the JSON Schema allows other keys too{place}; "additionalProperties": false forbids them')


def report_ignored_schema_paths(grammar: GrammarSpec, note: Note) -> None:
    """Report the ignored parts of a JSON Schema, if there are any."""
    if grammar.ignored_schema_paths:
        note(f"left out of the JSON Schema: {', '.join(grammar.ignored_schema_paths)}")


# Maximum size of a template's file. A ``tokenizer_config.json`` also lists the added tokens of a vocabulary.
_MAX_TEMPLATE_BYTES = 8_000_000


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # the text is too long for a path
        return False


# the files of a model's folder that hold its template; the first one counts, as in transformers
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")


def chat_template_source(text: str) -> str:
    """Return the name or the source of a chat template, for `open_chat_template`. Raises ``ModelError``."""
    # ``text``: the name of a template of llama.cpp, Jinja source, a file with it, such as transformers'
    # ``tokenizer_config.json``, or the folder with such a file.
    from ..common.files import TextFileError, read_text_file
    from ..common.text import did_you_mean
    from ..engine.native_template import builtin_chat_templates
    from ..engine.templates import is_chat_template
    from ..models.errors import ModelError

    if is_chat_template(text):
        return text
    path = Path(text)
    if _is_folder(path):
        template_files = [path / name for name in _TEMPLATE_FILES if os.path.lexists(path / name)]
        if not template_files:
            raise ModelError(f"{text}: this folder has none of the files {', '.join(_TEMPLATE_FILES)}")
        path = template_files[0]
    try:
        source = read_text_file(path, _MAX_TEMPLATE_BYTES)
    except TextFileError as error:
        if os.path.lexists(text):
            raise ModelError(f"{text}: {error}") from None
        hint = did_you_mean(text, builtin_chat_templates()) or "llama.cpp has no template of that name"
        raise ModelError(f"{text}: {error}; {hint}") from None
    if not is_chat_template(source):
        raise ModelError(f"{path}: this is not a chat template: it contains no Jinja")
    return source
