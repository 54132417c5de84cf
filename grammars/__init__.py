"""Grammars: what may come next."""

from .after import After
from .closing import closing
from .compile import KINDS, compile_grammar
from .constraint import Constraint
from .errors import GrammarError
from .explain import Mismatch, mismatch
from .grammar import Grammar, GrammarState
from .library import Entry, find, library
from .sentence import sentence
from .vocabulary import BYTES, Vocabulary

__all__ = [
    "BYTES",
    "KINDS",
    "After",
    "Constraint",
    "Entry",
    "Grammar",
    "GrammarError",
    "GrammarState",
    "Mismatch",
    "Vocabulary",
    "closing",
    "compile_grammar",
    "find",
    "library",
    "mismatch",
    "sentence",
]
