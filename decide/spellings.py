"""The spellings of an option that mean the same: a closed list."""

from __future__ import annotations


def spellings_of(label: str) -> tuple[str, ...]:
    """Return the spellings of a label, each once.

    They are the label as given, all small, all capital, and with a capital first and the rest small; each bare and
    in double quotes; each without and with one blank before it.
    """
    cases = (label, label.lower(), label.upper(), label.capitalize())
    quoted = [form for case in cases for form in (case, f'"{case}"')]
    return tuple(dict.fromkeys(spelling for form in quoted for spelling in (form, f" {form}")))
