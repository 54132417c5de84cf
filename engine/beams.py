"""The texts with the best scores, without a draw: a beam search with a model.

Each text that is being continued has a slot of a context, a constraint, and a state of the chain. Under guidance,
it has a slot of a second context, too, in which it follows the negative prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import copy
from dataclasses import dataclass, replace
from itertools import repeat
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import CopyableConstraint, as_completable, as_copyable, as_forcing
from ..grammars.errors import GrammarError
from ..logprobs.events import BatchExactness, Done, Event, PromptToken, Timings, Token
from ..logprobs.records import Part
from ..models.errors import AbortedError, ModelError
from ..samplers.candidates import Candidates
from ..samplers.chain_state import ChainState, ChainStates, check_without_draws
from ..samplers.errors import SamplingError
from .beam_search import FoundText, NextLogprobs, TokenIds, search_beams
from .context import Context, check_prompt
from .generation import RunningRequest
from .guidance import guidance_model, guide, guided_exactness
from .healing import PromptHealer
from .model import Model
from .native.context import Logits
from .phase_tracker import PhaseTracker
from .request import BeamSearch, GenerationRequest
from .scoring import scored_tokens
from .slots import SequenceSlot, SequenceSlots, SlotAppend
from .text_parts import TextParts
from .text_stream import TextStream
from .token_records import LogprobReader


def generate_beams(  # noqa: PLR0913 - the arguments are public
    model: Model,
    request: GenerationRequest,
    *,
    deterministic: bool = False,
    progress: Callable[[int], object] | None = None,
    is_interrupted: Callable[[], bool] | None = None,
    note: Callable[[str], object] | None = None,
) -> list[list[Event]]:
    """Return the texts of a beam search, the best first, each as the events of a run with a score.

    The probabilities are those of the candidates that the chain keeps. Its last step, which would draw, is not
    run. The texts are continued together, in the slots of a context that is made for them.

    Args:
        model: The model.
        request: The request, with ``beams``.
        deterministic: Whether to compute exactly what `generate` computes for each text; slower.
        progress: Called after each step with the number of tokens that each text has so far.
        is_interrupted: Called before each step. Once it returns True, the texts end as they are.
        note: Called with a sentence if the messages of a chat had to be changed for the template.

    Raises ``ModelError``, ``SamplingError``, ``GrammarError``, also for a feature of the request that a beam
    search does not support.
    """
    settings = request.beams
    if settings is None:
        raise ModelError("the request has no settings of a beam search", origin="beams")
    settings.check()
    reject_unsupported(request)
    running = _BeamRequest(model, replace(request, beams=None), show_note=note, compiles_in_background=True)
    return running.search(settings, deterministic, progress, is_interrupted)


def reject_unsupported(request: GenerationRequest) -> None:
    """Raise ``ModelError`` for a feature of a request that a beam search does not support."""
    reasons = {
        "bans": (bool(request.rules.bans), "bans go back in one text; ban tokens by the sampler ban"),
        "loop_guard": (request.rules.loop_guard is not None, "the loop guard is for a text that is drawn"),
        "field_confidence": (request.rules.field_confidence, "a beam search draws no token"),
        "phases": (bool(request.rules.phases), "a beam search has one chain"),
        "lookup": (bool(request.lookup), "drafts are for a text that is drawn"),
        "draft": (request.draft is not None, "drafts are for a text that is drawn"),
        "trace": (request.trace is not None, "a beam search draws no token"),
        "keep_on_shift": (request.keep_on_shift is not None, "the texts share the context's oldest tokens"),
    }
    for name, (is_given, reason) in reasons.items():
        if is_given:
            raise ModelError(f"{name}: not supported by a beam search: {reason}")


@dataclass(slots=True, eq=False)
class _BeamText:
    """A text of the search, which may be continued in several ways."""

    tokens: TokenIds
    parent: _BeamText | None  # the text without its last token; None for the empty text
    event: Token | None  # the last token; None for the empty text
    stream: TextStream  # the text so far, which finds stop strings
    # the constraint after the tokens that may belong to the answer; None without one, and if none of them may
    constraint: CopyableConstraint | None
    phases: PhaseTracker
    healer: PromptHealer | None  # makes the first tokens spell the end of the prompt; None: nothing is spelled
    # the slot of the parent's tokens; once `_BeamRequest._read_texts` has read the last token, of these tokens
    slot: SequenceSlot
    chain_state: ChainState = ()  # the state of the chain after these tokens
    # a copy of the model's logits after these tokens, and the candidates for the next token; None if the request
    # has no logprobs
    row: Logits | None = None
    candidates: Candidates | None = None

    def events(self) -> list[Token]:
        last_to_first: list[Token] = []
        text: _BeamText | None = self
        while text is not None and text.event is not None:
            last_to_first.append(text.event)
            text = text.parent
        return last_to_first[::-1]

    def forget_logits(self) -> None:
        self.row = None
        self.candidates = None


@dataclass(frozen=True)
class _TextSlots:
    """The slots of the texts. Under guidance, each text has a second slot, after the negative prompt."""

    positive: SequenceSlots
    # the second slots, with the same numbers; None without guidance
    negative: SequenceSlots | None = None

    def prompt_rows(self) -> tuple[Logits, Logits | None]:
        """Return the logits after the prompt and after the negative prompt, valid until the next step."""
        negative_row = None if self.negative is None else self.negative.prompt_rows()[0]
        return self.positive.prompt_rows()[0], negative_row

    def copy(self, source: SequenceSlot, target: SequenceSlot) -> None:
        self.positive.copy(source, target)
        if self.negative is not None:
            self.negative.copy(self.negative.slots[source.number], self.negative.slots[target.number])

    def append(self, appends: Sequence[SlotAppend]) -> Generator[tuple[SequenceSlot, Logits, Logits | None]]:
        """Append a token to each text; yield the slot, the logits, and those after the negative prompt."""
        # The logits are valid until the next slot is yielded.
        negative_rows: dict[int, Logits] = {}
        if self.negative is not None:
            negative_appends = [
                append._replace(slot=self.negative.slots[append.slot.number]) for append in appends
            ]
            with closing(self.negative.append(negative_appends)) as rows_of_slots:
                negative_rows = {slot.number: row.copy() for slot, (row,) in rows_of_slots}
        with closing(self.positive.append(appends)) as rows_of_slots:
            for slot, (row,) in rows_of_slots:
                yield slot, row, negative_rows.get(slot.number)


class _BeamRequest(RunningRequest):
    """A request whose texts are searched."""

    def search(
        self,
        settings: BeamSearch,
        deterministic: bool,
        progress: Callable[[int], object] | None,
        is_interrupted: Callable[[], bool] | None,
    ) -> list[list[Event]]:
        """Return the events of each text that is found.

        Args:
            settings: the settings of the search.
            deterministic: see `generate_beams`.
            progress: see `generate_beams`.
            is_interrupted: see `generate_beams`.
        """
        model = self.model
        prompt_ids = self.prompt_ids
        request = self.request
        try:
            check_without_draws(self.chain)
        except SamplingError as error:
            raise error.within("beams") from None
        check_prompt(prompt_ids, model.context_length)
        prompt_length = max(len(prompt_ids), len(self.negative_ids or ()))
        # One token more than the context holds can be made, because the last one is not read.
        self._max_text_tokens = model.context_length - prompt_length + 1
        if request.max_tokens is None or request.max_tokens > self._max_text_tokens:
            max_tokens = self._max_text_tokens
            length_reason = "context"
        else:
            max_tokens = request.max_tokens
            length_reason = "length"
        self._vocabulary = model.vocabulary
        self._progress = progress
        self._is_interrupted = is_interrupted
        self._is_aborted = False
        # A token that is never drawn continues no sentence.
        self._ending_tokens = np.array(sorted(model.vocabulary.eog | model.vocabulary.suppressed), dtype=np.intp)
        self._reader = LogprobReader(model.vocabulary, request.logprobs)
        self._states = ChainStates(self.chain)
        self._chain_seconds = 0.0
        self._grammar_seconds = 0.0
        with ExitStack() as stack:
            self._slots = self._make_slots(stack, settings.beam_count, max_tokens, deterministic)
            first_slot = self._slots.positive.slots[0]
            start = self.begin(first_slot, 0, model.context_length, exactness=self._exactness())
            start = replace(start, text_rules=start.text_rules | settings.as_setting())
            start_seconds = perf_counter()
            echoed_tokens = self._read_prompt()
            begin_seconds = perf_counter()
            # The texts by their tokens: those that were read last, their continuations, and those that have ended
            self._texts: Mapping[TokenIds, _BeamText] = {(): self._empty_text()}
            self._children: dict[TokenIds, _BeamText] = {}
            self._ended: dict[TokenIds, _BeamText] = {}
            found = self._search_texts(settings, max_tokens, length_reason)
        found = found[: settings.returned_count]
        texts = [self._complete(self._find_text(text.tokens), text.finish_reason) for text in found]
        timings = Timings(
            begin_seconds - start_seconds,
            perf_counter() - begin_seconds,
            self._chain_seconds,
            self._grammar_seconds,
        )
        return [
            [start, *echoed_tokens, *self._finish(text, result, timings)]
            for text, result in zip(texts, found, strict=True)
        ]

    def _make_slots(self, stack: ExitStack, count: int, max_tokens: int, deterministic: bool) -> _TextSlots:
        """Make the slots of ``count`` texts, which ``stack`` closes."""

        def make(model: Model, prompt_ids: Sequence[int]) -> SequenceSlots:
            length = min(model.context_length, len(prompt_ids) + max_tokens)
            return stack.enter_context(closing(model.make_slots(count, deterministic, length)))

        guidance = self.request.rules.guidance
        negative_ids = self.negative_ids
        if guidance is None or negative_ids is None:
            return _TextSlots(make(self.model, self.prompt_ids))
        negative_model = guidance_model(self.model, guidance)
        try:
            check_prompt(negative_ids, negative_model.context_length)
        except ModelError as error:
            raise ModelError.of(error).within("guidance, negative prompt") from None
        return _TextSlots(make(self.model, self.prompt_ids), make(negative_model, negative_ids))

    def _exactness(self) -> BatchExactness:
        """Return the promise about the logits of the texts."""
        exactness = self._slots.positive.exactness
        guidance = self.request.rules.guidance
        if guidance is None or self._slots.negative is None or self.negative_ids is None:
            return exactness
        extra_token_count = len(self.negative_ids) - len(self.prompt_ids)
        return guided_exactness(exactness, self._slots.negative.exactness, guidance.scale, extra_token_count)

    def _read_prompt(self) -> Sequence[PromptToken]:
        """Read the prompt into the first slot; return its tokens if they are requested."""
        # If the reading is aborted, the search will be interrupted before its first step.
        try:
            return self._read_whole_prompt()
        except AbortedError:
            if self._is_interrupted is None:
                raise
            self._is_aborted = True
            return ()

    def _should_stop(self) -> bool:
        return self._is_aborted or (self._is_interrupted is not None and self._is_interrupted())

    def _read_whole_prompt(self) -> Sequence[PromptToken]:
        slots = self._slots.positive
        slot = slots.slots[0]
        prompt_ids = self.prompt_ids
        echoed_tokens: list[PromptToken] = []
        if self.request.echo:
            rows = slots.read_each(slot, prompt_ids)
            echoed_tokens = list(scored_tokens(self.model, prompt_ids, rows, self.request.logprobs))
        # The echo reads a long prompt in small batches, whose logits differ. The texts must not depend on that.
        is_read_in_small_batches = self.request.echo and len(prompt_ids) > slot.max_rows
        if not self.request.echo or is_read_in_small_batches:
            slots.read(slot, prompt_ids)
        if self._slots.negative is not None and self.negative_ids is not None:
            self._slots.negative.read(self._slots.negative.slots[0], self.negative_ids)
        return echoed_tokens

    def _empty_text(self) -> _BeamText:
        """Return the text without tokens, from which the search begins."""
        constraint = None if self.constraint is None else as_copyable(self.constraint)
        if self.constraint is not None and constraint is None:
            kind = type(self.constraint).__name__
            raise ModelError(
                f"{kind} is a constraint that cannot be copied; give it a method copy()", origin="beams"
            )
        stream = TextStream(self._stop_strings)
        phases = self._decoder.phases
        self._first_constraint = constraint
        return _BeamText((), None, None, stream, constraint, phases, self.healer, self._slots.positive.slots[0])

    def _search_texts(self, settings: BeamSearch, max_tokens: int, length_reason: str) -> list[FoundText]:
        if self._is_exhausted(self._texts[()]):
            return [FoundText((), 0.0, 0.0, "grammar")]
        found = search_beams(self._read_texts, settings, max_tokens, self._find_end, length_reason=length_reason)
        if not found:
            raise ModelError("the grammar allows no token after any of the texts", origin="beams")
        return found

    def _find_text(self, tokens: TokenIds) -> _BeamText:
        """Return a text by its tokens. An interrupted search ends with texts that had not ended."""
        for texts in (self._ended, self._children, self._texts):
            if tokens in texts:
                return texts[tokens]
        raise KeyError(tokens)

    def _read_texts(self, sequences: Sequence[TokenIds]) -> list[NextLogprobs] | None:
        """Read the last token of each text, and return the log-probabilities of the next one."""
        # Returns None if the search is interrupted.
        if self._should_stop():
            return None
        if sequences == [()]:
            return [self._apply_chain(self._texts[()], *self._slots.prompt_rows())]
        texts = [self._children[tokens] for tokens in sequences]
        for text in self._texts.values():
            text.forget_logits()
        self._texts = {text.tokens: text for text in texts}
        self._children = {}
        self._assign_slots(texts)
        try:
            logprobs = self._decode_texts(texts)
        except AbortedError:
            if self._is_interrupted is None:
                raise
            return None
        if self._progress is not None:
            self._progress(len(sequences[0]))
        return [logprobs[tokens] for tokens in sequences]

    def _decode_texts(self, texts: Sequence[_BeamText]) -> dict[TokenIds, NextLogprobs]:
        """Read the last token of each text; return the log-probabilities of the next one by the text's tokens."""
        text_by_slot = {text.slot.number: text for text in texts}
        logprobs: dict[TokenIds, NextLogprobs] = {}
        with closing(self._slots.append([SlotAppend(text.slot, text.tokens[-1:]) for text in texts])) as appended:
            for slot, row, negative_row in appended:
                text = text_by_slot[slot.number]
                logprobs[text.tokens] = self._apply_chain(text, row, negative_row)
        return logprobs

    def _assign_slots(self, texts: Sequence[_BeamText]) -> None:
        """Give each text a slot with the tokens of its parent. Only one text can have the parent's own slot."""
        used_numbers: set[int] = set()
        texts_without_slot: list[_BeamText] = []
        for text in texts:
            if text.slot.number in used_numbers:
                texts_without_slot.append(text)
            used_numbers.add(text.slot.number)
        free_slots = [slot for slot in self._slots.positive.slots if slot.number not in used_numbers]
        for text, slot in zip(texts_without_slot, free_slots, strict=False):
            self._slots.copy(text.slot, slot)
            text.slot = slot

    def _apply_chain(self, text: _BeamText, row: Logits, negative_row: Logits | None) -> NextLogprobs:
        """Return the log-probabilities of the candidates that the chain keeps after a text."""
        mask = self._mask(text)
        start_seconds = perf_counter()
        if text.parent is not None:
            self._states.restore(text.parent.chain_state, self.prompt_ids, text.tokens[:-1])
            self.chain.accept(text.tokens[-1])
        if mask is not None:
            allowed_tokens = self.chain.allowed_tokens
            possible = mask if allowed_tokens is None else mask & allowed_tokens
            if not possible.any():
                return NextLogprobs(np.zeros(0, dtype=np.intp), np.zeros(0))
        if self.request.logprobs.top_count is not None:
            row = row.copy()  # the next decode overwrites the row
        guidance = self.request.rules.guidance
        chain_row = row
        if guidance is not None and negative_row is not None:
            chain_row = guide(row, negative_row, guidance.scale).guided
        candidates = self.chain.apply(chain_row, mask)
        text.chain_state = self._states.save()
        if self.request.logprobs.top_count is not None:
            text.row = row
            text.candidates = candidates
        logits = candidates.logits.astype(np.float64) - float(candidates.max)
        logprobs = logits - np.log(np.exp(logits).sum())
        self._chain_seconds += perf_counter() - start_seconds
        return NextLogprobs(candidates.ids, logprobs)

    def _mask(self, text: _BeamText) -> NDArray[np.bool_] | None:
        """Return the tokens that may follow a text, bool (V,); None: all."""
        start_seconds = perf_counter()
        mask = self._grammar_mask(text)
        self._grammar_seconds += perf_counter() - start_seconds
        if text.healer is not None and text.healer.remaining:
            spelling = text.healer.mask()
            mask = spelling if mask is None else mask & spelling
        return mask

    def _grammar_mask(self, text: _BeamText) -> NDArray[np.bool_] | None:
        """Return the tokens that a phase forces, that the constraint allows, or that belong to the reasoning."""
        phases = text.phases
        if phases.forced:
            mask = np.zeros(self._vocabulary.size, dtype=np.bool_)
            mask[phases.forced[0]] = True
            return mask
        if self.constraint is None:
            return None
        if phases.is_open and not phases.is_last:
            return phases.end_mask(self._vocabulary)
        grammar_mask = None if text.constraint is None else text.constraint.mask()
        if phases.is_last:
            return grammar_mask
        opening_mask = phases.opening_mask(self._vocabulary)
        if grammar_mask is None or not phases.can_be_skipped:
            return opening_mask
        return opening_mask | grammar_mask

    def _next_constraint(self, parent: _BeamText, token: int, part: Part | None) -> CopyableConstraint | None:
        """Return the constraint after one more token, which belongs to this part."""
        if part == "reasoning" and not parent.phases.is_last:
            return self._first_constraint
        constraint = parent.constraint
        if constraint is None or not (parent.phases.is_last or constraint.mask()[token]):
            return None
        constraint = constraint.copy()
        constraint.accept(token)
        return constraint

    def _find_end(self, tokens: TokenIds) -> str | None:
        """Continue a text by one token; return the reason why it ends there, None if it can be continued."""
        parent = self._texts[tokens[:-1]]
        text = self._continue(parent, tokens[-1], parent.row, parent.candidates)
        self._children[tokens] = text
        token = tokens[-1]
        has_grammar = text.phases.is_last and text.constraint is not None
        ends_at_eog = self.request.ends_at_eog or has_grammar
        is_end = ends_at_eog and self._vocabulary.token(token).is_eog
        is_stop_token = token in self.request.stop_token_ids and not self._waits_for_length(parent)
        if is_end or is_stop_token or text.stream.matched_stop is not None:
            reason = "stop"
        elif self._is_exhausted(text):
            reason = "grammar"
        else:
            return None
        self._ended[tokens] = text
        return reason

    def _waits_for_length(self, text: _BeamText) -> bool:
        """Return whether the next token of a text cannot end it, because the text is too short."""
        return len(text.tokens) < self.chain.min_token_count

    def _continue(
        self,
        parent: _BeamText,
        token: int,
        row: Logits | None,
        candidates: Candidates | None,
        *,
        is_forced: bool = False,
    ) -> _BeamText:
        """Return the text with one more token."""
        data, is_control, _ = self._vocabulary.token(token)
        is_control = is_control and token not in (self._tag_tokens or ())
        tokens = (*parent.tokens, token)
        stream = parent.stream.copy()
        healer = parent.healer
        healed_bytes = 0
        if healer is not None and not is_control:
            healer = copy(healer)
            healed_bytes = healer.accept(data)
        phases = copy(parent.phases)
        part = phases.accept(data[healed_bytes:], tokens)
        start_seconds = perf_counter()
        constraint = self._next_constraint(parent, token, part)
        self._grammar_seconds += perf_counter() - start_seconds
        finds_stop = not self._waits_for_length(parent)
        shown = "" if is_control else stream.push(data[healed_bytes:], finds_stop=finds_stop)
        is_same_row = self.negative_ids is None
        distributions = () if row is None else self._reader.read(row, token, candidates, is_same_row=is_same_row)
        event = Token(
            len(parent.tokens),
            token,
            data,
            shown,
            is_control,
            distributions,
            healed_bytes=healed_bytes,
            part=None if self._reasoning is None else part,
            is_forced=is_forced,
        )
        return _BeamText(tokens, parent, event, stream, constraint, phases, healer, parent.slot)

    def _is_exhausted(self, text: _BeamText) -> bool:
        """Return whether a text is a complete sentence that only an end-of-generation token may follow."""
        constraint = text.constraint if text.phases.is_last else None
        forcing = as_forcing(constraint)
        if constraint is None or forcing is None or not forcing.is_complete:
            return False
        mask = constraint.mask()
        return bool(mask.sum() == mask[self._ending_tokens].sum())

    def _complete(self, text: _BeamText, finish_reason: str) -> _BeamText:
        """Return a text whose sentence is completed, if its length has ended it and the request says so."""
        # The search has not chosen the added tokens, so the score does not include them.
        completable = as_completable(text.constraint if text.phases.is_last else None)
        is_cut_off = finish_reason in ("length", "context")
        if not self.request.complete_sentence or not is_cut_off:
            return text
        if completable is None or completable.is_complete:
            return text
        try:
            tokens = completable.completion_tokens()
        except GrammarError:
            return text
        rows = self._rows_along(text, tokens)
        for token in tokens[: self._max_text_tokens - len(text.tokens)]:
            if rows is not None:
                self._apply_chain(text, *next(rows))
            parent = text
            text = self._continue(parent, token, parent.row, parent.candidates, is_forced=True)
            parent.forget_logits()
            if text.stream.matched_stop is not None:
                break
        return text

    def _rows_along(self, text: _BeamText, tokens: Sequence[int]) -> Iterator[tuple[Logits, Logits | None]] | None:
        """Yield the logits before each of the tokens, which follow a text; None if the request has no logprobs."""
        if self.request.logprobs.top_count is None:
            return None

        def read(context: Context, prompt_ids: Sequence[int]) -> Iterator[Logits]:
            context.read([*prompt_ids, *text.tokens])
            yield context.logits()
            yield from context.append_in_small_batches(tokens[:-1])

        negative = self.open_negative_text()
        negative_rows = repeat(None) if negative is None else read(negative.context, negative.prompt_ids)
        return zip(read(self.model.context, self.prompt_ids), negative_rows, strict=False)

    def _finish(self, text: _BeamText, result: FoundText, timings: Timings) -> list[Token | Done]:
        """Release the text that is held back, and return the tokens and the last event."""
        stream = text.stream
        forcing = as_forcing(text.constraint)
        rest = stream.finish()
        done = Done(
            finish_reason=result.finish_reason if stream.matched_stop is None else "stop",
            complete=None if forcing is None else forcing.is_complete,
            text=stream.text,
            rest=rest,
            stop=stream.matched_stop,
            prompt_tokens=len(self.prompt_ids),
            completion_tokens=len(text.tokens),
            forced_tokens=0,
            drafted_tokens=None,
            accepted_tokens=None,
            timings=timings,
            score=result.score,
        )
        tokens = text.events()
        if self._reasoning is None:
            return [*tokens, done]
        parts = TextParts(self._reasoning)
        decided = [token for event in tokens for token in parts.push(event)] + parts.release()
        return [*decided, parts.divide(done)]
