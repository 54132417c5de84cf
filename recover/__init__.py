"""Recovery of all logprobs from an API that shows only a few: endpoints, methods, checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .basis import Basis as Basis, basis_from_rows as basis_from_rows, output_matrix as output_matrix
    from .cost import CallEstimate as CallEstimate, estimate_calls as estimate_calls
    from .endpoints.base import (
        Bias as Bias,
        ClaimCall as ClaimCall,
        Endpoint as Endpoint,
        EndpointLimits as EndpointLimits,
        EndpointResponse as EndpointResponse,
        QueryKind as QueryKind,
    )
    from .endpoints.http import HttpOptions as HttpOptions, Retry as Retry
    from .endpoints.llama_server import LlamaServerEndpoint as LlamaServerEndpoint
    from .endpoints.local import LocalEndpoint as LocalEndpoint
    from .endpoints.openai import (
        OpenAIEndpoint as OpenAIEndpoint,
        TokenTextTable as TokenTextTable,
        read_tiktoken as read_tiktoken,
    )
    from .errors import RecoverError as RecoverError
    from .recovery import recover as recover
    from .request import METHODS as METHODS, RecoverySettings as RecoverySettings
    from .results import Recovery as Recovery, read_rows as read_rows, save_recovery as save_recovery
    from .verification import Verification as Verification, verify as verify

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".basis": ("Basis", "basis_from_rows", "output_matrix"),
        ".cost": ("CallEstimate", "estimate_calls"),
        ".endpoints.base": ("Bias", "ClaimCall", "Endpoint", "EndpointLimits", "EndpointResponse", "QueryKind"),
        ".endpoints.http": ("HttpOptions", "Retry"),
        ".endpoints.llama_server": ("LlamaServerEndpoint",),
        ".endpoints.local": ("LocalEndpoint",),
        ".endpoints.openai": ("OpenAIEndpoint", "TokenTextTable", "read_tiktoken"),
        ".errors": ("RecoverError",),
        ".recovery": ("recover",),
        ".request": ("METHODS", "RecoverySettings"),
        ".results": ("Recovery", "read_rows", "save_recovery"),
        ".verification": ("Verification", "verify"),
    },
)
