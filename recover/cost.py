"""What a recovery costs: its calls, billed tokens and price, estimated before the first call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from ..common.text import count_noun
from .basis import Basis
from .endpoints.base import Endpoint
from .errors import RecoverError
from .methods.bisection import calls_per_token
from .methods.by_basis import check_basis, count_queried
from .recovery import is_basis_cheaper
from .request import NO_BASIS, RecoveryRequest, RecoverySettings
from .unbiased_response import QUERIES_PER_CHECK

# Calls of the probe on an endpoint that adds biases exactly. One more call is needed if choices must be tested.
_PROBE_CALLS = 3
_PROBE_CALLS_WITHOUT_LOGPROBS = 2  # Calls of the probe on an endpoint that shows only the chosen token
_SINGLE_CALLS_PER_TOKEN = 1.5  # Measured average: most tokens take one call, the first ones three
_BISECTION_WIDTH_NATS = 16.0  # Width of the interval with which bisection starts for most tokens


@dataclass(frozen=True)
class CallEstimate:
    """The estimated number of calls of a method.

    Attributes:
        method: the name of the method.
        calls: estimated number of calls.
        is_approximate: whether the number also depends on the responses.
    """

    method: str
    calls: int
    is_approximate: bool

    def billed_token_count(self, prompt_tokens: int) -> int:
        """Return the number of billed tokens: each call reads the prompt and writes one token."""
        return self.calls * (prompt_tokens + 1)

    def price(self, prompt_tokens: int, read_price: float, written_price: float) -> float:
        """Return the price of these tokens in dollars, from the prices of a million tokens, read and written."""
        return self.calls * (prompt_tokens * read_price + written_price) / 1e6


def estimate_calls(  # noqa: PLR0913 - the arguments of `recover`
    endpoint: Endpoint,
    prompt: str,
    method: str = "auto",
    top_count: int | None = None,
    tokens: Sequence[int] | None = None,
    *,
    settings: RecoverySettings | None = None,
) -> list[CallEstimate]:
    """Return the number of calls that `recover` would take with the same arguments.

    No token is requested, but an endpoint may ask its server for the size of the vocabulary. Raises
    ``RecoverError`` for arguments that `recover` would reject before its first call.

    Args:
        endpoint: the endpoint that would be queried.
        prompt: the text before the token.
        method: as for `recover`; for ``auto``, all methods that may be used are returned, the preferred one
            first.
        top_count: number of most likely tokens to recover.
        tokens: token ids to recover.
        settings: the settings of the recovery.
    """
    settings = settings or RecoverySettings()
    settings.check()
    request = RecoveryRequest.checked(prompt, method, top_count, tokens)
    vocab_size = endpoint.vocab_size
    request.check_size(vocab_size)
    if settings.basis is None and method == "basis":
        raise RecoverError(NO_BASIS)
    estimator = _CallEstimator(endpoint.limits.window, vocab_size, request, settings)
    estimates = [
        estimate for estimate in estimator.estimates(method == "basis") if method in ("auto", estimate.method)
    ]
    if not estimates:
        shown_logprobs = count_noun(endpoint.limits.window, "logprob")
        raise RecoverError(f"{method} does not work with an endpoint that shows {shown_logprobs} per call")
    calls_per_query = settings.calls_per_query or 1
    return [
        replace(estimate, calls=estimate.calls + estimate.calls // (calls_per_query * QUERIES_PER_CHECK))
        for estimate in estimates
    ]


@dataclass(frozen=True)
class _CallEstimator:
    shown_logprob_count: int  # number of logprobs that a response shows, as the endpoint's limits declare it
    vocab_size: int  # number of tokens in the vocabulary
    request: RecoveryRequest  # the tokens whose logprobs are requested, and the method of recovery
    settings: RecoverySettings

    def estimates(self, includes_basis: bool) -> Iterator[CallEstimate]:
        """Yield one estimate per method that works with this number of shown logprobs."""
        # The basis method is included if it was requested, or if it is cheaper than the others.
        shown_logprob_count, top_count, calls_per_query = (
            self.shown_logprob_count,
            self.request.top_count,
            self.settings.calls_per_query or 1,
        )
        tokens_per_call = max(1, shown_logprob_count - 1)
        has_requested_ids = self.request.requested_id_count is not None  # some of them may be shown without a bias
        hidden_count = self._count_hidden()
        probe_calls = (
            _PROBE_CALLS + max(0, calls_per_query - 2) if shown_logprob_count else _PROBE_CALLS_WITHOUT_LOGPROBS
        )
        if top_count is not None and shown_logprob_count:
            yield CallEstimate(
                "top_n",
                probe_calls + calls_per_query * ceil(max(0, top_count - shown_logprob_count) / tokens_per_call),
                False,
            )
        if (basis := self.settings.basis) is not None and (includes_basis or self._may_use(basis)):
            check_basis(basis, self.vocab_size)
            calls_per_token_for_basis = {0: self._bisection_calls_per_token(), 1: _SINGLE_CALLS_PER_TOKEN}.get(
                shown_logprob_count, 1 / tokens_per_call
            )
            yield CallEstimate(
                "basis",
                probe_calls + calls_per_query * ceil(count_queried(basis) * calls_per_token_for_basis),
                shown_logprob_count < 2,
            )
        if shown_logprob_count > 1:
            yield CallEstimate(
                "parallel", probe_calls + calls_per_query * ceil(hidden_count / tokens_per_call), has_requested_ids
            )
        if shown_logprob_count:
            yield CallEstimate(
                "single", probe_calls + calls_per_query * ceil(_SINGLE_CALLS_PER_TOKEN * hidden_count), True
            )
            yield CallEstimate("forced", probe_calls + 1 + calls_per_query * hidden_count, has_requested_ids)
        bisected_count = hidden_count if top_count is None else min(top_count, hidden_count)
        ranking_calls = 0 if top_count is None else bisected_count
        yield CallEstimate(
            "bisection", probe_calls + ranking_calls + bisected_count * self._bisection_calls_per_token(), True
        )

    def _count_hidden(self) -> int:
        """Return the number of requested tokens that are not shown without a bias."""
        if self.request.requested_id_count is not None:
            return self.request.requested_id_count
        if self.request.top_count is not None and self.request.top_count <= self.shown_logprob_count:
            return 0
        return max(0, self.vocab_size - self.shown_logprob_count)

    def _may_use(self, basis: Basis) -> bool:
        """Return whether ``auto`` may use the basis."""
        # With ``top_count`` a basis of another model is ignored, not rejected.
        has_matching_size = self.request.top_count is None or basis.vocab_size == self.vocab_size
        return has_matching_size and is_basis_cheaper(basis, self.request.requested_id_count)

    def _bisection_calls_per_token(self) -> int:
        return calls_per_token(_BISECTION_WIDTH_NATS, self.settings.bisection_error_nats)
