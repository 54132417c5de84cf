"""Generates one text: reads the prompt, then runs the decoder on the model's own context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter

from ..grammars.constraint import Constraint
from ..logprobs.events import Event, PromptToken, Token
from ..models.errors import AbortedError
from ..samplers.chain import Chain
from .context import Context, Progress
from .context_shift import ContextShift
from .decoder_driver import DecoderDriver
from .generation_task import GenerationRequest, GenerationTask
from .logprob_reader import LogprobRequest
from .model import Model
from .scoring import score_prompt


def generate(  # noqa: PLR0913 - the arguments are public
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
    complete_sentence: bool = False,
    lookup: int = 0,
    keep_on_shift: int | None = None,
    trace: int | None = None,
    exact_reuse: bool = False,
    progress: Progress | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Continue a prompt and yield one event after the other: `Start`, `PromptToken`, `Token`, `Done`.

    Args:
        model: The model; its own context is used.
        prompt: Text, UTF-8 bytes, or token ids.
        chain: Chooses each token. It is reset first.
        constraint: Masks tokens before the chain. The run ends when the text is a complete sentence that nothing
            can follow.
        stop: A stop text, or several.
        max_tokens: How many tokens to make at most; None: until the model ends its text or the context is full.
        top_logprobs: None: no logprobs; 0: the chosen token's; n: also those of the n likeliest tokens; -1: those
            of all tokens.
        logprobs_from: ``model``: log-softmax of the model's logits; ``chain``: of the candidates from which the
            token was drawn; ``both``. In nats.
        logprob_of: Ids of tokens whose logprobs every event has.
        echo: Yield the prompt's tokens too; with the model's logprobs, if there are any.
        jump: Read the tokens that the constraint forces in one batch. The chain draws for each of them all the
            same, so that its random numbers stay in step; what it draws does not count.
        complete_sentence: If ``max_tokens`` cuts a sentence off, complete it by a short way, beyond that length.
            Needs a `Closable` constraint.
        lookup: Guess up to this many tokens from the text so far, and read them in one batch. The chain draws each
            token all the same: only the time changes, if llama.cpp computes the same logits for a token alone
            and in a batch.
        keep_on_shift: Go on when the context is full, as llama.cpp's context shift: keep this many tokens of the
            prompt, -1 for all; discard half of the others, and move the rest up. None: the text ends there.
        trace: Record in `Token.trace` what each step of the chain did, with this many of the likeliest tokens of
            each stage; None: nothing is recorded. Tokens and logprobs are the same with and without.
        exact_reuse: Of what the context holds of an earlier run, keep only what an empty context would compute
            alike, so that the tokens are those of a first run.
        progress: Called while the prompt is read.
        is_interrupted: Called while the prompt is read and before each token. Once it returns True, the run ends
            with the finish reason ``interrupted``.

    Raises ``ModelError``, ``SamplingError``, ``GrammarError``.
    """
    logprobs = LogprobRequest(top_logprobs, logprobs_from, tuple(logprob_of))
    request = GenerationRequest(
        prompt, chain, constraint, stop, max_tokens, logprobs, jump, complete_sentence, lookup, trace
    )
    context = model.context
    shift = None if keep_on_shift is None else ContextShift(context, keep_on_shift)
    task = GenerationTask(model, request, context, shift)
    prompt_ids = task.prompt_ids
    context.check(prompt_ids)
    began = perf_counter()
    cached_tokens = 0 if echo else context.read(prompt_ids, progress, is_interrupted, exact=exact_reuse)
    prompt_seconds = perf_counter() - began
    yield task.start_event(cached_tokens, context.length)
    if echo:
        began = perf_counter()
        yield from _echo(model, prompt_ids, logprobs, progress, is_interrupted)
        prompt_seconds = perf_counter() - began
    began = perf_counter()
    reason: str | None = "interrupted"
    if len(context.tokens) == len(prompt_ids):
        driver = DecoderDriver(task.decode(is_interrupted))
        try:
            yield from _decode(driver, context)
            reason = driver.finish_reason
        except AbortedError:
            if is_interrupted is None:
                raise
    yield task.done_event(reason or "", prompt_seconds, perf_counter() - began)


def _echo(
    model: Model,
    prompt_ids: Sequence[int],
    logprobs: LogprobRequest,
    progress: Progress | None,
    is_interrupted: Callable[[], bool] | None,
) -> Iterator[PromptToken]:
    """Read the prompt and yield its tokens with the model's logprobs.

    Args:
        model: the model; its own context is used.
        prompt_ids: the tokens of the prompt.
        logprobs: what to read; the source is the model.
        progress: called while the prompt is read.
        is_interrupted: called between batches; the reading ends once it returns True.
    """
    context = model.context
    yield from score_prompt(model, prompt_ids, replace(logprobs, source="model"), progress, is_interrupted)
    if len(prompt_ids) > context.max_rows and len(context.tokens) == len(prompt_ids):
        # Scoring reads smaller batches, whose logits differ a little. Tokens must not depend on the echo.
        context.truncate(0)
        context.read(prompt_ids, progress, is_interrupted)


def _decode(driver: DecoderDriver, context: Context) -> Iterator[Token]:
    """Give the decoder the logits that it needs, until it ends."""
    yield from driver.resume()
    while driver.finish_reason is None:
        if driver.drop_count:
            context.truncate(len(context.tokens) - driver.drop_count)
        tokens = driver.needed_tokens
        yield from driver.resume(context.push_all(tokens) if tokens else (context.logits(),))
