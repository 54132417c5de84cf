"""Completion in shells: from the line as it is typed to what may stand at its end.

It imports no NumPy and builds no commands: a person waits for it at every Tab.
"""

from __future__ import annotations

import sys

from .shells import ANSWERS, split_line
from .words import complete_words

__all__ = ["answer"]


def answer(shell: str, line: str) -> None:
    """Print what completes the line, which ends at the cursor, as the script of this shell reads it."""
    words = split_line(line)
    result = complete_words([word.text for word in words[1:-1]], words[-1].text)
    sys.stdout.write(ANSWERS[shell](result, words[-1]))
