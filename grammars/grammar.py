"""Parsing and compiling of grammars, and the masks of a text that follows a grammar.

The source of a grammar is parsed once into a `ParsedGrammar`. It is then compiled for a vocabulary into a
`Grammar`. Each text that follows the grammar has its own `GrammarState`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, regex_to_lark
from numpy.typing import NDArray

from .completion_search import bytes_without_token, search_completion, spell, suppressed_tokens
from .errors import LENIENT_HINT, GrammarError, first_line, line_and_column, source_error
from .gbnf.completion import shortest_suffix
from .gbnf.grammar import GbnfGrammar, parse_gbnf
from .json_text import JsonText, read_json_text
from .key_order import KeyOrder, ranks_of_keys
from .matcher import new_matcher
from .pattern_trial import check_patterns
from .sample_text import hints_of
from .schema_errors import schema_error
from .schema_grammar import NoJsonError, compile_schema
from .tokenizer import (
    BYTE_VOCABULARY,
    MAX_COMPLETION_BYTES,
    MAX_SOURCE_CHARACTERS,
    PARSER_LIMITS,
    SEARCH_LIMITS,
    WALK_LIMITS,
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

    Under a JSON Schema, the masks only allow JSON on one line with one space after each comma and colon.
    `Grammar.matches` accepts any whitespace, escapes and spellings of numbers that JSON allows. Raises
    ``GrammarError``, with line and column if the error has a position.

    Args:
        source: the text of the grammar.
        vocab: the vocabulary whose tokens the masks allow; None = single bytes, which is enough to match texts.
        kind: ``gbnf`` (as llama.cpp reads it), ``json_schema``, ``regex`` (Rust's syntax; the complete text must
            match) or ``lark`` (llguidance's dialect).
        root: the start rule of a GBNF grammar.
        schema_lenient: True to ignore unsupported keywords of a JSON Schema; False to raise ``GrammarError`` for
            them. ``Grammar.parsed.ignored_schema_paths`` has the JSON pointers of the ignored keywords, and of
            unknown keywords and formats, which are always ignored.
    """
    return compile_parsed_grammar(parse_grammar(source, kind, root, schema_lenient), vocab)


def compile_parsed_grammar(parsed: ParsedGrammar, vocabulary: Vocabulary | None = None) -> Grammar:
    vocabulary = BYTE_VOCABULARY if vocabulary is None else vocabulary
    grammar = Grammar(parsed, vocabulary, parsed.to_lark(vocabulary))
    if grammar.engine_error and parsed.lenient_lark is not None:
        try:
            parsed = parsed.translated
        except NoJsonError:  # llguidance's error says why
            raise schema_error(grammar.engine_error, parsed.schema or {}) from None
        grammar = Grammar(parsed, vocabulary, parsed.to_lark(vocabulary))
    if grammar.engine_error and parsed.translated_schema_paths:
        path, problem = parsed.translated_schema_paths[0], first_line(grammar.engine_error)
        raise GrammarError(f"{path}: the translation is too large: {problem}", advice=LENIENT_HINT)
    if grammar.engine_error and parsed.schema is not None:
        raise schema_error(grammar.engine_error, parsed.schema)
    if grammar.engine_error:
        raise source_error(grammar.engine_error, parsed.kind, parsed.source)
    parsed.check_use()
    return grammar


class Grammar:
    """A grammar that is compiled for a vocabulary. `compile_grammar` creates it.

    Attributes:
        parsed: the grammar before it is compiled for a vocabulary.
        source: the text of the grammar.
        kind: ``gbnf``, ``json_schema``, ``regex`` or ``lark``.
        root: the start rule of a GBNF grammar.
        vocabulary: the vocabulary whose tokens the masks allow.
        tokenizer: llguidance's tokenizer of this vocabulary.
        lark: the grammar in llguidance's dialect of Lark.
    """

    def __init__(
        self, parsed: ParsedGrammar, vocabulary: Vocabulary, lark: str, limits: LLParserLimits = PARSER_LIMITS
    ) -> None:
        self.parsed = parsed
        self.source = parsed.source
        self.kind = parsed.kind
        self.root = parsed.root
        self.vocabulary = vocabulary
        self.lark = lark
        self.tokenizer = tokenizer_of(vocabulary)
        self._limits = limits
        self._matcher = new_matcher(vocabulary, lark, limits)

    @property
    def has_token_references(self) -> bool:
        """True if the grammar refers to tokens, as in ``<think>``: then text alone does not decide a match."""
        return self.parsed.has_token_references

    @property
    def ignored_outer_whitespace(self) -> str:
        """Whitespace characters that may surround a matched text: JSON's for a JSON Schema, otherwise none."""
        return " \t\r\n" if self.kind == "json_schema" else ""

    @property
    def engine_error(self) -> str:
        """llguidance's error message about the grammar; empty if the grammar is valid."""
        return self._matcher.get_error()

    def start(self) -> GrammarState:
        """Return the state of an empty text."""
        return GrammarState(self, self._matcher.deep_copy())

    def renew(self) -> None:
        """Compile the grammar again. After an error in one text, llguidance would fail in all other texts, too."""
        self._matcher = new_matcher(self.vocabulary, self.lark, self._limits)

    def matches(self, text: str | bytes) -> bool:
        """Return True if the text is a complete sentence of the grammar.

        Under a JSON Schema, strings may have any escape of JSON, numbers any spelling, and objects any order of
        their keys.
        """
        try:
            whole_text = text if isinstance(text, str) else text.decode()
            data = self.spell_text(whole_text).text.encode()
        except UnicodeDecodeError:
            data = text if isinstance(text, bytes) else b""  # Lark may match bytes that are no characters
        except UnicodeEncodeError:
            return False  # no sentence contains half of a surrogate pair
        data = data.strip(self.ignored_outer_whitespace.encode())
        return self._is_sentence(data) or self.in_key_order(data.decode(errors="replace")) is not None

    def _is_sentence(self, data: bytes) -> bool:
        grammar = self.text_matching_grammar
        state = grammar.start()
        tokens = grammar.vocabulary.tokenize(data, special=self.has_token_references)
        if state.accept_prefix(tokens) < len(tokens):
            state.check_limits()
            return False
        return state.is_complete

    def in_key_order(self, text: str) -> str | None:
        """Return a JSON text with its keys in the order of the schema; None if there is no such text."""
        if self.parsed.schema is None:
            return None
        order = KeyOrder(ranks_of_keys(self.parsed.schema))
        return order.find(text, _OrderedState(self.text_matching_grammar.start()))

    def spell_text(self, text: str) -> JsonText:
        """Return a text in the spelling of the grammar. Only the spelling of JSON may be changed."""
        if self.kind == "json_schema":
            return read_json_text(text, on_one_line=self.parsed.lenient_lark is None)
        return JsonText(text, starts=(0,), original_starts=(0,))

    @cached_property
    def byte_grammar(self) -> Grammar:
        """This grammar compiled for single bytes; the grammar itself if it has token references."""
        if self.has_token_references or self.vocabulary is BYTE_VOCABULARY:
            return self
        return Grammar(self.parsed, BYTE_VOCABULARY, self.lark)

    @cached_property
    def text_matching_grammar(self) -> Grammar:
        """The grammar that `matches` uses: compiled for single bytes, and with any whitespace in JSON."""
        if self.parsed.lenient_lark is None:
            return self.byte_grammar
        return Grammar(self.parsed, BYTE_VOCABULARY, self.parsed.lenient_lark)


# Number of preceding tokens that the tokenizer gets with a forced text. No tokenizer looks back further.
_CONTEXT_TOKENS = 8

_MAX_QUOTED_BYTES = 30  # maximum length of the text before a rejected token that an error message quotes, bytes

_DEAD_END_ERROR = "NoExtensionBias"  # llguidance's error if no token has the bytes that must come next

# In forced text, llguidance writes a token reference as byte 0xFF and [id]. UTF-8 text never contains this byte.
_TOKEN_MARK = b"\xff["
_MARKED_TOKEN = re.compile(rb"\xff\[([0-9]+)\]")


class GrammarState:
    """The state of one text that follows a grammar. A `Constraint`."""

    def __init__(self, grammar: Grammar, matcher: LLMatcher) -> None:
        self.grammar = grammar
        self._vocabulary = grammar.vocabulary
        self._matcher = matcher
        self._mask_words = np.zeros((grammar.tokenizer.vocab_size + 31) // 32, dtype=np.uint32)
        self._tokens: list[int] = []
        self._text = bytearray()
        self._has_ended = False
        self._suppressed_tokens = suppressed_tokens(grammar.vocabulary)

    def copy(self) -> GrammarState:
        """Return an independent copy of the state."""
        state_copy = GrammarState(self.grammar, self._matcher.deep_copy())
        state_copy._tokens = self._tokens.copy()
        state_copy._text = self._text.copy()
        state_copy._has_ended = self._has_ended
        return state_copy

    def mask(self) -> NDArray[np.bool_]:
        """Return the mask of the allowed next tokens, bool (V,).

        End-of-generation tokens are allowed if the text is a complete sentence. Raises ``GrammarError`` if the
        grammar is too ambiguous, or if no token has the bytes that must come next.
        """
        if self._has_ended:
            return np.zeros(self._vocabulary.size, dtype=np.bool_)
        self._matcher.unsafe_compute_mask_ptr(self._mask_words.ctypes.data, self._mask_words.nbytes)
        self._raise_engine_error()
        bits = np.unpackbits(self._mask_words.view(np.uint8), count=self._vocabulary.size, bitorder="little")
        return bits.view(np.bool_)

    def forced_tokens(self) -> list[int]:
        """Return the ids of the tokens that must come next, before any suppressed token; often none."""
        forced_text = self._marked_forced_text()
        if not forced_text:
            return []
        token_match = _MARKED_TOKEN.match(forced_text)
        if token_match:
            tokens = [int(token_match[1])]
        else:
            forced_text = forced_text.split(_TOKEN_MARK, 1)[0]
            tokens, _ = self.grammar.tokenizer.tokenize_partial(forced_text, self._tokens[-_CONTEXT_TOKENS:])
            tokens = tokens[: self._matcher.validate_tokens(tokens)]
        if self._suppressed_tokens.isdisjoint(tokens):
            return tokens
        return list(takewhile(lambda token: token not in self._suppressed_tokens, tokens))

    def accept(self, token: int) -> None:
        """Append one token. Raises ``GrammarError`` if the mask does not allow the token."""
        if token in self._vocabulary.eog and self.is_complete and not self._has_ended:
            self._has_ended = True
            return
        if self.accept_prefix([token]) == 0:
            self.check_limits()
            raise GrammarError(f"the grammar does not allow token {token}, {self._describe_rejected(token)}")

    def _describe_rejected(self, token: int) -> str:
        """Return the text of a rejected token and the text before it, for an error message."""
        if not 0 <= token < self._vocabulary.size:
            return "which is not an id of the vocabulary"
        text = self._vocabulary.pieces[token].decode(errors="backslashreplace")
        text_before = self._text[-_MAX_QUOTED_BYTES:].decode(errors="ignore")
        place = f"after {text_before!r}" if text_before else "at the beginning of the text"
        return f"{text!r}, {place}"

    def accept_prefix(self, tokens: list[int]) -> int:
        """Append the tokens up to the first that is not allowed. Return the number of appended tokens."""
        has_unknown_token = any(not 0 <= token < self._vocabulary.size for token in tokens)
        if self._has_ended or has_unknown_token:
            return 0
        accepted_count = self._matcher.try_consume_tokens(tokens)
        self._raise_engine_error()
        self._tokens.extend(tokens[:accepted_count])
        for token in tokens[:accepted_count]:
            self._text += self._vocabulary.pieces[token]
        return accepted_count

    def check_limits(self) -> None:
        """Raise ``GrammarError`` if llguidance cannot follow the text."""
        # In this case, `accept_prefix` rejects tokens without an error, but `mask` raises the error.
        self.mask()

    def roll_back(self, count: int) -> None:
        """Remove the last ``count`` tokens."""
        if count and self._has_ended:  # the end token is not part of the matcher's text
            self._has_ended = False
            count -= 1
        if count:
            self._matcher.rollback(count)
            self._raise_engine_error()
            byte_count = sum(len(self._vocabulary.pieces[token]) for token in self._tokens[-count:])
            del self._tokens[-count:]
            del self._text[len(self._text) - byte_count :]

    def completion_tokens(self) -> list[int]:
        """Return the ids of tokens that make the text a complete sentence; see `shortest_completion`.

        No token is a suppressed one: another spelling or another completion is returned instead. Raises
        ``GrammarError`` if no completion is found.
        """
        completion = shortest_completion(self.grammar, self.text)
        tokens: list[int] | None = self._tokenize_completion(completion)
        if tokens and not self._suppressed_tokens.isdisjoint(tokens):
            tokens = spell(completion, self._vocabulary)
            if tokens is None:
                excluded_bytes = bytes_without_token(self._vocabulary)
                other_completion = shortest_completion(self.grammar, self.text, excluded_bytes)
                tokens = spell(other_completion, self._vocabulary)
        if tokens is None or self.copy().accept_prefix(tokens) < len(tokens):
            raise GrammarError("the vocabulary cannot write the end of the sentence")
        return tokens

    def _tokenize_completion(self, completion: bytes) -> list[int]:
        """Return the tokens of a completion. Raises ``GrammarError`` for one that is too long to check."""
        if len(completion) > MAX_COMPLETION_BYTES:
            raise GrammarError(
                f"the end of the sentence has {len(completion):,} bytes; the limit is {MAX_COMPLETION_BYTES:,}"
            )
        return self.grammar.tokenizer.tokenize_bytes(completion)

    @property
    def is_complete(self) -> bool:
        """True if the text is a complete sentence."""
        return self._has_ended or self._matcher.is_accepting()

    @property
    def text(self) -> bytes:
        """The text of the accepted tokens."""
        return bytes(self._text)

    @property
    def forced_text(self) -> bytes:
        """The bytes that must come next, up to the first token reference; often empty."""
        return self._marked_forced_text().split(_TOKEN_MARK, 1)[0]

    @property
    def description(self) -> dict[str, str]:
        """The grammar's kind, root and source, for the record of the run."""
        return {"kind": self.grammar.kind, "root": self.grammar.root, "source": self.grammar.source}

    def _marked_forced_text(self) -> bytes:
        """Return the forced text as llguidance writes it, with marks for token references."""
        if self._has_ended:
            return b""
        # With token references, compute_ff_bytes changes later results of the matcher.
        matcher = self._matcher.deep_copy() if self.grammar.has_token_references else self._matcher
        return matcher.compute_ff_bytes()

    def _raise_engine_error(self) -> None:
        if self._matcher.is_error():
            message = self._matcher.get_error().split("\n")[0]
            if message == _DEAD_END_ERROR:
                raise GrammarError("no token of the vocabulary has the bytes that the grammar requires next")
            self.grammar.renew()
            if message.startswith("lexer error"):
                raise GrammarError(
                    "the regexes of the grammar need too many states to follow this text",
                    advice="smaller counts and lengths, or patterns that match a text in one way only, may help",
                )
            raise GrammarError(f"the grammar is too ambiguous, or never ends: {message}")


def shortest_completion(grammar: Grammar, text: bytes, excluded_bytes: frozenset[int] = frozenset()) -> bytes:
    """Return a text that makes ``text`` a complete sentence of the grammar.

    For GBNF, the completion is the shortest one, in characters. For the other kinds, and if bytes are excluded, a
    search finds a short one; see `search_completion`. Raises ``GrammarError`` if the grammar has token references,
    if no sentence begins with the text, or if no completion is found.

    Args:
        grammar: the grammar.
        text: the text so far.
        excluded_bytes: bytes that the completion must not contain.
    """
    if grammar.has_token_references:
        raise GrammarError("a grammar with token references cannot be completed by text")
    if grammar.parsed.gbnf is not None and not excluded_bytes:
        return shortest_suffix(grammar.parsed.gbnf, text)

    def state_with(limits: LLParserLimits) -> GrammarState:
        state = Grammar(grammar.parsed, BYTE_VOCABULARY, grammar.lark, limits).start()
        if state.accept_prefix(list(text)) < len(text):
            raise GrammarError("the text does not begin a sentence of the grammar")
        return state

    hints = hints_of(grammar.kind, grammar.source, grammar.parsed.schema)
    is_json = grammar.kind == "json_schema"
    start_walk = partial(state_with, WALK_LIMITS)
    return search_completion(state_with(SEARCH_LIMITS), start_walk, excluded_bytes, hints, is_json)


# Without this option, llguidance's masks for forced text allow only the tokens of its canonical tokenization.
_LARK_OPTIONS = '%llguidance {"no_forcing": true}\n'


class _OrderedState:
    """The state of a JSON text whose keys are being ordered."""

    def __init__(self, state: GrammarState) -> None:
        self._state = state

    @property
    def is_complete(self) -> bool:
        return self._state.is_complete

    def after(self, text: str) -> _OrderedState | None:
        state = self._state.copy()
        data = list(text.encode(errors="surrogatepass"))  # half of a surrogate pair matches nothing
        return _OrderedState(state) if state.accept_prefix(data) == len(data) else None


@dataclass(frozen=True, eq=False)
class ParsedGrammar:
    """A parsed grammar, not yet compiled for a vocabulary. `parse_grammar` creates it."""

    source: str
    kind: str  # one of ``KINDS``
    root: str  # the start rule of a GBNF grammar
    # True if the grammar refers to tokens, as in ``<think>``, so that the text alone does not decide whether it
    # matches
    has_token_references: bool = False
    gbnf: GbnfGrammar | None = None  # the rules of a GBNF grammar; None for the other kinds
    schema: dict[str, Any] | None = None  # the JSON Schema without ignored keywords; None for the other kinds
    ignored_schema_paths: tuple[str, ...] = ()  # the JSON pointers of ignored keywords of a JSON Schema
    translated_schema_paths: tuple[str, ...] = ()  # the JSON pointers of the keywords that were translated
    # the grammar with any whitespace in JSON, for matching; None for a translated schema and for the other kinds
    lenient_lark: str | None = None
    is_lenient: bool = False  # True if unsupported keywords of a JSON Schema are ignored
    _lark: str = ""  # the translation, except for GBNF

    def check_use(self) -> None:
        """Raise ``GrammarError`` for a schema that compiles, but whose texts llguidance cannot follow."""
        _ = self._was_use_checked

    @cached_property
    def translated(self) -> ParsedGrammar:
        """The schema after llguidance has refused it: the parts that it refuses are translated if possible."""
        return _parse_schema(self.source, self.root, self.is_lenient, is_refused=True)

    @cached_property
    def _was_use_checked(self) -> bool:
        """True after the check. The property is cached, so that a schema is checked only once."""
        if self.schema is not None:
            check_patterns(self.schema)
        return True

    def to_lark(self, vocabulary: Vocabulary) -> str:
        """Translate the grammar to llguidance's dialect of Lark."""
        # Raises ``GrammarError`` if the vocabulary lacks a token that the grammar refers to, or if the grammar is
        # too large.
        if self.gbnf is None:
            return self._lark
        token_ids = self.gbnf.find_token_ids(vocabulary)
        if not self.has_token_references:
            return self.gbnf.lark + _LARK_OPTIONS
        return self.gbnf.lark_with_tokens(token_ids, vocabulary.eog) + _LARK_OPTIONS


# The requests of a batch share a few grammars.
@lru_cache(maxsize=16)
def parse_grammar(
    source: str, kind: str = "gbnf", root: str = "root", schema_lenient: bool = False
) -> ParsedGrammar:
    """Parse a grammar. Raises ``GrammarError``, with line and column if the error has a position."""
    if kind not in KINDS:
        raise GrammarError(f"unknown kind of grammar {kind!r}; must be one of {', '.join(KINDS)}")
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise GrammarError(f"the grammar has {len(source):,} characters; the limit is {MAX_SOURCE_CHARACTERS:,}")
    _reject_surrogates(source)
    match kind:
        case "gbnf":
            gbnf = parse_gbnf(source, root)
            return ParsedGrammar(source, kind, root, gbnf.has_token_references, gbnf=gbnf)
        case "json_schema":
            return _parse_schema(source, root, schema_lenient)
        case "regex":
            return ParsedGrammar(source, kind, root, _lark=_regex_to_lark(source) + _LARK_OPTIONS)
        case _:
            has_token_references = _lark_has_token_references(source)
            return ParsedGrammar(source, kind, root, has_token_references, _lark=f"{source}\n{_LARK_OPTIONS}")


def _parse_schema(source: str, root: str, is_lenient: bool, *, is_refused: bool = False) -> ParsedGrammar:
    grammar = compile_schema(source, is_lenient=is_lenient, is_refused=is_refused)
    return ParsedGrammar(
        source,
        "json_schema",
        root,
        schema=grammar.schema,
        ignored_schema_paths=grammar.ignored_paths,
        translated_schema_paths=grammar.translated_paths,
        lenient_lark=None if grammar.lenient_lark is None else grammar.lenient_lark + _LARK_OPTIONS,
        is_lenient=is_lenient,
        _lark=grammar.lark + _LARK_OPTIONS,
    )


def _reject_surrogates(source: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError as error:
        # No excerpt of the source: half of a surrogate pair cannot be printed.
        line, column = line_and_column(source, error.start)
        raise GrammarError("half of a surrogate pair is not a character", line, column) from None


def _regex_to_lark(source: str) -> str:
    """Return a Lark grammar whose sentences are the complete matches of the regular expression."""
    trailing_backslashes = len(source) - len(source.rstrip("\\"))
    if trailing_backslashes % 2:
        raise GrammarError.in_source("nothing follows this backslash", source, len(source) - 1)
    return f"start: /{regex_to_lark(source, use_ascii='')}/\n"


_LITERALS_AND_COMMENTS = re.compile(
    r"""
    "(?:\\.|[^"\\\n])*"  # a string
    | /(?:\\.|[^/\\\n])+/  # a regex
    | //.*
    | \#.*
    """,
    re.VERBOSE,
)
_TOKEN_REFERENCE = re.compile(r"<[^<>\n]+>")


def _lark_has_token_references(source: str) -> bool:
    """Return True if a Lark grammar has a token in angle brackets outside of its literals and comments."""
    return _TOKEN_REFERENCE.search(_LITERALS_AND_COMMENTS.sub("", source)) is not None
