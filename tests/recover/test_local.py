"""The bundled model with a few shown logprobs, compared with its log-softmax."""

from pathlib import Path

import numpy as np
import pytest
from logitsmith.engine import locate
from logitsmith.recover import LocalEndpoint, RecoverError, recover, verify

PROMPT = "The sea was"


def test_the_window(model):
    endpoint = LocalEndpoint(model, 5)
    row = endpoint.row(PROMPT)
    assert np.exp(row).sum() == pytest.approx(1, abs=1e-12)
    answer = endpoint.query(PROMPT, {})
    assert sorted(answer.logprobs) == sorted(np.argsort(-row)[:5])
    assert answer.token == row.argmax()
    moved = endpoint.query(PROMPT, {7: 100.0})
    assert moved.token == 7
    assert moved.logprobs[7] == pytest.approx(0)
    assert LocalEndpoint(model, 0).query(PROMPT, {7: 100.0}).token == 7
    assert endpoint.identity["window"] == 5
    assert "lora" not in endpoint.identity
    with pytest.raises(RecoverError, match="window: -1 is not ≥ 0"):
        LocalEndpoint(model, -1)


def test_adapters_are_part_of_the_identity(model, monkeypatch):
    plain = LocalEndpoint(model, 5).identity
    monkeypatch.setattr(model, "lora", ((Path("a.gguf"), 0.5),))
    assert LocalEndpoint(model, 5).identity == {**plain, "lora": [[str(Path("a.gguf").resolve()), 0.5]]}


def test_a_path_is_loaded_and_closed():
    with LocalEndpoint(locate()[0], window=3) as endpoint:
        assert endpoint.vocab_size == 49152
        assert endpoint.count_tokens(PROMPT) == 3
        assert recover(endpoint, PROMPT, top_count=10).is_complete


def test_the_whole_vocabulary_by_parallel(model):
    endpoint = LocalEndpoint(model, 200)
    found = recover(endpoint, PROMPT)
    assert (found.method, found.is_complete, found.total_calls) == ("parallel", True, 3 + 246 + 2)
    assert np.abs(found.logprobs - endpoint.row(PROMPT)).max() < 1e-9
    assert found.token_bytes[253] == b" a"
    checked = verify(endpoint, PROMPT, found, 20)
    assert (checked.compared_token_count, checked.method) == (20, "single")
    assert checked.max_difference_nats < 1e-9


def test_top_n_is_exact(model):
    endpoint = LocalEndpoint(model, 5)
    found = recover(endpoint, PROMPT, top_count=100)
    row = endpoint.row(PROMPT)
    assert set(found.ids) == set(np.argsort(-row)[:100])
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("window", "method"), [(5, "parallel"), (20, "parallel"), (20, "single"), (1, "single")])
def test_every_token(model, window, method):
    endpoint = LocalEndpoint(model, window)
    found = recover(endpoint, PROMPT, method)
    off = np.abs(found.logprobs - endpoint.row(PROMPT)).max()
    print(f"\nlocal, window {window}, {method}: {found.total_calls:,} calls for 49,152 tokens, error {off:.1e}")
    assert found.is_complete
    assert off < 1e-9
