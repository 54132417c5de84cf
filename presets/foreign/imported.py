"""What an import gives: a chain, a preset, what could not be carried over, and all of it as a YAML preset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..errors import PresetError
from ..hints import preset_hint
from ..preset import Preset
from .draft import Draft, ForeignStep

_EXTRAS = ("seed", "max_tokens", "stop", "system", "grammar")


@dataclass(frozen=True)
class Imported:
    """A foreign file as a preset."""

    format: str
    """The format, as `import_preset` names it."""
    chain: list[list[Any]]
    """``[name, {parameter: value}]`` for each step that acts, in the tool's order.

    The last one selects: ``dist``, a plain draw, unless a step of the file does.
    """
    extras: dict[str, Any]
    """What the file sets of ``max_tokens``, ``stop``, ``system``, ``seed`` and ``grammar``."""
    reported: list[str]
    """A sentence for each thing that could not be carried over as it is, which names its key."""
    preset: Preset
    """The preset, ready to use."""
    sections: list[str]
    """The names of the file's presets, where it holds several; else empty."""
    steps: tuple[ForeignStep, ...]
    """The steps of the chain with the keys and the reasons that they come from."""
    notes: tuple[str, ...]
    """Decisions about the chain as a whole: which order, whose defaults."""
    changed: tuple[str, ...] = ()
    """Those of ``reported`` whose setting is carried over with a change; all others are left out."""
    other_format: str | None = None
    """What the content looks like, if another format was asked for, which does not know some of its keys."""

    def yaml_text(self, folder: Path | None = None) -> str:
        """Return a preset file: the chain, a comment on each decision, and what was changed and left out.

        ``folder``: that of the imported file, if the preset goes elsewhere: a relative path of a grammar in it is
        then written as an absolute one. None: paths stay as they are.
        """
        extras = self.extras if folder is None else _with_absolute_paths(self.extras, folder)
        lines = [f"description: {_flow(self.preset.description)}"]
        lines += [f"# {_comment(note)}" for note in self.notes]
        lines.append("chain:")
        lines += [_step_line(step) for step in self.steps]
        lines += [f"{key}: {_flow(extras[key])}" for key in _EXTRAS if key in extras]
        left_out = [sentence for sentence in self.reported if sentence not in self.changed]
        for heading, sentences in (("Carried over with a change", self.changed), ("Left out", left_out)):
            if sentences:
                lines += [f"# {heading}:", *(f"# - {_comment(sentence)}" for sentence in sentences)]
        return "\n".join(lines) + "\n"


class PresetOrigin(NamedTuple):
    """Where an imported preset comes from."""

    name: str
    """The preset's name."""
    source: str
    """The path of its file, as `Preset.source` holds it."""
    description: str
    """What the preset is called that has no description of its own."""


class MissingSectionError(PresetError):
    """A file holds several presets, and none of them is chosen. ``names``: theirs; ``origin``: the file."""

    def __init__(self, origin: str, names: Sequence[str]) -> None:
        listed = ", ".join(names)
        super().__init__(f"{origin}: the file holds {len(names)} presets; choose a section: {listed}")
        self.origin, self.names = origin, tuple(names)


def import_draft(draft: Draft, format_name: str, origin: PresetOrigin, sections: Sequence[str]) -> Imported:
    """Return the import that a draft makes.

    Args:
        draft: the finished draft.
        format_name: the format, one of `FORMATS`.
        origin: where the preset comes from.
        sections: the names of the file's presets; empty if it holds one.

    Raises ``PresetError`` if the preset would not work.
    """
    chain = [[step.name, step.params] for step in draft.steps]
    table = {
        "description": draft.description or origin.description,
        "chain": [{step.name: step.params} if step.params else step.name for step in draft.steps],
        **draft.extras,
    }
    preset = Preset.from_table(table, origin=draft.table.origin, name=origin.name, source=origin.source)
    return Imported(
        format=format_name,
        chain=chain,
        extras=dict(draft.extras),
        reported=list(dict.fromkeys(draft.reported)),
        preset=preset,
        sections=list(sections),
        steps=tuple(draft.steps),
        notes=tuple(draft.notes),
        changed=tuple(dict.fromkeys(draft.changed)),
    )


def choose_section(names: Sequence[str], section: str | None, origin: str) -> int:
    """Return which preset of a file is meant: the only one, or the one of that name.

    Raises ``MissingSectionError`` if there are several and none is named, and ``PresetError`` if the named one is
    not there. Both list the names.
    """
    if section is None:
        if len(names) == 1:
            return 0
        raise MissingSectionError(origin, names)
    if section in names:
        return list(names).index(section)
    raise PresetError(f"{origin}: there is no section {section!r}; {preset_hint(section, names)}")


def _with_absolute_paths(extras: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The extras; a path of a grammar's file, which is relative to a folder, is made absolute."""
    grammar = extras.get("grammar")
    if not isinstance(grammar, Mapping):
        return dict(extras)
    paths = {
        key: str((folder / value).absolute()) if key.endswith("file") and isinstance(value, str) else value
        for key, value in grammar.items()
    }
    return {**extras, "grammar": paths}


def _step_line(step: ForeignStep) -> str:
    entry = f"{step.name}: {_flow(step.params)}" if step.params else step.name
    reasons = [", ".join(step.keys), step.comment]
    comment = "; ".join(reason for reason in reasons if reason)
    return f"  - {entry}" + (f"  # {_comment(comment)}" if comment else "")


def _flow(value: Any) -> str:
    """A value in YAML's flow style, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    if value is None or isinstance(value, (bool, int, float)):
        return "-inf" if value == float("-inf") else json.dumps(value)
    if isinstance(value, str) and value.isidentifier() and value.isascii() and value.lower() not in _WORDS:
        return value
    text: str = yaml.safe_dump(str(value), default_style='"', allow_unicode=True, width=float("inf"))
    return text.rstrip("\n")


# Plain words that YAML does not read as texts.
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan")


def _comment(text: str) -> str:
    """The text as a comment can hold it: on one line, with nothing that YAML refuses."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
