"""Responses that no correct endpoint sends: a sentence names the problem, and no other exception is raised."""

import json

import httpx
import numpy as np
import pytest
from logitsmith.recover import EndpointResponse, LlamaServerEndpoint, RecoverError, RecoverySettings, recover

from .fakes import Fake, row_of

ROW = row_of()


def server(completion, size="300", tokenize=b"{}"):
    """llama.cpp's server, whose responses are these bytes of JSON."""
    bodies = {
        "/completion": completion,
        "/v1/models": b'{"data": [{"meta": {"n_vocab": %s}}]}' % size.encode(),
        "/tokenize": tokenize,
    }
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=bodies[request.url.path]))
    return LlamaServerEndpoint("http://server.test", 1, transport=transport)


GOOD = '{"id": 1, "prob": 0.5, "top_probs": [{"id": 1, "bytes": [65], "prob": 0.5}]}'
STEPS = {  # a step of ``completion_probabilities``, and the problem; "": it does not have the server's format
    "an id beyond all": (GOOD.replace('"id": 1,', '"id": 1e999,'), ""),
    "an id in the window": ('{"id": 1, "prob": 0.5, "top_probs": [{"id": 1e999}]}', ""),
    "no ids": ('{"top_probs": [{"prob": 0.5}]}', ""),
    "text for a number": ('{"id": 1, "prob": "x", "top_probs": []}', ""),
    "bytes without end": (GOOD.replace("[65]", str(10**13)), ""),
    "bytes that are none": (GOOD.replace("[65]", "[300]"), ""),
    "what was computed": ('{"timings": {"prompt_n": 1e999}}', ""),
    "a negative probability": (GOOD.replace("0.5}]", "-0.1}]"), "returned -0.1 for token .*, which is not a prob"),
    "more than all": (GOOD.replace("0.5}]", "1e999}]"), "returned inf for token .*, which is not a logprob"),
}
BODIES = {"another API": b'{"hello": 1}', "a list": b"[1]", "nothing": b"null"}


@pytest.mark.parametrize("name", [*STEPS, *BODIES])
def test_responses_of_a_server(name):
    step, message = STEPS.get(name, ("", ""))
    body = BODIES.get(name, f'{{"completion_probabilities": [{step}]}}'.encode())
    with pytest.raises(RecoverError, match=message or "does not have the format"):
        recover(server(body), "x")


@pytest.mark.parametrize("size", ["1e999", "-5", "0", "10000000000000000", '"many"', "null"])
def test_a_servers_vocabulary(size):
    with pytest.raises(RecoverError, match="does not report the size of its vocabulary; give vocab_size"):
        recover(server(b"{}", size), "x")


@pytest.mark.parametrize("said", [[1, 2], {"tokens": 3}, {}, "x", None])
def test_a_servers_token_count(said):
    with pytest.raises(RecoverError, match="/tokenize did not return a list"):
        server(b"{}", tokenize=json.dumps(said).encode()).count_tokens("x")


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
        assert found.ids.tolist() == sorted(int(token) for token in tokens)
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
    found = recover(OfNumPy(ROW, window), "x", tokens=[1, 2], settings=RecoverySettings(checkpoint=tmp_path / "c"))
    reference = ROW if found.is_normalized else ROW - ROW.max()
    assert np.nanmax(np.abs(found.logprobs - reference)) < 1e-3


ANSWERS = {
    "a list": ([1, 2], "returned .1, 2., which is not a token id"),
    "a number": (1.5, "returned 1.5, which is not a token id"),
    "None": (None, "returned None, which is not a token id"),
    "text for a logprob": ({1: "high"}, "returned high for token .*, which is not a logprob"),
    "text for an id": ({"a": -1.0}, "returned 'a', which is not a token id"),
    "an id outside": ({999: -1.0}, "returned token 999"),
    "nan": ({1: float("nan")}, "returned nan for token .*, which is not a logprob"),
    "positive": ({1: 0.5}, "returned 0.5 for token .*, which is not a logprob"),
    "nothing": ({}, "neither logprobs nor a token"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_invalid_responses(name):
    said, message = ANSWERS[name]
    endpoint = Fake(ROW, 5)
    endpoint.query = lambda prompt, bias: said
    with pytest.raises(RecoverError, match=message):
        recover(endpoint, "x")


def test_another_object_than_an_endpoint_is_rejected():
    with pytest.raises(RecoverError, match="endpoint: str is not a subclass of"):
        recover("http://127.0.0.1:8080", "x")
