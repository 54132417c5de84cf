"""The errors of questions."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class QuestionError(LogitsmithError, ValueError):
    """A question, an option or a calibration that cannot be used. The message says which, and why."""
