"""From the command line to an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .errors import note
from .loading import load_model
from .options import ModelOptions
from .recover_flags import Api

if TYPE_CHECKING:
    from ..recover import Endpoint, HttpOptions, OpenAIEndpoint

_LOCAL_WINDOW, _API_WINDOW = 5, 20
_DEFAULT_KEY = "OPENAI_API_KEY"
_BYTES_A_TOKEN = 4


@dataclass(frozen=True)
class EndpointOptions(ModelOptions):
    """Which endpoint, and how it is called."""

    endpoint: str | None
    api: Api | None
    api_model: str | None
    api_chat: bool
    tokenizer: Path | None
    key_env: str | None
    window: int | None
    pre_sampling: bool
    slot: int | None
    vocab_size: int | None
    rate: float | None
    timeout: float
    retries: int
    dry_run: bool


def check_endpoint(options: EndpointOptions) -> None:
    """Refuse flags that do not go together."""
    _check_kind(options)
    for flag, size, least in (("--window", options.window, 0), ("--vocab-size", options.vocab_size, 1)):
        if size is not None and size < least:
            raise typer.BadParameter(f"{flag}: {size} is not ≥ {least}")


def _check_kind(options: EndpointOptions) -> None:
    if options.endpoint is None:
        for flag, value in _remote_flags(options).items():
            if value:
                raise typer.BadParameter(f"{flag} is for an --endpoint")
    elif options.api is None:
        raise typer.BadParameter("--endpoint needs --api llama-server or --api openai")
    elif options.model is not None:
        raise typer.BadParameter("-m and --endpoint both name what is asked; give one")
    if options.api is Api.openai and options.endpoint is not None:
        if not options.api_model:
            raise typer.BadParameter("--api openai needs --api-model NAME")
        if options.tokenizer is None:
            raise typer.BadParameter("--api openai needs --tokenizer: that API names tokens by their text only")


def _remote_flags(options: EndpointOptions) -> dict[str, object]:
    return {
        "--api": options.api,
        "--api-model": options.api_model,
        "--api-chat": options.api_chat,
        "--tokenizer": options.tokenizer,
        "--key-env": options.key_env,
        "--pre-sampling": options.pre_sampling,
        "--slot": options.slot is not None,
        "--vocab-size": options.vocab_size,
        "--rate": options.rate,
    }


@contextmanager
def opened(options: EndpointOptions, pressed: list[int]) -> Iterator[Endpoint]:
    """The endpoint, closed at the end."""
    from ..recover import LlamaServerEndpoint, LocalEndpoint

    with ExitStack() as stack:
        if options.endpoint is None:
            model = stack.enter_context(load_model(options, pressed))
            yield LocalEndpoint(model, _LOCAL_WINDOW if options.window is None else options.window)
            return
        window = _API_WINDOW if options.window is None else options.window
        if options.api is Api.openai:
            remote: LlamaServerEndpoint | OpenAIEndpoint = _openai(options, options.endpoint, window)
        else:
            remote = LlamaServerEndpoint(
                options.endpoint,
                window,
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


def _openai(options: EndpointOptions, url: str, window: int) -> OpenAIEndpoint:
    from ..recover import OpenAIEndpoint

    # Nothing is asked in a dry run, so that it needs no key.
    key = None if options.dry_run else options.key_env or _DEFAULT_KEY
    return OpenAIEndpoint(
        url,
        options.api_model or "",
        window,
        pieces=_pieces(options.tokenizer or Path()),
        chat=options.api_chat,
        options=_http(options, key),
    )


def _pieces(path: Path) -> list[bytes | None]:
    """The bytes of each token of a tokenizer; control tokens of a GGUF are no text."""
    from ..engine import Model
    from ..recover import read_tiktoken

    if path.suffix != ".gguf":
        return read_tiktoken(path)
    with Model.load(path, n_ctx=64) as model:
        vocabulary = model.vocabulary
        return [None if vocabulary.is_control(token) else piece for token, piece in enumerate(vocabulary.pieces)]


def _http(options: EndpointOptions, key: str | None) -> HttpOptions:
    from ..recover import HttpOptions

    said: list[str] = []

    def again(problem: str) -> None:
        if problem not in said[-1:]:  # once is enough while it lasts
            note(f"{problem}; trying again")
        said.append(problem)

    return HttpOptions(
        timeout=options.timeout, retries=options.retries, rate=options.rate, key_env=key, told=again
    )
