"""From flags to the logprobs that a run reads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from ...common.strict_json import json_problem
from ...common.text import is_utf8
from ..options.output import FORMATS, OutputOptions

if TYPE_CHECKING:
    from ...engine.token_records import LogprobRequest
    from ...engine.vocabulary import Vocabulary

_ITEM = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^,"\s][^,]*|)\s*(,|$)')
_ID = re.compile(r"<\[(\d{1,12})\]>")


def logprob_request(options: OutputOptions, vocabulary: Vocabulary) -> LogprobRequest:
    """Which logprobs this run reads. Raises ``UsageError`` for a token that the model has not."""
    from ...engine.token_records import LogprobRequest

    top = options.logprobs
    if top is None:
        top = FORMATS[options.format].default_logprobs
    if top is not None and top > vocabulary.size:
        raise UsageError(f"--logprobs: {top:,} is more than the {vocabulary.size:,} tokens of the vocabulary")
    source = "model" if options.logprobs_from is None else options.logprobs_from.value
    token_ids = [] if options.logprob_of is None else _parse_tokens(options.logprob_of, vocabulary)
    return LogprobRequest(top, source, tuple(dict.fromkeys(token_ids)))


def _parse_tokens(texts: str, vocabulary: Vocabulary) -> list[int]:
    """The tokens of ``yes, " no", <[42]>``: texts, bare or as JSON writes them, and ids."""
    if not is_utf8(texts.encode(errors="surrogateescape")):
        raise UsageError("--logprob-of: it is not UTF-8")
    tokens = []
    offset = 0
    while True:
        item = _ITEM.match(texts, offset)
        if item is None:
            raise UsageError(f'--logprob-of: {texts[offset:].strip()!r} is not a text, a "text" or <[id]>')
        tokens.append(_token(item[1].strip(), vocabulary))
        if not item[2]:
            return tokens
        offset = item.end()


def _token(written: str, vocabulary: Vocabulary) -> int:
    from ...models.errors import ModelError

    number = _ID.fullmatch(written)
    if number:
        if int(number[1]) >= vocabulary.size:
            raise UsageError(f"--logprob-of: {written}: token ids go from 0 to {vocabulary.size - 1}")
        return int(number[1])
    if not written:
        raise UsageError("--logprob-of: an empty text is no token; a comma too many?")
    text = written
    if written.startswith('"'):
        try:
            text = json.loads(written)
        except json.JSONDecodeError as error:
            raise UsageError(f"--logprob-of: {written} is no text in JSON: {json_problem(error)}") from None
    try:
        return vocabulary.single(text)
    except ModelError as error:
        raise UsageError(f"--logprob-of: {error}{_hint(written, text, vocabulary)}") from None


def _hint(written: str, text: str, vocabulary: Vocabulary) -> str:
    if written.startswith('"') or len(vocabulary.tokenize(f" {text}".encode())) != 1:
        return ""
    return f"; with a blank before it, it is one: write '\" {text}\"'"
