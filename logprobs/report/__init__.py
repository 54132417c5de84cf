"""The report of runs: one HTML file with the text of each run, and how each of its tokens was chosen.

The folder assets/ has the page's template, style and scripts. They are copied into the report together with the
parts that it shares with other pages, so that the report needs no other file.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from ..web import pack, single_file
from .run_data import RunData


def page(runs: Sequence[RunData]) -> str:
    data = {"index": pack([{"name": run.name, "tokens": run.token_count} for run in runs])}
    for number, run in enumerate(runs):
        data[f"run-{number}"] = run.overview
        data |= {f"run-{number}-block-{block}": text for block, text in enumerate(run.blocks)}
    return single_file(_asset, "report", data)


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
