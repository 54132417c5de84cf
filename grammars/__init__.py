"""Grammars that restrict the next token. GBNF, JSON Schema, regular expressions and Lark become token masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .constraint import Constraint
    from .errors import GrammarError
    from .grammar import KINDS, Grammar, GrammarState, compile_grammar, shortest_completion
    from .mismatch import Mismatch, find_mismatch
    from .random_sentences import random_sentence
    from .search import GrammarEntry, find_grammar, list_grammars
    from .spec import GrammarSpec, resolve_grammar
    from .tokenizer import BYTE_VOCABULARY, Vocabulary
__all__ = [
    "BYTE_VOCABULARY",
    "KINDS",
    "Constraint",
    "Grammar",
    "GrammarEntry",
    "GrammarError",
    "GrammarSpec",
    "GrammarState",
    "Mismatch",
    "Vocabulary",
    "compile_grammar",
    "find_grammar",
    "find_mismatch",
    "list_grammars",
    "random_sentence",
    "resolve_grammar",
    "shortest_completion",
]
__getattr__, __dir__ = lazy_exports(__name__)
