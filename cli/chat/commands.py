"""The commands of a chat: lines that begin with a slash, such as /help.

The table `COMMANDS` at the end lists them. The functions of the commands are in the order of the table, each
followed by its helpers: settings first, then branches of the conversation, explanations of an answer, and files.
"""

from __future__ import annotations

import re
import shutil
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...chats.conversation import tree_lines
from ...chats.prompt import jsonl_of, markdown_of
from ...chats.records import SPEAKERS, ContextFullError
from ...common.errors import LogitsmithError
from ...common.files import read_input, write_file_atomically
from ...common.flags import CompletionKind
from ...common.seeds import RANDOM_SEED
from ...common.text import count_noun, did_you_mean
from ...presets.setting_table import STORY_NAMES, SWITCH_NAMES
from ..completion.values import CompletionItem, complete_text, matching, path_items
from ..interrupt import interruptible_turn
from ..messages import print_note
from ..render.stats import draft_line, speed_line
from ..render.table import Column, Table
from ..text import output_width, terminal_safe, visible
from .chat import Chat, LeaveChatError
from .typed_input import LineCompletion

if TYPE_CHECKING:
    from ...chats.records import StoredAnswer, StoredMessage
    from ...logprobs.events import Token
    from ...presets.settings import Settings


class ChatCommandError(LogitsmithError):
    """A command of a chat that is unknown, or whose argument is not valid."""


@dataclass(frozen=True)
class ChatCommand:
    """A command of a chat."""

    name: str  # without the slash
    argument: str  # placeholder of the argument in the help; empty if the command takes no argument
    summary: str  # in one line
    run: Callable[[Chat, str], None]  # takes the chat, and the argument, stripped of spaces
    # completes a partly typed argument; None if there is no completion
    complete: Callable[[Chat, str], list[CompletionItem]] | None = None
    aliases: tuple[str, ...] = ()  # other names that run the command; the help does not list them

    @property
    def usage(self) -> str:
        """Name and argument as the user types them."""
        return f"/{self.name} {self.argument}".rstrip()


# such as ``/goto 3f2a``; the name may be empty, and the argument missing
_COMMAND_LINE = re.compile(r"/(?P<name>[A-Za-z_?-]*)(?:\s+(?P<argument>.*))?", re.DOTALL)


def is_command(text: str) -> bool:
    """Return whether the text begins with a slash and a word, unlike a path, which has a second slash."""
    return _COMMAND_LINE.fullmatch(text) is not None


def run_command(chat: Chat, line: str) -> None:
    """Run a command. Raises ``ChatCommandError`` if there is no such command."""
    match = _COMMAND_LINE.fullmatch(line)
    if match is None:
        raise ChatCommandError("there is no command /; /help lists them")
    name = match["name"].lower()
    argument = (match["argument"] or "").strip()
    command = _find_command(name)
    if command is None:
        raise ChatCommandError(f"there is no command /{name}{_command_hint(name, argument)}; /help lists them")
    if argument and not command.argument:
        raise ChatCommandError(f"/{command.name} takes no argument, but got {argument!r}")
    command.run(chat, argument)


def _command_hint(name: str, argument: str) -> str:
    from ...presets.errors import PresetError
    from ...presets.overrides import parse_set

    """Return advice for a name that is not a command, which begins with a semicolon; empty without advice."""
    with suppress(PresetError):  # raised if no setting or sampler has this name
        parse_set(f"{name}=1")
        return f"; use /set {name}={argument or 'VALUE'}"
    suggestion = did_you_mean(f"/{name}", [f"/{command.name}" for command in COMMANDS])
    return f"; {suggestion}" if suggestion else ""


def complete_line(chat: Chat, text: str) -> LineCompletion:
    """Return the completions of the text before the cursor."""
    if not text.startswith("/") or "\n" in text:
        return LineCompletion([], replaced_count=0)
    name, space, argument = text.removeprefix("/").partition(" ")
    if not space:
        names = [CompletionItem(f"/{command.name}", command.summary) for command in COMMANDS]
        return LineCompletion(matching(names, text), replaced_count=len(text))
    command = _find_command(name)
    if command is None or command.complete is None:
        return LineCompletion([], replaced_count=0)
    typed_argument = argument.lstrip()
    return LineCompletion(command.complete(chat, typed_argument), replaced_count=len(typed_argument))


def _find_command(name: str) -> ChatCommand | None:
    return next((command for command in COMMANDS if name in (command.name, *command.aliases)), None)


def _help(_chat: Chat, _argument: str) -> None:
    _print_help_table("Commands", [(command.usage, command.summary) for command in COMMANDS])
    _print_help_table("Keys", _KEYS)
    print("To send a message that begins with a slash, type a space first.")


def _print_help_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    columns = [Column(width=_NAME_COLUMNS), Column(is_text=True)]
    table = Table(columns, rows, gap=2, indent=2)
    print(f"{title}:", *table.render(output_width()), "", sep="\n")


_NAME_COLUMNS = 22
_KEYS = [
    ("Enter", "Send the message."),
    ("Alt-Enter", 'Start a new line. A line of """ begins or ends a block of lines.'),
    ("Tab", "Complete commands, samplers, parameters, presets."),
    ("Ctrl-R", "Search earlier input."),
    ("Ctrl-X Ctrl-E", "Open the text in $VISUAL or $EDITOR."),
    ("Ctrl-C", "End the answer and keep its text; pressed twice, leave the chat."),
    ("Ctrl-D", "Leave the chat."),
]
_NO_VALUE = "none"
_GRAMMAR_KINDS = ("file", "json_schema", "json_schema_file", "regex", "lark_file")


def _set(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/set needs NAME.PARAM=VALUE, such as min_p.p=0.1; /settings shows all values")
    before = chat.settings.settings
    change_text = chat.settings.set(argument)
    _follow_settings(chat, before)
    chat.save_settings()
    chat.confirm(change_text)


def _follow_settings(chat: Chat, before: Settings) -> None:
    """Give the next prompt the system message, the chat template and the story of changed settings."""
    after = chat.settings.settings
    if after["system"] is not before["system"]:
        chat.conversation.set_system(after["system"].value)
    if any(after[name] is not before[name] for name in SWITCH_NAMES):
        chat.session.use_template(chat.settings.open_template(chat.session.model))
    if any(after[name] is not before[name] for name in STORY_NAMES):
        chat.session.use_story(after.story)


def _chain(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/chain needs steps, such as top-k40 > temp0.8; /settings shows the chain")
    chat.settings.replace_chain(argument)
    chat.save_settings()
    chat.confirm(_current_chain(chat))


def _preset(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/preset needs the name of a preset, or a file; gen presets lists them")
    before = chat.settings.settings
    chat.settings.replace_preset(argument, chat.session.model.metadata)
    after = chat.settings.settings
    _follow_settings(chat, before)
    chat.save_settings()
    change = f"preset {argument}: {_current_chain(chat)}"
    changed_settings = [name for name in after.values if after[name] is not before[name]]
    if changed_settings:
        change += f"; it also sets {', '.join(changed_settings)}"
    chat.confirm(change)


def _current_chain(chat: Chat) -> str:
    from ..render.settings import chain_summary

    return f"chain = {chain_summary(chat.settings.settings.steps)}"


def _seed(chat: Chat, argument: str) -> None:
    if not argument:
        value = chat.settings.settings["seed"].value
        print("random: a new seed for each answer" if value is None else value)
        return
    try:
        seed = RANDOM_SEED if argument == "random" else int(argument)
    except ValueError:
        raise ChatCommandError(f"/seed: {argument!r} is neither an integer nor random") from None
    chat.settings.override("/seed", "seed", seed)
    chat.save_settings()
    chat.confirm("the seed is random now" if seed == RANDOM_SEED else f"seed = {seed}")


def _system(chat: Chat, argument: str) -> None:
    if not argument:
        print(terminal_safe(chat.conversation.system or "there is no system message", sys.stdout))
        return
    text = None if argument == _NO_VALUE else argument
    chat.settings.override("/system", "system", text)
    chat.conversation.set_system(text)
    chat.save_settings()
    chat.confirm("there is no system message now" if text is None else f"system = {text!r}")


def _memory(chat: Chat, argument: str) -> None:
    if not argument:
        memory = chat.settings.settings["memory"].value
        print(terminal_safe(memory or "there is no memory", sys.stdout))
        return
    memory = None if argument == _NO_VALUE else argument
    _override_story(chat, "/memory", "memory", memory)
    chat.confirm("there is no memory now" if memory is None else f"memory = {memory!r}")


def _note(chat: Chat, argument: str) -> None:
    note = chat.settings.settings["authors_note"].value or {}
    if not argument:
        print(terminal_safe(note.get("text") or "there is no author's note", sys.stdout))
        return
    if argument == _NO_VALUE:
        _override_story(chat, "/note", "authors_note", None)
        chat.confirm("there is no author's note now")
        return
    _override_story(chat, "/note", "authors_note", note | {"text": argument})
    chat.confirm(f"author's note = {argument!r}")


def _world(chat: Chat, argument: str) -> None:
    from ...requests.story_files import MAX_STORY_FILE_BYTES, StoryFileError, import_story

    if not argument:
        story = chat.settings.settings.story
        entries = [] if story is None else story.world_info.entries
        names = [f"{entry.name or ', '.join(entry.keys)}: {entry.content}" for entry in entries if entry.enabled]
        print(terminal_safe("\n".join(names) or "there is no world info", sys.stdout))
        return
    if argument == _NO_VALUE:
        _override_story(chat, "/world", "world_info", None)
        chat.confirm("there is no world info now")
        return
    try:
        imported = import_story(read_input(Path(argument), MAX_STORY_FILE_BYTES))
    except StoryFileError as error:
        raise error.within(argument) from None
    world_info = imported.story.world_info
    if not world_info.entries:
        raise ChatCommandError(f"{argument}: there is no world info in this file")
    for remark in imported.remarks:
        print_note(f"{argument}: {remark}")
    _override_story(chat, "/world", "world_info", world_info.model_dump())
    chat.confirm(f"world info = {count_noun(len(world_info.entries), 'text')}")


def _override_story(chat: Chat, command: str, name: str, value: Any) -> None:
    before = chat.settings.settings
    chat.settings.override(command, name, value)
    _follow_settings(chat, before)
    chat.save_settings()


def _grammar(chat: Chat, argument: str) -> None:
    from ..render.settings import grammar_summary

    if not argument:
        kinds = ", ".join(_GRAMMAR_KINDS)
        raise ChatCommandError(
            f"/grammar needs a name (gen grammars), GBNF, {_NO_VALUE}, or one of {kinds} followed by its value"
        )
    first_word, _, rest = argument.partition(" ")
    value: str | dict[str, str] | None = argument  # a name or GBNF
    if argument == _NO_VALUE:
        value = None
    elif first_word in _GRAMMAR_KINDS:
        value = {first_word: rest.strip()}
    chat.settings.override("/grammar", "grammar", value)
    chat.save_settings()
    grammar = chat.settings.grammar
    if grammar is None:
        chat.confirm("there is no grammar now")
    else:
        chat.confirm(f"grammar = {grammar_summary(grammar).removeprefix('grammar ')}")


def _settings(chat: Chat, _argument: str) -> None:
    from ..render.settings import show_settings

    settings = chat.settings
    device = settings.computing_device(chat.session.model)
    show_settings(settings.settings, settings.grammar, settings.chosen_model(), device)


def _completer(kind: CompletionKind) -> Callable[[Chat, str], list[CompletionItem]]:
    return lambda _chat, typed: complete_text(kind, typed)


_MAX_VERSIONS = 100
# Characters of a message's hash that are shown. /goto accepts any unique beginning of the hash.
_SHOWN_HASH_CHARACTERS = 8


def _regenerate(chat: Chat, argument: str) -> None:
    answer_count = _integer_argument("regen", argument, _MAX_VERSIONS) if argument else 1
    user_message = chat.conversation.last_user_message()
    for remaining_count in range(answer_count, 0, -1):
        version_count = 0 if user_message is None else len(chat.conversation.children(user_message))
        if answer_count > 1:
            print(f"[version {version_count + 1} of {version_count + remaining_count}]")
        chat.regenerate()
        if chat.last_done is not None and chat.last_done.finish_reason == "interrupted":
            break
        new_answer = chat.conversation.current_message
        if new_answer is not None:
            versions = chat.conversation.siblings(new_answer)
            is_repetition = len(versions) == version_count
            if is_repetition:
                print_note(f"the answer has the same text as version {_version_number(new_answer, versions)}")
    answer = chat.conversation.last_assistant_message()
    if answer is not None:
        versions = chat.conversation.siblings(answer)
        if len(versions) > 1:
            number = _version_number(answer, versions)
            print_note(f"version {number} of {len(versions)}; /branch N shows another version")


def _edit(chat: Chat, argument: str) -> None:
    if argument not in ("", "answer"):
        raise ChatCommandError(
            f"/edit: expected answer or no argument, got {argument!r}; /edit changes your last message, "
            "/edit answer the answer"
        )
    user_message = chat.conversation.last_user_message()
    current_message = chat.conversation.current_message
    if user_message is None:
        raise ChatCommandError("there is no message of yours to edit")
    if not argument:
        text = _ask_for_edited_text(chat, user_message.content)
        try:
            chat.send(text, user_message)
        except ContextFullError as error:
            if current_message is None or not chat.has_unsent_message:
                raise
            chat.conversation.goto(user_message.parent_hash)  # so that the corrected text replaces the message
            raise ContextFullError(f"{error}; {_way_back(current_message)}") from None
        return
    if current_message is None or current_message.role != "assistant":
        raise ChatCommandError("there is no answer to edit")
    chat.continue_from(_ask_for_edited_text(chat, chat.session.editable_text(current_message)))


def _ask_for_edited_text(chat: Chat, text: str) -> str:
    chat.confirm("Ctrl-X Ctrl-E opens the text in $EDITOR, Enter sends it")
    return chat.input.read(default=text, prompt_mark="edit> ")


def _undo(chat: Chat, _argument: str) -> None:
    message = chat.conversation.undo()
    if message is None:
        raise ChatCommandError("there is no message to undo")
    start_of_hash = message.hash[:_SHOWN_HASH_CHARACTERS]
    print_note(f"undone: {_message_line(message, 50)}; /goto {start_of_hash} goes back to it")


def _clear(chat: Chat, _argument: str) -> None:
    system = chat.conversation.system
    message_before = chat.conversation.current_message
    chat.conversation.goto(None)
    chat.conversation.set_system(system)
    if message_before is not None and message_before != chat.conversation.current_message:
        print_note(f"the chat starts over; {_way_back(message_before)}")


def _way_back(message: StoredMessage) -> str:
    return f"/goto {message.hash[:_SHOWN_HASH_CHARACTERS]} goes back"


def _branch(chat: Chat, argument: str) -> None:
    """Show the versions of the latest message that has several, or go to one of these versions."""
    messages_with_versions = [
        message for message in chat.conversation.messages() if len(chat.conversation.siblings(message)) > 1
    ]
    if not messages_with_versions:
        raise ChatCommandError("each message has only one version; /regen and /edit add versions")
    current_version = messages_with_versions[-1]
    versions = chat.conversation.siblings(current_version)
    if not argument:
        for number, message in enumerate(versions, 1):
            mark = "*" if message.hash == current_version.hash else " "
            print(f"{mark} {number}  {_message_line(message, _line_columns() - 6)}")
        return
    number = _integer_argument("branch", argument, len(versions))
    chat.conversation.goto(_latest_descendant(chat, versions[number - 1]).hash)
    chat.show_last_turn()


def _latest_descendant(chat: Chat, message: StoredMessage) -> StoredMessage:
    """Return the last message of the branch through a message."""
    descendant = message
    for later_message in chat.conversation.all_messages():  # the oldest message first
        if later_message.parent_hash == descendant.hash:
            descendant = later_message
    return descendant


def _tree(chat: Chat, _argument: str) -> None:
    lines = list(tree_lines(chat.conversation))
    if not lines:
        raise ChatCommandError("there are no messages yet")
    for line in lines:
        mark = " "
        if line.is_current:
            mark = "*"
        elif line.is_on_path:
            mark = "|"
        indent = "  " * line.depth
        line_start = f"{mark} {line.message.hash[:_SHOWN_HASH_CHARACTERS]} {indent}"
        print(f"{line_start}{_message_line(line.message, _line_columns() - len(line_start))}")


def _goto(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/goto needs the beginning of a message's hash, which /tree shows")
    chat.conversation.goto(argument)
    chat.show_last_turn()


def _complete_goto(chat: Chat, typed: str) -> list[CompletionItem]:
    messages = chat.conversation.all_messages()
    candidates = [CompletionItem(each.hash[:_SHOWN_HASH_CHARACTERS], _message_line(each, 40)) for each in messages]
    return matching(candidates, typed)


def _version_number(message: StoredMessage, versions: list[StoredMessage]) -> int:
    return [each.hash for each in versions].index(message.hash) + 1


def _integer_argument(command: str, argument: str, maximum: int) -> int:
    """Return the argument as an integer from 1 to ``maximum``."""
    if argument.isascii() and argument.isdecimal() and 1 <= int(argument) <= maximum:
        return int(argument)
    raise ChatCommandError(f"/{command}: {argument!r} is not an integer from 1 to {maximum}")


def _message_line(message: StoredMessage, max_columns: int) -> str:
    """Return the role and the beginning of the message in one line."""
    from rich.cells import set_cell_size

    columns = max(max_columns, _MIN_MESSAGE_COLUMNS)
    text = visible(" ".join(f"{SPEAKERS[message.role]}: {message.content}".split()))
    fits = set_cell_size(text, columns).rstrip() == text
    return text if fits else set_cell_size(text, columns - 1).rstrip() + "…"


_MIN_MESSAGE_COLUMNS = 10
_FILE_COLUMNS = 200  # columns of a line that is not written to a terminal


def _line_columns() -> int:
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else _FILE_COLUMNS


_SHOWN_CANDIDATES = 10  # number of the most likely tokens of each stage that /next and /why show


def _next(chat: Chat, argument: str) -> None:
    """Show the candidates for the token after the last answer, or after a given beginning of the answer."""
    from ...engine.generation import build_chain
    from ...engine.next_token import trace_request
    from ..render.progress import reading_bar
    from ..render.trace import TracedNextToken, show_next_token

    model = chat.session.model
    current_message = chat.conversation.current_message
    beginning = argument
    if not argument and current_message is not None and current_message.role == "assistant":
        beginning = current_message.content
    prompt = chat.session.prompt_ids_to_continue(beginning)
    request = replace(chat.settings.next_request(), prompt=prompt, beginning=beginning, exact_reuse=True)
    chain = build_chain(model, request)
    with interruptible_turn() as interrupt, reading_bar() as progress, interrupt.graceful_shutdown():
        result = trace_request(
            model,
            replace(request, chain=chain),
            top=_SHOWN_CANDIDATES,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
    if result is not None:
        show_next_token(TracedNextToken(model, chain, result, [], []))


def _why(chat: Chat, argument: str) -> None:
    """Show how a token of the last answer was chosen; the argument is its number from 0, or part of its text."""
    from ..render.trace import show_token

    answer = chat.conversation.last_assistant_message()
    if answer is None:
        raise ChatCommandError("there is no answer to explain")
    record = chat.conversation.answer_record(answer)
    if record is None:
        raise ChatCommandError(
            "this answer was not generated here: it was typed, or generated with another system message"
        )
    number = _token_number(chat, record, argument)
    token = _traced_token(chat, record, number)
    if token is None or token.trace is None:
        print_note("the replay of the answer ended before this token")
        return
    show_token(token, token.trace, number)


def _token_number(chat: Chat, record: StoredAnswer, argument: str) -> int:
    """Return the number of the token that the argument names, counted from 0."""
    count = len(record.token_ids)
    if argument.isdecimal():
        number = int(argument)
        if number >= count:
            raise ChatCommandError(f"/why {number}: the answer has {count_noun(count, 'token')}, numbered from 0")
        return number
    if not argument:
        return 0
    pieces = [chat.session.model.vocabulary.piece(token) for token in record.token_ids]
    starts = _token_starts(pieces, argument)
    if starts:
        if len(starts) > 1:
            print_note(
                f"the text begins at the tokens {', '.join(map(str, starts))}; shown is the last one,"
                f" /why {argument} 1 shows the first"
            )
        return starts[-1]
    # the argument may be a text and the number of its occurrence, counted from 1, such as ``the 2``
    text, _, occurrence = argument.rpartition(" ")
    if text and occurrence.isdecimal():
        starts = _token_starts(pieces, text)
        if 1 <= int(occurrence) <= len(starts):
            return starts[int(occurrence) - 1]
    if argument.strip(_QUOTES) in record.beginning:
        raise ChatCommandError(f"/why: the text {argument!r} was typed, so no token of the model begins it")
    raise ChatCommandError(f"/why: the answer does not contain the text {argument!r}")


_QUOTES = "'\""


def _token_starts(pieces: Sequence[bytes], quoted_text: str) -> list[int]:
    """Return the numbers of the tokens in which the occurrences of a text begin."""
    # The text may span several tokens, and may stand in quotes.
    text = quoted_text.strip(_QUOTES) or quoted_text
    wanted = text.encode(errors="replace")
    answer = b"".join(pieces)
    ends = list(accumulate(len(piece) for piece in pieces))
    starts = []
    position = answer.find(wanted)
    while position >= 0:
        starts.append(bisect_right(ends, position))
        position = answer.find(wanted, position + 1)
    return list(dict.fromkeys(starts))  # a token in which several occurrences begin is listed once


def _traced_token(chat: Chat, record: StoredAnswer, number: int) -> Token | None:
    """Replay the answer, and return the token with its trace; None after Ctrl-C."""
    from ...logprobs.events import Token
    from ..render.progress import reading_bar

    tokens: list[Token] = []
    with interruptible_turn() as interrupt, reading_bar() as progress, interrupt.graceful_shutdown():
        events = chat.session.replay(
            record, _SHOWN_CANDIDATES, number + 1, is_interrupted=lambda: interrupt.requested, progress=progress
        )
        tokens.extend(event for event in events if isinstance(event, Token))
    return tokens[number] if number < len(tokens) else None


def _stats(chat: Chat, _argument: str) -> None:
    conversation = chat.conversation
    context_usage = chat.session.usage()
    print(terminal_safe(f"model       {chat.session.model.name}", sys.stdout))
    answer = conversation.last_assistant_message()
    record = None if answer is None else conversation.answer_record(answer)
    if record is not None and record.result is not None and "usage" in record.result:
        usage = record.result["usage"]
        times = record.result["timings"]
        reused_count = usage["cached_tokens"]
        print(speed_line("prompt", usage["prompt_tokens"] - reused_count, times["prompt"]))
        print(f"reused      {reused_count:6,} tokens of the prompt")
        print(speed_line("generation", usage["completion_tokens"], times["generation"]))
        if "draft_tokens" in usage:
            print(draft_line(usage["draft_tokens"], usage["accepted_tokens"]))
        print(f"finish      {record.result['finish_reason']}, seed {record.recipe.seed}")
    branch_count = len(conversation.messages())
    other_count = len(conversation.all_messages()) - branch_count
    message_counts = count_noun(branch_count, "message")
    if other_count:
        message_counts += f", {other_count:,} in other branches"
    print(f"context     {context_usage.token_count:6,} of {context_usage.context_length:,} tokens")
    print(f"chat        {conversation.id or 'not stored'}, {message_counts}")


def _save(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/save needs a name; gen chat --resume NAME then continues this chat")
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
    formats = {".md": markdown_of, ".jsonl": jsonl_of}
    if path.suffix not in formats:
        raise ChatCommandError(f"/export: {path.name} does not end in .md (Markdown) or .jsonl (messages)")
    if path.exists():
        raise ChatCommandError(f"{path} already exists; choose another name")
    messages = chat.conversation.messages()
    if not messages:
        raise ChatCommandError("there are no messages yet")
    data = formats[path.suffix](messages, chat.session.template).encode()
    write_file_atomically(path, lambda file: file.write(data))
    print_note(f"{path}: {count_noun(len(messages), 'message')}")


def _complete_path(_chat: Chat, typed: str) -> list[CompletionItem]:
    return path_items(typed)


def _exit(_chat: Chat, _argument: str) -> None:
    raise LeaveChatError


# all commands, in the order of the help
COMMANDS = (
    ChatCommand("help", "", "Show this page.", _help),
    ChatCommand(
        "set",
        "NAME.PARAM=VALUE",
        "Set one value, such as min_p.p=0.1.",
        _set,
        _completer(CompletionKind.SETTING),
    ),
    ChatCommand(
        "chain",
        "STEPS",
        "Use another chain, such as top-k40 > temp0.8.",
        _chain,
        _completer(CompletionKind.CHAIN),
    ),
    ChatCommand(
        "preset",
        "NAME",
        "Use the chain and settings of a preset.",
        _preset,
        _completer(CompletionKind.PRESET),
    ),
    ChatCommand("seed", "[N|random]", "Set the seed of the answers, or show it.", _seed),
    ChatCommand("system", "[TEXT|none]", "Set the system message, or show it.", _system),
    ChatCommand("memory", "[TEXT|none]", "Set the text that the model reads first, or show it.", _memory),
    ChatCommand("note", "[TEXT|none]", "Set the author's note, which is read near the end, or show it.", _note),
    ChatCommand(
        "world",
        "[FILE|none]",
        "Use the world info of a file, such as SillyTavern's, or show it.",
        _world,
        _complete_path,
    ),
    ChatCommand(
        "grammar",
        "NAME|GBNF|none",
        "Constrain the answers with a grammar; also regex TEXT, json_schema JSON, file FILE.",
        _grammar,
        _completer(CompletionKind.GRAMMAR_NAME),
    ),
    ChatCommand("settings", "", "Show every setting and its origin.", _settings),
    ChatCommand("regen", "[N]", "Answer your last message again, N times; each answer is a version.", _regenerate),
    ChatCommand(
        "edit", "[answer]", "Change your last message, or the answer, and continue from the changed text.", _edit
    ),
    ChatCommand("undo", "", "Go back to before your last message.", _undo),
    ChatCommand("clear", "", "Start over after the system message; earlier messages stay in the tree.", _clear),
    ChatCommand(
        "branch", "[N]", "List the versions of the latest message that has several, or go to version N.", _branch
    ),
    ChatCommand("tree", "", "Show all messages of this chat; * marks the current message.", _tree),
    ChatCommand("goto", "HASH", "Go to a message that /tree shows.", _goto, _complete_goto),
    ChatCommand("next", "[TEXT]", "Show the candidates for the next token, or for the token after TEXT.", _next),
    ChatCommand(
        "why", "[TOKEN]", "Show how a token of the last answer was chosen; TOKEN is a number or text.", _why
    ),
    ChatCommand("stats", "", "Show the model, the speed of the last answer, and the use of the context.", _stats),
    ChatCommand("save", "NAME", "Name this chat, for gen chat --resume NAME.", _save),
    ChatCommand(
        "export", "FILE", "Write the messages to FILE.md, or to FILE.jsonl for gen batch.", _export, _complete_path
    ),
    ChatCommand("exit", "", "Leave the chat.", _exit, aliases=("quit",)),
)
