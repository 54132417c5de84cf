"""Texts as token ids, read from a text, from lists of ids, or from JSON: runs, batches, answers of APIs."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ..common.llama_cpp_limits import INT32_MAX
from ..common.strict_json import parse_strict_json
from ..common.text import UndecodableTextError, decode_text, encode_as_utf8, short_repr, without_last_line_end
from ..requests.errors import InvalidLineError
from .lines import number_lines, parse_object

Tokenize = Callable[[str], list[int]]


class TextKind(StrEnum):
    """The content of a file of texts."""

    text = "text"
    ids = "ids"
    jsonl = "jsonl"


@dataclass
class TokenText:
    """The token ids of a generated text, without the prompt."""

    name: str = ""  # tells the texts of a file apart, such as ``text 2``; empty if the file has one text
    tokens: list[int] = field(default_factory=list)
    end_tokens: frozenset[int] = frozenset()  # ids of the end-of-generation tokens that are known from the file
    problem: str | None = None  # why the text has no tokens; None if it has tokens


_MAX_ID_DIGITS = 1000  # Python's `int` raises an error for numbers that are much longer
_MAX_SHOWN_DIGITS = 20
# spaces, commas, brackets and digits, with one digit or more
_IDS_PATTERN = re.compile(rb"[\s\d,\[\]]*\d[\s\d,\[\]]*")
_MAX_LIST_DEPTH = 2  # a list of lists of ids
_NOTHING_TO_SCORE = "there is nothing to score: it is empty"


def guess_kind(data: bytes) -> TextKind:
    """Return the kind of content that a file seems to have. Raises ``InvalidLineError`` for damaged UTF-16."""
    data = _as_utf8(data)
    if _IDS_PATTERN.fullmatch(data):
        return TextKind.ids
    if data.lstrip().startswith((b"{", b"[")):
        try:
            next(_read_json_objects(data))
        except InvalidLineError:
            return TextKind.text
        return TextKind.jsonl
    return TextKind.text


def read_token_texts(data: bytes, kind: TextKind, tokenize: Tokenize) -> Iterator[TokenText]:
    """Yield the texts of a file as token ids. ``tokenize`` is called for texts that are not given as ids."""
    # Raises ``InvalidLineError`` with place and reason. An empty file, an error instead of an answer, and an
    # answer without a text become a `TokenText` with a ``problem``.
    data = _as_utf8(data)
    if kind is TextKind.ids:
        yield from _read_ids(data)
    elif not data.strip():
        yield TokenText(problem=_NOTHING_TO_SCORE)
    elif kind is TextKind.jsonl:
        yield from _read_json(data, tokenize)
    else:
        try:
            text = decode_text(data)
        except UndecodableTextError as error:
            raise InvalidLineError(f"it is {error}") from None
        yield TokenText(tokens=tokenize(without_last_line_end(text)))


def _as_utf8(data: bytes) -> bytes:
    try:
        return encode_as_utf8(data)
    except UndecodableTextError as error:
        raise InvalidLineError(f"it is {error}") from None


def _read_ids(data: bytes) -> Iterator[TokenText]:
    """Yield the ids of each JSON list, or all ids as one text if the file has no brackets."""
    text = data.decode("utf-8", "replace")
    if _IDS_PATTERN.fullmatch(text.encode()) is None:
        wrong_part = re.search(r"[^\s\d,\[\]]+", text)
        problem = f"{short_repr(wrong_part[0])} is not token ids" if wrong_part else "it has no token ids"
        raise InvalidLineError(f"{problem}; write them with spaces or commas, or as JSON lists")
    if "[" in text or "]" in text:
        id_lists = _split_lists(text)
    else:
        id_lists = [[_parse_id(digits) for digits in re.findall(r"\d+", text)]]
    for number, ids in enumerate(id_lists, 1):
        name = f"text {number}" if len(id_lists) > 1 else ""
        yield TokenText(name, ids)


@dataclass
class _OpenList:
    """A list whose closing bracket was not read yet."""

    position: int  # position of the opening bracket in the file
    ids: list[int] = field(default_factory=list)
    has_inner_lists: bool = False


def _split_lists(text: str) -> list[list[int]]:
    """Return the ids of each list, and of each inner list. Raises ``InvalidLineError`` with a line."""
    lists: list[list[int]] = []
    open_lists: list[_OpenList] = []
    for match in re.finditer(r"\d+|[\[\]]", text):
        symbol = match[0]
        current_list = open_lists[-1] if open_lists else None
        if symbol == "[":
            if current_list is not None:
                if current_list.ids or len(open_lists) == _MAX_LIST_DEPTH:
                    raise _error_at(text, match.start(), "a list of ids cannot contain another list")
                current_list.has_inner_lists = True
            open_lists.append(_OpenList(match.start()))
        elif symbol == "]":
            if current_list is None:
                raise _error_at(text, match.start(), "the bracket ] closes no list")
            if not current_list.has_inner_lists:
                lists.append(current_list.ids)
            open_lists.pop()
        elif current_list is None or current_list.has_inner_lists:
            reason = f"{symbol[:_MAX_SHOWN_DIGITS]} is outside the lists; write all ids in lists, or none"
            raise _error_at(text, match.start(), reason)
        else:
            current_list.ids.append(_parse_id(symbol))
    if open_lists:
        raise _error_at(text, open_lists[-1].position, "the list that begins here is not closed by the bracket ]")
    return lists


def _error_at(text: str, position: int, reason: str) -> InvalidLineError:
    line = text.count("\n", 0, position) + 1
    return InvalidLineError(f"line {line}: {reason}")


def _parse_id(digits: str) -> int:
    if len(digits) > _MAX_ID_DIGITS or int(digits) > INT32_MAX:
        raise InvalidLineError(f"{digits[:_MAX_SHOWN_DIGITS]} is not a token id; the greatest one is {INT32_MAX}")
    return int(digits)


class _JsonObject(NamedTuple):
    place: str  # such as ``line 2``; empty for an object that is the whole file, on several lines
    fields: dict[str, Any]


def _read_json_objects(data: bytes) -> Iterator[_JsonObject]:
    """Yield the objects of JSON lines, or of one JSON value, which is an object or a list of objects."""
    objects = _parse_as_one_value(data)
    if objects is not None:
        yield from objects
        return
    for number, line in number_lines(io.BytesIO(data)):
        try:
            fields = parse_object(line)
        except InvalidLineError as error:
            raise InvalidLineError(f"line {number}: {error}") from None
        yield _JsonObject(f"line {number}", fields)


def _parse_as_one_value(data: bytes) -> list[_JsonObject] | None:
    """Return the objects of a file that is one JSON object, or one JSON list of objects; None for other files."""
    try:
        value = parse_strict_json(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        has_several_lines = b"\n" in data.strip()
        return [_JsonObject("" if has_several_lines else "line 1", value)]
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return None
    return [_JsonObject(f"item {number}", item) for number, item in enumerate(value, 1)]


def _read_json(data: bytes, tokenize: Tokenize) -> Iterator[TokenText]:
    run: _RunReader | None = None
    for place, fields in _read_json_objects(data):
        try:
            if "event" not in fields:
                yield from _read_result(fields, tokenize, place)
                continue
            if fields["event"] == "start":
                if run is not None:
                    yield run.text
                run = _RunReader(fields)
            elif run is None:
                run = _RunReader({})
            run.add_event(fields)
        except InvalidLineError as error:
            raise InvalidLineError(f"{place}: {error}" if place else str(error)) from None
    if run is not None:
        yield run.text


class _RunReader:
    """A reader of the events of one run."""

    def __init__(self, start: dict[str, Any]) -> None:
        sample = start.get("sample")
        self.text = TokenText(name=f"text {sample + 1}" if isinstance(sample, int) else "")
        self._last_token_has_text = True

    def add_event(self, event: dict[str, Any]) -> None:
        """Add a generated token, or note the end-of-generation token that ended the run."""
        if event["event"] == "token":
            self.text.tokens.append(_token_id(event))
            self._last_token_has_text = event.get("text") != ""
        elif event["event"] == "done":
            is_ended_by_token = event.get("finish_reason") == "stop" and event.get("stop") is None
            if is_ended_by_token and not self._last_token_has_text:
                self.text.end_tokens = frozenset(self.text.tokens[-1:])


def _read_result(result: dict[str, Any], tokenize: Tokenize, place: str) -> Iterator[TokenText]:
    """Yield the texts of a result of a batch, an API's answer, or an object with a text."""
    # Raises ``InvalidLineError``.
    name = str(result.get("custom_id") or result.get("id") or place)
    response = result.get("response")
    body = response.get("body") if isinstance(response, dict) else result
    if not isinstance(body, dict):
        body = {}
    error = result.get("error") or body.get("error")
    if error is not None:
        message = error.get("message") if isinstance(error, dict) else error
        yield TokenText(name, problem=f"the request has no answer ({short_repr(message)})")
        return
    choices = body.get("choices")
    if choices is None:
        choices = body.get("results")  # KoboldAI's API
    is_answer = not body.keys().isdisjoint(("tokens", "text", "message"))
    is_llama_server_answer = "content" in body and "role" not in body  # with a role it is a message
    if isinstance(choices, list):
        answers = [choice if isinstance(choice, dict) else {} for choice in choices]
    elif is_answer or is_llama_server_answer:
        answers = [body]
    elif "response" in result:
        answers = []
    else:
        raise InvalidLineError(
            'it is not an event of gen --format jsonl, and has no "tokens", "text", "content" or "choices"'
        )
    if not answers:
        yield TokenText(name, problem="the request has no answer")
    for number, answer in enumerate(answers, 1):
        name_parts = [name] if name else []
        if len(answers) > 1:
            name_parts.append(f"choice {number}")
        yield _read_answer(answer, tokenize, ": ".join(name_parts))


def _read_answer(answer: dict[str, Any], tokenize: Tokenize, name: str) -> TokenText:
    """Read one answer, with its tokens or its text, in the format of gen, OpenAI, llama-server or KoboldAI."""
    tokens = answer.get("tokens")
    if isinstance(tokens, list) and tokens:
        run = _RunReader({})
        for token in tokens:
            token_fields = token if isinstance(token, dict) else {"id": token}
            if token_fields.get("event") != "prompt":
                run.add_event({**token_fields, "event": "token"})
        run.add_event({"event": "done", "finish_reason": answer.get("finish_reason"), "stop": answer.get("stop")})
        run.text.name = name
        return run.text
    message = answer.get("message")
    text_or_content = answer.get("text", answer.get("content"))
    text = message.get("content") if isinstance(message, dict) else text_or_content
    if not isinstance(text, str):
        return TokenText(name, problem="the answer has no text")
    return TokenText(name, tokenize(text))


def _token_id(event: dict[str, Any]) -> int:
    token = event.get("id")
    if type(token) is not int or not 0 <= token <= INT32_MAX:
        raise InvalidLineError(f"id {short_repr(token)} is not a token id")
    return token
