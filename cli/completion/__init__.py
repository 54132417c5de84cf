"""Completion in shells: from a typed line to the words that may complete it.

Importing NumPy or building all commands would be too slow, because the user waits for the result at every Tab.
"""

from __future__ import annotations

import sys

from .shells import ANSWERS, split_line
from .words import complete_words

__all__ = ["answer"]


def answer(shell: str, line: str) -> None:
    """Print the completions of a line up to the cursor, as the script of the shell reads them."""
    words = split_line(line)
    result = complete_words([word.text for word in words[1:-1]], words[-1].text)
    sys.stdout.write(ANSWERS[shell](result, words[-1]))
