"""Views of a chat's answers: formatted on a terminal, plain text elsewhere. Both show an answer as it grows."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from ...logprobs.parts import TextPart, TokenParts
from ..text import terminal_safe, visible

if TYPE_CHECKING:
    from rich.console import Console

    from ...logprobs.events import Done, Event
    from ..render.markdown import MarkdownStream


class AnswerView(ABC):
    """A view that shows answers and messages of the user."""

    separates_reasoning = False  # whether the reasoning is shown apart from the answer, without its tags

    @abstractmethod
    def show_part(self, part: TextPart) -> None:
        """Show the next piece of an answer."""

    @abstractmethod
    def end(self) -> None:
        """Finish the output of the answer."""

    def show(self, events: Iterable[Event], beginning: Iterable[TextPart] = ()) -> Done:
        """Show an answer while the model generates it, and return its last event."""
        # ``beginning``: the text that the answer begins with, and the model continues.
        from ...logprobs.events import Done, Start, Token

        parts = TokenParts(None)
        try:
            for event in events:
                if isinstance(event, Start):  # before this event, a progress bar may be on the screen
                    self._show_parts(beginning)
                    parts = TokenParts(event.reasoning if self.separates_reasoning else None)
                elif isinstance(event, Token):
                    self._show_parts(parts.push(event))
                elif isinstance(event, Done):
                    self._show_parts(parts.finish(event))
                    return event
        finally:
            self.end()
        raise RuntimeError("the answer ended without a Done event")

    @abstractmethod
    def show_message(self, text: str) -> None:
        """Show a message of the user that is not on the screen yet, such as in a resumed chat."""

    def show_answer(self, pieces: Iterable[TextPart]) -> None:
        self._show_parts(pieces)
        self.end()

    def _show_parts(self, pieces: Iterable[TextPart]) -> None:
        for piece in pieces:
            self.show_part(piece)


class PlainView(AnswerView):
    """A view that writes answers verbatim, each with a newline at its end."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._last_character = ""

    def show_part(self, part: TextPart) -> None:
        self._out.write(terminal_safe(part.text, self._out))
        self._out.flush()
        self._last_character = part.text[-1:] or self._last_character

    def show_message(self, text: str) -> None:
        """Write the message, with ``> `` in front of each line."""
        lines = terminal_safe(text, self._out).split("\n")
        self._out.write("".join(f"> {line}\n" for line in lines))

    def end(self) -> None:
        """Write a newline, unless the answer ends with one."""
        if self._last_character != "\n":
            self._out.write("\n")
            self._out.flush()
        self._last_character = ""


class ScreenView(AnswerView):
    """A view for terminals, with formatted Markdown and dimmed reasoning."""

    separates_reasoning = True

    def __init__(self, console: Console) -> None:
        from ..render.markdown import WordWriter

        self._console = console
        self._reasoning = WordWriter(console)
        self._is_reasoning = False
        # Newlines at the end of the reasoning so far. They are shown only if more reasoning follows.
        self._pending_newlines = ""
        self._markdown: MarkdownStream | None = None

    def show_part(self, part: TextPart) -> None:
        if part.part == "reasoning":
            self._show_reasoning(visible(part.text))
        else:
            self._end_reasoning()
            self._get_markdown_stream().feed(visible(part.text))

    def _show_reasoning(self, text: str) -> None:
        """Show the next part of the reasoning, without empty lines at its start and end."""
        from rich.text import Text

        if not self._is_reasoning:
            text = text.lstrip()
            if not text:
                return
            self._end_markdown()
            self._reasoning.begin(Text(), Text())
            self._is_reasoning = True
        pending_text = self._pending_newlines + text
        shown_text = pending_text.rstrip("\n")
        self._pending_newlines = pending_text[len(shown_text) :]
        self._reasoning.write(Text(shown_text, "dim italic"))

    def show_title(self, model: str) -> None:
        """Show the model's name, and the command that shows the help."""
        from rich.text import Text

        self._console.print(Text(f"{visible(model)}: /help lists commands, Ctrl-D leaves", "dim"))
        self._console.print()

    def show_message(self, text: str) -> None:
        """Show the message in the same layout as an input line."""
        from rich.text import Text

        from ..render.markdown import WordWriter

        writer = WordWriter(self._console)
        writer.begin(Text("> ", "bold"), Text("… ", "dim"))
        writer.write(Text(visible(text)))
        writer.end()

    def end(self) -> None:
        self._end_reasoning()
        self._end_markdown()

    def _get_markdown_stream(self) -> MarkdownStream:
        """Return the Markdown output of this answer, created at the first call."""
        from ..render.markdown import MarkdownStream

        if self._markdown is None:
            self._markdown = MarkdownStream(self._console)
        return self._markdown

    def _end_reasoning(self) -> None:
        """If reasoning was shown last, finish it, and print an empty line."""
        if self._is_reasoning:
            self._reasoning.end()
            self._console.print()
        self._is_reasoning = False
        self._pending_newlines = ""

    def _end_markdown(self) -> None:
        """If Markdown was shown last, finish it, and print an empty line."""
        if self._markdown is not None:
            self._markdown.finish()
            self._markdown = None
            self._console.print()
