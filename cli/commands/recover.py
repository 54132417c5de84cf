"""`gen recover`: every logprob out of an API, or a model, that shows only a few.

The flags that only some APIs have name these in their ``required_companions``; `APIS` says how each API is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ...common.errors import UsageError
from ...common.text import count_noun, short_repr
from ..command_options import TypedFlags, reject_same_file, takes_options
from ..flags import POSITIVE, Options, argument, at_least, flag, options_class
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

ENDPOINT = "an --endpoint"
"""What a flag may be only for, as `Api.as_flag`."""
BASIS = "a --basis"

_endpoint = partial(flag, panel="Endpoint (or a model, -m)")
_calls = partial(flag, panel="Calls")
_method = partial(flag, panel="What to recover, and how")
_output = partial(flag, panel="Output")


class Api(StrEnum):
    """Which API an endpoint has; `APIS` says how each is opened."""

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
    api: Api | None = _endpoint(
        "--api", help=f"{' or '.join(api.value for api in Api)}.", required_companions=ENDPOINT
    )
    api_model: str | None = _endpoint(
        "--api-model", metavar="NAME", help="The model's name there.", required_companions=Api.openai.as_flag
    )
    api_chat: bool = _endpoint(
        "--api-chat",
        help="OpenAI's chat completions, not completions.",
        default=False,
        required_companions=Api.openai.as_flag,
    )
    tokenizer: Path | None = _endpoint(
        "--tokenizer",
        metavar="FILE",
        help="A .gguf or .tiktoken; OpenAI's API names texts only.",
        required_companions=Api.openai.as_flag,
    )
    key_env: str | None = _endpoint(
        "--key-env",
        metavar="NAME",
        help="Variable that holds the key. [OPENAI_API_KEY]",
        required_companions=ENDPOINT,
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
        required_companions=Api.llama_server.as_flag,
    )
    slot: int | None = _endpoint(
        "--slot",
        help="llama-server: ask this slot; -1 = any, answers may differ. [0]",
        limit=at_least(-1),
        required_companions=Api.llama_server.as_flag,
    )
    vocab_size: int | None = _endpoint(
        "--vocab-size",
        help="llama-server: tokens, if it does not say. [asked]",
        limit=at_least(1),
        required_companions=Api.llama_server.as_flag,
    )


@options_class
class CallOptions(Options):
    """How often and how fast an endpoint is called, and what that costs."""

    in_flight: int = _calls("--in-flight", help="Calls at once. [1]", default=1, limit=at_least(1))
    rate: float | None = _calls(
        "--rate", help="Calls a second, at most.", limit=POSITIVE, required_companions=ENDPOINT
    )
    timeout: float = _calls(
        "--timeout",
        help="Seconds until an answer must be complete. [60]",
        default=60.0,
        limit=POSITIVE,
        required_companions=ENDPOINT,
    )
    retries: int = _calls(
        "--retries",
        help="New tries after 429, 5xx, a broken connection. [8]",
        default=8,
        limit=at_least(0),
        required_companions=ENDPOINT,
    )
    wait: bool = _calls(
        "--wait",
        help="Retry also where nothing answers yet, such as a server that starts.",
        default=False,
        required_companions=ENDPOINT,
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


class Method(StrEnum):
    """How logprobs are recovered."""

    auto = "auto"
    single = "single"
    parallel = "parallel"
    top_n = "top_n"
    bisection = "bisection"
    forced = "forced"
    basis = "basis"


@options_class
class RecoverPromptOptions(PromptOptions):
    """Where the prompt comes from: one of these, or stdin."""

    prompt: str | None = argument(
        "PROMPT", help="The text whose next token is asked about.", display_name="the prompt", has_escapes=True
    )


@options_class
class MethodOptions(Options):
    """What is recovered, and how."""

    method: Method = _method(
        "--method",
        metavar="METHOD",
        help="auto finds out what works, and takes the cheapest. [auto]",
        default=Method.auto,
    )
    top: int | None = _method("--top", metavar="N", help="Only the N likeliest tokens.", limit=at_least(1))
    ids: str | None = _method("--ids", metavar="ID,ID,…", help="Only these tokens.")
    basis: Path | None = _method("--basis", metavar="FILE", help="What gen recover-basis made of the same model.")
    eps: float = _method("--eps", help="Where bisection stops, nats. [0.001]", default=1e-3, limit=POSITIVE)
    tolerance: float = _method(
        "--tolerance",
        help="Largest error on held-out tokens with which a basis is used. [0.01]",
        default=0.01,
        limit=POSITIVE,
        required_companions=BASIS,
    )
    repeats: int | None = _method(
        "--repeats", help="Ask this often, and average. [1; 4 if answers differ]", limit=at_least(1)
    )

    @property
    def token_ids(self) -> list[int] | None:
        """The ids that ``--ids`` names. Raises ``UsageError``."""
        if self.ids is None:
            return None
        try:
            return [int(text) for text in self.ids.split(",")]
        except ValueError:
            raise UsageError(f"--ids: {self.ids!r} is not a list of token ids, such as 5,17") from None

    def check(self) -> None:
        """Refuse what cannot stand together."""
        if self.top is not None and self.token_ids is not None:
            raise UsageError("--top and --ids both say which tokens; give one")
        if self.method is Method.top_n and self.top is None:
            raise UsageError("--method top_n needs --top N")
        if self.method is Method.basis and self.basis is None:
            raise UsageError("--method basis needs --basis FILE, which gen recover-basis makes")


@options_class
class RecoverOutputOptions(Options):
    """Where results and answers are kept."""

    output: Path | None = _output(
        "-o", "--output", metavar="FILE", help=".npz, .json or .jsonl; - prints JSONL. [a table]"
    )
    checkpoint: Path | None = _output("--checkpoint", metavar="FILE", help="Keeps each answer. [FILE.checkpoint]")
    resume: bool = _output("--resume", help="Go on with the checkpoint, and repeat no call.", default=False)
    verify: int | None = _output(
        "--verify", metavar="N", help="Ask for N random tokens again, one by one.", limit=at_least(1)
    )

    @property
    def prints_lines(self) -> bool:
        """True if the result goes to stdout as JSONL."""
        return str(self.output) == "-"

    @property
    def file(self) -> Path | None:
        """The file of the result; None: it is printed."""
        return None if self.prints_lines else self.output

    @property
    def checkpoint_file(self) -> Path | None:
        """Where answers are kept while the run lasts."""
        if self.checkpoint is not None or self.file is None:
            return self.checkpoint
        return self.file.with_name(self.file.name + ".checkpoint")

    def check(self) -> None:
        """Refuse to go on with nothing."""
        if self.resume and self.checkpoint_file is None:
            raise UsageError("--resume needs the checkpoint: -o FILE or --checkpoint FILE")


@options_class
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
        """True unless the result goes to a file; the plan is printed."""
        return self.output.file is None or self.calls.dry_run

    def check(self) -> None:
        """Refuse flags that do not fit the endpoint, and a file that would be written over one that is read."""
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
        endpoint, given = self.endpoint, self.typed_flags
        if endpoint.api is None:
            raise UsageError(f"--endpoint needs {' or '.join(api.as_flag for api in Api)}")
        if self.model.model_reference is not None:
            raise UsageError("-m and --endpoint both name what is asked; give one")
        given.reject(ModelOptions, why="is for a model here, not for an --endpoint")
        given.reject_unavailable(EndpointOptions, available=[ENDPOINT, endpoint.api.as_flag])
        command_line = APIS[endpoint.api]
        if not command_line.may_load_model:
            given.reject(LogOptions, why="is for a model here, not for an --endpoint")
        for name, needed in command_line.required.items():
            if getattr(endpoint, name) in (None, ""):
                raise UsageError(f"{endpoint.api.as_flag} needs {needed}")


@takes_options(RecoverOptions)
def recover(options: RecoverOptions) -> None:
    """Recover the logprobs of all tokens, or of some, from an API that shows a few per call.

    The API must take a logit bias. Without --endpoint, a model here is asked through such a window, for study.
    """
    from ...recover.results import check_output_path

    show_llama_cpp_messages(options.log)
    if options.output.file is not None:
        check_output_path(options.output.file)
        if not options.calls.dry_run:
            _check_new(options.output.file, options)
    prompt = read_prompt(options.prompt)
    with interruptible() as interrupt, _advice(), _open_endpoint(options, interrupt) as endpoint:
        if options.calls.dry_run:
            _show_plan(endpoint, prompt, options)
        else:
            _run(endpoint, prompt, options, interrupt)


def _check_new(file: Path, options: RecoverOptions) -> None:
    """Raise ``RecoverError`` if the file has a result that would be replaced, as `gen batch` does."""
    from ...recover.errors import RecoverError

    checkpoint = options.output.checkpoint_file
    if options.output.resume or not _has_content(file):
        return
    if checkpoint is None or not checkpoint.exists():  # a checkpoint that exists is rejected when it is opened
        raise RecoverError(f"{file}: the file already exists; --resume continues it, or give another file with -o")


def _has_content(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


@contextmanager
def _advice() -> Iterator[None]:
    """Add what to do to the failure of an endpoint where nobody answers."""
    from ...recover.errors import RecoverError

    try:
        yield
    except RecoverError as error:
        if error.is_unreachable:
            raise RecoverError(f"{error}; --wait waits for a server that starts") from None
        raise


_BYTES_PER_TOKEN = 4
"""Of English text, about, in the vocabularies of today."""


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
    guess = -(-len(prompt.encode()) // _BYTES_PER_TOKEN)
    show_plan(estimates, guess if count is None else count, count is None, options.calls.prices)


def _run(endpoint: Endpoint, prompt: str, options: RecoverOptions, interrupt: Interrupt) -> None:
    from ...recover.verification import verify
    from ..render import recovery as render
    from ..render.progress import recovery_bar

    output = options.output
    checkpoint = output.checkpoint_file
    if output.file is not None and _is_finished(output.file, endpoint, prompt, options, interrupt):
        return
    if checkpoint is not None and output.resume and not checkpoint.exists():
        print_note(f"{checkpoint}: there is no checkpoint; this begins anew")
    with recovery_bar() as progress:
        settings = _settings(
            options,
            checkpoint=checkpoint,
            resume=output.resume,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
        recovery = _recover(endpoint, prompt, options, settings)
    render.write(recovery, output.output, {} if output.output is None else _about(endpoint, prompt, options))
    render.summary(recovery)
    if recovery.stop_reason is not None:
        _end_early(
            recovery.stop_reason,
            f"after {count_noun(recovery.new_calls, 'call')}; {_how_to_go_on(checkpoint)}",
            interrupt,
        )
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    if output.verify is not None:
        with recovery_bar("Verifying"):
            verification = verify(endpoint, prompt, recovery, output.verify, settings)
        render.show_verification(verification)
        if verification.stop_reason is not None:
            _end_early(verification.stop_reason, "while verifying; what was recovered is whole", interrupt)
    if not recovery.is_complete:
        raise typer.Exit(FAILED)


def _settings(options: RecoverOptions, **others: Any) -> RecoverySettings:
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
        **others,
    )


def _is_finished(
    file: Path, endpoint: Endpoint, prompt: str, options: RecoverOptions, interrupt: Interrupt
) -> bool:
    """Return True if the file holds the complete result of this command, which --resume does not repeat.

    Raises ``RecoverError`` if the file holds another result.
    """
    import json

    from ...recover.errors import RecoverError
    from ...recover.request import RecoverySettings
    from ...recover.results import read_run_header
    from ...recover.session import endpoint_identity

    if not options.output.resume or not _has_content(file):
        return False
    found = read_run_header(file)
    checkpoint = options.output.checkpoint_file
    if not found["complete"] and checkpoint is not None and checkpoint.exists():
        return False  # the checkpoint names its endpoint and prompt, too
    endpoint_identity(endpoint, RecoverySettings(is_interrupted=lambda: interrupt.requested))
    for name, value in _about(endpoint, prompt, options).items():
        if name not in found:  # as in files of earlier versions
            raise RecoverError(f"{file}: the file has no {name} of its run to compare; give another file with -o")
        if found[name] != value:
            was, given = (
                short_repr(each) if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
                for each in (found[name], value)
            )
            raise RecoverError(
                f"{file}: the file holds the result of another run: its {name} is {was}, not {given}; "
                "give another file with -o"
            )
    if not found["complete"]:
        return False
    if options.output.verify is not None:
        raise RecoverError(f"{file}: the result is complete; to verify a new one, give another file with -o")
    print_note(f"{file}: the result is complete; no call was made")
    return True


def _about(endpoint: Endpoint, prompt: str, options: RecoverOptions) -> dict[str, Any]:
    """Return what identifies a result: the endpoint, the prompt, and which tokens are asked for."""
    method = options.method
    return {
        "endpoint": dict(endpoint.identity),
        "prompt": prompt,
        "request": {"top": method.top, "ids": method.token_ids},
    }


def _recover(endpoint: Endpoint, prompt: str, options: RecoverOptions, settings: RecoverySettings) -> Recovery:
    from ...recover.errors import RecoverError
    from ...recover.recovery import recover
    from ...recover.session import endpoint_identity

    if options.output.prints_lines:  # for a file the endpoint is asked anyway; at the end it may be gone
        endpoint_identity(endpoint, settings)
    method = options.method
    try:
        return recover(endpoint, prompt, method.method.value, method.top, method.token_ids, settings=settings)
    except RecoverError as error:
        if error.has_checkpoint and not options.output.resume:
            raise RecoverError(f"{error}; what was answered is kept: go on with --resume") from None
        raise


def _how_to_go_on(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "nothing is kept, for want of -o or --checkpoint"
    if not checkpoint.exists():
        return "nothing was answered, so that nothing is kept"
    return f"the answers are kept in {checkpoint}: the same command with --resume goes on"


def _end_early(stopped: str, when: str, interrupt: Interrupt) -> NoReturn:
    """Print why no further call was made, and end the command."""
    was_interrupted = stopped == "interrupted"
    print_message(f"gen: {'interrupted' if was_interrupted else '--max-calls is reached'} {when}")
    raise typer.Exit(interrupt.exit_code if was_interrupted else FAILED)


_LOCAL_WINDOW, _SERVER_WINDOW = 5, 20
"""Logprobs that a call shows: of a model here, as OpenAI's completions; of a server, a usual limit."""


@contextmanager
def _open_endpoint(options: RecoverOptions, interrupt: Interrupt) -> Iterator[Endpoint]:
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
    key_variable = None if options.calls.dry_run else endpoint.key_env or "OPENAI_API_KEY"
    return OpenAIEndpoint(
        url,
        endpoint.api_model or "",
        endpoint.window,
        token_bytes=_pieces(endpoint.tokenizer or Path()),
        uses_chat_completions=endpoint.api_chat,
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
    """What the command line of an API needs, and what it opens.

    Which flags are for an API alone, their ``required_companions`` says, in `EndpointOptions`.

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
