"""From the text of a grammar to its masks."""

from __future__ import annotations

from .engine_errors import translate_engine_error
from .grammar import Grammar
from .parsed_grammar import ParsedGrammar, parse_grammar
from .schema_errors import schema_error
from .vocabulary import BYTE_VOCABULARY, Vocabulary


def compile_grammar(
    source: str,
    vocab: Vocabulary | None = None,
    kind: str = "gbnf",
    root: str = "root",
    *,
    schema_lenient: bool = False,
) -> Grammar:
    """Compile a grammar for the tokens of a vocabulary.

    Under a JSON Schema the masks write JSON on one line, with one space after each comma and colon, while
    `Grammar.matches` accepts blanks wherever JSON does. Raises ``GrammarError``, with line and column where the
    mistake has a position.

    Args:
        source: the grammar's text.
        vocab: the tokens of the masks; None: single bytes, which is enough to match texts.
        kind: ``gbnf`` (as llama.cpp reads it), ``json_schema`` (text), ``regex`` (Rust's syntax; the whole text
            has to match) or ``lark`` (llguidance's dialect).
        root: the rule with which sentences of a GBNF grammar begin.
        schema_lenient: leave out what is not supported in a JSON Schema, instead of refusing it;
            ``Grammar.parsed.left_out`` has the JSON pointers of it.
    """
    return compile_parsed_grammar(parse_grammar(source, kind, root, schema_lenient), vocab)


def compile_parsed_grammar(parsed: ParsedGrammar, vocabulary: Vocabulary | None = None) -> Grammar:
    """Compile a grammar that was parsed before; see `compile_grammar`. Raises ``GrammarError``."""
    vocabulary = BYTE_VOCABULARY if vocabulary is None else vocabulary
    grammar = Grammar(parsed, vocabulary, parsed.to_lark(vocabulary))
    if grammar.engine_error and parsed.schema is not None:
        raise schema_error(grammar.engine_error, parsed.schema)
    if grammar.engine_error:
        raise translate_engine_error(grammar.engine_error, parsed.kind, parsed.source)
    return grammar
