"""The measures of a text, by itself or together with the other texts of its prompt.

Words are the runs of letters and digits, and single other characters except spaces; letters' case is ignored.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, nan
from typing import Any, NamedTuple

import numpy as np

from ..samplers.loop_guard import LoopDetector, LoopGuard

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class MeasuredText:
    """A text with the facts that the measures need, read from the results of a comparison."""

    # It cannot be a `BatchAnswer`: results of an earlier run are in a file, and many whole answers would not fit
    # into memory.

    text: str
    tokens: tuple[int, ...]  # ids of its tokens
    finish_reason: str  # why the text ended
    # the means over tokens: ``surprise``, ``entropy``, ``chain_surprise``, ``chain_entropy``, ``kept``; NaN if a
    # text has no tokens
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
    decimals: int  # number of decimals that are shown
    maximum: float  # the largest possible value; the least one is 0
    is_share: bool  # True if the value of a text is 0 or 1
    # returns the value of a text, NaN if it has none; None if the measure needs all texts of a prompt
    of_text: Callable[[MeasuredText], float] | None


def measure_texts(measure: Measure, texts: Sequence[MeasuredText | None]) -> list[float]:
    """Return the value of each text of one prompt and arm; NaN for a text that is missing or has no value."""
    if measure.of_text is not None:
        return [nan if text is None else measure.of_text(text) for text in texts]
    present = [index for index, text in enumerate(texts) if text is not None]
    scores = self_bleu([words_of(text.text) for text in texts if text is not None])
    values = [nan] * len(texts)
    for index, score in zip(present, scores, strict=True):
        values[index] = score
    return values


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.casefold())


def distinct(items: Sequence[object], n: int) -> float:
    """Return the share of different sequences of n items among all (Li et al. 2016); NaN if there is none."""
    grams = list(zip(*(items[start:] for start in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else nan


def repetition(text: MeasuredText) -> float:
    """Return seq-rep-4: the share of sequences of four tokens that occurred before (Welleck et al. 2020)."""
    return 1 - distinct(text.tokens, 4)


def loops(text: MeasuredText) -> float:
    """Return 1 if the text has a loop, as `LoopGuard` finds it by default, otherwise 0."""
    detector = LoopDetector(LoopGuard())
    return float(any(detector.push(token) is not None for token in text.tokens))


def compression_ratio(text: MeasuredText) -> float:
    """Return the size of the text after zlib, level 9, divided by its size in UTF-8; NaN for an empty text."""
    data = text.text.encode(errors="surrogatepass")
    return len(zlib.compress(data, 9)) / len(data) if data else nan


def has_ended(text: MeasuredText) -> float:
    """Return 1 if the model ended the text, by a token or a stop string, otherwise 0."""
    return float(text.finish_reason in ("stop", "grammar"))


_MAX_ORDER = 4


def self_bleu(texts: Sequence[Sequence[str]]) -> list[float]:
    """Return BLEU-4 of each text, 0 to 1, with the other texts as references (Zhu et al. 2018)."""
    # NaN for one text.
    # Formula: BLEU = b exp(mean ln p_n), n = 1 … min(4, words); p_n is the share of sequences of n words that a
    # reference has, too, counted at most as often as there; b = min(1, exp(1 - r / c)), with c words in the text
    # and r in the reference of the nearest length. If p_n is 0, it becomes 1 / (2^k total), k counting such n.
    # Equals sacrebleu's sentence BLEU, times 100, with effective order and exponential smoothing, on these words.
    if len(texts) < 2:
        return [nan] * len(texts)
    counts_by_order = [[Counter(_grams(words, n)) for words in texts] for n in range(1, _MAX_ORDER + 1)]
    highest_by_order = [_highest_counts(counts) for counts in counts_by_order]
    lengths = [len(words) for words in texts]
    scores = []
    for index, length in enumerate(lengths):
        references = lengths[:index] + lengths[index + 1 :]
        nearest = min(references, key=lambda other: (abs(other - length), other))
        matches = []
        for counts, highest in zip(counts_by_order, highest_by_order, strict=True):
            own = counts[index]
            matches.append((sum(_clipped(count, highest[gram]) for gram, count in own.items()), own.total()))
        scores.append(_bleu(matches, length, nearest))
    return scores


def _grams(words: Sequence[str], n: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)


class _Highest(NamedTuple):
    """The highest count of a sequence of words in any text, and the highest one in any other text."""

    first: int
    second: int


def _highest_counts(counts: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], _Highest]:
    highest: dict[tuple[str, ...], _Highest] = {}
    for counter in counts:
        for gram, count in counter.items():
            first, second = highest.get(gram, _Highest(0, 0))
            highest[gram] = _Highest(count, first) if count > first else _Highest(first, max(second, count))
    return highest


def _clipped(count: int, highest: _Highest) -> int:
    """Return the count, at most the highest one of the other texts."""
    return highest.second if count == highest.first else count


def _bleu(matches: Sequence[tuple[int, int]], length: int, reference_length: int) -> float:
    if not length or not matches[0][0]:
        return 0.0
    logs, smoothing = [], 1.0
    for matched, total in matches:
        if not total:
            break
        if not matched:
            smoothing *= 2
            logs.append(log(1 / (smoothing * total)))
        else:
            logs.append(log(matched / total))
    brevity = 1.0 if length >= reference_length else exp(1 - reference_length / length)
    return brevity * exp(sum(logs) / len(logs))


def _negative(values: Iterable[float | None]) -> Iterable[float | None]:
    return (None if value is None else -value for value in values)


def _mean(values: Iterable[float | None]) -> float:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else nan


def _value(name: str) -> Callable[[MeasuredText], float]:
    return lambda text: text.values[name]


def _distinct_words(n: int) -> Callable[[MeasuredText], float]:
    return lambda text: distinct(words_of(text.text), n)


# All measures, in the order of tables
MEASURES = (
    Measure("distinct_1", "distinct-1", "share of different words in a text", 3, 1, False, _distinct_words(1)),
    Measure(
        "distinct_2", "distinct-2", "share of different word pairs in a text", 3, 1, False, _distinct_words(2)
    ),
    Measure(
        "distinct_3", "distinct-3", "share of different word triples in a text", 3, 1, False, _distinct_words(3)
    ),
    Measure("self_bleu", "self-BLEU", "likeness of a text to the others of its prompt", 3, 1, False, None),
    Measure("seq_rep_4", "seq-rep-4", "share of runs of 4 tokens that occurred before", 3, 1, False, repetition),
    Measure("loops", "loops", "share of texts that repeat themselves without end", 3, 1, True, loops),
    Measure("length", "length", "tokens of a text", 1, inf, False, lambda text: float(len(text.tokens))),
    Measure("ended", "ended", "share of texts that the model ended", 3, 1, True, has_ended),
    Measure("surprise", "surprise", "mean surprise to the model, nats", 3, inf, False, _value("surprise")),
    Measure("entropy", "entropy", "mean entropy of the model, nats", 3, inf, False, _value("entropy")),
    Measure(
        "chain_surprise",
        "chain surprise",
        "mean surprise after the chain, nats",
        3,
        inf,
        False,
        _value("chain_surprise"),
    ),
    Measure(
        "chain_entropy",
        "chain entropy",
        "mean entropy after the chain, nats",
        3,
        inf,
        False,
        _value("chain_entropy"),
    ),
    Measure("kept", "kept", "mean number of tokens that the chain keeps", 1, inf, False, _value("kept")),
    Measure("zlib", "zlib", "size after compression, as a share", 3, inf, False, compression_ratio),
)
