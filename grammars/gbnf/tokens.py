"""Tokens that a GBNF grammar names: parsing them, and finding their ids in a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import GrammarError
from ..vocabulary import Vocabulary
from .nodes import TokenNode
from .scanner import Scanner

_REFERENCE = re.compile(r"<\[[0-9]{1,10}\]>|<(?!\[)[^>]*>")
_ID = re.compile(r"<\[([0-9]+)\]>")


def parse_token(scanner: Scanner) -> TokenNode:
    """Parse ``<[id]>`` or ``<text>``, with or without ``!`` before it. Raises ``GrammarError``."""
    start = scanner.position
    is_negated = scanner.peek() == "!"
    scanner.position += is_negated
    match = scanner.take(_REFERENCE)
    if match is None:
        scanner.fail("a token is <text> or <[id]>", start)
    return TokenNode(match.group(), is_negated, start)


def find_token_ids(nodes: Iterable[TokenNode], source: str, vocabulary: Vocabulary | None) -> dict[str, int]:
    """Return the id of each token, by its reference.

    Raises ``GrammarError`` for a token that the vocabulary does not have, and for one that ends a text and is not
    negated.

    Args:
        nodes: the tokens.
        source: the grammar's text, for error messages.
        vocabulary: where to look; None: only ``<[id]>`` is accepted.
    """
    ids: dict[str, int] = {}
    for node in nodes:
        try:
            ids[node.reference] = _find_token_id(node, vocabulary)
        except GrammarError as error:
            raise GrammarError.at(error.message, source, node.position) from None
    return ids


def _find_token_id(node: TokenNode, vocabulary: Vocabulary | None) -> int:
    numbered = _ID.fullmatch(node.reference)
    if vocabulary is None:
        if numbered is None:
            raise GrammarError(f"{node.reference} names a token, but there is no vocabulary to find it in")
        return int(numbered[1])
    if numbered is not None:
        token = int(numbered[1])
    else:
        tokens = vocabulary.tokenize(node.reference.encode(), special=True)
        if len(tokens) != 1:
            raise GrammarError(f"{node.reference} is not one token of this model, but {len(tokens)}")
        token = tokens[0]
    if token in vocabulary.eog and not node.negated:
        raise GrammarError("this token ends the text; it may come where the grammar ends, and nowhere else")
    if token >= vocabulary.size:
        raise GrammarError(f"{node.reference}: token ids go from 0 to {vocabulary.size - 1}")
    return token
