"""Full logprobs out of an API that shows only a few: endpoints, methods, checkpoints."""

from .asker import endpoint_identity
from .basis import Basis
from .endpoint import Answer, Bias, Endpoint, Limits
from .errors import RecoverError
from .files import check_writable
from .http import HttpOptions
from .llama_server import LlamaServerEndpoint
from .local import LocalEndpoint
from .openai import OpenAIEndpoint
from .output import check_output_path, likeliest_tokens, read_row, read_rows, recovery_lines, save_recovery
from .output_matrix import output_matrix
from .plan import CallEstimate, estimate_calls
from .recovery import METHODS, recover
from .rows import basis_from_rows
from .settings import Recovery, RecoverySettings
from .tokens import TokenTextTable, read_tiktoken
from .verify import Verification, verify

__all__ = [
    "METHODS",
    "Answer",
    "Basis",
    "Bias",
    "CallEstimate",
    "Endpoint",
    "HttpOptions",
    "Limits",
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
