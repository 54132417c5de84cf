"""The memory, the author's note and the world info of a story, as KoboldAI has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, model_validator

from ..common.errors import InvalidFieldError, wrong_value
from ..common.strict_model import Json, StrictModel, validated
from ..common.text import unknown_name
from .errors import PresetError

# KoboldAI Lite's default. The note takes the place of the mark.
NOTE_MARK = "<|>"
NOTE_TEMPLATE = f"[Author's note: {NOTE_MARK}]"
NOTE_CHARACTERS = 320

_Count = Annotated[int, Field(ge=0)]


class AuthorsNote(StrictModel):
    """A text near the end of what the model reads, or an object with it.

    ``template``: ``<|>`` in it becomes the text. ``depth``: the number of lines of a text, or of messages of a
    chat, that follow the note; without it, ``characters`` follow, as in KoboldAI Lite.
    """

    text: str = ""
    template: str = NOTE_TEMPLATE
    depth: _Count | None = None
    characters: _Count = NOTE_CHARACTERS

    @property
    def whole_text(self) -> str:
        """The text in its template; empty without a text."""
        return self.template.replace(NOTE_MARK, self.text, 1) if self.text.strip() else ""


class WorldInfoEntry(StrictModel):
    """A text that the model reads where the story has one of its keys. The names are those of character cards.

    ``secondary_keys``: if ``selective``, one of these must be there, too; ``exclude_keys``: none of these may be
    there. ``constant``: the keys do not matter. ``insertion_order``: entries of a higher number stand later, and
    stay if there is no room for all. ``scan_depth``: number of lines of a text, or of messages of a chat, from the
    end that are searched for keys; 0: all; null: that of the world info.
    """

    content: str
    keys: list[str] = Field(default_factory=list)
    secondary_keys: list[str] = Field(default_factory=list)
    exclude_keys: list[str] = Field(default_factory=list)
    name: str = ""
    enabled: bool = True
    constant: bool = False
    selective: bool = False
    insertion_order: int = 100
    case_sensitive: bool | None = None
    whole_words: bool = False
    scan_depth: _Count | None = None


# Searching the text for more keys would take seconds.
MAX_ENTRIES = 4_096
MAX_KEYS = 8_192
_MAX_KEY_CHARACTERS = 1_000


class WorldInfo(StrictModel):
    """Entries, and what holds for all of them. ``token_budget``: maximum number of tokens of all their texts."""

    entries: list[WorldInfoEntry] = Field(default_factory=list, max_length=MAX_ENTRIES)
    scan_depth: _Count = 0
    token_budget: _Count | None = None
    case_sensitive: bool = False

    @model_validator(mode="after")
    def _check_keys(self) -> WorldInfo:
        keys = [key for entry in self.entries for key in (*entry.keys, *entry.secondary_keys, *entry.exclude_keys)]
        if len(keys) > MAX_KEYS:
            raise ValueError(f"there are {len(keys):,} keys; the limit is {MAX_KEYS:,}")
        if any(len(key) > _MAX_KEY_CHARACTERS for key in keys):
            raise ValueError(f"a key has more than {_MAX_KEY_CHARACTERS:,} characters")
        return self


def check_authors_note(value: object) -> Json | None:
    """Return an author's note as a preset writes it. Raises ``PresetError`` that names the key."""
    if value is None:
        return None
    table = {"text": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise PresetError(wrong_value(value, "a string or a table"), place=("authors_note",))
    for key in table:
        if key not in AuthorsNote.model_fields:
            raise PresetError(unknown_name("key", key, AuthorsNote.model_fields), place=("authors_note",))
    try:
        note = validated(AuthorsNote, dict(table))
    except InvalidFieldError as error:
        raise PresetError(error.problem, place=("authors_note", *error.place)) from None
    return {"text": note.text, **note.model_dump(exclude_defaults=True)}


@dataclass(frozen=True)
class Story:
    """What the model reads besides the text of a story or the messages of a chat."""

    memory: str = ""
    authors_note: AuthorsNote = field(default_factory=AuthorsNote)
    world_info: WorldInfo = field(default_factory=WorldInfo)

    def as_fields(self) -> Json:
        """Return the story as the fields of a request; null for what is empty."""
        note, world_info = self.authors_note, self.world_info
        return {
            "memory": self.memory,
            "authors_note": note.model_dump() if note.text else None,
            "world_info": world_info.model_dump() if world_info.entries else None,
        }
