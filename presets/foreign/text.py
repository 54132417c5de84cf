"""The text of a foreign file, and its JSON or YAML, each fault with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...common.strict_json import json_problem, parse_strict_json
from ..errors import PresetError
from ..yaml_loader import BoundedLoader
from ..yaml_reader import parse_yaml, read_text


def read_lines(path: Path, origin: str) -> str:
    """Return the text of a file, its line ends as ``\\n``; raises ``PresetError`` for a file that is no text."""
    return unify_line_ends(read_text(path, origin))


def unify_line_ends(text: str) -> str:
    """Return the text with ``\n`` for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, origin: str) -> Any:
    """Return the value of a JSON text; raises ``PresetError`` with line and column if it is not JSON."""
    try:
        return parse_strict_json(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise PresetError(f"{origin}: {place}: broken JSON: {json_problem(error)}") from None
    except RecursionError:
        raise PresetError(f"{origin}: it is nested too deeply") from None
    except ValueError as error:
        raise PresetError(f"{origin}: broken JSON: {error}") from None


def parse_yaml_1_1(text: str, origin: str) -> Any:
    """Return the value of a YAML text by the rules of YAML 1.1, which these tools read: ``no`` is false.

    Raises ``PresetError`` with line and column if it is not YAML, or stands for too much.
    """
    try:
        return parse_yaml(text, origin, BoundedLoader)
    except PresetError:
        raise
    except ValueError as error:  # a date such as 2024-99-99
        raise PresetError(f"{origin}: {error}") from None
    except (
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
    ):  # what PyYAML raises for `!!int ""` and the like
        raise PresetError(f"{origin}: a value does not fit its tag") from None
