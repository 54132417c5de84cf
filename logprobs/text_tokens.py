"""The tokens of a text: those that wrote the text, their offsets in it, and the tokens whose text is held back.

Text is held back while it may belong to an incomplete character or to a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .records import TokenRecord


def tokens_of_text(
    tokens: Sequence[TokenRecord], text: str, stop: str | None, *, keeps_control_tokens: bool = False
) -> tuple[TokenRecord, ...]:
    """Return the tokens that wrote a text. Their joined bytes are the bytes of the text.

    Control tokens, such as the end-of-generation token, are left out. If a stop string begins inside a token, the
    token keeps the bytes before the stop string, and all later tokens are left out. Bytes that are not UTF-8
    remain in the tokens, although the text has U+FFFD in their place.

    Args:
        tokens: all generated tokens of a run.
        text: the text of the run.
        stop: the stop string that ended the run; None if no stop string did.
        keeps_control_tokens: True to return control tokens too, without bytes.
    """
    kept_tokens: list[TokenRecord] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    written_bytes = b"".join(token.data for token in tokens if not token.is_control)
    remaining_byte_count = len(written_bytes) if stop is None else _byte_count_of_text(written_bytes, text)
    for token in tokens:
        if token.is_control:
            if keeps_control_tokens:
                kept_tokens.append(replace(token, data=b""))
            continue
        data = token.data[:remaining_byte_count]
        if token.data and not data:
            break
        remaining_byte_count -= len(data)
        kept_tokens.append(replace(token, data=data, text=decoder.decode(data)))
        if len(data) < len(token.data):
            break
    return tuple(kept_tokens)


def _byte_count_of_text(data: bytes, text: str) -> int:
    """Return the number of leading bytes of ``data`` that decode to ``text``.

    Bytes that are not UTF-8 decode to U+FFFD.
    """
    encoded_text = text.encode(errors="surrogatepass")
    if data.startswith(encoded_text):
        return len(encoded_text)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    character_count = 0
    for position in range(len(data)):
        unfinished_byte_count = len(decoder.getstate()[0])
        if character_count == len(text):
            return position - unfinished_byte_count
        character_count += len(decoder.decode(data[position : position + 1]))
        if character_count > len(text):  # this byte yielded U+FFFD for the unfinished bytes, and a character
            return position
    return len(data) - (len(decoder.getstate()[0]) if character_count == len(text) else 0)


class TextTokenStream:
    """A filter of a run's tokens that returns each token once it is certain to be part of the text.

    Tokens that share a character are returned together, and so are tokens that may contain the beginning of a stop
    string. All returned tokens together are those of `tokens_of_text`.

    Attributes:
        text_length: number of characters of the tokens that were returned so far.
    """

    def __init__(self, *, keeps_control_tokens: bool = False) -> None:
        """Begin a text. ``keeps_control_tokens``: True to return control tokens too, without bytes."""
        self.text_length = 0
        self._keeps_control_tokens = keeps_control_tokens
        self._shown_characters = 0
        self._waiting_tokens: list[TokenRecord] = []

    def push(self, token: TokenRecord) -> tuple[TokenRecord, ...]:
        """Add the next token of a run, and return the tokens that are now certain to be part of the text."""
        self._waiting_tokens.append(token)
        self._shown_characters += len(token.text)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoded_length = certain_count = certain_length = 0
        for count, waiting_token in enumerate(self._waiting_tokens, 1):
            decoded_length += 0 if waiting_token.is_control else len(decoder.decode(waiting_token.data))
            if self.text_length + decoded_length > self._shown_characters:
                break
            if not decoder.getstate()[0]:
                certain_count, certain_length = count, decoded_length
        certain_tokens, self._waiting_tokens = (
            self._waiting_tokens[:certain_count],
            self._waiting_tokens[certain_count:],
        )
        self.text_length += certain_length
        decoder.reset()
        kept = tuple(token for token in certain_tokens if self._keeps_control_tokens or not token.is_control)
        without_control = (replace(token, data=b"") if token.is_control else token for token in kept)
        return tuple(replace(token, text=decoder.decode(token.data)) for token in without_control)

    def finish(self, text: str, stop: str | None) -> tuple[TokenRecord, ...]:
        """Return the last tokens of the text.

        Args:
            text: the complete text of the run.
            stop: the stop string that ended the run; None if no stop string did.
        """
        last_tokens = tokens_of_text(
            self._waiting_tokens,
            text[self.text_length :],
            stop,
            keeps_control_tokens=self._keeps_control_tokens,
        )
        self.text_length += sum(len(token.text) for token in last_tokens)
        self._waiting_tokens = []
        return last_tokens


class HeldBackText:
    """A detector of tokens after which a part of the text is held back.

    The part belongs to an incomplete character, or it may be the beginning of a stop string.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held_back_characters = 0

    def is_held_back(self, token: TokenRecord) -> bool:
        """Add the next token of a run. Return True if a part of the text up to this token is not shown yet."""
        if not token.is_control:
            self._held_back_characters += len(self._decoder.decode(token.data)) - len(token.text)
        return self._held_back_characters > 0 or bool(self._decoder.getstate()[0])


class TextOffsets:
    """The offsets in the text at which the tokens begin, in characters.

    A token that begins inside a character has the offset of this character.

    Attributes:
        offset: offset of the next token.
    """

    def __init__(self) -> None:
        self.offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def advance(self, tokens: Iterable[TokenRecord]) -> list[int]:
        """Return the offsets of the next tokens of the text."""
        offsets = []
        for token in tokens:
            if token.is_control:
                offsets.append(self.offset)
                continue
            offsets.append(self.offset + self._replacement_length(token.data))
            self.offset += len(self._decoder.decode(token.data))
        return offsets

    def skip_to(self, offset: int) -> None:
        """Set the offset of the next token, after a text whose length is known."""
        self.offset = offset
        self._decoder.reset()

    def _replacement_length(self, data: bytes) -> int:
        """Return 1 if these bytes cannot continue the unfinished character, which U+FFFD replaces; otherwise 0."""
        unfinished_bytes = self._decoder.getstate()[0]
        try:
            (unfinished_bytes + data[:1]).decode()
        except UnicodeDecodeError as error:
            return int(bool(unfinished_bytes) and error.reason != "unexpected end of data")
        return 0
