"""A grammar as a preset or a flag gives it: a name, a text, or a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .compile import compile_parsed_grammar
from .errors import GrammarError
from .grammar import Grammar, GrammarState
from .grammar_files import read_grammar_file
from .json_schema import open_object, parse_json_schema
from .named_grammars import find_grammar
from .parsed_grammar import ParsedGrammar, parse_grammar
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
"""The keys of a table, one of which gives the grammar, and their kinds."""

_OPTIONAL_KEYS = ("root", "after", "schema_lenient")

Folders = Sequence[tuple[str, Path]]


@dataclass(frozen=True)
class GrammarSpec:
    """A grammar that was chosen, but not yet compiled for a vocabulary. Its text is parsed once.

    Attributes:
        label: how a message names it.
        kind: ``gbnf``, ``json_schema``, ``regex`` or ``lark``.
        source: its text.
        root: the rule with which sentences of a GBNF grammar begin.
        after: the text after which it applies; None: from the beginning.
        schema_lenient: True if a JSON Schema is used without what is not supported.
    """

    label: str
    kind: str
    source: str
    root: str = "root"
    after: str | None = None
    schema_lenient: bool = False

    @cached_property
    def parsed(self) -> ParsedGrammar:
        """The grammar, parsed. Raises ``GrammarError``."""
        try:
            return parse_grammar(self.source, self.kind, self.root, self.schema_lenient)
        except GrammarError as error:
            raise error.within(self.label) from None

    @property
    def names_tokens(self) -> bool:
        """True if it names tokens, so that only a vocabulary can say whether it is right."""
        return self.parsed.names_tokens

    @property
    def left_out(self) -> tuple[str, ...]:
        """The JSON pointers of what is left out of a JSON Schema. Raises ``GrammarError``."""
        return self.parsed.left_out

    @property
    def description(self) -> dict[str, str]:
        """The grammar's kind, root, source, trigger and what is left out, for a record of the run."""
        fields = {"kind": self.kind, "root": self.root, "source": self.source}
        if self.after is not None:
            fields["after"] = self.after
        if self.schema_lenient and self.left_out:
            fields["left_out"] = ", ".join(self.left_out)
        return fields

    @property
    def open_object(self) -> str | None:
        """The JSON pointer of an object in a JSON Schema that allows keys it does not name; None without one."""
        return open_object(parse_json_schema(self.source)) if self.kind == "json_schema" else None

    def check(self) -> None:
        """Raise ``GrammarError`` for what is wrong whatever the vocabulary."""
        if not self.names_tokens:
            self.compile(None)

    def compile(self, vocabulary: Vocabulary | None) -> Grammar:
        """Compile the grammar; None: for single bytes, to match texts. Raises ``GrammarError``."""
        parsed = self.parsed
        try:
            return compile_parsed_grammar(parsed, vocabulary)
        except GrammarError as error:
            raise error.within(self.label) from None

    def start(self, vocabulary: Vocabulary) -> GrammarState | TriggeredConstraint:
        """The constraint of one text. Raises ``GrammarError``."""
        grammar = self.compile(vocabulary)
        if self.after is None:
            return grammar.start()
        try:
            return TriggeredConstraint(grammar, self.after)
        except GrammarError as error:
            raise error.within(self.label) from None


def resolve_grammar(
    value: str | Mapping[str, Any], folders: Folders = (), base: Path | None = None
) -> GrammarSpec:
    """Return the grammar that a preset's ``grammar:`` or a flag gives. Raises ``GrammarError``.

    Args:
        value: the text or the table; see `grammar_table`.
        folders: where names are looked for before the library, as (origin, path).
        base: the folder to which files are relative; None: the current one.
    """
    table = grammar_table(value)
    key = _grammar_key(table)
    label, source = _label_and_source(key, table[key], folders, base)
    if table.get("after") == "":
        raise GrammarError("grammar: the text after which it begins is empty")
    root = table.get("root", "root")
    if root != "root" and GRAMMAR_KEYS[key] != "gbnf":
        raise GrammarError(f"grammar: a root rule belongs to GBNF, not to {key}")
    schema_lenient = table.get("schema_lenient", False)
    if schema_lenient and GRAMMAR_KEYS[key] != "json_schema":
        raise GrammarError(f"grammar: schema_lenient belongs to a JSON Schema, not to {key}")
    return GrammarSpec(label, GRAMMAR_KEYS[key], source, root, table.get("after"), schema_lenient)


def grammar_table(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the table that a text stands for; a table as it is.

    A text is GBNF if it has a ``::=``, else a name. A table has one of `GRAMMAR_KEYS`, and may have ``root``,
    ``after`` and ``schema_lenient``.
    """
    return dict(value) if isinstance(value, Mapping) else {"gbnf" if "::=" in value else "name": value}


def _grammar_key(table: Mapping[str, Any]) -> str:
    """Check the keys and types of a table, and return the key that gives the grammar."""
    unknown = [key for key in table if key not in (*GRAMMAR_KEYS, *_OPTIONAL_KEYS)]
    if unknown:
        raise GrammarError(
            f"grammar: unknown key {unknown[0]!r}; there are {', '.join((*GRAMMAR_KEYS, *_OPTIONAL_KEYS))}"
        )
    given = [key for key in GRAMMAR_KEYS if key in table]
    if len(given) != 1:
        listed = " and ".join(given) or "none of them"
        raise GrammarError(f"grammar: one of {', '.join(GRAMMAR_KEYS)} is needed, and there is {listed}")
    for key, content in table.items():
        if key == "schema_lenient":
            if not isinstance(content, bool):
                raise GrammarError(f"grammar.{key}: {content!r} is not true or false")
        elif not isinstance(content, str) and not (key == "json_schema" and isinstance(content, (Mapping, bool))):
            raise GrammarError(f"grammar.{key}: {content!r} is not a text")
    return given[0]


def _label_and_source(key: str, content: Any, folders: Folders, base: Path | None) -> tuple[str, str]:
    """The label and the text of a grammar; see `resolve_grammar`.

    Args:
        key: one of ``GRAMMAR_KEYS``.
        content: the key's value.
        folders: where names are looked for.
        base: the folder to which files are relative.
    """
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
