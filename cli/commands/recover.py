"""`gen recover`: every logprob out of an API, or a model, that shows only a few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ...common.text import count_noun
from ..errors import FAILED, note, say
from ..inputs.endpoint import count_tokens, open_endpoint
from ..inputs.model import show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..interrupt import Interrupt, interruptible
from ..options.recover import RecoverOptions
from ..options.signature import takes_options

if TYPE_CHECKING:
    from ...recover.endpoints.base import Endpoint
    from ...recover.request import RecoverySettings
    from ...recover.results import Recovery


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
    with interruptible() as interrupt, _advice(), open_endpoint(options, interrupt) as endpoint:
        if options.calls.dry_run:
            _show_plan(endpoint, prompt, options)
        else:
            _run(endpoint, prompt, options, interrupt)


@contextmanager
def _advice() -> Iterator[None]:
    """Add what to do to the failure of an endpoint where nobody answers."""
    from ...recover.errors import RecoverError

    try:
        yield
    except RecoverError as error:
        if error.is_absent:
            raise RecoverError(f"{error}; --wait waits for a server that starts") from None
        raise


def _show_plan(endpoint: Endpoint, prompt: str, options: RecoverOptions) -> None:
    from ...recover.cost import estimate_calls
    from ..render.progress import recovering
    from ..render.recovery import show_plan

    method = options.method
    with recovering("Planning"):
        estimates = estimate_calls(
            endpoint, prompt, method.method.value, method.top, method.token_ids, settings=_settings(options)
        )
        count, is_guess = count_tokens(endpoint, prompt)
    show_plan(estimates, count, is_guess, options.calls.prices)


def _settings(options: RecoverOptions, **others: Any) -> RecoverySettings:
    from ...recover.basis import Basis
    from ...recover.request import RecoverySettings

    method = options.method
    return RecoverySettings(
        basis=None if method.basis is None else Basis.load(method.basis),
        eps=method.eps,
        tolerance=method.tolerance,
        repeats=method.repeats,
        max_calls=options.calls.max_calls,
        in_flight=options.calls.in_flight,
        **others,
    )


def _run(endpoint: Endpoint, prompt: str, options: RecoverOptions, interrupt: Interrupt) -> None:
    from ...recover.verification import verify
    from ..render import recovery as render
    from ..render.progress import recovering

    output = options.output
    checkpoint = output.checkpoint_file
    if output.file is not None and _is_finished(output.file, endpoint, prompt, options, interrupt):
        return
    if checkpoint is not None and output.resume and not checkpoint.exists():
        note(f"{checkpoint}: there is no checkpoint; this begins anew")
    with recovering() as progress:
        settings = _settings(
            options,
            checkpoint=checkpoint,
            resume=output.resume,
            progress=progress,
            interrupted=lambda: interrupt.requested,
        )
        recovery = _recover(endpoint, prompt, options, settings)
    render.write(recovery, output.output, {} if output.output is None else _about(endpoint, prompt, options))
    render.summary(recovery)
    if recovery.stopped is not None:
        _end_early(
            recovery.stopped, f"after {count_noun(recovery.sent, 'call')}; {_how_to_go_on(checkpoint)}", interrupt
        )
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    if output.verify is not None:
        with recovering("Verifying"):
            verification = verify(endpoint, prompt, recovery, output.verify, settings)
        render.show_verification(verification)
        if verification.stopped is not None:
            _end_early(verification.stopped, "while verifying; what was recovered is whole", interrupt)
    if not recovery.complete:
        raise typer.Exit(FAILED)


def _about(endpoint: Endpoint, prompt: str, options: RecoverOptions) -> dict[str, Any]:
    """Return what identifies a result: the endpoint, the prompt, and which tokens are asked for."""
    method = options.method
    return {
        "endpoint": dict(endpoint.identity),
        "prompt": prompt,
        "request": {"top": method.top, "ids": method.token_ids},
    }


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


def _is_finished(
    file: Path, endpoint: Endpoint, prompt: str, options: RecoverOptions, interrupt: Interrupt
) -> bool:
    """Return True if the file holds the complete result of this command, which --resume does not repeat.

    Raises ``RecoverError`` if the file holds another result.
    """
    import json

    from ...common.text import shorten
    from ...recover.errors import RecoverError
    from ...recover.request import RecoverySettings
    from ...recover.results import read_head
    from ...recover.session import endpoint_identity

    if not options.output.resume or not _has_content(file):
        return False
    found = read_head(file)
    checkpoint = options.output.checkpoint_file
    if not found["complete"] and checkpoint is not None and checkpoint.exists():
        return False  # the checkpoint names its endpoint and prompt, too
    endpoint_identity(endpoint, RecoverySettings(interrupted=lambda: interrupt.requested))
    for name, value in _about(endpoint, prompt, options).items():
        if name not in found:  # as in files of earlier versions
            raise RecoverError(f"{file}: the file has no {name} of its run to compare; give another file with -o")
        if found[name] != value:
            was, given = (
                shorten(each) if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
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
    note(f"{file}: the result is complete; no call was made")
    return True


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
        if error.kept and not options.output.resume:
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
    say(f"gen: {'interrupted' if was_interrupted else '--max-calls is reached'} {when}")
    raise typer.Exit(interrupt.exit_code if was_interrupted else FAILED)
