"""The search itself, over tables of log-probabilities: against transformers' tensors and against all texts."""

import itertools
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logitsmith.engine.beam_search import NextLogprobs, search_beams
from logitsmith.engine.request import BeamSearch

from ..oracle import transformers_beams
from ..oracle.transformers_beams import table_row
from .beam_reference import all_texts, random_cases, random_rows, tensor_search

MODES = (False, True, "never")


def search(row_of, settings, max_tokens, ends):
    def next_logprobs(texts):
        rows = [np.asarray(row_of(tokens), dtype=np.float64) for tokens in texts]
        return [NextLogprobs(np.arange(row.size), row) for row in rows]

    return search_beams(next_logprobs, settings, max_tokens, lambda tokens: "stop" if tokens[-1] in ends else None)


def assert_same(found, expected):
    assert [text.tokens for text in found] == [tokens for tokens, _ in expected]
    assert [text.score for text in found] == pytest.approx([score for _, score in expected], rel=1e-12)


CASES = [
    pytest.param(beams, ends, penalty, mode, id=f"{beams} beams, {len(ends)} ends, {penalty}, {mode}")
    for beams, ends, penalty, mode in itertools.product(
        (1, 2, 3, 6), (frozenset(), frozenset({0}), frozenset({3, 7})), (-1.0, 0.0, 0.6, 1.0, 2.0), MODES
    )
]


@pytest.mark.parametrize(("beams", "ends", "penalty", "mode"), CASES)
def test_texts_and_scores_are_those_of_transformers_tensors(beams, ends, penalty, mode):
    for seed in range(6):
        row_of = random_rows(seed, 20, ends, end_bonus=(0.0, 1.5, 3.0)[seed % 3])
        found = search(row_of, BeamSearch(beams, penalty, mode), 7, ends)
        assert_same(found, tensor_search(row_of, 20, beams, 7, ends, penalty, mode))


def assert_as_transformers(case, answer):
    settings = BeamSearch(case["beams"], case["length_penalty"], case["early_stopping"])

    def row_of(tokens):
        logits = np.array(table_row(case, tokens))
        return logits - np.log(np.exp(logits).sum())

    found = search(row_of, settings, case["max_tokens"], case["ends"])
    assert [list(text.tokens) for text in found] == answer["texts"], case
    assert [text.score for text in found] == pytest.approx(answer["scores"], abs=2e-5), case


def test_texts_and_scores_that_transformers_found():
    """Recorded with tests/oracle/transformers_beams.py."""
    recorded = json.loads(Path(__file__).with_name("transformers_beams.json").read_text())
    assert len(recorded["searches"]) == 60
    for each in recorded["searches"]:
        assert_as_transformers(each["case"], each)


TRANSFORMERS = Path(sys.prefix) / "transformers" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(not TRANSFORMERS.exists(), reason="transformers is not installed")
def test_texts_and_scores_that_transformers_finds():
    cases = random_cases(600, seed=random.randrange(2**32))
    program = Path(transformers_beams.__file__)
    done = subprocess.run(
        [TRANSFORMERS, program], input=json.dumps(cases), capture_output=True, check=True, text=True
    )
    for case, answer in zip(cases, json.loads(done.stdout)["answers"], strict=True):
        assert_as_transformers(case, answer)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("penalty", [-0.5, 0.0, 1.0, 1.7])
def test_as_many_beams_as_texts_find_every_text(penalty, mode):
    row_of = random_rows(4, 3, {1})
    expected = all_texts(row_of, 3, 5, {1}, penalty)
    assert len(expected) == 63
    found = search(row_of, BeamSearch(64, penalty, mode), 5, {1})
    assert_same(found, expected)
    for text in found:
        assert text.finish_reason == ("stop" if text.tokens[-1] == 1 else "length")
        assert text.score == pytest.approx(text.logprob / len(text.tokens) ** penalty)


def test_tokens_that_cannot_follow_are_no_texts():
    rows = {(): [-np.inf, 0.0, -np.inf], (1,): [-0.1, -np.inf, -2.4]}
    found = search(rows.__getitem__, BeamSearch(5), 2, set())
    assert [text.tokens for text in found] == [(1, 0), (1, 2)]


def test_a_text_without_continuation_leaves_its_place_to_others():
    rows = {(): [-0.1, -2.4], (0,): [-np.inf, -np.inf], (1,): [-1.0, -0.5]}
    assert [text.tokens for text in search(rows.__getitem__, BeamSearch(2), 2, set())] == [(1, 1), (1, 0)]
    nothing = {(): [-np.inf, -np.inf]}
    assert search(nothing.__getitem__, BeamSearch(2), 2, set()) == []


def test_many_texts_that_end_leave_as_many_that_continue():
    """Most continuations end, as by a stop string: the search still looks for texts that do not."""

    def row_of(tokens):
        return -np.arange(1.0, 41.0)

    seen = []
    found = search_beams(
        lambda texts: seen.append(list(texts)) or [NextLogprobs(np.arange(40), row_of(text)) for text in texts],
        BeamSearch(2, early_stopping="never", length_penalty=5.0),
        2,
        lambda tokens: "stop" if tokens[-1] < 37 else None,
    )
    assert seen[1] == [(37,), (38,)]
    assert len(found) == 2


def test_equal_sums_are_taken_in_order():
    found = search(lambda tokens: np.log([0.25] * 4), BeamSearch(3), 2, set())
    assert [text.tokens for text in found] == [(0, 0), (0, 1), (0, 2)]


def test_no_tokens_are_an_empty_text():
    (found,) = search(random_rows(0, 4, set()), BeamSearch(3), 0, set())
    assert found == ((), 0.0, 0.0, "length")


def test_an_interrupted_search_returns_the_texts_as_they_are():
    row_of = random_rows(3, 12, set())

    def next_logprobs(texts):
        return None if len(texts[0]) == 2 else [NextLogprobs(np.arange(12), row_of(text)) for text in texts]

    found = search_beams(next_logprobs, BeamSearch(3), 9, lambda tokens: None)
    assert [len(text.tokens) for text in found] == [2, 2, 2]
    assert {text.finish_reason for text in found} == {"interrupted"}
    expected = search(row_of, BeamSearch(3), 2, set())
    assert [text.tokens for text in found] == [text.tokens for text in expected]


def test_right_settings():
    for mode in MODES:
        settings = BeamSearch(256, -20.0, mode, 256)
        settings.check()
        assert replace(settings, best_count=None).returned_count == 256
