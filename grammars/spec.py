"""The grammar that a preset or a flag gives: a name, a text, or a table.

The text may be in a file. A grammar with a trigger applies once the model has written a certain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import TextFileError, read_text_file
from ..common.renamed import supports_old_names
from .errors import GrammarError
from .grammar import Grammar, GrammarState, ParsedGrammar, compile_parsed_grammar, parse_grammar
from .json_schema import open_object, parse_json_schema
from .search import find_grammar
from .tokenizer import MAX_SOURCE_CHARACTERS, Vocabulary

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


@supports_old_names
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
    def has_token_references(self) -> bool:
        """True if it names tokens, so that only a vocabulary can say whether it is right."""
        return self.parsed.has_token_references

    @property
    def ignored_schema_paths(self) -> tuple[str, ...]:
        """The JSON pointers of what is left out of a JSON Schema. Raises ``GrammarError``."""
        return self.parsed.ignored_schema_paths

    @property
    def description(self) -> dict[str, str]:
        """The grammar's kind, root, source, trigger and what is left out, for a record of the run."""
        fields = {"kind": self.kind, "root": self.root, "source": self.source}
        if self.after is not None:
            fields["after"] = self.after
        if self.schema_lenient and self.ignored_schema_paths:
            fields["left_out"] = ", ".join(self.ignored_schema_paths)
        return fields

    @property
    def open_object(self) -> str | None:
        """The JSON pointer of an object in a JSON Schema that allows keys it does not name; None without one."""
        return open_object(parse_json_schema(self.source)) if self.kind == "json_schema" else None

    def check(self) -> None:
        """Raise ``GrammarError`` for what is wrong whatever the vocabulary."""
        if not self.has_token_references:
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


KIND_OF_SUFFIX = {".gbnf": "gbnf", ".json": "json_schema", ".regex": "regex", ".lark": "lark"}
"""The kind of a grammar file, by the end of its name."""

_MAX_FILE_BYTES = 4 * MAX_SOURCE_CHARACTERS  # a character has at most 4 bytes in UTF-8


def read_grammar_file(path: Path) -> str:
    """Return the text of a grammar file. Raises ``GrammarError``."""
    try:
        return read_text_file(path, _MAX_FILE_BYTES)
    except TextFileError as error:
        raise GrammarError(f"{path}: {error}") from None


@supports_old_names
class TriggeredConstraint:
    """Leaves the model free until it has written ``trigger``, then applies the grammar. A `Constraint`.

    A token that ends the trigger and goes on is allowed if the grammar can begin with its remainder. Control
    tokens count as the vocabulary writes them.

    Attributes:
        state: the grammar's state, None until the trigger was written.
    """

    def __init__(self, grammar: Grammar, trigger: str) -> None:
        if not trigger:
            raise GrammarError("the text after which the grammar begins is empty")
        self.state: GrammarState | None = None
        self._grammar = grammar
        self._trigger = trigger.encode()
        self._trigger_prefix = b""  # the longest beginning of the trigger with which the text ends
        self._masks: dict[bytes, NDArray[np.bool_]] = {}  # before the trigger, by `_trigger_prefix`

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,). Before the trigger: nearly all."""
        if self.state is not None:
            return self.state.mask()
        if self._trigger_prefix not in self._masks:
            self._masks[self._trigger_prefix] = self._mask_before_trigger()
        return self._masks[self._trigger_prefix].copy()

    def _mask_before_trigger(self) -> NDArray[np.bool_]:
        """All tokens but those that end the trigger and go on with what the grammar cannot begin with."""
        mask = np.ones(self._grammar.vocabulary.size, dtype=np.bool_)
        tokens_by_remainder: dict[bytes, list[int]] = {}
        last = self._trigger[-1:]
        for token, piece in enumerate(self._grammar.vocabulary.pieces):
            if last in piece[:-1]:
                remainder = self._after_trigger(piece)
                if remainder:
                    tokens_by_remainder.setdefault(remainder, []).append(token)
        refused = None
        for remainder in sorted(tokens_by_remainder):
            # In this order, remainders with the same refused prefix are neighbours.
            if refused is None or not remainder.startswith(refused):
                refused = self._refused_prefix(remainder)
            if refused is not None:
                mask[tokens_by_remainder[remainder]] = False
        return mask

    def _refused_prefix(self, text: bytes) -> bytes | None:
        """The beginning of the text with which the grammar cannot begin; None if it can begin with the text."""
        tokens = self._grammar.tokenizer.tokenize_bytes(text)
        count = self._grammar.start().accept_prefix(tokens)
        if count == len(tokens):
            return None
        pieces = self._grammar.vocabulary.pieces
        return b"".join(pieces[token] for token in tokens[: count + 1])

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        return [] if self.state is None else self.state.forced_tokens()

    def accept(self, token: int) -> None:
        """Append one token. Raises ``GrammarError`` if the mask would have refused it."""
        if self.state is not None:
            self.state.accept(token)
            return
        if token in self._grammar.vocabulary.eog:
            return
        piece = self._grammar.vocabulary.pieces[token]
        remainder = self._after_trigger(piece)
        if remainder is None:
            self._trigger_prefix = self._longest_trigger_prefix(self._trigger_prefix + piece)
            return
        self.state = self._state_after(remainder)
        if self.state is None:
            raise GrammarError(f"the grammar cannot begin with {remainder!r}")

    @property
    def is_complete(self) -> bool:
        """True if the trigger was written, and a whole sentence after it."""
        return self.state is not None and self.state.is_complete

    def completion_tokens(self) -> list[int]:
        """The tokens that make the text after the trigger a whole sentence. Raises ``GrammarError``."""
        if self.state is None:
            raise GrammarError(f"{self._trigger.decode()!r} was not written, so there is no sentence to close")
        return self.state.completion_tokens()

    @property
    def description(self) -> dict[str, str]:
        """What the grammar and its trigger are, for a record of the run."""
        return {**self._grammar.start().description, "after": self._trigger.decode()}

    def _longest_trigger_prefix(self, text: bytes) -> bytes:
        """The longest end of a text that is a beginning of the trigger."""
        ends = (text[-length:] for length in range(min(len(text), len(self._trigger) - 1), 0, -1))
        return next((end for end in ends if self._trigger.startswith(end)), b"")

    def _after_trigger(self, piece: bytes) -> bytes | None:
        """What follows the trigger once this piece is written; None if the trigger is not whole yet."""
        text = self._trigger_prefix + piece
        start = text.find(self._trigger)
        return None if start < 0 else text[start + len(self._trigger) :]

    def _state_after(self, text: bytes) -> GrammarState | None:
        """The grammar's state after a text; None if the grammar cannot begin with it."""
        state = self._grammar.start()
        tokens = self._grammar.tokenizer.tokenize_bytes(text)
        return state if state.accept_prefix(tokens) == len(tokens) else None
