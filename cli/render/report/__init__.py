"""Runs as a page: one HTML file with the text, and for each token how it was chosen.

The parts of the page are files in assets/; the page itself needs no other file.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from string import Template

from .run_data import RunData, pack

_SCRIPTS = (
    "format.js",
    "elements.js",
    "runs.js",
    "charts.js",
    "text_view.js",
    "token_panel.js",
    "run_panel.js",
    "search.js",
    "keys.js",
    "main.js",
)
"""In the order in which each needs those before it."""


def page(runs: Sequence[RunData]) -> str:
    """The HTML of a report of these runs.

    All that comes from the runs is compressed and in base64, so that none of it can be markup. The page's policy
    allows its own script and style by their hashes, and no request.
    """
    script = '"use strict";\n' + "".join(_part(name) for name in _SCRIPTS)
    style = _part("report.css")
    index = [{"name": run.name, "tokens": run.tokens} for run in runs]
    data = [_data_element("index", pack(index))]
    for number, run in enumerate(runs):
        data.append(_data_element(f"run-{number}", run.head))
        data += [_data_element(f"run-{number}-block-{block}", text) for block, text in enumerate(run.blocks)]
    return Template(_part("report.html")).substitute(
        script=script,
        style=style,
        script_hash=_policy_hash(script),
        style_hash=_policy_hash(style),
        data="\n".join(data),
    )


def _part(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _data_element(name: str, packed: str) -> str:
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>'


def _policy_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
