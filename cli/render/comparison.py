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
_MEASURE_WIDTH, _ARM_WIDTH, _MEAN_WIDTH, _PLOT_WIDTH, _DISTANCE_WIDTH = 14, 12, 8, 15, 9
_NUMBERS_WIDTH = len("1 and 64") + 1
_DECIMALS = 4
_MIN_PLOT_TERMINAL = 72  # width of a terminal below which intervals are not drawn
_MAX_CONTEXT = 34  # number of characters of the text before a place that are shown


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
    width = output_width()
    table_width, text_columns = (None, _MAX_WIDTH) if width is None else (width, min(width, _MAX_WIDTH))
    yield from _heading(result, text_columns)
    if result["measures"]:
        yield ""
        yield from _measures(result, has_plot=text_columns >= _MIN_PLOT_TERMINAL).render(table_width)
        yield ""
        yield from _notes(result, text_columns)
    else:
        text = "One pair of texts has no interval, so nothing is measured: use --seeds 2 or more."
        yield from wrap_words(text, text_columns)
    if result["distributions"] is not None:
        yield ""
        yield from _distributions(result["distributions"], table_width, text_columns)
        yield from _chance_note(result["arms"], text_columns)


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
    interval = f"{result['level']:.0%} interval".center(_PLOT_WIDTH)
    columns = [
        Column("measure", width=_MEASURE_WIDTH),
        Column("arm", width=_ARM_WIDTH),
        Column("mean", align="right", width=_MEAN_WIDTH),
        *([Column(interval, width=_PLOT_WIDTH + 1)] if has_plot else []),
        Column("difference from 1", is_text=True),
    ]
    rows = [row for measure in result["measures"] for row in _measure_rows(measure, has_plot)]
    return Table(columns, rows, gap=1, has_rule=False)


def _measure_rows(measure: Mapping[str, Any], has_plot: bool) -> Iterator[tuple[str, ...]]:
    estimates = [(number, arm) for number, arm in enumerate(measure["arms"], 1) if arm is not None]
    low, high = (end(arm[key] for _, arm in estimates) for end, key in ((min, "low"), (max, "high")))
    differences = {difference["arm"]: difference for difference in measure["differences"]}
    title, decimals = measure["title"], measure["decimals"]
    for number, arm in estimates:
        difference = _difference(differences.get(arm["arm"]), decimals)
        mean = f"{arm['mean']:,.{decimals}f}"
        plot = [_interval_plot(arm, low, high)] if has_plot else []
        yield title, _arm_label(number, arm["arm"]), mean, *plot, difference
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


def _notes(result: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield what the intervals mean, and what more pairs would show."""
    adjusted = result["adjustment"]
    text = f"Intervals hold for {result['holds_for']}."
    if adjusted is not None:
        text += f" Those of differences are {result['difference_level']:.2%} ({adjusted})."
    yield from wrap_words(text, width)
    hidden = [
        (measure, difference)
        for measure in result["measures"]
        for difference in measure["differences"]
        if not difference["shown"]
    ]
    if hidden:
        yield ""
        text = "No difference is shown for these measures. A true difference is found, in 4 of 5 comparisons, "
        yield from wrap_words(f"{text}by this number of pairs:", width)
        numbers = {arm["name"]: number for number, arm in enumerate(result["arms"], 1)}
        rows = [
            (measure["title"], f"1 and {numbers[difference['arm']]}", _more_pairs(measure, difference))
            for measure, difference in hidden
        ]
        columns = [Column(width=_MEASURE_WIDTH), Column(width=_NUMBERS_WIDTH), Column(is_text=True)]
        yield from Table(columns, rows, gap=1, indent=2).render(width)


def _more_pairs(measure: Mapping[str, Any], difference: Mapping[str, Any]) -> str:
    decimals = measure["decimals"]
    text = f"{difference['detectable']:.{decimals}f} by {count_noun(difference['count'], 'pair')}"
    needed = difference["needed_pairs"]
    if needed is not None and abs(difference["mean"]) >= 10**-decimals / 2:
        text += f", {abs(difference['mean']):.{decimals}f} by {count_noun(needed, 'pair')}"
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
    if any(arm.get(key, {}).get("infinite") for arm in arms for key in ("kl", "reverse_kl")):
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
    if arm.get("worst"):
        title = f"Largest TV between 1 and {number}: text, then probabilities in 1 and {number}"
        yield from wrap_words(title, width)
    for place in arm.get("worst", ()):
        before = place["before"].replace("\n", "↵")[-_MAX_CONTEXT:]
        tokens = ", ".join(
            f"{token['token']!r} {token['first']:.2f} {token['other']:.2f}" for token in place["tokens"][:2]
        )
        line = f"  {place['total_variation']:.2f} …{before}│ {tokens}"
        yield from wrap_words(line[:_MAX_WIDTH], width, indent=7)
