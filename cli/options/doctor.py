"""The options of `gen doctor`."""

from __future__ import annotations

from enum import StrEnum

from .flag import Options, flag, options_class


class DoctorFormat(StrEnum):
    """How the page is written."""

    text = "text"
    json = "json"


@options_class
class DoctorOptions(Options):
    """What the page shows, and in which format."""

    paths: bool = flag("--paths", help="Show paths whole; without it, your home folder is ~.", default=False)
    format: DoctorFormat = flag("--format", help="text, or json: one object. [text]", default=DoctorFormat.text)
