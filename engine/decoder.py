"""The decoder: makes one token after the other, drawn by the chain or forced by the constraint or a phase.

A decoder is a generator that requests logits and yields tokens. Its driver provides the logits, from one context
or from a batch that many decoders share. A decoder with a guard holds tokens back until no ban and no loop can
drop them. It saves the state before each held token, so that the text can return there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import Constraint, as_completable, as_forcing, as_reversible
from ..grammars.errors import GrammarError
from ..logprobs.events import Rewind, Token
from ..models.errors import ModelError
from ..samplers.errors import SamplingError
from ..samplers.recorder import BANS_STAGE, GRAMMAR_STAGE, HEALING_STAGE, NamedMask
from .drafts import DraftSource
from .guidance import GuidedLogits
from .healing import PromptHealer
from .native.context import Logits
from .phase_tracker import PhaseState, PhaseTracker
from .text_guard import GuardState, TextGuard, Verdict
from .text_stream import TextStream, TextStreamState
from .token_records import LogprobReader
from .vocabulary import Vocabulary


class LogitsRequest(NamedTuple):
    """A request of a decoder: remove tokens, append tokens, and send the logits after each appended one."""

    # the tokens to append; empty: only the logits after the last token of the sequence are needed
    tokens: Sequence[int]
    drop_count: int = 0  # number of tokens to remove from the end of the sequence before


DecoderRow = Logits | GuidedLogits  # the logits of one step: the model's, or with guidance those of both readings

# A running decoder: yields events and `LogitsRequest`, receives the logits, and returns the finish reason
Decoding = Generator[Token | Rewind | LogitsRequest, Sequence[DecoderRow] | None, str]

_Tokens = Generator[Token | Rewind | LogitsRequest, Sequence[DecoderRow] | None, None]


class SequenceCapacity(Protocol):
    """The free space of a sequence."""

    max_rows: int  # maximum number of tokens that one call can read with the logits of each token

    @property
    def remaining(self) -> int: ...


class CommonCapacity:
    """The free space of two sequences that are read in parallel."""

    def __init__(self, first: SequenceCapacity, second: SequenceCapacity) -> None:
        self._first = first
        self._second = second
        self.max_rows = min(first.max_rows, second.max_rows)

    @property
    def remaining(self) -> int:
        return min(self._first.remaining, self._second.remaining)


class Checkpoint(NamedTuple):
    """The state before a token was made, to which the text can return."""

    phase: PhaseState
    stream: TextStreamState
    guard: GuardState
    constraint_token_count: int
    forced_count: int
    healed_bytes: bytes  # the bytes that the next tokens must spell
    open_places: tuple[int, ...]


@dataclass(slots=True)
class _HeldToken:
    event: Token
    checkpoint: Checkpoint  # the state before the token
    # a copy of the logits that the token was made from; None if they must be computed again
    logits: DecoderRow | None = None


# Maximum number of held tokens whose logits are copied. Before later ones, a token is read again.
_MAX_COPIED_ROWS = 64


@dataclass
class Decoder:
    """The generation of tokens after a prompt that has been read."""

    vocabulary: Vocabulary
    capacity: SequenceCapacity  # the free space of the sequence
    phases: PhaseTracker
    # masks the tokens of the last phase before the chain; None: every token is allowed
    constraint: Constraint | None
    reader: LogprobReader
    stream: TextStream
    jump: bool  # whether forced tokens are read in one batch
    drafts: DraftSource | None = None
    # frees space in a full sequence. It is called with two numbers: how many of the last tokens are wrong and must
    # be removed, and how many tokens before these must stay. It returns False if it cannot free space. None: a
    # full sequence ends the text.
    discard_oldest: Callable[[int, int], bool] | None = None
    # tokens that end the text, in addition to the model's end-of-generation tokens
    stop_token_ids: frozenset[int] = frozenset()
    ends_at_eog: bool = True  # whether end-of-generation tokens end the text; under a constraint they always do
    # finds bans and loops, and decides where to go back; None: every token is final
    guard: TextGuard | None = None
    # makes the first tokens spell the end of the prompt; None: the prompt is complete
    healer: PromptHealer | None = None
    # the control tokens that tags of the reasoning consist of; None: the text has no parts
    tag_tokens: frozenset[int] | None = None
    token_count: int = 0
    forced_count: int = 0  # number of these tokens that were forced
    discarded_count: int = 0  # number of tokens that were dropped by going back
    chain_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._constraint_tracker = (
            None if self.constraint is None else _ConstraintTracker(self.constraint, self.vocabulary)
        )
        if self.guard is not None and self._constraint_tracker is not None and self.guard.rules.goes_back:
            self._constraint_tracker.check_reversible()
        self._pending_token: int | None = None  # the last token, which has been made but not yet read
        self._has_ended = False
        self._final_reason: str | None = None
        # Number of tokens at the end of the sequence that must be removed: wrong drafts, and dropped tokens
        self._rejected_count = 0
        self._read_count = 0  # number of tokens in the sequence after the prompt, with those that must be removed
        # A copy of the logits for the next token; None if a token must be read for them
        self._next_logits: DecoderRow | None = None
        self._output: list[int] = []
        self._held: deque[_HeldToken] = deque()
        self._copied_row_count = 0
        self._return_count = 0  # number of times that the text has returned to an earlier token

    @property
    def _tracker(self) -> _ConstraintTracker | None:
        """The constraint's tracker; None without a constraint, and before the last phase."""
        return self._constraint_tracker if self.phases.is_last else None

    @property
    def _possible_answer(self) -> _ConstraintTracker | None:
        """The constraint's tracker if the tokens so far may be a part of the answer, which it has read."""
        tracker = self._constraint_tracker
        if self.phases.is_last or tracker is None:
            return tracker
        is_possible = self.phases.can_be_skipped and tracker.token_count == self.phases.token_count
        return tracker if is_possible else None

    @property
    def grammar_seconds(self) -> float:
        return 0.0 if self._constraint_tracker is None else self._constraint_tracker.seconds

    @property
    def is_complete(self) -> bool | None:
        return None if self._constraint_tracker is None else self._constraint_tracker.is_complete

    def decode(
        self, max_tokens: int, is_interrupted: Callable[[], bool] | None, completes_sentence: bool = False
    ) -> Decoding:
        """Make up to ``max_tokens`` tokens; return the finish reason, see `Done`."""
        # ``completes_sentence``: whether more tokens may complete the constraint's sentence, if they fit.
        while True:
            finish_reason = self._finish_reason(max_tokens, is_interrupted)
            if finish_reason is None:
                yield from self._make_next_tokens(max_tokens - self.token_count)
                continue
            earlier_return_count = self._return_count
            if finish_reason == "length" and completes_sentence:
                yield from self._complete_sentence()
            if self._return_count == earlier_return_count and finish_reason not in ("interrupted", "banned"):
                yield from self._review_end()
            has_returned = self._return_count > earlier_return_count  # if so, the text continues there
            if not has_returned or self._final_reason is not None:
                finish_reason = self._final_reason or finish_reason
                if finish_reason == "banned":
                    yield from self._shorten_end()
                yield from self._release_held(self.token_count)
                return finish_reason

    def _finish_reason(self, max_tokens: int, is_interrupted: Callable[[], bool] | None) -> str | None:
        """Return the reason why the text ends here; None if another token is made."""
        reason = self._final_reason or self._complete_reason(max_tokens)
        if reason is not None:
            return reason
        if is_interrupted is not None and is_interrupted():
            return "interrupted"
        if self._is_full and not self._discard_old_tokens():
            return "context"
        if self._are_all_tokens_dropped():
            return "banned"
        return None

    def _complete_reason(self, max_tokens: int) -> str | None:
        """Return the reason why the text is complete; None if it is not."""
        if self._has_stopped():
            return "stop"
        if self._tracker is not None and self._tracker.is_exhausted():
            return "grammar"
        return "length" if self.token_count >= max_tokens else None

    def _are_all_tokens_dropped(self) -> bool:
        """Return whether no token is left at the place to which the text has returned."""
        if self.guard is None or not self.guard.dropped_at(self.token_count):
            return False
        mask, _ = self._mask()
        if mask is None:
            return False
        allowed_tokens = self.phases.current.chain.allowed_tokens
        if allowed_tokens is not None:
            mask = mask & allowed_tokens
        return not mask.any()

    def _make_next_tokens(self, max_count: int) -> _Tokens:
        forced_tokens = self._forced_tokens(max_count)
        if forced_tokens:
            yield from self._make_forced_tokens(forced_tokens)
        else:
            yield from self._draw_tokens(self._draft_tokens(max_count))

    def _complete_sentence(self) -> _Tokens:
        """Make the tokens that complete the constraint's sentence, as far as they fit into the context."""
        if self.phases.can_end:
            self.phases.end_phase(self._output)
        answer = self._possible_answer
        tokens = list(self.phases.forced)
        if self._constraint_tracker is not None and (tokens or answer is not None):
            tokens += self._constraint_tracker.completion_tokens()
        return_count = self._return_count
        while tokens and not self._has_stopped():
            if self._is_full and not self._discard_old_tokens():
                return
            batch_length = self._max_forced_count()
            yield from self._make_forced_tokens(tokens[:batch_length])
            if self._return_count != return_count or self._final_reason is not None:
                return
            tokens = tokens[batch_length:]

    def _has_stopped(self) -> bool:
        return self._has_ended or self.stream.matched_stop is not None

    @property
    def _is_full(self) -> bool:
        return self._pending_token is not None and self.capacity.remaining + self._rejected_count <= 0

    def _discard_old_tokens(self) -> bool:
        if self.discard_oldest is None:
            return False
        rejected_count = self._rejected_count
        self._rejected_count = 0
        self._read_count -= rejected_count
        needed_count = 0
        if self._held:
            # The text may return to the first held token, for which the token before it is read again.
            needed_count = self._read_count - self._held[0].event.index + 1
        return self.discard_oldest(rejected_count, needed_count)

    def _max_forced_count(self) -> int:
        """Return how many tokens one batch can force."""
        free_token_count = min(self.capacity.remaining + self._rejected_count, self.capacity.max_rows)
        # The last forced token needs no place, because it stays pending. An earlier pending token needs one.
        return free_token_count if self._pending_token is not None else free_token_count + 1

    def _forced_tokens(self, max_count: int) -> list[int]:
        """Return the next forced tokens: at most ``max_count``, and no more than fit into one batch."""
        max_batch = min(max_count, self._max_forced_count())
        if self.phases.forced:
            count = max_batch if self.jump else 1
            return list(self.phases.forced[:count])
        if not self.jump or self._tracker is None or self._is_healing:
            return []
        if self.guard is not None and self.guard.dropped_at(self.token_count):
            return []
        return self._tracker.forced_tokens()[:max_batch]

    @property
    def _is_healing(self) -> bool:
        return self.healer is not None and bool(self.healer.remaining)

    def _make_forced_tokens(self, tokens: list[int]) -> _Tokens:
        """Make these forced tokens. All but the last are read in one batch; the last one stays pending."""
        batch = tokens[:-1]
        earlier_return_count = self._return_count
        if self._pending_token is None:
            logits = yield from self._next_row()
            yield from self._emit(logits, tokens[0])
            tokens = tokens[1:]
            if self._return_count != earlier_return_count:
                return
        else:
            batch = [self._pending_token, *batch]
        if not batch or self._has_stopped() or self._final_reason is not None:
            return
        rows = yield from self._read(batch)
        for logits, token in zip(rows, tokens, strict=False):
            yield from self._emit(logits, token)
            has_returned = self._return_count != earlier_return_count
            if has_returned or self._has_stopped() or self._final_reason is not None:
                break

    def _draft_tokens(self, max_count: int) -> list[int]:
        """Return the draft tokens, fewer than ``max_count``: the chain draws one more token after the draft."""
        if self.drafts is None or self._pending_token is None:
            return []
        return self.drafts.draft(min(max_count, self._max_forced_count()) - 1)

    def _draw_tokens(self, draft: list[int]) -> _Tokens:
        """Draw one token, and one more for each token of the draft that is right."""
        if self._pending_token is None:
            rows: Sequence[DecoderRow] = [(yield from self._next_row())]
        else:
            rows = yield from self._read([self._pending_token, *draft])
        earlier_return_count = self._return_count
        accepted_count = 0
        is_match = False
        for index, logits in enumerate(rows):
            token = yield from self._emit(logits)
            is_match = index < len(draft) and token == draft[index]
            accepted_count += is_match
            if self._return_count != earlier_return_count or self._final_reason is not None:
                break
            if not is_match or self._has_stopped() or self._is_next_decided():
                break
        if draft and self.drafts is not None:
            if self._return_count == earlier_return_count:
                self._rejected_count = len(draft) - accepted_count
                if is_match:  # the last token is pending, and will be read again
                    self._rejected_count += 1
            self.drafts.record_acceptance(len(draft), accepted_count)

    def _is_next_decided(self) -> bool:
        """Return whether the text ends here, or the next token is forced."""
        if self.phases.forced:
            return True
        tracker = self._tracker
        if tracker is None:
            return False
        has_forced_tokens = self.jump and bool(tracker.forced_tokens())
        return has_forced_tokens or tracker.is_exhausted()

    def _next_row(self) -> Generator[LogitsRequest, Sequence[DecoderRow] | None, DecoderRow]:
        logits = self._next_logits
        if logits is None:
            rows = yield from self._read(())
            return rows[0]
        self._next_logits = None
        return logits

    def _read(
        self, tokens: Sequence[int]
    ) -> Generator[LogitsRequest, Sequence[DecoderRow] | None, Sequence[DecoderRow]]:
        drop_count = self._rejected_count
        self._rejected_count = 0
        self._read_count += len(tokens) - drop_count
        rows = yield LogitsRequest(tokens, drop_count)
        if rows is None:
            raise RuntimeError("a decoder requested logits and received None")
        return rows

    def _emit(
        self, logits: DecoderRow, forced: int | None = None
    ) -> Generator[Token | Rewind | LogitsRequest, Sequence[DecoderRow] | None, int]:
        """Make one token, and yield it as soon as it is final; return its id."""
        # A ban or a loop that the token completes may make the text return to this token or an earlier one.
        guard = self.guard
        if guard is None:
            event = self._make_token(logits, forced)
            yield event
            return event.id
        checkpoint = self._save(guard)
        is_forced_by_phase = bool(self.phases.forced)
        try:
            event = self._make_token(logits, forced)
        except SamplingError:
            if not guard.dropped_at(self.token_count):
                raise
            self._final_reason = "banned"  # a step of the chain allows no other token than those dropped here
            return -1
        self._held.append(_HeldToken(event, checkpoint))
        verdict = guard.review(
            event.index,
            event.id,
            self._new_text,
            has_incomplete_character=self.stream.has_incomplete_character,
            is_forced=is_forced_by_phase,
            first_held=self._held[0].event.index,
            can_end_phase=self.phases.can_end,
        )
        if verdict is None:
            yield from self._release_held(guard.first_undecided(self.token_count, self._places_before))
        is_drawn_again = verdict is not None and verdict.place == event.index
        if self._held and (self._copied_row_count < _MAX_COPIED_ROWS or is_drawn_again):
            self._held[-1].logits = logits.copy()  # the next tokens overwrite the row
            self._copied_row_count += 1
        if verdict is not None:
            yield from self._carry_out(verdict, guard)
        return event.id

    def _places_before(self, index: int) -> Sequence[int]:
        """Return the open places before a held token; none for a token that was shown."""
        position = index - self._held[0].event.index if self._held else -1
        return self._held[position].checkpoint.open_places if 0 <= position < len(self._held) else ()

    def _review_end(self) -> _Tokens:
        """Ask the guard about the end of the text, and go back if it decides so."""
        if self.guard is not None and self._held:
            verdict = self.guard.review_end(self._held[0].event.index)
            if verdict is not None:
                self._final_reason = None
                yield from self._carry_out(verdict, self.guard)

    def _shorten_end(self) -> _Tokens:
        """Drop what is banned only because the text ends there."""
        while self.guard is not None and self._held:
            verdict = self.guard.review_banned_end()
            if verdict is None:
                return
            yield from self._carry_out(verdict, self.guard)

    def _release_held(self, end: int) -> _Tokens:
        """Yield the held tokens before the one with index ``end``."""
        while self._held and self._held[0].event.index < end:
            held = self._held.popleft()
            self._copied_row_count -= held.logits is not None
            yield held.event

    def take_held(self) -> list[Token]:
        events = [held.event for held in self._held]
        self._held.clear()
        return events

    def _carry_out(self, verdict: Verdict, guard: TextGuard) -> _Tokens:
        """Go back, end the phase or end the text, as the guard has decided."""
        if verdict.ends_phase:
            self.phases.end_phase(self._output)
        if verdict.place is not None:
            dropped = self._go_back(verdict.place, guard)
            dropped_data = b"".join(token.own_data for token in dropped if not token.is_control)
            if verdict.finish_reason is None:
                guard.record_return(verdict.place, dropped[0].id)
            yield Rewind(
                index=verdict.place,
                ban=None if verdict.ban is None else verdict.ban.text,
                text=dropped_data.decode(errors="replace"),
                dropped=tuple(token.id for token in dropped),
                attempt=verdict.attempt,
            )
        self._final_reason = verdict.finish_reason

    def _save(self, guard: TextGuard) -> Checkpoint:
        tracker = self._constraint_tracker
        return Checkpoint(
            self.phases.save(),
            self.stream.save(),
            guard.save(),
            0 if tracker is None else tracker.token_count,
            self.forced_count,
            b"" if self.healer is None else self.healer.remaining,
            guard.open_places(),
        )

    def _go_back(self, index: int, guard: TextGuard) -> list[Token]:
        """Return to the state before a held token; return the dropped tokens."""
        dropped: list[_HeldToken] = []
        while self._held and self._held[-1].event.index >= index:
            dropped.insert(0, self._held.pop())
        self._copied_row_count -= sum(held.logits is not None for held in dropped)
        checkpoint = dropped[0].checkpoint
        logits = dropped[0].logits
        del self._output[index:]
        self.token_count = index
        self.forced_count = checkpoint.forced_count
        self.phases.restore(checkpoint.phase, self._output)
        self.stream.restore(checkpoint.stream)
        guard.restore(checkpoint.guard, index)
        if self._constraint_tracker is not None:
            self._constraint_tracker.return_to(checkpoint.constraint_token_count, self._output)
        if self.drafts is not None:
            self.drafts.remove_last(len(dropped))
        if self.healer is not None:
            self.healer.remaining = checkpoint.healed_bytes
        self._has_ended = False
        self._next_logits = logits
        if logits is not None:
            self._pending_token = None
            kept_count = index
        else:  # the token before is read again, for its logits
            self._pending_token = self._output[-1]
            kept_count = index - 1
        self._rejected_count = self._read_count - kept_count
        self._return_count += 1
        self.discarded_count += len(dropped)
        return [held.event for held in dropped]

    def _mask(self) -> tuple[NDArray[np.bool_] | None, tuple[NamedMask, ...]]:
        """Return the tokens that are allowed next, None for all, and the masks that this one consists of."""
        masks: list[NamedMask] = []
        grammar_mask = self._grammar_mask()
        if grammar_mask is not None:
            masks.append(NamedMask(GRAMMAR_STAGE, grammar_mask))
        if self.healer is not None and self.healer.remaining:
            masks.append(NamedMask(HEALING_STAGE, self.healer.mask()))
        dropped_tokens = () if self.guard is None else self.guard.dropped_at(self.token_count)
        if dropped_tokens:
            is_kept = np.ones(self.vocabulary.size, dtype=np.bool_)
            is_kept[list(dropped_tokens)] = False
            masks.append(NamedMask(BANS_STAGE, is_kept))
        if not masks:
            return None, ()
        combined = masks[0].mask
        for named_mask in masks[1:]:
            combined = combined & named_mask.mask
        return combined, tuple(masks)

    def _grammar_mask(self) -> NDArray[np.bool_] | None:
        """Return the tokens that the constraint allows, or that are a part of the reasoning; None: all."""
        if self._constraint_tracker is None:
            return None
        if self._tracker is not None:
            return self._tracker.mask()
        if self.phases.is_open:
            return self.phases.end_mask(self.vocabulary)
        opening_mask = self.phases.opening_mask(self.vocabulary)
        answer = self._possible_answer
        return opening_mask if answer is None else opening_mask | answer.mask()

    def _make_token(self, row: DecoderRow, forced: int | None = None) -> Token:
        """Draw one token, or take the forced one, and advance the chain, the constraint and the text by it."""
        if isinstance(row, GuidedLogits):
            logits, chain_logits = row.model, row.guided
        else:
            logits = chain_logits = row
        tracker = self._tracker
        mask, named_masks = self._mask()
        start_seconds = perf_counter()
        phase = self.phases.current
        waits_for_length = self.token_count < phase.chain.min_token_count
        tracer = phase.tracer
        if tracer is not None:
            token = tracer.sample(row, named_masks)
            candidates = tracer.candidates
        else:
            candidates = phase.chain.apply(chain_logits, mask)
            token = phase.chain.draw(candidates)
        is_forced = forced is not None
        if forced is not None:
            # The chain has drawn anyway, so that its random numbers do not depend on whether tokens are forced.
            token = forced
            self.forced_count += 1
        trace = None if tracer is None else tracer.read(token, is_forced)
        phase.chain.accept(token)
        data, is_control, is_eog = self.vocabulary.token(token)
        is_control = is_control and token not in (self.tag_tokens or ())
        healed_bytes = 0 if self.healer is None or is_control else self.healer.accept(data)
        self._output.append(token)
        undecided_tracker = None if self.phases.is_open else self._constraint_tracker
        was_possible = undecided_tracker is not None and self._possible_answer is not None
        part = self.phases.accept(data[healed_bytes:], self._output)
        self.chain_seconds += perf_counter() - start_seconds
        if tracker is not None:
            tracker.accept(token)
        elif undecided_tracker is not None:
            if part == "reasoning":
                undecided_tracker.return_to(0, ())  # the answer begins later
            elif was_possible and undecided_tracker.mask()[token]:
                undecided_tracker.accept(token)
        has_grammar = part == "answer" and self._constraint_tracker is not None
        is_end = is_eog and (self.ends_at_eog or has_grammar)
        self._has_ended = is_end or (token in self.stop_token_ids and not waits_for_length)
        # Under guidance, the most likely tokens that the chain has found are not those of the model.
        distributions = self.reader.read(logits, token, candidates, is_same_row=chain_logits is logits)
        self._new_text = "" if is_control else self.stream.decode(data[healed_bytes:])
        text = self.stream.release(self._new_text, finds_stop=not waits_for_length)
        event = Token(
            self.token_count,
            token,
            data,
            text,
            is_control,
            distributions,
            healed_bytes=healed_bytes,
            trace=trace,
            part=None if self.tag_tokens is None else part,
            is_forced=is_forced,
            model_logprob=None if is_forced else self.reader.model_logprob(logits, token, distributions),
        )
        self.token_count += 1
        self._pending_token = token
        if self.drafts is not None:
            self.drafts.add(token)
        return event


class _ConstraintTracker:
    """A constraint with its current mask, and the time that the constraint has taken."""

    # Only a `ForcingConstraint` has forced tokens and knows whether a sentence is complete.

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary) -> None:
        self._constraint = constraint
        self._forcing = as_forcing(constraint)
        # A token that is never drawn continues no sentence.
        ending_tokens = vocabulary.eog | vocabulary.suppressed if self._forcing else ()
        self._ending_tokens = np.array(sorted(ending_tokens), dtype=np.intp)
        self._mask: NDArray[np.bool_] | None = None
        self.token_count = 0
        self.seconds = 0.0

    @property
    def is_complete(self) -> bool | None:
        """True if the text is a complete sentence; None if the constraint does not know."""
        return None if self._forcing is None else self._forcing.is_complete

    def mask(self) -> NDArray[np.bool_]:
        if self._mask is None:
            start_seconds = perf_counter()
            self._mask = self._constraint.mask()
            self.seconds += perf_counter() - start_seconds
        return self._mask

    def accept(self, token: int) -> None:
        """Advance by one token. Raises ``GrammarError`` if the mask does not allow the token."""
        start_seconds = perf_counter()
        self._constraint.accept(token)
        self._mask = None
        self.token_count += 1
        self.seconds += perf_counter() - start_seconds

    def check_reversible(self) -> None:
        """Raise ``ModelError`` if the constraint cannot return to an earlier token."""
        if as_reversible(self._constraint) is None:
            raise ModelError(
                f"bans: {type(self._constraint).__name__} cannot go back; give it a method roll_back(count)"
            )

    def return_to(self, token_count: int, output: Sequence[int]) -> None:
        """Return to an earlier number of tokens. More tokens are read again: the first ones of ``output``."""
        for token in output[self.token_count : token_count]:
            self.accept(token)
        constraint = as_reversible(self._constraint)
        if constraint is not None and token_count < self.token_count:
            start_seconds = perf_counter()
            constraint.roll_back(self.token_count - token_count)
            self.token_count = token_count
            self._mask = None
            self.seconds += perf_counter() - start_seconds

    def forced_tokens(self) -> list[int]:
        """Return the tokens that must come next, possibly none."""
        if self._forcing is None:
            return []
        start_seconds = perf_counter()
        tokens = self._forcing.forced_tokens()
        self.seconds += perf_counter() - start_seconds
        return tokens

    def is_exhausted(self) -> bool:
        """Return whether the text is a complete sentence that only an end-of-generation token may follow."""
        if self._forcing is None or not self._forcing.is_complete:
            return False
        mask = self.mask()
        return bool(mask.sum() == mask[self._ending_tokens].sum())

    def completion_tokens(self) -> list[int]:
        """Return the tokens that complete the sentence; none if it is complete or cannot be completed."""
        completable = as_completable(self._constraint)
        if completable is None or completable.is_complete:
            return []
        try:
            return completable.completion_tokens()
        except GrammarError:
            return []
