"""Measures of texts: against sacrebleu, and against definitions written out."""

import math
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.compare.text_measures import (
    MEASURES,
    MeasuredText,
    distinct,
    loops,
    measure_texts,
    self_bleu,
    words_of,
)
from sacrebleu.metrics import BLEU

WORDS = st.lists(st.sampled_from(["the", "sea", "was", "calm", "and", "wide", "."]), max_size=25)


def text(content="", tokens=(), finish_reason="length", **values):
    return MeasuredText(content, tuple(tokens), finish_reason, values)


def value(name, texts):
    (measure,) = (measure for measure in MEASURES if measure.name == name)
    return measure_texts(measure, texts)


@given(st.lists(WORDS, min_size=2, max_size=6))
def test_self_bleu_is_sacrebleus(texts):
    bleu = BLEU(tokenize="none", effective_order=True)
    for index, score in enumerate(self_bleu(texts)):
        others = [" ".join(words) for other, words in enumerate(texts) if other != index]
        expected = bleu.sentence_score(" ".join(texts[index]), others).score / 100
        assert score == pytest.approx(expected, abs=1e-9)


def test_self_bleu_needs_another_text():
    assert all(map(math.isnan, self_bleu([["a"]])))
    assert value("self_bleu", [text("the sea"), None, text("the sea")]) == [
        1.0,
        pytest.approx(math.nan, nan_ok=True),
        1.0,
    ]


def test_words_ignore_case_and_spaces():
    assert words_of("The  Sea's\nend, 3.5!") == ["the", "sea", "'", "s", "end", ",", "3", ".", "5", "!"]


@pytest.mark.parametrize(
    ("items", "n", "expected"), [("aab", 1, 2 / 3), ("abab", 2, 2 / 3), ("aaaa", 3, 1 / 2), ("ab", 3, math.nan)]
)
def test_distinct_is_the_share_of_different_sequences(items, n, expected):
    assert distinct(items, n) == pytest.approx(expected, nan_ok=True)


def test_seq_rep_4_counts_runs_that_occurred_before():
    tokens = [1, 2, 3, 4, 1, 2, 3, 4]
    runs = [tuple(tokens[start : start + 4]) for start in range(5)]
    repeated = sum(run in runs[:index] for index, run in enumerate(runs))
    assert value("seq_rep_4", [text(tokens=tokens)]) == [pytest.approx(repeated / len(runs))]


def test_loops_are_those_of_the_loop_guard():
    assert loops(text(tokens=[5, 6] * 16)) == 1
    assert loops(text(tokens=[5, 6] * 15)) == 0
    assert loops(text(tokens=range(100))) == 0


@pytest.mark.parametrize(
    ("reason", "expected"), [("stop", 1), ("grammar", 1), ("length", 0), ("loop", 0), ("context", 0)]
)
def test_an_ended_text_is_one_that_the_model_ended(reason, expected):
    assert value("ended", [text(finish_reason=reason)]) == [expected]


def test_zlib_is_the_share_that_is_left():
    content = "the sea " * 20
    assert value("zlib", [text(content), text()]) == [
        len(zlib.compress(content.encode(), 9)) / len(content),
        pytest.approx(math.nan, nan_ok=True),
    ]


def test_a_result_has_the_means_of_its_tokens():
    tokens = [
        {"id": 1, "logprob": -1.0, "entropy": 2.0, "chain": {"logprob": -0.5, "entropy": 1.0, "kept": 10}},
        {"id": 2, "logprob": -3.0, "entropy": 4.0, "chain": {"logprob": None, "entropy": 0.0, "kept": 1}},
    ]
    measured = MeasuredText.from_result({"text": "ab", "tokens": tokens, "finish_reason": "stop"})
    assert measured.tokens == (1, 2)
    assert measured.values == {
        "surprise": 2.0,
        "entropy": 3.0,
        "chain_surprise": 0.5,
        "chain_entropy": 0.5,
        "kept": 5.5,
    }
    empty = MeasuredText.from_result({"text": "", "tokens": [], "finish_reason": "stop"})
    assert all(map(math.isnan, empty.values.values()))


def test_names_are_unique_and_each_measure_has_a_meaning():
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names) == 14
    assert all(
        measure.meaning and first.name != second.name
        for (first, second), measure in zip(pairwise(MEASURES), MEASURES, strict=False)
    )
    assert np.isfinite([measure.decimals for measure in MEASURES]).all()
