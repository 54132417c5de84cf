"""Grammars: which tokens may come next. GBNF, JSON Schema, regular expressions and Lark become token masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .background_constraint import BackgroundConstraint
    from .compile import compile_grammar
    from .constraint import Closable, Constraint, Guide, as_closable, as_guide
    from .errors import GrammarError
    from .grammar import Grammar, GrammarState, shortest_completion
    from .grammar_files import KIND_OF_SUFFIX, read_grammar_file
    from .grammar_spec import GRAMMAR_KEYS, GrammarSpec, grammar_table, resolve_grammar
    from .mismatch import Mismatch, find_mismatch
    from .named_grammars import GrammarEntry, find_grammar, list_grammars
    from .parsed_grammar import KINDS
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
    "grammar_table",
    "list_grammars",
    "random_sentence",
    "read_grammar_file",
    "resolve_grammar",
    "shortest_completion",
]

# A run needs few of these names, and importing all of them takes long.
__getattr__ = lazy_exports(__name__)
