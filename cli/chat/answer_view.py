"""Answers on the screen while they are made, and as plain text elsewhere."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from ..render.run import terminal_safe, visible

if TYPE_CHECKING:
    from rich.console import Console

    from ...chats.prompt import ReasoningSplitter
    from ...engine.templates import ChatTemplate
    from ...logprobs.events import Done, Event
    from ..render.markdown import MarkdownStream


class AnswerView(ABC):
    """Shows answers."""

    @abstractmethod
    def show_part(self, text: str, is_reasoning: bool) -> None:
        """Show a piece of an answer."""

    @abstractmethod
    def end(self) -> None:
        """End the answer."""

    def show(
        self, events: Iterable[Event], splitter: ReasoningSplitter, template: ChatTemplate, beginning: str = ""
    ) -> Done:
        """Show an answer while it is made; returns its last event.

        Args:
            events: the events of the answer.
            splitter: tells its reasoning from the rest.
            template: the chat template, which has the tags of reasoning.
            beginning: the text that the answer goes on from.
        """
        from ...chats.session import visible_text
        from ...logprobs.events import Done, Start, Token

        try:
            for event in events:
                if isinstance(event, Start):  # not before: there may be a bar while the prompt is read
                    self._push(beginning, splitter)
                elif isinstance(event, Token):
                    self._push(visible_text(event, template), splitter)
                elif isinstance(event, Done):
                    self._push(event.rest, splitter)
                    return event
        finally:
            for part in splitter.finish():
                self.show_part(part.text, part.is_reasoning)
            self.end()
        raise RuntimeError("the answer ended without a Done event")

    @abstractmethod
    def show_message(self, text: str) -> None:
        """Show a message of the user, which was not typed just now."""

    def show_answer(self, text: str, splitter: ReasoningSplitter) -> None:
        """Show an answer that is there already."""
        self._push(text, splitter)
        for part in splitter.finish():
            self.show_part(part.text, part.is_reasoning)
        self.end()

    def _push(self, text: str, splitter: ReasoningSplitter) -> None:
        for part in splitter.append(text):
            self.show_part(part.text, part.is_reasoning)


class PlainView(AnswerView):
    """Writes the text of answers as the model wrote it, each with a newline at its end."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._last = ""

    def show_part(self, text: str, is_reasoning: bool) -> None:
        """Write a piece of an answer."""
        self._out.write(terminal_safe(text, self._out))
        self._out.flush()
        self._last = text[-1:] or self._last

    def show_message(self, text: str) -> None:
        """Write the message, with a mark before each line."""
        lines = terminal_safe(text, self._out).split("\n")
        self._out.write("".join(f"> {line}\n" for line in lines))

    def end(self) -> None:
        """End the last line."""
        if self._last != "\n":
            self._out.write("\n")
            self._out.flush()
        self._last = ""


class ScreenView(AnswerView):
    """Shows answers on a terminal: Markdown as it is meant, reasoning dimmed."""

    def __init__(self, console: Console) -> None:
        from ..render.markdown import WordWriter

        self._console = console
        self._reasoning = WordWriter(console)
        self._is_reasoning = False
        self._line_ends = ""
        """Those at the end of the reasoning, which are shown if more of it follows."""
        self._markdown: MarkdownStream | None = None

    def show_part(self, text: str, is_reasoning: bool) -> None:
        """Show a piece of an answer."""
        if is_reasoning:
            self._show_reasoning(visible(text))
        else:
            self._end_reasoning()
            self._begun_markdown().feed(visible(text))

    def _show_reasoning(self, text: str) -> None:
        """Show a piece of the reasoning, without the empty lines around it."""
        from rich.text import Text

        if not self._is_reasoning:
            text = text.lstrip()
            if not text:
                return
            self._end_markdown()
            self._reasoning.begin(Text(), Text())
            self._is_reasoning = True
        whole = self._line_ends + text
        shown = whole.rstrip("\n")
        self._line_ends = whole[len(shown) :]
        self._reasoning.write(Text(shown, "dim italic"))

    def show_title(self, model: str) -> None:
        """Show the model's name, and how to get help."""
        from rich.text import Text

        self._console.print(Text(f"{visible(model)}: /help lists commands, Ctrl-D leaves", "dim"))
        self._console.print()

    def show_message(self, text: str) -> None:
        """Show the message as it stands behind the mark where it was typed."""
        from rich.text import Text

        from ..render.markdown import WordWriter

        writer = WordWriter(self._console)
        writer.begin(Text("> ", "bold"), Text("… ", "dim"))
        writer.write(Text(visible(text)))
        writer.end()

    def end(self) -> None:
        """End the answer, and leave a line free."""
        self._end_reasoning()
        self._end_markdown()

    def _begun_markdown(self) -> MarkdownStream:
        from ..render.markdown import MarkdownStream

        if self._markdown is None:
            self._markdown = MarkdownStream(self._console)
        return self._markdown

    def _end_reasoning(self) -> None:
        """If reasoning was shown last, end it, and leave a line free."""
        if self._is_reasoning:
            self._reasoning.end()
            self._console.print()
        self._is_reasoning, self._line_ends = False, ""

    def _end_markdown(self) -> None:
        """If a text was shown last, end it, and leave a line free."""
        if self._markdown is not None:
            self._markdown.finish()
            self._markdown = None
            self._console.print()
