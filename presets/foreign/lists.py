"""Lists that other tools and their clients also write as text: strings, names, numbers, token ids and biases.

Each function takes any value of a file or of a request. For a wrong value it raises ``ValueError``. Callers put
the name of the key before its message.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeGuard

from ...common.strict_json import without_whole_floats
from ...common.text import short_repr

_QUOTED_STRING = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""  # pattern of a string in double or single quotes
_QUOTED_STRINGS = re.compile(rf"\s*(?:{_QUOTED_STRING})\s*(?:,\s*(?:{_QUOTED_STRING})\s*)*,?\s*")


def read_strings(value: Any) -> list[str]:
    """Return the strings of a list, without empty ones."""
    # A text is a JSON array, quoted strings with commas between them, such as text-generation-webui's
    # ``"\n", ":"``, lines, or strings with commas between them.
    if isinstance(value, str):
        value = _strings_of_text(value.strip())
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{short_repr(value)} is not a list of strings, or quoted strings separated by commas")
    return [part for part in value if part]


def read_phrases(value: Any) -> list[str]:
    """Return the phrases of a list. A text without quotes and brackets has one phrase a line."""
    if _is_plain_text(value):
        return [line for line in value.split("\n") if line]
    return read_strings(value)


def _is_plain_text(value: Any) -> TypeGuard[str]:
    """Return whether a value is a text that is neither a JSON array nor quoted strings."""
    return isinstance(value, str) and not value.strip().startswith("[") and not is_quoted_list(value)


def is_quoted_list(text: str) -> bool:
    """Return whether a text is one or more quoted strings with commas between them."""
    return _QUOTED_STRINGS.fullmatch(text) is not None


def read_names(value: Any) -> list[str]:
    """Return the names of a list; in a text, commas, semicolons or newlines separate them."""
    names = re.split(r"[,;\n]", value) if _is_plain_text(value) else value
    return [name.strip() for name in read_strings(names) if name.strip()]


def read_integers(value: Any) -> list[int]:
    """Return the integers of a list, such as 5 and 5.0, or of a text such as ``5, 0, 2`` or ``[6,0]``."""
    parts = re.split(r"[\s,;]+", value.strip().strip("[]")) if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError(f"{short_repr(value)} is not a list of integers")
    texts = [str(part).removesuffix(".0") for part in parts if part != ""]
    if not all(text.isascii() and text.isdecimal() for text in texts):
        raise ValueError(f"{short_repr(value)} is not a list of integers")
    return [int(text) for text in texts]


def read_token_ids(value: Any) -> list[int]:
    """Return the ids of a list, or of a text such as ``13, 198`` or ``[13, 198]``."""
    ids = value
    if isinstance(value, str):
        text = value.strip().removeprefix("[").removesuffix("]")
        parts = [part.strip() for part in text.split(",")]
        ids = [int(part) if part.isascii() and part.isdecimal() else part for part in parts if part]
    elif type(value) is int:
        ids = [value]
    if not isinstance(ids, list) or not all(type(item) is int for item in ids):
        raise ValueError(f"{short_repr(value)} is not a list of token ids")
    return ids


_SIGNED_BIAS = re.compile(r"(?P<id>\d+)(?P<bias>[+-].+)")  # 15043+1 or 29871-inf
# the keys of a bias that is an object, such as {"token": 5, "bias": -1}
_TOKEN_KEYS = ("token", "id", "text")
_BIAS_KEYS = ("bias", "value")


_ID_AS_TEXT = re.compile(r"(?P<id>[0-9]{1,18})(?:\.0+)?", re.ASCII)  # 5 or 5.0; more digits are no token's id


def read_biased_token(key: Any) -> Any:
    """Return the id of a token as an integer, because keys of JSON are texts; other keys as they are."""
    match = _ID_AS_TEXT.fullmatch(key) if isinstance(key, str) else None
    return int(match["id"]) if match else without_whole_floats(key)


def read_biases(value: Any) -> dict[int | str, float]:
    """Return biases by token id or text."""
    # The biases are a table, a list of pairs, or a list of objects such as ``{"token": 5, "bias": -1}``. They may
    # be the JSON text of one of these, or llama.cpp's ``15043+1,29871-inf``. The bias false bans a token.
    if isinstance(value, str):
        value = _biases_of_text(value.strip())
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [_bias_pair(item) for item in value]
    else:
        raise ValueError(f"{short_repr(value)} is not a table or a list of token and number")
    biases: dict[int | str, float] = {}
    for name, bias in pairs:
        key = read_biased_token(name)
        if type(key) not in (int, str):  # bool is a subclass of int, but True is not an id
            raise ValueError(f"{short_repr(key)} is not a token's id or text")
        biases[key] = _bias(bias)
    return biases


def _strings_of_text(text: str) -> Any:
    if not text:
        return []
    try:
        # Not strict, because a YAML string in double quotes holds a real newline, not a backslash and n.
        return json.loads(text if text.startswith("[") else f"[{text}]", strict=False)
    except (ValueError, RecursionError):
        pass
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    elif text.startswith("["):
        raise ValueError("this is not a JSON array of strings")
    if "," not in text and '"' not in text:
        return text.split("\n")
    parts: list[str] = re.findall(rf"\s*(?:{_QUOTED_STRING})|[^,]+", text)
    return [_unquote(part.strip()) for part in parts if part.strip()]


def _unquote(part: str) -> str:
    if re.fullmatch(_QUOTED_STRING, part) is None:
        return part
    content = part[1:-1]
    try:
        return str(json.loads(f'"{content}"', strict=False))
    except ValueError:  # an escape that JSON does not have, or a double quote inside single quotes
        return content


def _biases_of_text(text: str) -> Any:
    if not text:
        return {}
    if text[0] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(f"{short_repr(text)} is not the JSON of biases by token") from None
    pairs = []
    for part in text.split(","):
        if not part.strip():
            continue
        match = _SIGNED_BIAS.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{short_repr(text)} is not a list of biases, such as 15043+1,29871-inf")
        pairs.append([int(match["id"]), match["bias"]])
    return pairs


def _bias_pair(item: Any) -> tuple[Any, Any]:
    """Return the token and the bias of an entry of a list."""
    if isinstance(item, (list, tuple)) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, Mapping):
        return _first_value(item, _TOKEN_KEYS), _first_value(item, _BIAS_KEYS)
    raise ValueError("this is neither an object nor a list of pairs")


def _first_value(table: Mapping[Any, Any], keys: Iterable[str]) -> Any:
    """Return the value of the first of the keys that a table has; None if it has none."""
    return next((table[key] for key in keys if key in table), None)


def _bias(value: Any) -> float:
    """Return a bias as a number; false is a ban, -inf."""
    if value is False:
        return -math.inf
    number = math.nan
    if value is not True:
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if math.isnan(number):
        raise ValueError(f"{short_repr(value)} is not a number or false")
    return number
