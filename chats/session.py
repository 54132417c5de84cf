"""Answers in a conversation: new, again, continued, and replayed; each is stored while it is made.

A `ChatStore` holds the conversations of a user. A `Conversation` stands at a message in its tree of messages. A
`ChatSession` lets a model answer there, as an iterator of the engine's events::

    store = ChatStore.open()
    conversation = Conversation.new(store, report=note)
    session = ChatSession(model, conversation, report=note)
    conversation.add_user_message("Hello")
    for event in session.answer(GenerationRequest("", settings.steps, seed=1)):
        ...

To branch, `Conversation.goto` an earlier message and add another one after it. Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.text import count_noun
from .conversation import Conversation, Report
from .prompt import (
    ContextUsage,
    FittedMessages,
    OnFull,
    PromptMaker,
    ReasoningSplitter,
    answer_opening,
    context_warning,
    template_messages,
)
from .records import AnswerRecipe, ChatError, ReplayError, StoredAnswer, StoredMessage

if TYPE_CHECKING:
    from ..engine.model import Model
    from ..engine.request import GenerationRequest
    from ..engine.templates import ChatTemplate
    from ..logprobs.events import Event, Token
    from ..samplers.chain import Chain


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
        from ..engine.templates import open_chat_template

        self.model, self.conversation, self.on_full = model, conversation, on_full
        self.template = template or open_chat_template(model)
        self.dropped_message_count = 0
        self._report = report
        # Known from the beginning on: the file may be moved while its model is in memory.
        self._model_record = _model_record(model)
        self._prompts = PromptMaker(model, self.template, on_full, report)

    def answer(
        self,
        request: GenerationRequest,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the message of the user at which the conversation stands.

        Yields the events of `generate`. The answer is stored while it grows; when the last event comes, the
        conversation stands at it. If no token was made, nothing is stored. Close what is not taken to its end.

        Args:
            request: what it is made with; its prompt is made here.
            is_interrupted: once it returns True, the answer ends, and what is there is kept.
            progress: called while the prompt is read.

        Raises ``ChatError``, ``ContextFullError``, ``StoreError`` and what `generate` raises.
        """
        head = self.conversation.current_message
        if head is None or head.role != "user":
            raise ChatError(_NOTHING_TO_ANSWER)
        return self._generate(head, "", request, is_interrupted, progress)

    def regenerate(
        self,
        request: GenerationRequest,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the last message of the user again; the answers stand side by side. For the rest see `answer`."""
        return self._generate(self._last_user_message(), "", request, is_interrupted, progress)

    def continue_from(
        self,
        text: str,
        request: GenerationRequest,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the last message of the user with a text that the model goes on from.

        The events are those of the new part. The message that is stored begins with ``text``. Raises as `answer`
        does.

        Args:
            text: the beginning of the answer.
            request: what the rest is made with; its prompt is made here.
            is_interrupted: see `answer`.
            progress: see `answer`.
        """
        return self._generate(self._last_user_message(), text, request, is_interrupted, progress)

    def new_reasoning_splitter(self, beginning: str = "") -> ReasoningSplitter:
        """Return what divides the next answer into reasoning and the rest; feed it `visible_text` of each token.

        ``beginning``: the text that the answer goes on from.
        """
        user = self.conversation.last_user_message()
        begun = beginning
        if user is not None:
            messages = template_messages(self.conversation.path_to(user), self.template)
            begun = answer_opening(messages, self.template) + beginning
        return ReasoningSplitter(self.template.reasoning_tags, begun)

    def prompt_ids_to_continue(self, beginning: str) -> tuple[int, ...]:
        """The tokens that the model reads to go on with an answer to the last message of the user.

        ``beginning``: what is there of the answer. Raises ``ChatError``, ``ContextFullError``.
        """
        return self._prompts.tokens(self._fit(self._last_user_message(), beginning, None).messages, beginning)

    def check_message(self, text: str, replaced: StoredMessage | None, max_tokens: int | None) -> None:
        """Check that a message of the user would fit, before it is added.

        Args:
            text: the message.
            replaced: the message in whose place it would be put; None: behind the head.
            max_tokens: how long its answer may be; None: any length.

        Raises ``ContextFullError``, and ``ModelError`` where the chat template rejects the messages.
        """
        path = self.conversation.messages_with("user", text, replaced)
        self._prompts.fit(path, self._previously_dropped_count(path), max_tokens, is_resumable=self._is_resumable)

    def usage(self) -> ContextUsage:
        """How much of the context the conversation takes at this place, without the messages that are left out."""
        messages = self.conversation.messages()
        return self._prompts.usage(messages, self._previously_dropped_count(messages))

    def warning(self) -> str | None:
        """A sentence on a context that is nearly full; None while there is room."""
        return context_warning(self.usage(), self.on_full == "drop", self._is_resumable)

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
        from ..engine.generation import generate_request
        from ..engine.request import GenerationRequest
        from ..grammars.spec import GrammarSpec
        from ..samplers.building import build

        model, recipe, made_by = self.model, answer.recipe, answer.recipe.model
        if made_by.get("fingerprint") != self._model_record["fingerprint"]:
            raise ReplayError(
                f"{made_by.get('name')} made this answer, and {self._model_record['name']} is loaded;"
                f" start gen chat with -m {made_by.get('path')} to see why"
            )
        spec = None if recipe.grammar is None else GrammarSpec(**recipe.grammar)
        length = len(answer.token_ids) if count is None else min(count, len(answer.token_ids))
        # What completes a sentence comes after the length that was set.
        is_completed = recipe.max_tokens is not None and length > recipe.max_tokens
        request = GenerationRequest(
            answer.prompt_ids,
            build(recipe.chain, seed=recipe.seed, vocab=model.vocabulary),
            spec,
            stop=recipe.stop,
            max_tokens=recipe.max_tokens if is_completed else length,
            complete_sentence=is_completed,
            jump=recipe.options.get("jump", True),
            lookup=recipe.options.get("lookup", 0),
            trace=trace,
            beginning=answer.beginning,
            exact_reuse=True,
        )
        events = generate_request(model, request, progress=progress, is_interrupted=is_interrupted)
        return _check_tokens(events, model, answer)

    @property
    def _is_resumable(self) -> bool:
        return self.conversation.is_stored and self.conversation.id is not None

    def _last_user_message(self) -> StoredMessage:
        message = self.conversation.last_user_message()
        if message is None:
            raise ChatError(_NOTHING_TO_ANSWER)
        return message

    def _generate(
        self,
        parent: StoredMessage,
        beginning: str,
        request: GenerationRequest,
        is_interrupted: Callable[[], bool] | None,
        progress: Callable[[int, int], None] | None,
    ) -> Generator[Event, None, None]:
        """Answer a message.

        Args:
            parent: the message.
            beginning: the text that the model goes on from.
            request: what the answer is made with.
            is_interrupted: once it returns True, the answer ends.
            progress: called while the prompt is read.
        """
        from ..engine.generation import build_chain, generate_request

        model = self.model
        fitted = self._fit(parent, beginning, request.max_tokens)
        prompt_ids = self._prompts.tokens(fitted.messages, beginning)
        chain = build_chain(model, request)
        recipe = _recipe_of(request, chain, self._model_record, fitted.dropped_message_count)
        request = replace(request, prompt=prompt_ids, chain=chain, beginning=beginning, exact_reuse=True)
        events = generate_request(model, request, progress=progress, is_interrupted=is_interrupted)
        text_of = partial(visible_text, template=self.template)
        return self.conversation.record_answer(events, parent, recipe, prompt_ids, beginning, text_of)

    def _fit(self, parent: StoredMessage, beginning: str, max_tokens: int | None) -> FittedMessages:
        """The messages that go into the prompt of an answer; reports it if more are left out than before."""
        path = self.conversation.path_to(parent)
        before = self._previously_dropped_count(path)
        fitted = self._prompts.fit(path, before, max_tokens, beginning, self._is_resumable)
        self.dropped_message_count = fitted.dropped_message_count
        if fitted.dropped_message_count > before:
            count = count_noun(fitted.dropped_message_count, "message")
            self._report(f"the context is full: the oldest {count} after the system message are left out now")
        return fitted

    def _previously_dropped_count(self, path: Sequence[StoredMessage]) -> int:
        """How many messages the last answer on this path went without."""
        for message in reversed(path):
            if message.role == "assistant" and (record := self.conversation.answer_record(message)) is not None:
                return record.recipe.dropped
        return 0


def visible_text(token: Token, template: ChatTemplate) -> str:
    """The text of a token, with the tags of reasoning, which some models write as control tokens."""
    tags = template.reasoning_tags
    if not token.is_control or tags is None:
        return token.text
    piece = token.data.decode("utf-8", "replace")
    return piece if any(piece in tag for tag in (tags.start, tags.end, *tags.answer_prefixes)) else token.text


def _recipe_of(request: GenerationRequest, chain: Chain, model: dict[str, Any], dropped: int) -> AnswerRecipe:
    """Return what is stored of an answer to make it again.

    Args:
        request: what the answer is made with.
        chain: its chain, built.
        model: the `_model_record` of the model.
        dropped: how many messages after the system message are left out of the prompt.
    """
    from ..engine.generation import versions
    from ..grammars.spec import GrammarSpec

    grammar = request.constraint
    return AnswerRecipe(
        model=model,
        chain=chain.config,
        seed=chain.seed,
        grammar=asdict(grammar) if isinstance(grammar, GrammarSpec) else None,
        stop=[request.stop] if isinstance(request.stop, str) else list(request.stop),
        max_tokens=request.max_tokens,
        versions=versions(),
        dropped=dropped,
        options={
            "complete_sentence": request.complete_sentence,
            "jump": request.jump,
            "lookup": request.lookup,
        },
    )


def _model_record(model: Model) -> dict[str, Any]:
    """What is stored of a model: its name and path, and what its logits depend on. Raises ``ModelError``."""
    return {"name": model.name, "path": str(model.path.absolute()), **model.identity()}


def _check_tokens(events: Iterator[Event], model: Model, answer: StoredAnswer) -> Iterator[Event]:
    """Yield the events. Raises ``ReplayError`` at a token that is not the one of the stored answer."""
    from ..logprobs.events import Token

    for event in events:
        if isinstance(event, Token) and event.id != answer.token_ids[event.index]:
            raise ReplayError(f"token {event.index} comes out differently now: {_describe_changes(model, answer)}")
        yield event


def _describe_changes(model: Model, answer: StoredAnswer) -> str:
    """What is known to be different from when the answer was made."""
    from ..engine.generation import versions

    recipe = answer.recipe
    now, before = {**_model_record(model), **versions()}, {**recipe.model, **recipe.versions}
    changed = [name for name in now if name not in ("name", "path") and now[name] != before.get(name)]
    if not changed:
        return "another build of llama.cpp or another processor made it"
    return "it was made with " + ", ".join(f"{name} {before.get(name)} (now {now[name]})" for name in changed)


def read_prompt_cache_file(model: Model, path: Path, report: Report) -> None:
    """Take up what a model has read in an earlier session. Reports a file that does not fit.

    A file that does not exist yet is none.
    """
    from ..engine.prompt_cache import PromptCacheError, load_prompt_cache

    try:
        load_prompt_cache(model, path)
    except PromptCacheError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        report(f"the prompt cache is not used: {error}")


def write_prompt_cache_file(model: Model, path: Path, report: Report) -> None:
    """Write what a model has read, for `read_prompt_cache_file`. Reports it if that is not possible."""
    from ..engine.prompt_cache import PromptCacheError, save_prompt_cache

    try:
        save_prompt_cache(model, path)
    except PromptCacheError as error:
        report(f"the prompt cache is not written: {error}")
