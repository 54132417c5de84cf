"""Flags that other commands or other tools have, and what to type here."""

from __future__ import annotations

from collections.abc import Collection

from .respelled_flags import respelled

_USUAL = {
    "--ctx": "-c N",
    "--context": "-c N",
    "--contextsize": "-c N",
    "--num-ctx": "-c N",
    "--json": "--format jsonl, or --grammar json",
    "--max-tokens": "-n N",
    "--max-new-tokens": "-n N",
    "--max-length": "-n N",
    "--greedy": "--temp 0",
    "--tfs-z": "--set tfs.z=N",
    "--schema": "-j SCHEMA, or -jf FILE",
    "--stop-sequence": "--stop TEXT",
    "--base-url": "--endpoint URL",
    "--url": "--endpoint URL",
}
"""What people type who know other tools."""

_PROMPT_OF_CHAT = "pipe it in: echo TEXT | gen chat; or, for one answer: gen --chat TEXT"
_OTHER_WAYS = {
    ("gen batch", "--endpoint"): "gen batch runs a model of this machine: -m MODEL",
    ("gen chat", "-p"): _PROMPT_OF_CHAT,
    ("gen chat", "--prompt"): _PROMPT_OF_CHAT,
}
"""What to do instead of a flag that a command lacks."""


def other_way(command: str, flag: str, flags: Collection[str] = ()) -> str | None:
    """What to do instead of a flag that a command lacks, as one sentence; None if nothing is known.

    Args:
        command: as it is typed, such as ``gen batch``.
        flag: as it was typed.
        flags: those that the command has.
    """
    usual = _USUAL.get(respelled(flag))
    if (command, flag) in _OTHER_WAYS:
        return f"{command} has no {flag}; {_OTHER_WAYS[command, flag]}"
    if usual is not None and usual.split()[0] in flags:
        return f"there is no flag {flag}; use {usual}"
    return None
