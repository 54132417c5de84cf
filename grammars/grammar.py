"""From the text of a grammar to its masks.

A text is parsed once for any number of vocabularies and generations: `ParsedGrammar`. A `Grammar` is compiled for
one vocabulary, and a `GrammarState` is the state of one text that follows the grammar.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, regex_to_lark
from numpy.typing import NDArray

from ..common.renamed import supports_old_names
from .completion_search import search_completion
from .errors import GrammarError, line_and_column, translate_engine_error
from .gbnf.completion import shortest_suffix
from .gbnf.grammar import GbnfGrammar, parse_gbnf
from .json_schema import ONE_LINE_STYLE, json_schema_to_lark, parse_json_schema, remove_unsupported
from .schema_errors import loosen, schema_error
from .tokenizer import (
    BYTE_VOCABULARY,
    MAX_COMPLETION_BYTES,
    MAX_SOURCE_CHARACTERS,
    PARSER_LIMITS,
    SEARCH_LIMITS,
    Vocabulary,
    tokenizer_of,
)

KINDS = ("gbnf", "json_schema", "regex", "lark")


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
            ``Grammar.parsed.ignored_schema_paths`` has the JSON pointers of it.
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


@supports_old_names
class Grammar:
    """A grammar for the tokens of a vocabulary; made by `compile_grammar`.

    Attributes:
        parsed: the grammar without a vocabulary.
        source: its text.
        kind: ``gbnf``, ``json_schema``, ``regex`` or ``lark``.
        root: the rule with which sentences begin.
        vocabulary: the tokens of the masks.
        tokenizer: llguidance's tokenizer of this vocabulary.
        lark: what llguidance reads.
    """

    def __init__(
        self, parsed: ParsedGrammar, vocabulary: Vocabulary, lark: str, limits: LLParserLimits = PARSER_LIMITS
    ) -> None:
        self.parsed = parsed
        self.source, self.kind, self.root = parsed.source, parsed.kind, parsed.root
        self.vocabulary = vocabulary
        self.lark = lark
        self.tokenizer = tokenizer_of(vocabulary)
        self._matcher = LLMatcher(self.tokenizer, lark, log_level=0, limits=limits)

    @property
    def has_token_references(self) -> bool:
        """True if the grammar refers to tokens, as in ``<think>``: then text alone does not decide a match."""
        return self.parsed.has_token_references

    @property
    def ignored_outer_whitespace(self) -> str:
        """The characters that may surround a text: JSON's blanks for a JSON Schema, none for other kinds."""
        return " \t\r\n" if self.kind == "json_schema" else ""

    @property
    def engine_error(self) -> str:
        """llguidance's message about the grammar; empty if there is nothing wrong."""
        return self._matcher.get_error()

    def start(self) -> GrammarState:
        """The state of an empty text."""
        return GrammarState(self, self._matcher.deep_copy())

    def matches(self, text: str | bytes) -> bool:
        """True if the text is a whole sentence of the grammar."""
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError:
            return False  # half of a surrogate pair is in no sentence
        data = data.strip(self.ignored_outer_whitespace.encode())
        grammar = self.text_matching_grammar
        state = grammar.start()
        tokens = grammar.vocabulary.tokenize(data, special=self.has_token_references)
        return state.accept_prefix(tokens) == len(tokens) and state.is_complete

    @cached_property
    def byte_grammar(self) -> Grammar:
        """The same grammar over single bytes; the grammar itself if it names tokens."""
        if self.has_token_references or self.vocabulary is BYTE_VOCABULARY:
            return self
        return Grammar(self.parsed, BYTE_VOCABULARY, self.lark)

    @cached_property
    def text_matching_grammar(self) -> Grammar:
        """The grammar that texts from elsewhere are matched with: over bytes, and lenient about JSON's blanks."""
        lenient_lark = self.parsed.lenient_lark
        return self.byte_grammar if lenient_lark is None else Grammar(self.parsed, BYTE_VOCABULARY, lenient_lark)


_CONTEXT_TOKENS = 8
"""How many tokens the tokenizer sees before a forced text; none looks further back to decide how it goes on."""

_SHOWN_BYTES = 30
"""Bytes of the text before a token that a message quotes."""

_DEAD_END = "NoExtensionBias"
"""llguidance's error when no token can write what must come next."""

# llguidance writes a token that is named into forced text as 0xFF and [id]; no text has this byte.
_TOKEN_MARK = b"\xff["
_MARKED_TOKEN = re.compile(rb"\xff\[([0-9]+)\]")


@supports_old_names
class GrammarState:
    """The state of one text that follows a grammar. A `Constraint`."""

    def __init__(self, grammar: Grammar, matcher: LLMatcher) -> None:
        self.grammar = grammar
        self._vocabulary = grammar.vocabulary
        self._matcher = matcher
        self._mask_words = np.zeros((grammar.tokenizer.vocab_size + 31) // 32, dtype=np.uint32)
        self._last_tokens: deque[int] = deque(maxlen=_CONTEXT_TOKENS)
        self._text = bytearray()
        self._has_ended = False

    def copy(self) -> GrammarState:
        """An independent state of the same text."""
        other = GrammarState(self.grammar, self._matcher.deep_copy())
        other._last_tokens = self._last_tokens.copy()
        other._text, other._has_ended = self._text.copy(), self._has_ended
        return other

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,); end-of-generation tokens where the text may end.

        Raises ``GrammarError`` when the grammar is too ambiguous, or no token can write what must come next.
        """
        if self._has_ended:
            return np.zeros(self._vocabulary.size, dtype=np.bool_)
        self._matcher.unsafe_compute_mask_ptr(self._mask_words.ctypes.data, self._mask_words.nbytes)
        self._check()
        bits = np.unpackbits(self._mask_words.view(np.uint8), count=self._vocabulary.size, bitorder="little")
        return bits.view(np.bool_)

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next, whatever the model says; often none."""
        data = self._marked_forced_text()
        if not data:
            return []
        token = _MARKED_TOKEN.match(data)
        if token:
            return [int(token[1])]
        data = data.split(_TOKEN_MARK, 1)[0]
        tokens, _ = self.grammar.tokenizer.tokenize_partial(data, list(self._last_tokens))
        return tokens[: self._matcher.validate_tokens(tokens)]

    def accept(self, token: int) -> None:
        """Append one token. Raises ``GrammarError`` if the mask would have refused it."""
        if token in self._vocabulary.eog and self.is_complete and not self._has_ended:
            self._has_ended = True
            return
        if self.accept_prefix([token]) == 0:
            raise GrammarError(f"the grammar does not allow token {token}, {self._describe(token)}")

    def _describe(self, token: int) -> str:
        """The text of a token that is not allowed, and the text before it."""
        if not 0 <= token < self._vocabulary.size:
            return "which is not an id of the vocabulary"
        text = self._vocabulary.pieces[token].decode(errors="backslashreplace")
        before = self._text[-_SHOWN_BYTES:].decode(errors="ignore")
        return f"{text!r}, {f'after {before!r}' if before else 'at the beginning of the text'}"

    def accept_prefix(self, tokens: list[int]) -> int:
        """Append as many of these tokens as are allowed; return how many these were."""
        if self._has_ended or any(not 0 <= token < self._vocabulary.size for token in tokens):
            return 0
        count = self._matcher.try_consume_tokens(tokens)
        self._check()
        self._last_tokens.extend(tokens[:count])
        for token in tokens[:count]:
            self._text += self._vocabulary.pieces[token]
        return count

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` bytes of the text of a grammar over single bytes."""
        if count:
            self._matcher.rollback(count)
            self._check()
            del self._text[-count:]
            self._last_tokens = deque(self._text[-_CONTEXT_TOKENS:], maxlen=_CONTEXT_TOKENS)

    def completion_tokens(self) -> list[int]:
        """The tokens that make the text a whole sentence; see `shortest_completion`. Raises ``GrammarError``."""
        completion = shortest_completion(self.grammar, self.text)
        if len(completion) > MAX_COMPLETION_BYTES:
            size = f"{len(completion):,} bytes; at most {MAX_COMPLETION_BYTES:,} are written"
            raise GrammarError(f"the end of the sentence has {size}")
        tokens = self.grammar.tokenizer.tokenize_bytes(completion)
        if self.copy().accept_prefix(tokens) < len(tokens):
            raise GrammarError("the vocabulary cannot write the end of the sentence")
        return tokens

    @property
    def is_complete(self) -> bool:
        """True if the text is a whole sentence."""
        return self._has_ended or self._matcher.is_accepting()

    @property
    def text(self) -> bytes:
        """The text of the accepted tokens."""
        return bytes(self._text)

    @property
    def forced_text(self) -> bytes:
        """The text that must come next, as far as it is certain, up to a token that is named."""
        return self._marked_forced_text().split(_TOKEN_MARK, 1)[0]

    @property
    def description(self) -> dict[str, str]:
        """The grammar's kind, root and source, for a record of the run."""
        return {"kind": self.grammar.kind, "root": self.grammar.root, "source": self.grammar.source}

    def _marked_forced_text(self) -> bytes:
        """The forced text as llguidance writes it, with marks for tokens that are named."""
        if self._has_ended:
            return b""
        # Where tokens are named, this call changes the matcher's later answers.
        matcher = self._matcher.deep_copy() if self.grammar.has_token_references else self._matcher
        return matcher.compute_ff_bytes()

    def _check(self) -> None:
        if self._matcher.is_error():
            message = self._matcher.get_error().split("\n")[0]
            if message == _DEAD_END:
                raise GrammarError("no token of the vocabulary can write what the grammar asks for next")
            raise GrammarError(f"the grammar is too ambiguous, or never ends: {message}")


def shortest_completion(grammar: Grammar, text: bytes) -> bytes:
    """Return a text that makes ``text`` a whole sentence of the grammar.

    For GBNF it is the shortest one, in characters. For the other kinds a search finds a short one; see
    `search_completion`. Raises ``GrammarError`` where the grammar names tokens, no sentence begins with the text,
    or no end is found.
    """
    if grammar.has_token_references:
        raise GrammarError("a grammar that names tokens cannot be closed by text")
    if grammar.parsed.gbnf is not None:
        return shortest_suffix(grammar.parsed.gbnf, text)
    state = Grammar(grammar.parsed, BYTE_VOCABULARY, grammar.lark, SEARCH_LIMITS).start()
    if state.accept_prefix(list(text)) < len(text):
        raise GrammarError("the text does not begin a sentence of the grammar")
    return search_completion(state)


# Where text is forced, llguidance's masks would allow only the tokens that it would choose itself.
_OPTIONS = '%llguidance {"no_forcing": true}\n'


@supports_old_names
@dataclass(frozen=True, eq=False)
class ParsedGrammar:
    """What a grammar's text says; made by `parse_grammar`.

    Attributes:
        source: the text.
        kind: one of ``KINDS``.
        root: the rule with which sentences begin; only GBNF has it.
        has_token_references: True if it names tokens, so that text alone cannot say whether it is a sentence.
        gbnf: the rules of a GBNF grammar, None for the other kinds.
        schema: a JSON Schema as it is used, without what is left out; None for the other kinds.
        ignored_schema_paths: the JSON pointers of what is left out of a JSON Schema.
        lenient_lark: a translation for texts from elsewhere, whose blanks may differ; None if it is the same.
    """

    source: str
    kind: str
    root: str
    has_token_references: bool = False
    gbnf: GbnfGrammar | None = None
    schema: dict[str, Any] | None = None
    ignored_schema_paths: tuple[str, ...] = ()
    lenient_lark: str | None = None
    _lark: str = ""  # the translation, except for GBNF

    def to_lark(self, vocabulary: Vocabulary) -> str:
        """Translate the grammar to llguidance's Lark dialect.

        Raises ``GrammarError`` for tokens that the vocabulary does not have, and for grammars that are too large.
        """
        if self.gbnf is None:
            return self._lark
        token_ids = self.gbnf.find_token_ids(vocabulary)
        if not self.has_token_references:
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
            return ParsedGrammar(source, kind, root, gbnf.has_token_references, gbnf)
        case "json_schema":
            return _parse_schema(source, root, schema_lenient)
        case "regex":
            return ParsedGrammar(source, kind, root, _lark=_regex_to_lark(source) + _OPTIONS)
        case _:
            return ParsedGrammar(source, kind, root, _lark_names_tokens(source), _lark=f"{source}\n{_OPTIONS}")


def _parse_schema(source: str, root: str, is_lenient: bool) -> ParsedGrammar:
    schema = parse_json_schema(source)
    is_lenient = is_lenient or schema.get("x-guidance", {}).get("lenient") is True
    ignored_paths = remove_unsupported(schema, is_lenient=is_lenient)
    if is_lenient:
        ignored_paths += loosen(schema)
    return ParsedGrammar(
        source,
        "json_schema",
        root,
        schema=schema,
        ignored_schema_paths=tuple(ignored_paths),
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


_LITERALS_AND_COMMENTS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//.*|#.*')
_TOKEN_REFERENCE = re.compile(r"<[^<>\n]+>")


def _lark_names_tokens(source: str) -> bool:
    """True if a Lark grammar has a token in angle brackets outside of its literals and comments."""
    return _TOKEN_REFERENCE.search(_LITERALS_AND_COMMENTS.sub("", source)) is not None
