"""From bytes to text as it streams: whole characters only, and stop strings held back."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Turns the bytes of tokens into text that may be shown, with an eye on stop strings.

    A token that ends inside a UTF-8 character holds its bytes back until the character is whole; bytes that
    are no UTF-8 become U+FFFD. Text that could begin a stop string is held back until it is clear. Once a
    stop string is complete, ``stopped`` names it and nothing more comes out.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.text = ""
        """Everything that came out so far."""
        self.stopped: str | None = None

    def push(self, data: bytes) -> str:
        """Take the bytes of one token; return the text that is now free to be shown, maybe empty."""
        return self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """No more bytes will come: return what was held back."""
        out = self._release(self._decoder.decode(b"", True))
        if self.stopped is None:
            out += self._held
            self.text += self._held
            self._held = ""
        return out

    def _release(self, new: str) -> str:
        if self.stopped is not None or not new:
            return ""
        if not self._stops:
            self.text += new
            return new
        self._held += new
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.stopped = min(found, key=lambda hit: hit[0])
            out, self._held = self._held[:at], ""
        else:
            keep = self._undecided()
            cut = len(self._held) - keep
            out, self._held = self._held[:cut], self._held[cut:]
        self.text += out
        return out

    def _undecided(self) -> int:
        """How many characters at the end could be the beginning of a stop string."""
        most = max((len(stop) - 1 for stop in self._stops), default=0)
        for count in range(min(most, len(self._held)), 0, -1):
            tail = self._held[-count:]
            if any(stop.startswith(tail) for stop in self._stops):
                return count
        return 0
