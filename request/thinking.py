"""The switches and budgets of a model's reasoning, under the names of all clients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from ..common.strict_model import StrictModel
from ..presets.overrides import Override
from ..presets.setting_table import SWITCH_NAMES
from .sampler_fields import first_given

if TYPE_CHECKING:
    from ..engine.chat_template import ChatTemplate
    from ..presets.settings import Settings

_NO_BUDGET = -1
_Budget = Annotated[int, Field(ge=_NO_BUDGET)]
BUDGET_FIELDS = ("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget")
_BUDGET_ORIGINS = (*BUDGET_FIELDS, "thinking.budget_tokens")
_EFFORT_WITHOUT_THINKING = "none"


class Thinking(StrictModel):
    """Anthropic's ``thinking``."""

    type: Literal["enabled", "disabled"]
    budget_tokens: _Budget | None = None


class ReasoningOptions(StrictModel):
    """OpenAI's ``reasoning``."""

    effort: str | None = None


class ThinkingFields(StrictModel):
    """The fields about reasoning, besides those of whole settings."""

    thinking: Thinking | None = None
    reasoning: ReasoningOptions | None = None
    reasoning_budget_tokens: _Budget | None = None
    thinking_budget_tokens: _Budget | None = None
    thinking_token_budget: _Budget | None = None
    reasoning_budget_message: str | None = None

    @field_validator(*BUDGET_FIELDS, mode="before")
    @classmethod
    def _read_empty_budget(cls, value: object) -> object:
        return None if value == "" else value  # clients send it if their user set none


def read_thinking(fields: ThinkingFields, others: Sequence[Override], unused: list[str]) -> Iterator[Override]:
    """Yield the settings of tables and of the budgets. Names of fields without effect go to ``unused``."""
    # ``others``: the settings of other fields, which take precedence
    value_of_other = {override.target: override.value for override in others}
    thinking = fields.thinking
    switches = []
    if thinking is not None:
        switches.append(Override("thinking", "enable_thinking", thinking.type == "enabled"))
    if fields.reasoning is not None and fields.reasoning.effort:
        switches.append(Override("reasoning.effort", "reasoning_effort", fields.reasoning.effort))
    for switch in switches:
        if value_of_other.get(switch.target) is None:
            yield switch
        elif value_of_other[switch.target] != switch.value:
            unused.append(switch.origin)
    if value_of_other.get("reasoning_effort") == _EFFORT_WITHOUT_THINKING and value_of_other.get(
        "enable_thinking"
    ):
        unused.append("enable_thinking")
    origin, budget = first_given(fields, BUDGET_FIELDS, unused)
    table_budget = None if thinking is None else thinking.budget_tokens
    if budget is None:
        origin, budget = "thinking.budget_tokens", table_budget
    elif table_budget not in (None, budget):
        unused.append("thinking.budget_tokens")
    message = fields.reasoning_budget_message
    has_effect = budget not in (None, _NO_BUDGET) and "phases" not in value_of_other
    if not has_effect:
        unused += [origin] if budget not in (None, _NO_BUDGET) else []
        unused += ["reasoning_budget_message"] if message else []
        return
    reasoning_phase: dict[str, Any] = {"max_tokens": budget, "adds_end": True}
    yield Override(origin, "phases", [reasoning_phase | ({"then": message} if message else {}), {}])


def is_budget(override: Override, place: str) -> bool:
    """Return whether a client's field for a budget gives the phases."""
    return override.target == "phases" and override.origin.removeprefix(place) in _BUDGET_ORIGINS


def fields_of_budget(budget: Override, place: str) -> list[str]:
    """Return the paths of the fields that have given a budget and its message."""
    has_message = "then" in budget.value[0]
    return [budget.origin, f"{place}reasoning_budget_message"] if has_message else [budget.origin]


def template_switches(
    settings: Settings, template: ChatTemplate, names: Collection[str] = SWITCH_NAMES
) -> dict[str, Any]:
    """Return the variables of a chat template that the switches of settings with these names set."""
    switches = {name: settings[name].value for name in SWITCH_NAMES if name in names}
    if switches.get("reasoning_effort") == _EFFORT_WITHOUT_THINKING:
        switches = {"enable_thinking": False}
    variables: dict[str, Any] = {}
    for name, value in switches.items():
        if value is not None:
            variables |= template.switch(name, value)
    return variables


def unread_switches(settings: Settings, template: ChatTemplate | None) -> list[str]:
    """Return what has set the switches that a chat template does not read; None: there is no template."""
    switches = [Override(settings[name].origin, name, settings[name].value) for name in SWITCH_NAMES]
    return unread_origins(switches, template)


def unread_origins(switches: Iterable[Override], template: ChatTemplate | None) -> list[str]:
    """Return the origins of the switches that a chat template does not read."""

    def is_read(switch: Override) -> bool:
        # no thinking is not a level of the effort
        is_off = switch.value == _EFFORT_WITHOUT_THINKING
        name, value = ("enable_thinking", False) if is_off else (switch.target, switch.value)
        return template is not None and bool(template.switch(name, value))

    return [switch.origin for switch in switches if switch.value is not None and not is_read(switch)]
