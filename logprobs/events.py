"""The events of a run.

A run consists of a `Start`, a `PromptToken` for each token of the prompt (only with ``echo``), a `Token` for each
generated token, a `Rewind` for each return to an earlier token, and a `Done`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple

from .confidence import Confidence, FieldConfidence
from .records import TokenRecord


@dataclass(frozen=True)
class ReasoningTags:
    """The strings that a model writes before and after its reasoning, such as ``<think>`` and ``</think>``.

    Attributes:
        start: the string before the reasoning.
        end: the string after the reasoning.
        answer_prefixes: strings that the model writes before its answer; a template of such a model expects
            answers without reasoning. Empty if there are none.
    """

    start: str
    end: str
    answer_prefixes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def starts(self) -> tuple[str, ...]:
        """The strings that begin a block of reasoning: as answers do, with the header of a message or without."""
        if not self.answer_prefixes:
            return (self.start,)
        without_header = min(self.answer_prefixes, key=len)
        return tuple(prefix.removesuffix(without_header) + self.start for prefix in self.answer_prefixes)


Place = Literal["before", "inside", "after"]  # where a text is, seen from the reasoning


@dataclass(frozen=True)
class Reasoning:
    """The reasoning of a text after the prompt that a chat template made.

    Attributes:
        tags: the tags around the reasoning.
        place: where the prompt ends. ``before``: the model may begin with its reasoning or with its answer;
            ``inside``: the reasoning has begun; ``after``: the answer has begun.
        answer_opening: the text that the template writes between the end tag and the answer.
        is_continued: whether the prompt ends with text of the reasoning, after which blanks belong to it.
    """

    tags: ReasoningTags
    place: Place = "before"
    answer_opening: str = ""
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """The first event of a run, after the prompt was read. Has the settings that are needed to repeat the run.

    Attributes:
        model: name of the model's file without its suffix.
        seed: the seed of the chain.
        chain: the steps of the chain with their parameters.
        grammar: the constraint's description; None without a constraint.
        prompt_tokens: number of tokens of the prompt.
        prompt_ids: ids of the prompt's tokens.
        cached_tokens: number of prompt tokens that the context already contained.
        context: length of the context, tokens.
        logprobs: the logprobs that the tokens have: ``from``, the source, ``top``, the number of most probable
            tokens, and others; None if the tokens have no logprobs.
        max_tokens: maximum number of generated tokens; None = no limit.
        stop: the stop strings.
        versions: the versions of logitsmith and of llama-cpp-python.
        batch_exactness: whether other requests of the batch can change the answer; None without a batch.
        trace: number of most probable tokens of each stage in a trace; None if the run is not traced.
        text_rules: the settings of bans, of the loop guard, of phases, of token healing and of a beam search, by
            their names; empty without any.
        draft: the draft model and the limits of its drafts; None without a draft model.
        draft_exactness: whether drafts can change the text; None without a draft model.
        adapters: the file and the scale of each LoRA adapter; None without adapters.
        device: where the layers are computed: ``layers``, the number on GPUs; ``of``, the number of all; and
            ``devices``, the GPUs with the memory that was free; None if it is not known.
        reasoning: how the reasoning is told apart from the answer; None if the text has no parts.
    """

    model: str
    seed: int
    chain: list[dict[str, dict[str, Any]]]
    grammar: dict[str, Any] | None
    prompt_tokens: int
    prompt_ids: tuple[int, ...]
    cached_tokens: int
    context: int
    logprobs: dict[str, Any] | None
    max_tokens: int | None
    stop: tuple[str, ...]
    versions: dict[str, str]
    batch_exactness: BatchExactness | None = None
    trace: int | None = None
    text_rules: dict[str, Any] = field(default_factory=dict)
    draft: dict[str, Any] | None = None
    draft_exactness: BatchExactness | None = None
    adapters: list[dict[str, Any]] | None = None
    device: dict[str, Any] | None = None
    reasoning: Reasoning | None = None


@dataclass(frozen=True, slots=True)
class PromptToken(TokenRecord):
    """A token of the prompt. The first one has no distribution, because no token precedes it."""


@dataclass(frozen=True, slots=True)
class Token(TokenRecord):
    """A generated token."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """A return to an earlier token, whose token and all later ones are dropped, and drawn again."""

    index: int  # index of the first dropped token
    ban: str | None  # the phrase or the pattern that matched; None for a loop
    text: str  # the text of the dropped tokens
    dropped: tuple[int, ...]  # ids of the dropped tokens
    attempt: int  # number of times that the text has returned to this token, counted from 1


@dataclass(frozen=True, slots=True)
class Timings:
    """The duration of each part of a run, in seconds.

    Attributes:
        prompt: time for reading the prompt.
        generation: time for all generated tokens.
        chain: the part of ``generation`` that the chain took.
        grammar: the part of ``generation`` that the grammar took.
    """

    prompt: float
    generation: float
    chain: float
    grammar: float


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a run.

    Attributes:
        finish_reason: ``stop`` (the model ended its text, or a stop string appeared), ``grammar`` (the text is a
            complete sentence that no text can follow), ``length`` (``max_tokens`` reached), ``context`` (the
            context is full), ``banned`` (a ban matched at each token that was tried), ``loop`` (the text repeated
            itself) or ``interrupted``.
        complete: True if the text is a complete sentence of the grammar; None without a grammar.
        text: the answer; the complete text if it has no parts.
        rest: the end of the text, which no token's ``text`` has because it was held back.
        stop: the stop string that ended the text; None if no stop string appeared.
        prompt_tokens: number of tokens of the prompt.
        completion_tokens: number of generated tokens.
        forced_tokens: number of generated tokens that were forced.
        drafted_tokens: number of tokens that the lookup or the draft model guessed; None without both.
        accepted_tokens: number of guessed tokens that the chain drew, too; None without both.
        timings: the duration of each part of the run.
        context_shifts: number of times that older tokens were discarded because the context was full; None without
            ``keep_on_shift``.
        discarded_tokens: number of tokens that were dropped by going back; None if the run could not go back.
        loop_period: the period of the loop that ended the text or its phase, in tokens; None if there was none.
        score: the score of the text in a beam search, in nats; None without a beam search.
        reasoning: the reasoning before the answer, without tags; None if the text has no parts.
        reasoning_tokens: number of tokens of the reasoning with its tags; None if the text has no parts.
        tagged_text: the complete text, with the reasoning and its tags; None if the text has no parts.
        confidence: how probable the model finds the drawn tokens of the answer; None if none was drawn, or if the
            request does not ask for it.
        fields: the confidence of each text, number, truth value and null of a JSON answer, by JSON Pointer; None
            if the answer is not JSON, or if the request does not ask for it.
    """

    finish_reason: str
    complete: bool | None
    text: str
    rest: str
    stop: str | None
    prompt_tokens: int
    completion_tokens: int
    forced_tokens: int
    drafted_tokens: int | None
    accepted_tokens: int | None
    timings: Timings
    context_shifts: int | None = None
    discarded_tokens: int | None = None
    loop_period: int | None = None
    score: float | None = None
    reasoning: str | None = None
    reasoning_tokens: int | None = None
    tagged_text: str | None = None
    confidence: Confidence | None = None
    fields: Mapping[str, FieldConfidence] | None = None

    @property
    def complete_text(self) -> str:
        """All that was written: the reasoning with its tags, and the answer."""
        return self.text if self.tagged_text is None else self.tagged_text


Event = Start | PromptToken | Token | Rewind | Done


class Reading(NamedTuple):
    """How far a prompt is read, before the `Start` of its run: for those who ask for it, and in no record."""

    read_tokens: int
    prompt_tokens: int


class RunEvents(NamedTuple):
    """The events of a complete run by their kind, without rewinds."""

    start: Start
    prompt_tokens: tuple[PromptToken, ...]
    tokens: tuple[Token, ...]
    done: Done


def events_by_kind(events: Iterable[Event]) -> RunEvents:
    """Return the events of a complete run. Raises ``ValueError`` without a `Start` first or a `Done` last."""
    all_events = list(events)
    start = all_events[0] if all_events else None
    done = all_events[-1] if all_events else None
    if not isinstance(start, Start) or not isinstance(done, Done):
        raise ValueError("a complete run begins with a Start event and ends with a Done event")
    prompt_tokens = tuple(event for event in all_events if isinstance(event, PromptToken))
    tokens = tuple(event for event in all_events if isinstance(event, Token))
    return RunEvents(start, prompt_tokens, tokens, done)


class ExactnessLevel(Enum):
    """A degree of independence of a batch's answers from the other requests in the batch.

    ``EXACT``: each answer is the one that the request gets alone. ``AMONG_THEMSELVES``: each answer is the same
    for any number of slots above 1, any order and any other requests, but may differ from the answer that the
    request gets alone. ``ROUNDING``: other requests may change the logits by a rounding error, which may change a
    token.
    """

    EXACT = "exact"
    AMONG_THEMSELVES = "exact among themselves"
    ROUNDING = "to rounding"


@dataclass(frozen=True)
class BatchExactness:
    """The extent to which other requests of a batch can change an answer.

    Attributes:
        level: the degree of independence.
        max_logit_difference: the largest measured difference between the logits of one token that were decoded
            with different numbers of rows in the batch; 0 if there was no difference.
        max_exact_tokens: maximum number of tokens of a prompt with its answer that are exact; longer
            answers are exact among themselves. None = no limit.
    """

    level: ExactnessLevel
    max_logit_difference: float = 0.0
    max_exact_tokens: int | None = None

    def for_answer(self, token_count: int) -> BatchExactness:
        """Return the exactness of one answer, by the number of tokens of its prompt and the answer."""
        if self.level is not ExactnessLevel.EXACT or self.max_exact_tokens is None:
            return self
        is_exact = token_count <= self.max_exact_tokens
        level = ExactnessLevel.EXACT if is_exact else ExactnessLevel.AMONG_THEMSELVES
        return BatchExactness(level, self.max_logit_difference)

    def combined_with(self, other: BatchExactness) -> BatchExactness:
        """Return the promise that holds if both hold: the weaker level and the lower limit."""
        levels = list(ExactnessLevel)  # from the strongest to the weakest
        weaker_level = max(self.level, other.level, key=levels.index)
        difference = max(self.max_logit_difference, other.max_logit_difference)
        limits = [limit for limit in (self.max_exact_tokens, other.max_exact_tokens) if limit is not None]
        is_limited = bool(limits) and weaker_level is ExactnessLevel.EXACT
        return BatchExactness(weaker_level, difference, min(limits) if is_limited else None)

    @property
    def promise(self) -> str:
        """The promise with its limit, such as ``exact up to 256 tokens``."""
        limit = self.max_exact_tokens
        return str(self) if limit is None else f"{self} up to {limit:,} tokens"

    def __str__(self) -> str:
        if self.level is not ExactnessLevel.ROUNDING or not self.max_logit_difference:
            return self.level.value
        difference = f"{self.max_logit_difference:.0e}".replace("e-0", "e-")  # 1e-5, not 1e-05
        return f"{self.level.value} ({difference})"


# The exactness of requests that are decoded one by one.
EXACT = BatchExactness(ExactnessLevel.EXACT)
