"""The rules of a text beside its chain and its grammar: bans, the loop guard, phases, healing, guidance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..grammars.ban_actions import BAN_ACTIONS, DEFAULT_BAN_ACTION, DEFAULT_BAN_RETRIES, BanAction
from ..grammars.bans import TextBan, parse_bans
from ..models.errors import ModelError
from .guidance import Guidance

if TYPE_CHECKING:
    from ..samplers.chain import Phase
    from ..samplers.loop_guard import LoopGuard


@dataclass(frozen=True)
class TextRules:
    """The rules of a text.

    Attributes:
        bans: phrases and regular expressions that the text must not contain. At a match, the text returns to the
            token with the first byte of the match, and draws another one there.
        ban_retries: number of times that the text returns to one place.
        ban_then: what happens then: ``step_back`` returns to the token before, ``keep`` leaves the text, ``stop``
            ends the text before the match.
        loop_guard: finds a text that repeats itself; None: loops are not found.
        phases: the phases before the last one, which the chain of the request draws.
        heal: whether the last tokens of the prompt are removed and spelled again by the first tokens, if one
            longer token can begin with them.
        guidance: a negative prompt or another model, from which the chain's logits move away; None: no guidance.
        field_confidence: whether the model's probability of each value of a JSON answer is measured.
    """

    bans: Sequence[TextBan] = ()
    ban_retries: int = DEFAULT_BAN_RETRIES
    ban_then: BanAction = DEFAULT_BAN_ACTION
    loop_guard: LoopGuard | None = None
    phases: Sequence[Phase] = ()
    heal: bool = False
    guidance: Guidance | None = None
    field_confidence: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TextRules:
        """Return the rules for values by name, in their types or as `as_json` writes them; None is the default.

        Bans and the loop guard may also be written as in a preset. The phases are those before the last one.
        Raises ``GrammarError``, ``SamplingError``, ``ModelError``.
        """
        given = {name: value for name, value in values.items() if value is not None}
        if "bans" in given:
            given["bans"] = parse_bans(given["bans"])
        if "loop_guard" in given:
            from ..samplers.loop_guard import parse_loop_guard  # noqa: PLC0415 - few texts have a guard

            given["loop_guard"] = parse_loop_guard(given["loop_guard"])
        if any(isinstance(phase, Mapping) for phase in given.get("phases", ())):
            from ..samplers.building import build_phases  # noqa: PLC0415 - only replays have tables

            given["phases"] = build_phases([*given["phases"], {}])
        if isinstance(given.get("guidance"), Mapping):
            given["guidance"] = Guidance(**given["guidance"])
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        """Return the rules that are not at their defaults, as a preset writes them."""
        rules: dict[str, Any] = {}
        if self.bans:
            rules |= {"bans": [ban.as_setting() for ban in self.bans]}
        if self.goes_back:
            rules |= {"ban_retries": self.ban_retries, "ban_then": self.ban_then}
        if self.loop_guard is not None:
            rules["loop_guard"] = self.loop_guard.model_dump()
        if self.phases:
            rules["phases"] = [phase.as_setting() for phase in self.phases]
        rules |= {each.name: True for each in fields(self) if getattr(self, each.name) is True}
        if self.guidance is not None and self.is_guided:
            rules["guidance"] = self.guidance.as_setting()
        return rules

    @property
    def are_guarded(self) -> bool:
        """True if the text is searched for bans or loops."""
        return bool(self.bans) or self.loop_guard is not None

    @property
    def goes_back(self) -> bool:
        """True if the text may return to an earlier token."""
        return bool(self.bans) or (self.loop_guard is not None and self.loop_guard.action == "rewind")

    @property
    def is_guided(self) -> bool:
        """True if there is guidance, and if it is not off."""
        return self.guidance is not None and not self.guidance.is_off

    @property
    def negative_text(self) -> str | None:
        """The negative prompt that is a text, which a chat template has to take in; None if there is none."""
        if self.guidance is None or self.guidance.is_off or not isinstance(self.guidance.negative_prompt, str):
            return None
        return self.guidance.negative_prompt or None

    def check(self) -> None:
        """Raise ``ModelError`` if a value is not allowed."""
        if self.ban_retries < 0:
            raise ModelError(f"{self.ban_retries} is not ≥ 0", origin="ban_retries")
        if self.ban_then not in BAN_ACTIONS:
            raise ModelError(f"{self.ban_then!r} is not one of {', '.join(BAN_ACTIONS)}", origin="ban_then")
