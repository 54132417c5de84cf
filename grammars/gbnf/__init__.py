"""GBNF, llama.cpp's notation of grammars, and its translation to llguidance's dialect of Lark."""

from .completion import shortest_suffix
from .gbnf_grammar import GbnfGrammar, parse_gbnf
from .nodes import Node, Rules
from .shortest_texts import ShortestTexts

__all__ = ["GbnfGrammar", "Node", "Rules", "ShortestTexts", "parse_gbnf", "shortest_suffix"]
