"""Beam search over any function that returns log-probabilities, with the semantics of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .request import BeamSearch

TokenIds = tuple[int, ...]  # the token ids of a text, without those of the prompt


class NextLogprobs(NamedTuple):
    """The log-probabilities of the tokens that may follow a text."""

    ids: NDArray[np.integer]  # token ids, integers (n,)
    logprobs: NDArray[np.float64]  # their log-probabilities in nats, float64 (n,); a token with -inf cannot follow


class FoundText(NamedTuple):
    """A text that a beam search has found."""

    tokens: TokenIds  # the token ids, with that of an end-of-generation token
    logprob: float  # the sum of the tokens' log-probabilities, in nats
    score: float  # ``logprob`` divided by the number of tokens to the power of the length penalty
    finish_reason: str  # the reason why the text ends


def search_beams(
    next_logprobs: Callable[[Sequence[TokenIds]], Sequence[NextLogprobs] | None],
    settings: BeamSearch,
    max_tokens: int,
    find_end: Callable[[TokenIds], str | None],
    *,
    length_reason: str = "length",
) -> list[FoundText]:
    """Return the texts with the best scores that a beam search finds, the best first: at most ``beam_count``."""
    # At each step, all continuations of the texts by one token are ordered by the sum of their log-probabilities.
    # Of the first ``beam_count`` continuations, those that end are found texts. The first ``beam_count`` that do
    # not end are continued. The best ``beam_count`` found texts are kept. `BeamSearch` says when the search ends.
    # Of equal sums, that of the better text comes first, then that of the earlier token in its row.
    # The result is that of ``GenerationMixin._beam_search`` of transformers 5 with ``do_sample=False`` for one
    # prompt, except in two cases. There, many texts that end at one step without an end-of-sequence token can
    # displace texts that could be continued. And where fewer than ``2 * beam_count`` continuations exist, texts
    # with a score of -1e9 fill places that stay empty here.
    beam_count = settings.beam_count
    penalty = settings.length_penalty
    running: list[tuple[TokenIds, float]] = [((), 0.0)]
    found: list[FoundText] = []
    for length in range(1, max_tokens + 1):
        rows = next_logprobs([tokens for tokens, _ in running])
        if rows is None:
            interrupted = [_found_text(tokens, logprob, penalty, "interrupted") for tokens, logprob in running]
            return _keep_best(found, interrupted, beam_count)
        continued: list[tuple[TokenIds, float]] = []
        ended: list[FoundText] = []
        for rank, (tokens, logprob) in enumerate(_best_continuations(running, rows, 2 * beam_count)):
            if rank >= beam_count and (length == max_tokens or len(continued) == beam_count):
                break
            reason = find_end(tokens) or (length_reason if length == max_tokens else None)
            if reason is None:
                continued.append((tokens, logprob))
            elif rank < beam_count:
                ended.append(_found_text(tokens, logprob, penalty, reason))
        found = _keep_best(found, ended, beam_count)
        running = continued[:beam_count]
        if not running:
            return found
        _, best_logprob = running[0]
        if _is_finished(found, best_logprob, length, max_tokens, settings):
            return found
    return found or [_found_text((), 0.0, penalty, length_reason)]


def _is_finished(
    found: Sequence[FoundText], best_logprob: float, length: int, max_tokens: int, settings: BeamSearch
) -> bool:
    """Return whether the search ends although texts of ``length`` tokens can be continued."""
    if len(found) < settings.beam_count:
        return False
    if settings.early_stopping is True:
        return True
    if settings.early_stopping == "never" and settings.length_penalty > 0:
        length = max_tokens  # the length with the highest score
    best_score = _score(best_logprob, length, settings.length_penalty)
    worst_found_score = found[-1].score
    return best_score <= worst_found_score


def _found_text(tokens: TokenIds, logprob: float, length_penalty: float, reason: str) -> FoundText:
    return FoundText(tokens, logprob, _score(logprob, len(tokens), length_penalty), reason)


def _score(logprob: float, length: int, length_penalty: float) -> float:
    return logprob / float(max(length, 1)) ** length_penalty


def _keep_best(found: Sequence[FoundText], ended: Sequence[FoundText], count: int) -> list[FoundText]:
    """Return the texts with the best scores, the best first; of equal scores, the text that was found first."""
    return sorted([*found, *ended], key=lambda text: -text.score)[:count]


def _best_continuations(
    texts: Sequence[tuple[TokenIds, float]], rows: Sequence[NextLogprobs], first_count: int
) -> Iterator[tuple[TokenIds, float]]:
    """Yield the continuations by one token with their sums, best first."""
    # ``first_count``: how many are probably needed. Only these are sorted, and the others if they are needed, too.
    sums = np.concatenate([logprob + row.logprobs for (_, logprob), row in zip(texts, rows, strict=True)])
    row_ends = np.cumsum([row.ids.size for row in rows])
    for position in _descending_positions(sums, first_count):
        text_index = int(np.searchsorted(row_ends, position, side="right"))
        row_ids = rows[text_index].ids
        row_start = int(row_ends[text_index]) - row_ids.size
        token = int(row_ids[position - row_start])
        tokens, _ = texts[text_index]
        yield (*tokens, token), float(sums[position])


def _descending_positions(values: NDArray[np.float64], first_count: int) -> Iterator[int]:
    """Yield the positions of all values above -inf, highest first; equal values in order."""
    # The highest ``first_count`` values are sorted first; then, as long as needed, eight times as many.
    upper_bound = np.inf
    count = first_count
    while upper_bound > -np.inf:
        lower_bound = -np.inf
        if count < values.size:
            lower_bound = float(np.partition(values, -count)[-count])
        positions = np.flatnonzero((values > -np.inf) & (values >= lower_bound) & (values < upper_bound))
        yield from positions[np.argsort(-values[positions], kind="stable")].tolist()
        upper_bound = lower_bound
        count *= 8
