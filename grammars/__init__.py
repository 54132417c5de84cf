"""Grammars: what may come next."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .after import After
    from .close import closing
    from .compile import KINDS, compile_grammar
    from .constraint import Closable, Constraint, Guide, as_closable, as_guide
    from .errors import GrammarError
    from .explain import Mismatch, mismatch
    from .grammar import Grammar, GrammarState
    from .later import Later
    from .listing import Entry, find, library
    from .sentences import sentence
    from .spec import KEYS, SUFFIXES, Spec, choose, read_file
    from .vocabulary import BYTES, Vocabulary

__all__ = [
    "BYTES",
    "KEYS",
    "KINDS",
    "SUFFIXES",
    "After",
    "Closable",
    "Constraint",
    "Entry",
    "Grammar",
    "GrammarError",
    "GrammarState",
    "Guide",
    "Later",
    "Mismatch",
    "Spec",
    "Vocabulary",
    "as_closable",
    "as_guide",
    "choose",
    "closing",
    "compile_grammar",
    "find",
    "library",
    "mismatch",
    "read_file",
    "sentence",
]

# Most runs need few of these, and all of them take long to import: each is fetched when it is first asked for.
_HOMES = {
    "after": "After",
    "close": "closing",
    "compile": "KINDS compile_grammar",
    "constraint": "Closable Constraint Guide as_closable as_guide",
    "errors": "GrammarError",
    "explain": "Mismatch mismatch",
    "grammar": "Grammar GrammarState",
    "later": "Later",
    "listing": "Entry find library",
    "sentences": "sentence",
    "spec": "KEYS SUFFIXES Spec choose read_file",
    "vocabulary": "BYTES Vocabulary",
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names.split():
            found: object = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
