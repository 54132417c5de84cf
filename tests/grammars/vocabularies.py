"""Small vocabularies of the kinds that models have, for grammars over a, b, é and è."""

import re

from logitsmith.grammars import BYTE_VOCABULARY

__all__ = ["BYTE_VOCABULARY", "SMALL", "Small", "bpe", "sentencepiece", "wordpiece"]


class Small:
    """A vocabulary whose tokenizer takes the longest piece each time.

    ``texts``: the pieces of text. ``control``: written forms of control tokens, the first of which ends a text.
    ``prefix``: what the tokenizer puts in front of a text. ``unknown``: the token for what no piece covers.
    """

    def __init__(self, texts, control=("<end>", "<think>", "</think>"), prefix=b"", unknown=None):
        self.pieces = [*(text.encode() for text in control), *texts]
        self.size = len(self.pieces)
        self.eog = frozenset({0})
        self._control = {text.encode(): token for token, text in enumerate(control)}
        self._prefix = prefix
        self._unknown = unknown
        self._by_piece = {}
        for token, piece in enumerate(self.pieces):
            if piece and token >= len(control):
                self._by_piece.setdefault(piece, token)
        self._longest = max(map(len, self._by_piece))

    def is_control(self, token):
        return token < len(self._control)

    def tokenize(self, data, special=False):
        if not special:
            return self._read(data)
        parts = re.split(b"(" + b"|".join(map(re.escape, self._control)) + b")", data)
        found = []
        for part in parts:
            found += [self._control[part]] if part in self._control else self._read(part)
        return found

    def _read(self, data):
        data = self._prefix + data if data else data
        found = []
        while data:
            for length in range(min(self._longest, len(data)), 0, -1):
                if data[:length] in self._by_piece:
                    found.append(self._by_piece[data[:length]])
                    break
            else:
                length = 1
                found.append(self._unknown)
            data = data[length:]
        return found


# ASCII, bytes that begin a character of two, three or four, bytes inside of one, and what is never UTF-8.
SINGLE = [
    bytes([byte])
    for byte in b'\0\1\2\n "<>\\abxyz\x7f\xc3\xe0\xe4\xed\xf0\xf4\x80\x8f\x98\x9f\xa8\xa9\xad\xb8\xbf\xc0\xff'
]


def sentencepiece():
    """Pieces of whole characters, a space in front of words and of every text, and tokens of single bytes."""
    words = [
        "a",
        "b",
        "é",
        "è",
        " ",
        " a",
        " b",
        "ab",
        "ba",
        " ab",
        "aé",
        "éè",
        "èa",
        "bbb",
        "aba",
        "  ",
        "z",
        '"',
    ]
    return Small([*SINGLE, *(word.encode() for word in words)], prefix=b" ")


def bpe():
    """Pieces that end and begin inside characters, some bytes twice, empty pieces."""
    e, f = "é".encode(), "è".encode()
    pieces = [b"ab", b"ba", b"ab", b"", e, f, e[:1], e[1:], b"a" + e[:1], e[1:] + b"b", e[1:] + f[:1], b"bb" + e]
    pieces += [b"", f[1:] + b"ab", e + f, b"aaa", b" a", b"a", "中".encode()[:2], "中".encode(), "😀".encode()[:3]]
    return Small([*SINGLE, *pieces])


def wordpiece():
    """Words behind a space, their ends without, and nothing for what is neither."""
    words = ["a", "b", "é", "è", " ", " a", " b", " é", " è", "ab", " ab", "ba", " bab", "éa", " èé", "bé", "z"]
    return Small([b"[UNK]", *(word.encode() for word in words)], prefix=b" ", unknown=3)


SMALL = {"sentencepiece": sentencepiece(), "bpe": bpe(), "wordpiece": wordpiece()}
