"""The options of `gen run`."""

from __future__ import annotations

from .flag import Options, flag, options_class
from .given import GivenFlags
from .grammar import ConstraintOptions
from .length import UNTIL_CONTEXT_IS_FULL, ContextShiftOptions, LengthOptions, lookup_flag
from .model import LogOptions, ModelOptions
from .output import Format, OutputOptions
from .prompt import ChatOptions, EscapeOptions, FrameOptions, PromptOptions
from .sampling import FullSamplingOptions


@options_class
class UsualOptions(Options):
    """Flags of llama.cpp that ask for what `gen run` always does."""

    single_turn: bool = flag("-st", "--single-turn", help="As ever: gen run ends after one text.", default=False)
    simple_io: bool = flag("--simple-io", help="As ever: gen run writes plain text.", default=False)
    no_timings: bool = flag(
        "--no-perf", "--no-show-timings", help="As ever: without --stats, no timings.", default=False
    )


@options_class
class RunOptions(Options):
    """The options of `gen run`."""

    given: GivenFlags
    prompt: PromptOptions
    escapes: EscapeOptions
    chat: ChatOptions
    frame: FrameOptions
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    length: LengthOptions
    context: ContextShiftOptions
    lookup: int = lookup_flag()
    model: ModelOptions
    output: OutputOptions
    log: LogOptions
    usual: UsualOptions

    def check(self) -> None:
        """Refuse a chat template beside what takes its place."""
        self.frame.refuse_beside(
            {
                str(self.chat.implied_by): self.chat.implied_by is not None,
                "--chat": self.chat.chat,
                "--format openai-chat": self.output.format is Format.openai_chat,
            }
        )

    @property
    def keep_on_shift(self) -> int | None:
        """How many tokens of the prompt a full context keeps; None: it ends the text."""
        if not self.context.context_shift or self.length.max_tokens == UNTIL_CONTEXT_IS_FULL:
            return None
        return self.context.keep or 0

    @property
    def is_chat(self) -> bool | None:
        """Whether the prompt goes through the chat template; None: if there is a system message.

        The format of chat completions implies it.
        """
        if self.chat.chat is None and self.output.format is Format.openai_chat:
            return True
        return self.chat.chat
