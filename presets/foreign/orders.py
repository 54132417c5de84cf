"""KoboldAI's orders of samplers: lists of the numbers 0 to 6."""

from __future__ import annotations

import re

from .draft import Draft

SAMPLERS = ("top_k", "top_a", "top_p", "tfs", "typical", "temperature", "repetition_penalty")
"""The slot of each number."""


def read_numbers(draft: Draft, key: str) -> list[int] | None:
    """The order of an entry: a list of numbers, or one text such as ``5, 0, 2, 3, 1, 4``; None if it is absent.

    Raises ``PresetError`` for anything else, and for a number above 6.
    """
    value = draft.table.raw(key)
    if value is None:
        return None
    parts = re.split(r"[\s,;]+", value.strip().strip("[]")) if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise draft.table.fault(key, "a list of numbers")
    numbers = []
    for part in parts:
        text = str(part).removesuffix(".0")
        if isinstance(part, bool) or text not in tuple("0123456"):
            raise draft.table.fault(key, "a list of the numbers 0 to 6")
        numbers.append(int(text))
    return list(dict.fromkeys(numbers))


def arrange_by_numbers(
    draft: Draft, order: list[int], front: tuple[str, ...], slots: dict[int, tuple[str, ...]]
) -> None:
    """End the chain: the slots in front, then those of each number.

    Args:
        draft: the draft.
        order: the numbers.
        front: slots that come first.
        slots: the slots of each number that has others than `SAMPLERS` says.

    Steps whose number the order lacks are reported; the tool leaves them out.
    """
    names = [name for number in order for name in slots.get(number, (SAMPLERS[number],))]
    missing = [
        name for number in range(7) if number not in order for name in slots.get(number, (SAMPLERS[number],))
    ]
    draft.report_idle(draft.arranged(missing), "sampler_order leaves it out")
    draft.take_chain(draft.arranged([*front, *names, "xtc", "adaptive_p"]))
