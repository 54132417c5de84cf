"""A chat: a conversation, the model that answers in it, its settings, and where all of it is shown."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ...chats.prompt import ReasoningSplitter
from ...chats.records import ContextFullError
from ..interrupt import Interrupt, interruptible
from ..messages import INTERRUPTED, print_note
from .answer_view import AnswerView, ScreenView
from .settings import ChatSettings
from .typed_input import PipedInput, TurnInput

if TYPE_CHECKING:
    from ...chats.conversation import Conversation
    from ...chats.records import StoredMessage
    from ...chats.session import ChatSession
    from ...engine.request import GenerationRequest
    from ...logprobs.events import Done, Event


class LeaveChatError(Exception):
    """The user wants to leave. ``exit_code``: that of the command."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__()
        self.code = exit_code


@dataclass
class Chat:
    """A chat at work.

    Attributes:
        session: the model in the conversation.
        settings: the chain and what goes with it.
        view: where answers are shown.
        input: where turns come from.
        done: the last event of the last answer of this process; None before it.
    """

    session: ChatSession
    settings: ChatSettings
    view: AnswerView
    input: TurnInput
    done: Done | None = None
    _was_interrupted: bool = False
    """True if nothing was sent since Ctrl-C."""
    _unsent: str = ""
    """A message that was not sent; the next prompt offers it."""

    @property
    def conversation(self) -> Conversation:
        """The conversation."""
        return self.session.conversation

    @property
    def has_unsent(self) -> bool:
        """True if the next prompt offers a message that was not sent."""
        return bool(self._unsent)

    def send(self, text: str, replaced: StoredMessage | None = None) -> None:
        """Add a message of the user, and show the answer. Ctrl-C loses no message that was sent.

        A message that does not fit into the context is not added.

        Args:
            text: the message.
            replaced: the message of the user in whose place it is put; None: behind the head. If that is a message
                of the user, it is replaced: templates want an answer between two of them.
        """
        before = self.conversation.current_message
        try:
            self._add_user(text, replaced)
            self._run(self.session.answer, self.settings.for_answer())
        except KeyboardInterrupt:
            if self.conversation.current_message == before:
                self._add_user(text, replaced)
            raise

    def _add_user(self, text: str, edited: StoredMessage | None) -> None:
        max_tokens = self.settings.for_answer().max_tokens
        replaced = edited or self.conversation.unanswered_message()
        try:
            self.session.check_message(text, replaced, max_tokens)
        except ContextFullError as error:
            place = ""
            if isinstance(self.view, ScreenView):
                self._unsent, place = text, ", and is in the input line again"
            raise ContextFullError(f"{error}; the message is not sent{place}") from None
        message = self.conversation.add_user_message(text, replaced)
        if replaced is not None and edited is None and message.hash != replaced.hash:
            print_note("this message takes the place of the one without an answer; /branch shows both")

    def regenerate(self) -> None:
        """Answer the last message of the user again, with a further seed."""
        last = self.conversation.last_user_message()
        earlier = 0 if last is None else self.conversation.answer_count(last)
        self._run(self.session.regenerate, self.settings.for_answer(earlier))

    def go_on_from(self, text: str) -> None:
        """Answer the last message of the user by a text that the model goes on from."""

        def answer(settings: GenerationRequest, **reports: Any) -> Generator[Event, None, None]:
            return self.session.continue_from(text, settings, **reports)

        self._run(answer, self.settings.for_answer(), text)

    def save_settings(self) -> None:
        """Store the settings with the conversation."""
        self.conversation.save_settings(self.settings.table())

    def confirm(self, changed: str) -> None:
        """On a terminal, say what is set now; in a pipe, /settings shows it."""
        if isinstance(self.view, ScreenView):
            print_note(changed)

    def greet(self) -> None:
        """On a terminal, say which model answers and how to get help, and show where the conversation stands.

        Elsewhere only say so if the last message has no answer.
        """
        if isinstance(self.view, ScreenView):
            self.view.show_title(self.session.model.name)
            self.show_last_turn()
        else:
            self._note_open_message()

    def show_last_turn(self) -> None:
        """Show where the conversation stands: the last message of the user, and its answer."""
        user, head = self.conversation.last_user_message(), self.conversation.current_message
        if user is not None:
            self.view.show_message(user.content)
        if head is not None and head.role == "assistant":
            self.view.show_answer(head.content, self._splitter())
        self._note_open_message()

    def _note_open_message(self) -> None:
        """At a message of the user, say what can be done: nothing else shows that an answer is missing."""
        message = self.conversation.unanswered_message()
        if message is None:
            return
        if self.conversation.children(message):
            print_note("/regen answers this message again, and another message takes its place")
        else:
            print_note("the last message has no answer; /regen answers it, and another message takes its place")

    def read_turn(self) -> str:
        """Return the next turn; raises as `TurnInput.read` does."""
        unsent, self._unsent = self._unsent, ""
        turn = self.input.read(default=unsent)
        self._was_interrupted = False
        return turn

    def is_second_interrupt(self) -> bool:
        """Note that Ctrl-C was pressed; True if nothing was sent or cleared since it was pressed before."""
        before, self._was_interrupted = self._was_interrupted, True
        return not self.input.pop_was_cleared() and before

    def warn(self) -> None:
        """Say when the context is nearly full."""
        warning = self.session.warning()
        if warning is not None:
            print_note(warning)

    def _splitter(self) -> ReasoningSplitter:
        """What divides an answer; plain text is left as the model writes it."""
        is_divided = isinstance(self.view, ScreenView)
        return self.session.new_reasoning_splitter() if is_divided else ReasoningSplitter(None)

    def _run(
        self,
        make_answer: Callable[..., Generator[Event, None, None]],
        settings: GenerationRequest,
        beginning: str = "",
    ) -> None:
        """Make an answer and show it. Ctrl-C ends it; what was made is kept.

        Args:
            make_answer: a method of the session.
            settings: what the answer is made with.
            beginning: the text that it goes on from.
        """
        from ..render.progress import erase_bar_before_done, reading_bar

        interrupt = Interrupt()
        try:
            with interruptible() as interrupt:
                splitter = self._splitter()
                with reading_bar() as progress, interrupt.graceful_shutdown():
                    if self.input.pop_interrupt():
                        signal.raise_signal(signal.SIGINT)
                    events = make_answer(settings, is_interrupted=lambda: interrupt.requested, progress=progress)
                    with closing(events):  # what is there is stored now, also where nobody reads it any more
                        shown = erase_bar_before_done(events, progress)
                        self.done = self.view.show(shown, splitter, self.session.template, beginning)
        finally:
            if interrupt.requested:
                self.is_second_interrupt()
        self._report(self.done, interrupt)

    def _report(self, done: Done, interrupt: Interrupt) -> None:
        if interrupt.requested:
            if interrupt.exit_code != INTERRUPTED:
                raise typer.Exit(interrupt.exit_code)
            if interrupt.is_repeated or isinstance(self.input, PipedInput):
                raise LeaveChatError(INTERRUPTED)
            kept = (
                "what was written is kept"
                if done.completion_tokens
                else "nothing was written, /regen answers again"
            )
            print_note(f"the answer was ended, {kept}; Ctrl-C again leaves the chat")
        elif done.finish_reason == "length":
            print_note(f"the answer ends at {done.completion_tokens:,} tokens, see max_tokens in /settings")
        elif done.finish_reason == "context":
            print_note("the answer ends because the context is full; a larger -c has more room")
        if done.complete is False and not interrupt.requested:
            print_note("the answer does not complete the grammar")
