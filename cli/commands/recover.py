"""`gen recover`: recover the logprobs of all tokens from an API, or a local model, that shows only a few.

A flag that only some APIs have lists them in its ``required_companions``. `APIS` defines how the endpoint of
each API is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ...common.errors import UsageError
from ...common.flags import POSITIVE, at_least
from ...common.text import count_noun, short_repr
from ..command_options import TypedFlags, reject_same_file, takes_options
from ..flags import Options, argument, flag
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, print_message, print_note
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import EscapeOptions, PromptOptions

if TYPE_CHECKING:
    from ...recover.endpoints.base import Endpoint
    from ...recover.endpoints.http import HttpOptions
    from ...recover.endpoints.llama_server import LlamaServerEndpoint
    from ...recover.endpoints.openai import OpenAIEndpoint
    from ...recover.request import RecoverySettings
    from ...recover.results import Recovery

ENDPOINT = "an --endpoint"  # a value of ``required_companions``, like `Api.as_flag`: the flag needs an endpoint
BASIS = "a --basis"  # a value of ``required_companions``: the flag needs a basis

_endpoint = partial(flag, panel="Endpoint (or a model, -m)")
_calls = partial(flag, panel="Calls")
_method = partial(flag, panel="What to recover, and how")
_output = partial(flag, panel="Output")


class Api(StrEnum):
    """The type of an API; `APIS` defines how its endpoint is created."""

    llama_server = "llama-server"
    openai = "openai"

    @property
    def as_flag(self) -> str:
        """The flag that selects this API, as users type it."""
        return f"--api {self.value}"


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(Options):
    """Options that select the endpoint."""

    endpoint: str | None = _endpoint(
        "--endpoint", metavar="URL", help="URL of the API; for OpenAI's API, it ends in /v1."
    )
    api: Api | None = _endpoint(
        "--api", help=f"API at --endpoint, needed with it: {' or '.join(Api)}.", required_companions=ENDPOINT
    )
    api_model: str | None = _endpoint(
        "--api-model", metavar="NAME", help="Name of the model at the API.", required_companions=Api.openai.as_flag
    )
    api_chat: bool = _endpoint(
        "--api-chat",
        help="Use OpenAI's chat completions instead of completions.",
        default=False,
        required_companions=Api.openai.as_flag,
    )
    tokenizer: Path | None = _endpoint(
        "--tokenizer",
        metavar="FILE",
        help="Tokenizer of the model, .gguf or .tiktoken; OpenAI's API shows tokens as text.",
        required_companions=Api.openai.as_flag,
    )
    key_env: str | None = _endpoint(
        "--key-env",
        metavar="NAME",
        help="Environment variable that holds the API key. [OPENAI_API_KEY]",
        required_companions=ENDPOINT,
    )
    window: int | None = _endpoint(
        "--window",
        help="Number of logprobs that a call shows; 0 = only the token. [5 for completions and -m, otherwise 20]",
        limit=at_least(0),
    )
    pre_sampling: bool = _endpoint(
        "--pre-sampling",
        help="llama-server: use logprobs from before the biases, for study.",
        default=False,
        required_companions=Api.llama_server.as_flag,
    )
    slot: int | None = _endpoint(
        "--slot",
        help="llama-server: slot that all calls use; -1 = any slot, responses may differ. [0]",
        limit=at_least(-1),
        required_companions=Api.llama_server.as_flag,
    )
    vocab_size: int | None = _endpoint(
        "--vocab-size",
        help="llama-server: number of tokens in the vocabulary. [as the server reports]",
        limit=at_least(1),
        required_companions=Api.llama_server.as_flag,
    )


@dataclass(frozen=True, kw_only=True)
class CallOptions(Options):
    """Options that limit the number and the rate of calls, and estimate their cost."""

    in_flight: int = _calls("--in-flight", help="Number of concurrent calls. [1]", default=1, limit=at_least(1))
    rate: float | None = _calls(
        "--rate", help="Maximum number of calls per second.", limit=POSITIVE, required_companions=ENDPOINT
    )
    timeout: float = _calls(
        "--timeout",
        help="Seconds until a response must be complete. [60]",
        default=60.0,
        limit=POSITIVE,
        required_companions=ENDPOINT,
    )
    retries: int = _calls(
        "--retries",
        help="Number of retries after status 429, 5xx, or a broken connection. [8]",
        default=8,
        limit=at_least(0),
        required_companions=ENDPOINT,
    )
    wait: bool = _calls(
        "--wait",
        help="Retry also if no connection is possible, for example while the server starts.",
        default=False,
        required_companions=ENDPOINT,
    )
    max_calls: int | None = _calls(
        "--max-calls",
        help="Stop after this many successful calls, including those of --verify.",
        limit=at_least(1),
    )
    dry_run: bool = _calls(
        "--dry-run", help="Print the number of calls, tokens and the cost; request no token.", default=False
    )
    price: str | None = _calls(
        "--price", metavar="IN[,OUT]", help="With --dry-run: dollars per million tokens read, and written."
    )

    @property
    def prices(self) -> tuple[float, float] | None:
        """Dollars per million tokens read, and per million tokens written; None without ``--price``."""
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
        if self.prices is not None and not self.dry_run:
            raise UsageError("--price needs --dry-run, which prints the cost of a run")


class Method(StrEnum):
    """A method of recovery."""

    auto = "auto"
    single = "single"
    parallel = "parallel"
    top_n = "top_n"
    bisection = "bisection"
    forced = "forced"
    basis = "basis"


@dataclass(frozen=True, kw_only=True)
class RecoverPromptOptions(PromptOptions):
    """Options for the source of the prompt: an argument, a file, or stdin."""

    prompt: str | None = argument(
        "PROMPT",
        help="The text before the token whose logprobs are recovered.",
        display_name="the prompt",
        has_escapes=True,
    )


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Options):
    """Options for the requested tokens and the method."""

    method: Method = _method(
        "--method",
        metavar="METHOD",
        help="Method of recovery; auto = the cheapest one that works. [auto]",
        default=Method.auto,
    )
    top: int | None = _method(
        "--top", metavar="N", help="Recover only the N most likely tokens.", limit=at_least(1)
    )
    ids: str | None = _method("--ids", metavar="ID,ID,…", help="Recover only these token ids.")
    basis: Path | None = _method(
        "--basis", metavar="FILE", help="File that gen recover-basis created from the same model."
    )
    eps: float = _method(
        "--eps", help="Error at which bisection stops, in nats. [0.001]", default=1e-3, limit=POSITIVE
    )
    tolerance: float = _method(
        "--tolerance",
        help="Maximum error of held-out tokens up to which a basis is used, in nats. [0.01]",
        default=0.01,
        limit=POSITIVE,
        required_companions=BASIS,
    )
    repeats: int | None = _method(
        "--repeats",
        help="Send each query this many times, and average the responses. [1; 4 if responses differ]",
        limit=at_least(1),
    )

    @property
    def token_ids(self) -> list[int] | None:
        """The ids of ``--ids``; None without the flag."""
        if self.ids is None:
            return None
        try:
            return [int(text) for text in self.ids.split(",")]
        except ValueError:
            raise UsageError(f"--ids: {self.ids!r} is not a list of token ids, such as 5,17") from None

    def check(self) -> None:
        if self.top is not None and self.token_ids is not None:
            raise UsageError("--top and --ids cannot be combined; give one of them")
        if self.method is Method.top_n and self.top is None:
            raise UsageError("--method top_n needs --top N")
        if self.method is Method.basis and self.basis is None:
            raise UsageError("--method basis needs --basis FILE, which gen recover-basis creates")


@dataclass(frozen=True, kw_only=True)
class RecoverOutputOptions(Options):
    """Options for the files of results and responses."""

    output: Path | None = _output(
        "-o",
        "--output",
        metavar="FILE",
        help="File of the result: .npz, .json or .jsonl; - prints JSONL. [a table]",
    )
    checkpoint: Path | None = _output(
        "--checkpoint",
        metavar="FILE",
        help="File that saves each response during the run. [the file of -o, plus .checkpoint]",
    )
    resume: bool = _output(
        "--resume", help="Continue from the checkpoint, without repeating calls.", default=False
    )
    verify: int | None = _output(
        "--verify",
        metavar="N",
        help="Measure N random tokens again, one per call, and print the largest difference from the result.",
        limit=at_least(1),
    )

    @property
    def prints_lines(self) -> bool:
        """Whether the result goes to stdout, as JSONL."""
        return str(self.output) == "-"

    @property
    def file(self) -> Path | None:
        """The file of the result; None if the result is printed."""
        return None if self.prints_lines else self.output

    @property
    def checkpoint_file(self) -> Path | None:
        """The file that saves responses during the run; None if there is none."""
        if self.checkpoint is not None or self.file is None:
            return self.checkpoint
        return self.file.with_name(self.file.name + ".checkpoint")

    def check(self) -> None:
        """Reject ``--resume`` without a file to continue."""
        if self.resume and self.checkpoint_file is None:
            raise UsageError("--resume needs a checkpoint; give -o FILE or --checkpoint FILE")


@dataclass(frozen=True, kw_only=True)
class RecoverOptions(Options):
    """The options of `gen recover`."""

    typed_flags: TypedFlags
    prompt: RecoverPromptOptions
    escapes: EscapeOptions
    endpoint: EndpointOptions
    method: MethodOptions
    calls: CallOptions
    output: RecoverOutputOptions
    model: ModelOptions
    log: LogOptions

    @property
    def needs_stdout(self) -> bool:
        """True if something is printed to stdout: the result, unless it is written to a file, or the plan."""
        return self.output.file is None or self.calls.dry_run

    def check(self) -> None:
        """Reject flags that the endpoint does not support, and an output file that is also an input file."""
        if self.endpoint.endpoint is None:
            required_companions = [ENDPOINT, *(api.as_flag for api in Api)]
            self.typed_flags.reject(
                EndpointOptions, CallOptions, required_companions=required_companions, why=f"is for {ENDPOINT}"
            )
        else:
            self._check_endpoint()
        if self.method.basis is None:
            self.typed_flags.reject(MethodOptions, required_companions=[BASIS], why=f"is for {BASIS}")
        prompt_file = None if str(self.prompt.file) == "-" else self.prompt.file
        reject_same_file(
            written=[("-o", self.output.file), ("--checkpoint", self.output.checkpoint_file)],
            read=[
                ("--basis", self.method.basis),
                ("--tokenizer", self.endpoint.tokenizer),
                ("-f", prompt_file),
                ("-m", self.model.model_path),
            ],
        )

    def _check_endpoint(self) -> None:
        endpoint, typed_flags = self.endpoint, self.typed_flags
        if endpoint.api is None:
            raise UsageError(f"--endpoint needs {' or '.join(api.as_flag for api in Api)}")
        if self.model.model_reference is not None:
            raise UsageError("-m and --endpoint cannot be combined; give one of them")
        typed_flags.reject(ModelOptions, why="is for a local model, not for an --endpoint")
        typed_flags.reject_unavailable(EndpointOptions, available=[ENDPOINT, endpoint.api.as_flag])
        command_line = APIS[endpoint.api]
        if not command_line.may_load_model:
            typed_flags.reject(LogOptions, why="is for a local model, not for an --endpoint")
        for name, needed in command_line.required.items():
            if getattr(endpoint, name) in (None, ""):
                raise UsageError(f"{endpoint.api.as_flag} needs {needed}")


@takes_options(RecoverOptions)
def recover(options: RecoverOptions) -> None:
    """Recover the logprobs of all or some tokens from an API that shows only a few per call.

    The API must accept logit biases. Without --endpoint, a local model takes the place of the API: each call
    shows --window of its logprobs. This is meant for studying the methods.
    """
    from ...recover.results import check_output_path

    show_llama_cpp_messages(options.log)
    if options.output.file is not None:
        check_output_path(options.output.file)
        if not options.calls.dry_run:
            _check_new(options.output.file, options)
    prompt = read_prompt(options.prompt)
    with interruptible() as interrupt, _open_endpoint(options, interrupt) as endpoint:
        if options.calls.dry_run:
            _show_plan(endpoint, prompt, options)
        else:
            _run(endpoint, prompt, options, interrupt)


def _check_new(file: Path, options: RecoverOptions) -> None:
    """Raise ``RecoverError`` if the file holds a result, which would be replaced."""
    from ...recover.errors import RecoverError

    checkpoint = options.output.checkpoint_file
    if options.output.resume or not _has_content(file):
        return
    if checkpoint is None or not checkpoint.exists():  # an existing checkpoint is rejected when it is opened
        raise RecoverError(
            f"{file}: the file already exists; continue it with --resume, or choose another file with -o"
        )


def _has_content(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


_BYTES_PER_TOKEN = 4  # approximate average for English text in current vocabularies


def _show_plan(endpoint: Endpoint, prompt: str, options: RecoverOptions) -> None:
    from ...recover.cost import estimate_calls
    from ..render.progress import recovery_bar
    from ..render.recovery import show_plan

    method = options.method
    with recovery_bar("Planning"):
        estimates = estimate_calls(
            endpoint, prompt, method.method.value, method.top, method.token_ids, settings=_settings(options)
        )
        count = endpoint.count_tokens(prompt)
    if count is not None:
        show_plan(estimates, count, is_guessed=False, price=options.calls.prices)
    else:
        guessed_count = ceil(len(prompt.encode()) / _BYTES_PER_TOKEN)
        show_plan(estimates, guessed_count, is_guessed=True, price=options.calls.prices)


def _run(endpoint: Endpoint, prompt: str, options: RecoverOptions, interrupt: Interrupt) -> None:
    from ...recover.verification import verify
    from ..render import recovery as render
    from ..render.progress import recovery_bar

    output = options.output
    checkpoint = output.checkpoint_file
    if output.file is not None and _is_finished(output.file, endpoint, prompt, options, interrupt):
        return
    if checkpoint is not None and output.resume and not checkpoint.exists():
        print_note(f"{checkpoint}: the checkpoint does not exist; the recovery starts from the beginning")
    with recovery_bar() as progress:
        settings = _settings(
            options,
            checkpoint=checkpoint,
            resume=output.resume,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
        recovery = _recover(endpoint, prompt, options, settings)
    run_info = {} if output.output is None else _identifying_facts(endpoint, prompt, options)
    render.write(recovery, output.output, run_info)
    render.summary(recovery)
    if recovery.stop_reason is not None:
        _exit_early(
            recovery.stop_reason,
            f"after {count_noun(recovery.new_calls, 'call')}; {_continue_hint(checkpoint)}",
            interrupt,
        )
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    if output.verify is not None:
        with recovery_bar("Verifying"):
            verification = verify(endpoint, prompt, recovery, output.verify, settings)
        render.show_verification(verification)
        if verification.stop_reason is not None:
            _exit_early(
                verification.stop_reason, "during the verification; the recovery itself is complete", interrupt
            )
    if not recovery.is_complete:
        raise typer.Exit(FAILED)


def _settings(options: RecoverOptions, **more_settings: Any) -> RecoverySettings:
    from ...recover.basis import Basis
    from ...recover.request import RecoverySettings

    method = options.method
    return RecoverySettings(
        basis=None if method.basis is None else Basis.load(method.basis),
        bisection_error_nats=method.eps,
        max_held_out_error_nats=method.tolerance,
        calls_per_query=method.repeats,
        max_calls=options.calls.max_calls,
        max_concurrent_calls=options.calls.in_flight,
        **more_settings,
    )


def _is_finished(
    file: Path, endpoint: Endpoint, prompt: str, options: RecoverOptions, interrupt: Interrupt
) -> bool:
    """Return whether the file holds the complete result of this command."""
    # If it does, ``--resume`` has nothing to do. Raises ``RecoverError`` if the file holds another result.
    from ...recover.errors import RecoverError
    from ...recover.request import RecoverySettings
    from ...recover.results import read_run_header
    from ...recover.session import endpoint_identity

    if not options.output.resume or not _has_content(file):
        return False
    header = read_run_header(file)
    checkpoint = options.output.checkpoint_file
    if not header["complete"] and checkpoint is not None and checkpoint.exists():
        return False  # endpoint and prompt are compared with those in the checkpoint
    endpoint_identity(endpoint, RecoverySettings(is_interrupted=lambda: interrupt.requested))
    for name, value in _identifying_facts(endpoint, prompt, options).items():
        if name not in header:  # a file of an earlier version
            raise RecoverError(
                f"{file}: the file does not contain the {name} of its run; choose another file with -o"
            )
        if header[name] != value:
            raise RecoverError(
                f"{file}: the file contains the result of another run; {name} is {_value_text(header[name])}, "
                f"not {_value_text(value)}; choose another file with -o"
            )
    if not header["complete"]:
        return False
    if options.output.verify is not None:
        raise RecoverError(
            f"{file}: the result is already complete; to verify another one, choose another file with -o"
        )
    print_note(f"{file}: the result is already complete; no call was made")
    return True


def _value_text(value: Any) -> str:
    import json

    return short_repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _identifying_facts(endpoint: Endpoint, prompt: str, options: RecoverOptions) -> dict[str, Any]:
    """Return the facts that identify a result: the endpoint, the prompt, and the requested tokens."""
    method = options.method
    return {
        "endpoint": dict(endpoint.identity),
        "prompt": prompt,
        "request": {"top": method.top, "ids": method.token_ids},
    }


def _recover(endpoint: Endpoint, prompt: str, options: RecoverOptions, settings: RecoverySettings) -> Recovery:
    from ...recover.recovery import recover
    from ...recover.session import endpoint_identity

    if options.output.prints_lines:  # read now, because the server may be unreachable at the end
        endpoint_identity(endpoint, settings)
    method = options.method
    return recover(endpoint, prompt, method.method.value, method.top, method.token_ids, settings=settings)


def _continue_hint(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "no responses were saved; use -o or --checkpoint to save them"
    if not checkpoint.exists():
        return "there were no responses to save"
    return f"the responses are saved in {checkpoint}; continue with the same command and --resume"


def _exit_early(stop_reason: str, when: str, interrupt: Interrupt) -> NoReturn:
    """Print why the run ended early, and exit."""
    # ``stop_reason``: ``max_calls`` or ``interrupted``. ``when`` is the end of the message: when the run ended,
    # and how to continue it.
    if stop_reason == "interrupted":
        print_message(f"gen: interrupted {when}")
        raise typer.Exit(interrupt.exit_code)
    print_message(f"gen: --max-calls is reached {when}")
    raise typer.Exit(FAILED)


# default numbers of logprobs that a call shows
_LOCAL_WINDOW = 5  # the limit of OpenAI's completions
_SERVER_WINDOW = 20  # a common limit of servers


@contextmanager
def _open_endpoint(options: RecoverOptions, interrupt: Interrupt) -> Iterator[Endpoint]:
    """Open the endpoint, or a local model, and close it at the end."""
    from ...recover.endpoints.local import LocalEndpoint

    with ExitStack() as stack:
        url = options.endpoint.endpoint
        api = options.endpoint.api
        if url is not None and api is not None:  # `RecoverOptions` rejects one without the other
            endpoint = APIS[api].open(options, url)
            stack.callback(endpoint.close)
            yield endpoint
        else:
            window = options.endpoint.window
            model = stack.enter_context(load_model(options.model, interrupt))
            yield LocalEndpoint(model, _LOCAL_WINDOW if window is None else window)


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
    # A dry run does not call this API, so it needs no key.
    key_variable = None if options.calls.dry_run else endpoint.key_env or "OPENAI_API_KEY"
    return OpenAIEndpoint(
        url,
        endpoint.api_model or "",
        endpoint.window,
        token_bytes=_read_token_bytes(endpoint.tokenizer or Path()),
        uses_chat_completions=endpoint.api_chat,
        options=_http(options.calls, key_variable),
    )


def _read_token_bytes(path: Path) -> list[bytes | None]:
    """Return the bytes of each token of a tokenizer by id."""
    # Control tokens of a GGUF have None, because they have no text.
    from ...engine.model import Model
    from ...recover.endpoints.openai import read_tiktoken

    if path.suffix != ".gguf":
        return read_tiktoken(path)
    with Model.load(path, n_ctx=64) as model:
        vocabulary = model.vocabulary
        return [None if vocabulary.is_control(token) else data for token, data in enumerate(vocabulary.pieces)]


def _http(options: CallOptions, key_variable: str | None) -> HttpOptions:
    from ...recover.endpoints.http import HttpOptions
    from ..render.progress import RETRY_DISPLAY

    return HttpOptions(
        timeout_seconds=options.timeout,
        max_retries=options.retries,
        max_calls_per_second=options.rate,
        key_env=key_variable,
        on_retry=RETRY_DISPLAY.show,
        should_wait_for_server=options.wait,
    )


@dataclass(frozen=True)
class ApiCommandLine:
    """The command line of one API."""

    # The flags of a single API are in `EndpointOptions`, with a ``required_companions`` that lists the API.

    open: Callable[[RecoverOptions, str], Endpoint]  # creates the endpoint from the options and the URL
    # for each field of `EndpointOptions` that must be given: the flag, as a message shows it
    required: Mapping[str, str] = field(default_factory=dict)
    may_load_model: bool = False  # whether a model file may be loaded for its tokenizer


APIS: Mapping[Api, ApiCommandLine] = {
    Api.llama_server: ApiCommandLine(_llama_server),
    Api.openai: ApiCommandLine(
        _openai,
        required={
            "api_model": "--api-model NAME",
            "tokenizer": "--tokenizer FILE, because the API shows tokens as text",
        },
        may_load_model=True,
    ),
}
