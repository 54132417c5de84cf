"""Answers in chunks, whatever API they are for. Joined, the chunks of a text are the whole answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .events import Done, Event, PromptToken, Start, Token
from .parts import PartSplitter, TextPart
from .text_tokens import TextOffsets, TextToken, TextTokenStream, tokens_of_prompt


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a text, with its tokens if the run has an echo."""

    # ``is_healed``: the first generated token spells the end of the prompt again, which has no tokens of its own.

    text: str
    tokens: tuple[PromptToken, ...]
    is_healed: bool

    def text_tokens(self) -> tuple[TextToken, ...]:
        """Return the tokens with their parts of the text."""
        return tokens_of_prompt(self.tokens, self.text, is_healed=self.is_healed)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a text that cannot change any more. A chunk with the whole text is an answer."""

    start: Start
    # The number of the text among those of the answer.
    index: int = 0
    text: str = ""
    # None for a part without tokens, such as the last one.
    tokens: tuple[TextToken, ...] | None = None
    # The offset of each token in the whole text, in characters.
    offsets: tuple[int, ...] = ()
    # In the first chunk that is made after the prompt was read.
    prompt: Prompt | None = None
    # In the last chunk.
    done: Done | None = None
    # The text without tags, in its parts.
    parts: tuple[TextPart, ...] = ()

    @property
    def is_opening(self) -> bool:
        """Whether the chunk is made before the text begins."""
        return self.tokens is None and self.done is None


class ChunkMaker:
    """Makes the chunks of a text from events that arrive one by one."""

    # There is a chunk for each listed token, and a last one with text that was held back until the end. An echo is
    # a chunk of its own, with the prompt and its tokens.

    def __init__(
        self,
        is_listed: Callable[[Start, TextToken], bool],
        *,
        index: int = 0,
        prompt: str = "",
        has_echo: bool = False,
        has_opening: bool = False,
    ) -> None:
        self._is_listed = is_listed
        self._index = index
        self._prompt = prompt
        self._has_echo = has_echo
        self._has_opening = has_opening
        self._start: Start | None = None
        self._splitter: PartSplitter | None = None
        self._prompt_tokens: list[PromptToken] = []
        self._read_prompt: Prompt | None = None
        self._is_prompt_over = False
        self._text_tokens = TextTokenStream(echoes_prompt=has_echo)
        self._offsets = TextOffsets()
        self._shown_length = 0

    def push(self, event: Event) -> Iterator[Chunk]:
        """Yield the chunks that are complete after this event. The first event must be a `Start`."""
        start = self._start
        if start is None:
            if not isinstance(event, Start):
                raise ValueError(f"a run begins with a Start event, not with {event!r}")
            self._start = start = event
            self._splitter = None if start.reasoning is None else PartSplitter(start.reasoning)
            if self._has_opening:
                yield Chunk(start, self._index)
        elif isinstance(event, PromptToken):
            self._prompt_tokens.append(event)
        elif isinstance(event, (Token, Done)):
            if not self._is_prompt_over:
                yield from self._end_prompt(start, is_healed=isinstance(event, Token) and event.healed_bytes > 0)
            yield from self._token_chunks(start, event)
            if isinstance(event, Done):
                # U+FFFD for an incomplete character, or the end of a prompt that was not completely spelled again.
                shown_text = (self._prompt if self._has_echo else "") + event.complete_text
                yield self._chunk(start, shown_text[self._shown_length :], done=event)

    def _end_prompt(self, start: Start, *, is_healed: bool) -> Iterator[Chunk]:
        self._is_prompt_over = True
        self._read_prompt = Prompt(self._prompt, tuple(self._prompt_tokens), is_healed)
        if self._has_echo:
            tokens = self._read_prompt.text_tokens()
            offsets = tuple(self._offsets.advance(tokens))
            if not is_healed:
                self._offsets.skip_to(len(self._prompt))
            yield self._chunk(start, self._prompt[: self._offsets.offset], tokens, offsets)

    def _token_chunks(self, start: Start, event: Token | Done) -> Iterator[Chunk]:
        if isinstance(event, Token):
            tokens = self._text_tokens.push(event)
        else:
            tokens = self._text_tokens.finish(event.complete_text, event.stop)
        for token in tokens:
            placed = self._offsets.add(token)
            if self._is_listed(start, token):
                yield self._chunk(start, placed.text, (token,), (placed.offset,))

    def _chunk(
        self,
        start: Start,
        text: str,
        tokens: tuple[TextToken, ...] | None = None,
        offsets: tuple[int, ...] = (),
        done: Done | None = None,
    ) -> Chunk:
        self._shown_length += len(text)
        prompt, self._read_prompt = self._read_prompt, None
        parts = self._parts(text, tokens, is_last=done is not None)
        return Chunk(start, self._index, text, tokens, offsets, prompt, done, tuple(parts))

    def _parts(self, text: str, tokens: Sequence[TextToken] | None, *, is_last: bool) -> list[TextPart]:
        if self._splitter is None:
            return [TextPart("answer", text)]
        parts = self._splitter.push(text, tokens[-1].record.part if tokens else None)
        return parts + self._splitter.finish() if is_last else parts


def join_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return a chunk for each text, with all of it, in the order of the texts' numbers."""
    # Raises ``ValueError`` if there is no text, or if one is not complete.
    parts_of_index: dict[int, list[Chunk]] = {}
    for chunk in chunks:
        parts_of_index.setdefault(chunk.index, []).append(chunk)
    if not parts_of_index or any(parts[-1].done is None for parts in parts_of_index.values()):
        raise ValueError("a complete run begins with a Start event and ends with a Done event")
    return [_joined(parts) for _, parts in sorted(parts_of_index.items())]


def _joined(parts: Sequence[Chunk]) -> Chunk:
    return Chunk(
        parts[0].start,
        parts[0].index,
        text="".join(part.text for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens or ()),
        offsets=tuple(offset for part in parts for offset in part.offsets),
        prompt=next((part.prompt for part in parts if part.prompt is not None), None),
        done=parts[-1].done,
        parts=tuple(piece for part in parts for piece in part.parts),
    )
