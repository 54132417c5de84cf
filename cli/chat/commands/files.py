"""The commands that name the chat, write it to a file, and leave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....common.files import write_whole_file
from ....common.text import count_noun
from ...completion.reply import Candidate, Reply
from ...errors import note
from .command import ChatCommand, ChatCommandError, refuse_argument

if TYPE_CHECKING:
    from ....engine.templates import ChatTemplate
    from ..store.records import StoredMessage
    from ..terminal.chat import Chat


def _save(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/save needs a name, by which gen chat --resume NAME finds this chat")
    chat.conversation.rename(argument)
    chat.save_settings()
    if chat.conversation.is_stored:
        note(f"gen chat --resume {argument!r} continues this chat")
    else:
        note(f"the chat is named {argument!r}, but is not stored")


def _export(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/export needs a file: FILE.md for Markdown, FILE.jsonl for messages")
    path = Path(argument).expanduser()
    text_of = _format(path, chat.session.template)
    if path.exists():
        raise ChatCommandError(f"{path}: there is such a file; give another name")
    messages = chat.conversation.messages()
    if not messages:
        raise ChatCommandError("there are no messages yet")
    data = text_of(messages).encode()
    write_whole_file(path, lambda file: file.write(data))
    note(f"{path}: {count_noun(len(messages), 'message')}")


def _format(path: Path, template: ChatTemplate) -> Callable[[Sequence[StoredMessage]], str]:
    from ..export import jsonl_of, markdown_of

    formats: dict[str, Callable[[Sequence[StoredMessage]], str]] = {
        ".md": markdown_of,
        ".jsonl": partial(jsonl_of, template=template),
    }
    if path.suffix not in formats:
        raise ChatCommandError(f"/export: {path.name} ends neither in .md (Markdown) nor in .jsonl (messages)")
    return formats[path.suffix]


def _complete_path(_chat: Chat, typed: str) -> Reply:
    folder, slash, name = typed.rpartition("/")
    try:
        entries = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except OSError:
        return Reply([])
    found = [each for each in entries if each.name.startswith(name) and not each.name.startswith(".")]
    return Reply([Candidate(f"{folder}{slash}{each.name}{'/' if each.is_dir() else ''}") for each in found])


def _exit(_chat: Chat, argument: str) -> None:
    from ..terminal.chat import LeaveChatError

    refuse_argument("exit", argument)
    raise LeaveChatError


COMMANDS = (
    ChatCommand("save", "NAME", "Give this chat a name, for gen chat --resume NAME.", _save),
    ChatCommand(
        "export", "FILE", "Write the messages: FILE.md, or FILE.jsonl for gen batch.", _export, _complete_path
    ),
    ChatCommand("exit", "", "Leave.", _exit, aliases=("quit",)),
)
