"""The flags of an endpoint: where it is, and how it is called."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from .flag import Options, flag, options_class
from .limits import POSITIVE, at_least

ENDPOINT = "an --endpoint"
"""What a flag may be only for, as `Api.as_flag`."""

_endpoint = partial(flag, panel="Endpoint (or a model, -m)")
_calls = partial(flag, panel="Calls")


class Api(StrEnum):
    """Which API an endpoint has; `cli/inputs/endpoint.py` says how each is opened."""

    llama_server = "llama-server"
    openai = "openai"

    @property
    def as_flag(self) -> str:
        """The flag that names it, as people write it."""
        return f"--api {self.value}"


@options_class
class EndpointOptions(Options):
    """Which endpoint is asked."""

    endpoint: str | None = _endpoint(
        "--endpoint", metavar="URL", help="Where the API is; an OpenAI one ends in /v1."
    )
    api: Api | None = _endpoint("--api", help=f"{' or '.join(api.value for api in Api)}.", only_for=ENDPOINT)
    api_model: str | None = _endpoint(
        "--api-model", metavar="NAME", help="The model's name there.", only_for=Api.openai.as_flag
    )
    api_chat: bool = _endpoint(
        "--api-chat",
        help="OpenAI's chat completions, not completions.",
        default=False,
        only_for=Api.openai.as_flag,
    )
    tokenizer: Path | None = _endpoint(
        "--tokenizer",
        metavar="FILE",
        help="A .gguf or .tiktoken; OpenAI's API names texts only.",
        only_for=Api.openai.as_flag,
    )
    key_env: str | None = _endpoint(
        "--key-env", metavar="NAME", help="Variable that holds the key. [OPENAI_API_KEY]", only_for=ENDPOINT
    )
    window: int | None = _endpoint(
        "--window",
        help="Logprobs that a call shows; 0 = only the token. [20; completions, -m: 5]",
        limit=at_least(0),
    )
    pre_sampling: bool = _endpoint(
        "--pre-sampling",
        help="llama-server: logprobs from before the biases (for study).",
        default=False,
        only_for=Api.llama_server.as_flag,
    )
    slot: int | None = _endpoint(
        "--slot",
        help="llama-server: ask this slot; -1 = any, answers may differ. [0]",
        limit=at_least(-1),
        only_for=Api.llama_server.as_flag,
    )
    vocab_size: int | None = _endpoint(
        "--vocab-size",
        help="llama-server: tokens, if it does not say. [asked]",
        limit=at_least(1),
        only_for=Api.llama_server.as_flag,
    )


@options_class
class CallOptions(Options):
    """How often and how fast an endpoint is called, and what that costs."""

    in_flight: int = _calls("--in-flight", help="Calls at once. [1]", default=1, limit=at_least(1))
    rate: float | None = _calls("--rate", help="Calls a second, at most.", limit=POSITIVE, only_for=ENDPOINT)
    timeout: float = _calls(
        "--timeout",
        help="Seconds until an answer must be complete. [60]",
        default=60.0,
        limit=POSITIVE,
        only_for=ENDPOINT,
    )
    retries: int = _calls(
        "--retries",
        help="New tries after 429, 5xx, a broken connection. [8]",
        default=8,
        limit=at_least(0),
        only_for=ENDPOINT,
    )
    wait: bool = _calls(
        "--wait",
        help="Retry also where nothing answers yet, such as a server that starts.",
        default=False,
        only_for=ENDPOINT,
    )
    max_calls: int | None = _calls(
        "--max-calls", help="Stop after this many answered calls, those of --verify included.", limit=at_least(1)
    )
    dry_run: bool = _calls("--dry-run", help="Print calls, tokens and cost; ask for no token.", default=False)
    price: str | None = _calls(
        "--price", metavar="IN[,OUT]", help="Dollars for a million tokens read, and written."
    )

    @property
    def prices(self) -> tuple[float, float] | None:
        """Dollars for a million tokens read and written. Raises ``UsageError``."""
        if self.price is None:
            return None
        try:
            numbers = [float(part) for part in self.price.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2) or not all(0 <= number < float("inf") for number in numbers):
            raise UsageError(f"--price: {self.price!r} is not one or two numbers ≥ 0, such as 0.5,1.5")
        return numbers[0], numbers[-1]

    def check(self) -> None:
        """Refuse prices that cannot be read, or are not used."""
        if self.prices is not None and not self.dry_run:
            raise UsageError("--price is for --dry-run, which prints what a run costs")
