"""A word that is nearly a command: alone or before other words, it is probably no prompt."""

from __future__ import annotations

_SIMILARITY = 0.85
"""A letter too few or too many in a command's name, and not another word of the language such as ``watch``."""

_MEANT_BY_WORD = {
    "help": "gen --help",
    "list": "gen models",
    "pull": "gen models pull hf:USER/REPO",
    "version": "gen --version",
}
"""What people mean by a word that is a command elsewhere."""


def meant_command(word: str, commands: list[str]) -> str | None:
    """The command that the word probably stands for, as it is typed; None if the word looks like a prompt."""
    from ...common import nearest_name

    if word in _MEANT_BY_WORD:
        return _MEANT_BY_WORD[word]
    nearest = nearest_name(word, commands, _SIMILARITY)
    return None if nearest is None else f"gen {nearest}"


def command_of_name(group: str, name: str) -> str | None:
    """The command that shows what a group has under this name, ``gen presets show creative``; None: it has none.

    ``group``: as it is typed, such as ``gen presets``.
    """
    if group == "gen presets":
        from ...presets import list_presets

        names = [entry.name for entry in list_presets()]
    elif group == "gen grammars":
        from ...grammars import list_grammars
        from ..inputs.grammar import grammar_folders

        names = [entry.name for entry in list_grammars(grammar_folders())]
    else:
        return None
    return f"{group} show {name}" if name in names else None
