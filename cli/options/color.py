"""When colours are written."""

from __future__ import annotations

from enum import StrEnum

from .switch_words import switch_parser


class Color(StrEnum):
    """When colours are written; ``on`` and ``off`` are llama.cpp's words."""

    auto = "auto"
    always = "always"
    never = "never"
    on = "on"
    off = "off"

    @property
    def is_colored(self) -> bool | None:
        """Whether colours are written; None: on a terminal, without ``NO_COLOR``."""
        return {"always": True, "on": True, "never": False, "off": False}.get(self.value)


COLOR_METAVAR = "auto|always|never"
read_color = switch_parser(Color, "auto, always or never")
