"""From the text of a grammar to its masks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache

from llguidance import regex_to_lark

from .error_messages import complaint
from .errors import GrammarError
from .gbnf import read, to_lark_grammar, tokens_of
from .grammar import Grammar, Origin, Translation
from .limits import MAX_SOURCE
from .vocabulary import BYTE_VOCABULARY, Vocabulary

# Where text is forced, llguidance would let through only the tokens that it would choose itself.
_OPTIONS = '%llguidance {"no_forcing": true}\n'

_ON_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

KINDS = ("gbnf", "json_schema", "regex", "lark")


def compile_grammar(
    source: str, vocab: Vocabulary | None = None, kind: str = "gbnf", root: str = "root"
) -> Grammar:
    """Make a grammar ready for the tokens of a vocabulary.

    ``kind``: ``gbnf`` (as llama.cpp reads it), ``json_schema`` (text), ``regex`` (Rust's syntax; the whole text
    has to match) or ``lark`` (llguidance's dialect). ``vocab`` None: single bytes, enough to match texts.
    ``root``: the rule that a GBNF grammar begins with. Under a JSON Schema the masks write JSON on one line, with
    one space after each comma and colon, while `Grammar.matches` takes blanks wherever JSON does. Raises
    ``GrammarError``, with a line and a column where the mistake has a place.
    """
    if kind not in KINDS:
        raise GrammarError(f"unknown kind of grammar {kind!r}; there are {', '.join(KINDS)}")
    if len(source) > MAX_SOURCE:
        raise GrammarError(f"the grammar has {len(source):,} characters; at most {MAX_SOURCE:,} are read")
    _refuse_halves(source)
    vocabulary = BYTE_VOCABULARY if vocab is None else vocab
    translated, names_tokens = _translated(source, vocabulary, kind, root)
    lenient = _schema(source, {}) if kind == "json_schema" else translated
    grammar = Grammar(Origin(source, kind, root), vocabulary, Translation(translated, lenient, names_tokens))
    if grammar.complaint:
        raise complaint(grammar.complaint, kind, source)
    return grammar


def _translated(source: str, vocabulary: Vocabulary, kind: str, root: str) -> tuple[str, bool]:
    """The grammar as llguidance reads it, and whether it names tokens."""
    match kind:
        case "gbnf":
            rules = read(source, root, _token_finder(vocabulary), vocabulary.size, vocabulary.eog)
            if not tokens_of(rules):
                return _without_tokens(source, root), False
            return to_lark_grammar(rules, root, frozenset(vocabulary.eog)) + _OPTIONS, True
        case "json_schema":
            return _schema(source, _ON_ONE_LINE), False
        case "regex":
            return _regex(source), False
        case _:
            return f"{source}\n{_OPTIONS}", lark_names_tokens(source)


def _refuse_halves(source: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        column = error.start - source.rfind("\n", 0, error.start)
        raise GrammarError("half of a surrogate pair is not a character", line, column) from None


def _regex(source: str) -> str:
    if (len(source) - len(source.rstrip("\\"))) % 2:
        line = source.count("\n") + 1
        raise GrammarError("nothing follows this backslash", line, len(source) - source.rfind("\n") - 1, source)
    return f"start: /{regex_to_lark(source, use_ascii='')}/\n{_OPTIONS}"


@lru_cache(maxsize=16)
def _without_tokens(source: str, root: str) -> str:
    """The translation of GBNF that names no tokens, and so is the same for any vocabulary."""
    return to_lark_grammar(read(source, root), root) + _OPTIONS


def lark_names_tokens(source: str) -> bool:
    """Does a Lark grammar have a token in angle brackets, outside of its literals and comments?"""
    plain = re.sub(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//.*|#.*', "", source)
    return re.search(r"<[^<>\n]+>", plain) is not None


def _token_finder(vocabulary: Vocabulary) -> Callable[[str], list[int]]:
    return lambda text: vocabulary.tokenize(text.encode(), special=True)


def _schema(source: str, style: dict[str, object]) -> str:
    """A JSON Schema in Lark, with a style of writing JSON in it.

    Where blanks could stand anywhere, a model may write them forever, and hardly any text would be forced.
    """
    try:
        schema = json.loads(source, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise GrammarError(f"not JSON: {error.msg}", error.lineno, error.colno, source) from None
    except RecursionError:
        raise GrammarError("the JSON Schema is nested too deeply") from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number of too many digits") from None
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarError(
            "a JSON Schema is an object; this one allows nothing"
            if schema is False
            else "a JSON Schema is an object"
        )
    options = schema.get("x-guidance", {})
    if not isinstance(options, dict):
        raise GrammarError("x-guidance is not an object")
    try:
        text = json.dumps({**schema, "x-guidance": {**style, **options}}, allow_nan=False)
    except RecursionError:
        raise GrammarError("the JSON Schema is nested too deeply") from None
    except ValueError:
        raise GrammarError("the JSON Schema has a number that is too large") from None
    if re.search(r"(?<!\\)(?:\\\\)*\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])", text):
        raise GrammarError("the JSON Schema has half of a surrogate pair, which is not a character")
    return f"start: %json {text}\n{_OPTIONS}"


def _no_number(name: str) -> float:
    raise GrammarError(f"not JSON: there is no number {name}")
