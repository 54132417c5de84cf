"""Which tokens wrote a text, where each begins in it, and what of it is held back."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .records import TokenRecord


def tokens_of_text(
    tokens: Sequence[TokenRecord], text: str, stop: str | None, *, keeps_control_tokens: bool = False
) -> tuple[TokenRecord, ...]:
    """Return the tokens that wrote a text; their bytes joined are the bytes of the text.

    Control tokens, such as the one that ended the text, are not in it. A token in which a stop text begins keeps
    the bytes before the stop text, and the tokens after it are left out. Bytes that are not UTF-8 stay as they are
    where the text has U+FFFD.

    Args:
        tokens: all tokens of a run.
        text: the text of the run.
        stop: the stop text that ended the run; None if the text is all that the tokens wrote.
        keeps_control_tokens: True to return control tokens, too, without bytes.
    """
    kept: list[TokenRecord] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    written = b"".join(token.data for token in tokens if not token.special)
    remaining = len(written) if stop is None else _byte_length(written, text)
    for token in tokens:
        if token.special:
            if keeps_control_tokens:
                kept.append(replace(token, data=b""))
            continue
        data = token.data[:remaining]
        if token.data and not data:
            break
        remaining -= len(data)
        kept.append(replace(token, data=data, text=decoder.decode(data)))
        if len(data) < len(token.data):
            break
    return tuple(kept)


def _byte_length(data: bytes, text: str) -> int:
    """Return how many of the first bytes a text was decoded from, with U+FFFD for bytes that are not UTF-8."""
    encoded = text.encode(errors="surrogatepass")
    if data.startswith(encoded):
        return len(encoded)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    count = 0
    for position in range(len(data)):
        unfinished = len(decoder.getstate()[0])
        if count == len(text):
            return position - unfinished
        count += len(decoder.decode(data[position : position + 1]))
        if count > len(text):  # U+FFFD for the unfinished bytes, and the character of this byte
            return position
    return len(data) - (len(decoder.getstate()[0]) if count == len(text) else 0)


class TextTokenStream:
    """Passes tokens on as soon as it is certain that they are part of the text.

    The tokens of a character, and those of a text that may be the beginning of a stop text, wait for one another.
    All tokens that are passed on are those of `tokens_of_text`.

    Attributes:
        text_length: characters of the tokens that were passed on.
    """

    def __init__(self) -> None:
        self.text_length = 0
        self._shown_length = 0
        self._waiting: list[TokenRecord] = []

    def push(self, token: TokenRecord) -> tuple[TokenRecord, ...]:
        """Take the next token of a run, and return the tokens that are certain now."""
        self._waiting.append(token)
        self._shown_length += len(token.text)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        length = certain = certain_length = 0
        for count, waiting in enumerate(self._waiting, 1):
            length += 0 if waiting.special else len(decoder.decode(waiting.data))
            if self.text_length + length > self._shown_length:
                break
            if not decoder.getstate()[0]:
                certain, certain_length = count, length
        ready, self._waiting = self._waiting[:certain], self._waiting[certain:]
        self.text_length += certain_length
        decoder.reset()
        return tuple(replace(one, text=decoder.decode(one.data)) for one in ready if not one.special)

    def finish(self, text: str, stop: str | None) -> tuple[TokenRecord, ...]:
        """Return the last tokens of the text.

        Args:
            text: the whole text of the run.
            stop: the stop text that ended the run; None if there is none.
        """
        last = tokens_of_text(self._waiting, text[self.text_length :], stop)
        self.text_length += sum(len(token.text) for token in last)
        self._waiting = []
        return last


class HeldBackText:
    """Finds whether a part of the text is held back after a token: of a character, or of a stop text perhaps."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._hidden_length = 0

    def is_held_back(self, token: TokenRecord) -> bool:
        """Take the next token of a run. Return True if the text up to the token's end is not shown whole."""
        if not token.special:
            self._hidden_length += len(self._decoder.decode(token.data)) - len(token.text)
        return self._hidden_length > 0 or bool(self._decoder.getstate()[0])


class TextOffsets:
    """Where tokens begin in their text, in characters. A token inside a character begins where that does.

    Attributes:
        offset: where the next token begins.
    """

    def __init__(self) -> None:
        self.offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Iterable[TokenRecord]) -> list[int]:
        """The offsets of the next tokens."""
        offsets = []
        for token in tokens:
            if token.special:
                offsets.append(self.offset)
                continue
            offsets.append(self.offset + self._replacement_length(token.data))
            self.offset += len(self._decoder.decode(token.data))
        return offsets

    def skip_to(self, offset: int) -> None:
        """Let the next token begin here, after a text whose length is known."""
        self.offset = offset
        self._decoder.reset()

    def _replacement_length(self, data: bytes) -> int:
        """1 if these bytes break off an unfinished character, which U+FFFD then replaces; else 0."""
        unfinished = self._decoder.getstate()[0]
        try:
            (unfinished + data[:1]).decode()
        except UnicodeDecodeError as error:
            return int(bool(unfinished) and error.reason != "unexpected end of data")
        return 0
