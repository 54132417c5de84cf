"""The commands that move in the tree of messages, and make branches of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...completion.reply import Candidate, Reply, matching
from ...errors import note
from .command import ChatCommand, ChatCommandError, refuse_argument, whole_number

if TYPE_CHECKING:
    from ..store.records import StoredMessage
    from ..terminal.chat import Chat

_MAX_VERSIONS = 100
_ID_CHARACTERS = 8
_SPEAKERS = {"system": "system", "user": "you", "assistant": "model"}


def _regenerate(chat: Chat, argument: str) -> None:
    count = whole_number("regen", argument, _MAX_VERSIONS) if argument else 1
    user = chat.conversation.last_user()
    for remaining in range(count, 0, -1):
        made = 0 if user is None else len(chat.conversation.children(user))
        if count > 1:
            print(f"[version {made + 1} of {made + remaining}]")
        chat.regenerate()
        if chat.done is not None and chat.done.finish_reason == "interrupted":
            break
        head = chat.conversation.head
        if head is not None and len(versions := chat.conversation.siblings(head)) == made:
            note(f"this is the text of version {_number(head, versions)} again")
    answer = chat.conversation.last_answer()
    if answer is not None and len(versions := chat.conversation.siblings(answer)) > 1:
        note(f"version {_number(answer, versions)} of {len(versions)}; /branch N goes to another one")


def _edit(chat: Chat, argument: str) -> None:
    from ..errors import ContextFullError

    if argument not in ("", "answer"):
        raise ChatCommandError(
            f"/edit changes your last message, /edit answer the answer; {argument!r} is neither"
        )
    user, head = chat.conversation.last_user(), chat.conversation.head
    if user is None:
        raise ChatCommandError("there is no message of yours to edit")
    if not argument:
        text = _edited(chat, user.content)
        try:
            chat.send(text, user)
        except ContextFullError as error:
            if head is None or not chat.has_unsent:
                raise
            chat.conversation.goto(user.parent)  # there the text belongs when it is sent after a change
            raise ContextFullError(f"{error}; {_way_back(head)}") from None
        return
    if head is None or head.role != "assistant":
        raise ChatCommandError("there is no answer to edit")
    chat.go_on_from(_edited(chat, head.content))


def _edited(chat: Chat, text: str) -> str:
    chat.confirm("Ctrl-X Ctrl-E opens the text in $EDITOR, Enter sends it")
    return chat.input.read(default=text, question="edit> ")


def _way_back(message: StoredMessage) -> str:
    return f"/goto {message.hash[:_ID_CHARACTERS]} goes back"


def _undo(chat: Chat, argument: str) -> None:
    refuse_argument("undo", argument)
    message = chat.conversation.undo()
    if message is None:
        raise ChatCommandError("there is nothing to take back")
    note(f"taken back: {_line(message, 50)}; /goto {message.hash[:_ID_CHARACTERS]} goes there again")


def _clear(chat: Chat, argument: str) -> None:
    refuse_argument("clear", argument)
    system, before = chat.conversation.system, chat.conversation.head
    chat.conversation.goto(None)
    chat.conversation.set_system(system)
    if before is not None and before != chat.conversation.head:
        note(f"the chat begins again; {_way_back(before)}")


def _branch(chat: Chat, argument: str) -> None:
    """Show the versions of the latest message that has several, or go to one of them."""
    place = next(
        (message for message in reversed(chat.conversation.messages()) if len(_versions(chat, message)) > 1), None
    )
    if place is None:
        raise ChatCommandError("there is one version of each message; /regen and /edit make further ones")
    versions = _versions(chat, place)
    if not argument:
        for number, message in enumerate(versions, 1):
            mark = "*" if message.hash == place.hash else " "
            print(f"{mark} {number}  {_line(message, _width() - 6)}")
        return
    number = whole_number("branch", argument, len(versions))
    chat.conversation.goto(_latest_end(chat, versions[number - 1]).hash)
    chat.show_last_turn()


def _tree(chat: Chat, argument: str) -> None:
    from ..tree import tree_lines

    refuse_argument("tree", argument)
    lines = list(tree_lines(chat.conversation))
    if not lines:
        raise ChatCommandError("there are no messages yet")
    for line in lines:
        mark = "*" if line.is_head else "|" if line.is_on_path else " "
        start = f"{mark} {line.message.hash[:_ID_CHARACTERS]} {'  ' * line.depth}"
        print(f"{start}{_line(line.message, _width() - len(start))}")


def _goto(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/goto needs the beginning of a message's name, as /tree shows it")
    chat.conversation.goto(argument)
    chat.show_last_turn()


def _complete_goto(chat: Chat, typed: str) -> Reply:
    messages = chat.conversation.all_messages()
    return Reply(matching([Candidate(each.hash[:_ID_CHARACTERS], _line(each, 40)) for each in messages], typed))


def _versions(chat: Chat, message: StoredMessage) -> list[StoredMessage]:
    return chat.conversation.siblings(message)


def _number(message: StoredMessage, versions: list[StoredMessage]) -> int:
    return [each.hash for each in versions].index(message.hash) + 1


def _latest_end(chat: Chat, message: StoredMessage) -> StoredMessage:
    """The last message of the branch that goes through this one; where it divides, through the latest."""
    messages = chat.conversation.all_messages()
    end = message
    for other in messages:  # in the order in which they came
        if other.parent == end.hash:
            end = other
    return end


def _line(message: StoredMessage, columns: int) -> str:
    """Who says it, and the beginning of what is said, on a line of at most so many columns."""
    from rich.cells import set_cell_size

    from ...render.text import visible

    text = visible(" ".join(f"{_SPEAKERS[message.role]}: {message.content}".split()))
    shown = set_cell_size(text, max(columns, 10)).rstrip()
    return shown if shown == text else set_cell_size(text, max(columns, 10) - 1).rstrip() + "…"


def _width() -> int:
    import shutil

    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 200


COMMANDS = (
    ChatCommand("regen", "[N]", "Answer again, N times; the versions stand side by side.", _regenerate),
    ChatCommand(
        "edit", "[answer]", "Change your last message, or the answer: it goes on from the changed text.", _edit
    ),
    ChatCommand("undo", "", "Take back your last message and its answer.", _undo),
    ChatCommand("clear", "", "Begin again behind the system message; what was said is kept.", _clear),
    ChatCommand("branch", "[N]", "List the versions of the latest message that has some, or go to one.", _branch),
    ChatCommand("tree", "", "Show all messages of this chat; * is where you are.", _tree),
    ChatCommand("goto", "MESSAGE", "Go to a message of /tree.", _goto, _complete_goto),
)
