"""`gen recover`: every logprob out of an API, or a model, that shows only a few."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ..errors import FAILED, INTERRUPTED, note, report_failures, say
from ..inputs.endpoint import count_tokens, opened
from ..inputs.model import hear_llama_cpp
from ..inputs.prompt import read_prompt
from ..interrupt import Interrupt, interruptible
from ..options import flags as o
from ..options import recover_flags as r
from ..options.recover_checks import check_recover, given
from ..options.recover_options import RecoverOptions

if TYPE_CHECKING:
    from ...recover import Endpoint, Recovery, RecoverySettings, Verification


def recover(
    context: typer.Context,
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
    """Recover the logprobs of all tokens, or of some, from an API that shows few a call.

    The API must take a logit bias. Without --endpoint, a model here is asked through such a window, for study.
    """
    options = RecoverOptions.of(locals())
    check_recover(options, given(context))
    with report_failures():
        _recover(options)


def _recover(options: RecoverOptions) -> None:
    from ...recover import check_output_path

    hear_llama_cpp(options)
    if options.output is not None and str(options.output) != "-":
        check_output_path(options.output)
    tokens = options.tokens
    prompt = read_prompt(options)
    with interruptible() as interrupt, opened(options, interrupt) as endpoint:
        if options.dry_run:
            _show_plan(endpoint, prompt, tokens, options)
        else:
            _run(endpoint, prompt, tokens, (options, interrupt))


def _show_plan(endpoint: Endpoint, prompt: str, tokens: list[int] | None, options: RecoverOptions) -> None:
    from ...recover import estimate_calls
    from ..render.recovery import show_plan

    settings = _settings(options)
    estimates = estimate_calls(endpoint, prompt, options.method.value, options.top, tokens, settings=settings)
    count, guessed = count_tokens(endpoint, prompt)
    show_plan(estimates, count, guessed, options.prices)


def _settings(options: RecoverOptions, **rest: Any) -> RecoverySettings:
    from ...recover import Basis, RecoverySettings

    return RecoverySettings(
        basis=None if options.basis is None else Basis.load(options.basis),
        eps=options.eps,
        tolerance=options.tolerance,
        repeats=options.repeats,
        max_calls=options.max_calls,
        in_flight=options.in_flight,
        **rest,
    )


def _run(endpoint: Endpoint, prompt: str, tokens: list[int] | None, run: tuple[RecoverOptions, Interrupt]) -> None:
    from ...recover import RecoverError, endpoint_identity, recover, verify
    from ..render import recovery as render
    from ..render.progress import recovering

    options, interrupt = run
    kept = options.kept_in
    if kept is not None and options.resume and not kept.exists():
        note(f"{kept}: there is no checkpoint; this begins anew")
    with recovering() as progress:
        settings = _settings(
            options,
            checkpoint=kept,
            resume=options.resume,
            progress=progress,
            interrupted=lambda: interrupt.requested,
        )
        if str(options.output) == "-":  # in the end the server may be gone; for a file it is kept before
            endpoint_identity(endpoint, settings)
        try:
            found = recover(endpoint, prompt, options.method.value, options.top, tokens, settings=settings)
        except RecoverError as error:
            if error.kept and not options.resume:
                raise RecoverError(f"{error}; what was answered is kept: go on with --resume") from None
            raise
    about = {} if options.output is None else {"endpoint": dict(endpoint.identity), "prompt": prompt}
    render.write(found, options.output, about)
    render.summary(found)
    if found.stopped is not None:
        _stopped(found, kept)
    if kept is not None:
        kept.unlink(missing_ok=True)
    if options.verify is not None:
        _show(verify(endpoint, prompt, found, options.verify, settings))
    if not found.complete:
        raise typer.Exit(FAILED)


def _stopped(found: Recovery, kept: Path | None) -> NoReturn:
    """Say how to go on, and leave."""
    how = "nothing is kept, for want of -o or --checkpoint"
    if kept is not None and not kept.exists():
        how = "nothing was answered, so that nothing is kept"
    elif kept is not None:
        how = f"the answers are kept in {kept}: the same command with --resume goes on"
    _leave(found.stopped, f"after {found.sent:,} calls; {how}")


def _show(seen: Verification) -> None:
    """Say what the second look saw; leave where it was not carried through."""
    from ..render.recovery import show_verification

    show_verification(seen)
    if seen.stopped is not None:
        _leave(seen.stopped, "while verifying; what was recovered is whole")


def _leave(stopped: str | None, when: str) -> NoReturn:
    """Say why no further call was made."""
    interrupted = stopped == "interrupted"
    say(f"gen: {'interrupted' if interrupted else '--max-calls is reached'} {when}")
    raise typer.Exit(INTERRUPTED if interrupted else FAILED)
