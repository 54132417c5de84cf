"""The loop: read the prompt, then logits, chain, token, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from ..grammars import Constraint
from ..samplers import Chain
from .context import Context, Progress
from .distribution import LogprobRequest
from .events import Event, Token
from .job import Job, Request, Steps
from .model import Model
from .scoring import score_prompt


def generate(  # noqa: PLR0913 - the contract's own names
    model: Model,
    prompt: str | bytes | Sequence[int],
    chain: Chain,
    constraint: Constraint | None = None,
    *,
    stop: str | Sequence[str] = (),
    max_tokens: int | None = None,
    top_logprobs: int | None = None,
    logprobs_from: str = "model",
    logprob_of: Sequence[int] = (),
    echo: bool = False,
    jump: bool = True,
    close: bool = False,
    lookup: int = 0,
    progress: Progress | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Write on from ``prompt`` (text, UTF-8 bytes, or token ids), one event after the other.

    ``chain`` chooses each token; it is reset first. ``constraint``: masks tokens before the chain; the run ends
    when the text is whole and nothing can follow. ``stop``: a text, or texts, that end the run. ``max_tokens``:
    None: until the model ends or the context is full. ``top_logprobs``: None: no logprobs; 0: the chosen token's;
    n: the n likeliest beside it; -1: every token's. ``logprobs_from``: ``model``, the log-softmax of the untouched
    logits; ``chain``, of what was drawn from; or ``both``; nats. ``logprob_of``: tokens that are always told of.
    ``echo``: tell of the prompt's tokens too, with the model's logprobs if there are to be logprobs.
    ``jump``: read tokens that the constraint
    forces in one batch; the chain works on each all the same, so that its random numbers stay in step, but what
    it draws does not count. ``close``: bring a text that was cut off to its end by a short way, beyond
    ``max_tokens``; needs a `Closable` constraint. ``lookup``: guess up to so many tokens from the text
    so far, and read them at once; the chain draws each all the same, so that only the time changes, as far as
    llama.cpp computes a token alike beside others. ``interrupted`` is asked while the prompt is read and before
    each token; once it returns True, the run ends in order. Raises ``ModelError``, ``SamplingError``,
    ``GrammarError``.
    """
    wanted = LogprobRequest(top_logprobs, logprobs_from, tuple(logprob_of))
    request = Request(prompt, chain, constraint, stop, max_tokens, wanted, jump, close, lookup)
    context = model.context
    job = Job(model, request, context)
    context.check(job.ids)
    began = perf_counter()
    cached = 0 if echo else context.read(job.ids, progress, interrupted)
    prompt_seconds = perf_counter() - began
    yield job.start(cached, context.length)
    if echo:
        began = perf_counter()
        yield from score_prompt(
            model, job.ids, LogprobRequest(top_logprobs, "model", wanted.named), progress, interrupted
        )
        if len(job.ids) > context.piece and len(context.tokens) == len(job.ids):
            # What is drawn must not depend on whether the prompt is told of.
            context.back_to(0)
            context.read(job.ids, progress, interrupted)
        prompt_seconds = perf_counter() - began
    began = perf_counter()
    reason: str | None = "interrupted"
    if len(context.tokens) == len(job.ids):
        steps = Steps(job.moves(interrupted))
        yield from _written(steps, context)
        reason = steps.reason
    yield job.done(reason or "", prompt_seconds, perf_counter() - began)


def _written(steps: Steps, context: Context) -> Iterator[Token]:
    """Answer what a run asks for, until it ends."""
    yield from steps.go_on()
    while steps.reason is None:
        if steps.back:
            context.back_to(len(context.tokens) - steps.back)
        yield from steps.go_on(context.push_all(steps.wants) if steps.wants else (context.logits(),))
