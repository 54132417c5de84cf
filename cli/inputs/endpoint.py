"""From the command line to an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import note
from ..interrupt import Interrupt
from ..options.recover_flags import Api
from ..options.recover_options import EndpointOptions
from .model import load_model

if TYPE_CHECKING:
    from ...recover import Endpoint, HttpOptions, OpenAIEndpoint

_LOCAL_WINDOW, _SERVER_WINDOW = 5, 20
_DEFAULT_KEY = "OPENAI_API_KEY"
_BYTES_A_TOKEN = 4


@contextmanager
def opened(options: EndpointOptions, interrupt: Interrupt) -> Iterator[Endpoint]:
    """The endpoint, closed at the end."""
    from ...recover import LlamaServerEndpoint, LocalEndpoint

    with ExitStack() as stack:
        if options.endpoint is None:
            model = stack.enter_context(load_model(options, interrupt))
            yield LocalEndpoint(model, _LOCAL_WINDOW if options.window is None else options.window)
            return
        if options.api is Api.openai:
            remote: LlamaServerEndpoint | OpenAIEndpoint = _openai(options, options.endpoint)
        else:
            remote = LlamaServerEndpoint(
                options.endpoint,
                _SERVER_WINDOW if options.window is None else options.window,
                post_sampling=not options.pre_sampling,
                slot=None if options.slot is not None and options.slot < 0 else options.slot or 0,
                vocab_size=options.vocab_size,
                options=_http(options, options.key_env),
            )
        stack.callback(remote.close)
        yield remote


def count_tokens(endpoint: Endpoint, prompt: str) -> tuple[int, bool]:
    """How many tokens the prompt has, and whether that is only a guess."""
    count = getattr(endpoint, "count_tokens", None)
    if count is not None:
        return count(prompt), False
    return -(-len(prompt.encode()) // _BYTES_A_TOKEN), True


def _openai(options: EndpointOptions, url: str) -> OpenAIEndpoint:
    from ...recover import OpenAIEndpoint

    # This API is asked nothing in a dry run, so that it needs no key.
    key = None if options.dry_run else options.key_env or _DEFAULT_KEY
    return OpenAIEndpoint(
        url,
        options.api_model or "",
        options.window,
        pieces=_pieces(options.tokenizer or Path()),
        chat=options.api_chat,
        options=_http(options, key),
    )


def _pieces(path: Path) -> list[bytes | None]:
    """The bytes of each token of a tokenizer; control tokens of a GGUF are no text."""
    from ...engine import Model
    from ...recover import read_tiktoken

    if path.suffix != ".gguf":
        return read_tiktoken(path)
    with Model.load(path, n_ctx=64) as model:
        vocabulary = model.vocabulary
        return [None if vocabulary.is_control(token) else piece for token, piece in enumerate(vocabulary.pieces)]


def _http(options: EndpointOptions, key: str | None) -> HttpOptions:
    from ...recover import HttpOptions

    said: list[str] = []

    def again(problem: str) -> None:
        if problem not in said[-1:]:  # once is enough while it lasts
            note(f"{problem}; trying again")
        said.append(problem)

    return HttpOptions(
        timeout=options.timeout, retries=options.retries, rate=options.rate, key_env=key, told=again
    )
