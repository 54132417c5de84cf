"""``--override-kv``: other values for the metadata of a GGUF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...common.errors import UsageError
from ..errors import note

Value = int | float | bool | str
_READ: Mapping[str, Callable[[str], Value]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text],
    "str": str,
}
_SIMILARITY = 0.9
"""Keys have long beginnings in common: ``llama.rope.freq_base`` is not ``llama.rope.dimension_count``."""


def read_overrides(texts: Iterable[str]) -> dict[str, Value]:
    """Return the values of ``KEY=TYPE:VALUE,…``, by key. Raises ``UsageError``."""
    return dict(_read(item) for text in texts for item in text.split(","))


def report_new_keys(overrides: Iterable[str], metadata: Iterable[str]) -> None:
    """Print a note for each key that is none of the file's: a key that is spelled wrong changes nothing."""
    from ...common.text import nearest_name

    known = list(metadata)
    for key in overrides:
        if key not in known:
            near = nearest_name(key, known, _SIMILARITY)
            hint = f"did you mean {near}?" if near else "it counts only if llama.cpp looks for it"
            note(f"--override-kv {key}: the file has no such value to override; {hint}")


def _read(text: str) -> tuple[str, Value]:
    key, _, typed = text.partition("=")
    kind, _, value = typed.partition(":")
    try:
        return key, _READ[kind](value)
    except (KeyError, ValueError):
        raise UsageError(
            f"--override-kv: {text!r} is not KEY=TYPE:VALUE with int, float, bool (true, false) or str"
        ) from None
