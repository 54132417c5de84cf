"""The grammar of a preset or a flag, which is given as a grammar's name, its source, or a table.

A grammar with a trigger applies only after the model has written the trigger, such as ``</think>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import TextFileError, read_text_file
from ..common.strict_json import encode_exact_json
from .compile_guard import CompileGuard, Task
from .errors import GrammarError
from .grammar import Grammar, GrammarState, ParsedGrammar, compile_parsed_grammar, parse_grammar
from .json_schema import open_object, parse_json_schema
from .search import find_grammar
from .tokenizer import MAX_SOURCE_CHARACTERS, Vocabulary

# the kind of the grammar, by the key of a table that contains the grammar
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

_OPTIONAL_KEYS = ("root", "after", "schema_lenient")

Folders = Sequence[tuple[str, Path]]  # Folders in which grammars are searched by name, as (origin, path)


@dataclass(frozen=True)
class GrammarSpec:
    """A grammar with the options of a preset or a flag, not yet compiled for a vocabulary.

    Attributes:
        label: the grammar's name in error messages.
        kind: ``gbnf``, ``json_schema``, ``regex`` or ``lark``.
        source: the text of the grammar.
        root: the start rule of a GBNF grammar.
        after: the trigger, a text after which the grammar applies; None = from the beginning.
        schema_lenient: True if unsupported keywords of a JSON Schema are ignored.
    """

    label: str
    kind: str
    source: str
    root: str = "root"
    after: str | None = None
    schema_lenient: bool = False

    @cached_property
    def parsed(self) -> ParsedGrammar:
        """The parsed grammar. Raises ``GrammarError``."""
        try:
            return parse_grammar(self.source, self.kind, self.root, self.schema_lenient)
        except GrammarError as error:
            raise error.within(self.label) from None

    def try_compilation(self, guard: CompileGuard) -> None:
        """Raise ``GrammarError`` if the grammar takes too long, too much memory, or crashes llguidance."""
        guard.check(Task(self.kind, self.source, self.root, self.after, self.schema_lenient), self.label)

    @property
    def has_token_references(self) -> bool:
        """True if the grammar refers to tokens, so that it can be checked only with a vocabulary."""
        return self.parsed.has_token_references

    @property
    def translated_schema_paths(self) -> tuple[str, ...]:
        """The JSON pointers of the keywords of a JSON Schema that were translated to rules."""
        return self.compile(None).parsed.translated_schema_paths

    @property
    def ignored_schema_paths(self) -> tuple[str, ...]:
        """The JSON pointers of ignored keywords of a JSON Schema. Raises ``GrammarError``."""
        return self.parsed.ignored_schema_paths

    @property
    def description(self) -> dict[str, str]:
        """The grammar's kind, root, source, trigger and ignored schema paths, for the record of the run."""
        fields = {"kind": self.kind, "root": self.root, "source": self.source}
        if self.after is not None:
            fields["after"] = self.after
        if self.ignored_schema_paths:
            fields["left_out"] = ", ".join(self.ignored_schema_paths)
        return fields

    @property
    def open_object(self) -> str | None:
        """The JSON pointer of a JSON Schema's object that allows unlisted properties; None if there is none."""
        if self.kind != "json_schema":
            return None
        return open_object(parse_json_schema(self.source))

    def check(self) -> None:
        """Check what does not depend on the vocabulary. Raises ``GrammarError``."""
        if not self.has_token_references:
            self.compile(None)

    def compile(self, vocabulary: Vocabulary | None) -> Grammar:
        """Compile the grammar for a vocabulary; None = single bytes, to match texts. Raises ``GrammarError``."""
        parsed = self.parsed
        try:
            return compile_parsed_grammar(parsed, vocabulary)
        except GrammarError as error:
            raise error.within(self.label) from None

    def start(self, vocabulary: Vocabulary, compiled: Grammar | None = None) -> GrammarState | TriggeredConstraint:
        """Return the constraint of one generated text. Raises ``GrammarError``.

        ``compiled``: the grammar as `compile` returned it, to be shared by several texts; None: compile it now.
        """
        grammar = self.compile(vocabulary) if compiled is None else compiled
        if self.after is None:
            return grammar.start()
        try:
            return TriggeredConstraint(grammar, self.after)
        except GrammarError as error:
            raise error.within(self.label) from None


def resolve_grammar(
    value: str | Mapping[str, Any], folders: Folders = (), base: Path | None = None
) -> GrammarSpec:
    """Return the grammar of a preset's key ``grammar`` or of a flag. Raises ``GrammarError``.

    Args:
        value: a name, GBNF source, or a table; see `grammar_table`.
        folders: folders that are searched for names before the built-in grammars, as (origin, path).
        base: the folder to which file names are relative; None = the current folder.
    """
    table = grammar_table(value)
    key = _check_and_find_key(table)
    label, source = _label_and_source(key, table[key], folders, base)
    if table.get("after") == "":
        raise GrammarError("the text after which the grammar begins is empty", place=("grammar",))
    root = table.get("root", "root")
    if root != "root" and GRAMMAR_KEYS[key] != "gbnf":
        raise GrammarError(f"a root rule is allowed only with GBNF, not with {key}", place=("grammar",))
    schema_lenient = table.get("schema_lenient", False)
    if schema_lenient and GRAMMAR_KEYS[key] != "json_schema":
        raise GrammarError(
            f"schema_lenient is allowed only with a JSON Schema, not with {key}", place=("grammar",)
        )
    return GrammarSpec(label, GRAMMAR_KEYS[key], source, root, table.get("after"), schema_lenient)


def grammar_table(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the value as a table."""
    # A string that contains ``::=`` is GBNF source; any other string is a name. A table has one of `GRAMMAR_KEYS`,
    # and may have ``root``, ``after`` and ``schema_lenient``.
    if isinstance(value, Mapping):
        return dict(value)
    key = "gbnf" if "::=" in value else "name"
    return {key: value}


def _check_and_find_key(table: Mapping[str, Any]) -> str:
    """Check the keys and types of a table, and return the key that contains the grammar."""
    allowed_keys = (*GRAMMAR_KEYS, *_OPTIONAL_KEYS)
    unknown_keys = [key for key in table if key not in allowed_keys]
    if unknown_keys:
        raise GrammarError(
            f"unknown key {unknown_keys[0]!r}; allowed are {', '.join(allowed_keys)}", place=("grammar",)
        )
    used_keys = [key for key in GRAMMAR_KEYS if key in table]
    if len(used_keys) != 1:
        used_text = " and ".join(used_keys) or "none of them"
        raise GrammarError(f"expected one of {', '.join(GRAMMAR_KEYS)}; got {used_text}", place=("grammar",))
    for key, content in table.items():
        is_schema = key == "json_schema" and isinstance(content, (Mapping, bool))
        if key == "schema_lenient":
            if not isinstance(content, bool):
                raise GrammarError(f"{content!r} is not true or false", place=("grammar", key))
        elif not isinstance(content, str) and not is_schema:
            raise GrammarError(f"{content!r} is not a string", place=("grammar", key))
    return used_keys[0]


def _label_and_source(key: str, content: Any, folders: Folders, base: Path | None) -> tuple[str, str]:
    """Return the label and the source of a grammar; file names are relative to ``base``."""
    if key == "name":
        entry = find_grammar(content, folders)
        return f"grammar {entry.name}", read_grammar_file(entry.path)
    if key.endswith("file"):
        return content, read_grammar_file((base or Path()) / content)
    if not isinstance(content, str):
        try:
            content = encode_exact_json(content)
        except (TypeError, ValueError) as error:
            raise GrammarError(f"not JSON: {error}", place=("grammar", key)) from None
    labels = {"gbnf": "grammar", "json_schema": "JSON Schema"}
    return labels.get(key, key), content


# the kind of a grammar file, by the suffix of its name
KIND_OF_SUFFIX = {".gbnf": "gbnf", ".json": "json_schema", ".regex": "regex", ".lark": "lark"}

_MAX_FILE_BYTES = 4 * MAX_SOURCE_CHARACTERS  # a character has at most 4 bytes in UTF-8


def read_grammar_file(path: Path) -> str:
    """Return the content of a grammar file. Raises ``GrammarError``."""
    try:
        return read_text_file(path, _MAX_FILE_BYTES)
    except TextFileError as error:
        raise GrammarError(str(error), origin=str(path)) from None


class TriggeredConstraint:
    """A `CompletableConstraint` that applies a grammar after the model has written a trigger."""

    # Before the trigger, nearly all tokens are allowed. A token may contain the end of the trigger and more bytes,
    # if the grammar can begin with these bytes. Control tokens count with the text that they have in the
    # vocabulary.

    def __init__(self, grammar: Grammar, trigger: str) -> None:
        if not trigger:
            raise GrammarError("the text after which the grammar begins is empty")
        self.state: GrammarState | None = None  # the grammar's state; None before the trigger is written
        self._grammar = grammar
        self._trigger = trigger.encode()
        self._trigger_prefix = b""  # the longest prefix of the trigger that the text ends with
        self._earlier_prefixes: list[bytes] = []  # the value of `_trigger_prefix` before each token
        self._grammar_token_count = 0  # number of tokens that were passed to `state`
        # the masks before the trigger, by `_trigger_prefix`
        self._masks_by_prefix: dict[bytes, NDArray[np.bool_]] = {}

    def copy(self) -> TriggeredConstraint:
        state_copy = copy(self)
        state_copy.state = None if self.state is None else self.state.copy()
        state_copy._earlier_prefixes = self._earlier_prefixes.copy()
        return state_copy

    def mask(self) -> NDArray[np.bool_]:
        if self.state is not None:
            return self.state.mask()
        if self._trigger_prefix not in self._masks_by_prefix:
            self._masks_by_prefix[self._trigger_prefix] = self._mask_before_trigger()
        return self._masks_by_prefix[self._trigger_prefix].copy()

    def _mask_before_trigger(self) -> NDArray[np.bool_]:
        """Return the mask before the trigger."""
        # It excludes tokens that complete the trigger and continue with bytes that the grammar cannot begin with.
        mask = np.ones(self._grammar.vocabulary.size, dtype=np.bool_)
        tokens_by_remainder: dict[bytes, list[int]] = {}
        last_byte = self._trigger[-1:]
        for token, token_bytes in enumerate(self._grammar.vocabulary.pieces):
            if last_byte in token_bytes[:-1]:
                remainder = self._bytes_after_trigger(token_bytes)
                if remainder:
                    tokens_by_remainder.setdefault(remainder, []).append(token)
        rejected_prefix = None
        for remainder in sorted(tokens_by_remainder):
            # Sorted remainders with the same rejected prefix are adjacent, so that each prefix is searched once.
            if rejected_prefix is None or not remainder.startswith(rejected_prefix):
                rejected_prefix = self._find_rejected_prefix(remainder)
            if rejected_prefix is not None:
                mask[tokens_by_remainder[remainder]] = False
        return mask

    def _find_rejected_prefix(self, text: bytes) -> bytes | None:
        """Return a prefix of the text that no sentence begins with; None if a sentence begins with the text."""
        tokens = self._grammar.tokenizer.tokenize_bytes(text)
        accepted_count = self._grammar.start().accept_prefix(tokens)
        if accepted_count == len(tokens):
            return None
        pieces = self._grammar.vocabulary.pieces
        return b"".join(pieces[token] for token in tokens[: accepted_count + 1])

    def forced_tokens(self) -> list[int]:
        return [] if self.state is None else self.state.forced_tokens()

    def accept(self, token: int) -> None:
        if self.state is not None:
            self.state.accept(token)
            self._grammar_token_count += 1
            return
        self._earlier_prefixes.append(self._trigger_prefix)
        if token in self._grammar.vocabulary.eog:
            return
        token_bytes = self._grammar.vocabulary.pieces[token]
        remainder = self._bytes_after_trigger(token_bytes)
        if remainder is None:
            self._trigger_prefix = self._longest_trigger_prefix(self._trigger_prefix + token_bytes)
            return
        self.state = self._state_after(remainder)
        if self.state is None:
            raise GrammarError(f"the grammar cannot begin with {remainder!r}")

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` tokens, which may include the token that completed the trigger."""
        grammar_token_count = min(count, self._grammar_token_count)
        if self.state is not None:
            self.state.roll_back(grammar_token_count)
        self._grammar_token_count -= grammar_token_count
        earlier_token_count = count - grammar_token_count  # tokens up to the token that completed the trigger
        if earlier_token_count:
            self.state = None
            self._trigger_prefix = self._earlier_prefixes[-earlier_token_count]
            del self._earlier_prefixes[-earlier_token_count:]

    @property
    def is_complete(self) -> bool:
        """True if the trigger and a complete sentence after it were written."""
        return self.state is not None and self.state.is_complete

    def completion_tokens(self) -> list[int]:
        """Return ids of tokens that complete the text after the trigger. Raises ``GrammarError``."""
        if self.state is None:
            raise GrammarError(f"{self._trigger.decode()!r} was not written, so there is no sentence to complete")
        return self.state.completion_tokens()

    @property
    def description(self) -> dict[str, str]:
        """The grammar's kind, root, source and trigger, for the record of the run."""
        return {**self._grammar.start().description, "after": self._trigger.decode()}

    def _longest_trigger_prefix(self, text: bytes) -> bytes:
        """Return the longest suffix of the text that is a prefix of the trigger."""
        max_length = min(len(text), len(self._trigger) - 1)
        for length in range(max_length, 0, -1):
            suffix = text[-length:]
            if self._trigger.startswith(suffix):
                return suffix
        return b""

    def _bytes_after_trigger(self, token_bytes: bytes) -> bytes | None:
        """Return a token's bytes after the trigger; None if the token does not complete the trigger."""
        text = self._trigger_prefix + token_bytes
        _, trigger, remainder = text.partition(self._trigger)
        return remainder if trigger else None

    def _state_after(self, text: bytes) -> GrammarState | None:
        """Return the grammar's state after a text; None if no sentence begins with the text."""
        state = self._grammar.start()
        tokens = self._grammar.tokenizer.tokenize_bytes(text)
        return state if state.accept_prefix(tokens) == len(tokens) else None
