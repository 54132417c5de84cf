"""The type of a generation request, which flags, lines of a batch, messages of a chat and Python code share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..grammars.bans import DEFAULT_BAN_RETRIES, BanAction, TextBan
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
        messages: dicts like ``{"role": "system" | "user" | "assistant", "content": text}``, the oldest message
            first.
        template: the chat template in Jinja, or the name of one of llama.cpp's templates; None: the model's
            template.
        variables: variables of the template; None: no variables.
    """

    messages: Sequence[dict[str, str]]
    template: str | None = None
    variables: Mapping[str, Any] | None = None


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
        seed: random seed, 32 bits, of a chain that is not built yet.
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
