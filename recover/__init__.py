"""Full logprobs out of an API that shows only a few: endpoints, methods, checkpoints."""

from .basis.basis import Basis
from .basis.gguf_output_matrix import output_matrix
from .basis.model_rows import basis_from_rows
from .call_estimates import CallEstimate, estimate_calls
from .endpoints.base import Bias, Endpoint, EndpointAnswer, EndpointLimits
from .endpoints.llama_server import LlamaServerEndpoint
from .endpoints.local import LocalEndpoint
from .endpoints.openai import OpenAIEndpoint
from .endpoints.token_texts import TokenTextTable, read_tiktoken
from .errors import RecoverError
from .file_writing import check_writable
from .query_session import endpoint_identity
from .recovery import METHODS, recover
from .results.result_files import (
    check_output_path,
    likeliest_tokens,
    read_row,
    read_rows,
    recovery_lines,
    save_recovery,
)
from .settings import Recovery, RecoverySettings
from .transport.api_client import HttpOptions
from .verification import Verification, verify

__all__ = [
    "METHODS",
    "Basis",
    "Bias",
    "CallEstimate",
    "Endpoint",
    "EndpointAnswer",
    "EndpointLimits",
    "HttpOptions",
    "LlamaServerEndpoint",
    "LocalEndpoint",
    "OpenAIEndpoint",
    "RecoverError",
    "Recovery",
    "RecoverySettings",
    "TokenTextTable",
    "Verification",
    "basis_from_rows",
    "check_output_path",
    "check_writable",
    "endpoint_identity",
    "estimate_calls",
    "likeliest_tokens",
    "output_matrix",
    "read_row",
    "read_rows",
    "read_tiktoken",
    "recover",
    "recovery_lines",
    "save_recovery",
    "verify",
]
