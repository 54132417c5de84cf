"""The check of a run with drafts against the run without."""

import io
from contextlib import redirect_stderr

import numpy as np
import pytest
from logitsmith.cli.render.run import show_verification
from logitsmith.engine import DraftOptions, GenerationRequest, Model, Token, generate_request
from logitsmith.engine.context import Context
from logitsmith.jobs.draft_verification import (
    ComparedToken,
    DraftDifference,
    DraftVerification,
    verify_drafts,
)


@pytest.fixture(scope="module")
def model(pruned_model):
    with Model.load(pruned_model, n_ctx=512, threads=1) as loaded:
        yield loaded


@pytest.fixture
def request_with_draft(draft_path):
    return GenerationRequest("The sea was", "temp0.8", seed=3, max_tokens=40, draft=DraftOptions(draft_path))


def token_ids(model, request):
    return [event.id for event in generate_request(model, request) if isinstance(event, Token)]


def test_equal_runs(model, request_with_draft):
    ids = token_ids(model, request_with_draft)
    assert verify_drafts(model, request_with_draft, ids) == DraftVerification(40)


@pytest.fixture
def rows_of_batches_differ(monkeypatch):
    """Rows that are computed together get other logits, as rounding would change them, but more."""
    append = Context.append_batch

    def changed(context, tokens):
        rows = append(context, tokens)
        noise = np.random.default_rng(len(context.tokens))
        return [row + noise.normal(0, 1, row.size).astype(np.float32) for row in rows] if len(tokens) > 1 else rows

    monkeypatch.setattr(Context, "append_batch", changed)


def test_the_first_difference_with_both_rows(model, request_with_draft, rows_of_batches_differ):
    ids = token_ids(model, request_with_draft)
    plain = token_ids(model, GenerationRequest("The sea was", "temp0.8", seed=3, max_tokens=40))
    index = next(place for place in range(40) if ids[place] != plain[place])
    result = verify_drafts(model, request_with_draft, ids)
    difference = result.difference
    assert (result.equal_token_count, result.is_complete) == (index, True)
    assert (difference.index, difference.drafted.id, difference.plain.id) == (index, ids[index], plain[index])
    shown = {token.id: token for token in difference.top}
    for token, name in ((difference.drafted, "drafted_logprob"), (difference.plain, "plain_logprob")):
        assert getattr(shown[token.id], name) == pytest.approx(token.distributions[0].logprob, abs=1e-5)
    rows = [np.frombuffer(token.distributions[0].row, "<f4") for token in (difference.drafted, difference.plain)]
    assert {*(-rows[0]).argsort()[:5], *(-rows[1]).argsort()[:5]} <= shown.keys()
    assert difference.max_logprob_difference == pytest.approx(float(np.abs(rows[0] - rows[1]).max()))
    assert [token.plain_logprob for token in difference.top] == sorted(rows[1][list(shown)], reverse=True)


@pytest.mark.parametrize("length", [7, 45], ids=["shorter", "longer"])
def test_a_text_that_ended_elsewhere(model, request_with_draft, length):
    ids = (token_ids(model, request_with_draft) * 2)[:length]
    result = verify_drafts(model, request_with_draft, ids)
    assert result.equal_token_count == min(length, 40)
    assert result.difference.index == min(length, 40)
    assert result.difference.top == ()


def test_an_interruption(model, request_with_draft):
    calls = []

    def is_interrupted():
        calls.append(None)
        return len(calls) > 50

    ids = token_ids(model, request_with_draft)
    result = verify_drafts(model, request_with_draft, ids, is_interrupted)
    assert not result.is_complete
    assert result.difference is None
    assert result.equal_token_count < 40


def shown(result):
    with redirect_stderr(io.StringIO()) as printed:
        show_verification(result)
    return printed.getvalue().splitlines()


def test_how_a_difference_is_shown():
    the, a = (Token(3, token, data, data.decode(), False) for token, data in ((5, b" the"), (6, b" a")))
    top = (ComparedToken(6, b" a", -1.25, -1.125), ComparedToken(5, b"\xff", -1.0, -1.5))
    assert shown(DraftVerification(3, DraftDifference(3, the, a, top, 0.5))) == [
        "gen: token 3 (from 0) is ' the' with drafts, and ' a' without",
        "token                  with drafts       without",
        "' a'                     -1.250000     -1.125000",
        "'bytes:\\\\xff'            -1.000000     -1.500000",
        "largest difference of two logprobs: 0.5 nats",
    ]
    assert shown(DraftVerification(3, DraftDifference(3, None, a))) == [
        "gen: token 3 (from 0) is the end of the text with drafts, and ' a' without"
    ]
    assert shown(DraftVerification(1)) == ["gen: 1 token: all are equal to those of the run without drafts"]
    assert shown(DraftVerification(2, is_complete=False)) == [
        "gen: the check of the drafts was interrupted; 2 tokens were equal"
    ]
