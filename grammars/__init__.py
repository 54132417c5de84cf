"""Grammars: what may come next."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .triggered_constraint import TriggeredConstraint
    from .completion_search import shortest_completion
    from .compile import KINDS, compile_grammar
    from .constraint import Closable, Constraint, Guide, as_closable, as_guide
    from .errors import GrammarError
    from .mismatch import Mismatch, find_mismatch
    from .grammar import Grammar, GrammarState
    from .background_constraint import BackgroundConstraint
    from .named_grammars import GrammarEntry, find_grammar, list_grammars
    from .random_sentences import random_sentence
    from .grammar_spec import GRAMMAR_KEYS, KIND_OF_SUFFIX, GrammarSpec, read_grammar_file, resolve_grammar
    from .vocabulary import BYTE_VOCABULARY, Vocabulary

__all__ = [
    "BYTE_VOCABULARY",
    "GRAMMAR_KEYS",
    "KINDS",
    "KIND_OF_SUFFIX",
    "BackgroundConstraint",
    "Closable",
    "Constraint",
    "Grammar",
    "GrammarEntry",
    "GrammarError",
    "GrammarSpec",
    "GrammarState",
    "Guide",
    "Mismatch",
    "TriggeredConstraint",
    "Vocabulary",
    "as_closable",
    "as_guide",
    "compile_grammar",
    "find_grammar",
    "find_mismatch",
    "list_grammars",
    "random_sentence",
    "read_grammar_file",
    "resolve_grammar",
    "shortest_completion",
]

# Most runs need few of these, and all of them take long to import: each is fetched when it is first asked for.
_HOMES = {
    "triggered_constraint": "TriggeredConstraint",
    "completion_search": "shortest_completion",
    "compile": "KINDS compile_grammar",
    "constraint": "Closable Constraint Guide as_closable as_guide",
    "errors": "GrammarError",
    "mismatch": "Mismatch find_mismatch",
    "grammar": "Grammar GrammarState",
    "background_constraint": "BackgroundConstraint",
    "named_grammars": "GrammarEntry find_grammar list_grammars",
    "random_sentences": "random_sentence",
    "grammar_spec": "GRAMMAR_KEYS KIND_OF_SUFFIX GrammarSpec resolve_grammar read_grammar_file",
    "vocabulary": "BYTE_VOCABULARY Vocabulary",
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names.split():
            found: object = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
