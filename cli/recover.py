"""`gen recover`: every logprob out of an API, or a model, that shows only a few."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from . import flags as o
from . import recover_flags as r
from .checks import check_model, check_text
from .errors import FAILED, INTERRUPTED, reported, say
from .interrupt import interruptible
from .loading import hear_llama_cpp
from .options import PromptOptions
from .prompt import read_prompt
from .recover_endpoint import EndpointOptions, check_endpoint, count_tokens, opened

if TYPE_CHECKING:
    from ..recover import Endpoint, Recovery, Settings


@dataclass(frozen=True)
class RecoverOptions(PromptOptions, EndpointOptions):
    """What `gen recover` was asked for."""

    method: r.Method
    top: int | None
    ids: str | None
    basis: Path | None
    eps: float
    tolerance: float
    repeats: int | None
    in_flight: int
    max_calls: int | None
    price: str | None
    output: Path | None
    checkpoint: Path | None
    resume: bool
    verify: int | None

    @property
    def kept_in(self) -> Path | None:
        """Where answers are kept while the run lasts."""
        if self.checkpoint is not None or self.output is None or str(self.output) == "-":
            return self.checkpoint
        return self.output.with_name(self.output.name + ".checkpoint")

    @property
    def tokens(self) -> list[int] | None:
        """The ids that were named. Raises ``typer.BadParameter``."""
        if self.ids is None:
            return None
        try:
            return [int(text) for text in self.ids.split(",")]
        except ValueError:
            raise typer.BadParameter(f"--ids: {self.ids!r} is not a list of token ids, such as 5,17") from None


def recover(
    prompt: r.RecoverPrompt = None,
    prompt_option: o.PromptOption = None,
    file: o.File = None,
    endpoint: r.EndpointUrl = None,
    api: r.ApiOption = None,
    api_model: r.ApiModel = None,
    api_chat: r.ApiChat = False,
    tokenizer: r.Tokenizer = None,
    key_env: r.KeyEnv = None,
    window: r.Window = None,
    pre_sampling: r.PreSampling = False,
    slot: r.ServerSlot = None,
    vocab_size: r.VocabSize = None,
    method: r.MethodOption = r.Method.auto,
    top: r.Top = None,
    ids: r.Ids = None,
    basis: r.BasisFile = None,
    eps: r.Eps = 1e-3,
    tolerance: r.Tolerance = 0.01,
    repeats: r.Repeats = None,
    in_flight: r.InFlight = 1,
    rate: r.Rate = None,
    timeout: r.Timeout = 60.0,
    retries: r.Retries = 8,
    max_calls: r.MaxCalls = None,
    dry_run: r.DryRun = False,
    price: r.Price = None,
    output: r.Output = None,
    checkpoint: r.Checkpoint = None,
    resume: r.Resume = False,
    verify: r.Verify = None,
    model: o.ModelPath = None,
    context_size: o.ContextSize = None,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = 0,
    batch_size: o.BatchSize = 512,
    lora: o.Lora = None,
    no_mmap: o.NoMmap = False,
    mlock: o.Mlock = False,
    verbose: o.Verbose = False,
) -> None:
    """Recover the logprobs of all tokens, of the likeliest, or of some, from an API that shows only a few a call.

    The API must take a logit bias. Without --endpoint, a model here is asked through such a window, for study.
    """
    options = RecoverOptions.of(locals())
    _check(options)
    with reported():
        _recover(options)


def _check(options: RecoverOptions) -> None:
    check_model(options)
    check_endpoint(options)
    for name in ("prompt", "prompt_option", "endpoint", "api_model", "ids"):
        check_text(name, getattr(options, name))
    if options.top is not None and options.ids is not None:
        raise typer.BadParameter("--top and --ids both say which tokens; give one")
    if options.method is r.Method.top_n and options.top is None:
        raise typer.BadParameter("--method top_n needs --top N")
    if options.method is r.Method.basis and options.basis is None:
        raise typer.BadParameter("--method basis needs --basis FILE, which gen recover-basis makes")
    if options.resume and options.kept_in is None:
        raise typer.BadParameter("--resume needs the checkpoint: -o FILE or --checkpoint FILE")
    if options.verify is not None and options.verify < 1:
        raise typer.BadParameter(f"--verify: {options.verify} is not ≥ 1")
    if options.price is not None:
        _prices(options.price)


def _prices(text: str) -> tuple[float, float]:
    """Dollars for a million tokens read and written."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 <= number < float("inf") for number in numbers):
        raise typer.BadParameter(f"--price: {text!r} is not one or two numbers ≥ 0, such as 0.5,1.5")
    return numbers[0], numbers[-1]


def _recover(options: RecoverOptions) -> None:
    from ..recover import check_format

    hear_llama_cpp(options)
    if options.output is not None and str(options.output) != "-":
        check_format(options.output)
    tokens = options.tokens
    prompt = read_prompt(options)
    with interruptible() as pressed, opened(options, pressed) as endpoint:
        if options.dry_run:
            _show_plan(endpoint, prompt, tokens, options)
        else:
            _run(endpoint, prompt, tokens, (options, pressed))


def _show_plan(endpoint: Endpoint, prompt: str, tokens: list[int] | None, options: RecoverOptions) -> None:
    from ..recover import plan
    from .render.recovery import show_plan

    asked = len(set(tokens)) if tokens is not None else endpoint.vocab_size
    estimates = plan(options.method.value, endpoint.limits, asked, options.top, _settings(options))
    if not estimates:
        raise typer.BadParameter(
            f"--method {options.method.value} does not go with what is asked for, or the window"
        )
    count, guessed = count_tokens(endpoint, prompt)
    show_plan(estimates, count, guessed, None if options.price is None else _prices(options.price))


def _settings(options: RecoverOptions, **rest: Any) -> Settings:
    from ..recover import Basis, Settings

    return Settings(
        basis=None if options.basis is None else Basis.load(options.basis),
        eps=options.eps,
        tolerance=options.tolerance,
        repeats=options.repeats,
        max_calls=options.max_calls,
        in_flight=options.in_flight,
        **rest,
    )


def _run(
    endpoint: Endpoint, prompt: str, tokens: list[int] | None, given: tuple[RecoverOptions, list[int]]
) -> None:
    from ..recover import RecoverError, recover, verify
    from .render import recovery as render
    from .render.progress import recovering

    options, pressed = given
    kept = options.kept_in
    with recovering() as progress:
        settings = _settings(
            options, checkpoint=kept, resume=options.resume, progress=progress, interrupted=lambda: bool(pressed)
        )
        try:
            found = recover(endpoint, prompt, options.method.value, options.top, tokens, settings=settings)
        except RecoverError as error:
            if kept is not None and kept.exists() and not options.resume and "--resume" not in str(error):
                raise RecoverError(f"{error}; what was answered is kept: go on with --resume") from None
            raise
    render.write(found, options.output, {"endpoint": dict(endpoint.identity), "prompt": prompt})
    render.summary(found)
    if found.stopped is not None:
        _stopped(found, kept)
    if kept is not None:
        kept.unlink(missing_ok=True)
    if options.verify is not None:
        render.show_verification(verify(endpoint, prompt, found, options.verify, settings))
    if not found.complete:
        raise typer.Exit(FAILED)


def _stopped(found: Recovery, kept: Path | None) -> NoReturn:
    """Say how to go on, and leave."""
    why = "interrupted" if found.stopped == "interrupted" else "--max-calls is reached"
    how = "nothing is kept, for want of -o or --checkpoint"
    if kept is not None:
        how = f"the answers are kept in {kept}: the same command with --resume goes on"
    say(f"gen: {why} after {found.sent:,} calls; {how}")
    raise typer.Exit(INTERRUPTED if found.stopped == "interrupted" else FAILED)
