"""Files of stories, and what a model reads of them."""

from __future__ import annotations

import base64
import json

from logitsmith.requests.story_context import read_text
from logitsmith.requests.story_files import StoryFileError, import_story, kobold_story

from ..target import Target

_ROOM = 60


def story_file(data: bytes) -> None:
    """A file of another tool: what the model reads of it fits, and KoboldAI's file of it can be read again."""
    imported = import_story(data, "Mara")
    fields = imported.as_json()
    json.dumps(fields, allow_nan=False).encode()
    context = read_text(imported.story, fields["text"], lambda text: [1] * len(text.encode()), _ROOM)
    assert len(context.text.encode()) <= _ROOM
    again = import_story(json.dumps(kobold_story(imported.pieces, imported.story)).encode())
    assert len(again.story.world_info.entries) == len(imported.story.world_info.entries)


_ENTRY = {"uid": 0, "key": ["lamp"], "keysecondary": ["ink"], "content": "Oil.", "selective": True, "order": 9}
_CARD = {"spec": "chara_card_v2", "data": {"name": "O", "description": "{{char}}", "first_mes": "Hi {{user}}."}}
_STORY = {
    "gamestarted": True,
    "prompt": "One.",
    "actions": [" Two."],
    "authorsnote": "sad",
    "anotestr": 320,
    "worldinfo": [{"key": "a, b", "content": "A", "keyanti": "c"}],
}
_CHUNK = b"chara\0" + base64.b64encode(json.dumps(_CARD).encode())
_PNG = b"\x89PNG\r\n\x1a\n" + len(_CHUNK).to_bytes(4) + b"tEXt" + _CHUNK + b"\0\0\0\0"
_CHAT = b'{"character_name": "O", "chat_metadata": {"note_depth": 4}}\n{"mes": "Hi", "swipes": ["Ho"]}\n'

TARGETS = (
    Target(
        "stories",
        story_file,
        (StoryFileError,),
        [*(json.dumps(value).encode() for value in ({"entries": {"0": _ENTRY}}, _CARD, _STORY)), _CHAT, _PNG],
        [
            b'"data": ',
            b'"entries": ',
            b'"actions": ',
            b'"worldinfo_v2": ',
            b'"chat_metadata": ',
            b"{{user}}",
            b"null",
        ],
    ),
)
