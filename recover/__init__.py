"""Full logprobs from an API that shows only a few: endpoints, methods, checkpoints."""

from .basis.basis import Basis
from .basis.gguf_output_matrix import output_matrix
from .basis.model_rows import basis_from_rows
from .call_estimates import CallEstimate, estimate_calls
from .endpoints.base import Bias, ClaimCall, Endpoint, EndpointAnswer, EndpointLimits, QuestionKind
from .endpoints.llama_server import LlamaServerEndpoint
from .endpoints.local import LocalEndpoint
from .endpoints.openai import OpenAIEndpoint
from .endpoints.token_texts import TokenTextTable, read_tiktoken
from .errors import RecoverError
from .file_writing import check_writable
from .query_session import endpoint_identity
from .recovery import recover
from .request import METHODS
from .results.recovery_result import Recovery
from .results.result_files import (
    check_output_path,
    likeliest_tokens,
    read_head,
    read_row,
    read_rows,
    recovery_lines,
    save_recovery,
)
from .settings import RecoverySettings
from .transport.api_client import HttpOptions, Retry
from .verification import Verification, verify

__all__ = [
    "METHODS",
    "Basis",
    "Bias",
    "CallEstimate",
    "ClaimCall",
    "Endpoint",
    "EndpointAnswer",
    "EndpointLimits",
    "HttpOptions",
    "LlamaServerEndpoint",
    "LocalEndpoint",
    "OpenAIEndpoint",
    "QuestionKind",
    "RecoverError",
    "Recovery",
    "RecoverySettings",
    "Retry",
    "TokenTextTable",
    "Verification",
    "basis_from_rows",
    "check_output_path",
    "check_writable",
    "endpoint_identity",
    "estimate_calls",
    "likeliest_tokens",
    "output_matrix",
    "read_head",
    "read_row",
    "read_rows",
    "read_tiktoken",
    "recover",
    "recovery_lines",
    "save_recovery",
    "verify",
]
