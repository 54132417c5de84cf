"""The options of `gen chat`."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from .completes import Completes
from .flag import Bare, Options, flag, options_class
from .given import GivenFlags
from .grammar import ConstraintOptions
from .length import AnswerLengthOptions, lookup_flag
from .model import LogOptions, ModelOptions
from .prompt import EscapeOptions, TemplateOptions
from .sampling import FullSamplingOptions

_chat = partial(flag, panel="Chats")


class OnFull(StrEnum):
    """What happens when the conversation does not fit into the context any more."""

    stop = "stop"
    drop = "drop"


@options_class
class StoreOptions(Options):
    """Which of the stored chats is meant, and what to do with it."""

    list_chats: bool = _chat("--list", help="List the chats that are stored, and stop.", default=False)
    resume: str | None = _chat(
        "--resume",
        metavar="[ID]",
        help="Go on with a chat: its number, name, or the latest one.",
        completes=Completes.CHAT,
        bare=Bare("", re.compile(r"[^-].*", re.DOTALL)),
    )
    search: str | None = _chat("--search", metavar="TEXT", help="Find messages in all chats, and stop.")
    delete: str | None = _chat("--delete", metavar="ID", help="Delete a chat, and stop.", completes=Completes.CHAT)
    no_log: bool = _chat("--no-log", help="Store nothing.", default=False)

    def check(self) -> None:
        """Refuse what excludes each other. Raises ``UsageError``."""
        given = {
            "--list": self.list_chats,
            "--resume": self.resume is not None,
            "--search": self.search is not None,
            "--delete": self.delete is not None,
            "--no-log": self.no_log,
        }
        names = [name for name, is_given in given.items() if is_given]
        if len(names) > 1:
            raise UsageError(f"{names[0]} and {names[1]} exclude each other; give one")

    @property
    def needs_model(self) -> bool:
        """False if the store alone is looked at."""
        return not self.list_chats and self.search is None and self.delete is None


@options_class
class ConversationOptions(Options):
    """The options of `gen chat`: those of `gen run` that an answer depends on, and the chat's own."""

    given: GivenFlags
    store: StoreOptions
    prompt_cache: Path | None = _chat(
        "--prompt-cache",
        help="Keep what the model has read in this file, for the next time.",
        completes=Completes.FILE,
    )
    on_full: OnFull = _chat(
        "--on-full",
        help="When the context is full: stop, or drop the oldest turns. [stop]",
        default=OnFull.stop,
    )
    escapes: EscapeOptions
    template: TemplateOptions
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    length: AnswerLengthOptions
    lookup: int = lookup_flag()
    model: ModelOptions
    log: LogOptions
