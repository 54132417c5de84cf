"""Generation of one text: runs a request, and yields the events of its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from .. import __version__
from ..common.seeds import RANDOM_SEED, fixed_seed
from ..grammars.constraint import BackgroundConstraint, Constraint, as_completable
from ..grammars.errors import GrammarError
from ..logprobs.events import BatchExactness, Done, Event, PromptToken, Rewind, Start, Timings, Token
from ..models.errors import AbortedError, ModelError
from ..samplers.building import build
from ..samplers.chain import Chain
from .confidence import AnswerTokens
from .context import Context, ContextShift, Progress
from .decoder import CommonCapacity, Decoder, DecoderRow, LogitsRequest, SequenceCapacity
from .drafts import DraftSource, DraftText, FirstDraft, ModelDraft, PromptLookup, ReadTokens
from .guidance import NegativeText, check_guidance, guidance_model
from .healing import PromptHealer, heal_prompt
from .model import Model
from .native.binding import binding_version
from .phase_tracker import PhaseTracker
from .phases import build_phases, leave_opening_to_grammar, reasoning_of_phases, tag_tokens
from .request import ChatMessages, GenerationRequest
from .scoring import score_prompt
from .text_guard import TextGuard
from .text_parts import TextParts
from .text_stream import TextStream
from .token_records import LogprobReader, LogprobRequest, TraceReader
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from ..grammars.grammar import Grammar
    from ..grammars.spec import GrammarSpec
    from ..samplers.building import Step


def generate(  # noqa: PLR0913 - the arguments are public
    model: Model,
    prompt: GenerationRequest | str | bytes | Sequence[int] | ChatMessages,
    chain: Chain | str | Sequence[Step] | None = None,
    constraint: GrammarSpec | Constraint | None = None,
    *,
    progress: Progress | None = None,
    is_interrupted: Callable[[], bool] | None = None,
    note: Callable[[str], object] | None = None,
    **fields: Any,
) -> Iterator[Event]:
    """Continue a prompt, and yield its events: `Start`, `PromptToken`, `Token`, `Rewind`, `Done`.

    Args:
        model: The model, whose context is used.
        prompt: A request; or its prompt, with its other fields as arguments.
        chain: Chooses each token. It is reset first.
        constraint: Masks tokens before the chain. The run ends when the text is a complete sentence that cannot be
            continued.
        progress: Called while the prompt is read.
        is_interrupted: Called while the prompt is read and before each token. Once it returns True, the run ends
            with the finish reason ``interrupted``.
        note: Called with a sentence if the messages of a chat had to be changed for the template.
        fields: The other fields of the request, see `GenerationRequest.of`.

    Raises ``ModelError``, ``SamplingError``, ``GrammarError``.
    """
    if isinstance(prompt, GenerationRequest):
        if chain is not None or constraint is not None or fields:
            raise TypeError("a request has its chain, its constraint and all other fields in itself")
        request = prompt
    else:
        if chain is None:
            raise TypeError("a prompt needs a chain")
        request = GenerationRequest.of(prompt, chain, constraint, **fields)
    return _generate(model, request, progress, is_interrupted, note)


def _generate(
    model: Model,
    request: GenerationRequest,
    progress: Progress | None,
    is_interrupted: Callable[[], bool] | None,
    note: Callable[[str], object] | None,
) -> Iterator[Event]:
    context = model.context
    shift = None if request.keep_on_shift is None else ContextShift(context, request.keep_on_shift)
    running = RunningRequest(model, request, show_note=note, compiles_in_background=True)
    prompt_ids = running.prompt_ids
    context.check(prompt_ids)
    negative = running.open_negative_text()
    if running.draft_model is not None:
        running.draft_with(DraftText(running.draft_model.second_context, is_interrupted).read)
    if negative is not None and shift is not None:
        raise ModelError(
            "not supported with a context shift, because the two texts differ in length", origin="guidance"
        )
    start_seconds = perf_counter()
    cached_tokens = 0
    if not request.echo:
        cached_tokens = context.read(prompt_ids, progress, is_interrupted, exact=bool(request.exact_reuse))
    prompt_seconds = perf_counter() - start_seconds
    capacity = context if negative is None else CommonCapacity(context, negative.context)
    yield running.begin(capacity, cached_tokens, context.length, shift=shift, is_interrupted=is_interrupted)
    if request.echo:
        start_seconds = perf_counter()
        yield from _yield_echo(model, prompt_ids, request.logprobs, progress, is_interrupted)
        prompt_seconds = perf_counter() - start_seconds
    start_seconds = perf_counter()
    is_prompt_read = len(context.tokens) == len(prompt_ids)
    if is_prompt_read and negative is not None:
        is_prompt_read = negative.read_prompt(progress, is_interrupted, exact=bool(request.exact_reuse))
        prompt_seconds += perf_counter() - start_seconds
        start_seconds = perf_counter()
    if is_prompt_read:
        try:
            yield from _decode_tokens(running, context, negative)
        except AbortedError:
            if is_interrupted is None:
                raise
        yield from running.release_held()
    yield running.finish(prompt_seconds, perf_counter() - start_seconds)


def _yield_echo(
    model: Model,
    prompt_ids: Sequence[int],
    logprobs: LogprobRequest,
    progress: Progress | None,
    is_interrupted: Callable[[], bool] | None,
) -> Iterator[PromptToken]:
    """Read the prompt, and yield its tokens with the model's logprobs."""
    context = model.context
    yield from score_prompt(model, prompt_ids, replace(logprobs, source="model"), progress, is_interrupted)
    if len(prompt_ids) > context.max_rows and len(context.tokens) == len(prompt_ids):
        # Scoring reads smaller batches, whose logits differ a little. The text must not depend on the echo.
        context.truncate(0)
        context.read(prompt_ids, progress, is_interrupted)


def _decode_tokens(
    running: RunningRequest, context: Context, negative: NegativeText | None
) -> Iterator[Token | Rewind]:
    yield from running.resume()
    while running.finish_reason is None:
        tokens = running.needed_tokens
        drop_count = running.drop_count
        if drop_count:
            context.truncate(len(context.tokens) - drop_count)
        rows = context.append_batch(tokens) if tokens else [context.logits()]
        if negative is None:
            yield from running.resume(rows)
        else:
            yield from running.resume(negative.guide_rows(rows, tokens, drop_count))


class RunningRequest:
    """A request that is run: call `begin` after its prompt was read, `resume` until it ends, then `finish`."""

    def __init__(
        self,
        model: Model,
        request: GenerationRequest,
        *,
        show_note: Callable[[str], object] | None = None,
        compiles_in_background: bool = False,
    ) -> None:
        """Tokenize the prompt, and build the chain and the constraint.

        Args:
            model: the model.
            request: the request.
            show_note: called with a sentence if the messages of a chat had to be changed for the template.
            compiles_in_background: whether to compile the grammar in a thread. Errors of the grammar are then
                raised when the first mask is needed.

        Raises ``ModelError``, ``SamplingError``, ``GrammarError`` for a request that cannot be run.
        """
        if request.max_tokens is not None and request.max_tokens < 0:
            raise ModelError(f"{request.max_tokens} is not ≥ 0", origin="max_tokens")
        request.rules.check()
        if request.beams is not None:
            raise ModelError("generate draws each token; call generate_beams", origin="beams")
        request.logprobs.check(model.vocabulary)
        model.vocabulary.check(request.stop_token_ids, "stop_token_ids")
        request = _with_fixed_seed(_with_chat_text(model, request, show_note))
        self.request = request
        self.finish_reason: str | None = None  # None until the text ends
        # the tokens to be read next. `resume` gets the logits after each of them. If there are no tokens, it gets
        # the logits after the last token that was read.
        self.needed_tokens: Sequence[int] = ()
        self.drop_count = 0  # number of tokens to remove from the end of the sequence before these are read
        self.model = model
        # the constraint, which has read the beginning of the answer; None: no constraint
        self.constraint = _start_constraint(model, request, compiles_in_background)
        if request.complete_sentence and as_completable(self.constraint) is None:
            raise ModelError("only a text under a grammar can be completed", origin="complete_sentence")
        self.chain = build_chain(model, request)
        self._phases = build_phases(model, request, self.chain, self.constraint, partial(_build, model, request))
        self._reasoning = reasoning_of_phases(request.reasoning, self._phases)
        self._parts = None if self._reasoning is None else TextParts(self._reasoning)
        self._answer_tokens = AnswerTokens() if request.measures_confidence else None
        self._tag_tokens = None if self._reasoning is None else tag_tokens(model.vocabulary, self._reasoning.tags)
        self.prompt_ids = prompt_token_ids(model.vocabulary, cast("str | bytes | Sequence[int]", request.prompt))
        # makes the first tokens spell the end of the prompt, which was removed; None: nothing was removed
        self.healer = heal_prompt_of(model.vocabulary, request, self.prompt_ids)
        self.negative_ids = negative_prompt_ids(model, request, self.prompt_ids)
        if self.healer is not None and self.negative_ids is not None:
            self.negative_ids = self.healer.without_removed(self.negative_ids)
        self._stop_strings = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
        self._stream = TextStream(self._stop_strings)
        _check_lookup(model, request)
        self.draft_model = None if request.draft is None else request.draft.open_for(model)
        self._read_draft_text: ReadTokens | None = None

    def open_negative_text(self) -> NegativeText | None:
        """Return the text after the negative prompt, for a single run; None without guidance."""
        # Raises ``ModelError``.
        guidance = self.request.rules.guidance
        if guidance is None or self.negative_ids is None:
            return None
        model = guidance_model(self.model, guidance)
        context = model.second_context if model is self.model else model.context
        return NegativeText(context, self.negative_ids, guidance.scale)

    def draft_with(self, read: ReadTokens) -> None:
        self._read_draft_text = read

    @property
    def is_drafting(self) -> bool:
        """True if some of the needed tokens may be a draft, which only saves time in one call."""
        return self._drafts is not None

    def _open_drafts(self) -> DraftSource | None:
        """Return the source of drafts after the prompt; None without one."""
        request = self.request
        sources: list[DraftSource] = []
        if request.lookup:
            sources.append(PromptLookup(request.lookup, ()))
        if request.draft is not None and self.draft_model is not None and self._read_draft_text is not None:
            vocabulary = self.model.vocabulary
            sources.append(ModelDraft(request.draft, self.draft_model, vocabulary, self._read_draft_text))
        if not sources:
            return None
        drafts = sources[0] if len(sources) == 1 else FirstDraft(sources)
        for token in self.prompt_ids:
            drafts.add(token)
        return drafts

    def _draft_exactness(self) -> BatchExactness | None:
        """Return the promise about a text with drafts of a model; None without a draft model."""
        if self.request.draft is None or self.draft_model is None:
            return None
        return self.model.draft_exactness(max(self.request.draft.n_max, self.request.lookup))

    def begin(  # noqa: PLR0913 - these arguments differ between a batch and a single run
        self,
        capacity: SequenceCapacity,
        cached_tokens: int,
        length: int,
        *,
        exactness: BatchExactness | None = None,
        shift: ContextShift | None = None,
        is_interrupted: Callable[[], bool] | None = None,
    ) -> Start:
        """Reset the chain, and return the event with everything that is needed to repeat the run."""
        request = self.request
        chain = self.chain
        vocabulary = self.model.vocabulary
        self._shift = shift
        if shift is not None:
            shift.resolve_kept_prompt_tokens(len(self.prompt_ids), vocabulary.adds_bos)
        self._guard = TextGuard(request.rules) if request.rules.are_guarded else None
        self._drafts = self._open_drafts()
        draft_exactness = self._draft_exactness()
        if exactness is not None and draft_exactness is not None:
            exactness = exactness.combined_with(draft_exactness)
        if request.trace is not None:
            for phase in self._phases:
                phase.tracer = TraceReader(vocabulary, phase.chain, request.trace)
        if self.constraint is not None:
            leave_opening_to_grammar(self._phases, self.constraint, vocabulary)
        self._decoder = Decoder(
            vocabulary=vocabulary,
            capacity=capacity if shift is None else shift,
            phases=PhaseTracker(self._phases, self.prompt_ids),
            constraint=self.constraint,
            reader=LogprobReader(vocabulary, request.logprobs, measures_confidence=request.measures_confidence),
            stream=self._stream,
            jump=request.jump,
            drafts=self._drafts,
            discard_oldest=None if shift is None else shift.discard_oldest,
            stop_token_ids=frozenset(request.stop_token_ids),
            ends_at_eog=request.ends_at_eog,
            guard=self._guard,
            healer=self.healer,
            tag_tokens=self._tag_tokens,
        )
        max_tokens = sys.maxsize if request.max_tokens is None else request.max_tokens
        self._decoding = self._decoder.decode(max_tokens, is_interrupted, request.complete_sentence)
        return Start(
            model=self.model.name,
            seed=chain.seed,
            chain=chain.config,
            grammar=getattr(self.constraint, "description", None),
            prompt_tokens=len(self.prompt_ids),
            prompt_ids=tuple(self.prompt_ids),
            cached_tokens=cached_tokens,
            context=length,
            logprobs=_describe_logprobs(request.logprobs, vocabulary.size),
            max_tokens=request.max_tokens,
            stop=self._stop_strings,
            versions=versions(),
            batch_exactness=exactness,
            trace=request.trace,
            text_rules=request.rules.as_json(),
            draft=None if self.draft_model is None or request.draft is None else request.draft.as_setting(),
            draft_exactness=draft_exactness,
            adapters=[{"file": str(file), "scale": scale} for file, scale in self.model.lora] or None,
            device=self.model.placement.as_json(),
            reasoning=self._reasoning,
        )

    def resume(self, logits_rows: Sequence[DecoderRow] | None = None) -> Iterator[Token | Rewind]:
        """Send the needed logits, and yield the events that result from them. The first call sends None."""
        input_rows = logits_rows
        try:
            while True:
                output = self._decoding.send(input_rows)
                input_rows = None
                if isinstance(output, LogitsRequest):
                    self.needed_tokens = output.tokens
                    self.drop_count = output.drop_count
                    return
                if isinstance(output, Rewind):
                    yield output
                else:
                    yield from self._decide_part(output)
        except StopIteration as end:
            self.finish_reason = end.value
            yield from self.release_held()

    def release_held(self) -> list[Token]:
        """Return the tokens that are held back, because the text ends before they are decided."""
        tokens = [token for event in self._decoder.take_held() for token in self._decide_part(event)]
        undecided = [] if self._parts is None else self._parts.release()
        if self._answer_tokens is not None:
            self._answer_tokens.add(undecided)
        return tokens + undecided

    def _decide_part(self, token: Token) -> list[Token]:
        """Return the tokens whose parts are decided after this token."""
        tokens = [token] if self._parts is None else self._parts.push(token)
        if self._answer_tokens is not None:
            self._answer_tokens.add(tokens)
        return tokens

    def finish(self, prompt_seconds: float, generation_seconds: float) -> Done:
        """Release the text that is held back. The finish reason is ``interrupted`` if the text has not ended."""
        decoder = self._decoder
        stream = self._stream
        held_back_text = stream.finish()
        finish_reason = self.finish_reason or "interrupted"
        if stream.matched_stop is not None:
            finish_reason = "stop"
        done = Done(
            finish_reason=finish_reason,
            complete=decoder.is_complete,
            text=stream.text,
            rest=held_back_text,
            stop=stream.matched_stop,
            prompt_tokens=len(self.prompt_ids),
            completion_tokens=decoder.token_count,
            forced_tokens=decoder.forced_count,
            drafted_tokens=None if self._drafts is None else self._drafts.drafted_token_count,
            accepted_tokens=None if self._drafts is None else self._drafts.accepted_token_count,
            timings=Timings(prompt_seconds, generation_seconds, decoder.chain_seconds, decoder.grammar_seconds),
            context_shifts=None if self._shift is None else self._shift.shift_count,
            discarded_tokens=None if self._guard is None else decoder.discarded_count,
            loop_period=None if self._guard is None else self._guard.loop_period,
        )
        if self._parts is not None:
            done = self._parts.divide(done)
        return done if self._answer_tokens is None else self._with_confidence(done, self._answer_tokens)

    def _with_confidence(self, done: Done, tokens: AnswerTokens) -> Done:
        request = self.request
        fields = tokens.fields(done.text, request.answer_beginning) if request.rules.field_confidence else None
        return replace(done, confidence=tokens.confidence, fields=fields)


def _with_fixed_seed(request: GenerationRequest) -> GenerationRequest:
    """Return a request whose random seed is drawn, so that all of its chains get the same seed."""
    if request.seed != RANDOM_SEED:
        return request
    return replace(request, seed=fixed_seed(request.seed))


def build_chain(model: Model, request: GenerationRequest) -> Chain:
    """Return the chain of a request, built for the model. Raises ``SamplingError``."""
    if isinstance(request.chain, Chain):
        return request.chain
    return _build(model, request, request.chain)


def _build(model: Model, request: GenerationRequest, steps: str | Sequence[Step]) -> Chain:
    return build(steps, seed=request.seed, vocab=model.vocabulary, stop_tokens=request.stop_token_ids)


def _start_constraint(model: Model, request: GenerationRequest, compiles_in_background: bool) -> Constraint | None:
    """Return the request's constraint, which has read the beginning of the answer; None without one."""
    constraint = request.constraint
    if constraint is None:
        return None
    from ..grammars.spec import GrammarSpec  # noqa: PLC0415 - most runs have no grammar

    if isinstance(constraint, GrammarSpec):
        if compiles_in_background:
            constraint = start_constraint(constraint, model)
        else:
            constraint = constraint.start(model.vocabulary)
    read_beginning(model, constraint, request.answer_beginning)
    return constraint


def read_beginning(model: Model, constraint: Constraint, beginning: str) -> None:
    tokens = model.vocabulary.tokenize(beginning.encode()) if beginning else []
    try:
        for token in tokens:
            constraint.accept(token)
    except GrammarError as error:
        raise GrammarError(f"the answer's beginning does not match the grammar: {error}") from None


def versions() -> dict[str, str]:
    """Return the versions of this package and of the binding to llama.cpp."""
    return dict(_versions())


@cache
def _versions() -> Mapping[str, str]:
    """Return the versions, which are read from files only once, because a batch has many requests."""
    return {"logitsmith": __version__, "llama-cpp-python": binding_version()}


def _check_lookup(model: Model, request: GenerationRequest) -> None:
    """Raise ``ModelError`` for a lookup that is not possible."""
    if request.lookup < 0:
        raise ModelError(f"{request.lookup} is not ≥ 0", origin="lookup")
    if request.lookup and not model.can_truncate:
        raise ModelError("not supported by recurrent models, which cannot discard wrong guesses", origin="lookup")


def _with_chat_text(
    model: Model, request: GenerationRequest, show_note: Callable[[str], object] | None
) -> GenerationRequest:
    """Return the request with a prompt in text in place of messages."""
    if not isinstance(request.prompt, ChatMessages):
        return request
    from .templates import format_request  # noqa: PLC0415 - most runs have no template

    return format_request(model, request, show_note)


def heal_prompt_of(
    vocabulary: Vocabulary, request: GenerationRequest, prompt_ids: list[int]
) -> PromptHealer | None:
    """Remove the end of a prompt if the request heals it; return what spells it again. Raises ``ModelError``."""
    check_grammar_rules(request)
    return heal_prompt(vocabulary, prompt_ids) if request.rules.heal else None


def check_grammar_rules(request: GenerationRequest) -> None:
    """Raise ``ModelError`` for rules that exclude the request's grammar, or that need one."""
    if request.rules.field_confidence and request.constraint is None:
        raise ModelError(
            "needs a JSON Schema, or a grammar whose texts are JSON; there is no grammar",
            origin="field_confidence",
        )
    if request.rules.heal and request.constraint is not None and not request.rules.phases:
        raise ModelError("not supported under a grammar, whose text begins after the prompt", origin="heal")


def negative_prompt_ids(model: Model, request: GenerationRequest, prompt_ids: Sequence[int]) -> list[int] | None:
    """Return the tokens of the negative prompt; None without guidance. Raises ``ModelError``."""
    guidance = request.rules.guidance
    if guidance is None:
        return None
    check_guidance(guidance)
    if guidance.is_off:
        return None
    negative_prompt = guidance.negative_prompt
    if not negative_prompt:
        return list(prompt_ids) if guidance.model is not None else list(prompt_ids[-1:])
    return prompt_token_ids(model.vocabulary, negative_prompt)


def prompt_token_ids(vocabulary: Vocabulary, prompt: str | bytes | Sequence[int]) -> list[int]:
    """Return the tokens of a prompt: text, UTF-8 bytes, or ids. Raises ``ModelError``."""
    if isinstance(prompt, str):
        try:
            prompt = prompt.encode()
        except UnicodeEncodeError:
            raise ModelError("the prompt is not UTF-8") from None
    if isinstance(prompt, bytes):
        ids = vocabulary.tokenize_prompt(prompt)
    else:
        ids = list(prompt)
        vocabulary.check(ids, "prompt")
    if not ids and vocabulary.bos is not None:
        return [vocabulary.bos]  # an empty prompt: the model begins a new text
    return ids


def _describe_logprobs(request: LogprobRequest, vocabulary_size: int) -> dict[str, Any] | None:
    """Return a description of the tokens' logprobs for the start event; None without logprobs."""
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


def start_constraint(spec: GrammarSpec, model: Model, compiled: Grammar | None = None) -> Constraint:
    """Compile the grammar for the model in a background thread, unless it is ``compiled`` already."""
    vocabulary = model.vocabulary
    constraint = BackgroundConstraint(lambda: spec.start(vocabulary, compiled), spec.description)
    if spec.has_token_references or spec.after is not None:
        constraint.wait()  # only the vocabulary can show its errors, and they come before the prompt is read
    return constraint
