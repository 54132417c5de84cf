"""New inputs from valid ones: by tokens, by the tree of a JSON text, and by bits."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

MAX_BYTES = 60_000

_TOKENS = re.compile(rb"[A-Za-z_]+|[0-9]+|\s+|[^A-Za-z_0-9\s]")
_NUMBERS = (
    b"0", b"-1", b"1", b"2", b"1e999", b"-1e999", b"1e-999", b"NaN", b"Infinity", b"-Infinity", b"4294967295",
    b"4294967296", b"9223372036854775808", b"99999999999999999999", b"0.1", b"-0.0", b".inf", b"1e5", b"65536",
    b"9" * 400, b"9" * 5000, b"0x7f", b"1_000", b"100000", b"2147483648",
)  # fmt: skip
_TEXTS = (
    b"", b"null", b"true", b"false", b'""', b"[]", b"{}", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b'"\\ud800"', b"\\u0000", "\u2028".encode(), "\u0130".encode(), "\U0010ffff".encode(), b"\r", b"\r\n", b"\n",
    b"\x85", b"'", b'"', b"\\", b"\t", "\u0661".encode(), b"~", b"*", b"&a ", b"*a", b"!!int ", b"<<: ", b"%",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1.5, -0.0, 1e308, float("inf"), float("nan"), "",
    "a", "\ud800", "\0", "a" * 3000, "1", "-1", "null", [], {}, [[]], [None], {"": None}, [1, 2], ["a"], {"a": 1},
    [1.5] * 50,
)  # fmt: skip


def mutate(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Return an input made from ``data``, by one to four steps.

    Args:
        data: an input.
        random_: where chance comes from.
        words: pieces that mean something to the reader.
        others: further inputs, of which parts are taken.
    """
    for _ in range(random_.choice((1, 1, 1, 2, 2, 3, 4))):
        step = random_.choice(_STEPS)
        data = step(data, random_, words or _TEXTS, others or [b""])[:MAX_BYTES]
    return data


def _json_tree(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Change one value of a JSON text, or of one of its lines."""
    lines = data.split(b"\n")
    at = random_.randrange(len(lines))
    for text, put in (
        (data, lambda new: new),
        (lines[at], lambda new: b"\n".join([*lines[:at], new, *lines[at + 1 :]])),
    ):
        try:
            value = json.loads(text)
            if isinstance(value, (dict, list)):
                return put(
                    json.dumps(_changed(value, random_), ensure_ascii=random_.random() < 0.5).encode(
                        errors="surrogatepass"
                    )
                )
        except (ValueError, RecursionError):
            continue
    return _replace_token(data, random_, words, others)


def _changed(value: Any, random_: random.Random) -> Any:
    """The value with one part replaced, dropped, doubled, renamed or nested."""
    if not isinstance(value, (dict, list)) or not value or random_.random() < 0.1:
        return _nested(value, random_) if random_.random() < 0.3 else random_.choice(_VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = random_.choice(keys)
    copy: Any = value.copy()
    action = random_.random()
    if action < 0.65:
        copy[key] = _changed(value[key], random_)
    elif action < 0.8:
        del copy[key]
    elif isinstance(copy, list):
        copy.extend(copy[key : key + 1] * random_.choice((1, 2, 40)))
    else:
        copy[random_.choice((*keys, "", "a", "id", "x" * 200))] = value[key]
    return copy


def _nested(value: Any, random_: random.Random) -> Any:
    for _ in range(random_.choice((1, 3, 60, 300, 900))):
        value = [value] if random_.random() < 0.5 else {"a": value}
    return value


def _replace_token(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    tokens = _TOKENS.findall(data[:MAX_BYTES])
    if not tokens:
        return random_.choice(words)
    at = random_.randrange(len(tokens))
    choices = (
        _NUMBERS if tokens[at].isdigit() and random_.random() < 0.7 else random_.choice((words, _TEXTS, tokens))
    )
    tokens[at] = random_.choice(choices)
    return b"".join(tokens)


def _insert_word(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at = random_.randint(0, len(data))
    return data[:at] + random_.choice(random_.choice((words, words, _TEXTS, _NUMBERS))) + data[at:]


def _move_tokens(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Drop, double or repeat a run of tokens."""
    tokens = _TOKENS.findall(data)
    if not tokens:
        return data
    start = random_.randrange(len(tokens))
    end = min(len(tokens), start + random_.choice((1, 1, 2, 5, 20)))
    times = random_.choice((0, 0, 2, 2, 3, 50, 2000))
    return b"".join([*tokens[:start], *tokens[start:end] * times, *tokens[end:]])


def _splice(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """The beginning of one input and the end of another."""
    other = random_.choice(others)
    return data[: random_.randint(0, len(data))] + other[random_.randint(0, len(other)) :]


def _nest(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    opening, closing = random_.choice(
        ((b"[", b"]"), (b"(", b")"), (b"{", b"}"), (b'{"a":', b"}"), (b"- ", b""), (b"(?:", b")*"))
    )
    count = random_.choice((1, 5, 70, 600, 3000))
    at = random_.randint(0, len(data))
    end = random_.randint(at, len(data))
    return data[:at] + opening * count + data[at:end] + closing * random_.choice((count, count, 0)) + data[end:]


def _flip_bits(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random_.choice((1, 1, 2, 8))):
        if changed:
            changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def _cut(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    return data[: random_.randint(0, len(data))]


def _set_number(data: bytes, random_: random.Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """Write a number of 4 or 8 bytes, as binary formats have them."""
    size = random_.choice((4, 8))
    if len(data) < size:
        return data
    at = random_.randint(0, len(data) - size)
    number = random_.choice((0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1))
    return data[:at] + (number % 2 ** (8 * size)).to_bytes(size, "little") + data[at + size :]


_Step = Callable[[bytes, random.Random, Sequence[bytes], Sequence[bytes]], bytes]
_STEPS: tuple[_Step, ...] = (
    _json_tree, _json_tree, _replace_token, _replace_token, _insert_word, _insert_word, _move_tokens, _splice,
    _nest, _flip_bits, _cut, _set_number,
)  # fmt: skip
