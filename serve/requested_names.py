"""The names of presets and grammars in requests. Only files on the search paths are read for a request."""

from __future__ import annotations

import re
from typing import Any

from ..common.text import unknown_name
from ..grammars.errors import GrammarError
from ..grammars.spec import grammar_table
from ..presets.search import PresetEntry, list_presets
from .errors import InvalidRequestError, ModelNotFoundError

# A name on a search path. Paths are not read for a request.
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}", re.ASCII)


def listed_presets() -> dict[str, PresetEntry]:
    """Return the presets of the search path by name. A request can name no other preset."""
    return {entry.name: entry for entry in list_presets() if not entry.is_shadowed and _NAME.fullmatch(entry.name)}


def find_listed_preset(name: str, field: str) -> PresetEntry:
    """Return a preset of the search path by its name. ``field``: the field of the request with this name."""
    # Raises ``InvalidRequestError``, which suggests the most similar name.
    known = listed_presets()
    if name not in known:
        raise InvalidRequestError(f"{field}: {unknown_name('preset', name, sorted(known))}", field)
    return known[name]


def check_preset_of_model(preset: str) -> None:
    """Raise ``ModelNotFoundError`` if the name of a model, as in ``MODEL:PRESET``, ends in an unknown preset."""
    if preset == "model":  # the settings in the model's file
        return
    try:
        find_listed_preset(preset, "model")
    except InvalidRequestError as error:
        raise ModelNotFoundError(str(error), "model") from None


def check_grammar_source(value: Any, origin: str) -> None:
    """Raise ``InvalidRequestError`` for a grammar that would be read from a file."""
    # ``origin``: the field that holds the grammar.
    try:
        table = grammar_table(value)
    except (GrammarError, TypeError, ValueError):
        return  # a wrong value is reported later, and no file is read for it
    name = table.get("name")
    has_path_as_name = name is not None and not (isinstance(name, str) and _NAME.fullmatch(name))
    has_file_key = any(str(key).endswith("file") for key in table)
    if has_path_as_name or has_file_key:
        raise InvalidRequestError(
            f"{origin}: a grammar is GBNF, a JSON Schema, a regex, Lark, or the name of a grammar",
            origin.partition(" ")[0],
        )
