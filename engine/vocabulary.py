"""The vocabulary of a model: token ids and bytes, their text, and the tokens of a prompt's continuation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from operator import index
from typing import NamedTuple

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
            token_id = self._check_id(token)
            properties = VocabularyToken(
                piece=self.piece(token_id),
                is_control=self._native.is_control(token_id),
                is_eog=self._native.is_eog(token_id),
            )
            self._tokens_by_id[token] = properties
        return properties

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; for a control token, the bytes of its name. Raises ``ModelError``."""
        piece = self._pieces_by_id.get(token)
        if piece is None:  # not `token`, because nothing else is needed of a token's alternatives
            token_id = self._check_id(token)
            piece = self._native.piece(token_id)
            self._pieces_by_id[token_id] = piece
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
        return self._native.tokenize(data, add_special=False, parse_special=special)

    def tokenize_prompt(self, data: bytes) -> list[int]:
        """Return the token ids of a prompt, with BOS at the beginning if the model adds it.

        Names of control tokens become these tokens. Raises ``ModelError`` if the bytes are not UTF-8.
        """
        _check_utf8(data)
        tokens = self._native.tokenize(data, add_special=True, parse_special=True)
        if self.adds_bos and tokens[:2] == [self.bos, self.bos]:
            del tokens[0]  # the chat template has already written BOS
        return tokens

    def tokenize_after(self, data: bytes, previous_token: int, *, special: bool = True) -> list[int]:
        """Return the token ids of a text that follows a token, without the space that is added before whole texts.

        ``special``: whether names of control tokens become these tokens. After such a token a text begins, as in a
        prompt. Raises ``ModelError`` if the bytes are not UTF-8.
        """
        if not self.adds_space or self._native.splits_text(self._check_id(previous_token)):
            return self.tokenize(data, special)
        _check_utf8(data)
        added_ids = self.tokenize(self._separator)
        return self.tokenize(self._separator + data, special)[len(added_ids) :]

    @cached_property
    def _separator(self) -> bytes:
        """A character that no token joins with other characters, so that a text after it keeps its tokens."""
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

    def check(self, tokens: Iterable[int], name: str = "") -> None:
        """Raise ``ModelError`` unless all tokens are ids of this vocabulary."""
        # ``name``: that of the list, with which the message begins
        try:
            for token in tokens:
                self._check_id(token)
        except ModelError as error:
            raise error.at(name) from None

    def _check_id(self, token: int) -> int:
        """Return a token id as an int. Raises ``ModelError`` for a wrong one, since llama.cpp checks none."""
        try:
            number = index(token)
        except TypeError:
            number = -1
        if not 0 <= number < self.size:
            raise ModelError(f"token id {token} is not within 0..{self.size - 1}")
        return number


def _check_utf8(data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"the text is not UTF-8: byte 0x{data[error.start]:02x} at {error.start}") from None


class TextToken(NamedTuple):
    """A token of a text. The first ``added`` bytes of its piece are not in the text: BOS, or an added space."""

    id: int
    piece: bytes
    added: int

    @property
    def size(self) -> int:
        """The number of bytes of the text that the token has."""
        return len(self.piece) - self.added


def text_tokens(vocabulary: Vocabulary, data: bytes, previous_token: int | None = None) -> list[TextToken]:
    """Return the tokens of a text after a token; without one, those of the beginning of a prompt.

    An EOS that the tokenizer adds is left out, because more text may follow. Raises ``ModelError``.
    """
    if previous_token is None:
        ids = vocabulary.tokenize_prompt(data)
        if not ids and vocabulary.bos is not None:
            ids = [vocabulary.bos]
        ends_with_eos = vocabulary.adds_eos and ids[-1:] == [vocabulary.eos]
        if ends_with_eos and not data.endswith(vocabulary.piece(ids[-1])):
            del ids[-1]
    else:
        ids = vocabulary.tokenize_after(data, previous_token)
    tokens = []
    previous = previous_token
    for token in ids:
        piece = vocabulary.piece(token)
        is_added_bos = previous is None and token == vocabulary.bos and not data.startswith(piece)
        tokens.append(
            TextToken(token, piece, len(piece) if is_added_bos else vocabulary.added_bytes(token, previous))
        )
        previous = token
    return tokens


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
        return Continuation(prompt_ids, text_ids[len(prompt_ids) :], is_separate=False)
    choice_bytes = choice.encode()
    # SentencePiece adds a space before a text, but not after a newline.
    for choice_ids in (
        vocabulary.tokenize(choice_bytes, special=True),
        vocabulary.tokenize(b"\n" + choice_bytes, special=True)[1:],
    ):
        if b"".join(map(vocabulary.piece, choice_ids)) == choice_bytes:
            return Continuation(prompt_ids, choice_ids, is_separate=True)
    raise ModelError(
        f"{choice!r} cannot be tokenized by itself, and after the prompt it shares a token with the prompt's end"
    )
