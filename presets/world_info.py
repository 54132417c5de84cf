"""World info in the forms of several tools: character cards, SillyTavern, KoboldAI, KoboldAI United and Lite.

The forms differ in the names of their keys only, so that one function reads all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..common.errors import InvalidFieldError, Place
from ..common.strict_json import without_whole_floats
from ..common.strict_model import Json, validated
from ..common.text import short_repr
from .errors import PresetError
from .story import MAX_ENTRIES, WorldInfo, WorldInfoEntry


class Remark(NamedTuple):
    """A part of a file that is not taken."""

    place: str  # such as ``entries[3].probability``
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


# The names of an entry's fields: those of character cards, SillyTavern's, KoboldAI's.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "keys": ("keys", "key"),
    "secondary_keys": ("secondary_keys", "keysecondary"),
    "exclude_keys": ("exclude_keys", "keyanti"),
    "content": ("content",),
    "name": ("name", "comment", "title"),
    "enabled": ("enabled",),
    "constant": ("constant",),
    "selective": ("selective",),
    "insertion_order": ("insertion_order", "order"),
    "case_sensitive": ("case_sensitive", "caseSensitive"),
    "whole_words": ("whole_words", "matchWholeWords", "match_whole_words"),
    "scan_depth": ("scan_depth", "scanDepth"),
}
_DISABLED_NAMES = ("disable", "disabled", "widisabled")
_NOT_ANY = 2  # the ``selectiveLogic`` of entries whose secondary keys forbid
# Names that do not change which entries the model reads.
_HARMLESS = "id uid folder init num extensions comment title addMemo displayIndex display_index depth groupWeight"
# For each name, the values that change nothing, and what another value would have done.
_WITHOUT_EFFECT: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "probability": ((100, "100"), "the entry is inserted each time"),
    "position": ((0, 1, "before_char", "after_char", ""), "the entry stands after the memory"),
    "use_regex": ((False,), "keys are no regular expressions"),
    "selectiveLogic": ((0, _NOT_ANY), "one of the secondary keys is enough"),
}
_KNOWN_NAMES = {name for names in _NAMES.values() for name in names}
_KNOWN_NAMES |= {*_DISABLED_NAMES, *_WITHOUT_EFFECT, *_HARMLESS.split(), "useProbability"}


def read_world_info(value: Any) -> tuple[WorldInfo, list[Remark]]:
    """Return world info in any of the known forms, and what is not taken of it. Raises ``InvalidFieldError``."""
    remarks: list[Remark] = []
    book = _book_of(value)
    entries = [_entry(raw, index, remarks) for index, raw in enumerate(_entries_of(book))]
    for name in ("recursive_scanning", "recursive"):
        if book.get(name):
            remarks.append(Remark(name, "keys are searched for in the text, not in other entries"))
    facts: Json = {name: book[name] for name in ("scan_depth", "token_budget", "case_sensitive") if name in book}
    return validated(WorldInfo, facts | {"entries": entries}), list(dict.fromkeys(remarks))


def check_world_info(value: object) -> Json | None:
    """Return world info as a preset writes it. Raises ``PresetError`` that names the entry."""
    if value is None:
        return None
    try:
        world_info, remarks = read_world_info(value)
    except InvalidFieldError as error:
        raise PresetError(error.problem, place=("world_info", *error.place)) from None
    if remarks:
        raise PresetError(f"world_info.{remarks[0]}")
    return {"entries": [], **world_info.model_dump(exclude_defaults=True)}


def _book_of(value: Any) -> Json:
    """Return the object that has the entries."""
    if isinstance(value, list):
        return {"entries": value}
    if isinstance(value, Mapping):
        for name in ("data", "worldinfo_v2", "character_book", "world_info"):
            if "entries" not in value and isinstance(value.get(name), (dict, list)):
                return _book_of(value[name])
        if "entries" in value or not value:
            return dict(value)
    raise InvalidFieldError("there are no entries; give a list of entries, or an object with entries")


def _entries_of(book: Json) -> list[Any]:
    """Return the entries of a list, or of an object whose keys are numbers."""
    entries = book.get("entries") or []
    if isinstance(entries, dict):
        numbers = sorted(filter(is_number, entries), key=int)
        entries = [entries[key] for key in (*numbers, *(key for key in entries if not is_number(key)))]
    if not isinstance(entries, list):
        raise InvalidFieldError(f"{short_repr(entries)} is not a list or an object", ("entries",))
    if len(entries) > MAX_ENTRIES:
        raise InvalidFieldError(f"there are {len(entries):,} entries; the limit is {MAX_ENTRIES:,}", ("entries",))
    return entries


_MAX_DIGITS = 18


def is_number(key: str) -> bool:
    """Return whether a key is a number, as those of the objects that some tools write instead of lists."""
    return key.isascii() and key.isdecimal() and len(key) <= _MAX_DIGITS


def _entry(raw: Any, index: int, remarks: list[Remark]) -> Json:
    """Return an entry under our names. ``index``: its place among the entries."""
    place = f"entries[{index}]"
    if not isinstance(raw, dict):
        raise InvalidFieldError(f"{short_repr(raw)} is not an object", ("entries", index))
    unknown_names = [name for name, value in raw.items() if value and name not in _KNOWN_NAMES]
    if isinstance(raw.get("extensions"), dict):  # SillyTavern's fields in an entry of a card
        raw = {**raw["extensions"], **raw}
    raw = {name: without_whole_floats(value) for name, value in raw.items() if value is not None}
    entry = {name: _first(raw, names) for name, names in _NAMES.items()}
    for name in ("keys", "secondary_keys", "exclude_keys"):
        entry[name], regexes = _keys(entry[name], ("entries", index, name))
        remarks += [Remark(f"{place}.{name}", f"the regular expression {regex} is left out") for regex in regexes]
    if any(raw.get(name) is True for name in _DISABLED_NAMES):
        entry["enabled"] = False
    if "keyanti" in raw and not raw.get("selective"):
        entry["exclude_keys"] = []  # KoboldAI Lite reads them in selective entries only
    if raw.get("selectiveLogic") == _NOT_ANY:
        entry |= {"secondary_keys": [], "exclude_keys": [*entry["exclude_keys"], *entry["secondary_keys"]]}
    for name, (values, consequence) in _WITHOUT_EFFECT.items():
        if name in raw and raw[name] not in values:
            remarks.append(Remark(f"{place}.{name}", consequence))
    remarks += [Remark(f"entries[].{name}", "it has no effect") for name in unknown_names]
    given = {name: value for name, value in entry.items() if value is not None}
    try:
        return validated(WorldInfoEntry, {"content": "", **given}).model_dump()
    except InvalidFieldError as error:
        raise InvalidFieldError(error.problem, ("entries", index, *error.place)) from None


def _first(raw: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the value of the first of several names that an entry has, and an empty one only if all are."""
    values = [raw[name] for name in names if name in raw]
    return next((value for value in values if value != ""), values[0] if values else None)


_REGEX = re.compile(r"/.+/[dgimsuvy]*", re.DOTALL)  # as SillyTavern writes one as a key


def _keys(value: Any, place: Place) -> tuple[list[str], list[str]]:
    """Return the keys of a list, or of a text with commas, and the regular expressions among them."""
    keys = (value or "").split(",") if isinstance(value, str | None) else value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InvalidFieldError(f"{short_repr(value)} is not a list of texts", place)
    keys = [key.strip() for key in keys if key.strip()]
    regexes = [short_repr(key) for key in keys if _REGEX.fullmatch(key)]
    return [key for key in keys if not _REGEX.fullmatch(key)], regexes
