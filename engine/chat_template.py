"""What every chat template does: it makes a prompt of the messages of a chat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..logprobs.events import Place, Reasoning, ReasoningTags
from ..models.errors import ModelError

Message = dict[str, Any]
"""``{"role": "system" | "user" | "assistant" | "tool", "content": text}``, and what some templates read besides:
``reasoning_content``, ``tool_calls``, ``tool_call_id`` and ``name``.

The content may also be a list of parts, ``{"type": "text", "text": text}``. Most templates get them as one text.
"""


REASONING_TAGS = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("<thinking>", "</thinking>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<|channel>thought", "<channel|>"),
    ReasoningTags(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
    ),
    ReasoningTags("<|think|>", "<|end|>", ("<|begin|>assistant<|content|>", "<|content|>")),
    ReasoningTags("<mm:think>", "</mm:think>"),
)


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt that a chat template has made."""

    text: str
    note: str | None = None  # a sentence, if the messages had to be changed for the template; otherwise None


class ChatTemplate(ABC):
    """A chat template, ready to use: see `open_chat_template`.

    Attributes:
        name: name of the template in messages, such as ``the model's chat template``.
    """

    name: str

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The tags around the model's reasoning; None if the template has none of the well-known tags."""
        return None

    @property
    def answer_opening(self) -> str:
        """The text that the template writes between the end of the reasoning and the answer."""
        return ""

    def reasoning_after(self, prompt: str, beginning: str = "") -> Reasoning | None:
        """Return the reasoning that the model may write after a prompt; None if the template has no reasoning.

        Args:
            prompt: A prompt that the template has made.
            beginning: The beginning of the answer's text, with which the prompt ends.
        """
        tags = self.reasoning_tags
        if tags is None:
            return None
        before = prompt.removesuffix(beginning).rstrip()
        before_opening = before.removesuffix(self.answer_opening.strip()).rstrip()
        if before.endswith(tags.start) or beginning.lstrip().startswith(tags.start):
            place: Place = "after" if tags.end in beginning else "inside"
        elif beginning.strip() or before.endswith(tags.answer_prefixes) or before_opening.endswith(tags.end):
            place = "after"
        else:
            place = "before"
        return Reasoning(tags, place, self.answer_opening)

    @abstractmethod
    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for the messages of a chat.

        Args:
            messages: The chat, the oldest message first.
            add_generation_prompt: Whether the prompt ends with the beginning of the assistant's next message.

        Raises ``ModelError`` when the template rejects the messages, or computes too much.
        """

    def render_beginning(self, messages: Sequence[Message], beginning: str) -> ChatPrompt:
        """Return the prompt that ends with the beginning of the assistant's answer.

        The beginning stands where the template writes the text of answers: after a header that only complete
        messages have, and after a reasoning that the prompt opens, which is closed.

        Args:
            messages: The chat before the answer.
            beginning: The beginning of the answer's text, which may contain the model's reasoning.

        Raises ``ModelError`` as `render` does.
        """
        prompt = self.render(messages)
        if self.render(messages, add_generation_prompt=False).text == prompt.text:
            return ChatPrompt(prompt.text + beginning, prompt.note)  # the model writes the whole message itself
        try:
            answer = {"role": "assistant", "content": _ANSWER_MARK}
            complete = self.render([*messages, answer], add_generation_prompt=False).text
        except ModelError:  # some templates want a user's message last
            complete = ""
        text_before_mark = complete.partition(_ANSWER_MARK)[0] if _ANSWER_MARK in complete else None
        text = _text_before_answer(prompt.text, text_before_mark, beginning, self.reasoning_tags)
        return ChatPrompt(text + beginning, prompt.note)


_ANSWER_MARK = "AnswerMark"  # an answer that shows where a template writes the text of answers


def _text_before_answer(
    prompt: str, text_before_mark: str | None, beginning: str, tags: ReasoningTags | None
) -> str:
    """Return the prompt before the beginning of an answer."""
    # ``text_before_mark``: the text before `_ANSWER_MARK` in a complete chat; None if the template omits the mark.
    stripped_prompt = prompt.rstrip()
    if tags is not None:
        opens_reasoning = stripped_prompt.endswith(tags.start)
        if beginning.lstrip().startswith(tags.start):  # the beginning has a reasoning of its own
            return stripped_prompt.removesuffix(tags.start) if opens_reasoning else prompt
        if tags.end in beginning or stripped_prompt.endswith(tags.end):
            return prompt
        if opens_reasoning:
            if text_before_mark is not None and text_before_mark.startswith(stripped_prompt):
                added_text = text_before_mark.removeprefix(stripped_prompt)
                if tags.end in added_text:
                    return text_before_mark
            return stripped_prompt + tags.end
    if text_before_mark is None or text_before_mark.rstrip() == stripped_prompt:
        return prompt
    return text_before_mark


def content_text(content: str | Sequence[Mapping[str, str]]) -> str:
    """Return the text of a message's content. The texts of parts are lines, as in llama-server."""
    if isinstance(content, str):
        return content
    text = ""
    for part in content:  # a join would also put a newline after an empty first part
        text += ("\n" if text else "") + part["text"]
    return text
