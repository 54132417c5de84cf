"""The bytes of tokens as text, which is held back while it may be the beginning of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple


class TextStreamState(NamedTuple):
    """A state of a `TextStream` in which no stop string has appeared."""

    decoder_state: tuple[bytes, int]
    held_back: str
    text_length: int
    passed_length: int  # number of characters of ``held_back`` in which no stop string may end


class TextStream:
    """A decoder of the bytes of tokens, which also finds stop strings."""

    # The bytes of an incomplete UTF-8 character are held back until the character is complete. Bytes that are not
    # UTF-8 become U+FFFD. Text that may be the beginning of a stop string is held back until the next tokens
    # decide.

    def __init__(self, stops: Sequence[str] = ()) -> None:
        """Begin a text. ``stops``: stop strings; empty ones are ignored."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop_strings = [stop for stop in stops if stop]
        self._held_back = ""
        self._passed_length = 0
        self.text = ""
        # the stop string that appeared, after which no more text is released; None if none has appeared
        self.matched_stop: str | None = None

    def copy(self) -> TextStream:
        stream_copy = TextStream(self._stop_strings)
        stream_copy._decoder.setstate(self._decoder.getstate())
        stream_copy._held_back = self._held_back
        stream_copy.text = self.text
        stream_copy._passed_length = self._passed_length
        stream_copy.matched_stop = self.matched_stop
        return stream_copy

    def push(self, data: bytes, *, finds_stop: bool = True) -> str:
        """Decode the bytes of one token; return the text that can be shown now, possibly empty. See `release`."""
        return self.release(self.decode(data), finds_stop=finds_stop)

    def decode(self, data: bytes) -> str:
        return self._decoder.decode(data)

    @property
    def has_incomplete_character(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def save(self) -> TextStreamState:
        return TextStreamState(self._decoder.getstate(), self._held_back, len(self.text), self._passed_length)

    def restore(self, state: TextStreamState) -> None:
        self._decoder.setstate(state.decoder_state)
        self._held_back = state.held_back
        self._passed_length = state.passed_length
        self.matched_stop = None
        if len(self.text) > state.text_length:
            self.text = self.text[: state.text_length]

    def finish(self) -> str:
        released = self.release(self._decoder.decode(b"", True))
        if self.matched_stop is None:
            released += self._held_back
            self.text += self._held_back
            self._held_back = ""
        return released

    def release(self, new_text: str, *, finds_stop: bool = True) -> str:
        """Append decoded text; return the text that can be shown now, possibly empty.

        ``finds_stop``: False to ignore a stop string that ends in this text. As in vLLM, a stop string that begins
        in this text and ends in a later one still counts.
        """
        if self.matched_stop is not None or not new_text:
            return ""
        if not self._stop_strings:
            self.text += new_text
            return new_text
        self._held_back += new_text
        if not finds_stop:
            self._passed_length = len(self._held_back)
        start_by_stop = {stop: self._find(stop) for stop in self._stop_strings}
        found_stops = [stop for stop, start in start_by_stop.items() if start >= 0]
        if found_stops:
            self.matched_stop = min(found_stops, key=start_by_stop.__getitem__)
            released = self._held_back[: start_by_stop[self.matched_stop]]
            self._held_back = ""
        else:
            end = len(self._held_back) - self._undecided_length()
            released = self._held_back[:end]
            self._held_back = self._held_back[end:]
            self._passed_length = max(self._passed_length - end, 0)
        self.text += released
        return released

    def _find(self, stop: str) -> int:
        """Return the place of a stop string that ends in text that was not passed over; -1 if there is none."""
        return self._held_back.find(stop, max(self._passed_length + 1 - len(stop), 0))

    def _undecided_length(self) -> int:
        """Return the number of characters at the end that may be the beginning of a stop string."""
        max_length = max((len(stop) - 1 for stop in self._stop_strings), default=0)
        for character_count in range(min(max_length, len(self._held_back)), 0, -1):
            ending = self._held_back[-character_count:]
            if any(stop.startswith(ending) for stop in self._stop_strings):
                return character_count
        return 0
