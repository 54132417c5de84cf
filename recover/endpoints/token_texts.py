"""Token texts to ids, for APIs that name tokens by their text only."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RecoverError


class TokenTextTable:
    """The ids of a vocabulary by their bytes.

    ``pieces``: the bytes of each token, by id; None or empty: the id is unused, or no text. ``ambiguous``: ids
    whose bytes another id has too, so that a text does not tell which of them is meant. ``look_alikes``: ids whose
    bytes are their own, but become one text with others' where U+FFFD stands for what is no character. ``silent``:
    ids without bytes.
    """

    def __init__(self, pieces: Sequence[bytes | None]) -> None:
        if not len(pieces):
            raise RecoverError("the tokenizer has no tokens")
        self.pieces = pieces
        by_piece: dict[bytes, list[int]] = {}
        for token, piece in enumerate(pieces):
            if piece:
                by_piece.setdefault(piece, []).append(token)
        self._ids = {piece: ids[0] for piece, ids in by_piece.items() if len(ids) == 1}
        self.ambiguous = frozenset(token for ids in by_piece.values() if len(ids) > 1 for token in ids)
        self.silent = frozenset(token for token, piece in enumerate(pieces) if not piece)
        # What a text becomes on its way through an API that shows U+FFFD for bytes that are no character.
        shown: dict[str, list[int]] = {}
        for token, piece in enumerate(pieces):
            if piece:
                shown.setdefault(piece.decode("utf-8", "replace"), []).append(token)
        self._texts = {text: ids[0] for text, ids in shown.items() if len(ids) == 1}
        alike = {token for ids in shown.values() if len(ids) > 1 for token in ids}
        self.look_alikes = frozenset(alike - self.ambiguous)

    def __len__(self) -> int:
        return len(self.pieces)

    def of_entry(self, entry: Mapping[str, Any]) -> int | None:
        """The id of an entry of chat logprobs: by its ``bytes``, else by its ``token``; None if it is no one's."""
        data = entry.get("bytes")
        if isinstance(data, list) and data:
            return self._ids.get(bytes(data))
        return self.of_text(str(entry["token"]))

    def of_text(self, text: str) -> int | None:
        """The id of a token that is named by text, or as ``bytes:`` with hexadecimal escapes."""
        if text in self._texts:
            return self._texts[text]
        if text.startswith("bytes:"):
            try:
                return self._ids.get(
                    text.removeprefix("bytes:").encode("latin-1").decode("unicode_escape").encode("latin-1")
                )
            except (UnicodeError, ValueError):
                return None
        return None


def read_tiktoken(path: Path) -> list[bytes | None]:
    """The bytes of each token out of a ``.tiktoken`` file: lines of base64 and id. Raises ``RecoverError``."""
    found: dict[int, bytes] = {}
    number = 0
    try:
        for line in path.read_bytes().splitlines():
            number += 1
            if line.strip():
                text, token = line.split()
                found[int(token)] = base64.b64decode(text, validate=True)
    except OSError as error:
        raise RecoverError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise RecoverError(f"{path}: line {number} is not base64 and an id, as in a .tiktoken file") from None
    if not found or min(found) < 0 or max(found) > 10 * len(found):
        raise RecoverError(f"{path}: its ids are not those of a vocabulary")
    return [found.get(token) for token in range(max(found) + 1)]
