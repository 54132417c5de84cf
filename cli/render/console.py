"""A console of rich for stdout. Imported when it is needed, since importing rich takes 30 ms."""

from __future__ import annotations

from rich.console import Console


class OutputConsole(Console):
    """A console whose reader may close the pipe early: `gen presets | head -1` ends with exit code 0."""

    def on_broken_pipe(self) -> None:
        """Raise ``BrokenPipeError``, since rich itself would end the process with exit code 1."""
        self.quiet = True
        raise BrokenPipeError
