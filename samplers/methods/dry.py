"""DRY: tokens that would continue a repetition are penalized by the length of the repetition.

`WindowSuffixMatcher` finds repetitions in the last n tokens of a text, `SuffixAutomaton` in the entire text.
`SequenceBreakers` are strings, as tokens, across which no repetition is counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import BuildContext, ListParameter, Sampler, SamplerInfo, Stage, Vocabulary, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..kernels import Floats
from ..stages import logit_changes, token_count
from ..tokens import check_tokens, encode_utf8, once_for_vocabulary, pieces_index, tokens_starting

if TYPE_CHECKING:
    from ..stages import StageCandidates

# ln of the greatest float32, FLOAT_MAX_LOG in llama.cpp. Greater exponents of e overflow.
_LOG_MAX = np.float32(88.7228391)


class Dry(Sampler):
    """Lower the logits of tokens that would continue a repetition of the text.

    Formula: logit_i - multiplier * base^(n - allowed_length), if n >= allowed_length, where n is the greatest
    number for which the last n tokens also occur earlier in the penalty window, followed by token i. Logits are
    float32. The power is float64, and its exponent is limited so that float32 does not overflow. A repetition does
    not extend across a breaker, and a token that is a breaker by itself has no penalty. ``match: overlap`` finds a
    breaker wherever tokens overlap its text (llama.cpp, KoboldCpp); ``last_token`` uses only the last token of "a"
    + text (text-generation-webui). The penalty window is the last ``last_n`` tokens of prompt and output (-1: all,
    0: off).

    Neutral at multiplier 0, base below 1 or last_n 0. Raises ``SamplingError`` for breakers without a vocabulary.
    The time of a step is proportional to the number of penalized tokens, at any length of the text. With last_n,
    one comparison with the penalty window is added. Source: p-e-w 2024. Equals llama.cpp's ``dry``.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="dry",
        summary="make tokens less likely that would continue a repetition",
        formula="logit_i - multiplier * base^(n - allowed_length),  n >= allowed_length tokens repeated so far",
        reference="p-e-w 2024, DRY, text-generation-webui PR 5677; pi6am, KoboldCpp PR 982",
        llama_cpp="equal with match: overlap",
        main_parameter="multiplier",
        example=0.8,
        off_values={"multiplier": 0.0},
        aliases=("dry_multiplier",),
        stage=Stage.DRY,
    )

    multiplier: float = Field(default=0.0, ge=0, description="strength; 0 = off, 0.8 is usual")
    base: float = Field(
        default=1.75, ge=0, description="factor of the penalty for each additional repeated token; below 1 = off"
    )
    allowed_length: int = Field(
        default=2, ge=0, description="number of tokens; shorter repetitions have no penalty"
    )
    last_n: int = Field(default=-1, ge=-1, description="tokens to look back; 0 = off, -1 = all")
    breakers: Annotated[list[str], ListParameter()] = Field(
        default_factory=lambda: ["\n", ":", '"', "*"], description="strings across which no repetition is counted"
    )
    match: Literal["overlap", "last_token"] = Field(
        default="overlap", description="find a breaker wherever tokens overlap it, or only by its last token"
    )

    __slots__ = (
        "_breakers",
        "_checked_count",
        "_checked_size",
        "_history",
        "_last_breaker",
        "_penalties",
        "_repetitions",
    )

    @property
    def is_neutral(self) -> bool:
        """True also for a base below 1 or an empty penalty window, as in llama.cpp."""
        return self.multiplier == 0 or self.base < 1 or self.last_n == 0

    def bind(self, context: BuildContext) -> None:
        self._penalties: Floats = np.zeros(0, dtype=np.float32)
        texts = [text for text in self.breakers if text]
        if self.is_neutral or not texts:
            self._breakers = SequenceBreakers({}, 0)
            return
        self._breakers = _find_breakers(texts, self.match, need_vocabulary(context, "breakers"))

    def reset(self, prompt: Sequence[int]) -> None:
        self._history = list(prompt)
        self._checked_size = self._checked_count = 0
        self._last_breaker = LastBreakerTracker(self._breakers, self._history)
        self._repetitions: SuffixAutomaton | WindowSuffixMatcher = (
            SuffixAutomaton(self._history) if self.last_n < 0 else WindowSuffixMatcher(self._history, self.last_n)
        )

    def accept(self, token: int) -> None:
        self._history.append(token)

    def rewind(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.reset([*prompt, *output])

    def apply(self, candidates: Candidates) -> None:
        if self.is_neutral:
            return
        text_length = len(self._history)
        window_length = text_length if self.last_n < 0 else min(text_length, self.last_n)
        if window_length <= self.allowed_length:
            return
        self._check_vocabulary(candidates.vocab_size)
        max_length = self._last_breaker.distance(window_length)
        if max_length >= self.allowed_length:
            self._lower_logits(candidates, self._repetitions.followers(max_length, self.allowed_length))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if not after.changes_since(before).size:
            return f"no token would continue a repetition of {token_count(self.allowed_length)} or more"
        return logit_changes(before, after)

    def _check_vocabulary(self, size: int) -> None:
        """Raise ``SamplingError`` if new tokens or the vocabulary of the breakers do not fit ``size`` tokens."""
        checked_count = self._checked_count if self._checked_size == size else 0
        check_tokens("dry", self._history[checked_count:], size)
        self._checked_size, self._checked_count = size, len(self._history)
        if self._breakers.vocab_size not in (0, size):
            raise SamplingError(f"dry: the row has {size} logits, the vocabulary {self._breakers.vocab_size}")

    def _lower_logits(self, candidates: Candidates, lengths: dict[int, int]) -> None:
        if not self._breakers.single_tokens.isdisjoint(lengths):
            lengths = {token: n for token, n in lengths.items() if token not in self._breakers.single_tokens}
        if not lengths:
            return
        positions, order = candidates.positions_of(np.fromiter(lengths, np.intp, len(lengths)))
        if not positions.size:
            return
        max_length = max(lengths.values())
        if max_length >= self._penalties.size:
            self._penalties = self._compute_penalties(2 * max_length)
        penalties = self._penalties[np.fromiter(lengths.values(), np.intp, len(lengths))[order]]
        candidates.set_logits_at(positions, candidates.logits[positions] - penalties)

    def _compute_penalties(self, max_length: int) -> Floats:
        """Return the penalties by the length of a repetition, for lengths up to ``max_length`` tokens, float32."""
        exponents = np.maximum(np.arange(max_length + 1, dtype=np.int32) - self.allowed_length, 0)
        base = np.float32(self.base)
        if base > np.float32(1.000001):
            max_exponent = int(_LOG_MAX / np.float32(math.log(base)))
            exponents = np.minimum(exponents, max_exponent) if max_exponent > 0 else exponents
        with np.errstate(over="ignore"):
            powers = np.float64(base) ** exponents
            return (np.float64(np.float32(self.multiplier)) * powers).astype(np.float32)


# Least number of tokens by which the arrays grow. Larger arrays double, so that a token costs constant time.
_MIN_GROWTH_TOKENS = 256
Tokens = NDArray[np.int64]


class WindowSuffixMatcher:
    """A search for the tokens that would continue a repetition in the penalty window: the last n tokens of a text.

    Each position of the penalty window has a match length: the number of tokens up to the position that equal the
    last tokens of the text. A new token costs one comparison with the penalty window. If there is no limit n, a
    `SuffixAutomaton` finds the same tokens faster.
    """

    def __init__(self, tokens: Sequence[int], window: int) -> None:
        self._history = tokens
        self._window_length = window
        self._size = 0
        self._tokens: Tokens = np.zeros(0, dtype=np.int64)
        self._lengths: Tokens = np.zeros(0, dtype=np.int64)
        self._matches: Tokens | None = None

    def followers(self, max_length: int, min_length: int) -> dict[int, int]:
        """Return the tokens that would continue a repetition, each with the length of the longest one."""
        matches = self._match_all() if self._matches is None else self._match_new(self._matches)
        self._matches = matches
        first, last = self._first, self._size - 1
        positions = matches if min_length > 0 else np.arange(first, last)
        lengths = np.minimum(self._lengths[positions], np.minimum(positions - first + 1, max_length))
        is_long_enough = lengths >= min_length
        tokens = self._tokens[positions[is_long_enough] + 1]
        # The longest length of each token, plus 1, so that 0 means "not a follower".
        longest = np.zeros(tokens.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, tokens, lengths[is_long_enough] + 1)
        followers = longest.nonzero()[0]
        return dict(zip(followers.tolist(), (longest[followers] - 1).tolist(), strict=True))

    @property
    def _first(self) -> int:
        """The first position of the penalty window."""
        return max(self._size - self._window_length, 0)

    def _match_all(self) -> Tokens:
        """Compute all match lengths; return the positions where the length is not 0."""
        self._size = len(self._history)
        self._tokens = np.array(self._history, dtype=np.int64)
        self._lengths = np.zeros(self._size, dtype=np.int64)
        self._lengths[self._first :] = suffix_match_lengths(self._tokens[self._first :].tolist())
        return self._lengths.nonzero()[0]

    def _match_new(self, matches: Tokens) -> Tokens:
        """Read new tokens; return the positions of the penalty window where the match length is not 0."""
        for at in range(self._size, len(self._history)):
            if at == self._tokens.size:
                capacity = np.zeros(max(at, _MIN_GROWTH_TOKENS), dtype=np.int64)
                self._tokens = np.concatenate([self._tokens, capacity])
                self._lengths = np.concatenate([self._lengths, capacity])
            matches = self._extend(matches, self._history[at])
            self._tokens[at] = self._history[at]
            self._size += 1
        return matches[matches.searchsorted(self._first) :]

    def _extend(self, matches: Tokens, token: int) -> Tokens:
        """Update the match lengths for one more token."""
        # Where it occurs, the length of the position before grows by 1.
        first = self._first
        positions = (self._tokens[first : self._size] == token).nonzero()[0] + first
        # Position 0 has no position before it. There, index -1 reads an unused entry.
        lengths = np.where(positions > 0, self._lengths[positions - 1], 0) + 1
        self._lengths[matches] = 0
        self._lengths[positions] = lengths
        return positions


def suffix_match_lengths(tokens: Sequence[int]) -> Tokens:
    """Return the match length of each position: the number of tokens up to it that equal the last tokens.

    The result is int64 (n,), with 0 for the last position.

    Source: the Z-algorithm on the reversed sequence. It takes linear time, since each successful comparison
    increases ``right``.
    """
    token_count = len(tokens)
    backwards = list(reversed(tokens))
    lengths = [0] * token_count
    left = right = 0
    for position in range(1, token_count):
        length = min(right - position, lengths[position - left]) if position < right else 0
        while position + length < token_count and backwards[length] == backwards[position + length]:
            length += 1
        lengths[position] = length
        if position + length > right:
            left, right = position, position + length
    return np.array(lengths[::-1], dtype=np.int64)


class SuffixAutomaton:
    """All token sequences that occur in a text, as states with links between them.

    A state stands for the sequences that end at the same positions of the text. The link of a state leads to the
    state of the longest suffix that also ends at other positions. So the links from the state of the entire text
    lead through all suffixes that occur in the text at least twice, the longest first. The transitions of a state
    are the tokens that have followed its sequences.

    Adding a token takes amortized constant time, even if one token repeats throughout the text. Each token takes
    about 400 bytes of memory. Source: Blumer et al. 1985.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._read_count = 0
        self._is_first_repeated = False
        # The lists are indexed by state. State 0 is the empty sequence. `_length` has the length of the longest
        # sequence of each state.
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = 0

    def followers(self, max_length: int, min_length: int) -> dict[int, int]:
        """Return the tokens that would continue a repetition, each with the length of the longest one."""
        for at in range(self._read_count, len(self._tokens)):
            self._extend(self._tokens[at])
            self._read_count += 1
        followers: dict[int, int] = {}
        if max_length < min_length or len(self._tokens) <= min_length:
            return followers
        shortest = self._state_of_last_tokens(min_length)
        # The first token of the text follows no sequence, not even the empty one.
        excluded = set() if shortest or self._is_first_repeated else {self._tokens[0]}
        follower_count = len(self._next[shortest]) - len(excluded)
        state = self._link[self._end]
        while len(followers) < follower_count and state >= 0 and self._length[state] >= min_length:
            skipped = followers.keys() if state else followers.keys() | excluded
            new_tokens = self._next[state].keys() - skipped if skipped else self._next[state]
            followers.update(dict.fromkeys(new_tokens, min(self._length[state], max_length)))
            state = self._link[state]
        return followers

    def _state_of_last_tokens(self, count: int) -> int:
        """Return the state of the last ``count`` tokens. Its transitions include every follower to be returned."""
        state = 0
        for token in self._tokens[len(self._tokens) - count :]:
            state = self._next[state][token]
        return state

    def _extend(self, token: int) -> None:
        """Add one token: a transition from each suffix of the text, up to the first suffix that already has it."""
        self._is_first_repeated = self._is_first_repeated or (self._read_count > 0 and token == self._tokens[0])
        new_state = self._add_state({}, 0, self._length[self._end] + 1)
        state, self._end = self._end, new_state
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new_state
            state = self._link[state]
        if state < 0:
            return
        target = self._next[state][token]
        if self._length[target] > self._length[state] + 1:
            target = self._split(state, token, target)
        self._link[new_state] = target

    def _split(self, state: int, token: int, target: int) -> int:
        """Split off the sequences of ``target`` that are suffixes of the text; return their new state."""
        suffix_state = self._add_state(dict(self._next[target]), self._link[target], self._length[state] + 1)
        self._link[target] = suffix_state
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = suffix_state
            state = self._link[state]
        return suffix_state

    def _add_state(self, transitions: dict[int, int], link: int, length: int) -> int:
        self._next.append(transitions)
        self._link.append(link)
        self._length.append(length)
        return len(self._next) - 1


# MAX_CHAR_LEN and MAX_SEQ_LEN in llama.cpp (llama_sampler_init_dry), which keep the time of the search linear.
_MAX_BREAKER_BYTES = 40
_MAX_TAIL_TOKENS = 20

# Number of tokens at the end of the text that are searched first. Most texts have a breaker among them.
_FIRST_BLOCK_TOKENS = 256


class SequenceBreakers:
    """The token sequences that break a repetition.

    Attributes:
        single_tokens: ids of the tokens that are a breaker by themselves.
        max_tail: greatest number of tokens after the first token of a breaker.
        vocab_size: the size of the vocabulary; 0 if there are no breakers.
    """

    def __init__(
        self, tails: Mapping[int, Collection[Sequence[int]]], vocab_size: int, single_tokens: Iterable[int] = ()
    ) -> None:
        self._tails = {
            first: sorted({tuple(tail) for tail in token_tails if tail}, key=len, reverse=True)
            for first, token_tails in tails.items()
        }
        self.vocab_size = vocab_size
        complete = {first for first, token_tails in tails.items() if any(not tail for tail in token_tails)}
        self.single_tokens = frozenset(complete.union(single_tokens))
        self._is_first = np.zeros(vocab_size, dtype=np.bool_)
        self._is_first[[*tails, *self.single_tokens]] = True
        self.max_tail = max(
            (len(token_tails[0]) for token_tails in self._tails.values() if token_tails), default=0
        )

    @classmethod
    def all_spellings(cls, texts: Sequence[str], vocabulary: Vocabulary) -> SequenceBreakers:
        """Return all token sequences that write one of some strings."""
        # Other bytes may precede or follow the string in these tokens. The part of a string that the first token
        # does not contain is tokenized separately. As in llama.cpp, only the first 40 bytes of a string and the
        # first 20 tokens of this part count. If this part begins inside a character, each of its bytes becomes a
        # token; llama.cpp tokenizes it as a replacement character.
        tails: dict[int, set[tuple[int, ...]]] = {}
        single_tokens: set[int] = set()
        tokens_of_rest: dict[bytes, list[int] | None] = {}
        index = pieces_index(vocabulary)
        for text in dict.fromkeys(texts):
            data = encode_utf8(text, "breakers")[:_MAX_BREAKER_BYTES]
            containing = set(index.containing(data))
            single_tokens |= containing
            for ids, rest in tokens_starting(data, index):
                if rest not in tokens_of_rest:
                    tokens_of_rest[rest] = _tokenize_rest(rest, vocabulary)
                tokens = tokens_of_rest[rest]
                if tokens is not None:
                    tail = tuple(tokens[:_MAX_TAIL_TOKENS])
                    for first in set(ids.tolist()) - containing:
                        tails.setdefault(first, set()).add(tail)
        return cls(tails, vocabulary.size, single_tokens)

    @classmethod
    def single_token_breakers(cls, texts: Sequence[str], vocabulary: Vocabulary) -> SequenceBreakers:
        """Return breakers of one token each: for each string, the last token of "a" followed by the string."""
        tokens = {vocabulary.tokenize(b"a" + encode_utf8(text, "breakers"))[-1] for text in texts}
        return cls({}, vocabulary.size, tokens)

    def last(self, tokens: NDArray[np.int64]) -> BreakerPosition | None:
        """Return the position of the last breaker in ``tokens``; None if there is none."""
        end = tokens.size if self.single_tokens or self._tails else 0
        block_tokens = _FIRST_BLOCK_TOKENS
        while end > 0:
            start = max(end - block_tokens, 0)
            for first in (self._is_first[tokens[start:end]].nonzero()[0][::-1] + start).tolist():
                token, following_tokens = (
                    int(tokens[first]),
                    tokens[first + 1 : first + 1 + self.max_tail].tolist(),
                )
                for tail in self._tails.get(token, ()):  # the longest first
                    if following_tokens[: len(tail)] == list(tail):
                        return BreakerPosition(first, first + 1 + len(tail))
                if token in self.single_tokens:
                    return BreakerPosition(first, first + 1)
            end, block_tokens = start, 8 * block_tokens
        return None


class BreakerPosition(NamedTuple):
    """The position of a breaker in a sequence of tokens."""

    first: int  # Position of the first token of the breaker
    after: int  # Position of the token that follows the breaker


def _tokenize_rest(rest_bytes: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """Return the tokens of the rest of a string; None if the vocabulary has no tokens for these bytes."""
    try:
        rest_bytes.decode()
    except UnicodeDecodeError:
        index = pieces_index(vocabulary)
        tokens_of_bytes = [index.equal_to(bytes([byte])) for byte in rest_bytes]
        return [tokens[0] for tokens in tokens_of_bytes] if all(tokens_of_bytes) else None
    return vocabulary.tokenize(rest_bytes)


# Number of lists of breakers whose tokens are kept for each vocabulary. Clients send the same list each time.
_MAX_KEPT_LISTS = 32


def _find_breakers(texts: Sequence[str], match: str, vocabulary: Vocabulary) -> SequenceBreakers:
    """Return the breakers of a list, which are found once. ``match``: see `Dry`."""
    kept = once_for_vocabulary(vocabulary, "breakers", lambda _: dict[tuple[str, ...], SequenceBreakers]())
    key = (match, *texts)
    breakers = kept.pop(key, None)
    if breakers is None:
        find = SequenceBreakers.all_spellings if match == "overlap" else SequenceBreakers.single_token_breakers
        breakers = find(texts, vocabulary)
    kept[key] = breakers  # the last one used is the last one in the dict
    while len(kept) > _MAX_KEPT_LISTS:
        kept.pop(next(iter(kept)), None)
    return breakers


class LastBreakerTracker:
    """The position of the last breaker in a text. A new token takes the same time at any length of the text."""

    def __init__(self, breakers: SequenceBreakers, tokens: Sequence[int]) -> None:
        """Prepare the search in ``tokens``. More tokens may be appended before each call of `distance`."""
        self._breakers = breakers
        self._tokens = tokens
        self._read_count = 0
        # Without a breaker the repetition may extend over the entire text.
        self._position = BreakerPosition(-1, 0)

    def distance(self, window_length: int) -> int:
        """Return the number of tokens after the last breaker in the penalty window, or the window's length."""
        text_length = len(self._tokens)
        # A breaker that ends among the new tokens may begin before them.
        start = max(self._read_count - self._breakers.max_tail, 0)
        if self._read_count < text_length:
            position = self._breakers.last(np.array(self._tokens[start:], dtype=np.int64))
            if position is not None:
                self._position = BreakerPosition(start + position.first, start + position.after)
            self._read_count = text_length
        return (
            text_length - self._position.after
            if self._position.first >= text_length - window_length
            else window_length
        )
