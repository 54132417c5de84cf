"""Token texts to ids, for APIs that name tokens only by their text."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...common.files import file_problem, read_bounded
from ..errors import RecoverError

T = TypeVar("T", bytes, str)
_MOST_UNUSED = 10
"""A ``.tiktoken`` file whose largest id is over so many times the number of its tokens is not a vocabulary."""


class TokenTextTable:
    """The ids of a vocabulary by their bytes.

    Args:
        pieces: the bytes of each token, by id; None or empty: the id is unused or has no text.

    Attributes:
        ambiguous: ids that share their bytes with another id.
        look_alikes: ids whose bytes are unique, but become the same text as others' where U+FFFD replaces bytes
            that are not UTF-8.
        without_bytes: ids without bytes.
    """

    def __init__(self, pieces: Sequence[bytes | None]) -> None:
        if not len(pieces):
            raise RecoverError("the tokenizer has no tokens")
        self.pieces = pieces
        with_bytes = {token: piece for token, piece in enumerate(pieces) if piece}
        by_bytes = _grouped(with_bytes)
        by_text = _grouped({token: piece.decode("utf-8", "replace") for token, piece in with_bytes.items()})
        self._id_of_bytes = {piece: ids[0] for piece, ids in by_bytes.items() if len(ids) == 1}
        self._id_of_text = {text: ids[0] for text, ids in by_text.items() if len(ids) == 1}
        self.ambiguous = frozenset(token for ids in by_bytes.values() if len(ids) > 1 for token in ids)
        same_text = frozenset(token for ids in by_text.values() if len(ids) > 1 for token in ids)
        self.look_alikes = same_text - self.ambiguous
        self.without_bytes = frozenset(range(len(pieces))) - with_bytes.keys()

    def __len__(self) -> int:
        return len(self.pieces)

    def of_entry(self, entry: Mapping[str, Any]) -> int | None:
        """Return the id of an entry of chat logprobs, by ``bytes``, else by ``token``; None if no id has it."""
        data = entry.get("bytes")
        if isinstance(data, list) and data:
            return self._id_of_bytes.get(bytes(data))
        return self.of_text(str(entry["token"]))

    def of_text(self, text: str) -> int | None:
        """Return the id of a token's text, or of ``bytes:`` and hexadecimal escapes, as OpenAI's API writes it."""
        if text in self._id_of_text:
            return self._id_of_text[text]
        if text.startswith("bytes:"):
            escaped = text.removeprefix("bytes:")
            try:
                piece = escaped.encode("latin-1").decode("unicode_escape").encode("latin-1")
            except (UnicodeError, ValueError):
                return None
            return self._id_of_bytes.get(piece)
        return None


def _grouped(names: Mapping[int, T]) -> dict[T, list[int]]:
    """Return the ids of each name."""
    groups: dict[T, list[int]] = {}
    for token, name in names.items():
        groups.setdefault(name, []).append(token)
    return groups


def read_tiktoken(path: Path) -> list[bytes | None]:
    """Return the bytes of each token of a ``.tiktoken`` file: lines of base64 and id. Raises ``RecoverError``."""
    pieces: dict[int, bytes] = {}
    number = 0
    try:
        with path.open("rb") as file:
            data = read_bounded(file)
        for line in data.splitlines():
            number += 1
            if line.strip():
                text, token = line.split()
                pieces[int(token)] = base64.b64decode(text, validate=True)
    except OSError as error:
        raise RecoverError(f"{path}: {file_problem(error, path)}") from None
    except ValueError:
        raise RecoverError(f"{path}: line {number} is not base64 and an id, as in a .tiktoken file") from None
    if not pieces or min(pieces) < 0 or max(pieces) > _MOST_UNUSED * len(pieces):
        raise RecoverError(f"{path}: its ids are not those of a vocabulary")
    return [pieces.get(token) for token in range(max(pieces) + 1)]
