"""Answers in a conversation: new ones, alternatives, continuations, and replays. An answer is stored while
it is generated.

A `ChatStore` contains the conversations of a user. A `Conversation` is a tree of messages with a current message.
A `ChatSession` generates an answer to the current message, as an iterator of the engine's events::

    store = ChatStore.open()
    conversation = Conversation.new(store, report=note)
    session = ChatSession(model, conversation, report=note)
    conversation.add_user_message("Hello")
    for event in session.answer(GenerationRequest("", settings.steps, seed=1)):
        ...

To start a branch, call `Conversation.goto` with an earlier message and add another message after it. Nothing here
prints.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.text import count_noun
from ..logprobs.events import Reasoning, ReasoningTags
from ..logprobs.parts import TextPart
from .conversation import Conversation, ReportMessage
from .prompt import (
    ContextUsage,
    FittedMessages,
    OnFull,
    PromptMaker,
    context_warning,
    parts_of_answer,
    reasoning_of_answers,
    reasoning_opening,
)
from .records import AnswerRecipe, ChatError, ReplayError, StoredAnswer, StoredMessage

if TYPE_CHECKING:
    from ..engine.chat_template import ChatTemplate
    from ..engine.drafts import DraftOptions
    from ..engine.model import Model
    from ..engine.request import GenerationRequest
    from ..logprobs.events import Event
    from ..presets.story import Story
    from ..samplers.chain import Chain


_NO_USER_MESSAGE_ERROR = "there is no message of yours to answer"


class ChatSession:
    """A model that answers in a conversation."""

    # An answer has exactly the tokens that `generate` yields for the same messages and seed in an empty context.

    def __init__(
        self,
        model: Model,
        conversation: Conversation,
        report: ReportMessage,
        template: ChatTemplate | None = None,
        on_full: OnFull = "stop",
    ) -> None:
        # Raises ``ModelError`` if the model has no chat template.
        self.model = model
        self.conversation = conversation
        # how to handle a conversation that does not fit into the context: ``stop`` with an error, or ``drop`` the
        # oldest turns
        self.on_full = on_full
        self.dropped_message_count = 0  # number of messages that were left out of the last answer's prompt
        self._report = report
        # Read now: the model's file may be moved during the session.
        self._model_record = _model_record(model)
        self._story: Story | None = None
        self.use_template(template)

    def use_template(self, template: ChatTemplate | None) -> None:
        """Make the next prompts with a chat template; None: the model's."""
        from ..engine.templates import open_chat_template

        self.template = template or open_chat_template(self.model)
        self._prompts = PromptMaker(self.model, self.template, self.on_full, self._report)
        self._prompts.story = self._story

    def use_story(self, story: Story | None) -> None:
        """Make the next prompts with a memory, an author's note and world info; None: without any."""
        self._story = self._prompts.story = story

    def answer(
        self,
        request: GenerationRequest,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Answer the current message, which must be the user's. Yields the events of `generate`."""
        # The answer is stored while it is generated. Before the last event, it becomes the current message. An
        # answer without tokens is not stored. A caller that stops early must close the generator, so that the
        # tokens so far are stored. Raises ``ChatError``, ``ContextFullError``, ``StoreError`` and what `generate`
        # raises.
        message = self.conversation.current_message
        if message is None or message.role != "user":
            raise ChatError(_NO_USER_MESSAGE_ERROR)
        return self._generate(message, "", request, is_interrupted, progress)

    def regenerate(
        self,
        request: GenerationRequest,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Generate another answer to the last message of the user; see `answer`."""
        return self._generate(self._last_user_message(), "", request, is_interrupted, progress)

    def continue_from(
        self,
        text: str,
        request: GenerationRequest,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Generator[Event, None, None]:
        """Generate an answer to the last message of the user that begins with a given text; see `answer`."""
        # The events contain only what is generated, but the stored message includes ``text``.
        return self._generate(self._last_user_message(), text, request, is_interrupted, progress)

    def parts_of(self, message: StoredMessage) -> list[TextPart]:
        """Return the reasoning and the answer in a message of the assistant."""
        reasoning = reasoning_of_answers(self.template)
        return parts_of_answer(message.content, reasoning, may_be_thought=self._was_begun_by_model(message))

    def parts_of_beginning(self, text: str) -> list[TextPart]:
        """Return the reasoning and the answer in the beginning of an answer, see `continue_from`."""
        return parts_of_answer(text, reasoning_of_answers(self.template))

    def editable_text(self, message: StoredMessage) -> str:
        """Return the text of an answer as `continue_from` takes it, with the start tag that its prompt had."""
        opening = reasoning_opening(self.template)
        has_thought = any(part.part == "reasoning" for part in self.parts_of(message))
        is_opened_by_prompt = has_thought and not message.content.lstrip().startswith(opening.strip())
        return opening + message.content if is_opened_by_prompt else message.content

    def _was_begun_by_model(self, message: StoredMessage) -> bool:
        answer = self.conversation.answer_record(message)
        return answer is not None and not answer.beginning

    def prompt_ids_to_continue(self, beginning: str) -> tuple[int, ...]:
        """Return the prompt's tokens for continuing an answer to the last message of the user."""
        # Raises ``ChatError``, ``ContextFullError``.
        fitted_messages = self._fit_messages(self._last_user_message(), beginning, max_tokens=None)
        return self._prompts.prompt_ids(fitted_messages.messages, beginning)

    def check_message(self, text: str, replaced: StoredMessage | None, max_tokens: int | None) -> None:
        """Raise ``ContextFullError`` if a message would not fit, ``ModelError`` if the template rejects it."""
        path = self.conversation.messages_with("user", text, replaced)
        self._prompts.fit(path, self._previously_dropped_count(path), max_tokens, is_resumable=self._is_resumable)

    def usage(self) -> ContextUsage:
        """Return how much of the context the messages up to the current one take."""
        # Messages that the last prompt left out are not counted.
        messages = self.conversation.messages()
        return self._prompts.usage(messages, self._previously_dropped_count(messages))

    def warning(self) -> str | None:
        """Return a warning that the context is nearly full; None while enough of the context is free."""
        return context_warning(self.usage(), self.on_full == "drop", self._is_resumable)

    def replay(
        self,
        answer: StoredAnswer,
        trace_top_count: int | None = None,
        token_count: int | None = None,
        *,
        is_interrupted: Callable[[], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[Event]:
        """Regenerate a stored answer and yield the same events. The replay itself is not stored."""
        # Raises ``ReplayError`` if another model is loaded, and at the first token that differs from the stored
        # one. ``token_count``: number of tokens to regenerate; None: all of them.
        from ..engine.generation import generate
        from ..engine.request import GenerationRequest
        from ..engine.text_rules import TextRules
        from ..grammars.spec import GrammarSpec
        from ..samplers.building import build

        model = self.model
        recipe = answer.recipe
        recorded_model = recipe.model
        if recorded_model.get("fingerprint") != self._model_record["fingerprint"]:
            raise ReplayError(
                f"{recorded_model.get('name')} generated this answer, but {self._model_record['name']} is loaded;"
                f" start gen chat with -m {recorded_model.get('path')}"
            )
        grammar = None if recipe.grammar is None else GrammarSpec(**recipe.grammar)
        replayed_token_count = len(answer.token_ids)
        if token_count is not None:
            replayed_token_count = min(replayed_token_count, token_count)
        draft, draft_error = self._draft_of(recipe)
        # An answer has more than `max_tokens` only if the tokens after them complete a sentence of the grammar.
        completes_sentence = recipe.max_tokens is not None and replayed_token_count > recipe.max_tokens
        request = GenerationRequest(
            answer.prompt_ids,
            build(recipe.chain, seed=recipe.seed, vocab=model.vocabulary),
            grammar,
            stop=recipe.stop,
            max_tokens=recipe.max_tokens if completes_sentence else replayed_token_count,
            complete_sentence=completes_sentence,
            jump=recipe.options.get("jump", True),
            lookup=recipe.options.get("lookup", 0),
            draft=draft,
            trace=trace_top_count,
            seed=recipe.seed,  # of the chains of earlier phases
            beginning=answer.beginning,
            exact_reuse=True,
            rules=TextRules.of(recipe.options.get("rules", {})),
            reasoning=_reasoning_of(recipe),
        )
        events = generate(model, request, progress=progress, is_interrupted=is_interrupted)
        return _check_tokens(events, model, answer, draft_error)

    def _draft_of(self, recipe: AnswerRecipe) -> tuple[DraftOptions | None, str]:
        """Return the draft model of an answer, and the reason why it cannot be used now."""
        # The reason is empty if the draft model can be used, or if the answer had none. Without the draft model,
        # most answers have the same tokens.
        from ..engine.drafts import DraftOptions
        from ..models.errors import ModelError

        if "draft" not in recipe.options:
            return None, ""
        draft = DraftOptions(**recipe.options["draft"])
        try:
            draft.open_for(self.model)
        except ModelError as error:
            return None, error.statement
        return draft, ""

    @property
    def _is_resumable(self) -> bool:
        return self.conversation.is_stored and self.conversation.id is not None

    def _last_user_message(self) -> StoredMessage:
        message = self.conversation.last_user_message()
        if message is None:
            raise ChatError(_NO_USER_MESSAGE_ERROR)
        return message

    def _generate(
        self,
        parent: StoredMessage,
        beginning: str,
        request: GenerationRequest,
        is_interrupted: Callable[[], bool] | None,
        progress: Callable[[int, int], None] | None,
    ) -> Generator[Event, None, None]:
        from ..engine.generation import build_chain, generate

        model = self.model
        negative_system = request.rules.negative_text
        self._prompts.negative_system = negative_system
        fitted_messages = self._fit_messages(parent, beginning, request.max_tokens)
        prompt = self._prompts.prompt_text(fitted_messages.messages, beginning)
        prompt_ids = tuple(model.vocabulary.tokenize_prompt(prompt.encode()))
        reasoning = self.template.reasoning_after(prompt, beginning)
        chain = build_chain(model, request)
        recipe = _answer_recipe(request, chain, self._model_record, fitted_messages.dropped_message_count)
        request = replace(request, chain=chain, beginning=beginning, exact_reuse=True)
        request = request.with_chat_text(prompt_ids, reasoning)
        if negative_system is not None:
            ids = self._prompts.prompt_ids(fitted_messages.messages, beginning, system=negative_system)
            request = request.with_negative_prompt(ids)
        recipe.options["rules"] = request.rules.as_json()
        if reasoning is not None:
            recipe.options["reasoning"] = asdict(reasoning)
        events = generate(model, request, progress=progress, is_interrupted=is_interrupted)
        return self.conversation.record_answer(events, parent, recipe, prompt_ids, beginning)

    def _fit_messages(self, parent: StoredMessage, beginning: str, max_tokens: int | None) -> FittedMessages:
        """Return the messages of an answer's prompt. Report if more messages are left out than before."""
        path = self.conversation.path_to(parent)
        previously_dropped_count = self._previously_dropped_count(path)
        fitted_messages = self._prompts.fit(
            path, previously_dropped_count, max_tokens, beginning, self._is_resumable
        )
        self.dropped_message_count = fitted_messages.dropped_message_count
        if self.dropped_message_count > previously_dropped_count:
            messages = count_noun(self.dropped_message_count, "message")
            self._report(f"the context is full: the oldest {messages} after the system message are left out now")
        return fitted_messages

    def _previously_dropped_count(self, path: Sequence[StoredMessage]) -> int:
        """Return how many messages were left out of the prompt of the last answer on this path."""
        for message in reversed(path):
            if message.role == "assistant":
                answer = self.conversation.answer_record(message)
                if answer is not None:
                    return answer.recipe.dropped
        return 0


def _reasoning_of(recipe: AnswerRecipe) -> Reasoning | None:
    """Return the reasoning of a stored answer; None if the answer has no parts."""
    fields = recipe.options.get("reasoning")
    if fields is None:
        return None
    tags = fields["tags"]
    return Reasoning(
        **fields | {"tags": ReasoningTags(**tags | {"answer_prefixes": tuple(tags["answer_prefixes"])})}
    )


def _answer_recipe(
    request: GenerationRequest, chain: Chain, model_record: dict[str, Any], dropped_count: int
) -> AnswerRecipe:
    """Return everything that is needed to regenerate an answer."""
    from ..engine.generation import versions
    from ..grammars.spec import GrammarSpec

    grammar = request.constraint
    options: dict[str, Any] = {
        "complete_sentence": request.complete_sentence,
        "jump": request.jump,
        "lookup": request.lookup,
    }
    if request.draft is not None:
        options["draft"] = {**asdict(request.draft), "model": str(Path(request.draft.model).absolute())}
    return AnswerRecipe(
        model=model_record,
        chain=chain.config,
        seed=chain.seed,
        grammar=asdict(grammar) if isinstance(grammar, GrammarSpec) else None,
        stop=[request.stop] if isinstance(request.stop, str) else list(request.stop),
        max_tokens=request.max_tokens,
        versions=versions(),
        dropped=dropped_count,
        options=options,
    )


def _model_record(model: Model) -> dict[str, Any]:
    """Return the stored facts about a model: name, path, and what its logits depend on. Raises ``ModelError``."""
    return {"name": model.name, "path": str(model.path.absolute()), **model.identity()}


def _check_tokens(
    events: Iterator[Event], model: Model, answer: StoredAnswer, draft_error: str
) -> Iterator[Event]:
    """Yield the events of a replay. Raises ``ReplayError`` at a token that differs from the stored one."""
    from ..logprobs.events import Token

    for event in events:
        if isinstance(event, Token) and event.id != answer.token_ids[event.index]:
            if draft_error:
                reason = (
                    f"logits without its draft model may differ by rounding, and it cannot be used: {draft_error}"
                )
            else:
                reason = _describe_changes(model, answer)
            raise ReplayError(f"token {event.index} is a different one now: {reason}")
        yield event


def _describe_changes(model: Model, answer: StoredAnswer) -> str:
    """Return a clause that names the known changes of model and versions since an answer was generated."""
    from ..engine.generation import versions

    recipe = answer.recipe
    original_environment = {**recipe.model, **recipe.versions}
    current_environment = {**_model_record(model), **versions()}
    changes = []
    for name, current_value in current_environment.items():
        original_value = original_environment.get(name)
        if name not in ("name", "path") and current_value != original_value:
            changes.append(f"{name} {original_value} (now {current_value})")
    if not changes:
        return "it was generated with a different build of llama.cpp or on a different processor"
    return f"it was generated with {', '.join(changes)}"


def load_prompt_cache_file(model: Model, path: Path, report: ReportMessage) -> None:
    """Load the prompt cache of an earlier session, if the file exists."""
    # A cache that does not match the model is reported and ignored.
    from ..engine.prompt_cache import PromptCacheError, load_prompt_cache

    try:
        load_prompt_cache(model, path)
    except PromptCacheError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        report(f"the prompt cache is not used: {error}")


def save_prompt_cache_file(model: Model, path: Path, report: ReportMessage) -> None:
    """Save the prompt cache to a file for `load_prompt_cache_file`. An error is reported and ignored."""
    from ..engine.prompt_cache import PromptCacheError, save_prompt_cache

    try:
        save_prompt_cache(model, path)
    except PromptCacheError as error:
        report(f"the prompt cache is not written: {error}")
