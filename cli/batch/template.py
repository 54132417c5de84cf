"""A prompt with places for the columns of a CSV file."""

from __future__ import annotations

import re

from ..inputs.json_lines import InvalidLineError

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class PromptTemplate:
    """A text with ``{column}`` in it; ``{{`` and ``}}`` stand for braces.

    Raises ``InvalidLineError`` for a lone brace, and for a text without a column.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        fields = [match for match in _BRACES.finditer(text) if match[0] not in ("{{", "}}")]
        if any(match[1] is None for match in fields):
            raise InvalidLineError(f"{text!r} has a lone brace; write {{{{ or }}}} for one")
        self.columns = [match[1] for match in fields]
        if not self.columns:
            raise InvalidLineError(f"{text!r} names no column, such as {{text}}")

    def check(self, header: list[str]) -> None:
        """Raise ``InvalidLineError`` unless the first row names each column of the template exactly once."""
        if not header:
            raise InvalidLineError("the file is empty; its first row names the columns")
        missing = [column for column in self.columns if column not in header]
        if missing:
            known = ", ".join(map(repr, header))
            raise InvalidLineError(f"there is no column {missing[0]!r}; the first row has: {known}")
        duplicates = [name for name in header if header.count(name) > 1]
        if duplicates:
            raise InvalidLineError(f"two columns are named {duplicates[0]!r}")

    def fill(self, values: dict[str, str]) -> str:
        """Return the prompt of a row; ``values``: its fields by column."""
        return _BRACES.sub(lambda match: match[0][0] if match[1] is None else values[match[1]], self._text)
