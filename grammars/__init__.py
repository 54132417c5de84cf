"""Grammars that restrict the next token. GBNF, JSON Schema, regular expressions and Lark become token masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .constraint import Constraint as Constraint
    from .errors import GrammarError as GrammarError
    from .grammar import (
        KINDS as KINDS,
        Grammar as Grammar,
        GrammarState as GrammarState,
        compile_grammar as compile_grammar,
        shortest_completion as shortest_completion,
    )
    from .mismatch import Mismatch as Mismatch, find_mismatch as find_mismatch
    from .random_sentences import random_sentence as random_sentence
    from .search import GrammarEntry as GrammarEntry, find_grammar as find_grammar, list_grammars as list_grammars
    from .spec import GrammarSpec as GrammarSpec, resolve_grammar as resolve_grammar
    from .tokenizer import BYTE_VOCABULARY as BYTE_VOCABULARY, Vocabulary as Vocabulary

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".constraint": ("Constraint",),
        ".errors": ("GrammarError",),
        ".grammar": ("KINDS", "Grammar", "GrammarState", "compile_grammar", "shortest_completion"),
        ".mismatch": ("Mismatch", "find_mismatch"),
        ".random_sentences": ("random_sentence",),
        ".search": ("GrammarEntry", "find_grammar", "list_grammars"),
        ".spec": ("GrammarSpec", "resolve_grammar"),
        ".tokenizer": ("BYTE_VOCABULARY", "Vocabulary"),
    },
)
