"""The tokens of a text: their parts of it, their offsets in it, and the tokens whose text is held back.

Text is held back while it may belong to an incomplete character or to a stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .records import TokenRecord


@dataclass(frozen=True, slots=True)
class TextToken:
    """A token of a run, and its part of the text."""

    record: TokenRecord
    data: bytes  # the bytes of the token that are part of the text
    text: str  # the characters that become complete with these bytes
    # False for a token that is not part of the text: a control token, such as the end-of-generation token, and a
    # token of the stop string that has no bytes before it
    is_in_text: bool = True

    @property
    def id(self) -> int:
        return self.record.id


def tokens_of_text(
    tokens: Sequence[TokenRecord], text: str, stop: str | None, *, echoes_prompt: bool = False
) -> tuple[TextToken, ...]:
    """Return the generated tokens, each with its part of the text. The joined parts are the bytes of the text.

    If a stop string begins inside a token, the token has the bytes before the stop string, and all later tokens
    have none. Bytes that are not UTF-8 remain in the tokens, although the text has U+FFFD in their place.

    Args:
        tokens: all generated tokens of a run.
        text: the text of the run.
        stop: the stop string that ended the run; None if no stop string did.
        echoes_prompt: True if the prompt precedes the text. Then the bytes that spell the end of the prompt again
            are part of the tokens, too.
    """
    text_tokens: list[TextToken] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    written_bytes = b"".join(token.own_data for token in tokens if not token.is_control)
    remaining_byte_count = len(written_bytes) if stop is None else _byte_count_of_text(written_bytes, text)
    is_text_over = False
    for token in tokens:
        if token.is_control:
            text_tokens.append(TextToken(token, b"", "", is_in_text=False))
            continue
        own_data = token.own_data
        data = own_data[:remaining_byte_count]
        remaining_byte_count -= len(data)
        if own_data and not data:
            is_text_over = True
        shown_data = token.data[: token.healed_bytes] + data if echoes_prompt else data
        text_tokens.append(TextToken(token, shown_data, decoder.decode(shown_data), is_in_text=not is_text_over))
        if len(data) < len(own_data):
            is_text_over = True
    return tuple(text_tokens)


def tokens_of_prompt(
    tokens: Sequence[TokenRecord], prompt: str, *, is_healed: bool = False
) -> tuple[TextToken, ...]:
    """Return the tokens of a prompt, each with its part of the prompt's text."""
    # Tokens and a space that the tokenizer added are not part of the text. White space that the tokenizer dropped
    # belongs to the token before it. If a tokenizer changes other characters, the joined parts differ from the
    # prompt. ``is_healed``: the end of the prompt has no tokens, because the generated tokens spell it again.
    parts = [b"" if token.is_control else token.own_data for token in tokens]
    is_prompt = b"".join(parts).decode(errors="replace") == prompt
    if not is_prompt:  # the prompt contains control tokens, or the tokenizer changed it
        parts = _align(tokens, prompt.encode(errors="surrogatepass"), is_healed) or parts
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return tuple(TextToken(token, part, decoder.decode(part)) for token, part in zip(tokens, parts, strict=True))


def _align(tokens: Sequence[TokenRecord], text: bytes, is_healed: bool) -> list[bytes] | None:
    """Return the part of a text that each token stands for; None if the tokens do not spell the text."""
    # A token that is not found at its place is not part of the text, such as a control token of a prompt of ids.
    parts: list[bytes] = []
    position = 0
    for token in tokens:
        if token.is_control:
            spellings = [token.data]
        else:
            spellings = [token.own_data, token.data, token.data.removeprefix(b" ")]
        blanks = b""
        part = _spelling_at(position, text, spellings)
        if part is None:  # tokenizers drop white space beside some control tokens
            rest = text[position:]
            blanks = rest[: len(rest) - len(rest.lstrip())]
            part = _spelling_at(position + len(blanks), text, spellings)
        if part is None:
            parts.append(b"")
            continue
        position += len(blanks) + len(part)
        if parts:
            parts[-1] += blanks
            parts.append(part)
        else:
            parts.append(blanks + part)
    rest = text[position:]
    if rest and not is_healed:
        if rest.strip() or not parts:
            return None
        parts[-1] += rest
    return parts


def _spelling_at(position: int, text: bytes, spellings: Iterable[bytes]) -> bytes | None:
    """Return the first of the spellings that the text has at a position; None if it has none of them there."""
    for spelling in spellings:
        if text.startswith(spelling, position):
            return spelling
    return None


def _byte_count_of_text(data: bytes, text: str) -> int:
    """Return the number of leading bytes of ``data`` that decode to ``text``."""
    # Bytes that are not UTF-8 decode to U+FFFD.
    encoded_text = text.encode(errors="surrogatepass")
    if data.startswith(encoded_text):
        return len(encoded_text)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    character_count = 0
    for position in range(len(data)):
        if character_count == len(text):
            return position - len(_unfinished_bytes(decoder))
        character_count += len(decoder.decode(data[position : position + 1]))
        if character_count > len(text):  # this byte yielded U+FFFD for the unfinished bytes, and a character
            return position
    if character_count == len(text):
        return len(data) - len(_unfinished_bytes(decoder))
    return len(data)


def _unfinished_bytes(decoder: codecs.IncrementalDecoder) -> bytes:
    """Return the bytes of an incomplete character, which wait in the decoder for more bytes."""
    unfinished_bytes, _ = decoder.getstate()
    return unfinished_bytes


class TextTokenStream:
    """The tokens of `tokens_of_text`, each of which is returned once its part of the text is certain."""

    # Tokens that share a character are returned together, and so are tokens that may contain the beginning of a
    # stop string.

    def __init__(self, *, echoes_prompt: bool = False) -> None:
        # The number of characters of the text that the returned tokens wrote so far, without the prompt.
        self.text_length = 0
        self._echoes_prompt = echoes_prompt
        self._shown_characters = 0
        self._waiting_tokens: list[TokenRecord] = []

    def push(self, token: TokenRecord) -> tuple[TextToken, ...]:
        """Add the next token of a run, and return the tokens whose part of the text is now certain."""
        self._waiting_tokens.append(token)
        self._shown_characters += len(token.text)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoded_length = 0
        certain_count = 0  # number of tokens whose part of the text is certain
        certain_length = 0  # number of characters of these tokens
        for count, waiting_token in enumerate(self._waiting_tokens, 1):
            if not waiting_token.is_control:
                decoded_length += len(decoder.decode(waiting_token.own_data))
            if self.text_length + decoded_length > self._shown_characters:
                break
            if not _unfinished_bytes(decoder):
                certain_count = count
                certain_length = decoded_length
        certain_tokens = self._waiting_tokens[:certain_count]
        self._waiting_tokens = self._waiting_tokens[certain_count:]
        self.text_length += certain_length
        return tokens_of_text(certain_tokens, "", None, echoes_prompt=self._echoes_prompt)

    def finish(self, text: str, stop: str | None) -> tuple[TextToken, ...]:
        """Return the remaining tokens. ``text``: all of the text; ``stop``: the stop string that ended it."""
        waiting_tokens = self._waiting_tokens
        self._waiting_tokens = []
        rest = text[self.text_length :]
        own_tokens = tokens_of_text(waiting_tokens, rest, stop)
        self.text_length += sum(len(token.text) for token in own_tokens)
        if not self._echoes_prompt:
            return own_tokens
        return tokens_of_text(waiting_tokens, rest, stop, echoes_prompt=True)


class HeldBackText:
    """A detector of tokens after which a part of the text is held back."""

    # The part belongs to an incomplete character, or it may be the beginning of a stop string.

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held_back_characters = 0

    def is_held_back(self, token: TokenRecord) -> bool:
        """Add the next token of a run. Return True if a part of the text up to this token is not shown yet."""
        if not token.is_control:
            self._held_back_characters += len(self._decoder.decode(token.own_data)) - len(token.text)
        return self._held_back_characters > 0 or bool(_unfinished_bytes(self._decoder))


class PlacedText(NamedTuple):
    """The characters that become complete with a token, and the token's offset in the text, in characters."""

    offset: int
    text: str


class TextOffsets:
    """The offsets in the text at which the tokens begin, in characters."""

    # A token that begins inside a character has the offset of this character.

    def __init__(self) -> None:
        self.offset = 0  # the offset of the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def advance(self, tokens: Iterable[TextToken]) -> list[int]:
        """Return the offsets of the next tokens of the text."""
        return [self.add(token).offset for token in tokens]

    def add(self, token: TextToken) -> PlacedText:
        """Return the offset of the next token, and the characters that become complete with it."""
        offset = self.offset + self._replacement_length(token.data)
        text = self._decoder.decode(token.data)
        self.offset += len(text)
        return PlacedText(offset, text)

    def skip_to(self, offset: int) -> None:
        """Set the offset of the next token, after a text whose length is known."""
        self.offset = offset
        self._decoder.reset()

    def _replacement_length(self, data: bytes) -> int:
        """Return 1 if U+FFFD replaces the unfinished character, which these bytes cannot continue; otherwise 0."""
        unfinished_bytes = _unfinished_bytes(self._decoder)
        if not unfinished_bytes:
            return 0
        try:
            (unfinished_bytes + data[:1]).decode()
        except UnicodeDecodeError as error:
            can_continue = error.reason == "unexpected end of data"
            return 0 if can_continue else 1
        return 0
