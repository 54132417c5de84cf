"""What an examination of this machine finds wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...common.errors import LogitsmithError


class Examination:
    """Collects what is wrong while the parts of the table are made."""

    def __init__(self) -> None:
        self.problems: list[dict[str, str]] = []

    def report(self, problem: object, advice: str) -> None:
        """Keep a problem, and what to do about it."""
        self.problems.append({"problem": str(problem), "advice": advice})

    def attempt(self, advice: str, step: Callable[[], Any]) -> Any:
        """Return what the step returns; None if it fails, which is reported."""
        try:
            return step()
        except (LogitsmithError, OSError) as error:
            self.report(error, advice)
        except Exception as error:
            if getattr(error, "exit_code", None) is None:  # a failure that has no name is not one of the machine
                raise
            self.report(error, advice)
        return None
