"""From the prompt's text to what the model reads: the chat template, or what stands in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import note

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...presets.settings import Settings
    from ..options.prompt import FrameOptions
    from .chat_template import ChatTemplateFlags


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt as the model reads it.

    Attributes:
        tokens: its text, or its token ids where parts of it are tokenized one by one.
        text: the whole text, with the chat template or with what takes its place.
        shown: the same without the chat template.
    """

    tokens: str | list[int]
    text: str
    shown: str


def prepare_prompt(
    model: Model,
    text: str,
    settings: Settings,
    frame: FrameOptions,
    template: ChatTemplateFlags,
    is_chat: bool | None,
) -> PreparedPrompt:
    """Put a prompt into the chat template or between prefix and suffix, or leave it as it is.

    Args:
        model: the model.
        text: what the user wrote.
        settings: the system message is one of them.
        frame: the flags of prefix and suffix.
        template: the flags of the chat template.
        is_chat: whether the template is used; None: if there is a system message.
    """
    from ...engine.templates import build_prompt, frame_input

    system = settings.system.value
    if frame.name is None:
        built = build_prompt(model, text, system=system, chat=is_chat, template=template.open(model), report=note)
        return PreparedPrompt(built, built, text)
    if system is not None:
        note(f"{frame.name} takes the place of the chat template: the system message is left out")
    tokens = frame_input(model.vocabulary, text, frame.in_prefix or "", frame.in_suffix or "")
    framed = frame.around(text)
    return PreparedPrompt(tokens, framed, framed)
