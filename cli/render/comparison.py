"""The result of a comparison as a table, as JSON, and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from ...common.strict_json import json_line
from ...common.text import count_noun
from ..text import output_width, terminal_safe, wrap_words
from .table import Column, Table

_MAX_WIDTH = 80
# widths of the columns of tables
_MEASURE_WIDTH = 14
_ARM_WIDTH = 12
_MEAN_WIDTH = 8
_PLOT_WIDTH = 15
_DISTANCE_WIDTH = 9
_NUMBERS_WIDTH = len("1 and 64") + 1
_DECIMALS = 4  # of distances
_MIN_PLOT_TERMINAL = 72  # width of a terminal below which intervals are not drawn
_MAX_CONTEXT = 34  # number of characters of the text before a place that are shown
_SHOWN_TOKENS = 2  # number of likely tokens that are shown for a place


def write_result(result: Mapping[str, Any], output_format: str, out: TextIO) -> None:
    """Write a result of `make_result` as ``table``, ``json`` or ``csv``."""
    if output_format == "json":
        out.write(json_line(result))
    elif output_format == "csv":
        from ...compare.result import csv_rows

        csv.writer(out, lineterminator="\n").writerows(csv_rows(result))
    else:
        out.write(terminal_safe("\n".join(_page(result)), out) + "\n")
    out.flush()


def _page(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the tables and notes, each at most 80 columns wide."""
    table_width = output_width()
    text_width = _MAX_WIDTH if table_width is None else min(table_width, _MAX_WIDTH)
    yield from _heading(result, text_width)
    if result["measures"]:
        yield ""
        yield from _measures(result, has_plot=text_width >= _MIN_PLOT_TERMINAL).render(table_width)
        yield ""
        yield from _notes(result, text_width)
    else:
        text = "One pair of texts has no interval, so nothing is measured: use --seeds 2 or more."
        yield from wrap_words(text, text_width)
    if result["distributions"] is not None:
        yield ""
        yield from _distributions(result["distributions"], table_width, text_width)
        yield from _chance_note(result["arms"], text_width)


def _heading(result: Mapping[str, Any], width: int) -> Iterator[str]:
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
        yield from wrap_words(f"  {number} {arm['name']}{model}: {arm['summary']}", width, indent=4)


def _measures(result: Mapping[str, Any], *, has_plot: bool) -> Table:
    columns = [
        Column("measure", width=_MEASURE_WIDTH),
        Column("arm", width=_ARM_WIDTH),
        Column("mean", align="right", width=_MEAN_WIDTH),
    ]
    if has_plot:
        plot_title = f"{result['level']:.0%} interval".center(_PLOT_WIDTH)
        columns.append(Column(plot_title, width=_PLOT_WIDTH + 1))
    columns.append(Column("difference from 1", is_text=True))
    rows: list[list[str]] = []
    for measure in result["measures"]:
        rows += _measure_rows(measure, has_plot)
    return Table(columns, rows, gap=1, has_rule=False)


def _measure_rows(measure: Mapping[str, Any], has_plot: bool) -> Iterator[list[str]]:
    numbered_arms = [(number, arm) for number, arm in enumerate(measure["arms"], 1) if arm is not None]
    low = min(arm["low"] for _, arm in numbered_arms)
    high = max(arm["high"] for _, arm in numbered_arms)
    difference_of_arm = {difference["arm"]: difference for difference in measure["differences"]}
    decimals = measure["decimals"]
    title = measure["title"]
    for number, arm in numbered_arms:
        row = [title, _arm_label(number, arm["arm"]), f"{arm['mean']:,.{decimals}f}"]
        if has_plot:
            row.append(_interval_plot(arm, low, high))
        row.append(_difference_text(difference_of_arm.get(arm["arm"]), decimals))
        yield row
        title = ""  # only the first row of a measure has its title


def _arm_label(number: int, name: str) -> str:
    label = f"{number} {name}"
    return label if len(label) <= _ARM_WIDTH else label[: _ARM_WIDTH - 1] + "…"


def _interval_plot(arm: Mapping[str, Any], low: float, high: float) -> str:
    """Return an interval with its mean, drawn between the lowest and the highest end of all arms."""
    scale = (_PLOT_WIDTH - 1) / (high - low) if high > low else 0.0
    first_column, mean_column, last_column = (round((arm[key] - low) * scale) for key in ("low", "mean", "high"))
    plot = ""
    for column in range(_PLOT_WIDTH):
        if column == mean_column:
            plot += "●"
        elif first_column <= column <= last_column:
            plot += "━"
        else:
            plot += " "
    return plot


def _difference_text(difference: Mapping[str, Any] | None, decimals: int) -> str:
    if difference is None:
        return ""
    if not difference["shown"]:
        return "not shown"
    low, high = difference["low"], difference["high"]
    return f"{difference['mean']:+.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"


def _notes(result: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield what the intervals mean, and how many pairs of texts would show a difference."""
    adjustment = result["adjustment"]
    text = f"Intervals hold for {result['holds_for']}."
    if adjustment is not None:
        text += f" Those of differences are {result['difference_level']:.2%} ({adjustment})."
    yield from wrap_words(text, width)
    number_of_arm = {arm["name"]: number for number, arm in enumerate(result["arms"], 1)}
    rows = []
    for measure in result["measures"]:
        for difference in measure["differences"]:
            if not difference["shown"]:
                arms = f"1 and {number_of_arm[difference['arm']]}"
                rows.append((measure["title"], arms, _detectable_differences(measure, difference)))
    if rows:
        yield ""
        text = "No difference is shown for these measures. A true difference is found, in 4 of 5 comparisons, "
        yield from wrap_words(f"{text}by this number of pairs:", width)
        columns = [Column(width=_MEASURE_WIDTH), Column(width=_NUMBERS_WIDTH), Column(is_text=True)]
        yield from Table(columns, rows, gap=1, indent=2).render(width)


def _detectable_differences(measure: Mapping[str, Any], difference: Mapping[str, Any]) -> str:
    """Return the difference that this number of pairs finds, and the number that would find the measured one."""
    decimals = measure["decimals"]
    text = f"{difference['detectable']:.{decimals}f} by {count_noun(difference['count'], 'pair')}"
    needed_pairs = difference["needed_pairs"]
    size = abs(difference["mean"])
    is_rounded_to_zero = size < 10**-decimals / 2
    if needed_pairs is not None and not is_rounded_to_zero:
        text += f", {size:.{decimals}f} by {count_noun(needed_pairs, 'pair')}"
    return text


def _distributions(fields: Mapping[str, Any], table_width: int | None, width: int) -> Iterator[str]:
    arms = fields["arms"]
    tokens = count_noun(arms[0]["tokens"], "token")
    yield from wrap_words(f"Distributions along {fields['along']}, {tokens}; distances from 1", width)
    rows = []
    for number, arm in enumerate(arms, 1):
        if arm["kept"] is None:
            continue
        cells = [f"{arm['kept']:,.1f}", f"{arm['dropped_mass']:.{_DECIMALS}f}"]
        if "total_variation" in arm:
            cells += [_divergence(arm[key]) for key in ("total_variation", "jensen_shannon", "kl", "reverse_kl")]
            cells.append(f"{arm['same_top']:.1%}")
        cells += [""] * (len(_DISTANCES) - len(cells))
        rows.append((_arm_label(number, arm["arm"]), *cells))
    columns = [
        Column("arm", width=_ARM_WIDTH),
        *(Column(title, align="right", width=_DISTANCE_WIDTH) for title in _DISTANCES),
    ]
    yield from Table(columns, rows, gap=0, has_rule=False).render(table_width)
    has_infinite_divergence = any(arm.get(key, {}).get("infinite") for arm in arms for key in ("kl", "reverse_kl"))
    if has_infinite_divergence:
        text = "inf: one arm drops a token of the other. In JSON, the mean of KL leaves such places out."
        yield from wrap_words(text, width)
    for arm in arms[1:]:
        for line in _model_lines(arm):
            yield from wrap_words(line, table_width or len(line), indent=4)
    for number, arm in enumerate(arms[1:], 2):
        yield from _worst_lines(number, arm, width)


_DISTANCES = ("kept", "dropped", "TV", "JS", "KL", "KL back", "same top")


def _chance_note(arms: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    names = [arm["name"] for arm in arms if arm["has_chance_steps"]]
    if names:
        reason = "a step depends on random numbers, so the distances are those of the first seed only"
        yield from wrap_words(f"{', '.join(names)}: {reason}.", width)


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


def _worst_lines(number: int, arm: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the places where the distributions of an arm and of the first one are farthest apart."""
    worst_places = arm.get("worst", ())
    if worst_places:
        title = f"Largest TV between 1 and {number}: text, then probabilities in 1 and {number}"
        yield from wrap_words(title, width)
    for place in worst_places:
        context = place["before"].replace("\n", "↵")[-_MAX_CONTEXT:]
        tokens = ", ".join(
            f"{token['token']!r} {token['first']:.2f} {token['other']:.2f}"
            for token in place["tokens"][:_SHOWN_TOKENS]
        )
        line = f"  {place['total_variation']:.2f} …{context}│ {tokens}"
        yield from wrap_words(line[:_MAX_WIDTH], width, indent=7)
