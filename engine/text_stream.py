"""From the bytes of tokens to text that can be shown: whole characters, without stop texts."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Decodes the bytes of tokens, and looks for stop texts.

    The bytes of a token that ends inside a UTF-8 character are held back until the character is complete. Bytes
    that are not UTF-8 become U+FFFD. Text that may be the beginning of a stop text is held back until that is
    decided. Attributes: ``text``, all text that was released; ``stopped``, the stop text that appeared, after
    which nothing more is released, else None.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [stop for stop in stops if stop]
        self._held_back = ""
        self.text = ""
        self.stopped: str | None = None

    def push(self, data: bytes) -> str:
        """Take the bytes of one token; returns the text that can be shown now, possibly empty."""
        return self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """Take no more bytes; returns the text that was held back."""
        released = self._release(self._decoder.decode(b"", True))
        if self.stopped is None:
            released += self._held_back
            self.text += self._held_back
            self._held_back = ""
        return released

    def _release(self, new: str) -> str:
        if self.stopped is not None or not new:
            return ""
        if not self._stops:
            self.text += new
            return new
        self._held_back += new
        matches = [(start, stop) for stop in self._stops if (start := self._held_back.find(stop)) >= 0]
        if matches:
            start, self.stopped = min(matches, key=lambda match: match[0])
            released, self._held_back = self._held_back[:start], ""
        else:
            end = len(self._held_back) - self._undecided_length()
            released, self._held_back = self._held_back[:end], self._held_back[end:]
        self.text += released
        return released

    def _undecided_length(self) -> int:
        """How many characters at the end may be the beginning of a stop text."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for count in range(min(longest, len(self._held_back)), 0, -1):
            tail = self._held_back[-count:]
            if any(stop.startswith(tail) for stop in self._stops):
                return count
        return 0
