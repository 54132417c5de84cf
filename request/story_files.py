"""Files of stories that other tools write: KoboldAI, KoboldAI Lite, SillyTavern; and KoboldAI's, written here."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from json import JSONDecodeError
from typing import Any

from pydantic import Field

from ..common.errors import InvalidFieldError, LogitsmithError
from ..common.strict_json import encode_json, parse_strict_json, placed_json_problem, without_whole_floats
from ..common.strict_model import Json, StrictModel, validated
from ..common.text import short_repr
from ..presets.story import NOTE_MARK, AuthorsNote, Story, WorldInfo, WorldInfoEntry
from ..presets.world_info import is_number, read_world_info

MAX_STORY_FILE_BYTES = 50_000_000
_MAX_VALUES = 1_000_000
_MAX_REMARKS = 100


class StoryFileError(LogitsmithError):
    """A file that is no story, or a broken one."""


class Piece(StrictModel):
    """A part of a story's text, with other versions of it."""

    text: str
    alternatives: list[str] = Field(default_factory=list)


class NamedMessage(StrictModel):
    """A message of a chat, with other versions of it. ``name``: that of the speaker."""

    role: str
    name: str
    content: str
    alternatives: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class ImportedStory:
    """A story from a file. It has pieces of a text, a chat, or only what the model reads besides."""

    format: str
    name: str = ""
    pieces: tuple[Piece, ...] = ()
    messages: tuple[NamedMessage, ...] | None = None
    story: Story = field(default_factory=Story)
    settings: Json | None = None  # KoboldAI Lite's
    remarks: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """Return the story with the values that the fields of a request take."""
        rest = len(self.remarks) - _MAX_REMARKS
        return {
            "format": self.format,
            "name": self.name or None,
            "text": "".join(piece.text for piece in self.pieces),
            "pieces": [piece.model_dump() for piece in self.pieces],
            "messages": None if self.messages is None else [each.model_dump() for each in self.messages],
            **self.story.as_fields(),
            "settings": self.settings,
            "remarks": [*self.remarks[:_MAX_REMARKS], *([f"and {rest:,} more"] if rest > 0 else [])],
        }


_FORMATS = (
    "a story of KoboldAI or KoboldAI Lite, or a character card (JSON or PNG), a chat or world info of SillyTavern"
)


def import_story(data: bytes, user: str = "User") -> ImportedStory:
    """Return the story in a file. ``user``: the name that ``{{user}}`` becomes. Raises ``StoryFileError``."""
    if len(data) > MAX_STORY_FILE_BYTES:
        raise StoryFileError(f"it has {len(data):,} bytes; the limit is {MAX_STORY_FILE_BYTES:,}")
    _check_values(data)
    try:
        if data.startswith(_PNG_SIGNATURE[:4]):
            return _read_card(_parse_png(data), user)
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) > 1 and _is_object(lines[0]):
            return _read_chat([_parse_line(line, number) for number, line in enumerate(lines, 1)])
        return _read_json(_parse(data), user)
    except InvalidFieldError as error:
        raise StoryFileError(error.statement) from None


def _check_values(data: bytes) -> None:
    """Raise ``StoryFileError`` for a file with more values than any story has: they take much memory."""
    if data.count(b",") > _MAX_VALUES:
        raise StoryFileError(f"it has more than {_MAX_VALUES:,} values")


def _parse(data: bytes) -> Any:
    try:
        value = parse_strict_json(data.decode("utf-8-sig"))
        encode_json(value).encode()  # half of a surrogate pair is an error
    except UnicodeDecodeError as error:
        raise StoryFileError(f"byte {error.start} is not UTF-8; {_ADVICE}") from None
    except JSONDecodeError as error:
        raise StoryFileError(f"it is not JSON: {placed_json_problem(error)}; {_ADVICE}") from None
    except ValueError as error:
        raise StoryFileError(f"it is not JSON: {error}; {_ADVICE}") from None
    return without_whole_floats(value)


_ADVICE = f"give {_FORMATS}"


def _parse_png(data: bytes) -> Any:
    """Return the character card in a PNG."""
    if not data.startswith(_PNG_SIGNATURE):
        raise StoryFileError("it is a damaged PNG, such as one that was copied as a text; copy it again")
    card = _card_of_png(data)
    try:
        _check_values(card)
        return _parse(card)
    except StoryFileError as error:
        raise error.within("the card in the PNG") from None


def _is_object(line: bytes) -> bool:
    """Return whether a line is a whole object of JSON, as in a file of such lines."""
    try:
        return isinstance(parse_strict_json(line.decode("utf-8-sig")), dict)
    except ValueError:
        return False


def _parse_line(line: bytes, number: int) -> Any:
    try:
        return _parse(line)
    except StoryFileError as error:
        raise error.within(f"line {number}") from None


def _read_json(value: Any, user: str) -> ImportedStory:
    """Return the story of a value of JSON, whose keys tell its format."""
    if isinstance(value, dict):
        data = value.get("data")
        is_card = "first_mes" in value or (isinstance(data, dict) and "entries" not in data)
        if is_card:
            return _read_card(value, user)
        if "gamestarted" in value or "actions" in value or "worldinfo_v2" in value:
            return _read_kobold(value)
        if "chat_metadata" in value:
            return _read_chat([value])
    is_book = isinstance(value, dict) and ("entries" in value or isinstance(value.get("data"), dict))
    entries = value if isinstance(value, list) else []
    if is_book or any(isinstance(entry, dict) and "content" in entry for entry in entries):
        world_info, remarks = read_world_info(value)
        name = value.get("name") if isinstance(value, dict) else None
        story = Story(world_info=world_info)
        return ImportedStory("world info", _as_text(name), story=story, remarks=tuple(map(str, remarks)))
    raise StoryFileError(f"it is no story; {_ADVICE}")


def _as_text(value: Any) -> str:
    """Return a value that should be a text; empty for another one."""
    return value if isinstance(value, str) else ""


class _Table:
    """An object of a file, whose values are read by type. It remembers what is not taken."""

    def __init__(self, values: Any, remarks: list[str], place: str = "") -> None:
        self.values: Json = values if isinstance(values, dict) else {}
        self._remarks = remarks
        self._place = place
        self._read: set[str] = set()

    def get(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """Return a value of a type; None if it is absent, null or of another type."""
        self._read.add(name)
        value = self.values.get(name)
        if value is None or (isinstance(value, kind) and not (isinstance(value, bool) and kind is int)):
            return value
        self._remarks.append(f"{self._place}{name} is left out: {short_repr(value)} has another type")
        return None

    def text(self, *names: str) -> str:
        """Return the text of the first of several names; empty if there is none."""
        return next((text for text in (self.get(name, str) for name in names) if text), "")

    def texts(self, name: str) -> list[str]:
        """Return the texts of a list."""
        return [text for text in self.get(name, list) or () if isinstance(text, str)]

    def note_rest(self, harmless: Iterable[str]) -> None:
        """Add a remark that names what is not taken: values that are neither read nor empty."""
        rest = [name for name, value in self.values.items() if value and name not in self._read | set(harmless)]
        if rest:
            self._remarks.append(
                f"not taken: {', '.join(short_repr(name).strip(chr(39)) for name in rest[:_MAX_REMARKS])}"
            )


# --- KoboldAI, KoboldAI United, KoboldAI Lite

_LITE_MARK = re.compile(r"\n{0,2}\{\{\[(?:INPUT|OUTPUT|SYSTEM)(?:_END)?\]\}\}\n{0,2}")
_KOBOLD_HARMLESS = ("gamestarted", "wifolders_d", "wifolders_l", "file_version", "savedaestheticsettings")


def _read_kobold(value: Json) -> ImportedStory:
    remarks: list[str] = []
    table = _Table(value, remarks)
    is_lite = any(name in value for name in ("anotestr", "savedsettings", "savedaestheticsettings"))
    pieces = [Piece(text=table.text("prompt")), *_actions(table)]
    if any(_LITE_MARK.search(piece.text) for piece in pieces):
        remarks.append("the marks of turns, such as {{[INPUT]}}, are line breaks now")
    pieces = [_changed(piece, partial(_LITE_MARK.sub, "\n")) for piece in pieces]
    settings = table.get("savedsettings", dict)
    note: Json = {"text": table.text("authorsnote", "authornote")}
    template = table.text("anotetemplate", "authornotetemplate")
    if NOTE_MARK in template:
        note["template"] = template
    strength = table.get("anotestr", (int, str))
    if strength is not None and is_number(str(strength)):
        note["characters"] = int(strength)
    depth = table.get("andepth", int)
    if depth is not None and depth >= 0:
        note["depth"] = depth
    world_info = _world_info(table.get("worldinfo_v2", dict) or table.get("worldinfo", list), remarks)
    if settings is not None and settings.get("case_sensitive_wi"):
        world_info = world_info.model_copy(update={"case_sensitive": True})
    table.get("worldinfo", list)
    name = table.text("story_name", "title")
    memory = table.text("memory")
    table.note_rest(_KOBOLD_HARMLESS)
    return ImportedStory(
        "KoboldAI Lite story" if is_lite else "KoboldAI story",
        name,
        tuple(piece for piece in pieces if piece.text or piece.alternatives),
        story=Story(memory, validated(AuthorsNote, note), world_info),
        settings=settings,
        remarks=tuple(remarks),
    )


def _changed(piece: Piece, change: Callable[[str], str]) -> Piece:
    return Piece(text=change(piece.text), alternatives=list(map(change, piece.alternatives)))


def _actions(table: _Table) -> Iterator[Piece]:
    """Yield the pieces of a text after the first one."""
    metadata = table.get("actions_metadata", dict) or {}
    actions = table.get("actions", (list, dict))
    if not isinstance(actions, dict):
        for index, text in enumerate(actions or ()):
            yield _piece(_as_text(text), metadata.get(str(index)), "Alternative Text", "Text")
        return
    numbered = actions["actions"] if isinstance(actions.get("actions"), dict) else actions
    for key in sorted(filter(is_number, numbered), key=int):
        action = numbered[key]
        text = action.get("Selected Text") if isinstance(action, dict) else None
        yield _piece(_as_text(text), action, "Options", "text")


def _piece(text: str, action: Any, list_name: str, text_name: str) -> Piece:
    """Return a piece with the other versions of an action, which are texts of a list of objects."""
    options = action.get(list_name) if isinstance(action, dict) else None
    options = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    versions = dict.fromkeys(_as_text(option.get(text_name)) for option in options)
    return Piece(text=text, alternatives=[version for version in versions if version not in ("", text)])


def _world_info(value: Any, remarks: list[str]) -> WorldInfo:
    if not value:
        return WorldInfo()
    world_info, left_out = read_world_info(value)
    remarks += [f"world info: {remark}" for remark in left_out]
    return world_info


# --- SillyTavern

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK_FRAME_BYTES = 12  # length, type and checksum
_CARD_HARMLESS = (
    *(
        "creator",
        "character_version",
        "tags",
        "spec",
        "spec_version",
        "extensions",
        "avatar",
        "chat",
        "create_date",
    ),
    *("data", "fav", "talkativeness", "creation_date", "modification_date", "assets", "nickname", "source"),
    *("creator_notes", "creator_notes_multilingual", "creatorcomment", "metadata", "json_data"),
)


def _card_of_png(data: bytes) -> bytes:
    """Return the JSON of a character card in a PNG: of version 3, else of version 2."""
    texts: dict[bytes, bytes] = {}
    position = len(_PNG_SIGNATURE)
    while position + _CHUNK_FRAME_BYTES <= len(data):
        length = int.from_bytes(data[position : position + 4])
        if data[position + 4 : position + 8] == b"tEXt":
            keyword, _, text = data[position + 8 : position + 8 + length].partition(b"\0")
            texts.setdefault(keyword.lower(), text)
        position += _CHUNK_FRAME_BYTES + length
    for keyword in (b"ccv3", b"chara"):
        if keyword in texts:
            try:
                return base64.b64decode(texts[keyword], validate=True)
            except (binascii.Error, ValueError):
                raise StoryFileError(f"the text {keyword.decode()} of the PNG is not base64") from None
    raise StoryFileError("the PNG has no character card: it has neither the text chara nor ccv3")


def _read_card(value: Any, user: str) -> ImportedStory:
    remarks: list[str] = []
    if not isinstance(value, dict):
        raise StoryFileError(f"it is no story; {_ADVICE}")
    card = _Table(value.get("data") if isinstance(value.get("data"), dict) else value, remarks)
    name = card.text("name", "char_name")
    names = _Names(name, user, remarks)
    sections = (
        ("", card.text("description")),
        ("Personality: ", card.text("personality")),
        ("Scenario: ", card.text("scenario")),
        ("", re.sub(r"(?i)<START>\n?", "", card.text("mes_example"))),
    )
    memory = "".join(f"{label}{text.strip()}\n" for label, text in sections if text.strip())
    greeting = Piece(text=card.text("first_mes"), alternatives=card.texts("alternate_greetings"))
    world_info = _world_info(card.get("character_book", dict), remarks)
    card.note_rest(_CARD_HARMLESS)
    entries = [
        entry.model_copy(
            update={"content": names.insert(entry.content), "keys": list(map(names.insert, entry.keys))}
        )
        for entry in world_info.entries
    ]
    story = Story(names.insert(memory), world_info=world_info.model_copy(update={"entries": entries}))
    pieces = (_changed(greeting, names.insert),) if greeting.text or greeting.alternatives else ()
    if not (memory or pieces or entries):
        raise StoryFileError(f"it is no story; {_ADVICE}")
    return ImportedStory("SillyTavern character card", name, pieces, story=story, remarks=tuple(names.remarks()))


_MAX_NAME_CHARACTERS = 200


class _Names:
    """Inserts the names of the character and of the user."""

    def __init__(self, character: str, user: str, remarks: Sequence[str]) -> None:
        # A text with a long name in each of its places would fill the memory.
        character, user = character[:_MAX_NAME_CHARACTERS] or "Character", user[:_MAX_NAME_CHARACTERS]
        self._names = {"char": character, "bot": character, "user": user}
        self._remarks = remarks
        self._inserted_user = False

    def insert(self, text: str) -> str:
        """Return a text with names in place of ``{{char}}``, ``{{user}}`` and their older forms."""

        def name_of(match: re.Match[str]) -> str:
            name = (match[1] or match[2]).lower()
            self._inserted_user |= name == "user"
            return self._names[name]

        return re.sub(r"(?i)\{\{(char|user)\}\}|<(BOT|CHAR|USER)>", name_of, text)

    def remarks(self) -> Iterator[str]:
        yield from self._remarks
        if self._inserted_user:
            yield f"{{{{user}}}} is {self._names['user']} now"


def _read_chat(lines: Sequence[Any]) -> ImportedStory:
    remarks: list[str] = []
    header = lines[0] if isinstance(lines[0], dict) else {}
    if "chat_metadata" not in header and "character_name" not in header:
        raise StoryFileError(f"its first line is not that of a chat of SillyTavern; {_ADVICE}")
    head = _Table(header, remarks)
    character, user = head.text("character_name"), head.text("user_name") or "User"
    character, user = character[:_MAX_NAME_CHARACTERS], user[:_MAX_NAME_CHARACTERS]
    names = _Names(character, user, remarks)
    metadata = _Table(head.get("chat_metadata", dict), remarks)
    note: Json = {"text": names.insert(metadata.text("note_prompt")), "template": NOTE_MARK}
    depth = metadata.get("note_depth", int)
    if depth is not None and depth >= 0:
        note["depth"] = depth
    messages = []
    hidden_count = 0
    for number, line in enumerate(lines[1:], 2):
        table = _Table(line, remarks, f"line {number}: ")
        if not isinstance(line, dict) or not isinstance(line.get("mes"), str):
            raise StoryFileError(f"line {number}: it is not a message, which is an object with mes, a text")
        if table.values.get("is_system") is True:
            hidden_count += 1
            continue
        is_user = table.values.get("is_user") is True
        text = names.insert(line["mes"])
        swipes = [names.insert(swipe) for swipe in table.texts("swipes")]
        name = table.text("name") or (user if is_user else character)
        role = "user" if is_user else "assistant"
        others = [swipe for swipe in dict.fromkeys(swipes) if swipe != text]
        messages.append(NamedMessage(role=role, name=name, content=text, alternatives=others))
    if hidden_count:
        remarks.append(f"messages that are hidden from the model are left out: {hidden_count:,}")
    pieces = [
        _changed(Piece(text=each.content, alternatives=each.alternatives), partial("{}: {}\n".format, each.name))
        for each in messages
    ]
    return ImportedStory(
        "SillyTavern chat",
        character,
        tuple(pieces),
        tuple(messages),
        Story(authors_note=validated(AuthorsNote, note)),
        remarks=tuple(remarks),
    )


# --- KoboldAI's file, written


def kobold_story(pieces: Sequence[Piece], story: Story) -> Json:
    """Return a story as KoboldAI and KoboldAI Lite read it. Other versions of the first piece are left out."""
    first, *others = pieces or [Piece(text="")]
    note = story.authors_note
    return {
        "gamestarted": True,
        "prompt": first.text,
        "memory": story.memory,
        "authorsnote": note.text,
        "anotetemplate": note.template,
        "anotestr": note.characters,
        "actions": [piece.text for piece in others],
        "actions_metadata": {
            str(index): {
                "Selected Text": piece.text,
                "Alternative Text": [
                    {"Text": text, "Pinned": False, "Previous Selection": True, "Edited": False}
                    for text in piece.alternatives
                ],
            }
            for index, piece in enumerate(others)
            if piece.alternatives
        },
        "worldinfo": [
            _kobold_entry(entry)
            for entry in sorted(story.world_info.entries, key=lambda entry: entry.insertion_order)
        ],
        "wifolders_d": {},
        "wifolders_l": [],
    }


def _kobold_entry(entry: WorldInfoEntry) -> Json:
    return {
        "key": ", ".join(entry.keys),
        "keysecondary": ", ".join(entry.secondary_keys),
        "keyanti": ", ".join(entry.exclude_keys),
        "content": entry.content,
        "comment": entry.name,
        "folder": None,
        # without secondary keys it does not matter here, and KoboldAI Lite reads keyanti in such entries only
        "selective": entry.selective or bool(entry.exclude_keys),
        "constant": entry.constant,
        "probability": "100",
        "wigroup": "",
        "widisabled": not entry.enabled,
    }
