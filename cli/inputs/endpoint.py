"""From the command line to an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..interrupt import Interrupt
from ..options.endpoint import Api, CallOptions
from .model import load_model

if TYPE_CHECKING:
    from ...recover.endpoints.base import Endpoint
    from ...recover.endpoints.http import HttpOptions
    from ...recover.endpoints.llama_server import LlamaServerEndpoint
    from ...recover.endpoints.openai import OpenAIEndpoint
    from ..options.recover import RecoverOptions

_LOCAL_WINDOW, _SERVER_WINDOW = 5, 20
"""Logprobs that a call shows: of a model here, as OpenAI's completions; of a server, a usual limit."""
_DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
_BYTES_PER_TOKEN = 4
"""Of English text, about, in the vocabularies of today."""


@contextmanager
def open_endpoint(options: RecoverOptions, interrupt: Interrupt) -> Iterator[Endpoint]:
    """The endpoint, or a model here; it is closed at the end."""
    from ...recover.endpoints.local import LocalEndpoint

    with ExitStack() as stack:
        window, url, api = options.endpoint.window, options.endpoint.endpoint, options.endpoint.api
        if url is None or api is None:  # `RecoverOptions` refuses one of them alone
            model = stack.enter_context(load_model(options.model, interrupt))
            yield LocalEndpoint(model, _LOCAL_WINDOW if window is None else window)
            return
        remote = APIS[api].open(options, url)
        stack.callback(remote.close)
        yield remote


def count_tokens(endpoint: Endpoint, prompt: str) -> tuple[int, bool]:
    """How many tokens the prompt has, and whether that is only a guess."""
    count = endpoint.count_tokens(prompt)
    if count is not None:
        return count, False
    return -(-len(prompt.encode()) // _BYTES_PER_TOKEN), True


def _llama_server(options: RecoverOptions, url: str) -> LlamaServerEndpoint:
    from ...recover.endpoints.llama_server import LlamaServerEndpoint

    endpoint = options.endpoint
    is_any_slot = endpoint.slot is not None and endpoint.slot < 0
    return LlamaServerEndpoint(
        url,
        _SERVER_WINDOW if endpoint.window is None else endpoint.window,
        post_sampling=not endpoint.pre_sampling,
        slot=None if is_any_slot else endpoint.slot or 0,
        vocab_size=endpoint.vocab_size,
        options=_http(options.calls, endpoint.key_env),
    )


def _openai(options: RecoverOptions, url: str) -> OpenAIEndpoint:
    from ...recover.endpoints.openai import OpenAIEndpoint

    endpoint = options.endpoint
    # This API is asked nothing in a dry run, so that it needs no key.
    key_variable = None if options.calls.dry_run else endpoint.key_env or _DEFAULT_KEY_VARIABLE
    return OpenAIEndpoint(
        url,
        endpoint.api_model or "",
        endpoint.window,
        pieces=_pieces(endpoint.tokenizer or Path()),
        chat=endpoint.api_chat,
        options=_http(options.calls, key_variable),
    )


def _pieces(path: Path) -> list[bytes | None]:
    """The bytes of each token of a tokenizer; control tokens of a GGUF are no text."""
    from ...engine.model import Model
    from ...recover.endpoints.openai import read_tiktoken

    if path.suffix != ".gguf":
        return read_tiktoken(path)
    with Model.load(path, n_ctx=64) as model:
        vocabulary = model.vocabulary
        return [None if vocabulary.is_control(token) else piece for token, piece in enumerate(vocabulary.pieces)]


def _http(options: CallOptions, key_variable: str | None) -> HttpOptions:
    from ...recover.endpoints.http import HttpOptions
    from ..render.progress import RETRIES

    return HttpOptions(
        timeout=options.timeout,
        retries=options.retries,
        rate=options.rate,
        key_env=key_variable,
        on_retry=RETRIES.show,
        waits_for_server=options.wait,
    )


@dataclass(frozen=True)
class ApiCommandLine:
    """What the command line of an API needs, and what it opens.

    Which flags are for an API alone, their ``only_for`` says, in `EndpointOptions`.

    Attributes:
        open: makes the endpoint of the options and the URL.
        required: the fields of `EndpointOptions` that must be given, each with the words for it in a message.
        may_load_model: True if a model file is read here, for its tokenizer.
    """

    open: Callable[[RecoverOptions, str], Endpoint]
    required: Mapping[str, str] = field(default_factory=dict)
    may_load_model: bool = False


APIS: Mapping[Api, ApiCommandLine] = {
    Api.llama_server: ApiCommandLine(_llama_server),
    Api.openai: ApiCommandLine(
        _openai,
        required={
            "api_model": "--api-model NAME",
            "tokenizer": "--tokenizer: that API names tokens by their text only",
        },
        may_load_model=True,
    ),
}
