"""A grammar as people name it: by a name, as text, or as a table in a preset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .compile import compile_grammar, lark_names_tokens
from .errors import GrammarError
from .gbnf import read, tokens_of
from .grammar import GrammarState
from .limits import MAX_SOURCE
from .named_grammars import find_grammar
from .triggered_constraint import TriggeredConstraint
from .vocabulary import Vocabulary

GRAMMAR_KEYS = {
    "name": "gbnf",
    "gbnf": "gbnf",
    "file": "gbnf",
    "json_schema": "json_schema",
    "json_schema_file": "json_schema",
    "regex": "regex",
    "lark": "lark",
    "lark_file": "lark",
}
"""The keys of a table, one of which says what the grammar is, and their kinds."""

KIND_OF_SUFFIX = {".gbnf": "gbnf", ".json": "json_schema", ".regex": "regex", ".lark": "lark"}
"""The kind of a grammar file, by the end of its name."""

_LARGEST = 4 * MAX_SOURCE  # bytes of that many characters

Folders = Sequence[tuple[str, Path]]


@dataclass(frozen=True)
class GrammarSpec:
    """A grammar that was chosen, not yet made for a vocabulary.

    ``label`` is how a message names it; ``after``: the text after which it begins to hold.
    """

    label: str
    kind: str
    source: str
    root: str = "root"
    after: str | None = None

    @property
    def names_tokens(self) -> bool:
        """Might it name tokens, so that only a model's vocabulary can say whether it is right?"""
        if self.kind == "gbnf":
            return bool(tokens_of(read(self.source, self.root, lambda _: [0])))
        return self.kind == "lark" and lark_names_tokens(self.source)

    @property
    def description(self) -> dict[str, str]:
        """What the grammar is, for a record of the run."""
        found = {"kind": self.kind, "root": self.root, "source": self.source}
        return found if self.after is None else {**found, "after": self.after}

    def check(self) -> None:
        """Raise ``GrammarError`` for what can be seen as wrong without a vocabulary."""
        try:
            if not self.names_tokens:
                compile_grammar(self.source, None, self.kind, self.root)
        except GrammarError as error:
            raise error.within(self.label) from None

    def start(self, vocabulary: Vocabulary) -> GrammarState | TriggeredConstraint:
        """The constraint of one text. Raises ``GrammarError``."""
        try:
            grammar = compile_grammar(self.source, vocabulary, self.kind, self.root)
            return grammar.start() if self.after is None else TriggeredConstraint(grammar, self.after)
        except GrammarError as error:
            raise error.within(self.label) from None


def resolve_grammar(
    value: str | Mapping[str, Any], folders: Folders = (), base: Path | None = None
) -> GrammarSpec:
    """Return what a preset's ``grammar:`` or a flag asks for.

    A text is GBNF if it has a ``::=``, else a name, looked for in ``folders`` and the library. A table has one of
    `GRAMMAR_KEYS`, and may have ``root`` and ``after``. Files are relative to ``base``. Raises ``GrammarError``.
    """
    table = value if isinstance(value, Mapping) else {"gbnf" if "::=" in value else "name": value}
    unknown = [key for key in table if key not in (*GRAMMAR_KEYS, "root", "after")]
    if unknown:
        raise GrammarError(
            f"grammar: unknown key {unknown[0]!r}; there are {', '.join(GRAMMAR_KEYS)}, root and after"
        )
    given = [key for key in GRAMMAR_KEYS if key in table]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise GrammarError(f"grammar: one of {', '.join(GRAMMAR_KEYS)} is needed, and there is {found}")
    for key, content in table.items():
        if not isinstance(content, str) and not (key == "json_schema" and isinstance(content, (Mapping, bool))):
            raise GrammarError(f"grammar.{key}: {content!r} is not a text")
    key, content = given[0], table[given[0]]
    label, source = _source(key, content, folders, base)
    if table.get("after") == "":
        raise GrammarError("grammar: the text after which it begins is empty")
    root = table.get("root", "root")
    if root != "root" and GRAMMAR_KEYS[key] != "gbnf":
        raise GrammarError(f"grammar: a root rule belongs to GBNF, not to {key}")
    return GrammarSpec(label, GRAMMAR_KEYS[key], source, root, table.get("after"))


def _source(key: str, content: Any, folders: Folders, base: Path | None) -> tuple[str, str]:
    """The label and the text of a grammar."""
    if key == "name":
        entry = find_grammar(content, folders)
        return f"grammar {entry.name}", read_grammar_file(entry.path)
    if key.endswith("file"):
        return content, read_grammar_file((base or Path()) / content)
    if not isinstance(content, str):
        try:
            content = json.dumps(content, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise GrammarError(f"grammar.{key} is not JSON: {error}") from None
    return {"gbnf": "grammar", "json_schema": "JSON Schema"}.get(key, key), content


def read_grammar_file(path: Path) -> str:
    """The text of a grammar file. Raises ``GrammarError``."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        problem = "it is a folder" if path.is_dir() else getattr(error, "strerror", None) or str(error)
        raise GrammarError(f"{path}: cannot be read ({problem})") from None
    if len(data) > _LARGEST:
        raise GrammarError(f"{path}: the file is larger than {_LARGEST // 1_000_000} MB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GrammarError(f"{path}: line {data[: error.start].count(10) + 1}: the file is not UTF-8") from None
