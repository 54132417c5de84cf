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
    from ..presets.foreign.conversion import ImportedPreset, MissingSectionError
    from ..presets.preset import Preset

    Note = Callable[[str], object]


def open_preset(name: str, note: Note | None = None) -> Preset:
    """Return a preset by its name or file.

    Args:
        name: a name or a file, as ``--preset`` accepts it, except ``model``. The file may be a preset of another
            tool, or a GGUF model with sampling settings.
        note: called with a message for each setting that cannot be imported; None reports nothing.

    Raises ``PresetError``. If the file is ambiguous, the message contains the command that resolves it.
    """
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
    """Return the YAML of a preset. A preset of another tool, or of a model, is imported first.

    Args:
        name: a name or a file.
        note: called with a message for each setting that cannot be imported.

    Raises ``PresetError`` and ``OSError``. An invalid preset of logitsmith is returned verbatim.
    """
    from ..presets.errors import PresetError
    from ..presets.foreign.formats import import_text, is_foreign
    from ..presets.search import find_preset, is_file_reference, split_section

    if not is_file_reference(name):
        return read_input(find_preset(name).path).decode("utf-8", "replace")
    file, section = split_section(name)
    if _is_gguf(Path(file)):
        imported = import_file(Path(file), None, section)
    else:
        text = read_input(Path(file)).decode("utf-8-sig", "replace")
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
    """Import a preset of another tool, or the sampling settings of a GGUF model.

    Args:
        path: the file; ``-`` reads stdin.
        format_name: format of the file; None recognizes it.
        section: name of a preset in a file with several presets; None for a file with one preset.

    Raises ``PresetError`` and ``OSError``. A preset of logitsmith is an error, too.
    """
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


_FORMAT_DESCRIPTIONS = {
    "webui": "a preset of text-generation-webui",
    "sillytavern": "a preset of SillyTavern (text completion)",
    "koboldai": "a preset of KoboldAI",
    "koboldcpp": "a preset of KoboldCpp",
    "huggingface": "a generation_config.json of Hugging Face",
    "ollama": "a Modelfile of Ollama",
    "tabbyapi": "sampler overrides of TabbyAPI",
    "llama.cpp": "settings of llama.cpp",
    "lmstudio": "a preset of LM Studio",
}
"""Description of a file of each format, for messages."""


def _report_import(name: str, format_name: str, unsupported_settings: Sequence[str], note: Note) -> None:
    note(f"{name}: read as {_FORMAT_DESCRIPTIONS[format_name]}")
    for message in unsupported_settings:
        note(message)


@contextmanager
def _suggest_commands(file: str) -> Iterator[None]:
    """While inside, errors for an ambiguous file become messages with the command that resolves the ambiguity."""
    from ..presets.errors import PresetError
    from ..presets.foreign.conversion import MissingSectionError
    from ..presets.foreign.formats import AmbiguousFormatError

    try:
        yield
    except MissingSectionError as error:
        raise PresetError(section_choice_message(error, f"-P {shlex.quote(f'{file}#NAME')}")) from None
    except AmbiguousFormatError as error:
        raise PresetError(f"{error}: gen presets import {shlex.quote(file)} --from FORMAT --save NAME") from None


def section_choice_message(error: MissingSectionError, usage: str) -> str:
    """Return a message that lists the presets of a file, one a line.

    Args:
        error: the error that lists the presets.
        usage: flag that chooses one of the presets.
    """
    names = "".join(f"\n  {name}" for name in error.names)
    return f"{error.origin}: the file holds {len(error.names)} presets; choose one by {usage}:{names}"


def grammar_folders() -> list[tuple[str, Path]]:
    """Return the names and paths of the folders that are searched for grammars before the library."""
    from ..presets.search import config_folder

    user_folder = config_folder() / "grammars"
    return [("./grammars", Path("grammars")), (str(user_folder), user_folder)]


def find_grammar_source(name: str, root: str = "root", *, is_lenient: bool = False) -> GrammarSpec:
    """Return a grammar by its name or file. Raises ``GrammarError``.

    Args:
        name: name of a grammar, or a file whose ending shows its kind.
        root: root rule of a GBNF grammar.
        is_lenient: whether unsupported parts of a JSON Schema are ignored; otherwise they are errors.
    """
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
        text = source.rstrip("\n") if kind == "regex" else source
        return GrammarSpec(name, kind, text, root, schema_lenient=is_lenient)
    if "/" in name or path.suffix:
        raise GrammarError(f"{name}: the ending of a grammar file must be one of {', '.join(KIND_OF_SUFFIX)}")
    if is_lenient:
        raise GrammarError(f"{name}: --schema-lenient is for a JSON Schema, and this is GBNF")
    return resolve_grammar({"name": name, "root": root}, grammar_folders())


def check_grammar(preset: Preset) -> None:
    """Raise ``GrammarError`` for a preset with an invalid grammar."""
    from ..grammars.errors import GrammarError
    from ..grammars.spec import resolve_grammar
    from ..presets.settings import preset_folder

    grammar_value = {} if preset.grammar is None else preset.grammar
    try:
        resolve_grammar(grammar_value, grammar_folders(), preset_folder(preset)).check()
    except GrammarError as error:
        raise error.within(preset.origin) from None


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


_MAX_TEMPLATE_BYTES = 1_000_000
"""Maximum size of a template's file. It exceeds the limit of the engine, whose message names that limit."""


def chat_template_source(text: str, *, can_be_name: bool = True) -> str:
    """Return the name or the source of a chat template, for `open_chat_template`.

    Args:
        text: name of a template of llama.cpp, Jinja source, or a file with Jinja source.
        can_be_name: whether the error for a missing file mentions llama.cpp's templates.

    Raises ``ModelError`` for other texts.
    """
    from ..common.files import TextFileError, read_text_file
    from ..common.text import nearest_name
    from ..engine.templates import builtin_chat_templates, is_chat_template
    from ..models.errors import ModelError

    if is_chat_template(text):
        return text
    try:
        source = read_text_file(Path(text), _MAX_TEMPLATE_BYTES)
    except TextFileError as error:
        hint = ""
        if can_be_name and not os.path.lexists(text):
            near = nearest_name(text, builtin_chat_templates())
            hint = f"; did you mean {near}?" if near else "; llama.cpp has no template of that name"
        raise ModelError(f"{text}: {error}{hint}") from None
    if not is_chat_template(source):
        raise ModelError(f"{text}: this is not a chat template: it contains no Jinja")
    return source
