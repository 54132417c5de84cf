"""Grammars: what may come next."""

from .after import After
from .closing import closing
from .compile import KINDS, compile_grammar
from .constraint import Closable, Constraint, Guide, as_closable, as_guide
from .errors import GrammarError
from .explain import Mismatch, mismatch
from .grammar import Grammar, GrammarState
from .later import Later
from .library import Entry, find, library
from .sentence import sentence
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
