"""Which tokens of a vocabulary can write a part of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


class Overlaps:
    """A text, and the tokens by which it can come about.

    Attributes: ``text``, its bytes; ``whole``, the tokens that contain all of it.
    Parameters: ``pieces``, the bytes of every token, by id.
    """

    def __init__(self, text: bytes, pieces: Sequence[bytes]) -> None:
        self.text = text
        self.whole = [token for token, piece in enumerate(pieces) if text in piece]
        # The tokens that write its rest, by how many of its bytes stand before them.
        rests = {text[count:]: count for count in range(1, len(text))}
        lengths = sorted({len(rest) for rest in rests})
        found: dict[int, list[int]] = {count: [] for count in rests.values()}
        firsts = {rest[:1] for rest in rests}
        for token, piece in enumerate(pieces):
            if piece[:1] not in firsts:
                continue
            for length in lengths:
                if length > len(piece):
                    break
                count = rests.get(piece[:length])
                if count is not None:
                    found[count].append(token)
        self._endings = [(text[:count], np.array(ids, dtype=np.intp)) for count, ids in found.items() if ids]

    def completing(self, tail: bytes) -> Iterator[NDArray[np.intp]]:
        """Ids of the tokens that would complete the text, if ``tail`` is the end of what was written."""
        for begun, ids in self._endings:
            if tail.endswith(begun):
                yield ids


def heads(text: bytes, pieces: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the tokens with which a text can begin, each with the bytes that are then still to come.

    A token that contains the whole text comes once, with none. One whose end is a beginning of the text comes
    once for each such place.
    """
    first = text[:1]
    for token, piece in enumerate(pieces):
        if text in piece:
            yield token, b""
            continue
        place = piece.find(first)
        while place >= 0:
            written = piece[place:]
            if text.startswith(written):
                yield token, text[len(written) :]
            place = piece.find(first, place + 1)
