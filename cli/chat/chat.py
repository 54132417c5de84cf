"""A chat: a conversation, its model and settings, and the views of its input and output."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...chats.records import ContextFullError
from ...logprobs.parts import TextPart
from ..interrupt import Interrupt, interruptible_turn
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
    """The request of the user to leave the chat."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__()
        self.exit_code = exit_code


@dataclass
class Chat:
    """A chat between the user and a model."""

    session: ChatSession
    settings: ChatSettings  # the chain, the grammar and all other settings of answers
    view: AnswerView
    input: TurnInput  # the source of turns
    last_done: Done | None = None  # of the latest answer that this process generated; None before the first answer
    _was_interrupted: bool = False  # True if no turn was sent after the last Ctrl-C
    # Message that did not fit into the context. The next input line begins with it. Empty if there is none.
    _unsent_message: str = ""

    @property
    def conversation(self) -> Conversation:
        return self.session.conversation

    @property
    def has_unsent_message(self) -> bool:
        """True if a message could not be sent; the next input line then begins with its text."""
        return bool(self._unsent_message)

    def send(self, text: str, replaced: StoredMessage | None = None) -> None:
        """Add a message of the user, and show the answer."""
        # A message that does not fit into the context is not added. Ctrl-C before the answer keeps the message.
        # ``replaced``: the message that the new one replaces; None: the new message is added at the end. An
        # unanswered message of the user at the end is replaced even then, because chat templates need an answer
        # between two messages of the user.
        message_before = self.conversation.current_message
        try:
            self._add_user_message(text, replaced)
            self._show_new_answer(self.session.answer, self.settings.next_request())
        except KeyboardInterrupt:
            if self.conversation.current_message == message_before:
                self._add_user_message(text, replaced)
            raise

    def _add_user_message(self, text: str, edited: StoredMessage | None) -> None:
        """Add a message of the user, in place of ``edited`` or of an unanswered message if there is one."""
        max_tokens = self.settings.next_request().max_tokens
        replaced = edited or self.conversation.unanswered_message()
        try:
            self.session.check_message(text, replaced, max_tokens)
        except ContextFullError as error:
            consequence = "the message is not sent"
            if isinstance(self.view, ScreenView):
                self._unsent_message = text
                consequence += ", and is in the input line again"
            raise ContextFullError(f"{error}; {consequence}") from None
        message = self.conversation.add_user_message(text, replaced)
        replaces_unanswered = edited is None and replaced is not None and message.hash != replaced.hash
        if replaces_unanswered:
            print_note("this message replaces the one without an answer; /branch shows both")

    def regenerate(self) -> None:
        """Answer the last message of the user again, with another seed."""
        user_message = self.conversation.last_user_message()
        earlier_count = 0 if user_message is None else self.conversation.answer_count(user_message)
        self._show_new_answer(self.session.regenerate, self.settings.next_request(earlier_count))

    def continue_from(self, text: str) -> None:
        """Answer the last message of the user with ``text`` and its continuation by the model."""
        # If the model writes nothing, for example because of Ctrl-C, ``text`` alone becomes the answer.

        def answer(settings: GenerationRequest, **reports: Any) -> Generator[Event, None, None]:
            return self.session.continue_from(text, settings, **reports)

        message_before = self.conversation.current_message
        try:
            self._show_new_answer(answer, self.settings.next_request(), text)
        finally:
            if text and self.conversation.current_message == message_before:
                self.conversation.add_answer_version(text)

    def save_settings(self) -> None:
        """Store the settings with the conversation."""
        self.conversation.save_settings(self.settings.stored_fields())

    def confirm(self, sentence: str) -> None:
        """Print a note about a change, on a terminal only. In a pipe, /settings shows the change."""
        if isinstance(self.view, ScreenView):
            print_note(sentence)

    def greet(self) -> None:
        """Show the model's name and the last turn on a terminal. Print a note about a message without answer."""
        if isinstance(self.view, ScreenView):
            self.view.show_title(self.session.model.name)
            self.show_last_turn()
        else:
            self._print_unanswered_note()

    def show_last_turn(self) -> None:
        """Show the last message of the user, and its answer if there is one."""
        user_message = self.conversation.last_user_message()
        current_message = self.conversation.current_message
        if user_message is not None:
            self.view.show_message(user_message.content)
        if current_message is not None and current_message.role == "assistant":
            self.view.show_answer(self._parts_of(current_message))
        self._print_unanswered_note()

    def _print_unanswered_note(self) -> None:
        message = self.conversation.unanswered_message()
        if message is None:
            return
        if self.conversation.children(message):
            print_note("/regen answers this message again; a new message replaces it")
        else:
            print_note("the last message has no answer; /regen answers it, and a new message replaces it")

    def read_turn(self) -> str:
        unsent_message = self._unsent_message
        self._unsent_message = ""
        turn = self.input.read(default=unsent_message)
        self._was_interrupted = False
        return turn

    def record_interrupt(self) -> bool:
        """Record that Ctrl-C was pressed. Return True if it should leave the chat."""
        # The second Ctrl-C leaves the chat, unless a turn was sent or the input line was cleared in between.
        was_interrupted_before = self._was_interrupted
        self._was_interrupted = True
        was_cleared = self.input.pop_was_cleared()
        return was_interrupted_before and not was_cleared

    def note_full_context(self) -> None:
        """Print a note if the context is nearly full."""
        warning = self.session.warning()
        if warning is not None:
            print_note(warning)

    def _parts_of(self, answer: StoredMessage | str) -> list[TextPart]:
        """Return the pieces of an answer, or of its beginning, that the view shows."""
        text = answer if isinstance(answer, str) else answer.content
        if not text:
            return []
        if not self.view.separates_reasoning:
            return [TextPart("answer", text)]
        session = self.session
        return session.parts_of_beginning(answer) if isinstance(answer, str) else session.parts_of(answer)

    def _show_new_answer(
        self,
        generate_answer: Callable[..., Generator[Event, None, None]],
        settings: GenerationRequest,
        beginning: str = "",
    ) -> None:
        """Generate an answer and show it. Ctrl-C ends the answer; its text so far is kept."""
        # ``settings`` is a request without a prompt. The model continues ``beginning``.
        from ..render.progress import erase_bar_before_done, reading_bar

        interrupt = Interrupt()
        try:
            with interruptible_turn() as interrupt:
                shown_beginning = self._parts_of(beginning)
                with reading_bar() as progress, interrupt.graceful_shutdown():
                    if self.input.pop_interrupt():
                        signal.raise_signal(signal.SIGINT)
                    events = generate_answer(
                        settings, is_interrupted=lambda: interrupt.requested, progress=progress
                    )
                    with closing(events):  # closing stores the text so far, even if the view fails
                        shown_events = erase_bar_before_done(events, progress)
                        self.last_done = self.view.show(shown_events, shown_beginning)
        finally:
            if interrupt.requested:
                self.record_interrupt()
        self._report_end(self.last_done, interrupt, beginning)

    def _report_end(self, last_event: Done, interrupt: Interrupt, beginning: str) -> None:
        if interrupt.requested:
            if interrupt.is_repeated or isinstance(self.input, PipedInput):
                raise LeaveChatError(INTERRUPTED)
            has_text = bool(last_event.completion_tokens or beginning)
            rest = "its text so far is kept" if has_text else "no text was written, /regen answers again"
            print_note(f"the answer was interrupted, {rest}; press Ctrl-C again to leave the chat")
        elif last_event.finish_reason == "length":
            print_note(
                f"the answer ends at {last_event.completion_tokens:,} tokens, the limit max_tokens in /settings"
            )
        elif last_event.finish_reason == "banned":
            print_note("the answer ends because each token that was tried leads to a ban")
        elif last_event.finish_reason == "loop":
            print_note(f"the answer ends because its last {last_event.loop_period:,} tokens repeat")
        elif last_event.finish_reason == "context":
            print_note("the answer ends because the context is full; -c makes the context larger")
        if last_event.reasoning and not last_event.text and not interrupt.requested:
            print_note("the model wrote reasoning, and no answer; /edit answer continues it, with text of yours")
        if last_event.complete is False and not interrupt.requested:
            print_note("the answer does not complete the grammar")
