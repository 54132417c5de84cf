"""The options of `gen next`."""

from __future__ import annotations

from enum import StrEnum

from ...common.errors import UsageError
from .completes import Completes
from .flag import Options, flag, options_class
from .given import GivenFlags
from .grammar import ConstraintOptions
from .limits import at_least
from .model import LogOptions, ModelOptions
from .prompt import ChatOptions, EscapeOptions, FrameOptions, PromptOptions
from .sampling import FullSamplingOptions


class NextFormat(StrEnum):
    """How the next token is shown."""

    table = "table"
    json = "json"


@options_class
class NextOptions(Options):
    """The options of `gen next`: those of `gen run` on which the next token depends, and how it is shown."""

    given: GivenFlags
    prompt: PromptOptions
    escapes: EscapeOptions
    chat: ChatOptions
    frame: FrameOptions
    top: int = flag(
        "--top",
        metavar="N",
        panel="Output",
        help="The N likeliest tokens of each stage. [10]",
        default=10,
        limit=at_least(1),
    )
    against: list[str] | None = flag(
        "--against",
        metavar="PRESET|CHAIN",
        panel="Output",
        help="What another chain leaves, and how far it is from the first; repeatable.",
        completes=Completes.PRESET_OR_CHAIN,
    )
    format: NextFormat = flag(
        "--format", panel="Output", help="table, or json: one JSON object. [table]", default=NextFormat.table
    )
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    model: ModelOptions
    log: LogOptions

    def check(self) -> None:
        """Refuse a chat template beside what takes its place, and what is about the end of a text."""
        self.frame.refuse_beside(
            {str(self.chat.implied_by): self.chat.implied_by is not None, "--chat": self.chat.chat}
        )
        if self.grammar.grammar_complete:
            raise UsageError("--grammar-complete is about the end of a text; gen next shows one token")

    @property
    def is_chat(self) -> bool | None:
        """Whether the prompt goes through the chat template; None: if there is a system message."""
        return self.chat.chat
