"""Define an endpoint, and recover all logprobs from it although it returns only one token per call."""

import numpy as np
from logitsmith.recover import Bias, Endpoint, EndpointLimits, RecoverySettings, recover

LOGITS = np.random.default_rng(0).normal(0, 3, size=50)


class DiceEndpoint(Endpoint):
    """An API that computes its answers from fixed logits, and returns only the most likely token."""

    def __init__(self) -> None:
        self.vocab_size = len(LOGITS)
        self.limits = EndpointLimits(window=0, max_bias_nats=100.0)
        self.identity = {"api": "dice"}  # stored in checkpoints, to distinguish this endpoint from others

    def query(self, prompt: str, logit_bias: Bias) -> int:
        """Return the most likely token. An endpoint with logprobs returns {id: logprob} or an EndpointResponse."""
        logits = LOGITS.copy()
        for token, bias in logit_bias.items():
            logits[token] += bias
        return int(logits.argmax())


result = recover(DiceEndpoint(), "The die shows", settings=RecoverySettings(bisection_error_nats=0.01))
true = LOGITS - np.log(np.exp(LOGITS).sum())
difference = np.abs(result.logprobs - true).max()
print(f"{result.total_calls} calls by {result.method}, largest difference {difference:.3f} nats")
