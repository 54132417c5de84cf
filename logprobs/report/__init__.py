"""The report of runs: one HTML file with the text of each run, and how each of its tokens was chosen.

The folder assets/ has the page's template, style and scripts. They are copied into the report together with the
parts that it shares with other pages, so that the report needs no other file.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from string import Template

from ..web import join_modules, read_shared
from .run_data import RunData, pack


def page(runs: Sequence[RunData]) -> str:
    """Return the HTML of a report of runs.

    All data of the runs is compressed and base64-encoded, so that no part of it can be markup. The content
    security policy of the page allows the script and the style by their hashes, and no requests.
    """
    script = join_modules("main.js", _asset)
    style = read_shared("base.css") + _asset("report.css")
    index = [{"name": run.name, "tokens": run.token_count} for run in runs]
    data = [_data_element("index", pack(index))]
    for number, run in enumerate(runs):
        data.append(_data_element(f"run-{number}", run.overview))
        data += [_data_element(f"run-{number}-block-{block}", text) for block, text in enumerate(run.blocks)]
    return Template(_asset("report.html")).substitute(
        script=script,
        style=style,
        script_hash=_policy_hash(script),
        style_hash=_policy_hash(style),
        data="\n".join(data),
    )


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _data_element(name: str, packed: str) -> str:
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>'


def _policy_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
