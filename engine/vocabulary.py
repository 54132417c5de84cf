"""The vocabulary of a model: token ids and bytes, their text, and the tokens of a prompt's continuation."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from operator import index
from typing import NamedTuple, SupportsIndex

from ..models.errors import ModelError
from ..samplers.tokens import tokens_of_text
from .native.vocabulary import NativeVocabulary


class VocabularyToken(NamedTuple):
    """The properties of a token that a run needs."""

    piece: bytes
    is_control: bool
    is_eog: bool


class Vocabulary:
    """The tokens of a model. Their bytes are read when they are first used, because a run needs few of them.

    Attributes:
        size: number of tokens.
        kind: llama.cpp's name of the type, such as ``BPE``.
        bos: id of the beginning-of-sequence token; None if there is none.
        adds_bos: whether every prompt begins with ``bos``.
        eos: id of the end-of-sequence token; None if there is none.
        adds_eos: whether llama.cpp's tokenizer ends every text with ``eos``.
        newline: id of the newline token; None if there is none.
        end: id of the token that ends a turn, or else of the token that ends a text; None if there is none.
        suppressed: ids of the tokens that the model's file forbids to draw, with the metadata key
            ``tokenizer.ggml.suppress_tokens``; usually none.
    """

    def __init__(self, native: NativeVocabulary) -> None:
        self._native = native
        self._tokens_by_id: dict[int, VocabularyToken] = {}
        self._pieces_by_id: dict[int, bytes] = {}
        self.size = native.size
        self.bos = native.special("bos")
        self.adds_bos = native.adds_bos()
        self.kind = native.kind()
        self.eos = native.special("eos")
        self.adds_eos = native.adds_eos()
        self.newline = native.special("nl")
        self.end = native.special("eot") if native.special("eot") is not None else self.eos
        self.suppressed = native.suppressed_tokens()

    @cached_property
    def eog(self) -> frozenset[int]:
        """Ids of the end-of-generation tokens."""
        return self._native.eog_tokens()

    @cached_property
    def control(self) -> frozenset[int]:
        """Ids of the control tokens."""
        return frozenset(token for token in self._names_of_non_text if self._native.is_control(token))

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of every token by id; for control tokens, the bytes of their names in the vocabulary."""
        return list(map(self._names_of_non_text.get, range(self.size), self._text_bytes_by_id))

    @cached_property
    def texts(self) -> list[bytes]:
        """The text of every token by id, as the vocabulary spells it: with marks for spaces and bytes."""
        return self._native.texts()

    @cached_property
    def _text_bytes_by_id(self) -> list[bytes]:
        return self._native.text_pieces()

    @cached_property
    def _names_of_non_text(self) -> dict[int, bytes]:
        """The tokens that are not text, with the bytes of their names in the vocabulary."""
        return {token: self._native.piece(token) for token, text in enumerate(self._text_bytes_by_id) if not text}

    @cached_property
    def adds_space(self) -> bool:
        """True if the tokenizer adds a space before a text, as SentencePiece does."""
        return b"".join(map(self.piece, self.tokenize(b"a"))).startswith(b" ")

    def added_bytes(self, token: int, previous_token: int | None) -> int:
        """Return the number of bytes that the tokenizer added before a token: 1 for a space, otherwise 0.

        ``previous_token``: the previous token; None at the beginning. A text also begins after a control token.
        """
        is_first = previous_token is None or self._native.splits_text(self._check_id(previous_token))
        has_space = is_first and self.adds_space and not self._native.splits_text(token)
        return int(has_space and self.piece(token).startswith(b" "))

    def token(self, token: int) -> VocabularyToken:
        """Return the properties of a token that a run needs. Raises ``ModelError``."""
        properties = self._tokens_by_id.get(token)
        if properties is None:
            native, token_id = self._native, self._check_id(token)
            properties = VocabularyToken(
                self.piece(token_id), native.is_control(token_id), native.is_eog(token_id)
            )
            self._tokens_by_id[token] = properties
        return properties

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; for a control token, the bytes of its name. Raises ``ModelError``."""
        piece = self._pieces_by_id.get(token)
        if piece is None:  # not `token`, because nothing else is needed of a token's alternatives
            token_id = self._check_id(token)
            piece = self._pieces_by_id[token_id] = self._native.piece(token_id)
        return piece

    def is_eog(self, token: int) -> bool:
        """Return whether a token is an end-of-generation token. Reads this token only, unlike `eog`."""
        return self._native.is_eog(self._check_id(token))

    def is_control(self, token: int) -> bool:
        """Return whether a token is a control token, which is not part of the text."""
        return self._native.is_control(self._check_id(token))

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return the token ids of a text in UTF-8, without a beginning-of-sequence token.

        ``special``: whether names of control tokens, such as ``<|im_end|>``, become these tokens. Raises
        ``ModelError`` if the bytes are not UTF-8.
        """
        _check_utf8(data)
        return self._native.tokenize(data, False, special)

    def tokenize_prompt(self, data: bytes) -> list[int]:
        """Return the token ids of a prompt, with BOS at the beginning if the model adds it.

        Names of control tokens become these tokens. Raises ``ModelError`` if the bytes are not UTF-8.
        """
        _check_utf8(data)
        tokens = self._native.tokenize(data, True, True)
        if self.adds_bos and tokens[:2] == [self.bos, self.bos]:
            del tokens[0]  # the chat template has already written BOS
        return tokens

    def tokenize_after(self, data: bytes, previous_token: int) -> list[int]:
        """Return the token ids of a text that follows a token, without the space that is added before whole texts.

        Names of control tokens become these tokens. After such a token a text begins, as in a prompt. Raises
        ``ModelError`` if the bytes are not UTF-8.
        """
        if not self.adds_space or self._native.splits_text(self._check_id(previous_token)):
            return self.tokenize(data, special=True)
        _check_utf8(data)
        added_ids = self.tokenize(self._separator)
        return self.tokenize(self._separator + data, special=True)[len(added_ids) :]

    @cached_property
    def _separator(self) -> bytes:
        """A character that no token contains beside others: what follows is tokenized as inside a text."""
        for character in "\ue000\n\t|~":
            data = character.encode()
            with suppress(ModelError):  # no tokens for its bytes
                if self.tokenize(data) and not any(data in text != data for text in self._text_bytes_by_id):
                    return data
        raise ModelError("the vocabulary has no character that separates texts")

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens, without control tokens. Raises ``ModelError``."""
        return self._native.detokenize([self._check_id(token) for token in tokens]) if tokens else b""

    def single(self, text: str) -> int:
        """Return the id of the token that a text names, see `tokens_of_text`.

        Raises ``ModelError`` if it is not one token.
        """
        try:
            tokens = tokens_of_text(self, text.encode())
        except UnicodeEncodeError:
            raise ModelError("half of a surrogate pair is not allowed in text") from None
        if len(tokens) == 1:
            return tokens[0]
        if not tokens:
            raise ModelError("an empty text is not a token")
        pieces = ", ".join(repr(self.piece(token).decode("utf-8", "replace")) for token in tokens)
        raise ModelError(f"{text!r} is {len(tokens)} tokens of this model, not one: {pieces}")

    def check(self, tokens: Iterable[int]) -> None:
        """Raise ``ModelError`` unless all tokens are ids of this vocabulary."""
        for token in tokens:
            self._check_id(token)

    def _check_id(self, token: int) -> int:
        """Return a token id as an int. Raises ``ModelError`` for a wrong one, since llama.cpp checks none."""
        if not isinstance(token, SupportsIndex) or not 0 <= index(token) < self.size:
            raise ModelError(f"token id {token} is not within 0..{self.size - 1}")
        return index(token)


def _check_utf8(data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"the text is not UTF-8: byte 0x{data[error.start]:02x} at {error.start}") from None


class TextStreamState(NamedTuple):
    """A state of a `TextStream` in which no stop string has appeared."""

    decoder_state: tuple[bytes, int]
    held_back: str
    text_length: int
    passed_length: int  # number of characters of ``held_back`` in which no stop string may end


class TextStream:
    """A decoder of the bytes of tokens, which also finds stop strings."""

    # The bytes of an incomplete UTF-8 character are held back until the character is complete. Bytes that are not
    # UTF-8 become U+FFFD. Text that may be the beginning of a stop string is held back until the next tokens
    # decide.

    def __init__(self, stops: Sequence[str] = ()) -> None:
        """Begin a text. ``stops``: stop strings; empty ones are ignored."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop_strings = [stop for stop in stops if stop]
        self._held_back = ""
        self._passed_length = 0
        self.text = ""
        # the stop string that appeared, after which no more text is released; None if none has appeared
        self.matched_stop: str | None = None

    def copy(self) -> TextStream:
        stream_copy = TextStream(self._stop_strings)
        stream_copy._decoder.setstate(self._decoder.getstate())
        stream_copy._held_back, stream_copy.text = self._held_back, self.text
        stream_copy._passed_length = self._passed_length
        stream_copy.matched_stop = self.matched_stop
        return stream_copy

    def push(self, data: bytes, *, finds_stop: bool = True) -> str:
        """Decode the bytes of one token; return the text that can be shown now, possibly empty. See `release`."""
        return self.release(self.decode(data), finds_stop=finds_stop)

    def decode(self, data: bytes) -> str:
        return self._decoder.decode(data)

    @property
    def has_incomplete_character(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def save(self) -> TextStreamState:
        return TextStreamState(self._decoder.getstate(), self._held_back, len(self.text), self._passed_length)

    def restore(self, state: TextStreamState) -> None:
        self._decoder.setstate(state.decoder_state)
        self._held_back, self._passed_length, self.matched_stop = state.held_back, state.passed_length, None
        if len(self.text) > state.text_length:
            self.text = self.text[: state.text_length]

    def finish(self) -> str:
        released = self.release(self._decoder.decode(b"", True))
        if self.matched_stop is None:
            released += self._held_back
            self.text += self._held_back
            self._held_back = ""
        return released

    def release(self, new_text: str, *, finds_stop: bool = True) -> str:
        """Append decoded text; return the text that can be shown now, possibly empty.

        ``finds_stop``: False to pass over the stop strings that end in this text. One that begins in it and ends
        later still counts, as in vLLM.
        """
        if self.matched_stop is not None or not new_text:
            return ""
        if not self._stop_strings:
            self.text += new_text
            return new_text
        self._held_back += new_text
        if not finds_stop:
            self._passed_length = len(self._held_back)
        matches = [(start, stop) for stop in self._stop_strings if (start := self._find(stop)) >= 0]
        if matches:
            start, self.matched_stop = min(matches, key=lambda match: match[0])
            released, self._held_back = self._held_back[:start], ""
        else:
            end = len(self._held_back) - self._undecided_length()
            released, self._held_back = self._held_back[:end], self._held_back[end:]
            self._passed_length = max(self._passed_length - end, 0)
        self.text += released
        return released

    def _find(self, stop: str) -> int:
        """Return the place of a stop string that ends in text that was not passed over; -1 if there is none."""
        return self._held_back.find(stop, max(self._passed_length + 1 - len(stop), 0))

    def _undecided_length(self) -> int:
        """Return the number of characters at the end that may be the beginning of a stop string."""
        max_length = max((len(stop) - 1 for stop in self._stop_strings), default=0)
        for character_count in range(min(max_length, len(self._held_back)), 0, -1):
            ending = self._held_back[-character_count:]
            if any(stop.startswith(ending) for stop in self._stop_strings):
                return character_count
        return 0


class Continuation(NamedTuple):
    """The tokens of a prompt and of a choice after it.

    Attributes:
        prompt_ids: tokens of the prompt without white space at its end.
        choice_ids: tokens of this white space and the choice.
        is_separate: whether the choice was tokenized separately. In the joined text, its first characters would
            share a token with the prompt's last ones.
    """

    prompt_ids: list[int]
    choice_ids: list[int]
    is_separate: bool


def first_different_token(texts: Sequence[bytes], other_texts: Sequence[bytes], start: int = 0) -> int | None:
    """Return the first token id whose texts differ; None if the ids that both vocabularies have agree."""
    end = min(len(texts), len(other_texts))
    if texts[start:end] == other_texts[start:end]:  # much faster than one by one
        return None
    return next(token for token in range(start, end) if texts[token] != other_texts[token])


def tokenize_continuation(vocabulary: Vocabulary, prompt: str, choice: str) -> Continuation:
    """Tokenize a prompt and a choice after it, as lm-evaluation-harness does.

    White space at the end of the prompt belongs to the choice, because words have tokens with a space before them.
    If the tokens of the joined text begin with the tokens of the prompt, the choice gets the remaining tokens.
    Otherwise the choice is tokenized separately. Raises ``ModelError`` if that is not possible.
    """
    stripped_prompt = prompt.rstrip()
    choice = prompt[len(stripped_prompt) :] + choice
    prompt_ids = vocabulary.tokenize_prompt(stripped_prompt.encode())
    text_ids = vocabulary.tokenize_prompt((stripped_prompt + choice).encode())
    if text_ids[: len(prompt_ids)] == prompt_ids:
        return Continuation(prompt_ids, text_ids[len(prompt_ids) :], False)
    choice_bytes = choice.encode()
    # SentencePiece adds a space before a text, but not after a newline.
    for choice_ids in (
        vocabulary.tokenize(choice_bytes, special=True),
        vocabulary.tokenize(b"\n" + choice_bytes, special=True)[1:],
    ):
        if b"".join(map(vocabulary.piece, choice_ids)) == choice_bytes:
            return Continuation(prompt_ids, choice_ids, True)
    raise ModelError(
        f"{choice!r} cannot be tokenized by itself, and after the prompt it shares a token with the prompt's end"
    )
