"""The options of `gen run`."""

from __future__ import annotations

from .flag import Options, options_class
from .grammar import ConstraintOptions
from .length import LengthOptions, length_flag
from .model import LogOptions, ModelOptions
from .output import Format, OutputOptions
from .prompt import ChatOptions, EscapeOptions, PromptOptions
from .sampling import FullSamplingOptions


@options_class
class RunOptions(Options):
    """The options of `gen run`."""

    prompt: PromptOptions
    escapes: EscapeOptions
    chat: ChatOptions
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    length: LengthOptions
    lookup: int = length_flag(
        "--lookup", metavar="N", min=0, help="Guess up to N tokens from the text so far; 0 = off. [0]", default=0
    )
    model: ModelOptions
    output: OutputOptions
    log: LogOptions

    @property
    def is_chat(self) -> bool | None:
        """Whether the prompt goes through the chat template; None: if there is a system message.

        The format of chat completions implies it.
        """
        if self.chat.chat is None and self.output.format is Format.openai_chat:
            return True
        return self.chat.chat
