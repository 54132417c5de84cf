"""rich's console of stdout; rich takes 30 ms to import, so that only what draws tables imports this."""

from __future__ import annotations

from rich.console import Console


class OutputConsole(Console):
    """A console whose reader may leave early: `gen presets | head -1` ends as other commands do, with code 0."""

    def on_broken_pipe(self) -> None:
        """Raise ``BrokenPipeError``; rich would end the process with code 1."""
        self.quiet = True
        raise BrokenPipeError
