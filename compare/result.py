"""The result of a comparison as JSON, CSV and HTML: every measure of every arm, the differences, and the texts.

The folder page/ has the template, style and scripts of the HTML report. `logprobs.web` has the parts that other
pages share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

from ..common.intervals import LEVEL, MIN_SAMPLED_PROMPTS, Bootstrap, Estimate, Interval, Values, adjusted_level
from ..logprobs.records import finite_or_none
from ..logprobs.web import pack, single_file
from ..requests.lines import RequestLine
from ..samplers.building import chain_notation
from ..samplers.chain import StepSpec
from .arms import Arm
from .distribution_measures import CHANCE_STEPS, PathValues, summarize
from .plan import Plan, TextTable
from .text_measures import MEASURES, Measure

Json = dict[str, Any]


class ArmFacts(NamedTuple):
    """The facts about an arm that its name does not tell."""

    model: str
    steps: Sequence[StepSpec]


def make_result(
    plan: Plan, facts: Sequence[ArmFacts], table: TextTable, distributions: Mapping[str, Any] | None
) -> Json:
    # Its fields are ``arms, prompts, pairs, level, difference_level, adjustment, holds_for, measures,
    # distributions, texts, failures``.
    comparison_count = len(plan.arms) - 1
    difference_level = adjusted_level(comparison_count)
    bootstrap = Bootstrap()
    values = {measure: [table.values(plan, arm, measure) for arm in plan.arms] for measure in MEASURES}
    measures = [
        _measure_fields(measure, plan, values[measure], bootstrap, difference_level) for measure in MEASURES
    ]
    adjustment = None
    if comparison_count > 1:
        adjustment = f"Bonferroni, {comparison_count} differences of each measure"
    fields = {
        "arms": [_arm_fields(plan, arm, each, table) for arm, each in zip(plan.arms, facts, strict=True)],
        "prompts": [
            {"id": prompt.id, "text": _shown_prompt(prompt), "seeds": plan.seeds(prompt)}
            for prompt in plan.prompts
        ],
        "pairs": len(plan.prompts) * plan.seed_count,
        "level": LEVEL,
        "difference_level": difference_level,
        "adjustment": adjustment,
        "holds_for": _holds_for(plan),
        "measures": [measure for measure in measures if any(measure["arms"])],
        "distributions": distributions,
        "texts": _text_fields(plan, table, values),
        "failures": [{"id": text_id, "message": message} for text_id, message in table.failures.items()],
    }
    return {name: _finite(value) for name, value in fields.items()}


def _finite(value: Any) -> Any:
    """Return a JSON value in which null replaces numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return finite_or_none(value) if isinstance(value, float) else value


def _arm_fields(plan: Plan, arm: Arm, facts: ArmFacts, table: TextTable) -> Json:
    active_steps = [step for step in facts.steps if not step.is_off]
    config = [{step.name: step.sampler.model_dump(mode="json")} for step in active_steps]
    finish_reasons: Counter[str] = Counter()
    for prompt in plan.prompts:
        texts = table.texts(plan, arm, prompt)
        finish_reasons.update(text.finish_reason for text in texts if text is not None)
    return {
        "name": arm.name,
        "model": facts.model,
        "chain": config,
        "notation": chain_notation(config),
        "summary": _summary(active_steps),
        "has_chance_steps": any(step.name in CHANCE_STEPS for step in active_steps),
        "finish_reasons": dict(finish_reasons.most_common()),
    }


def _summary(steps: Sequence[StepSpec]) -> str:
    """Return the steps, each with its main parameter: ``top_k=40 > temperature=0.8 > dist``."""
    parts = []
    for step in steps:
        parameter = step.sampler.about.main_parameter
        parts.append(step.name if parameter is None else f"{step.name}={getattr(step.sampler, parameter)}")
    return " > ".join(parts)


def _shown_prompt(prompt: RequestLine) -> str:
    if prompt.asked.messages is None:
        return str(prompt.asked.prompts[0])
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt.asked.messages)


def _holds_for(plan: Plan) -> str:
    """Return the prompts for which the intervals hold, in words."""
    count = len(plan.prompts)
    if count >= MIN_SAMPLED_PROMPTS:
        return f"prompts like these {count:,}"
    prompts = "this prompt" if count == 1 else f"these {count} prompts"
    return f"{prompts} only; {MIN_SAMPLED_PROMPTS} prompts or more allow conclusions about others like them"


def _measure_fields(
    measure: Measure, plan: Plan, values: Sequence[Values], bootstrap: Bootstrap, difference_level: float
) -> Json:
    """Return the fields of a measure; ``values``: the values of each arm."""
    arms: list[Json | None] = []
    for arm, arm_values in zip(plan.arms, values, strict=True):
        estimate = bootstrap.estimate(arm_values, is_share=measure.is_share)
        if estimate is None:
            arms.append(None)
        else:
            estimate = _limit_interval(estimate, 0, measure.maximum)
            arms.append({"arm": arm.name, **estimate.as_json()})
    differences: list[Json] = []
    first_values = values[0]
    for arm, arm_values in zip(plan.arms[1:], values[1:], strict=True):
        difference = bootstrap.estimate(
            arm_values - first_values, level=difference_level, is_share=measure.is_share
        )
        if difference is not None:
            difference = _limit_interval(difference, -measure.maximum, measure.maximum)
            differences.append({"arm": arm.name, **difference_fields(difference)})
    return {
        "name": measure.name,
        "title": measure.title,
        "meaning": measure.meaning,
        "decimals": measure.decimals,
        "arms": arms,
        "differences": differences,
    }


def _limit_interval(estimate: Estimate, minimum: float, maximum: float) -> Estimate:
    """Return the estimate, with its interval limited to possible values."""
    interval = Interval(max(estimate.interval.low, minimum), min(estimate.interval.high, maximum))
    return replace(estimate, interval=interval)


def difference_fields(difference: Estimate) -> Json:
    """Return the JSON fields of a difference: those of an estimate and ``shown, detectable, needed_pairs``."""
    # ``detectable`` is the true difference that this number of pairs shows in four of five comparisons.
    # ``needed_pairs`` is the number of pairs that show a true difference of the measured size; null for more than
    # a million.
    return {
        **difference.as_json(),
        "shown": difference.is_shown,
        "detectable": difference.detectable,
        "needed_pairs": difference.needed_pairs(difference.mean),
    }


def distribution_fields(names: Sequence[str], along: str, values: Sequence[PathValues]) -> Json:
    """Return the JSON fields of the distances between distributions, ``along`` texts in words."""
    arms = [{"arm": name, **summarize(arm_values)} for name, arm_values in zip(names, values, strict=True)]
    return {"along": along, "first": names[0], "arms": arms}


def _text_fields(plan: Plan, table: TextTable, values: Mapping[Measure, Sequence[Values]]) -> list[Json]:
    """Return the fields of each text, with its value of each measure."""
    fields = []
    for prompt_index, prompt in enumerate(plan.prompts):
        seeds = plan.seeds(prompt)
        for arm_index, arm in enumerate(plan.arms):
            for seed_index, text in enumerate(table.texts(plan, arm, prompt)):
                if text is None:
                    continue
                measures = {
                    measure.name: float(values_of_arms[arm_index][prompt_index, seed_index])
                    for measure, values_of_arms in values.items()
                }
                fields.append(
                    {
                        "prompt": prompt.id,
                        "arm": arm.name,
                        "seed": seeds[seed_index],
                        "text": text.text,
                        "finish_reason": text.finish_reason,
                        "tokens": len(text.tokens),
                        "measures": measures,
                    }
                )
    return fields


_CSV_COLUMNS = (
    "measure",
    "arm",
    "mean",
    "low",
    "high",
    "texts",
    "difference",
    "difference_low",
    "difference_high",
    "shown",
)
_CSV_DISTANCES = ("dropped_mass", "total_variation", "jensen_shannon", "kl", "reverse_kl", "same_top")


def csv_rows(result: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of the ``csv`` format: one for each measure and arm, after the names of the columns."""
    rows: list[dict[str, Any]] = []
    for measure in result["measures"]:
        difference_of_arm = {difference["arm"]: difference for difference in measure["differences"]}
        for arm in measure["arms"]:
            if arm is None:
                continue
            row = {
                "measure": measure["name"],
                "arm": arm["arm"],
                "mean": arm["mean"],
                "low": arm["low"],
                "high": arm["high"],
                "texts": arm["count"],
            }
            difference = difference_of_arm.get(arm["arm"])
            if difference is not None:
                row |= {
                    "difference": difference["mean"],
                    "difference_low": difference["low"],
                    "difference_high": difference["high"],
                    "shown": difference["shown"],
                }
            rows.append(row)
    distributions = result["distributions"]
    if distributions is not None:
        for arm in distributions["arms"]:
            for name in _CSV_DISTANCES:
                value = arm.get(name)
                mean = value["mean"] if isinstance(value, Mapping) else value
                if mean is not None:
                    rows.append({"measure": name, "arm": arm["arm"], "mean": mean})
    return [list(_CSV_COLUMNS), *([row.get(column) for column in _CSV_COLUMNS] for row in rows)]


def comparison_page(result: Mapping[str, Any]) -> str:
    """Return the HTML of a report. It begins without votes; a reader adds votes in the page and saves the page."""
    texts = [{name: value for name, value in text.items() if name != "measures"} for text in result["texts"]]
    return single_file(_page_file, "compare", {"result": pack({**result, "texts": texts}), "votes": pack([])})


def _page_file(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
