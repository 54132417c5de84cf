"""Texts as token ids, read from a text, from lists of ids, or from the jsonl of runs and results of batches."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..common.machine import INT32_MAX
from ..common.text import NotUTF8Error, decode_utf8, short_repr
from .errors import InvalidLineError
from .lines import number_lines, parse_object

Tokenize = Callable[[str], list[int]]
"""A function from a text to its token ids."""


class TextKind(StrEnum):
    """The content of a file of texts."""

    text = "text"
    ids = "ids"
    jsonl = "jsonl"


@dataclass
class TokenText:
    """The token ids of a generated text, without the prompt.

    Attributes:
        name: name of the text among others in the file; empty if the file has no other.
        tokens: the token ids.
        end_tokens: ids of the end-of-generation tokens that are known from the file.
        problem: why the text has no tokens; None if it has tokens.
    """

    name: str = ""
    tokens: list[int] = field(default_factory=list)
    end_tokens: frozenset[int] = frozenset()
    problem: str | None = None


_MAX_ID_DIGITS, _MAX_SHOWN_DIGITS = 1000, 20
_IDS_PATTERN = re.compile(rb"[\s\d,\[\]]*\d[\s\d,\[\]]*")


def guess_kind(data: bytes) -> TextKind:
    """Return the kind of content that a file seems to have: JSON objects, numbers only, or else a text."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        first_line = next(number_lines(io.BytesIO(data)))[1]
        try:
            parse_object(first_line)
        except InvalidLineError:
            return TextKind.text
        return TextKind.jsonl
    return TextKind.ids if _IDS_PATTERN.fullmatch(data) else TextKind.text


def read_token_texts(data: bytes, kind: TextKind, tokenize: Tokenize) -> Iterator[TokenText]:
    """Yield the texts of a file. Raises ``InvalidLineError`` with the place and the reason.

    Args:
        data: the content of the file.
        kind: the kind of the content.
        tokenize: called for a text without token ids.
    """
    if kind is TextKind.jsonl:
        yield from _read_json_lines(data, tokenize)
    elif kind is TextKind.ids:
        yield from _read_ids(data)
    else:
        try:
            text = decode_utf8(data)
        except NotUTF8Error as error:
            raise InvalidLineError(f"it is {error}") from None
        yield TokenText(tokens=tokenize(text.removesuffix("\n")))


def _read_ids(data: bytes) -> Iterator[TokenText]:
    """Yield the ids of each JSON list, or all ids as one text if the file has no brackets."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if _IDS_PATTERN.fullmatch(text.encode()) is None:
        wrong_part = re.search(r"[^\s\d,\[\]]+", text)
        found = f"{short_repr(wrong_part[0])} is not" if wrong_part else "it has no"
        raise InvalidLineError(f"{found} token ids; write them with spaces or commas, or as JSON lists")
    lists = re.findall(r"\[([^\[\]]*)\]", text) if "[" in text else [text]
    for number, ids in enumerate(lists, 1):
        name = f"text {number}" if len(lists) > 1 else ""
        yield TokenText(name, [_parse_id(digits) for digits in re.findall(r"\d+", ids)])


def _parse_id(digits: str) -> int:
    if len(digits) > _MAX_ID_DIGITS or int(digits) > INT32_MAX:
        raise InvalidLineError(f"{digits[:_MAX_SHOWN_DIGITS]} is not a token id; the greatest one is {INT32_MAX}")
    return int(digits)


def _read_json_lines(data: bytes, tokenize: Tokenize) -> Iterator[TokenText]:
    run: _Run | None = None
    for number, line in number_lines(io.BytesIO(data)):
        try:
            value = parse_object(line)
            if "event" not in value:
                yield _read_result(value, tokenize, number)
                continue
            if value["event"] == "start":
                if run is not None:
                    yield run.text
                run = _Run(value)
            elif run is None:
                run = _Run({})
            run.read(value)
        except InvalidLineError as error:
            raise InvalidLineError(f"line {number}: {error}") from None
    if run is not None:
        yield run.text


class _Run:
    """The tokens of a run, read from its events."""

    def __init__(self, start: dict[str, Any]) -> None:
        sample = start.get("sample")
        self.text = TokenText(name=f"text {sample + 1}" if isinstance(sample, int) else "")
        self._is_last_without_text = False

    def read(self, event: dict[str, Any]) -> None:
        """Add a generated token, or note the end-of-generation token that ended the run."""
        if event["event"] == "token":
            self.text.tokens.append(_token_id(event))
            self._is_last_without_text = event.get("text") == ""
        elif (
            event["event"] == "done"
            and self._is_last_without_text
            and event.get("finish_reason") == "stop"
            and event.get("stop") is None
        ):
            self.text.end_tokens = frozenset(self.text.tokens[-1:])


def _read_result(result: dict[str, Any], tokenize: Tokenize, line_number: int) -> TokenText:
    """Read a result of a batch, an answer of an API, or an object with a text. Raises ``InvalidLineError``."""
    name = str(result.get("id") or result.get("custom_id") or f"line {line_number}")
    if result.get("error") is not None:
        error = result["error"]
        message = error.get("message") if isinstance(error, dict) else error
        return TokenText(name, problem=f"the request has no answer ({short_repr(message)})")
    tokens = result.get("tokens")
    if isinstance(tokens, list) and tokens:
        events = [token for token in tokens if not isinstance(token, dict) or token.get("event") != "prompt"]
        run = _Run({})
        for token in events:
            run.read({**token, "event": "token"} if isinstance(token, dict) else {"event": "token", "id": token})
        run.read({"event": "done", "finish_reason": result.get("finish_reason"), "stop": result.get("stop")})
        run.text.name = name
        return run.text
    text = _text_of(result)
    if text is None:
        raise InvalidLineError('it is not an event of gen --format jsonl, and has neither "tokens" nor "text"')
    return TokenText(name, tokenize(text))


def _text_of(result: dict[str, Any]) -> str | None:
    """Return the text of a result, in gen's or OpenAI's format; None if it has none."""
    response = result.get("response")
    body = response.get("body") if isinstance(response, dict) else result
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else result
    message = choice.get("message") if isinstance(choice, dict) else None
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return text if isinstance(text, str) else None


def _token_id(event: dict[str, Any]) -> int:
    token = event.get("id")
    if type(token) is not int or not 0 <= token <= INT32_MAX:
        raise InvalidLineError(f"id {short_repr(token)} is not a token id")
    return token
