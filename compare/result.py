"""The result of a comparison as JSON: every measure of every arm, the differences, and the texts; as CSV and HTML.

The folder page/ has the template, style and scripts of the HTML report. Parts that other pages have, too, are in
`logprobs.web`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, NamedTuple

from ..logprobs.records import finite_or_none
from ..logprobs.web import pack, single_file
from ..samplers.building import chain_notation
from ..samplers.chain import StepSpec
from .arms import Arm
from .distribution_measures import CHANCE_STEPS, PathValues, summarize
from .intervals import LEVEL, MIN_SAMPLED_PROMPTS, Bootstrap, Estimate, Interval, Values, adjusted_level
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
    level, bootstrap = adjusted_level(comparison_count), Bootstrap()
    values = {measure: [table.values(plan, arm, measure) for arm in plan.arms] for measure in MEASURES}
    measures = [_measure(measure, plan, values[measure], bootstrap, level) for measure in MEASURES]
    fields = {
        "arms": [_arm_fields(plan, arm, each, table) for arm, each in zip(plan.arms, facts, strict=True)],
        "prompts": [
            {"id": prompt.id, "text": _shown_prompt(prompt), "seeds": plan.seeds(prompt)}
            for prompt in plan.prompts
        ],
        "pairs": len(plan.prompts) * plan.seed_count,
        "level": LEVEL,
        "difference_level": level,
        "adjustment": None
        if comparison_count == 1
        else f"Bonferroni, {comparison_count} differences of each measure",
        "holds_for": _holds_for(plan),
        "measures": [fields for fields in measures if any(fields["arms"])],
        "distributions": distributions,
        "texts": _text_fields(plan, table, values),
        "failures": [{"id": name, "message": message} for name, message in table.failures.items()],
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
    config = [{step.name: step.sampler.model_dump(mode="json")} for step in facts.steps if not step.is_off]
    texts = [text for prompt in plan.prompts for text in table.texts(plan, arm, prompt) if text is not None]
    return {
        "name": arm.name,
        "model": facts.model,
        "chain": config,
        "notation": chain_notation(config),
        "summary": _summary(facts.steps),
        "has_chance_steps": any(step.name in CHANCE_STEPS for step in facts.steps if not step.is_off),
        "finish_reasons": dict(Counter(text.finish_reason for text in texts).most_common()),
    }


def _summary(steps: Sequence[StepSpec]) -> str:
    """Return the steps that are not off, each with its main parameter: ``top_k=40 > temperature=0.8 > dist``."""
    parts = []
    for step in steps:
        main = step.sampler.about.main_parameter
        if not step.is_off:
            parts.append(step.name if main is None else f"{step.name}={getattr(step.sampler, main)}")
    return " > ".join(parts)


def _shown_prompt(prompt: Any) -> str:
    if prompt.asked.messages is None:
        return str(prompt.asked.prompts[0])
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt.asked.messages)


def _holds_for(plan: Plan) -> str:
    count = len(plan.prompts)
    if count >= MIN_SAMPLED_PROMPTS:
        return f"prompts like these {count:,}"
    these = "this prompt" if count == 1 else f"these {count} prompts"
    return f"{these} only; {MIN_SAMPLED_PROMPTS} prompts or more allow conclusions about others like them"


def _measure(measure: Measure, plan: Plan, values: Sequence[Values], bootstrap: Bootstrap, level: float) -> Json:
    """Return the fields of a measure; ``values``: those of each arm."""
    arms: list[Json | None] = []
    differences: list[Json] = []
    for arm, arm_values in zip(plan.arms, values, strict=True):
        estimate = bootstrap.estimate(arm_values, is_share=measure.is_share)
        if estimate is not None:
            arms.append({"arm": arm.name, **_within(estimate, 0, measure.maximum).as_json()})
        else:
            arms.append(None)
        if arm is not plan.arms[0]:
            difference = bootstrap.estimate(arm_values - values[0], level=level, is_share=measure.is_share)
            if difference is not None:
                difference = _within(difference, -measure.maximum, measure.maximum)
                differences.append({"arm": arm.name, **difference_fields(difference)})
    return {
        "name": measure.name,
        "title": measure.title,
        "meaning": measure.meaning,
        "decimals": measure.decimals,
        "arms": arms,
        "differences": differences,
    }


def _within(estimate: Estimate, low: float, high: float) -> Estimate:
    """Return the estimate, with its interval limited to possible values."""
    interval = Interval(max(estimate.interval.low, low), min(estimate.interval.high, high))
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
    return [
        {
            "prompt": prompt.id,
            "arm": arm.name,
            "seed": seed,
            "text": text.text,
            "finish_reason": text.finish_reason,
            "tokens": len(text.tokens),
            "measures": {
                measure.name: float(rows[arm_index][prompt_index, seed_index]) for measure, rows in values.items()
            },
        }
        for prompt_index, prompt in enumerate(plan.prompts)
        for arm_index, arm in enumerate(plan.arms)
        for seed_index, (seed, text) in enumerate(
            zip(plan.seeds(prompt), table.texts(plan, arm, prompt), strict=True)
        )
        if text is not None
    ]


def csv_rows(result: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of the ``csv`` format: one for each measure and arm, after the names of the columns."""
    rows: list[list[Any]] = [
        [
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
        ]
    ]
    for measure in result["measures"]:
        differences = {difference["arm"]: difference for difference in measure["differences"]}
        for arm in filter(None, measure["arms"]):
            difference = differences.get(arm["arm"])
            compared = [None] * 4
            if difference is not None:
                compared = [difference[key] for key in ("mean", "low", "high", "shown")]
            rows.append(
                [measure["name"], *(arm[key] for key in ("arm", "mean", "low", "high", "count")), *compared]
            )
    for arm in (result["distributions"] or {"arms": []})["arms"]:
        for name in ("dropped_mass", "total_variation", "jensen_shannon", "kl", "reverse_kl", "same_top"):
            value = arm.get(name)
            mean = value["mean"] if isinstance(value, Mapping) else value
            if mean is not None:
                rows.append([name, arm["arm"], mean, *[None] * 7])
    return rows


def comparison_page(result: Mapping[str, Any]) -> str:
    """Return the HTML of a report. Votes of a reader are added by the page, which can save itself."""
    texts = [{name: value for name, value in text.items() if name != "measures"} for text in result["texts"]]
    return single_file(_page_file, "compare", {"result": pack({**result, "texts": texts}), "votes": pack([])})


def _page_file(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
