"""The type of a generation request, which flags, lines of a batch, messages of a chat and Python code share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from ..common.llama_cpp_limits import MAX_SLOTS
from ..grammars.bans import DEFAULT_BAN_RETRIES, BanAction, TextBan, parse_bans
from ..models.errors import ModelError
from .drafts import DraftOptions
from .guidance import Guidance
from .text_guard import GuardSettings
from .token_records import LogprobRequest

if TYPE_CHECKING:
    from ..grammars.constraint import Constraint
    from ..grammars.spec import GrammarSpec
    from ..samplers.building import Step
    from ..samplers.chain import Chain, Phase
    from ..samplers.loop_guard import LoopGuard


@dataclass(frozen=True)
class ChatMessages:
    """A chat whose next message the model writes.

    Attributes:
        messages: dicts like ``{"role": "system" | "user" | "assistant" | "tool", "content": text}``, the oldest
            message first; some templates also read ``reasoning_content``, ``tool_calls`` and others.
        template: the chat template in Jinja, or the name of one of llama.cpp's templates; None: the model's
            template.
        variables: variables of the template; None: no variables.
    """

    messages: Sequence[dict[str, Any]]
    template: str | None = None
    variables: Mapping[str, Any] | None = None


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
            raise ModelError(f"beams: {self.beam_count} is not within 1..{MAX_SLOTS}")
        if not isfinite(self.length_penalty) or abs(self.length_penalty) > MAX_LENGTH_PENALTY:
            raise ModelError(f"length_penalty: {self.length_penalty} is not within ±{MAX_LENGTH_PENALTY:g}")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ModelError(f"early_stopping: {self.early_stopping!r} is not True, False or 'never'")
        if self.best_count is not None and not 1 <= self.best_count <= self.beam_count:
            raise ModelError(f"n_best: {self.best_count} is not within 1..{self.beam_count}, the number of beams")

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


def rules_from_json(rules: Mapping[str, Any]) -> dict[str, Any]:
    from ..samplers.building import build_phases  # noqa: PLC0415 - only replays need it
    from ..samplers.loop_guard import parse_loop_guard  # noqa: PLC0415

    fields = {name: rules[name] for name in ("ban_retries", "ban_then", "heal") if name in rules}
    guard, guidance = rules.get("loop_guard"), rules.get("guidance")
    return fields | {
        "bans": parse_bans(rules.get("bans", ())),
        "loop_guard": None if guard is None else parse_loop_guard(guard),
        "phases": build_phases([*rules.get("phases", ()), {}], ()),
        "guidance": None if guidance is None else Guidance(**guidance),
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
        jump: whether tokens that the grammar forces are read in one batch.
        complete_sentence: whether a sentence that ``max_tokens`` cuts off is completed, beyond that length.
        lookup: maximum number of tokens in a draft, which is guessed from the text so far; 0: no drafts.
        trace: number of most likely tokens of each stage that a trace has; None: no trace.
        id: identifies the request among others.
        seed: seed of a chain that is not built yet, an integer of 64 bits with a sign; -1: a random one.
        beginning: text of the answer with which the prompt ends. The grammar reads it before the first token. A
            chat's beginning is added after the template.
        echo: whether the tokens of the prompt are returned, too.
        keep_on_shift: number of prompt tokens to keep when a full context discards old tokens, -1 for all; None:
            the text ends when the context is full. Not supported in a batch.
        stop_token_ids: ids of tokens that end the text, in addition to the model's end-of-generation tokens. The
            text of such a token is part of the answer.
        ends_at_eog: whether an end-of-generation token ends the text. A text under a grammar always ends there.
        exact_reuse: whether tokens of an earlier run are reused only if an empty context would compute the same.
            False: all tokens with which the prompt begins are reused, also generated ones, so that a conversation
            is read quickly, but the logits may differ by rounding. None: False in `generate`, True in a batch.
        bans: phrases and regular expressions that the text must not contain; the text returns to where one begins.
        ban_retries: number of times that the text returns to one place.
        ban_then: what happens then: ``step_back`` returns to the token before, ``keep`` leaves the text, ``stop``
            ends the text before the match.
        loop_guard: finds a text that repeats itself; None: loops are not found.
        phases: the phases before the last one, which ``chain`` draws.
        heal: whether the last tokens of the prompt are removed and spelled again by the first tokens, if one
            longer token can begin with them.
        beams: searches for the best texts, see `generate_beams`; None: the chain draws each token. A batch returns
            the best text.
        guidance: a negative prompt or another model, from which the chain's logits move away; None: no guidance.
        draft: the draft model, which guesses the next tokens where ``lookup`` has no draft; None: no draft model.
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
    bans: Sequence[TextBan] = ()
    ban_retries: int = DEFAULT_BAN_RETRIES
    ban_then: BanAction = "step_back"
    loop_guard: LoopGuard | None = None
    phases: Sequence[Phase] = ()
    heal: bool = False
    beams: BeamSearch | None = None
    guidance: Guidance | None = None
    draft: DraftOptions | None = None

    @property
    def is_guided(self) -> bool:
        """True if there is guidance, and if it is not off."""
        return self.guidance is not None and not self.guidance.is_off

    @property
    def guard_settings(self) -> GuardSettings | None:
        """The bans and the loop guard; None without any."""
        if not self.bans and self.loop_guard is None:
            return None
        return GuardSettings(self.bans, self.ban_retries, self.ban_then, self.loop_guard)

    @property
    def text_rules(self) -> dict[str, Any]:
        """The settings of bans, loop guard, phases, healing and guidance that are not at their defaults."""
        rules: dict[str, Any] = {}
        if self.bans:
            rules |= {"bans": [ban.as_setting() for ban in self.bans]}
        if self.bans or (self.loop_guard is not None and self.loop_guard.action == "rewind"):
            rules |= {"ban_retries": self.ban_retries, "ban_then": self.ban_then}
        if self.loop_guard is not None:
            rules["loop_guard"] = self.loop_guard.model_dump()
        if self.phases:
            rules["phases"] = [phase.as_setting() for phase in self.phases]
        if self.heal:
            rules["heal"] = True
        if self.is_guided and self.guidance is not None:
            rules["guidance"] = self.guidance.as_setting()
        return rules
