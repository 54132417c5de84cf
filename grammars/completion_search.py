"""A search for a short text that completes a sentence.

The search extends candidate texts byte by byte, using only the masks of the grammar. `spell` writes a completion
with tokens that are not suppressed, because the tokenizer may write it with a suppressed token.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, takewhile
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError
from .tokenizer import MAX_COMPLETION_BYTES, Vocabulary

# These limits bound the time of a search. tests/grammars/test_completion.py has grammars for which they suffice.

_MAX_TRIES_BY_LENGTH = 300  # maximum number of candidates that are extended in the order of their length

# maximum number of candidates that are then extended in the order of their revisits, see `_Candidate`
_MAX_TRIES_BY_REVISITS = 5_000

_MAX_STEPS = 120_000  # Maximum number of extensions that one search tries. Each takes about 10 µs.

_MAX_SHORTENING_TRIES = 2_000  # maximum number of attempts to remove a part of a completion

# A longer completion of the walk is not shortened, because each attempt reads all of it
_MAX_SHORTENED_BYTES = 200

# After this many bytes that ended no part of the text, the walk writes all hints, and varies the bytes
_MAX_STEPS_WITHOUT_END = 64

# One walk tries at most this many ends of hints, of at most this many bytes together
_MAX_TRIED_ENDS = 20_000
_MAX_TRIED_BYTES = 500_000

_MAX_EQUIVALENT_CANDIDATES = 4  # maximum number of candidates of equal cost and equal mask that are extended

# If more letters, more digits or more non-ASCII bytes than this are allowed, only one of them is tried
_MAX_GROUP_BYTES = 12


class SearchableState(Protocol):
    """The state of a text of single bytes. `GrammarState` implements this protocol."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def forced_text(self) -> bytes:
        """The bytes that must come next; often empty."""
        ...

    def mask(self) -> NDArray[np.bool_]: ...

    def accept_prefix(self, tokens: list[int]) -> int:
        """Append the bytes up to the first that is not allowed. Return the number of appended bytes."""
        ...

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` bytes of the text."""
        ...


class _LimitedState:
    """A state that does not allow some bytes, which no token of a vocabulary can write."""

    def __init__(self, state: SearchableState, excluded_bytes: frozenset[int]) -> None:
        self._state = state
        self._excluded_bytes = excluded_bytes

    @property
    def is_complete(self) -> bool:
        return self._state.is_complete

    @property
    def forced_text(self) -> bytes:
        return self._state.forced_text

    def mask(self) -> NDArray[np.bool_]:
        mask = self._state.mask().copy()
        mask[list(self._excluded_bytes)] = False
        return mask

    def accept_prefix(self, tokens: list[int]) -> int:
        allowed_tokens = list(takewhile(lambda byte: byte not in self._excluded_bytes, tokens))
        return self._state.accept_prefix(allowed_tokens)

    def roll_back(self, count: int) -> None:
        self._state.roll_back(count)


class _Cursor:
    """The only state of a search, which is moved from text to text."""

    # A separate state for each text would also copy llguidance's lexer, whose size grows during the search.

    def __init__(self, state: SearchableState) -> None:
        self.state = state
        self._added_text = b""

    def go_to(self, added_text: bytes) -> bool:
        """Change the text to the start text and ``added_text``. Return False if this text is not allowed."""
        common_length = _common_length(self._added_text, added_text)
        self.state.roll_back(len(self._added_text) - common_length)
        reached_length = common_length + self.state.accept_prefix(list(added_text[common_length:]))
        self._added_text = added_text[:reached_length]
        return reached_length == len(added_text)


def _common_length(first: bytes, second: bytes) -> int:
    max_length = min(len(first), len(second))
    if first[:max_length] == second[:max_length]:
        return max_length
    if first[: max_length - 1] == second[: max_length - 1]:  # the usual case: the last byte is replaced
        return max_length - 1
    common_length = 0
    while common_length < max_length:  # binary search
        middle = (common_length + max_length + 1) // 2
        if first[common_length:middle] == second[common_length:middle]:
            common_length = middle
        else:
            max_length = middle - 1
    return common_length


_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
# Bytes that the walk prefers to letters, the best first: inside of a string, and elsewhere in JSON
_BYTES_IN_STRING = b'"'
_BYTES_OF_STRUCTURE = b'}],"0123456789:'


class _Walk:
    """A walk that extends one text. It prefers bytes, and ends of hints, that end a part of the text."""

    # In a string whose pattern has no anchors, all masks are the same until the pattern is matched. The masks do
    # not show how to match it. A hint is a text that matches the pattern.

    # ``writes_hints``: whether each string of JSON begins with one of the hints in turn. A key that matches a
    # pattern may be needed where any key is allowed.
    def __init__(
        self,
        cursor: _Cursor,
        hints: Sequence[bytes],
        is_json: bool,
        is_reversed: bool = False,
        writes_hints: bool = False,
    ) -> None:
        self._cursor = cursor
        self._is_json = is_json
        # The order decides between keys with different first letters. One key may lead to ever deeper objects.
        letters = _LETTERS[::-1] if is_reversed else _LETTERS
        self._bytes_in_string = _BYTES_IN_STRING + letters
        self._bytes_of_structure = _BYTES_OF_STRUCTURE + letters if is_json else letters
        ends_of_hints = {hint[start:] for hint in hints for start in range(len(hint))}
        self._ends_of_hints = sorted(ends_of_hints, key=len)
        self._hints = hints
        # Each twice, or the first of two hints would always be a key, and the second one always its value
        self._hints_in_turn = cycle(hint for hint in hints for _ in range(2)) if writes_hints else None
        self._tried_ends = self._tried_bytes = 0
        self._text = b""
        self._steps_without_end = 0  # number of bytes since the last end of a part of the text

    def complete(self) -> bytes | None:
        """Return a text that completes the sentence; None if the walk reaches no end."""
        while len(self._text) <= MAX_COMPLETION_BYTES:
            if not self._cursor.go_to(self._text):
                return None
            state = self._cursor.state
            if state.is_complete:
                return self._text
            forced_text = state.forced_text
            if forced_text:
                self._text += forced_text
                self._steps_without_end = 0
                continue
            mask = state.mask()[:256]
            if not mask.any():
                return None
            is_in_string = mask[list(_LETTERS)].sum() > _MAX_GROUP_BYTES
            if is_in_string:
                self._extend_string(mask)
            else:
                self._steps_without_end += 1
                self._text += _choose_byte(mask, self._bytes_of_structure, self._steps_without_end)
        return None

    def _extend_string(self, mask: NDArray[np.bool_]) -> None:
        can_end_string = self._is_json and mask[_QUOTE]
        if can_end_string:
            self._steps_without_end = 0
            begins_string = self._text.endswith(b'"') and not self._text.endswith(b'\\"')
            if self._hints_in_turn is not None and begins_string:
                hint = next(self._hints_in_turn)
                if self._cursor.go_to(self._text + hint):
                    self._text += hint
                    return
        else:
            end = self._find_end(mask)
            if end is not None:
                self._text += end
                self._steps_without_end = 0
                return
            if self._hints:  # without hints, no pattern must be matched, and the string is only too short
                self._steps_without_end += 1
            if self._steps_without_end == _MAX_STEPS_WITHOUT_END:
                self._append_hints()
                return
        self._text += _choose_byte(mask, self._bytes_in_string, self._steps_without_end)

    def _find_end(self, mask: NDArray[np.bool_]) -> bytes | None:
        """Return an end of a hint that ends the sentence or changes the mask; None if there is none."""
        for end in self._ends_of_hints:
            self._tried_ends += 1
            self._tried_bytes += len(end)
            if self._tried_ends > _MAX_TRIED_ENDS or self._tried_bytes > _MAX_TRIED_BYTES:
                return None
            if self._cursor.go_to(self._text + end):
                state = self._cursor.state
                if state.is_complete or not np.array_equal(state.mask()[:256], mask):
                    return end
        return None

    def _append_hints(self) -> None:
        """Append all hints that may follow, because several patterns may have to match."""
        for hint in self._hints:
            if self._cursor.go_to(self._text + hint):
                self._text += hint


_QUOTE = ord('"')


def _choose_byte(mask: NDArray[np.bool_], preferred_bytes: bytes, steps_without_end: int) -> bytes:
    """Return an allowed byte: the most preferred one, or each in turn after many steps without an end."""
    choices = [byte for byte in preferred_bytes if mask[byte]]
    turn = max(steps_without_end - _MAX_STEPS_WITHOUT_END, 0)
    if not choices or turn > len(choices):
        choices = np.flatnonzero(mask).tolist()
    return bytes([choices[turn % len(choices)]])


@dataclass
class _Candidate:
    """A text that may be the beginning of a completion."""

    added_text: bytes  # the text that is added to the text of the start state
    mask: NDArray[np.bool_]  # the mask after the text
    earlier_masks: frozenset[bytes]  # the masks after shorter prefixes of the text, as bytes
    revisits: int  # number of prefixes with the mask of a shorter prefix; a high number is a sign of a loop


_Cost = Callable[[_Candidate], tuple[int, int]]


def search_completion(
    state: SearchableState,
    start_walk: Callable[[], SearchableState],
    excluded_bytes: frozenset[int] = frozenset(),
    hints: Sequence[bytes] = (),
    is_json: bool = False,
) -> bytes:
    """Return a text that makes the state's text a complete sentence; not always the shortest one."""

    # Several searches are tried: one that extends the shortest texts first, walks, and one that extends the
    # texts with new masks first. ``start_walk`` returns another state of the same text, for one walk. ``hints``:
    # texts that match the grammar's regexes. ``is_json``: all sentences are JSON, whose strings end with a quote.
    # Raises ``GrammarError`` if no completion is found.

    def limited(unlimited: SearchableState) -> SearchableState:
        return _LimitedState(unlimited, excluded_bytes) if excluded_bytes else unlimited

    def walk(*, writes_hints: bool = False, is_reversed: bool = False) -> bytes | None:
        try:
            cursor_of_walk = _Cursor(limited(start_walk()))
            return _Walk(cursor_of_walk, hints, is_json, is_reversed, writes_hints).complete()
        except GrammarError:  # the grammar is too ambiguous for so long a text
            return None

    cursor = _Cursor(limited(state))
    completion = _search_by_cost(cursor, _MAX_TRIES_BY_LENGTH, _by_length)
    if completion is not None:
        return completion
    completion = walk()
    if completion is None and is_json and hints:
        completion = walk(writes_hints=True)
    if completion is None:
        completion = walk(is_reversed=True)
    if completion is not None:
        return _shorten(cursor, completion) if len(completion) <= _MAX_SHORTENED_BYTES else completion
    completion = _search_by_cost(cursor, _MAX_TRIES_BY_REVISITS, _by_revisits)
    if not completion:
        completion = _search_by_cost(cursor, _MAX_TRIES_BY_LENGTH, _by_revisits, tries_every_byte=True)
    if completion is None:
        raise GrammarError("no way to complete the sentence was found")
    return _shorten(cursor, completion)


def _by_length(candidate: _Candidate) -> tuple[int, int]:
    return len(candidate.added_text), 0


def _by_revisits(candidate: _Candidate) -> tuple[int, int]:
    return candidate.revisits, -len(candidate.added_text)


def _search_by_cost(
    cursor: _Cursor, max_tries: int, cost_of: _Cost, tries_every_byte: bool = False
) -> bytes | None:
    """Return the completion of the lowest cost; None if no completion is found."""
    # Candidates with the same mask and the same first number of the cost are equivalent. ``tries_every_byte``:
    # whether all bytes are tried, instead of one byte of each large group.
    cursor.go_to(b"")
    start_candidate = _Candidate(b"", cursor.state.mask(), frozenset(), 0)
    equivalent_counts: Counter[tuple[int, bytes]] = Counter()
    candidate_heap = [((0, 0), 0, start_candidate)]
    pushed_count = step_count = 0
    for _ in range(max_tries):
        if not candidate_heap or step_count > _MAX_STEPS:
            return None
        candidate = heapq.heappop(candidate_heap)[-1]
        cursor.go_to(candidate.added_text)
        if cursor.state.is_complete:
            return candidate.added_text
        texts = _next_texts(candidate, cursor.state.forced_text, tries_every_byte)
        step_count += len(texts)
        for extension in _extensions(candidate, cursor, texts):
            cost = cost_of(extension)
            equivalence_key = (cost[0], extension.mask.tobytes())
            equivalent_counts[equivalence_key] += 1
            pushed_count += 1
            if equivalent_counts[equivalence_key] <= _MAX_EQUIVALENT_CANDIDATES:
                heapq.heappush(candidate_heap, (cost, pushed_count, extension))
    return None


def _extensions(candidate: _Candidate, cursor: _Cursor, texts: list[bytes]) -> list[_Candidate]:
    """Return extensions of a candidate by these texts, one extension for each different mask."""
    extension_by_mask: dict[bytes, _Candidate] = {}
    earlier_masks = candidate.earlier_masks | {candidate.mask.tobytes()}
    for text in texts:
        added_text = candidate.added_text + text
        if cursor.go_to(added_text):
            mask = cursor.state.mask()
            mask_bytes = mask.tobytes()
            revisits = candidate.revisits + (mask_bytes in earlier_masks)
            extension_by_mask.setdefault(mask_bytes, _Candidate(added_text, mask, earlier_masks, revisits))
    return list(extension_by_mask.values())


def _next_texts(candidate: _Candidate, forced_text: bytes, tries_every_byte: bool) -> list[bytes]:
    """Return the texts by which a candidate is extended: the forced text, or single bytes."""
    if forced_text:
        return [forced_text]
    bytes_by_group: dict[str, list[int]] = {}
    for byte in np.flatnonzero(candidate.mask[:256]).tolist():
        bytes_by_group.setdefault(_byte_group(byte), []).append(byte)
    tried_bytes: list[int] = []
    for group, group_bytes in bytes_by_group.items():
        is_large = group != "sign" and len(group_bytes) > _MAX_GROUP_BYTES
        if is_large and not tries_every_byte:
            tried_bytes.append(group_bytes[0])
        else:
            tried_bytes += group_bytes
    return [bytes([byte]) for byte in tried_bytes]


def _byte_group(byte: int) -> str:
    """Return the group of a byte. To a grammar, letters usually mean the same; each sign has its own meaning."""
    if byte >= 0x80:
        return "non-ASCII"
    character = chr(byte)
    if character.isdigit():
        return "digit"
    return "letter" if character.isalpha() else "sign"


def _shorten(cursor: _Cursor, text: bytes) -> bytes:
    """Remove the parts that a completion does not need, long parts first."""
    removed_length = len(text) // 2
    trial_count = 0
    while removed_length and trial_count < _MAX_SHORTENING_TRIES:
        removed_start = 0
        while removed_start + removed_length <= len(text) and trial_count < _MAX_SHORTENING_TRIES:
            trial_count += 1
            shorter_text = text[:removed_start] + text[removed_start + removed_length :]
            if cursor.go_to(shorter_text) and cursor.state.is_complete:
                text = shorter_text
            else:
                removed_start += 1
        removed_length -= 1
    return text


def suppressed_tokens(vocabulary: Vocabulary) -> frozenset[int]:
    """Return the ids of the tokens that are never drawn; none if the vocabulary does not name any."""
    return frozenset(getattr(vocabulary, "suppressed", ()))


def spell(data: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """Return the ids of the fewest tokens that write ``data`` without a suppressed token; None if none can."""
    id_by_piece = dict(_usable_pieces(vocabulary))
    max_length = max(map(len, id_by_piece), default=0)
    # For each length, the number of tokens that write the first bytes of the data; inf if no tokens can
    token_counts = [0.0]
    last_tokens = [0]  # for each length, the last of these tokens
    for end in range(1, len(data) + 1):
        token_counts.append(inf)
        last_tokens.append(0)
        for start in range(max(end - max_length, 0), end):
            token = id_by_piece.get(data[start:end])
            if token is not None and token_counts[start] + 1 < token_counts[end]:
                token_counts[end] = token_counts[start] + 1
                last_tokens[end] = token
    if token_counts[-1] == inf:
        return None
    reversed_tokens: list[int] = []
    end = len(data)
    while end:
        token = last_tokens[end]
        reversed_tokens.append(token)
        end -= len(vocabulary.pieces[token])
    return reversed_tokens[::-1]


def bytes_without_token(vocabulary: Vocabulary) -> frozenset[int]:
    """Return the bytes for which no single token may be drawn."""
    single_bytes = {piece[0] for piece, _ in _usable_pieces(vocabulary) if len(piece) == 1}
    return frozenset(range(256)) - single_bytes


def _usable_pieces(vocabulary: Vocabulary) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes and the id of each token that is text and not suppressed, the highest id first."""
    excluded_ids = {*suppressed_tokens(vocabulary), *vocabulary.eog}
    for token in range(vocabulary.size - 1, -1, -1):
        if token not in excluded_ids and not vocabulary.is_control(token) and vocabulary.pieces[token]:
            yield vocabulary.pieces[token], token
