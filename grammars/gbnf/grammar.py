"""GBNF as a grammar that llguidance can run."""

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
    """The rules of a GBNF text; made by `parse_gbnf`.

    ``source``: the text; ``root``: the rule with which sentences begin; ``rules``: the bodies by name;
    ``tokens``: the tokens that the text names, in its order.
    """

    source: str
    root: str
    rules: Rules
    tokens: tuple[TokenNode, ...]

    @cached_property
    def has_token_references(self) -> bool:
        """True if a rule names a token, so that the translation depends on the vocabulary."""
        return any(isinstance(node, TokenNode) for body in self.rules.values() for node in walk(body))

    @cached_property
    def shortest_texts(self) -> ShortestTexts:
        """The shortest text of each rule."""
        return ShortestTexts(self.rules)

    def find_token_ids(self, vocabulary: Vocabulary | None) -> dict[str, int]:
        """The ids of the tokens that the text names; see `parser.find_token_ids`. Raises ``GrammarError``."""
        return find_token_ids(self.tokens, self.source, vocabulary)

    @cached_property
    def lark(self) -> str:
        """The grammar in llguidance's Lark dialect; only for a grammar that names no tokens."""
        return self.lark_with_tokens({}, ())

    def lark_with_tokens(self, token_ids: Mapping[str, int], eog: Collection[int]) -> str:
        """Translate the grammar to llguidance's Lark dialect.

        ``token_ids``: the ids of `find_token_ids`; ``eog``: the end-of-generation tokens, which no negated token
        matches. Raises ``GrammarError`` for a grammar that is too large.
        """
        rules = without_tail_recursion(simplify_rules(self.rules))
        parts = split_into_lexemes(rules, regular_rules(rules), self.root)
        return write_lark(parts, rules, self.root, token_ids, eog)


def parse_gbnf(source: str, root: str = "root") -> GbnfGrammar:
    """Parse a GBNF text and check its rules; see `GbnfParser`. Raises ``GrammarError`` with line and column."""
    parser = GbnfParser(source)
    check_rules(parser, root)
    return GbnfGrammar(source, root, parser.rules, tuple(parser.tokens))
