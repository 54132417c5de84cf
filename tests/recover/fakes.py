"""Endpoints that compute responses from a row of logits, with limits, rounding and noise as APIs have them."""

import time
from math import exp

import numpy as np
from logitsmith.recover import Endpoint, EndpointLimits, EndpointResponse


def row_of(size=300, seed=0, spread=3.0, top=0.0):
    """Logprobs, float64 (V,), normally distributed; ``top`` is added to the largest logit."""
    logits = np.random.default_rng(seed).normal(0, spread, size)
    logits[logits.argmax()] += top
    return log_softmax(logits)


def log_softmax(logits):
    logits = np.asarray(logits, dtype=np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


class Fake(Endpoint):
    """Computes responses from a row. ``raw``: the bias only chooses; ``cut``: limit to which biases are
    silently reduced; ``noise``: nats; ``deaf``: biases are ignored."""

    def __init__(self, row, window, *, raw=False, cut=None, noise=0.0, digits=None, deaf=False, **limits):
        self.row = np.asarray(row, dtype=np.float64)
        self.limits = EndpointLimits(window, **{"relative_error": 1e-14, "min_reliable_logprob": -700.0, **limits})
        self.vocab_size = len(self.row)
        self.identity = {"api": "fake"}
        self.raw, self.cut, self.noise, self.digits, self.deaf = raw, cut, noise, digits, deaf
        self.calls = 0
        self.asked = []
        self.random = np.random.default_rng(5)

    def query(self, prompt, logit_bias):
        self.calls += 1
        self.asked.append(dict(logit_bias))
        most = self.limits.max_biases_per_call
        assert most is None or len(logit_bias) <= most
        logits = self.row.copy()
        for token, value in logit_bias.items():
            assert abs(value) <= self.limits.max_bias_nats
            cut = value if self.cut is None else max(-self.cut, min(self.cut, value))
            logits[token] += 0 if self.deaf else cut
        if self.noise:
            logits += self.random.normal(0, self.noise, len(logits))
        token = int(logits.argmax())
        shown = self.row if self.raw else log_softmax(logits)
        if self.digits is not None:
            shown = np.round(shown, self.digits)
        window = np.argsort(-shown, kind="stable")[: self.limits.window]
        if not len(window):
            return token
        logprobs = {int(i): float(shown[i]) for i in window if np.isfinite(shown[i])}
        return EndpointResponse(token, float(shown[token]), logprobs)


def served(window=8, seconds=0.0, fake=None, **habits):
    """Return the response function of an API like llama.cpp's server, for `api`, and the `Fake` that computes
    its responses."""
    fake = fake or Fake(row_of(400), window, **habits)

    def answer(path, body, headers):
        time.sleep(seconds)
        if path.endswith("/models"):
            return 200, {"data": [{"meta": {"n_vocab": fake.vocab_size}}]}, {}
        if path.endswith("/tokenize"):
            return 200, {"tokens": [1, 2, 3]}, {}
        said = fake.query("x", {int(token): value for token, value in body["logit_bias"]})
        if isinstance(said, int):
            return 200, {"tokens": [said]}, {}
        shown = [{"id": i, "bytes": [65, i % 200], "prob": exp(value)} for i, value in said.logprobs.items()]
        return 200, {"completion_probabilities": [{"id": said.token, "prob": 0.5, "top_probs": shown}]}, {}

    return answer, fake
