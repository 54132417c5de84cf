"""All pages of the manual that are made from the code."""

from __future__ import annotations

from .commands import command_pages
from .libraries import grammars_page, presets_page
from .samplers import samplers_page
from .settings import settings_page


def generated_pages() -> dict[str, str]:
    """Markdown by path below `docs/`."""
    return {
        **command_pages(),
        "reference/settings.md": settings_page(),
        "reference/samplers.md": samplers_page(),
        "reference/presets.md": presets_page(),
        "reference/grammars.md": grammars_page(),
    }
