"""A model in a conversation: answers, each stored while it is made."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from ...common.text import count_noun
from .answer_recording import AnswerRecording
from .answer_settings import AnswerSettings, recipe_of
from .chat_prompt import OnFull, PromptMaker, template_messages, text_behind
from .context_room import ContextUse, FittedMessages, warning_of
from .conversation import Conversation
from .errors import ChatError
from .failover_store import Report
from .reasoning import ReasoningSplitter
from .replay import check_model, constraint_of, model_record, replay
from .store.records import StoredAnswer, StoredMessage

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.templates import ChatTemplate
    from ...logprobs.events import Event

_NOTHING_TO_ANSWER = "there is no message of yours to answer"


class ChatSession:
    """A model that answers in a conversation.

    The answers are those that `generate` gives for the same messages and seed in an empty context, token by token.

    Attributes: ``model``, ``conversation``; ``on_full``, what to do when the conversation does not fit: ``stop``
    or ``drop`` the oldest turns; ``dropped``, how many messages the last answer went without.
    """

    def __init__(
        self,
        model: Model,
        conversation: Conversation,
        report: Report,
        template: ChatTemplate | None = None,
        on_full: OnFull = "stop",
    ) -> None:
        """Open the session.

        Args:
            model: the model.
            conversation: where the messages are.
            report: called with a sentence that the user should see.
            template: the chat template; None: the model's own.
            on_full: what to do when the conversation does not fit into the context.

        Raises ``ModelError`` if there is no chat template.
        """
        from ...engine.templates import open_chat_template

        self.model, self.conversation, self.on_full = model, conversation, on_full
        self.template = template or open_chat_template(model)
        self.dropped = 0
        self._report = report
        # Known from the beginning on: the file may be moved while its model is in memory.
        self._model_record = model_record(model)
        self._prompts = PromptMaker(model, self.template, on_full, report)

    def answer(
        self,
        settings: AnswerSettings,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the message of the user at which the conversation stands.

        Yields the events of `generate`. The answer is stored while it grows; when the last event comes, the
        conversation stands at it. If no token was made, nothing is stored. Close what is not taken to its end.

        Args:
            settings: what it is made with.
            is_interrupted: once it returns True, the answer ends, and what is there is kept.
            progress: called while the prompt is read.

        Raises ``ChatError``, ``ContextFullError``, ``StoreError`` and what `generate` raises.
        """
        head = self.conversation.head
        if head is None or head.role != "user":
            raise ChatError(_NOTHING_TO_ANSWER)
        return self._generate(head, "", settings, is_interrupted, progress)

    def regenerate(
        self,
        settings: AnswerSettings,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the last message of the user again; the answers stand side by side. For the rest see `answer`."""
        return self._generate(self._last_user(), "", settings, is_interrupted, progress)

    def continue_from(
        self,
        text: str,
        settings: AnswerSettings,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the last message of the user with a text that the model goes on from.

        The events are those of the new part. The message that is stored begins with ``text``. Raises as `answer`
        does.

        Args:
            text: the beginning of the answer.
            settings: what the rest is made with.
            is_interrupted: see `answer`.
            progress: see `answer`.
        """
        return self._generate(self._last_user(), text, settings, is_interrupted, progress)

    def splitter(self, beginning: str = "") -> ReasoningSplitter:
        """Return what divides the next answer into reasoning and the rest; feed it `visible_text` of each token.

        ``beginning``: the text that the answer goes on from.
        """
        user = self.conversation.last_user()
        begun = beginning
        if user is not None:
            messages = template_messages(self.conversation.path_to(user), self.template)
            begun = text_behind(messages, self.template) + beginning
        return ReasoningSplitter(self.template.reasoning_tags, begun)

    def prompt_of_answer(self, beginning: str) -> tuple[int, ...]:
        """The tokens that the model reads to go on with an answer to the last message of the user.

        ``beginning``: what is there of the answer. Raises ``ChatError``, ``ContextFullError``.
        """
        return self._prompts.tokens(self._fit(self._last_user(), beginning, None).messages, beginning)

    def check_message(self, text: str, replaced: StoredMessage | None, max_tokens: int | None) -> None:
        """Check that a message of the user would fit, before it is added.

        Args:
            text: the message.
            replaced: the message in whose place it would be put; None: behind the head.
            max_tokens: how long its answer may be; None: any length.

        Raises ``ContextFullError``, and ``ModelError`` where the chat template rejects the messages.
        """
        path = self.conversation.messages_with_user(text, replaced)
        self._prompts.fit(path, self._dropped_before(path), max_tokens, is_resumable=self._is_resumable)

    def use(self) -> ContextUse:
        """How much of the context the conversation takes at this place, without the messages that are left out."""
        messages = self.conversation.messages()
        return self._prompts.use(messages, self._dropped_before(messages))

    def warning(self) -> str | None:
        """A sentence on a context that is nearly full; None while there is room."""
        return warning_of(self.use(), self.on_full == "drop", self._is_resumable)

    def replay(
        self,
        answer: StoredAnswer,
        trace: int | None = None,
        count: int | None = None,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[Event]:
        """Make an answer again, as it was made before, and yield the same events. Nothing is stored.

        Args:
            answer: the answer, see `Conversation.answer_record`.
            trace: how many candidates the events' traces have; None: they have none.
            count: make only its first tokens; None: all.
            is_interrupted: once it returns True, this ends.
            progress: called while the prompt is read.

        Raises ``ReplayError`` when the model is another one, or as soon as a token is.
        """
        check_model(self._model_record, answer)
        return replay(self.model, answer, trace, count, is_interrupted=is_interrupted, progress=progress)

    @property
    def _is_resumable(self) -> bool:
        return self.conversation.is_stored and self.conversation.id is not None

    def _last_user(self) -> StoredMessage:
        message = self.conversation.last_user()
        if message is None:
            raise ChatError(_NOTHING_TO_ANSWER)
        return message

    def _generate(
        self,
        parent: StoredMessage,
        beginning: str,
        settings: AnswerSettings,
        is_interrupted: Callable[[], bool] | None,
        progress: Callable[[int, int], None] | None,
    ) -> Generator[Event, None, None]:
        """Answer a message.

        Args:
            parent: the message.
            beginning: the text that the model goes on from.
            settings: what the answer is made with.
            is_interrupted: once it returns True, the answer ends.
            progress: called while the prompt is read.
        """
        from ...engine.generation import generate
        from ...samplers.building import build

        model = self.model
        fitted = self._fit(parent, beginning, settings.max_tokens)
        prompt_ids = self._prompts.tokens(fitted.messages, beginning)
        chain = build(list(settings.steps), seed=settings.seed, vocab=model.vocabulary)
        constraint = constraint_of(model, settings.grammar, beginning)
        recipe = recipe_of(settings, chain.config, self._model_record, fitted.dropped)
        recording = AnswerRecording(self.conversation, parent, recipe, prompt_ids, beginning, self.template)
        events = generate(
            model,
            prompt_ids,
            chain,
            constraint,
            stop=list(settings.stop),
            max_tokens=settings.max_tokens,
            top_logprobs=settings.top_logprobs,
            complete_sentence=settings.complete_sentence,
            jump=settings.jump,
            lookup=settings.lookup,
            trace=settings.trace,
            exact_reuse=True,
            progress=progress,
            is_interrupted=is_interrupted,
        )
        return recording.record(events)

    def _fit(self, parent: StoredMessage, beginning: str, max_tokens: int | None) -> FittedMessages:
        """The messages that go into the prompt of an answer; reports it if more are left out than before."""
        path = self.conversation.path_to(parent)
        before = self._dropped_before(path)
        fitted = self._prompts.fit(path, before, max_tokens, beginning, self._is_resumable)
        self.dropped = fitted.dropped
        if fitted.dropped > before:
            count = count_noun(fitted.dropped, "message")
            self._report(f"the context is full: the oldest {count} after the system message are left out now")
        return fitted

    def _dropped_before(self, path: Sequence[StoredMessage]) -> int:
        """How many messages the last answer on this path went without."""
        for message in reversed(path):
            if message.role == "assistant" and (record := self.conversation.answer_record(message)) is not None:
                return record.recipe.dropped
        return 0
