"""Endpoints that treat biases, or shown logprobs, in unexpected ways."""

import numpy as np
from logitsmith.recover import EndpointResponse

from .fakes import Fake, log_softmax


class Odd(Fake):
    """A `Fake` with unusual behavior.

    ``heard(bias)``: the biases that are added, out of all biases of the query; ``shaped(row)``: the shown
    logprobs, computed from the biased ones; ``mute``: the logprob of the chosen token is not shown;
    ``drawn``: the token is drawn, the same token for the same query; ``chooser``: with ``drawn``, the most
    likely token can be queried too; ``own_after``: the logprob of the chosen token is the biased one, even
    if the others are ``raw``; ``sampled``: the drawn token is shown in addition to the most likely ones;
    ``nameless``: ids that are shown without a name; ``moved``: from this call on, all logits have additional
    noise of 0.01 nats.
    """

    def __init__(self, row, window, *, heard=dict, shaped=None, moved=None, nameless=(), **habits):
        own = {name: habits.pop(name, False) for name in ("mute", "drawn", "chooser", "sampled", "own_after")}
        super().__init__(row, window, **habits)
        self.heard, self.shaped, self.moved, self.nameless = heard, shaped, moved, frozenset(nameless)
        self.mute, self.drawn, self.sampled = own["mute"], own["drawn"], own["sampled"]
        self.own_after = own["own_after"]
        self.has_top_token_query = own["chooser"]

    def query_top_token(self, prompt, logit_bias):
        return EndpointResponse(int(self.logits(logit_bias).argmax()))

    def logits(self, bias):
        logits = self.row.copy()
        for token, value in self.heard(dict(bias)).items():
            logits[token] += value
        if self.moved is not None and self.calls > self.moved:
            logits += np.random.default_rng(3).normal(0, 0.01, len(logits))
        return logits + self.random.normal(0, self.noise, len(logits)) if self.noise else logits

    def query(self, prompt, logit_bias):
        self.calls += 1
        self.asked.append(dict(logit_bias))
        logits = self.logits(logit_bias)
        token = int(logits.argmax())
        if self.drawn:
            seed = [1, *(abs(int(1e6 * x)) for pair in sorted(logit_bias.items()) for x in pair)]
            token = int(np.random.default_rng(seed).choice(len(logits), p=np.exp(log_softmax(logits))))
        shown = self.row if self.raw else log_softmax(logits)
        shown = self.shaped(shown) if self.shaped else shown
        if not self.limits.window:
            return token
        window = [int(i) for i in np.argsort(-shown, kind="stable")[: self.limits.window] if np.isfinite(shown[i])]
        told = {i: float(shown[i]) for i in window if i not in self.nameless}
        unnamed = tuple(float(shown[i]) for i in window if i in self.nameless)
        if self.sampled and token not in self.nameless:
            told[token] = float(shown[token])
        logprob = float((log_softmax(logits) if self.own_after else shown)[token])
        return EndpointResponse(token, None if self.mute else logprob, told, unmatched_logprobs=unnamed)


def first_only(bias):
    return dict(list(bias.items())[:1])


def without(*ids):
    return lambda bias: {token: value for token, value in bias.items() if token not in ids}


def scaled(factor):
    return lambda bias: {token: factor * value for token, value in bias.items()}


def rounded(bias):
    return {token: float(round(value)) for token, value in bias.items()}


def nucleus(mass):
    """Shape like top_p: tokens after ``mass`` have no probability, and the others share all of it."""

    def shaped(row):
        order = np.argsort(-row)
        before = np.cumsum(np.exp(row[order])) - np.exp(row[order])
        cut = np.full_like(row, -np.inf)
        cut[order[before < mass]] = row[order[before < mass]]
        return log_softmax(cut)

    return shaped
