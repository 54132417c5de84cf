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
# Powers of a base up to this one do not overflow; the same number as in llama.cpp
_MAX_UNLIMITED_BASE = np.float32(1.000001)


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
        self._checked_size = 0  # the size of the vocabulary that the tokens were checked for
        self._checked_count = 0  # number of tokens that were checked
        self._last_breaker = LastBreakerTracker(self._breakers, self._history)
        self._repetitions: SuffixAutomaton | WindowSuffixMatcher
        if self.last_n < 0:
            self._repetitions = SuffixAutomaton(self._history)
        else:
            self._repetitions = WindowSuffixMatcher(self._history, self.last_n)

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
        if self._checked_size != size:
            self._checked_size = size
            self._checked_count = 0
        check_tokens("dry", self._history[self._checked_count :], size)
        self._checked_count = len(self._history)
        has_breakers = self._breakers.vocab_size > 0
        if has_breakers and self._breakers.vocab_size != size:
            raise SamplingError(f"dry: the row has {size} logits, the vocabulary {self._breakers.vocab_size}")

    def _lower_logits(self, candidates: Candidates, length_by_token: dict[int, int]) -> None:
        """Lower the logits of tokens that would continue a repetition, given the length of each repetition."""
        exempt_tokens = self._breakers.single_tokens
        if not exempt_tokens.isdisjoint(length_by_token):
            length_by_token = {token: n for token, n in length_by_token.items() if token not in exempt_tokens}
        if not length_by_token:
            return
        tokens = np.fromiter(length_by_token, np.intp, len(length_by_token))
        lengths = np.fromiter(length_by_token.values(), np.intp, len(length_by_token))
        positions, token_indexes = candidates.positions_of(tokens)
        if not positions.size:
            return
        max_length = int(lengths.max())
        if max_length >= self._penalties.size:
            self._penalties = self._compute_penalties(2 * max_length)  # twice, so that this is done seldom
        penalties = self._penalties[lengths[token_indexes]]
        candidates.set_logits_at(positions, candidates.logits[positions] - penalties)

    def _compute_penalties(self, max_length: int) -> Floats:
        """Return the penalties by the length of a repetition, for lengths up to ``max_length`` tokens, float32."""
        exponents = np.maximum(np.arange(max_length + 1, dtype=np.int32) - self.allowed_length, 0)
        base = np.float32(self.base)
        if base > _MAX_UNLIMITED_BASE:
            max_exponent = int(_LOG_MAX / np.float32(math.log(base)))
            if max_exponent > 0:
                exponents = np.minimum(exponents, max_exponent)
        with np.errstate(over="ignore"):
            powers = np.float64(base) ** exponents
            return (np.float64(np.float32(self.multiplier)) * powers).astype(np.float32)


# Least number of tokens by which the arrays grow. Larger arrays double, so that a token costs constant time.
_MIN_GROWTH_TOKENS = 256
Tokens = NDArray[np.int64]
Lengths = NDArray[np.int64]  # numbers of tokens
TokenPositions = NDArray[np.int64]  # positions of tokens in a text


class WindowSuffixMatcher:
    """A search for the tokens that would continue a repetition in the penalty window: the last n tokens of a text.

    Each position of the penalty window has a match length: the number of tokens up to the position that equal the
    last tokens of the text. A new token costs one comparison with the penalty window. If there is no limit n, a
    `SuffixAutomaton` finds the same tokens faster.
    """

    def __init__(self, tokens: Sequence[int], window: int) -> None:
        self._history = tokens
        self._window_length = window
        self._size = 0  # number of tokens that were read
        # The tokens and the match lengths by position. The arrays may be longer than the text.
        self._tokens: Tokens = np.zeros(0, dtype=np.int64)
        self._lengths: Lengths = np.zeros(0, dtype=np.int64)
        # The positions of the penalty window where the match length is not 0; None if no token was read yet
        self._matches: TokenPositions | None = None

    def followers(self, max_length: int, min_length: int) -> dict[int, int]:
        """Return the tokens that would continue a repetition, each with the length of its longest repetition."""
        matches = self._match_all() if self._matches is None else self._match_new(self._matches)
        self._matches = matches
        window_start = self._window_start
        positions = matches if min_length > 0 else np.arange(window_start, self._size - 1)
        lengths_in_window = positions - window_start + 1
        lengths = np.minimum(self._lengths[positions], np.minimum(lengths_in_window, max_length))
        is_long_enough = lengths >= min_length
        tokens = self._tokens[positions[is_long_enough] + 1]
        # The greatest length of each token, plus 1, so that 0 means "not a follower".
        longest = np.zeros(tokens.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, tokens, lengths[is_long_enough] + 1)
        followers = longest.nonzero()[0]
        return dict(zip(followers.tolist(), (longest[followers] - 1).tolist(), strict=True))

    @property
    def _window_start(self) -> int:
        """The first position of the penalty window."""
        return max(self._size - self._window_length, 0)

    def _match_all(self) -> TokenPositions:
        """Compute all match lengths; return the positions where the length is not 0."""
        self._size = len(self._history)
        self._tokens = np.array(self._history, dtype=np.int64)
        self._lengths = np.zeros(self._size, dtype=np.int64)
        window_start = self._window_start
        self._lengths[window_start:] = suffix_match_lengths(self._tokens[window_start:].tolist())
        return self._lengths.nonzero()[0]

    def _match_new(self, matches: TokenPositions) -> TokenPositions:
        """Read new tokens; return the positions of the penalty window where the match length is not 0."""
        for position in range(self._size, len(self._history)):
            if position == self._tokens.size:
                added_entries = np.zeros(max(position, _MIN_GROWTH_TOKENS), dtype=np.int64)
                self._tokens = np.concatenate([self._tokens, added_entries])
                self._lengths = np.concatenate([self._lengths, added_entries])
            token = self._history[position]
            matches = self._update_lengths(matches, token)
            self._tokens[position] = token
            self._size += 1
        return matches[matches.searchsorted(self._window_start) :]

    def _update_lengths(self, matches: TokenPositions, next_token: int) -> TokenPositions:
        """Update the match lengths for the next token of the text; return the positions where it occurs."""
        # At a position of the token, the match length is that of the position before, plus 1. Elsewhere it is 0.
        window_start = self._window_start
        positions = (self._tokens[window_start : self._size] == next_token).nonzero()[0] + window_start
        # Position 0 has no position before it. There, index -1 reads an unused entry.
        lengths = np.where(positions > 0, self._lengths[positions - 1], 0) + 1
        self._lengths[matches] = 0
        self._lengths[positions] = lengths
        return positions


def suffix_match_lengths(tokens: Sequence[int]) -> Lengths:
    """Return the match length of each position: the number of tokens up to it that equal the last tokens.

    The result is int64 (n,), with 0 for the last position.

    Source: the Z-algorithm on the reversed sequence. It takes linear time, since each successful comparison
    increases ``match_end``.
    """
    token_count = len(tokens)
    backwards = list(reversed(tokens))
    lengths = [0] * token_count
    # The match found so far that ends last: ``backwards`` begins with backwards[match_start:match_end].
    match_start = 0
    match_end = 0
    for position in range(1, token_count):
        length = 0
        if position < match_end:
            length = min(match_end - position, lengths[position - match_start])
        while position + length < token_count and backwards[length] == backwards[position + length]:
            length += 1
        lengths[position] = length
        if position + length > match_end:
            match_start = position
            match_end = position + length
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
        self._read_count = 0  # number of tokens that were added
        self._is_first_token_repeated = False
        # The lists are indexed by state. State 0 is the empty sequence.
        self._next: list[dict[int, int]] = [{}]  # the transitions of each state: the next state by token
        self._link = [-1]
        self._length = [0]  # the length of the longest sequence of each state
        self._state_of_text = 0  # the state of the entire text

    def followers(self, max_length: int, min_length: int) -> dict[int, int]:
        """Return the tokens that would continue a repetition, each with the length of its longest repetition."""
        for token in self._tokens[self._read_count :]:
            self._add(token)
        followers: dict[int, int] = {}
        if max_length < min_length or len(self._tokens) <= min_length:
            return followers
        # The last `min_length` tokens are the shortest repetition that counts. Its transitions are all followers.
        shortest_state = self._state_of_last_tokens(min_length)
        excluded: set[int] = set()
        if shortest_state == 0 and not self._is_first_token_repeated:
            excluded.add(self._tokens[0])  # no token precedes it, so that it follows no sequence
        follower_count = len(self._next[shortest_state]) - len(excluded)
        state = self._link[self._state_of_text]
        while len(followers) < follower_count and state >= 0 and self._length[state] >= min_length:
            skipped = followers.keys() if state else followers.keys() | excluded
            new_tokens = self._next[state].keys() - skipped if skipped else self._next[state]
            followers.update(dict.fromkeys(new_tokens, min(self._length[state], max_length)))
            state = self._link[state]
        return followers

    def _state_of_last_tokens(self, count: int) -> int:
        """Return the state of the last ``count`` tokens."""
        state = 0
        for token in self._tokens[len(self._tokens) - count :]:
            state = self._next[state][token]
        return state

    def _add(self, token: int) -> None:
        """Add one token: a transition from each suffix of the text, up to the first suffix that already has it."""
        if self._read_count > 0 and token == self._tokens[0]:
            self._is_first_token_repeated = True
        self._read_count += 1
        state = self._state_of_text
        new_state = self._add_state(transitions={}, link=0, length=self._length[state] + 1)
        self._state_of_text = new_state
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
        suffix_state = self._add_state(
            transitions=dict(self._next[target]), link=self._link[target], length=self._length[state] + 1
        )
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
_BLOCK_GROWTH = 8  # each block before has so many times more tokens


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
        """Collect breakers.

        Args:
            tails: for the first token of each breaker, the tokens that may follow it, such as ``[[7], [8, 9]]``.
                An empty list of tokens means that the first token is a breaker by itself.
            vocab_size: the size of the vocabulary; 0 if there are no breakers.
            single_tokens: more tokens that are a breaker by themselves.
        """
        self.vocab_size = vocab_size
        all_single_tokens = set(single_tokens)
        self._tails: dict[int, list[tuple[int, ...]]] = {}  # by first token, the longest tail first
        for first, token_tails in tails.items():
            distinct_tails = {tuple(tail) for tail in token_tails if tail}
            self._tails[first] = sorted(distinct_tails, key=len, reverse=True)
            if not all(token_tails):
                all_single_tokens.add(first)
        self.single_tokens = frozenset(all_single_tokens)
        self._is_first = np.zeros(vocab_size, dtype=np.bool_)
        self._is_first[[*tails, *self.single_tokens]] = True
        self.max_tail = max((len(tail) for token_tails in self._tails.values() for tail in token_tails), default=0)

    @classmethod
    def all_spellings(cls, texts: Sequence[str], vocabulary: Vocabulary) -> SequenceBreakers:
        """Return all token sequences that write one of some strings."""
        # Other bytes may precede or follow the string in these tokens. The first token may contain only a
        # beginning of the string. The rest of the string is then tokenized separately. As in llama.cpp, only the
        # first 40 bytes of a string and the first 20 tokens of its rest count.
        tails: dict[int, set[tuple[int, ...]]] = {}
        single_tokens: set[int] = set()
        tokens_of_rest: dict[bytes, list[int] | None] = {}
        index = pieces_index(vocabulary)
        for text in dict.fromkeys(texts):
            data = encode_utf8(text, "breakers")[:_MAX_BREAKER_BYTES]
            containing_tokens = set(index.containing(data))
            single_tokens |= containing_tokens
            for first_tokens, rest in tokens_starting(data, index):
                if rest not in tokens_of_rest:
                    tokens_of_rest[rest] = _tokenize_rest(rest, vocabulary)
                tokens = tokens_of_rest[rest]
                if tokens is None:
                    continue
                tail = tuple(tokens[:_MAX_TAIL_TOKENS])
                for first in set(first_tokens.tolist()) - containing_tokens:
                    tails.setdefault(first, set()).add(tail)
        return cls(tails, vocabulary.size, single_tokens)

    @classmethod
    def single_token_breakers(cls, texts: Sequence[str], vocabulary: Vocabulary) -> SequenceBreakers:
        """Return breakers of one token each: for each string, the last token of "a" followed by the string."""
        tokens = {vocabulary.tokenize(b"a" + encode_utf8(text, "breakers"))[-1] for text in texts}
        return cls(tails={}, vocab_size=vocabulary.size, single_tokens=tokens)

    def last(self, tokens: Tokens) -> BreakerPosition | None:
        """Return the position of the last breaker in ``tokens``; None if there is none."""
        if not self.single_tokens and not self._tails:
            return None
        block_end = tokens.size
        block_tokens = _FIRST_BLOCK_TOKENS
        while block_end > 0:
            block_start = max(block_end - block_tokens, 0)
            possible_starts = self._is_first[tokens[block_start:block_end]].nonzero()[0] + block_start
            for position in possible_starts[::-1].tolist():
                breaker = self._breaker_at(position, tokens)
                if breaker is not None:
                    return breaker
            block_end = block_start
            block_tokens *= _BLOCK_GROWTH
        return None

    def _breaker_at(self, position: int, tokens: Tokens) -> BreakerPosition | None:
        """Return the longest breaker that begins at a position; None if no breaker begins there."""
        first = int(tokens[position])
        next_tokens = tuple(tokens[position + 1 : position + 1 + self.max_tail].tolist())
        for tail in self._tails.get(first, ()):
            if next_tokens[: len(tail)] == tail:
                return BreakerPosition(position, position + 1 + len(tail))
        if first in self.single_tokens:
            return BreakerPosition(position, position + 1)
        return None


class BreakerPosition(NamedTuple):
    """The position of a breaker in a sequence of tokens."""

    first: int  # position of the first token of the breaker
    after: int  # position of the token that follows the breaker


def _tokenize_rest(rest: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """Return the tokens of the rest of a string; None if the vocabulary has no tokens for these bytes."""
    # If the rest begins inside a character, each of its bytes becomes a token. llama.cpp tokenizes it as a
    # replacement character.
    try:
        rest.decode()
    except UnicodeDecodeError:
        index = pieces_index(vocabulary)
        tokens_of_bytes = [index.equal_to(bytes([byte])) for byte in rest]
        if not all(tokens_of_bytes):
            return None
        return [tokens[0] for tokens in tokens_of_bytes]
    return vocabulary.tokenize(rest)


# Number of lists of breakers whose tokens are kept for each vocabulary. Clients send the same list each time.
_MAX_KEPT_LISTS = 32


def _find_breakers(texts: Sequence[str], match: str, vocabulary: Vocabulary) -> SequenceBreakers:
    """Return the breakers of a list, which are found once. ``match``: see `Dry`."""
    kept_breakers = once_for_vocabulary(
        vocabulary, "breakers", lambda _: dict[tuple[str, ...], SequenceBreakers]()
    )
    key = (match, *texts)
    breakers = kept_breakers.pop(key, None)
    if breakers is None:
        find = SequenceBreakers.all_spellings if match == "overlap" else SequenceBreakers.single_token_breakers
        breakers = find(texts, vocabulary)
    kept_breakers[key] = breakers  # the dict is ordered by last use
    while len(kept_breakers) > _MAX_KEPT_LISTS:
        least_recently_used = next(iter(kept_breakers))
        kept_breakers.pop(least_recently_used, None)
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
        if self._read_count < text_length:
            # A breaker that ends among the new tokens may begin before them.
            start = max(self._read_count - self._breakers.max_tail, 0)
            position = self._breakers.last(np.array(self._tokens[start:], dtype=np.int64))
            if position is not None:
                self._position = BreakerPosition(start + position.first, start + position.after)
            self._read_count = text_length
        is_in_window = self._position.first >= text_length - window_length
        return text_length - self._position.after if is_in_window else window_length
