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
from .request import RecoveryRequest, RecoverySettings
from .task import QUERIES_PER_CHECK

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
    if method == "basis":
        settings.required_basis()
    window, calls_per_query = endpoint.limits.window, settings.calls_per_query or 1
    estimates = [
        replace(estimate, calls=estimate.calls + estimate.calls // (calls_per_query * QUERIES_PER_CHECK))
        for estimate in _estimate_methods(window, vocab_size, request, settings)
        if method in ("auto", estimate.method)
    ]
    if not estimates:
        raise RecoverError(
            f"{method} does not work with an endpoint that shows {count_noun(window, 'logprob')} per call"
        )
    return estimates


def _estimate_methods(
    window: int, vocab_size: int, request: RecoveryRequest, settings: RecoverySettings
) -> Iterator[CallEstimate]:
    """Yield an estimate, without drift checks, of each method that works with this number of shown logprobs."""
    top_count, basis, calls_per_query = request.top_count, settings.basis, settings.calls_per_query or 1
    probe_calls = _PROBE_CALLS + max(0, calls_per_query - 2) if window else _PROBE_CALLS_WITHOUT_LOGPROBS
    tokens_per_call = max(1, window - 1)
    # some of the requested ids may be shown without a bias
    is_approximate = request.ids is not None
    hidden_count = _count_hidden(window, vocab_size, request)
    bisection_calls = calls_per_token(_BISECTION_WIDTH_NATS, settings.bisection_error_nats)
    if top_count is not None and window:
        query_count = ceil(max(0, top_count - window) / tokens_per_call)
        yield CallEstimate("top_n", probe_calls + calls_per_query * query_count, False)
    if basis is not None and (request.method == "basis" or _may_use(basis, vocab_size, request)):
        check_basis(basis, vocab_size)
        calls_of_token = {0: bisection_calls, 1: _SINGLE_CALLS_PER_TOKEN}.get(window, 1 / tokens_per_call)
        query_count = ceil(count_queried(basis) * calls_of_token)
        yield CallEstimate("basis", probe_calls + calls_per_query * query_count, window < 2)
    if window > 1:
        query_count = ceil(hidden_count / tokens_per_call)
        yield CallEstimate("parallel", probe_calls + calls_per_query * query_count, is_approximate)
    if window:
        query_count = ceil(_SINGLE_CALLS_PER_TOKEN * hidden_count)
        yield CallEstimate("single", probe_calls + calls_per_query * query_count, True)
        yield CallEstimate("forced", probe_calls + 1 + calls_per_query * hidden_count, is_approximate)
    bisected_count = hidden_count if top_count is None else min(top_count, hidden_count)
    ranking_calls = 0 if top_count is None else bisected_count
    yield CallEstimate("bisection", probe_calls + ranking_calls + bisected_count * bisection_calls, True)


def _count_hidden(window: int, vocab_size: int, request: RecoveryRequest) -> int:
    """Return the number of requested tokens that are not shown without a bias."""
    if request.ids is not None:
        return len(request.ids)
    if request.top_count is not None and request.top_count <= window:
        return 0
    return max(0, vocab_size - window)


def _may_use(basis: Basis, vocab_size: int, request: RecoveryRequest) -> bool:
    """Return whether ``auto`` may use the basis."""
    # With ``top_count`` a basis of another model is ignored, not rejected.
    has_matching_size = request.top_count is None or basis.vocab_size == vocab_size
    return has_matching_size and is_basis_cheaper(basis, request)
