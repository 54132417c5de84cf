"""The result of a comparison as a table, as JSON, and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, TextIO

from ...common.strict_json import encode_json
from ...common.text import count_noun
from .run import terminal_safe

_WIDTH = 80
_ARM_WIDTH, _PLOT_WIDTH, _DECIMALS = 12, 15, 4
_MAX_CONTEXT = 34
"""Number of characters of the text before a place that are shown."""


def write_result(result: Mapping[str, Any], output_format: str, out: TextIO) -> None:
    """Write a result.

    Args:
        result: the result, as `make_result` returns it.
        output_format: ``table``, ``json`` or ``csv``.
        out: where it is written.
    """
    if output_format == "json":
        out.write(encode_json(result) + "\n")
    elif output_format == "csv":
        from ...compare.result import csv_rows

        csv.writer(out, lineterminator="\n").writerows(csv_rows(result))
    else:
        out.write(terminal_safe("\n".join(_table(result)), out) + "\n")
    out.flush()


def _table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table, each at most 80 columns wide."""
    yield from _heading(result)
    if result["measures"]:
        yield ""
        yield from _measures(result)
        yield ""
        yield from _notes(result)
    else:
        yield "One pair of texts has no interval, so nothing is measured: use --seeds 2 or more."
    if result["distributions"] is not None:
        yield ""
        yield from _distributions(result["distributions"])
        yield from _chance_note(result["arms"])


def _heading(result: Mapping[str, Any]) -> Iterator[str]:
    arms = result["arms"]
    counts = [
        count_noun(len(arms), "arm"),
        count_noun(len(result["prompts"]), "prompt"),
        count_noun(len(result["prompts"][0]["seeds"]), "seed"),
    ]
    yield f"{', '.join(counts)}: {count_noun(len(result['texts']), 'text')}"
    has_models = len({arm["model"] for arm in arms}) > 1
    for number, arm in enumerate(arms, 1):
        model = f" on {arm['model']}" if has_models else ""
        yield from wrap(
            f"{number} {arm['name']}{model}: {arm['summary']}",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )


def _measures(result: Mapping[str, Any]) -> Iterator[str]:
    title = f"{result['level']:.0%} interval".center(_PLOT_WIDTH)
    yield f"{'measure':<14} {'arm':<{_ARM_WIDTH}} {'mean':>8} {title}  difference from 1".rstrip()
    for measure in result["measures"]:
        yield from _measure_lines(measure)


def _measure_lines(measure: Mapping[str, Any]) -> Iterator[str]:
    estimates = [(number, arm) for number, arm in enumerate(measure["arms"], 1) if arm is not None]
    low, high = (end(arm[key] for _, arm in estimates) for end, key in ((min, "low"), (max, "high")))
    differences = {difference["arm"]: difference for difference in measure["differences"]}
    title, decimals = measure["title"], measure["decimals"]
    for number, arm in estimates:
        name = _arm_label(number, arm["arm"])
        plot = _interval_plot(arm, low, high)
        difference = _difference(differences.get(arm["arm"]), decimals)
        yield f"{title:<14} {name:<{_ARM_WIDTH}} {arm['mean']:>8,.{decimals}f} {plot}  {difference}".rstrip()
        title = ""


def _arm_label(number: int, name: str) -> str:
    label = f"{number} {name}"
    return label if len(label) <= _ARM_WIDTH else label[: _ARM_WIDTH - 1] + "…"


def _interval_plot(arm: Mapping[str, Any], low: float, high: float) -> str:
    """Return an interval with its mean, drawn between the lowest and the highest end of all arms."""
    scale = (_PLOT_WIDTH - 1) / (high - low) if high > low else 0.0
    first, mean, last = (round((arm[key] - low) * scale) for key in ("low", "mean", "high"))
    return "".join(
        "●" if column == mean else "━" if first <= column <= last else " " for column in range(_PLOT_WIDTH)
    )


def _difference(difference: Mapping[str, Any] | None, decimals: int) -> str:
    if difference is None:
        return ""
    if not difference["shown"]:
        return "not shown"
    low, high = difference["low"], difference["high"]
    return f"{difference['mean']:+.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the intervals mean, and what more pairs would show."""
    adjusted = result["adjustment"]
    text = f"Intervals hold for {result['holds_for']}."
    if adjusted is not None:
        text += f" Those of differences are {result['difference_level']:.2%} ({adjusted})."
    yield from wrap(text, _WIDTH)
    hidden = [
        (measure, difference)
        for measure in result["measures"]
        for difference in measure["differences"]
        if not difference["shown"]
    ]
    if hidden:
        yield ""
        yield "No difference is shown for these measures. A true difference is found, in 4 of 5"
        yield "comparisons, by this number of pairs:"
        numbers = {arm["name"]: number for number, arm in enumerate(result["arms"], 1)}
        for measure, difference in hidden:
            yield _more_pairs(measure, difference, numbers[difference["arm"]])


def _more_pairs(measure: Mapping[str, Any], difference: Mapping[str, Any], number: int) -> str:
    decimals = measure["decimals"]
    text = f"  {measure['title']:<14} 1 and {number:<2}  "
    text += f"{difference['detectable']:.{decimals}f} by {count_noun(difference['count'], 'pair')}"
    needed = difference["needed_pairs"]
    if needed is not None and abs(difference["mean"]) >= 10**-decimals / 2:
        text += f", {abs(difference['mean']):.{decimals}f} by {count_noun(needed, 'pair')}"
    return text


def _distributions(fields: Mapping[str, Any]) -> Iterator[str]:
    arms = fields["arms"]
    yield from wrap(
        f"Distributions along {fields['along']}, {count_noun(arms[0]['tokens'], 'token')}; distances from 1",
        _WIDTH,
    )
    columns = ("kept", "dropped", "TV", "JS", "KL", "KL back", "same top")
    yield f"{'arm':<{_ARM_WIDTH}}" + "".join(f"{column:>9}" for column in columns)
    for number, arm in enumerate(arms, 1):
        name = _arm_label(number, arm["arm"])
        if arm["kept"] is None:
            continue
        cells = [f"{arm['kept']:,.1f}", f"{arm['dropped_mass']:.{_DECIMALS}f}"]
        if "total_variation" in arm:
            cells += [_divergence(arm[key]) for key in ("total_variation", "jensen_shannon", "kl", "reverse_kl")]
            cells.append(f"{arm['same_top']:.1%}")
        yield f"{name:<{_ARM_WIDTH}}" + "".join(f"{cell:>9}" for cell in cells)
    if any(arm.get(key, {}).get("infinite") for arm in arms for key in ("kl", "reverse_kl")):
        yield "inf: one arm drops a token of the other. In JSON, the mean of KL leaves such"
        yield "places out."
    for arm in arms[1:]:
        yield from _model_lines(arm)
    for number, arm in enumerate(arms[1:], 2):
        yield from _worst_lines(number, arm)


def _chance_note(arms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [arm["name"] for arm in arms if arm["has_chance_steps"]]
    if names:
        reason = "a step depends on random numbers, so the distances are those of the first seed only"
        yield from wrap(f"{', '.join(names)}: {reason}.", _WIDTH)


def _divergence(summary: Mapping[str, Any]) -> str:
    return "inf" if summary["infinite"] else f"{summary['mean']:.{_DECIMALS}f}"


def _model_lines(arm: Mapping[str, Any]) -> Iterator[str]:
    """Yield the distance of two models without chains."""
    models = arm.get("models")
    if models is None:
        return
    kl = models["kl"]
    yield f"The model of {arm['arm']}, without a chain: KL {kl['mean']:.6f} ± {kl['standard_error']:.6f}"
    yield f"  median {kl['median']:.6f}, 99 % {kl['p99']:.6f}, maximum {kl['max']:.6f}"
    yield f"  same top token {models['same_top']:.3%} ± {models['same_top_error']:.3%}"
    yield f"  perplexity {models['perplexity']:.4f}, now {models['other_perplexity']:.4f}"


def _worst_lines(number: int, arm: Mapping[str, Any]) -> Iterator[str]:
    if arm.get("worst"):
        yield f"Largest TV between 1 and {number}: text, then probabilities in 1 and {number}"
    for place in arm.get("worst", ()):
        before = place["before"].replace("\n", "↵")[-_MAX_CONTEXT:]
        tokens = ", ".join(
            f"{token['token']!r} {token['first']:.2f} {token['other']:.2f}" for token in place["tokens"][:2]
        )
        yield f"  {place['total_variation']:.2f} …{before}│ {tokens}"[:_WIDTH]
