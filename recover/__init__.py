"""Recovery of all logprobs from an API that shows only a few: endpoints, methods, checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .basis import Basis, basis_from_rows, output_matrix
    from .cost import CallEstimate, estimate_calls
    from .endpoints.base import Bias, ClaimCall, Endpoint, EndpointLimits, EndpointResponse, QueryKind
    from .endpoints.http import HttpOptions, Retry
    from .endpoints.llama_server import LlamaServerEndpoint
    from .endpoints.local import LocalEndpoint
    from .endpoints.openai import OpenAIEndpoint, TokenTextTable, read_tiktoken
    from .errors import RecoverError
    from .recovery import recover
    from .request import METHODS, RecoverySettings
    from .results import Recovery, read_rows, save_recovery
    from .verification import Verification, verify
__all__ = [
    "METHODS",
    "Basis",
    "Bias",
    "CallEstimate",
    "ClaimCall",
    "Endpoint",
    "EndpointLimits",
    "EndpointResponse",
    "HttpOptions",
    "LlamaServerEndpoint",
    "LocalEndpoint",
    "OpenAIEndpoint",
    "QueryKind",
    "RecoverError",
    "Recovery",
    "RecoverySettings",
    "Retry",
    "TokenTextTable",
    "Verification",
    "basis_from_rows",
    "estimate_calls",
    "output_matrix",
    "read_rows",
    "read_tiktoken",
    "recover",
    "save_recovery",
    "verify",
]
__getattr__, __dir__ = lazy_exports(__name__)
