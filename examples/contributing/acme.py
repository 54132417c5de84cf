"""Acme's API."""

from __future__ import annotations

from .base import Bias, EndpointLimits, EndpointResponse
from .http import HttpEndpoint, HttpOptions


class AcmeEndpoint(HttpEndpoint):
    """Acme's API."""

    def __init__(self, url: str, vocab_size: int, window: int = 10, *, options: HttpOptions | None = None) -> None:
        super().__init__(url, options or HttpOptions(key_env="ACME_KEY"))
        self.vocab_size = vocab_size
        self.limits = EndpointLimits(window, max_bias_nats=50.0)
        self.identity = {"api": "acme", "url": self._http.shown_url, "window": window}

    def query(self, prompt: str, logit_bias: Bias) -> EndpointResponse:
        """Return one token after the prompt, and its window."""
        body = self._http.post("next", {"prompt": prompt, "bias": list(logit_bias.items())})
        with self._http.expect_format("Acme's API"):
            step = body["next"]
            return EndpointResponse(int(step["token"]), logprobs={int(i): float(x) for i, x in step["top"]})
