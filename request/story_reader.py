"""The prompts of stories for a model, whose tokenizer counts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..engine.request import ChatMessages, GenerationRequest
from ..engine.templates import format_request
from ..engine.vocabulary import text_tokens
from ..models.errors import ModelError
from ..presets.story import Story
from .story_context import StoryContext, read_messages, read_text, reserved_for_answer, with_story

if TYPE_CHECKING:
    from ..engine.chat_template import Message
    from ..engine.model import Model


class StoryReader:
    """Makes prompts of stories that fit into the context of a model."""

    # ``note`` gets a sentence if a chat template has no place for the system message, or a part has no room.

    def __init__(self, model: Model, note: Callable[[str], object]) -> None:
        self._model = model
        self._note = note

    def insert(self, context: StoryContext, request: GenerationRequest) -> GenerationRequest:
        """Return a request with what `read` returned for it."""
        if context.messages is None:
            return replace(request, prompt=context.text)
        return self._with_messages(request, context.messages)

    def _with_messages(self, request: GenerationRequest, messages: Sequence[Message]) -> GenerationRequest:
        chat = request.prompt
        assert isinstance(chat, ChatMessages)  # noqa: S101 - only a chat has messages
        return replace(request, prompt=replace(chat, messages=list(messages)))

    def read(self, story: Story, request: GenerationRequest) -> StoryContext:
        """Return what the model reads of a story and of the prompt of a request: a text, ids or a chat."""
        # Raises ``ModelError``.
        prompt = request.prompt
        max_tokens = self.max_prompt_tokens(request)
        if not isinstance(prompt, ChatMessages):
            text = prompt if isinstance(prompt, str) else self._text_of(prompt)
            return read_text(story, text, self.token_sizes, max_tokens, request.beginning)

        def count_tokens(messages: Sequence[Message]) -> int:
            text = format_request(self._model, self._with_messages(request, messages), self._note).prompt
            assert isinstance(text, str)  # noqa: S101 - the template has made a text
            return len(self._model.vocabulary.tokenize_prompt(text.encode()))

        return read_messages(story, prompt.messages, self.token_sizes, max_tokens, count_tokens)

    def chat_with_story(self, story: Story, messages: Sequence[Message]) -> list[Message]:
        """Return the messages of a chat, all of them, with a story in them; of the story what has room."""
        length = self._model.context_length
        context = with_story(story, messages, self.token_sizes, length - reserved_for_answer(length, None))
        self.note_left_out(context)
        return list(context.messages or ())

    def note_left_out(self, context: StoryContext) -> None:
        """Say what has no room of a story."""
        for part in context.without_room:
            self._note(f"{part.kind}: {part.message}")

    def max_prompt_tokens(self, request: GenerationRequest) -> int:
        """Return the number of tokens that the prompt may have, so that the answer has room."""
        context_length = self._model.context_length
        added_eos = int(self._model.vocabulary.adds_eos)  # `token_sizes` leaves it out
        return context_length - reserved_for_answer(context_length, request.max_tokens) - added_eos

    def token_sizes(self, text: str) -> list[int]:
        """Return the number of bytes that each token of a text has in it."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise ModelError("half of a surrogate pair is not allowed in a text") from None
        return [token.size for token in text_tokens(self._model.vocabulary, data)]

    def _text_of(self, prompt: Sequence[int] | bytes) -> str:
        """Return the text of tokens, without a BOS that the tokenizer adds."""
        if isinstance(prompt, bytes):
            return prompt.decode("utf-8", "replace")
        vocabulary = self._model.vocabulary
        vocabulary.check(prompt, "prompt")
        has_bos = vocabulary.adds_bos and list(prompt[:1]) == [vocabulary.bos]
        return b"".join(map(vocabulary.piece, prompt[has_bos:])).decode("utf-8", "replace")
