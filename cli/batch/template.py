"""The prompt that a row of a CSV file makes."""

from __future__ import annotations

import re

from .ask import WrongLineError

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Template:
    """A text with ``{column}`` in it; ``{{`` and ``}}`` are braces. Raises ``WrongLineError`` for other braces."""

    def __init__(self, text: str) -> None:
        self._text = text
        marks = [mark for mark in _FIELD.finditer(text) if mark[0] not in ("{{", "}}")]
        if any(mark[1] is None for mark in marks):
            raise WrongLineError(f"{text!r} has a lone brace; write {{{{ or }}}} for one")
        self.columns = [mark[1] for mark in marks]
        if not self.columns:
            raise WrongLineError(f"{text!r} names no column, such as {{text}}")

    def check(self, names: list[str]) -> None:
        """Raise ``WrongLineError`` unless all its columns are there, once."""
        if not names:
            raise WrongLineError("the file is empty; its first row names the columns")
        missing = [column for column in self.columns if column not in names]
        if missing:
            known = ", ".join(map(repr, names))
            raise WrongLineError(f"there is no column {missing[0]!r}; the first row has: {known}")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise WrongLineError(f"two columns are named {twice[0]!r}")

    def fill(self, values: dict[str, str]) -> str:
        """The text of a row."""
        return _FIELD.sub(lambda mark: mark[0][0] if mark[1] is None else values[mark[1]], self._text)
