"""The output of `gen detect`: scores of texts as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...common.strict_json import encode_json

if TYPE_CHECKING:
    from ...jobs.detection import WatermarkDetector, WatermarkScore


def print_scores(
    scores: Sequence[tuple[str, WatermarkScore]], detector: WatermarkDetector, format_name: str
) -> None:
    """Print the name and the score of each text as ``table``, ``json`` or ``jsonl``."""
    if format_name == "table":
        _print_table(scores)
    elif format_name == "jsonl":
        for name, score in scores:
            print(encode_json(_as_table(name, score)))
    else:
        watermark = detector.watermark
        settings = {"ngram_len": watermark.ngram_len, "depth": len(watermark.keys)}
        print(encode_json({**settings, "texts": [_as_table(name, score) for name, score in scores]}))


def _as_table(name: str, score: WatermarkScore) -> dict[str, Any]:
    """Return the JSON object of a score, without the keys, which are secret."""
    values = asdict(score)
    return {
        "text": name,
        "tokens": values.pop("token_count"),
        "counted_tokens": values.pop("counted_count"),
        **values,
    }


def _print_table(scores: Sequence[tuple[str, WatermarkScore]]) -> None:
    from .table import print_table

    rows = [
        (
            name,
            f"{score.token_count:,}",
            f"{score.counted_count:,}",
            _number(score.mean, ".4f"),
            _number(score.weighted_mean, ".4f"),
            f"{score.expected_mean:.4f}",
            _number(score.z, ".2f"),
            "-" if score.p_value is None else _p_value(score.p_value),
        )
        for name, score in scores
    ]
    print_table(["text", "tokens", "counted", "mean g", "weighted", "expected", "z", "p value"], rows)


def _number(value: float | None, digits: str) -> str:
    return "-" if value is None else format(value, digits)


def _p_value(p_value: float) -> str:
    return f"{p_value:.3g}" if p_value > 0 else "< 1e-300"
