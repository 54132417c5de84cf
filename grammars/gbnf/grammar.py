"""A parsed GBNF grammar, and its translation to llguidance's dialect of Lark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..tokenizer import Vocabulary
from .lark import write_lark
from .lexemes import split_into_lexemes
from .nodes import Rules, TokenNode, walk
from .parser import GbnfParser, find_token_ids
from .rules import check_rules, regular_rules, simplify_rules, without_tail_recursion
from .shortest_texts import ShortestTexts


@dataclass(frozen=True, eq=False)
class GbnfGrammar:
    """A parsed GBNF grammar. `parse_gbnf` creates it."""

    source: str
    root: str
    rules: Rules  # the bodies of the rules, by name
    tokens: tuple[TokenNode, ...]  # the token references, in the order of the source

    @cached_property
    def has_token_references(self) -> bool:
        """True if a rule has a token reference, so that the translation depends on the vocabulary."""
        return any(isinstance(node, TokenNode) for body in self.rules.values() for node in walk(body))

    @cached_property
    def shortest_texts(self) -> ShortestTexts:
        return ShortestTexts(self.rules)

    def find_token_ids(self, vocabulary: Vocabulary | None) -> dict[str, int]:
        """Return the ids of the referenced tokens; see `parser.find_token_ids`. Raises ``GrammarError``."""
        return find_token_ids(self.tokens, self.source, vocabulary)

    @cached_property
    def lark(self) -> str:
        """The grammar in llguidance's dialect of Lark. Only for a grammar without token references."""
        return self.lark_with_tokens({}, ())

    def lark_with_tokens(self, token_ids: Mapping[str, int], eog_tokens: Collection[int]) -> str:
        """Translate the grammar to llguidance's Lark. Raises ``GrammarError`` if it is too large."""
        # A negated token reference never matches ``eog_tokens``.
        rules = without_tail_recursion(simplify_rules(self.rules))
        parser_rules = split_into_lexemes(rules, regular_rules(rules), self.root)
        return write_lark(parser_rules, rules, self.root, token_ids, eog_tokens)


def parse_gbnf(source: str, root: str = "root") -> GbnfGrammar:
    """Parse GBNF source and check its rules; see `GbnfParser`. Raises ``GrammarError`` with line and column."""
    parser = GbnfParser(source)
    check_rules(parser, root)
    return GbnfGrammar(source, root, parser.rules, tuple(parser.tokens))
