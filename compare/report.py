"""The report of a comparison: one HTML file with plots of the measures, all texts, and blind votes.

The folder page/ has the page's template, style and scripts. Parts that other pages have, too, are in
`logprobs.web`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ..logprobs.web import pack, single_file


def comparison_page(result: Mapping[str, Any]) -> str:
    """Return the HTML of a report. Votes of a reader are added by the page, which can save itself.

    Args:
        result: the result, as `make_result` returns it.
    """
    return single_file(_page_file, "compare", {"result": pack(result), "votes": pack([])})


def _page_file(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
