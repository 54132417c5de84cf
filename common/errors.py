"""The common base of the rooms' exceptions."""

from __future__ import annotations

from typing import ClassVar


class LogitsmithError(Exception):
    """A named failure: its text is one sentence for the user.

    Attributes: ``exit_code``, with which `gen` ends: 1 for a failure, 2 for wrong usage.
    """

    exit_code: ClassVar[int] = 1
