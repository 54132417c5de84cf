"""Look-up of tokens for samplers.

The functions check token ids of a text, and find the token that a parameter names by its id or its text.
`LastPositions` finds the last position of each token in a text. `TokenBytesIndex` finds the tokens whose bytes
contain a string, or begin or end with it. `text_pieces` has the bytes that tokens add to a text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .base import BuildContext, Vocabulary, need_vocabulary
from .errors import SamplingError


def check_token(name: str, token: int, size: int) -> None:
    """Raise ``SamplingError``, with the ``name`` of the sampler, unless the token is an id below ``size``."""
    if not 0 <= token < size:
        raise SamplingError(f"{name}: token id {token} in the text is not within 0..{size - 1}")


def check_tokens(name: str, tokens: Collection[int], size: int) -> None:
    """Raise ``SamplingError``, with the ``name`` of the sampler, unless all tokens are ids below ``size``."""
    if len(tokens):
        check_token(name, int(min(tokens)), size)
        check_token(name, int(max(tokens)), size)


def token_table(name: str, tokens: Sequence[int], size: int) -> NDArray[np.bool_]:
    """Return for each token of the vocabulary whether it occurs in ``tokens``, bool (size,)."""
    check_tokens(name, tokens, size)
    table = np.zeros(size, dtype=np.bool_)
    table[np.array(tokens, dtype=np.int64)] = True
    return table


class LastPositions:
    """The last position of each token in a text. Adding a token takes the same time at any length."""

    def __init__(self, name: str, tokens: Iterable[int]) -> None:
        """Start with the ``tokens`` of a text. Messages contain ``name``, the name of the sampler."""
        self._name = name
        text = list(tokens)
        self._count = len(text)
        self._last_position_by_token = {token: position for position, token in enumerate(text)}
        self._positions: NDArray[np.int64] | None = None  # the same positions, in an array

    def add(self, token: int) -> None:
        if self._positions is not None:
            check_token(self._name, token, self._positions.size)
            self._positions[token] = self._count
        self._last_position_by_token[token] = self._count
        self._count += 1

    def table(self, size: int) -> NDArray[np.int64]:
        """Return the last position of each token of the vocabulary, int64 (size,); -1 for absent tokens."""
        if self._positions is None or self._positions.size != size:
            tokens = list(self._last_position_by_token)
            check_tokens(self._name, tokens, size)
            self._positions = np.full(size, -1, dtype=np.int64)
            self._positions[tokens] = list(self._last_position_by_token.values())
        return self._positions

    def __len__(self) -> int:
        return self._count


def check_token_parameter(value: int | str) -> int | str:
    """Return a parameter's token unchanged. Raises ``ValueError`` for an empty text and a negative id."""
    if value == "":
        raise ValueError("an empty string is not a token")
    if isinstance(value, int) and value < 0:
        raise ValueError("a token id must be ≥ 0")
    return value


def token_of(key: int | str, context: BuildContext, parameter: str, hint: str = "") -> int:
    """Return the token id that a parameter names by its id or by its text."""
    # Raises ``SamplingError`` for a text that is not exactly one token, a text without a vocabulary, and an id
    # outside the vocabulary.
    if isinstance(key, int):
        _check_id(key, context.vocabulary, parameter)
        return key
    vocabulary = need_vocabulary(context, parameter, value=repr(key))
    tokens = tokens_of_text(vocabulary, encode_utf8(key, parameter))
    if len(tokens) != 1:
        problem = f"{key!r} is {len(tokens)} tokens {tokens}"
        raise SamplingError(problem, place=(parameter,), advice=f"give one token, or its id{hint}")
    return tokens[0]


def _check_id(token_id: int, vocabulary: Vocabulary | None, parameter: str) -> None:
    if vocabulary is None:
        is_allowed = token_id >= 0
        allowed_ids = "≥ 0"
    else:
        is_allowed = 0 <= token_id < vocabulary.size
        allowed_ids = f"within 0..{vocabulary.size - 1}"
    if not is_allowed:
        raise SamplingError(f"token id {token_id} is not {allowed_ids}", place=(parameter,))


def tokens_of_text(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """Return the token with exactly these bytes; without one, the tokens into which the tokenizer divides them."""
    # The tokenizer alone would miss tokens. SentencePiece puts a space before a text, so that " a" becomes two
    # tokens, and "a" becomes the token " a". The bytes of a control token are its name.
    tokenized = vocabulary.tokenize(text, special=True)
    is_exact_token = len(tokenized) == 1 and vocabulary.pieces[tokenized[0]] == text
    if not text or is_exact_token:
        return tokenized
    exact_tokens = pieces_index(vocabulary).equal_to(text)
    if len(exact_tokens) > 1:  # such as the token of a letter, and the token of the letter's byte
        # Of several tokens, the one is returned that the tokenizer writes. It puts no space after a newline.
        written = vocabulary.tokenize(b"\n" + text, special=True)[-1]
        return [written] if written in exact_tokens else exact_tokens[:1]
    return exact_tokens or tokenized


def encode_utf8(text: str, parameter: str) -> bytes:
    """Return the text of a parameter in UTF-8. Raises ``SamplingError`` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SamplingError(f"{text!r} is not UTF-8", place=(parameter,)) from None


_facts_by_vocabulary: WeakKeyDictionary[Vocabulary, dict[str, Any]] = WeakKeyDictionary()
_Fact = TypeVar("_Fact")


def once_for_vocabulary(vocabulary: Vocabulary, name: str, compute: Callable[[Vocabulary], _Fact]) -> _Fact:
    """Return a fact about a vocabulary, which is computed once. ``name`` distinguishes the facts."""
    try:
        facts = _facts_by_vocabulary.setdefault(vocabulary, {})
    except TypeError:  # a vocabulary of another package that has no hash or no weak references
        return compute(vocabulary)
    if name not in facts:
        facts[name] = compute(vocabulary)
    fact: _Fact = facts[name]
    return fact


def text_pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    """Return the bytes that each token adds to a text, by id; empty for a control token."""
    return once_for_vocabulary(vocabulary, "text pieces", _compute_text_pieces)


def _compute_text_pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    return tuple(b"" if vocabulary.is_control(token) else piece for token, piece in enumerate(vocabulary.pieces))


def pieces_index(vocabulary: Vocabulary) -> TokenBytesIndex:
    """Return the index of the bytes of every token, with the names of control tokens; made once."""
    return once_for_vocabulary(vocabulary, "index of pieces", lambda each: TokenBytesIndex(each.pieces))


class _SortedPieces:
    """The bytes of every token in sorted order, for searches by their beginning."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._tokens_in_byte_order = np.array(sorted(range(len(pieces)), key=pieces.__getitem__), dtype=np.intp)
        self._sorted_pieces = [pieces[token] for token in self._tokens_in_byte_order.tolist()]

    def beginning_with(self, text: bytes) -> NDArray[np.intp]:
        start = bisect_left(self._sorted_pieces, text)
        end = len(self._sorted_pieces)
        next_text = _first_text_after_beginning(text)
        if next_text is not None:
            end = bisect_left(self._sorted_pieces, next_text, start)
        return np.sort(self._tokens_in_byte_order[start:end])

    def equal_to(self, text: bytes) -> list[int]:
        start = bisect_left(self._sorted_pieces, text)
        end = bisect_right(self._sorted_pieces, text)
        return sorted(self._tokens_in_byte_order[start:end].tolist())


def _first_text_after_beginning(text: bytes) -> bytes | None:
    """Return the first string that sorts after all strings that begin with ``text``; None if there is none."""
    # The last byte below 255 is increased by one, as in b"ab" -> b"ac" and b"a\xff" -> b"b".
    prefix = text.rstrip(b"\xff")
    if not prefix:
        return None
    return prefix[:-1] + bytes([prefix[-1] + 1])


class TokenBytesIndex:
    """An index of the bytes of every token, for repeated searches."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """Index ``pieces``, the bytes of every token in the order of ids."""
        self._pieces = pieces
        self._sorted = _SortedPieces(pieces)
        self._joined = b"".join(pieces)  # the bytes of all tokens in one string
        self._piece_ends = list(accumulate(len(piece) for piece in pieces))  # where each token ends in this string

    @cached_property
    def _sorted_backwards(self) -> _SortedPieces:
        """The reversed bytes of every token."""
        return _SortedPieces([piece[::-1] for piece in self._pieces])

    def containing(self, text: bytes) -> list[int]:
        """Return the ids of the tokens that contain ``text``, ascending. The text must not be empty."""
        tokens = []
        position = self._joined.find(text)
        while position >= 0:
            token = bisect_right(self._piece_ends, position)
            if position + len(text) <= self._piece_ends[token]:
                tokens.append(token)
                position = self._piece_ends[token] - 1  # continue at the next token
            position = self._joined.find(text, position + 1)
        return tokens

    def beginning_with(self, text: bytes) -> NDArray[np.intp]:
        """Return the ids of the tokens that begin with ``text``, ascending. The text must not be empty."""
        return self._sorted.beginning_with(text)

    def ending_with(self, text: bytes) -> NDArray[np.intp]:
        """Return the ids of the tokens that end with ``text``, ascending. The text must not be empty."""
        return self._sorted_backwards.beginning_with(text[::-1])

    def equal_to(self, text: bytes) -> list[int]:
        """Return the ids of the tokens with exactly these bytes, ascending."""
        return self._sorted.equal_to(text)


class TextCompletions:
    """A string, and the tokens that would complete it."""

    def __init__(self, text: bytes, index: TokenBytesIndex) -> None:
        self.text = text  # the bytes of the string
        self.single_tokens = index.containing(text)  # ids of the tokens that contain the entire string, ascending
        # Each beginning of the string, with the tokens that begin with the rest of the string
        self._tokens_after_beginning: list[tuple[bytes, NDArray[np.intp]]] = []
        for byte_count in range(1, len(text)):
            ids = index.beginning_with(text[byte_count:])
            if ids.size:
                self._tokens_after_beginning.append((text[:byte_count], ids))

    def completing(self, text_end: bytes) -> Iterator[NDArray[np.intp]]:
        """Yield ids of tokens that would complete the string if the text so far ends with ``text_end``."""
        for beginning, ids in self._tokens_after_beginning:
            if text_end.endswith(beginning):
                yield ids


def tokens_starting(text: bytes, index: TokenBytesIndex) -> Iterator[tuple[NDArray[np.intp], bytes]]:
    """Yield the tokens that end with a beginning of a string, for each beginning, with the rest of the string."""
    # For "abc", these are the tokens that end with "a", with the rest "bc", and those that end with "ab", with the
    # rest "c". Other bytes may precede the beginning in the token, even the entire string.
    for byte_count in range(1, len(text)):
        ids = index.ending_with(text[:byte_count])
        if ids.size:
            yield ids, text[byte_count:]
