"""The type of a generation request, which flags, lines of a batch, messages of a chat and Python code share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields as dataclass_fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from ..common.llama_cpp_limits import MAX_SLOTS
from ..logprobs.events import Reasoning
from ..models.errors import ModelError
from .chat_template import BegunReasoning
from .drafts import DraftOptions
from .guidance import Guidance
from .text_rules import TextRules
from .token_records import LogprobRequest

if TYPE_CHECKING:
    from ..grammars.constraint import Constraint
    from ..grammars.spec import GrammarSpec
    from ..samplers.building import Step
    from ..samplers.chain import Chain


@dataclass(frozen=True)
class ChatMessages:
    """A chat whose next message the model writes.

    Attributes:
        messages: dicts like ``{"role": "system" | "user" | "assistant" | "tool", "content": text}``, the oldest
            message first; some templates also read ``reasoning_content``, ``tool_calls`` and others.
        template: the chat template in Jinja, or the name of one of llama.cpp's templates; None: the model's
            template.
        variables: variables of the template; None: no variables.
        reasoning: the reasoning of the answer that is continued, see `GenerationRequest.beginning`; None: it has
            none.
    """

    messages: Sequence[dict[str, Any]]
    template: str | None = None
    variables: Mapping[str, Any] | None = None
    reasoning: BegunReasoning | None = None


EarlyStopping = Literal[False, True, "never"]  # When a beam search ends; see `BeamSearch`

MAX_LENGTH_PENALTY = 20.0  # the power of a long text's length must stay within float64


@dataclass(frozen=True)
class BeamSearch:
    """The settings of a beam search, which keeps the best texts at each step instead of drawing a token.

    The score of a text of n tokens is sum_i ln p_i / n^length_penalty, in nats, where p_i is the probability of
    token i among the candidates that the chain keeps. The search is that of transformers, see `search_beams`.

    Attributes:
        beam_count: number of texts that are continued at each step, 1 to 256.
        length_penalty: exponent of the length, -20 to 20. Above 0 it favors long texts, below 0 short ones.
        early_stopping: when the search ends. True: as soon as ``beam_count`` texts have ended. False: when in
            addition the best text that is being continued has no higher score, at its current length, than the
            worst of these. ``never``: as False, but with a length penalty above 0 the score is computed with the
            greatest possible length, so that no better text is missed.
        best_count: number of texts that are returned, the best first; None: ``beam_count``.
    """

    beam_count: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    best_count: int | None = None

    def check(self) -> None:
        """Raise ``ModelError`` if a value is not allowed."""
        if not 1 <= self.beam_count <= MAX_SLOTS:
            raise ModelError(f"{self.beam_count} is not within 1..{MAX_SLOTS}", origin="beams")
        if not isfinite(self.length_penalty) or abs(self.length_penalty) > MAX_LENGTH_PENALTY:
            raise ModelError(
                f"{self.length_penalty} is not within ±{MAX_LENGTH_PENALTY:g}", origin="length_penalty"
            )
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ModelError(f"{self.early_stopping!r} is not True, False or 'never'", origin="early_stopping")
        if self.best_count is not None and not 1 <= self.best_count <= self.beam_count:
            raise ModelError(
                f"{self.best_count} is not within 1..{self.beam_count}, the number of beams", origin="n_best"
            )

    @property
    def returned_count(self) -> int:
        """The number of texts that are returned."""
        return self.beam_count if self.best_count is None else self.best_count

    def as_setting(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return {
            "beams": self.beam_count,
            "length_penalty": self.length_penalty,
            "early_stopping": self.early_stopping,
            "n_best": self.returned_count,
        }


@dataclass(frozen=True)
class GenerationRequest:
    """A request to generate text.

    It does not depend on a model, except through a built chain or a started constraint.

    A built chain or a started constraint serves one request at a time. Otherwise the engine builds both when the
    request begins, and the request can be pickled.

    Attributes:
        prompt: text, UTF-8 bytes, token ids, or a chat.
        chain: a built chain, or the steps or the notation, which `build` accepts.
        constraint: the grammar, or a started constraint; None: no grammar.
        stop: a stop string, or several.
        max_tokens: maximum number of tokens; None: until the model ends its text or the context is full.
        logprobs: the logprobs that each token gets.
        jump: whether tokens that the grammar forces are read in one batch. The chain draws a token for each of
            them, which is ignored, so that its random numbers do not depend on this.
        complete_sentence: whether a sentence that ``max_tokens`` cuts off is completed, by a short way beyond that
            length. Needs a `CompletableConstraint`.
        lookup: maximum number of tokens in a draft, which is guessed from the text so far; 0: no drafts. The chain
            draws each token anyway: only the time changes, if llama.cpp computes the same logits for a token
            alone and in a batch.
        trace: number of most likely tokens of each stage that a trace has; None: no trace. Tokens and logprobs do
            not depend on it.
        id: identifies the request among others.
        seed: seed of a chain that is not built yet, an integer of 64 bits with a sign; -1: a random one.
        beginning: text of the answer with which the prompt ends. The grammar reads it before the first token. A
            chat's beginning is added after the template.
        echo: whether the tokens of the prompt are returned, too.
        keep_on_shift: number of prompt tokens to keep when a full context discards half of the other tokens, as
            llama.cpp's context shift does, -1 for all; None: the text ends when the context is full. Not
            supported in a batch.
        stop_token_ids: ids of tokens that end the text, in addition to the model's end-of-generation tokens. The
            text of such a token is part of the answer.
        ends_at_eog: whether an end-of-generation token ends the text. A text under a grammar always ends there.
        exact_reuse: whether tokens of an earlier run are reused only if an empty context would compute the same.
            False: all tokens with which the prompt begins are reused, also generated ones, so that a conversation
            is read quickly, but the logits may differ by rounding. None: False in `generate`, True in a batch.
        rules: bans, the loop guard, phases, healing, guidance.
        beams: searches for the best texts, see `generate_beams`; None: the chain draws each token. A batch returns
            the best text.
        draft: the draft model, which guesses the next tokens where ``lookup`` has no draft; None: no draft model.
        reasoning: the reasoning that the chat template of a prompt in text shows; the engine finds that of
            messages. None: the text has no parts.
        confidence: whether the last event has the confidence of the answer. It takes the model's logprob of each
            drawn token: one more pass over its logits, unless ``logprobs`` reads the model's distribution.
    """

    prompt: str | bytes | Sequence[int] | ChatMessages
    chain: Chain | str | Sequence[Step]
    constraint: GrammarSpec | Constraint | None = None
    stop: str | Sequence[str] = ()
    max_tokens: int | None = None
    logprobs: LogprobRequest = field(default_factory=LogprobRequest)
    jump: bool = True
    complete_sentence: bool = False
    lookup: int = 0
    trace: int | None = None
    id: object = None
    seed: int = 0
    beginning: str = ""
    echo: bool = False
    keep_on_shift: int | None = None
    exact_reuse: bool | None = None
    stop_token_ids: Sequence[int] = ()
    ends_at_eog: bool = True
    rules: TextRules = field(default_factory=TextRules)
    beams: BeamSearch | None = None
    draft: DraftOptions | None = None
    reasoning: Reasoning | None = None
    confidence: bool = False

    @classmethod
    def of(  # noqa: PLR0913 - the arguments are public
        cls,
        prompt: str | bytes | Sequence[int] | ChatMessages,
        chain: Chain | str | Sequence[Step],
        constraint: GrammarSpec | Constraint | None = None,
        *,
        top_logprobs: int | None = None,
        logprobs_from: str = "model",
        logprob_of: Sequence[int] = (),
        **fields: Any,
    ) -> GenerationRequest:
        """Return the request with these fields. Those of its rules are given by their names.

        Args:
            prompt: See `GenerationRequest`.
            chain: See `GenerationRequest`.
            constraint: See `GenerationRequest`.
            top_logprobs: None: no logprobs; 0: the logprob of the chosen token; n: also those of the n most likely
                tokens; -1: those of all tokens.
            logprobs_from: ``model``: log-softmax of the model's logits; ``chain``: of the candidates from which
                the token was drawn; ``both``. In nats.
            logprob_of: Ids of tokens whose logprobs every event has.
            fields: The other fields, and those of `TextRules` by their names, see `TextRules.of`.

        Raises ``GrammarError`` for wrong bans, ``SamplingError`` for a wrong loop guard.
        """
        rules = {rule.name: fields.pop(rule.name) for rule in dataclass_fields(TextRules) if rule.name in fields}
        if rules and "rules" in fields:
            raise TypeError(f"{next(iter(rules))} is one of the rules; give it in rules, or rules one by one")
        if rules:
            fields["rules"] = TextRules.of(rules)
        logprobs = LogprobRequest(top_logprobs, logprobs_from, tuple(logprob_of))
        if "logprobs" in fields and logprobs != LogprobRequest():
            raise TypeError("top_logprobs, logprobs_from and logprob_of are fields of logprobs; give one of both")
        return cls(prompt, chain, constraint, **{"logprobs": logprobs, **fields})

    def with_chat_text(self, prompt: str | Sequence[int], reasoning: Reasoning | None) -> GenerationRequest:
        """Return the request with the prompt that a chat template made, whose end is exact and is not healed."""
        # ``reasoning``: see `ChatTemplate.reasoning_after`. Without any, its end is not forced.
        rules = self.rules if self.beginning else replace(self.rules, heal=False)
        if reasoning is None:
            rules = replace(rules, phases=tuple(phase for phase in rules.phases if not phase.needs_reasoning))
        return replace(self, prompt=prompt, rules=rules, reasoning=reasoning)

    @property
    def measures_confidence(self) -> bool:
        """True if the model's logprob of each drawn token is needed."""
        return self.confidence or self.rules.field_confidence

    @property
    def answer_beginning(self) -> str:
        """The part of the beginning that belongs to the answer."""
        if self.reasoning is None:
            return self.beginning
        if self.reasoning.place != "after":
            return ""
        _, end_tag, after_reasoning = self.beginning.rpartition(self.reasoning.tags.end)
        return after_reasoning.lstrip() if end_tag else self.beginning

    def with_negative_prompt(self, prompt: str | Sequence[int]) -> GenerationRequest:
        """Return the request, which has guidance, with another negative prompt."""
        return self.guided_by(replace(self.rules.guidance or Guidance(), negative_prompt=prompt))

    def guided_by(self, guidance: Guidance | None) -> GenerationRequest:
        """Return the request with other guidance."""
        return replace(self, rules=replace(self.rules, guidance=guidance))
