"""What the model reads of a story: its memory, world info, the end of the text or chat, and the author's note.

The rules are those of KoboldAI Lite, but tokens are counted, and all of it always fits into the context.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from ..common.strict_model import Json
from ..common.text import count_noun
from ..engine.chat_template import Message
from ..presets.story import AuthorsNote, Story, WorldInfo, WorldInfoEntry

# Returns the number of bytes that each token of a text has in it. BOS has none.
TokenSizes = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class ContextPart:
    """A part of what the model reads."""

    # ``memory``, ``world_info``, ``authors_note``, ``text``, or the role of a message
    kind: str
    text: str
    token_count: int = 0
    entry: int | None = None  # index of an entry of the world info
    name: str = ""  # of the entry

    def as_json(self) -> Json:
        facts = {"kind": self.kind, "text": self.text, "token_count": self.token_count}
        return facts if self.entry is None else facts | {"entry": self.entry, "name": self.name}


@dataclass(frozen=True)
class LeftOut:
    """A part of a story that the model does not read."""

    kind: str
    reason: str
    message: str  # the reason in words
    token_count: int
    entry: int | None = None
    name: str = ""

    def as_json(self) -> Json:
        facts = asdict(self)
        if self.entry is None:
            del facts["entry"], facts["name"]
        return facts


@dataclass(frozen=True)
class StoryContext:
    """What the model reads of a story."""

    parts: tuple[ContextPart, ...]
    left_out: tuple[LeftOut, ...]
    messages: tuple[Message, ...] | None = None  # of a chat; None for a text

    @property
    def text(self) -> str:
        """The prompt, if it is no chat."""
        return "".join(part.text for part in self.parts)

    @property
    def without_room(self) -> list[LeftOut]:
        """What is left out because there is no room for it."""
        return [part for part in self.left_out if part.reason in ("budget", "context")]


# As in KoboldAI Lite: the memory takes at most this share of the room, and the author's note at most that one.
_MEMORY_SHARE = 0.8
_NOTE_SHARE = 0.6
# Number of the last tokens of the text that stay, however long the rest is.
_MIN_TEXT_TOKENS = 16
# A text loses this part of the room at once. While it grows by as much, its beginning then stays the same, so
# that the model need not read all of it again for each answer.
_CUTS = 8
# More characters from the end are not searched for keys.
_MAX_SCANNED_CHARACTERS = 1_000_000

_REASONS = {
    "disabled": "it is switched off",
    "empty": "it has no text",
    "no_key": "none of its keys is in the text",
    "no_secondary_key": "none of its secondary keys is in the text",
    "excluded": "one of its excluding keys is in the text",
    "budget": "the token budget of the world info is used up",
    "context": "there is no room for it in the context",
}


def reserved_for_answer(context_length: int, max_tokens: int | None) -> int:
    """Return the number of tokens that stay free for the answer: half of the context at most."""
    if max_tokens is None or max_tokens < 0:
        return max(1, context_length // 4)
    return max(1, min(max_tokens, context_length // 2))


def read_text(story: Story, text: str, sizes: TokenSizes, max_tokens: int, beginning: str = "") -> StoryContext:
    """Return what the model reads of a text: at most ``max_tokens`` tokens, of the text its end.

    ``beginning``: the end of the text that begins the answer. The author's note stands before it.
    """
    count = _counter(sizes)
    room = max_tokens
    while True:
        arranged = _arrange(story, text, count, room, max_tokens // _CUTS, len(beginning))
        token_sizes = sizes(arranged.text)
        excess = len(token_sizes) - max_tokens
        if excess <= 0 or room <= 0:
            return replace(arranged, parts=tuple(_with_counts(arranged.parts, token_sizes)))
        room -= excess  # parts that are joined may have more tokens than each by itself


def _arrange(
    story: Story, text: str, sizes: TokenSizes, room: int, step: int, beginning_length: int
) -> StoryContext:
    """Return the parts of a text that fit by their own numbers of tokens. ``step``: see `_end_of`."""
    fixed = _fixed_parts(story, text, text.splitlines(keepends=True), sizes, room, text)
    end = _end_of(text, fixed.room, sizes, step if 2 * step <= fixed.room else 1)
    left_out = fixed.left_out
    if len(end) < len(text):
        left_out += (_cut("text", len(sizes(text)) - len(sizes(end))),)
    note, place = fixed.note, len(end)
    if note:
        place = min(_place_of_note(end, story.authors_note), max(0, len(end) - beginning_length))
        if story.authors_note.depth is not None:  # a line of its own
            note = ("" if end[:place].endswith("\n") or not place else "\n") + _with_line_end(note)
    texts = [("text", end[:place]), ("authors_note", note), ("text", end[place:])]
    return StoryContext((*fixed.parts, *(ContextPart(kind, part) for kind, part in texts if part)), left_out)


def read_messages(
    story: Story,
    messages: Sequence[Message],
    sizes: TokenSizes,
    max_tokens: int,
    count_tokens: Callable[[Sequence[Message]], int],
) -> StoryContext:
    """Return what the model reads of a chat: the messages with the story in them, the oldest ones left out.

    ``count_tokens`` returns the number of tokens of messages in the chat template. If the last turn does not fit
    even alone, it is returned.
    """
    sizes = _counter(sizes)
    first = 1 if messages and messages[0]["role"] == "system" else 0
    turns = [index for index, message in enumerate(messages) if message["role"] == "user" and index > first]
    starts = [first, *turns]

    def read(start: int, room: int) -> StoryContext:
        return with_story(story, [*messages[:first], *messages[start:]], sizes, room)

    def fits(start: int, room: int = max_tokens) -> bool:
        return count_tokens(read(start, room).messages or ()) <= max_tokens

    chosen = bisect_left(starts, True, key=fits)
    start = starts[min(chosen, len(starts) - 1)]
    room = max_tokens
    while room > 0 and not fits(start, room):
        room -= max(1, count_tokens(read(start, room).messages or ()) - max_tokens)
    context = read(start, room)
    if start == first:
        return context
    dropped = messages[first:start]
    message = f"the oldest {count_noun(len(dropped), 'message')} do not fit into the context"
    token_count = sum(len(sizes(_content(each))) for each in dropped)
    return replace(context, left_out=(*context.left_out, LeftOut("text", "context", message, token_count)))


def with_story(story: Story, messages: Sequence[Message], sizes: TokenSizes, room: int) -> StoryContext:
    """Return messages with a story in them: memory and world info in the system message, the note at its depth."""
    sizes = _counter(sizes)
    has_system = bool(messages) and messages[0]["role"] == "system"
    system = messages[0] if has_system else None
    chat = list(messages[has_system:])
    texts = [_content(message) for message in chat]
    fixed = _fixed_parts(
        story, "\n".join(texts), [text + "\n" for text in texts], sizes, room, texts[-1] if texts else ""
    )
    parts = list(fixed.parts)
    if system is not None:
        parts.append(ContextPart("system", _content(system)))
    system_text = "".join(part.text for part in parts).rstrip("\n") if fixed.parts else ""
    place = _message_of_note(texts, story.authors_note) if fixed.note else len(chat)
    chat_parts = [ContextPart(message["role"], text) for message, text in zip(chat, texts, strict=True)]
    if fixed.note:
        chat_parts.insert(place, ContextPart("authors_note", fixed.note))
        _insert_note(chat, place, fixed.note)
    parts += chat_parts
    if system_text:
        system = {**(system or {"role": "system"}), "content": system_text}
    all_messages = chat if system is None else [system, *chat]
    counted = tuple(replace(part, token_count=len(sizes(part.text))) for part in parts)
    return StoryContext(counted, fixed.left_out, tuple(all_messages))


def _content(message: Message) -> str:
    """Return the text of a message."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _message_of_note(texts: Sequence[str], note: AuthorsNote) -> int:
    """Return the index of the message before which the note is inserted."""
    if note.depth is not None:
        return max(0, len(texts) - note.depth)
    index, characters = len(texts), 0
    while index > 0 and characters < note.characters:
        index -= 1
        characters += len(texts[index])
    return index


def _insert_note(messages: list[Message], index: int, note: str) -> None:
    """Insert a note before a message, into a neighbor: few chat templates accept a system message there."""
    before = messages[index - 1] if index > 0 else None
    after = messages[index] if index < len(messages) else None
    if after is not None and after["role"] == "user":
        messages[index] = {**after, "content": f"{note}\n\n{_content(after)}"}
    elif before is not None and before["role"] == "user":
        messages[index - 1] = {**before, "content": f"{_content(before)}\n\n{note}"}
    else:
        messages.insert(index, {"role": "system", "content": note})


def _counter(sizes: TokenSizes) -> TokenSizes:
    """Return a function for parts of a prompt, which have no BOS. It remembers what it has counted."""
    return cache(lambda text: [size for size in sizes(text) if size])


def _with_counts(parts: Sequence[ContextPart], token_sizes: Sequence[int]) -> list[ContextPart]:
    """Return the parts of a prompt with the numbers of the tokens that begin in them."""
    starts = [0, *accumulate(token_sizes)][: len(token_sizes)]
    ends = [bisect_left(starts, byte) for byte in accumulate(len(part.text.encode()) for part in parts)]
    ends[-1:] = [len(starts)] if parts else []
    return [
        replace(part, token_count=end - start) for part, start, end in zip(parts, [0, *ends], ends, strict=False)
    ]


def _place_of_note(text: str, note: AuthorsNote) -> int:
    """Return the index in a text at which the note is inserted."""
    if note.depth is not None:
        lines = text.splitlines(keepends=True)
        return len(text) - sum(map(len, lines[len(lines) - min(note.depth, len(lines)) :]))
    place = len(text) - note.characters
    # As in KoboldAI Lite, the note does not cut a word, unless the word is very long.
    return 0 if place <= 0 else place + len(_REST_OF_WORD.match(text, place)[0])  # type: ignore[index]


_REST_OF_WORD = re.compile(r"[^ .!?,\n]{0,15}")


class _FixedParts(NamedTuple):
    """What the model reads besides the text or the messages."""

    parts: tuple[ContextPart, ...]  # the memory, and the entries of the world info
    note: str
    room: int  # number of tokens that are left
    left_out: tuple[LeftOut, ...]


def _fixed_parts(
    story: Story, scanned: str, units: Sequence[str], sizes: TokenSizes, room: int, rest: str
) -> _FixedParts:
    """Return the memory, the note and the world info. A memory or a note that is too long loses its beginning.

    ``scanned``: the text in which keys are searched for. ``units``: its lines, or the texts of messages.
    ``rest``: the text or the message that comes with it, of which some tokens always stay.
    """
    left_out: list[LeftOut] = []

    def fit(kind: str, text: str, limit: int) -> str:
        kept = _end_of(text, limit, sizes)
        if len(kept) < len(text):
            left_out.append(_cut(kind, len(sizes(text)) - len(sizes(kept))))
        return kept

    min_rest = min(_MIN_TEXT_TOKENS, len(sizes(rest)))
    free = room - min_rest
    memory = fit("memory", _with_line_end(story.memory), min(int(room * _MEMORY_SHARE), free))
    free -= len(sizes(memory))
    note = fit("authors_note", story.authors_note.whole_text, min(int(room * _NOTE_SHARE), free))
    free -= len(sizes(note))
    entries, left_out_entries = _choose_entries(story.world_info, scanned, units, sizes, free)
    free -= sum(len(sizes(entry.text)) for entry in entries)
    parts = [ContextPart("memory", memory)] if memory else []
    return _FixedParts((*parts, *entries), note, free + min_rest, (*left_out, *left_out_entries))


def _with_line_end(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _cut(kind: str, token_count: int) -> LeftOut:
    what = {"memory": "the memory", "authors_note": "the author's note"}.get(kind, f"the {kind}")
    message = f"the first {count_noun(max(token_count, 1), 'token')} of {what} do not fit into the context"
    return LeftOut(kind, "context", message, max(token_count, 1))


def _choose_entries(
    world_info: WorldInfo, scanned: str, units: Sequence[str], sizes: TokenSizes, room: int
) -> tuple[list[ContextPart], list[LeftOut]]:
    """Return the entries that are read, in their order, and those that are not."""
    budget = room if world_info.token_budget is None else min(room, world_info.token_budget)
    haystacks = _Haystacks(world_info, scanned, units)
    reasons: dict[int, str] = {}
    chosen: dict[int, ContextPart] = {}
    # If there is no room for all, entries that are always read stay, then those that stand last.
    by_importance = sorted(
        enumerate(world_info.entries), key=lambda item: (not item[1].constant, -item[1].insertion_order)
    )
    for index, entry in by_importance:
        reason = haystacks.reason_against(entry)
        if reason is None:
            text = _with_line_end(entry.content)
            token_count = len(sizes(text))
            if token_count <= budget:
                budget -= token_count
                chosen[index] = ContextPart("world_info", text, token_count, index, _name_of(entry))
                continue
            is_own_budget = world_info.token_budget is not None and world_info.token_budget < room
            reason = "budget" if is_own_budget else "context"
        reasons[index] = reason
    order = sorted(chosen, key=lambda index: world_info.entries[index].insertion_order)
    left_out = []
    for index, reason in sorted(reasons.items()):
        entry = world_info.entries[index]
        count = len(sizes(entry.content))
        left_out.append(LeftOut("world_info", reason, _REASONS[reason], count, index, _name_of(entry)))
    return [chosen[index] for index in order], left_out


def _name_of(entry: WorldInfoEntry) -> str:
    return entry.name or next(iter(entry.keys), "")


class _Haystacks:
    """The texts in which the keys of entries are searched for."""

    def __init__(self, world_info: WorldInfo, scanned: str, units: Sequence[str]) -> None:
        self._world_info = world_info
        self._scanned = scanned[-_MAX_SCANNED_CHARACTERS:]
        self._units = units
        self._text = cache(self._make_text)

    def reason_against(self, entry: WorldInfoEntry) -> str | None:
        """Return why an entry is not read; None if it is."""
        if not entry.enabled:
            return "disabled"
        if not entry.content.strip():
            return "empty"
        if entry.constant:
            return None
        if not self._has_any(entry, entry.keys):
            return "no_key"
        if entry.selective and entry.secondary_keys and not self._has_any(entry, entry.secondary_keys):
            return "no_secondary_key"
        return "excluded" if self._has_any(entry, entry.exclude_keys) else None

    def _has_any(self, entry: WorldInfoEntry, keys: Sequence[str]) -> bool:
        has_case = self._world_info.case_sensitive if entry.case_sensitive is None else entry.case_sensitive
        depth = self._world_info.scan_depth if entry.scan_depth is None else entry.scan_depth
        text = self._text(depth, has_case)
        find = _has_word if entry.whole_words else str.__contains__
        return any(find(text, key if has_case else key.lower()) for key in keys if key)

    def _make_text(self, depth: int, has_case: bool) -> str:
        text = "".join(self._units[-depth:])[-_MAX_SCANNED_CHARACTERS:] if depth else self._scanned
        return text if has_case else text.lower()


def _has_word(text: str, key: str) -> bool:
    """Return whether a text has a key that is no part of a longer word."""
    return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) is not None


# A text is cut where a line or a sentence begins, if one does within this number of characters, else at a word.
_MAX_ALIGNMENT = 200
_SENTENCE_START = re.compile(r"\n|[.!?\u2026][\"'\u201d\u2019»)\]*]*\s+")
_WORD_START = re.compile(r"\s+")


def _end_of(text: str, max_tokens: int, sizes: TokenSizes, step: int = 1) -> str:
    """Return the end of a text with at most so many tokens, from the beginning of a line or a sentence on.

    ``step``: the number of tokens that are left out is a multiple of this, before a line or sentence is sought.
    """
    if not text or max_tokens <= 0:
        return ""
    token_sizes = sizes(text)
    excess = len(token_sizes) - max_tokens
    excess = -(-excess // max(1, step)) * max(1, step)
    while 0 < excess < len(token_sizes):
        data = text.encode()
        start = len(data[: sum(token_sizes[:excess])].decode("utf-8", "ignore"))
        end = text[_aligned(text, start) :]
        remaining_excess = len(sizes(end)) - max_tokens if end else 0
        if remaining_excess <= 0:
            return end
        excess += remaining_excess
    return text if excess <= 0 else ""


def _aligned(text: str, start: int) -> int:
    """Return the index at which a line, a sentence or at least a word begins, at ``start`` or soon after it."""
    if start == 0:
        return 0
    for pattern in (_SENTENCE_START, _WORD_START):
        # The end of the sentence before may be right before the start.
        for match in pattern.finditer(text, max(0, start - 2), start + _MAX_ALIGNMENT):
            if start <= match.end() < len(text):
                return match.end()
    return start
