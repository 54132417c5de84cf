"""A request to generate text, and the task that carries it out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ..grammars.constraint import BackgroundConstraint, Constraint, as_closable
from ..logprobs.events import BatchExactness, Done, Start, Timings
from ..models.errors import ModelError
from ..samplers.chain import Chain
from .context_shift import ContextShift
from .decoder import Decoder, Decoding, SequenceCapacity
from .logprob_reader import LogprobReader, LogprobRequest
from .model import Model
from .native_binding import binding_version
from .prompt_lookup import PromptLookup
from .text_stream import TextStream
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from ..grammars.spec import GrammarSpec
    from .trace_reader import TraceReader


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
            tracer=_trace_reader(model, request),
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


def _trace_reader(model: Model, request: GenerationRequest) -> TraceReader | None:
    if request.trace is None:
        return None
    from .trace_reader import TraceReader  # noqa: PLC0415 - few runs are traced

    return TraceReader(model.vocabulary, request.chain, request.trace)


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
