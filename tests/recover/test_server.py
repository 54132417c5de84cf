"""llama.cpp's real server over HTTP, compared with its complete row (`n_probs` = size of the vocabulary)."""

import threading
from math import exp, log

import httpx
import numpy as np
import pytest
from logitsmith.recover import (
    Basis,
    HttpOptions,
    LlamaServerEndpoint,
    RecoverySettings,
    output_matrix,
    recover,
    verify,
)

from .serving import start, stop

PROMPT = "The sea was"
SIZE = 49152


def whole_row(url, prompt, post=True):
    """Return the server's logprobs of all tokens; the prompt is read before, as in every other call."""
    body = {
        "prompt": prompt,
        "n_predict": 1,
        "n_probs": SIZE,
        "post_sampling_probs": post,
        "samplers": [],
        "seed": 1,
    }
    for seed in range(30):  # the server hides logprobs after some draws
        asked = {**body, "temperature": 1, "id_slot": 0, "seed": seed}
        said = httpx.post(f"{url}/completion", json=asked, timeout=120).json()
        if seed and "completion_probabilities" in said:
            break
    row = np.full(SIZE, np.nan)
    step = said["completion_probabilities"][0]
    for entry in step["top_probs" if post else "top_logprobs"]:
        row[entry["id"]] = (log(entry["prob"]) if entry["prob"] else -np.inf) if post else entry["logprob"]
    return row


@pytest.fixture(scope="session")
def row(server):
    found = whole_row(server, PROMPT)
    assert np.exp(found).sum() == pytest.approx(1, abs=1e-6)
    return found


@pytest.fixture(scope="session")
def basis(model):
    return Basis.of_matrix(output_matrix(model.path), "the matrix", model.vocabulary.pieces)


def test_parallel(llama, row):
    tokens = np.random.default_rng(0).choice(SIZE, 400, replace=False).tolist()
    found = recover(llama(), PROMPT, tokens=tokens)
    assert (found.method, found.is_complete) == ("parallel", True)
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-4
    assert found.total_calls <= 5 + -(-400 // 19)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_single(llama, row, count):
    tokens = np.random.default_rng(1).choice(SIZE, count, replace=False).tolist()
    found = recover(llama(), PROMPT, "single", tokens=tokens)
    off = np.nanmax(np.abs(found.logprobs - row))
    print(f"\nserver, single, {count} tokens: {found.total_calls} calls, error {off:.1e}")
    assert found.is_complete
    assert off < 1e-4


def test_top_n_is_exact_in_ids_and_values(llama, row):
    found = recover(llama(), PROMPT, top_count=100)
    assert found.method == "top_n"
    assert set(found.ids) == set(np.argsort(-row)[:100])
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-5
    assert found.total_calls <= 3 + -(-80 // 19) + 1


def test_next_tokens_that_end_inside_a_character(llama):
    """The server hides logprobs if it draws such a token, so other tokens are lifted."""
    found = recover(llama(), "今天天气很", top_count=60)
    assert found.is_complete
    assert any(len(piece) == 1 and piece[0] >= 0xC0 for piece in found.token_bytes.values())
    assert found.total_calls < 40
    some = recover(llama(), "今天天气很", tokens=[17, 253, 160, 5000])
    assert some.is_complete
    assert some.total_calls < 40


def test_a_window_of_one(llama, row):
    found = recover(llama(1), PROMPT, tokens=[253, 17, 5000, 160])
    assert (found.method, found.is_complete) == ("single", True)
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 20, pytest.param(2, marks=pytest.mark.slow)])
def test_bisection_to_its_eps(llama, row, window):
    """With shown logprobs the server draws its token, so the most likely one is queried separately."""
    found = recover(
        llama(window),
        PROMPT,
        "bisection",
        tokens=[5, 17, 5000],
        settings=RecoverySettings(bisection_error_nats=1e-3),
    )
    assert found.method == "bisection"
    assert np.nanmax(np.abs(found.logprobs - (row - row.max()))) < 1e-3


def test_forced(server, llama):
    found = recover(llama(post_sampling=False), PROMPT, tokens=[253, 17, 5000, 160])
    assert found.method == "forced"
    off = np.abs(found.logprobs - whole_row(server, PROMPT, post=False))
    assert np.nanmax(off) < 1e-5
    # This server hides the logprobs of a token that ends inside a character.
    assert found.ids.tolist() == [17, 253, 5000]
    assert not found.is_complete


@pytest.mark.slow
def test_basis(llama, row, basis):
    endpoint = llama()
    found = recover(endpoint, PROMPT, settings=RecoverySettings(basis=basis))
    off = np.abs(found.logprobs - row).max()
    checked = verify(endpoint, PROMPT, found, 20)
    print(
        f"\nserver, basis: {found.total_calls} calls, error {off:.1e}, told {found.max_error_nats:.1e}, "
        f"verified {checked.max_difference_nats:.1e}"
    )
    assert (found.method, found.is_complete) == ("basis", True)
    assert found.total_calls <= 60
    assert off < 1e-4
    assert checked.max_difference_nats < 1e-4


def test_the_prompts_tokens_are_counted(llama):
    assert llama().count_tokens(PROMPT) == 3
    assert llama().vocab_size == SIZE


def test_responses_do_not_depend_on_earlier_queries(llama):
    endpoint = llama()
    first = endpoint.query(PROMPT, {}).logprobs
    assert endpoint.query("Something else entirely", {}).calls >= 2
    assert endpoint.query(PROMPT, {}).logprobs == first
    assert endpoint.query(PROMPT, {}).calls == 1


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again(tmp_path, row):
    """Calls are retried until the server is back, and the run continues."""
    process, url = start()
    port = int(url.rsplit(":", 1)[1])
    tokens = np.random.default_rng(2).choice(SIZE, 400, replace=False).tolist()
    seen = []
    again = []

    def watch(done, total):
        seen.append(done)
        if len(seen) == 10:
            stop(process)
            threading.Thread(target=lambda: again.append(start(port)[0])).start()

    endpoint = LlamaServerEndpoint(
        url, 20, options=HttpOptions(max_retries=200, first_retry_wait_seconds=0.1, max_retry_wait_seconds=0.5)
    )
    found = recover(
        endpoint, PROMPT, tokens=tokens, settings=RecoverySettings(progress=watch, max_concurrent_calls=2)
    )
    endpoint.close()
    stop(again[0])
    assert found.is_complete
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-4


def test_a_run_is_resumed_after_other_prompts(llama, row, tmp_path):
    """The repeated query gets the same response, whatever was read in between."""
    tokens = np.random.default_rng(4).choice(SIZE, 200, replace=False).tolist()
    kept = {"checkpoint": tmp_path / "c"}
    part = recover(llama(), PROMPT, tokens=tokens, settings=RecoverySettings(**kept, max_calls=9))
    assert (part.stop_reason, part.new_calls) == ("max_calls", 9)
    llama().query("Something else entirely", {})
    found = recover(llama(), PROMPT, tokens=tokens, settings=RecoverySettings(**kept, resume=True))
    assert found.is_complete
    assert np.nanmax(np.abs(found.logprobs - row)) < 1e-4
    named = llama().identity["model"]
    assert (named["n_vocab"], named["n_embd"]) == (SIZE, 576)


@pytest.mark.slow
def test_the_whole_vocabulary(llama, row):
    found = recover(llama(), PROMPT, "parallel")
    off = np.abs(found.logprobs - row)
    likely = row > -20
    print(
        f"\nserver, parallel, {SIZE:,} tokens: {found.total_calls:,} calls, error {off[likely].max():.1e} for the "
        f"{likely.sum():,} tokens above e^-20, {off.max():.1e} for all"
    )
    assert found.is_complete
    assert off[likely].max() <= 1e-4


@pytest.mark.slow
def test_other_prompts(server, llama, basis):
    """A long prompt, code, another language, and a prompt whose next token is almost certain."""
    prompts = (
        "one two three four one two three four one two three",
        "def add(a, b):\n    return",
        "Où est la",
        "A " * 200,
        "今天天气很",
    )
    for prompt in prompts:
        own = whole_row(server, prompt)
        endpoint = llama()
        top = recover(endpoint, prompt, top_count=50)
        assert set(top.ids) == set(np.argsort(-own, kind="stable")[:50])
        whole = recover(endpoint, prompt, settings=RecoverySettings(basis=basis))
        off = np.abs(whole.logprobs - own)
        print(
            f"\nserver, {prompt[:20]!r}, top token {exp(own.max()):.4f}: top 50 error "
            f"{np.nanmax(np.abs(top.logprobs - own)):.1e} in {top.total_calls} calls, basis {off.max():.1e} "
            f"in {whole.total_calls}, told {whole.max_error_nats:.1e}"
        )
        assert np.nanmax(np.abs(top.logprobs - own)) < 1e-4
        assert off[own > -20].max() < 1e-4


@pytest.mark.slow
def test_several_slots_differ_and_are_measured():
    """With any slot, concurrent calls are computed together, and the reported error covers their differences."""
    process, url = start(slots=4)
    try:
        own = whole_row(url, PROMPT)
        tokens = np.random.default_rng(3).choice(SIZE, 800, replace=False).tolist()
        for slot in (0, None):
            endpoint = LlamaServerEndpoint(url, 20, slot=slot)
            found = recover(
                endpoint,
                PROMPT,
                "parallel",
                tokens=tokens,
                settings=RecoverySettings(max_concurrent_calls=4, calls_per_query=4),
            )
            off = np.abs(found.logprobs - own)
            print(
                f"\nserver, 4 in flight, slot {slot}: error {np.nanmax(off):.1e}, told {found.max_error_nats:.1e}"
            )
            assert np.nanmax(off) < (1e-4 if slot == 0 else 0.5)
            endpoint.close()
    finally:
        stop(process)
