"""Markdown on a terminal, shown while it is written.

A text is only appended to: no line that stands on the screen is changed. So nothing flickers, nothing is shown
twice, and a window may change its size at any time.
"""

from .stream import MarkdownStream
from .word_writer import WordWriter

__all__ = ["MarkdownStream", "WordWriter"]
