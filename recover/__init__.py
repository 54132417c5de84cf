"""Full logprobs out of an API that shows only a few: endpoints, methods, checkpoints."""

from .asker import identity_of
from .basis import Basis
from .endpoint import Answer, Bias, Endpoint, Limits
from .errors import RecoverError
from .files import check_place
from .http import HttpOptions
from .llama_server import LlamaServerEndpoint
from .local import LocalEndpoint
from .openai import OpenAIEndpoint
from .output import check_format, likeliest, lines, read_row, read_rows, save
from .output_matrix import output_matrix
from .plan import Estimate, plan
from .recovery import METHODS, recover
from .rows import basis_of_rows
from .settings import Recovery, Settings
from .tokens import TokenTable, read_tiktoken
from .verify import Verification, verify

__all__ = [
    "METHODS",
    "Answer",
    "Basis",
    "Bias",
    "Endpoint",
    "Estimate",
    "HttpOptions",
    "Limits",
    "LlamaServerEndpoint",
    "LocalEndpoint",
    "OpenAIEndpoint",
    "RecoverError",
    "Recovery",
    "Settings",
    "TokenTable",
    "Verification",
    "basis_of_rows",
    "check_format",
    "check_place",
    "identity_of",
    "likeliest",
    "lines",
    "output_matrix",
    "plan",
    "read_row",
    "read_rows",
    "read_tiktoken",
    "recover",
    "save",
    "verify",
]
