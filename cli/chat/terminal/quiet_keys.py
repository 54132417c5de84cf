"""What is typed while an answer is shown does not appear in it; it stands at the next prompt."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def quiet_keys() -> Iterator[None]:
    """While inside, the terminal does not show what is typed; a line editor does. Ctrl-C works as ever.

    Shells change the terminal when a process is stopped (Ctrl-Z): once it goes on, this is set again.
    """
    keys = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(keys)
    except termios.error:
        yield
        return
    changed = [*before]
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    changed[6] = [*before[6]]
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0

    def set_again(*_: object) -> None:
        with suppress(termios.error, OSError):
            if os.tcgetpgrp(keys) == os.getpgrp():  # in the background, it would be stopped for that
                termios.tcsetattr(keys, termios.TCSANOW, changed)

    handler = signal.signal(signal.SIGCONT, set_again)
    try:
        with suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSADRAIN, changed)
        yield
    finally:
        signal.signal(signal.SIGCONT, handler)
        with suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
