"""Generates one text: a request, the task that carries it out, and the events of its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..grammars.constraint import BackgroundConstraint, Constraint, as_closable
from ..logprobs.events import BatchExactness, Done, Event, PromptToken, Start, Timings, Token
from ..models.errors import AbortedError, ModelError
from ..samplers.chain import Chain
from .context import Context, ContextShift, Progress
from .decoder import Decoder, DecoderDriver, Decoding, PromptLookup, SequenceCapacity
from .model import Model
from .native.binding import binding_version
from .scoring import score_prompt
from .token_records import LogprobReader, LogprobRequest, TraceReader
from .vocabulary import TextStream, Vocabulary

if TYPE_CHECKING:
    from ..grammars.spec import GrammarSpec


@dataclass(frozen=True)
class GenerationRequest:
    """What to generate. The fields mean what the arguments of `generate` mean.

    ``logprobs``: which logprobs to read. ``key`` identifies the request among others. A chain and a constraint
    belong to one request at a time.
    """

    prompt: str | bytes | Sequence[int]
    chain: Chain
    constraint: Constraint | None = None
    stop: str | Sequence[str] = ()
    max_tokens: int | None = None
    logprobs: LogprobRequest = field(default_factory=LogprobRequest)
    jump: bool = True
    complete_sentence: bool = False
    lookup: int = 0
    trace: int | None = None
    key: object = None


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


class GenerationTask:
    """A request that is being carried out, with its decoder and its first and last event.

    Attributes: ``request``; ``prompt_ids``, the prompt's tokens. Raises ``ModelError`` for a request that cannot
    be carried out. ``shift``: what to do when ``capacity`` is used up; None: the text ends.
    """

    def __init__(
        self,
        model: Model,
        request: GenerationRequest,
        capacity: SequenceCapacity,
        shift: ContextShift | None = None,
    ) -> None:
        if request.max_tokens is not None and request.max_tokens < 0:
            raise ModelError(f"max_tokens: {request.max_tokens} is not ≥ 0")
        if request.complete_sentence and as_closable(request.constraint) is None:
            raise ModelError("complete_sentence: only a text under a grammar can be completed")
        self.request = request
        self.prompt_ids = prompt_token_ids(model.vocabulary, request.prompt)
        self._model = model
        self._stops = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
        self._stream = TextStream(self._stops)
        self._lookup = _prompt_lookup(model, request, self.prompt_ids)
        self._shift = shift
        if shift is not None:
            shift.keep_of_prompt(len(self.prompt_ids), model.vocabulary.adds_bos)
        self._decoder = Decoder(
            vocabulary=model.vocabulary,
            capacity=capacity if shift is None else shift,
            chain=request.chain,
            constraint=request.constraint,
            reader=LogprobReader(model.vocabulary, request.logprobs),
            stream=self._stream,
            jump=request.jump,
            lookup=self._lookup,
            make_room=None if shift is None else shift.make_room,
            tracer=None if request.trace is None else TraceReader(model.vocabulary, request.chain, request.trace),
        )

    def start_event(self, cached_tokens: int, context: int, exactness: BatchExactness | None = None) -> Start:
        """Reset the chain, and return the event with everything that is needed to repeat the run."""
        chain = self.request.chain
        chain.reset(self.prompt_ids)
        return Start(
            model=self._model.name,
            seed=chain.seed,
            chain=chain.config,
            grammar=getattr(self.request.constraint, "description", None),
            prompt_tokens=len(self.prompt_ids),
            prompt_ids=tuple(self.prompt_ids),
            cached_tokens=cached_tokens,
            context=context,
            logprobs=_describe_logprobs(self.request.logprobs, self._model.vocabulary.size),
            max_tokens=self.request.max_tokens,
            stop=self._stops,
            versions=versions(),
            batch_exactness=exactness,
            trace=self.request.trace,
        )

    def decode(self, is_interrupted: Callable[[], bool] | None = None) -> Decoding:
        """Make the tokens; returns the finish reason."""
        limit = self.request.max_tokens
        reason = yield from self._decoder.decode(sys.maxsize if limit is None else limit, is_interrupted)
        if self.request.complete_sentence and reason == "length":
            yield from self._decoder.complete_sentence()
        return reason

    def done_event(self, reason: str, prompt_seconds: float, generation_seconds: float) -> Done:
        """Release the text that is held back, and return the last event."""
        decoder, stream = self._decoder, self._stream
        rest = stream.finish()
        return Done(
            finish_reason=reason if stream.stopped is None else "stop",
            complete=decoder.is_complete,
            text=stream.text,
            rest=rest,
            stop=stream.stopped,
            prompt_tokens=len(self.prompt_ids),
            completion_tokens=decoder.token_count,
            forced_tokens=decoder.forced_count,
            drafted_tokens=None if self._lookup is None else self._lookup.drafted,
            accepted_tokens=None if self._lookup is None else self._lookup.accepted,
            timings=Timings(prompt_seconds, generation_seconds, decoder.chain_seconds, decoder.grammar_seconds),
            context_shifts=None if self._shift is None else self._shift.count,
        )


def versions() -> dict[str, str]:
    """The versions of this package and of the binding to llama.cpp."""
    return dict(_versions())


@cache
def _versions() -> Mapping[str, str]:
    """The versions, which are read from files once, and not for each request of a batch."""
    return {"logitsmith": version("logitsmith"), "llama-cpp-python": binding_version()}


def _prompt_lookup(model: Model, request: GenerationRequest, prompt_ids: Sequence[int]) -> PromptLookup | None:
    if request.lookup < 0:
        raise ModelError(f"lookup: {request.lookup} is not ≥ 0")
    if request.lookup and not model.can_truncate:
        raise ModelError("lookup: this model is recurrent, and cannot take back what was guessed wrongly")
    return PromptLookup(request.lookup, prompt_ids) if request.lookup else None


def prompt_token_ids(vocabulary: Vocabulary, prompt: str | bytes | Sequence[int]) -> list[int]:
    """The tokens of a prompt: text, UTF-8 bytes, or ids. Raises ``ModelError``."""
    if isinstance(prompt, str):
        try:
            prompt = prompt.encode()
        except UnicodeEncodeError:
            raise ModelError("the prompt is not UTF-8") from None
    ids = vocabulary.tokenize_prompt(prompt) if isinstance(prompt, bytes) else list(prompt)
    if not ids and vocabulary.bos is not None:
        ids = [vocabulary.bos]  # after an empty prompt the model starts a text of its own
    vocabulary.check(ids)
    return ids


def _describe_logprobs(request: LogprobRequest, vocabulary_size: int) -> dict[str, Any] | None:
    """Which logprobs the tokens have, for the start event; None without any."""
    if request.top_count is None:
        return None
    description: dict[str, Any] = {"from": request.source, "top": request.top_count, "unit": "nats"}
    if request.token_ids:
        description["of"] = list(request.token_ids)
    if request.top_count < 0:
        description["row"] = {
            "encoding": "base64",
            "dtype": "float32",
            "byteorder": "little",
            "size": vocabulary_size,
        }
    return description


def start_constraint(spec: GrammarSpec, model: Model) -> Constraint:
    """Compile the grammar for the model, in a thread beside whatever else is done."""
    vocabulary = model.vocabulary
    constraint = BackgroundConstraint(lambda: spec.start(vocabulary), spec.description)
    if spec.names_tokens or spec.after is not None:
        constraint.wait()  # only the vocabulary can show its errors, and they come before the prompt is read
    return constraint
