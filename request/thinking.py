"""The switches and budgets of a model's reasoning, under the names of all clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from ..presets.overrides import Override
from ..presets.setting_table import SWITCH_NAMES
from .sampler_fields import first_given
from .strict_model import StrictModel

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


def switch_fields(overrides: Iterable[Override]) -> dict[str, str]:
    """Return the origins of switches, each with the switch that a chat template must have for it."""
    return {
        override.origin.replace(" ", "."): _switch_of(override)
        for override in overrides
        if override.target in SWITCH_NAMES and override.value is not None
    }


def _switch_of(override: Override) -> str:
    return "enable_thinking" if override.value == _EFFORT_WITHOUT_THINKING else override.target


def thinking_switches(settings: Settings) -> dict[str, Any]:
    """Return the switches that settings have, by their names: none of them, or some."""
    effort = settings["reasoning_effort"].value
    switches = {"enable_thinking": settings["enable_thinking"].value, "reasoning_effort": effort}
    if effort == _EFFORT_WITHOUT_THINKING:
        switches = {"enable_thinking": False}
    return {name: value for name, value in switches.items() if value is not None}


def template_switches(settings: Settings, template: ChatTemplate) -> dict[str, Any]:
    """Return the variables of a chat template that the switches of settings set."""
    variables = {template.switch_variable(name): value for name, value in thinking_switches(settings).items()}
    return {name: value for name, value in variables.items() if name is not None}


def unread_switches(settings: Settings, template: ChatTemplate | None) -> list[str]:
    """Return what has set the switches that a chat template does not read; None: there is no template."""
    overrides = [Override(settings[name].origin, name, settings[name].value) for name in SWITCH_NAMES]
    unread = (each for each in overrides if template is None or not template.reads(_switch_of(each)))
    return [override.origin for override in unread if override.value is not None]
