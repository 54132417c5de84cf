"""The commands of a chat: lines that begin with a slash, such as /help.

`COMMANDS` is the table. The functions of the commands follow in its order, each with its helpers: settings first,
then branches of the conversation, explanations of an answer, and files.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...chats.conversation import tree_lines
from ...chats.prompt import jsonl_of, markdown_of
from ...chats.records import SPEAKERS, ContextFullError
from ...common.errors import LogitsmithError
from ...common.files import write_file_atomically
from ...common.text import count_noun, nearest_name
from ..completion.values import CompletionItem, CompletionResult, complete_text, matching
from ..flags import CompletionKind
from ..interrupt import interruptible
from ..messages import print_note
from ..render.run import speed_line, terminal_safe, visible
from .chat import Chat, LeaveChatError

if TYPE_CHECKING:
    from ...chats.records import StoredAnswer, StoredMessage
    from ...logprobs.events import Token


class ChatCommandError(LogitsmithError):
    """A command of a chat that cannot be carried out as it was typed."""


@dataclass(frozen=True)
class ChatCommand:
    """A command.

    Attributes:
        name: without the slash.
        argument: how the help shows what follows it; empty if nothing may follow it.
        summary: what it does, in one line.
        run: carries it out, with what follows its name, blanks at both ends cut off.
        complete: completes what follows its name; None: nothing does.
        aliases: further names, by which it is found and not listed.
    """

    name: str
    argument: str
    summary: str
    run: Callable[[Chat, str], None]
    complete: Callable[[Chat, str], CompletionResult] | None = None
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.argument}".rstrip()


_COMMAND_LINE = re.compile(r"/(?P<name>[A-Za-z_?-]*)(?:\s+(?P<argument>.*))?", re.DOTALL)


def is_command(text: str) -> bool:
    """True for a line that begins with a slash and a word; a path has a second slash."""
    return _COMMAND_LINE.fullmatch(text) is not None


def run_command(chat: Chat, line: str) -> None:
    """Carry out a command. Raises ``ChatCommandError`` for an unknown one, and what the command raises."""
    match = _COMMAND_LINE.fullmatch(line)
    name = "" if match is None else match["name"].lower()
    argument = ((match and match["argument"]) or "").strip()
    command = _find(name)
    if command is None:
        raise ChatCommandError(f"there is no command /{name}{_hint(name, argument)}; /help lists them")
    if argument and not command.argument:
        raise ChatCommandError(f"/{command.name} takes nothing after its name, and {argument!r} came")
    command.run(chat, argument)


def _hint(name: str, argument: str) -> str:
    from ...presets.errors import PresetError
    from ...presets.overrides import parse_set

    with suppress(PresetError):  # not the name of a setting or of a sampler
        parse_set(f"{name}=1")
        return f"; use /set {name}={argument or 'VALUE'}"
    nearest = nearest_name(name, [command.name for command in COMMANDS])
    return "" if nearest is None else f"; did you mean /{nearest}?"


def complete_line(chat: Chat, text: str) -> tuple[CompletionResult, int]:
    """Return what completes a text up to the cursor, and how many of its characters that replaces."""
    if not text.startswith("/") or "\n" in text:
        return CompletionResult([]), 0
    name, blank, argument = text[1:].partition(" ")
    if not blank:
        names = [CompletionItem(f"/{each.name}", each.summary) for each in COMMANDS]
        return CompletionResult(matching(names, text)), len(text)
    command = _find(name)
    if command is None or command.complete is None:
        return CompletionResult([]), 0
    typed = argument.lstrip()
    return command.complete(chat, typed), len(typed)


def _find(name: str) -> ChatCommand | None:
    return next((command for command in COMMANDS if name in (command.name, *command.aliases)), None)


def _help(_chat: Chat, _argument: str) -> None:
    from ..help_page import HelpRow, page_width, section

    print(section("Commands", [HelpRow(each.usage, each.summary) for each in COMMANDS], page_width()))
    keys = [
        HelpRow("Enter", "Send the message."),
        HelpRow("Alt-Enter", 'Start a new line; so does """ on a line of its own, until the next one.'),
        HelpRow("Tab", "Complete commands, samplers, parameters, presets."),
        HelpRow("Ctrl-R", "Search what was typed before."),
        HelpRow("Ctrl-X Ctrl-E", "Open the text in $VISUAL or $EDITOR."),
        HelpRow("Ctrl-C", "End the answer, and keep what is there; twice: leave."),
        HelpRow("Ctrl-D", "Leave."),
    ]
    print(f"\n{section('Keys', keys, page_width())}\n\nA message may begin with a slash behind a blank.")


_NONE = "none"
_GRAMMAR_KINDS = ("file", "json_schema", "json_schema_file", "regex", "lark_file")


def _set(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/set needs NAME.PARAM=VALUE, such as min_p.p=0.1; /settings shows all")
    before = chat.settings.settings.system
    changed = chat.settings.set(argument)
    after = chat.settings.settings.system
    if after is not before:
        chat.conversation.set_system(after.value)
    chat.save_settings()
    chat.confirm(changed)


def _chain(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/chain needs steps, such as top-k40 > temp0.8; /settings shows the chain")
    chat.settings.replace_chain(argument)
    chat.save_settings()
    chat.confirm(_chain_now(chat))


def _preset(chat: Chat, argument: str) -> None:
    from ...presets.overrides import SETTING_NAMES

    if not argument:
        raise ChatCommandError("/preset needs the name of a preset, or a file; gen presets lists them")
    before = chat.settings.settings
    chat.settings.replace_preset(argument, chat.session.model.metadata)
    after = chat.settings.settings
    if after.system is not before.system:
        chat.conversation.set_system(after.system.value)
    chat.save_settings()
    others = [name for name in SETTING_NAMES if getattr(after, name) is not getattr(before, name)]
    also = f"; it also sets {', '.join(others)}" if others else ""
    chat.confirm(f"preset {argument}: {_chain_now(chat)}{also}")


def _chain_now(chat: Chat) -> str:
    from ..render.tables import chain_summary

    return f"chain = {chain_summary(chat.settings.settings.steps)}"


def _seed(chat: Chat, argument: str) -> None:
    if not argument:
        value = chat.settings.settings.seed.value
        print("a new one for each answer" if value is None else value)
        return
    if argument != "random" and not argument.isdecimal():
        raise ChatCommandError(f"/seed: {argument!r} is not an integer, nor random")
    chat.settings.override("/seed", "seed", None if argument == "random" else int(argument))
    chat.save_settings()
    chat.confirm("the seed is random now" if argument == "random" else f"seed = {argument}")


def _system(chat: Chat, argument: str) -> None:
    if not argument:
        print(terminal_safe(chat.conversation.system or "there is no system message", sys.stdout))
        return
    text = None if argument == _NONE else argument
    chat.settings.override("/system", "system", text)
    chat.conversation.set_system(text)
    chat.save_settings()
    chat.confirm("there is no system message now" if text is None else f"system = {text!r}")


def _grammar(chat: Chat, argument: str) -> None:
    from ..render.tables import grammar_summary

    kind, _, rest = argument.partition(" ")
    if not argument:
        kinds = ", ".join(_GRAMMAR_KINDS)
        raise ChatCommandError(
            f"/grammar needs a name (gen grammars), GBNF, {_NONE}, or one of {kinds} and its value"
        )
    value: object = {kind: rest.strip()} if kind in _GRAMMAR_KINDS else argument
    chat.settings.override("/grammar", "grammar", None if argument == _NONE else value)
    chat.save_settings()
    spec = chat.settings.spec
    chat.confirm(
        "there is no grammar now"
        if spec is None
        else f"grammar = {grammar_summary(spec).removeprefix('grammar ')}"
    )


def _settings(chat: Chat, _argument: str) -> None:
    from ..render.tables import show_settings

    show_settings(chat.settings.settings, chat.settings.spec, chat.settings.chosen_model())


def _completes(kind: CompletionKind) -> Callable[[Chat, str], CompletionResult]:
    return lambda _chat, typed: complete_text(kind, typed)


_MAX_VERSIONS = 100
_ID_CHARACTERS = 8
"""Of a message's hash, by which it is traced; a longer beginning is found as well."""


def _regenerate(chat: Chat, argument: str) -> None:
    count = _whole_number("regen", argument, _MAX_VERSIONS) if argument else 1
    user = chat.conversation.last_user_message()
    for remaining in range(count, 0, -1):
        made = 0 if user is None else len(chat.conversation.children(user))
        if count > 1:
            print(f"[version {made + 1} of {made + remaining}]")
        chat.regenerate()
        if chat.done is not None and chat.done.finish_reason == "interrupted":
            break
        head = chat.conversation.current_message
        if head is not None and len(versions := chat.conversation.siblings(head)) == made:
            print_note(f"this is the text of version {_number(head, versions)} again")
    answer = chat.conversation.last_assistant_message()
    if answer is not None and len(versions := chat.conversation.siblings(answer)) > 1:
        print_note(f"version {_number(answer, versions)} of {len(versions)}; /branch N goes to another one")


def _edit(chat: Chat, argument: str) -> None:
    if argument not in ("", "answer"):
        raise ChatCommandError(
            f"/edit changes your last message, /edit answer the answer; {argument!r} is neither"
        )
    user, head = chat.conversation.last_user_message(), chat.conversation.current_message
    if user is None:
        raise ChatCommandError("there is no message of yours to edit")
    if not argument:
        text = _edited(chat, user.content)
        try:
            chat.send(text, user)
        except ContextFullError as error:
            if head is None or not chat.has_unsent:
                raise
            chat.conversation.goto(user.parent_hash)  # there the text belongs when it is sent after a change
            raise ContextFullError(f"{error}; {_way_back(head)}") from None
        return
    if head is None or head.role != "assistant":
        raise ChatCommandError("there is no answer to edit")
    chat.go_on_from(_edited(chat, head.content))


def _edited(chat: Chat, text: str) -> str:
    chat.confirm("Ctrl-X Ctrl-E opens the text in $EDITOR, Enter sends it")
    return chat.input.read(default=text, question="edit> ")


def _undo(chat: Chat, _argument: str) -> None:
    message = chat.conversation.undo()
    if message is None:
        raise ChatCommandError("there is nothing to take back")
    print_note(f"taken back: {_line(message, 50)}; /goto {message.hash[:_ID_CHARACTERS]} goes there again")


def _clear(chat: Chat, _argument: str) -> None:
    system, before = chat.conversation.system, chat.conversation.current_message
    chat.conversation.goto(None)
    chat.conversation.set_system(system)
    if before is not None and before != chat.conversation.current_message:
        print_note(f"the chat begins again; {_way_back(before)}")


def _way_back(message: StoredMessage) -> str:
    return f"/goto {message.hash[:_ID_CHARACTERS]} goes back"


def _branch(chat: Chat, argument: str) -> None:
    """Show the versions of the latest message that has several, or go to one of them."""
    place = next(
        (
            message
            for message in reversed(chat.conversation.messages())
            if len(chat.conversation.siblings(message)) > 1
        ),
        None,
    )
    if place is None:
        raise ChatCommandError("there is one version of each message; /regen and /edit make further ones")
    versions = chat.conversation.siblings(place)
    if not argument:
        for number, message in enumerate(versions, 1):
            mark = "*" if message.hash == place.hash else " "
            print(f"{mark} {number}  {_line(message, _width() - 6)}")
        return
    number = _whole_number("branch", argument, len(versions))
    chat.conversation.goto(_latest_end(chat, versions[number - 1]).hash)
    chat.show_last_turn()


def _latest_end(chat: Chat, message: StoredMessage) -> StoredMessage:
    """The last message of the branch that goes through this one; where it divides, through the latest."""
    messages = chat.conversation.all_messages()
    end = message
    for other in messages:  # in the order in which they came
        if other.parent_hash == end.hash:
            end = other
    return end


def _tree(chat: Chat, _argument: str) -> None:
    lines = list(tree_lines(chat.conversation))
    if not lines:
        raise ChatCommandError("there are no messages yet")
    for line in lines:
        mark = "*" if line.is_current else "|" if line.is_on_path else " "
        start = f"{mark} {line.message.hash[:_ID_CHARACTERS]} {'  ' * line.depth}"
        print(f"{start}{_line(line.message, _width() - len(start))}")


def _goto(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/goto needs the beginning of a message's name, as /tree shows it")
    chat.conversation.goto(argument)
    chat.show_last_turn()


def _complete_goto(chat: Chat, typed: str) -> CompletionResult:
    messages = chat.conversation.all_messages()
    return CompletionResult(
        matching([CompletionItem(each.hash[:_ID_CHARACTERS], _line(each, 40)) for each in messages], typed)
    )


def _number(message: StoredMessage, versions: list[StoredMessage]) -> int:
    return [each.hash for each in versions].index(message.hash) + 1


def _whole_number(command: str, argument: str, largest: int) -> int:
    """Return a number from 1 on. Raises ``ChatCommandError``."""
    if argument.isascii() and argument.isdecimal() and 1 <= int(argument) <= largest:
        return int(argument)
    raise ChatCommandError(f"/{command}: {argument!r} is not a whole number within 1..{largest}")


def _line(message: StoredMessage, columns: int) -> str:
    """Who says it, and the beginning of what is said, on a line of at most so many columns."""
    from rich.cells import set_cell_size

    text = visible(" ".join(f"{SPEAKERS[message.role]}: {message.content}".split()))
    shown = set_cell_size(text, max(columns, 10)).rstrip()
    return shown if shown == text else set_cell_size(text, max(columns, 10) - 1).rstrip() + "…"


def _width() -> int:
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 200


_TOP = 10
"""How many of the likeliest tokens of each stage are shown."""


def _next(chat: Chat, argument: str) -> None:
    """Show what the next token of the last answer would be drawn from, or that after another beginning of it."""
    from ...engine.generation import build_chain
    from ...engine.next_token import trace_request
    from ..render.progress import reading_bar
    from ..render.trace import TracedNextToken, show_next_token

    model, head = chat.session.model, chat.conversation.current_message
    beginning = argument
    if not argument and head is not None and head.role == "assistant":
        beginning = head.content
    prompt = chat.session.prompt_ids_to_continue(beginning)
    request = replace(chat.settings.for_answer(), prompt=prompt, beginning=beginning, exact_reuse=True)
    chain = build_chain(model, request)
    with interruptible() as interrupt, reading_bar() as progress, interrupt.graceful_shutdown():
        result = trace_request(
            model,
            replace(request, chain=chain),
            top=_TOP,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
    if result is not None:
        show_next_token(TracedNextToken(model, chain, result, [], []))


def _why(chat: Chat, argument: str) -> None:
    """Show how a token of the last answer was chosen: its number from 0, or a text that it has."""
    from ..render.trace import show_token

    answer = chat.conversation.last_assistant_message()
    if answer is None:
        raise ChatCommandError("there is no answer to explain")
    record = chat.conversation.answer_record(answer)
    if record is None:
        raise ChatCommandError(
            "no model made this answer here: it was typed, or made below another system message"
        )
    number = _token_number(chat, record, argument)
    token = _traced_token(chat, record, number)
    if token is None or token.trace is None:
        print_note("the answer was not made again up to this token")
        return
    show_token(token, token.trace, number)


def _token_number(chat: Chat, record: StoredAnswer, argument: str) -> int:
    """The number of the token that is meant. Raises ``ChatCommandError``."""
    count = len(record.token_ids)
    if argument.isdecimal():
        number = int(argument)
        if number >= count:
            raise ChatCommandError(f"/why {number}: the answer has {count_noun(count, 'token')}, from 0 on")
        return number
    if not argument:
        return 0
    vocabulary = chat.session.model.vocabulary
    wanted = argument.strip("'\"") or argument
    pieces = (vocabulary.piece(token).decode("utf-8", "replace") for token in record.token_ids)
    number = next((number for number, piece in enumerate(pieces) if wanted in piece), -1)
    if number < 0:
        raise ChatCommandError(f"/why: no token of the answer has the text {wanted!r}")
    return number


def _traced_token(chat: Chat, record: StoredAnswer, number: int) -> Token | None:
    """The token as it is made again with a trace; None after Ctrl-C."""
    from ...logprobs.events import Token
    from ..render.progress import reading_bar

    tokens: list[Token] = []
    with interruptible() as interrupt, reading_bar() as progress, interrupt.graceful_shutdown():
        events = chat.session.replay(
            record, _TOP, number + 1, is_interrupted=lambda: interrupt.requested, progress=progress
        )
        tokens.extend(event for event in events if isinstance(event, Token))
    return tokens[number] if number < len(tokens) else None


def _stats(chat: Chat, _argument: str) -> None:
    conversation, context = chat.conversation, chat.session.usage()
    print(terminal_safe(f"model       {chat.session.model.name}", sys.stdout))
    answer = conversation.last_assistant_message()
    record = None if answer is None else conversation.answer_record(answer)
    if record is not None and record.result is not None and "usage" in record.result:
        usage, times = record.result["usage"], record.result["timings"]
        kept = usage["cached_tokens"]
        print(speed_line("prompt", usage["prompt_tokens"] - kept, times["prompt"]))
        print(f"reused      {kept:6,} tokens of the prompt")
        print(speed_line("generation", usage["completion_tokens"], times["generation"]))
        print(f"finish      {record.result['finish_reason']}, seed {record.recipe.seed}")
    path, everything = conversation.messages(), conversation.all_messages()
    others = f", {len(everything) - len(path):,} in other branches" if len(everything) > len(path) else ""
    print(f"context     {context.token_count:6,} of {context.context_length:,} tokens")
    print(f"chat        {conversation.id or 'not stored'}, {count_noun(len(path), 'message')}{others}")


def _save(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/save needs a name, by which gen chat --resume NAME finds this chat")
    chat.conversation.rename(argument)
    chat.save_settings()
    if chat.conversation.is_stored:
        print_note(f"gen chat --resume {argument!r} continues this chat")
    else:
        print_note(f"the chat is named {argument!r}, but is not stored")


def _export(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/export needs a file: FILE.md for Markdown, FILE.jsonl for messages")
    path = Path(argument).expanduser()
    formats: dict[str, Callable[[Sequence[StoredMessage]], str]] = {
        ".md": markdown_of,
        ".jsonl": partial(jsonl_of, template=chat.session.template),
    }
    if path.suffix not in formats:
        raise ChatCommandError(f"/export: {path.name} ends neither in .md (Markdown) nor in .jsonl (messages)")
    if path.exists():
        raise ChatCommandError(f"{path}: there is such a file; give another name")
    messages = chat.conversation.messages()
    if not messages:
        raise ChatCommandError("there are no messages yet")
    data = formats[path.suffix](messages).encode()
    write_file_atomically(path, lambda file: file.write(data))
    print_note(f"{path}: {count_noun(len(messages), 'message')}")


def _complete_path(_chat: Chat, typed: str) -> CompletionResult:
    folder, slash, name = typed.rpartition("/")
    try:
        entries = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except OSError:
        return CompletionResult([])
    found = [each for each in entries if each.name.startswith(name) and not each.name.startswith(".")]
    return CompletionResult(
        [CompletionItem(f"{folder}{slash}{each.name}{'/' if each.is_dir() else ''}") for each in found]
    )


def _exit(_chat: Chat, _argument: str) -> None:
    raise LeaveChatError


COMMANDS = (
    ChatCommand("help", "", "Show this page.", _help),
    ChatCommand("set", "NAME.PARAM=VALUE", "Set one value: min_p.p=0.1", _set, _completes(CompletionKind.SETTING)),
    ChatCommand("chain", "STEPS", "Use these steps: top-k40 > temp0.8", _chain, _completes(CompletionKind.CHAIN)),
    ChatCommand(
        "preset", "NAME", "Use a preset's chain and settings.", _preset, _completes(CompletionKind.PRESET)
    ),
    ChatCommand("seed", "[N|random]", "Set the seed of the answers, or show it.", _seed),
    ChatCommand("system", "[TEXT|none]", "Set the system message, or show it.", _system),
    ChatCommand(
        "grammar",
        "NAME|GBNF|none",
        "Hold the answers to a grammar; also regex TEXT, json_schema JSON, file FILE.",
        _grammar,
        _completes(CompletionKind.GRAMMAR_NAME),
    ),
    ChatCommand("settings", "", "Show the values, and where each is from.", _settings),
    ChatCommand("regen", "[N]", "Answer again, N times; the versions stand side by side.", _regenerate),
    ChatCommand(
        "edit", "[answer]", "Change your last message, or the answer: it goes on from the changed text.", _edit
    ),
    ChatCommand("undo", "", "Take back your last message and its answer.", _undo),
    ChatCommand("clear", "", "Begin again behind the system message; what was said is kept.", _clear),
    ChatCommand("branch", "[N]", "List the versions of the latest message that has some, or go to one.", _branch),
    ChatCommand("tree", "", "Show all messages of this chat; * is where you are.", _tree),
    ChatCommand("goto", "MESSAGE", "Go to a message of /tree.", _goto, _complete_goto),
    ChatCommand("next", "[TEXT]", "Show what the next token would be drawn from, also after TEXT.", _next),
    ChatCommand("why", "[TOKEN]", "Show how a token of the last answer was chosen: number or text.", _why),
    ChatCommand("stats", "", "Show the model, the speed of the last answer, how full the context is.", _stats),
    ChatCommand("save", "NAME", "Give this chat a name, for gen chat --resume NAME.", _save),
    ChatCommand(
        "export", "FILE", "Write the messages: FILE.md, or FILE.jsonl for gen batch.", _export, _complete_path
    ),
    ChatCommand("exit", "", "Leave.", _exit, aliases=("quit",)),
)
"""In the order of the help."""
