"""The prompt of a question: a template in Jinja, and the model's chat template around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.chat_template import CONTINUED_REASONING, BegunReasoning, ChatTemplate
from ..engine.jinja_template import render_text
from ..engine.model import Model
from ..engine.templates import open_chat_template
from ..logprobs.events import Reasoning
from .questions import Option, Question

# The input comes first, so that all questions share its tokens, and the options last.
DEFAULT_TEMPLATE = """\
{{ input }}

{% if type == "predicate" %}
Is this true of the text above?
{% endif %}
{{ question }}
{% for option in options %}
- {{ option.label }}{% if option.description %}: {{ option.description }}{% endif %}

{% endfor %}
Answer with exactly one of these {{ options | length }} {{ "levels" if type == "score" else "options" }}.
Answer:"""
"""The wording of a question, with the variables ``input``, ``question``, ``options`` (each with ``label`` and
``description``), ``type`` and ``name``."""


@dataclass(frozen=True)
class Wording:
    """How a question becomes a prompt.

    Attributes:
        template: a template in Jinja, see `DEFAULT_TEMPLATE`.
        chat: the chat template that gets the text as the message of a user; None: the text is the whole prompt.
    """

    template: str = DEFAULT_TEMPLATE
    chat: ChatTemplate | None = None

    @classmethod
    def for_model(  # noqa: PLR0913 - the arguments are public
        cls,
        model: Model,
        *,
        chat: bool | None = None,
        chat_template: str | None = None,
        variables: Mapping[str, Any] | None = None,
        thinks: bool = False,
        template: str = DEFAULT_TEMPLATE,
    ) -> Wording:
        """Return the wording for a model.

        Args:
            model: The model.
            chat: Whether the question is the message of a user; None: if there is a chat template.
            chat_template: The chat template, see `open_chat_template`; None: the model's.
            variables: Variables of the chat template.
            thinks: Whether the model may think before it answers.
            template: See `DEFAULT_TEMPLATE`.

        Raises ``ModelError``.
        """
        if chat is None:
            chat = chat_template is not None or model.chat_template is not None
        if not chat:
            return cls(template)
        opened = open_chat_template(model, chat_template, variables)
        switch = opened.switch("enable_thinking", thinks)
        if switch:
            opened = open_chat_template(model, chat_template, {**switch, **(variables or {})})
        return cls(template, opened)

    @property
    def can_think(self) -> bool:
        """True if the model may think before an answer, and the answer can follow. Raises ``ModelError``."""
        has_place = self.thinking_prompt("a question")[1] is not None
        return has_place and self.chat is not None and self.chat.reads(CONTINUED_REASONING)

    def text(self, question: Question, options: Sequence[Option], input_text: str) -> str:
        """Return the text of a question, with its options in the order given. Raises ``ModelError``."""
        shown = [{"label": option.label, "description": option.description} for option in options]
        variables = {
            "input": input_text,
            "question": question.instructions,
            "options": shown,
            "type": question.type,
            "name": question.name,
        }
        return render_text(self.template, "the prompt template", variables)

    def prompt(self, text: str, reasoning: str | None = None) -> str:
        """Return the prompt after which the answer begins.

        Args:
            text: The text of the question.
            reasoning: What the model has thought about it; None: it does not think.

        Raises ``ModelError``.
        """
        if self.chat is None:
            return text
        messages = [{"role": "user", "content": text}]
        prompt = self.chat.render(messages).text
        place = self.chat.reasoning_after(prompt)
        if place is None or (reasoning is None and self._answers_at_once(place)):
            return prompt
        return self.chat.render_beginning(messages, "", BegunReasoning(reasoning or "")).text

    def _answers_at_once(self, reasoning: Reasoning) -> bool:
        """Return whether a prompt whose chat template was told not to think needs no empty reasoning."""
        if reasoning.place == "before":
            has_switch = self.chat is not None and bool(self.chat.switch("enable_thinking", False))
            return has_switch and not reasoning.tags.answer_prefixes
        return reasoning.place == "after"

    def thinking_prompt(self, text: str) -> tuple[str, Reasoning | None]:
        """Return the prompt after which the model may think, and where it stands. Raises ``ModelError``."""
        if self.chat is None:
            return text, None
        prompt = self.chat.render([{"role": "user", "content": text}]).text
        return prompt, self.chat.reasoning_after(prompt)
