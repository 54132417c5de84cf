"""Responses and files that no correct endpoint produces: a sentence names the problem, and no other exception is
raised."""

import httpx
import numpy as np
import pytest
from logitsmith.recover import Basis, EndpointResponse, LlamaServerEndpoint, RecoverError, recover

from .fakes import Fake, row_of

ROW = row_of()


def server(step, size=50):
    """llama.cpp's server in shape; ``step`` is its only answer, as text, since JSON may hold larger numbers."""

    def answer(request):
        if request.url.path.endswith("/models"):
            return httpx.Response(200, content=b'{"data": [{"meta": {"n_vocab": %s}}]}' % str(size).encode())
        return httpx.Response(200, content=b'{"completion_probabilities": [%s]}' % step.encode())

    return LlamaServerEndpoint("http://server.test", 1, transport=httpx.MockTransport(answer))


GOOD = '{"id": 1, "prob": 0.5, "top_probs": [{"id": 1, "bytes": [65], "prob": 0.5}]}'
STEPS = {
    "an id beyond all": (GOOD.replace('"id": 1,', '"id": 1e999,'), "does not have the format"),
    "an id in the window": ('{"id": 1, "prob": 0.5, "top_probs": [{"id": 1e999}]}', "does not have the format"),
    "bytes without end": (GOOD.replace("[65]", str(10**13)), "does not have the format"),
    "bytes that are none": (GOOD.replace("[65]", "[300]"), "does not have the format"),
    "a negative probability": (
        GOOD.replace('"prob": 0.5}]', '"prob": -0.1}]'),
        "returned -0.1 for token .*, which is not a probability",
    ),
    "more than all": (
        GOOD.replace('"prob": 0.5}]', '"prob": 1e999}]'),
        "returned inf for token .*, which is not a logprob",
    ),
    "what was computed": ('{"timings": {"prompt_n": 1e999}}', "does not have the format"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_servers_answers(name):
    step, message = STEPS[name]
    with pytest.raises(RecoverError, match=message):
        recover(server(step), "x")


@pytest.mark.parametrize("size", ["1e999", "-5", "0", "10000000000000000", '"many"', "null"])
def test_a_servers_vocabulary(size):
    with pytest.raises(RecoverError, match="does not report the size of its vocabulary"):
        recover(server(GOOD, size), "x")


@pytest.mark.parametrize("size", [-5, 0, 10**15])
def test_an_invalid_vocabulary_size(size):
    endpoint = Fake(ROW, 5)
    endpoint.vocab_size = size
    with pytest.raises(RecoverError, match=f"reports {size} tokens in its vocabulary"):
        recover(endpoint, "x")


TOKENS = {
    "an array": (np.array([7, 3]), None),
    "numbers of NumPy": ([np.int64(7), np.uint16(3)], None),
    "a range": (range(3, 8), None),
    "numbers": (np.array([1.5]), "tokens: .*1.5.* is not a token id"),
    "text": (["a"], "tokens: 'a' is not a token id"),
    "none": (np.array([], dtype=int), "tokens: the list is empty"),
    "outside": (np.array([300]), "token id 300 is not within"),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_of_any_kind(name):
    tokens, message = TOKENS[name]
    if message is None:
        found = recover(Fake(ROW, 5), "x", tokens=tokens)
        assert np.flatnonzero(~np.isnan(found.logprobs)).tolist() == sorted(int(token) for token in tokens)
    else:
        with pytest.raises(RecoverError, match=message):
            recover(Fake(ROW, 5), "x", tokens=tokens)


class OfNumPy(Fake):
    """All numbers are NumPy's, and keys too."""

    def query(self, prompt, logit_bias):
        said = super().query(prompt, logit_bias)
        if not self.limits.window:
            return np.int64(said)
        shown = {np.int32(token): np.float64(value) for token, value in said.logprobs.items()}
        return EndpointResponse(np.int64(said.token), np.float64(said.logprob), shown)


@pytest.mark.parametrize("window", [0, 1, 5])
def test_an_endpoint_that_answers_with_numbers_of_numpy(window, tmp_path):
    from logitsmith.recover import RecoverySettings

    found = recover(OfNumPy(ROW, window), "x", tokens=[1, 2], settings=RecoverySettings(checkpoint=tmp_path / "c"))
    reference = ROW if found.is_normalized else ROW - ROW.max()
    assert np.nanmax(np.abs(found.logprobs - reference)) < 1e-3


ANSWERS = {
    "a list": ([1, 2], "returned .1, 2., which is not a token id"),
    "a number": (1.5, "returned 1.5, which is not a token id"),
    "nothing": (None, "returned None, which is not a token id"),
    "text for a logprob": ({1: "high"}, "returned high for token .*, which is not a logprob"),
    "text for an id": ({"a": -1.0}, "returned 'a', which is not a token id"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_invalid_responses(name):
    said, message = ANSWERS[name]
    endpoint = Fake(ROW, 5)
    endpoint.query = lambda prompt, bias: said
    with pytest.raises(RecoverError, match=message):
        recover(endpoint, "x")


MATRIX = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
FIELDS = {
    "an order outside": {"order": np.arange(300, dtype=np.int32) + 1},
    "an order below": {"order": np.arange(300, dtype=np.int32) - 1},
    "an order of numbers": {"order": np.arange(300, dtype=np.float32)},
    "an order that repeats": {"order": np.zeros(300, dtype=np.int32)},
    "an order too short": {"order": np.arange(3, dtype=np.int32)},
    "a matrix of one row": {"matrix": np.ones(300, dtype=np.float32)},
    "a matrix with gaps": {"matrix": np.full((300, 7), np.nan, dtype=np.float32)},
    "bytes of others": {"offsets": np.arange(5)},
}


@pytest.mark.parametrize("name", FIELDS)
def test_an_invalid_basis(name, tmp_path):
    path = tmp_path / "b.npz"
    Basis.of_matrix(MATRIX, "m").save(path)
    with np.load(path) as data:
        fields = {**data, **FIELDS[name]}
    np.savez(path, **fields)
    with pytest.raises(RecoverError, match=r"b\.npz: not a basis"):
        Basis.load(path)
