"""Grammars: what may come next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .background_constraint import BackgroundConstraint
    from .compile import KINDS, compile_grammar
    from .completion_search import shortest_completion
    from .constraint import Closable, Constraint, Guide, as_closable, as_guide
    from .errors import GrammarError
    from .grammar import Grammar, GrammarState
    from .grammar_spec import GRAMMAR_KEYS, KIND_OF_SUFFIX, GrammarSpec, read_grammar_file, resolve_grammar
    from .mismatch import Mismatch, find_mismatch
    from .named_grammars import GrammarEntry, find_grammar, list_grammars
    from .random_sentences import random_sentence
    from .triggered_constraint import TriggeredConstraint
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

# A run needs few of these names, and importing all of them takes long.
__getattr__ = lazy_exports(
    __name__,
    {
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
    },
)
