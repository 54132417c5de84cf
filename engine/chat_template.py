"""What every chat template does: it makes a prompt of the messages of a chat."""

from __future__ import annotations

import re
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


# A tag, such as ``<think>``, ``[THINK]`` or ``<|open|>think<|sep|>``
TAG = r"(<[^<>]*>\w+)?(<[^<>]*>|\[[^\[\]]*\])"
LAST_TAG = re.compile(rf"{TAG}\s*\Z")  # at the end of a text


@dataclass(frozen=True)
class ReasoningFormat:
    """The strings around the reasoning of an answer that is continued. Unlike tags, they include blanks."""

    start: str
    end: str  # up to the answer, with the header that some templates give it
    without_reasoning: str | None = None  # in place of both if there is no reasoning; None: both

    @property
    def answer_tag(self) -> str:
        """The last tag before the answer."""
        tag = LAST_TAG.search(self.end)
        return tag[0].strip() if tag else self.end.strip()

    def around(self, reasoning: str) -> str:
        """Return a complete reasoning, after which the answer begins."""
        if not reasoning and self.without_reasoning is not None:
            return self.without_reasoning
        return self.start + reasoning + self.end


@dataclass(frozen=True)
class BegunReasoning:
    """The reasoning of an answer that is continued.

    Attributes:
        text: its text, without tags.
        is_complete: whether the answer follows it; otherwise the model continues the reasoning.
    """

    text: str
    is_complete: bool = True


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
    def identity(self) -> str:
        """A string that templates share only if they make the same prompts."""
        return self.name

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """The tags around the model's reasoning; None if the template shows none."""
        return None

    @property
    def answer_opening(self) -> str:
        """The text that the template writes between the end of the reasoning and the answer."""
        tags = self.reasoning_tags
        if tags is None:
            return ""
        reasoning_end = "" if self.reasoning_format is None else self.reasoning_format.end
        _, end_tag, opening = reasoning_end.partition(tags.end)
        return opening if end_tag else next(iter(tags.answer_prefixes), "")

    def is_in_answer(self, beginning: str, reasoning: BegunReasoning | None) -> bool:
        """Return whether an answer that is continued, see `render_beginning`, has no more reasoning."""
        if reasoning is not None:
            return reasoning.is_complete
        tags = self.reasoning_tags
        is_thought = tags is not None and beginning.lstrip().startswith(tags.start) and tags.end not in beginning
        return bool(beginning) and not is_thought

    def reasoning_after(self, prompt: str, beginning: str = "") -> Reasoning | None:
        """Return the reasoning that the model may write after a prompt; None if the template has no reasoning.

        Args:
            prompt: A prompt that the template has made.
            beginning: The beginning of the answer's text, or of its reasoning, with which the prompt ends.
        """
        tags = self.reasoning_tags
        if tags is None:
            return None
        before = prompt.removesuffix(beginning).rstrip()
        before_opening = before.removesuffix(self.answer_opening.strip()).rstrip()
        # A template may write the reasoning of complete answers without the tag with which its prompts end.
        shown_start = "" if self.reasoning_format is None else self.reasoning_format.start.strip()
        is_begun = bool(beginning and shown_start) and before.endswith(shown_start)
        if is_begun or before.endswith(tags.start) or beginning.lstrip().startswith(tags.start):
            place: Place = "after" if tags.end in beginning else "inside"
        elif beginning.strip() or before.endswith(tags.answer_prefixes) or before_opening.endswith(tags.end):
            place = "after"
        else:
            place = "before"
        is_continued = place == "inside" and bool(beginning.strip().removeprefix(tags.start))
        return Reasoning(tags, place, self.answer_opening, is_continued)

    @abstractmethod
    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> ChatPrompt:
        """Return the prompt for the messages of a chat.

        Args:
            messages: The chat, the oldest message first.
            add_generation_prompt: Whether the prompt ends with the beginning of the assistant's next message.

        Raises ``ModelError`` when the template rejects the messages, or computes too much.
        """

    @property
    def reasoning_format(self) -> ReasoningFormat | None:
        """What stands around the reasoning of an answer that is continued; None if there is none."""
        return None

    def reads(self, name: str) -> bool:
        """Return whether the template may read a variable, or a field of a message."""
        return False

    def switch(self, name: str, value: object) -> Mapping[str, Any]:
        """Return the variable that a switch such as ``enable_thinking`` sets; empty if the template has none."""
        return {}

    def render_beginning(
        self, messages: Sequence[Message], beginning: str, reasoning: BegunReasoning | None = None
    ) -> ChatPrompt:
        """Return the prompt that ends with the beginning of the assistant's answer, as llama-server writes it.

        Args:
            messages: The chat before the answer.
            beginning: The beginning of the answer's text. It may contain the reasoning, with the tags around it.
            reasoning: The reasoning before the answer. A template without reasoning leaves it out.

        Raises ``ModelError`` as `render` does.
        """
        prompt = self.render(messages)
        reasoning_format = self.reasoning_format
        chat = self.render(messages, add_generation_prompt=False).text
        if reasoning_format is None:
            header = prompt.text if chat == prompt.text else self._answer_header(messages, chat, prompt.text)
            return ChatPrompt(header + beginning, prompt.note)
        chat = common_beginning(chat, prompt.text)
        opening = prompt.text.removeprefix(chat)
        return ChatPrompt(chat + _begin_answer(opening, reasoning_format, beginning, reasoning), prompt.note)

    def _answer_header(self, messages: Sequence[Message], chat: str, prompt: str) -> str:
        """Return the text before an answer: the chat with the header that complete answers have, or the prompt."""
        answer = {"role": "assistant", "content": ANSWER_MARK}
        try:
            complete_chat = self.render([*messages, answer], add_generation_prompt=False).text
        except ModelError:  # some templates want a user's message last
            return prompt
        header, mark, _ = complete_chat.partition(ANSWER_MARK)
        has_own_header = mark and header.startswith(chat) and header.rstrip() != prompt.rstrip()
        return header if has_own_header else prompt


CONTINUED_REASONING = "the reasoning of a continued answer"  # its name for `ChatTemplate.reads`
ANSWER_MARK = "AnswerMark"  # an answer that shows where a template writes the text of answers


def _begin_answer(
    opening: str, reasoning_format: ReasoningFormat, beginning: str, reasoning: BegunReasoning | None
) -> str:
    """Return the beginning of the assistant's message. ``opening``: how the prompt for a new one ends."""
    start, end, answer_tag = (
        reasoning_format.start.strip(),
        reasoning_format.end.strip(),
        reasoning_format.answer_tag,
    )
    is_opened, is_answer_opened = start in opening, answer_tag in opening
    header = _text_before(opening, start if is_opened else answer_tag)
    if reasoning is None:
        if beginning.lstrip().startswith(start):  # it has its own reasoning
            return header + beginning
        if end in beginning:  # it has a reasoning whose start was in an earlier prompt
            return (opening if is_opened and not is_answer_opened else header + reasoning_format.start) + beginning
        if is_answer_opened and not is_opened:  # without reasoning, some templates write only the end tag
            return opening + beginning
        return header + reasoning_format.around("") + beginning
    if reasoning.is_complete:
        return header + reasoning_format.around(reasoning.text) + beginning
    return header + reasoning_format.start + reasoning.text


def common_beginning(first: str, second: str) -> str:
    """Return the longest text with which both texts begin."""
    if second.startswith(first):
        return first
    pairs = enumerate(zip(first, second, strict=False))
    return first[: next((index for index, (a, b) in pairs if a != b), len(second))]


def _text_before(text: str, part: str) -> str:
    """Return the text before the last occurrence of a part; the whole text if it does not occur."""
    before, found, _ = text.rpartition(part)
    return before if found else text


def content_text(content: str | Sequence[Mapping[str, str]]) -> str:
    """Return the text of a message's content. The texts of parts are lines, as in llama-server."""
    if isinstance(content, str):
        return content
    text = ""
    for part in content:  # a join would also put a newline after an empty first part
        text += ("\n" if text else "") + part["text"]
    return text
