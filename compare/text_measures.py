"""The measures of a text, by itself or together with the other texts of its prompt.

A word is a run of letters and digits, or another single character except a space. The case of letters is ignored.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, nan
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..samplers.loop_guard import LoopDetector, LoopGuard

ItemT = TypeVar("ItemT")

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class MeasuredText:
    """A text with the facts that the measures need, read from the results of a comparison."""

    # A `BatchAnswer` does not fit: results of an earlier run are in a file, and many whole answers would not fit
    # into memory.

    text: str
    tokens: tuple[int, ...]  # ids of its tokens
    finish_reason: str  # why the text ended
    # means over all tokens, by the names ``surprise``, ``entropy``, ``chain_surprise``, ``chain_entropy`` and
    # ``kept``; NaN if the text has no tokens
    values: Mapping[str, float]

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> MeasuredText:
        """Return the text of a line of results, whose tokens have logprobs of both sources."""
        tokens = result["tokens"]
        chains = [token["chain"] for token in tokens]
        values = {
            "surprise": _mean(_negative(token["logprob"] for token in tokens)),
            "entropy": _mean(token["entropy"] for token in tokens),
            "chain_surprise": _mean(_negative(chain["logprob"] for chain in chains)),
            "chain_entropy": _mean(chain["entropy"] for chain in chains),
            "kept": _mean(chain["kept"] for chain in chains),
        }
        return cls(result["text"], tuple(token["id"] for token in tokens), result["finish_reason"], values)


class Measure(NamedTuple):
    name: str  # the name in JSON and CSV
    title: str  # the name in tables and plots
    meaning: str  # what the measure is, in a sentence
    # returns the value of a text, NaN if it has none; None if the measure needs all texts of a prompt
    of_text: Callable[[MeasuredText], float] | None
    decimals: int = 3  # number of decimals that are shown
    maximum: float = inf  # the largest possible value; the least one is 0
    is_share: bool = False  # True if the value of a text is 0 or 1


def measure_texts(measure: Measure, texts: Sequence[MeasuredText | None]) -> list[float]:
    """Return the value of each text of one prompt and arm; NaN for a text that is missing or has no value."""
    if measure.of_text is not None:
        return [nan if text is None else measure.of_text(text) for text in texts]
    scores = iter(self_bleu([words_of(text.text) for text in texts if text is not None]))
    return [nan if text is None else next(scores) for text in texts]


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.casefold())


def distinct(items: Sequence[object], n: int) -> float:
    """Return the share of different n-grams among all (Li et al. 2016); NaN if there are no n-grams."""
    ngrams = list(_ngrams(items, n))
    return len(set(ngrams)) / len(ngrams) if ngrams else nan


def _ngrams(items: Sequence[ItemT], n: int) -> Iterable[tuple[ItemT, ...]]:
    return zip(*(items[start:] for start in range(n)), strict=False)


def repetition(text: MeasuredText) -> float:
    """Return seq-rep-4: the share of sequences of four tokens that occurred before (Welleck et al. 2020)."""
    return 1 - distinct(text.tokens, 4)


def loops(text: MeasuredText) -> float:
    """Return 1 if a `LoopGuard` with default parameters finds a loop in the text, otherwise 0."""
    detector = LoopDetector(LoopGuard())
    has_loop = any(detector.push(token) is not None for token in text.tokens)
    return float(has_loop)


def compression_ratio(text: MeasuredText) -> float:
    """Return the size of the text after zlib, level 9, divided by its size in UTF-8; NaN for an empty text."""
    data = text.text.encode(errors="surrogatepass")
    return len(zlib.compress(data, 9)) / len(data) if data else nan


def has_ended(text: MeasuredText) -> float:
    """Return 1 if the model ended the text, by a token or a stop string, otherwise 0."""
    return float(text.finish_reason in ("stop", "grammar"))


_MAX_ORDER = 4  # BLEU compares n-grams of up to four words


def self_bleu(texts: Sequence[Sequence[str]]) -> list[float]:
    """Return BLEU-4 of each text, 0 to 1, with the other texts as references (Zhu et al. 2018)."""
    # NaN for one text.
    # BLEU = b exp(mean ln p_n) for n = 1 … min(4, words). p_n is the share of the text's n-grams that a reference
    # contains, too. An n-gram counts at most as often as in the reference that has it most often. If p_n is 0 for
    # the k-th time, 1 / (2^k total) replaces it. b = min(1, exp(1 - r / c)), where c is the number of words in the
    # text, and r that in the reference of the nearest length. The result times 100 equals sacrebleu's sentence
    # BLEU with effective order and exponential smoothing on these words.
    if len(texts) < 2:
        return [nan] * len(texts)
    matches_by_order = [_matches_of_texts(texts, n) for n in range(1, _MAX_ORDER + 1)]
    lengths = [len(words) for words in texts]
    scores = []
    for index, length in enumerate(lengths):
        matches = [matches_of_texts[index] for matches_of_texts in matches_by_order]
        reference_lengths = lengths[:index] + lengths[index + 1 :]
        scores.append(_bleu(matches, length, _nearest(reference_lengths, length)))
    return scores


def _nearest(lengths: Sequence[int], length: int) -> int:
    """Return the nearest of some lengths; of two equally near ones, the shorter."""
    return min(lengths, key=lambda other: (abs(other - length), other))


class _Matches(NamedTuple):
    """The n-grams of a text for one n."""

    matched: int  # number of those that a reference contains, too
    total: int


def _matches_of_texts(texts: Sequence[Sequence[str]], n: int) -> list[_Matches]:
    """Return for each text how many of its n-grams the other texts contain."""
    counts_of_texts = [Counter(_ngrams(words, n)) for words in texts]
    top_counts = _top_counts(counts_of_texts)
    return [
        _Matches(
            matched=sum(_clipped(count, top_counts[ngram]) for ngram, count in counts.items()),
            total=counts.total(),
        )
        for counts in counts_of_texts
    ]


class _TopCounts(NamedTuple):
    """The two highest counts of an n-gram in different texts."""

    highest: int
    second: int  # equals the highest one if two texts have it


def _top_counts(counts_of_texts: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], _TopCounts]:
    top_counts: dict[tuple[str, ...], _TopCounts] = {}
    for counts in counts_of_texts:
        for ngram, count in counts.items():
            highest, second = top_counts.get(ngram, _TopCounts(0, 0))
            if count > highest:
                top_counts[ngram] = _TopCounts(count, highest)
            else:
                top_counts[ngram] = _TopCounts(highest, max(second, count))
    return top_counts


def _clipped(count: int, top_counts: _TopCounts) -> int:
    """Return the count of an n-gram in a text, limited to its highest count in another text."""
    is_highest = count == top_counts.highest
    return top_counts.second if is_highest else count


def _bleu(matches_by_order: Sequence[_Matches], length: int, reference_length: int) -> float:
    """Return the BLEU of a text; ``matches_by_order``: for n = 1, 2, …"""
    has_common_word = matches_by_order[0].matched > 0
    if not has_common_word:
        return 0.0
    log_precisions = []
    smoothing = 1.0
    for matched, total in matches_by_order:
        if not total:  # the text has fewer than n words
            break
        if not matched:
            smoothing *= 2
            log_precisions.append(log(1 / (smoothing * total)))
        else:
            log_precisions.append(log(matched / total))
    brevity_penalty = 1.0 if length >= reference_length else exp(1 - reference_length / length)
    return brevity_penalty * exp(sum(log_precisions) / len(log_precisions))


def _negative(values: Iterable[float | None]) -> Iterable[float | None]:
    return (None if value is None else -value for value in values)


def _mean(values: Iterable[float | None]) -> float:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else nan


def _value_of(name: str) -> Callable[[MeasuredText], float]:
    """Return a function that returns this one of `MeasuredText.values`."""
    return lambda text: text.values[name]


def _distinct_words(n: int) -> Callable[[MeasuredText], float]:
    """Return a function that returns distinct-n of a text's words."""
    return lambda text: distinct(words_of(text.text), n)


def _token_count(text: MeasuredText) -> float:
    return float(len(text.tokens))


# All measures, in the order of tables
MEASURES = (
    Measure("distinct_1", "distinct-1", "share of different words in a text", _distinct_words(1), maximum=1),
    Measure("distinct_2", "distinct-2", "share of different word pairs in a text", _distinct_words(2), maximum=1),
    Measure(
        "distinct_3", "distinct-3", "share of different word triples in a text", _distinct_words(3), maximum=1
    ),
    Measure("self_bleu", "self-BLEU", "likeness of a text to the others of its prompt", None, maximum=1),
    Measure("seq_rep_4", "seq-rep-4", "share of runs of 4 tokens that occurred before", repetition, maximum=1),
    Measure(
        "loops", "loops", "share of texts that repeat themselves without end", loops, maximum=1, is_share=True
    ),
    Measure("length", "length", "tokens of a text", _token_count, decimals=1),
    Measure("ended", "ended", "share of texts that the model ended", has_ended, maximum=1, is_share=True),
    Measure("surprise", "surprise", "mean surprise to the model, nats", _value_of("surprise")),
    Measure("entropy", "entropy", "mean entropy of the model, nats", _value_of("entropy")),
    Measure(
        "chain_surprise", "chain surprise", "mean surprise after the chain, nats", _value_of("chain_surprise")
    ),
    Measure("chain_entropy", "chain entropy", "mean entropy after the chain, nats", _value_of("chain_entropy")),
    Measure("kept", "kept", "mean number of tokens that the chain keeps", _value_of("kept"), decimals=1),
    Measure("zlib", "zlib", "size after compression, as a share", compression_ratio),
)
