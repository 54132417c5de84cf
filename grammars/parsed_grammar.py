"""A grammar's text, parsed once for any number of vocabularies and generations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llguidance import regex_to_lark

from .errors import GrammarError, line_and_column
from .gbnf.gbnf_grammar import GbnfGrammar, parse_gbnf
from .json_schema import ONE_LINE_STYLE, json_schema_to_lark, parse_json_schema
from .limits import MAX_SOURCE_CHARACTERS
from .schema_errors import loosen
from .schema_keywords import remove_unsupported
from .vocabulary import Vocabulary

KINDS = ("gbnf", "json_schema", "regex", "lark")

# Where text is forced, llguidance's masks would allow only the tokens that it would choose itself.
_OPTIONS = '%llguidance {"no_forcing": true}\n'

_LITERALS_AND_COMMENTS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//.*|#.*')
_TOKEN_REFERENCE = re.compile(r"<[^<>\n]+>")


@dataclass(frozen=True, eq=False)
class ParsedGrammar:
    """What a grammar's text says; made by `parse_grammar`.

    Attributes:
        source: the text.
        kind: one of ``KINDS``.
        root: the rule with which sentences begin; only GBNF has it.
        names_tokens: True if it names tokens, so that text alone cannot say whether it is a sentence.
        gbnf: the rules of a GBNF grammar, None for the other kinds.
        schema: a JSON Schema as it is used, without what is left out; None for the other kinds.
        left_out: the JSON pointers of what is left out of a JSON Schema.
        lenient_lark: a translation for texts from elsewhere, whose blanks may differ; None if it is the same.
    """

    source: str
    kind: str
    root: str
    names_tokens: bool = False
    gbnf: GbnfGrammar | None = None
    schema: dict[str, Any] | None = None
    left_out: tuple[str, ...] = ()
    lenient_lark: str | None = None
    _lark: str = ""  # the translation, except for GBNF

    def to_lark(self, vocabulary: Vocabulary) -> str:
        """Translate the grammar to llguidance's Lark dialect.

        Raises ``GrammarError`` for tokens that the vocabulary does not have, and for grammars that are too large.
        """
        if self.gbnf is None:
            return self._lark
        token_ids = self.gbnf.find_token_ids(vocabulary)
        if not self.names_tokens:
            return self.gbnf.lark + _OPTIONS
        return self.gbnf.lark_with_tokens(token_ids, vocabulary.eog) + _OPTIONS


# A batch asks for the same few grammars again and again.
@lru_cache(maxsize=16)
def parse_grammar(
    source: str, kind: str = "gbnf", root: str = "root", schema_lenient: bool = False
) -> ParsedGrammar:
    """Parse a grammar. Raises ``GrammarError``, with line and column where the mistake has a position.

    Args:
        source: the grammar's text.
        kind: one of ``KINDS``.
        root: the rule with which sentences of a GBNF grammar begin.
        schema_lenient: leave out what is not supported in a JSON Schema, instead of refusing it.
    """
    if kind not in KINDS:
        raise GrammarError(f"unknown kind of grammar {kind!r}; there are {', '.join(KINDS)}")
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise GrammarError(
            f"the grammar has {len(source):,} characters; at most {MAX_SOURCE_CHARACTERS:,} are read"
        )
    _refuse_surrogates(source)
    match kind:
        case "gbnf":
            gbnf = parse_gbnf(source, root)
            return ParsedGrammar(source, kind, root, gbnf.names_tokens, gbnf)
        case "json_schema":
            return _parse_schema(source, root, schema_lenient)
        case "regex":
            return ParsedGrammar(source, kind, root, _lark=_regex_to_lark(source) + _OPTIONS)
        case _:
            return ParsedGrammar(source, kind, root, _lark_names_tokens(source), _lark=f"{source}\n{_OPTIONS}")


def _parse_schema(source: str, root: str, is_lenient: bool) -> ParsedGrammar:
    schema = parse_json_schema(source)
    is_lenient = is_lenient or schema.get("x-guidance", {}).get("lenient") is True
    left_out = remove_unsupported(schema, is_lenient=is_lenient)
    if is_lenient:
        left_out += loosen(schema)
    return ParsedGrammar(
        source,
        "json_schema",
        root,
        schema=schema,
        left_out=tuple(left_out),
        lenient_lark=json_schema_to_lark(schema, {}) + _OPTIONS,
        _lark=json_schema_to_lark(schema, ONE_LINE_STYLE) + _OPTIONS,
    )


def _refuse_surrogates(source: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError as error:
        # Without an excerpt, which could not be printed.
        line, column = line_and_column(source, error.start)
        raise GrammarError("half of a surrogate pair is not a character", line, column) from None


def _regex_to_lark(source: str) -> str:
    """A regular expression that the whole text has to match."""
    trailing_backslashes = len(source) - len(source.rstrip("\\"))
    if trailing_backslashes % 2:
        raise GrammarError.at("nothing follows this backslash", source, len(source) - 1)
    return f"start: /{regex_to_lark(source, use_ascii='')}/\n"


def _lark_names_tokens(source: str) -> bool:
    """True if a Lark grammar has a token in angle brackets outside of its literals and comments."""
    return _TOKEN_REFERENCE.search(_LITERALS_AND_COMMENTS.sub("", source)) is not None
