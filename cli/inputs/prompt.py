"""The prompt, from the options of the command line to the text or token ids that the model reads.

The prompt is an argument, the value of -p, a file, stdin, or stdin followed by one of the others. A file called
``-`` is stdin. The text is then put into the chat template, or between a prefix and a suffix.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...common.errors import UsageError
from ...common.files import STDIN, InputTooLargeError, input_name, is_stdin, read_input
from ...common.text import UndecodableTextError, decode_text, without_last_line_end
from ..messages import fail, print_note
from ..options.prompt import PromptAffixOptions, PromptOptions

if TYPE_CHECKING:
    from ...engine.chat_template import ChatTemplate
    from ...engine.model import Model
    from ...engine.request import GenerationRequest
    from ...presets.settings import Settings
    from ...presets.story import Story
    from .settings import ChatTemplateFlags


class PromptText(NamedTuple):
    """A prompt as the user wrote it."""

    text: str
    piped: str  # the part that was read from stdin; empty if stdin was not read


def read_prompt(options: PromptOptions) -> str:
    return read_prompt_text(options).text


def read_prompt_text(options: PromptOptions) -> PromptText:
    """Return the prompt. The line end of the last line of a file or of stdin is removed."""
    # Piped text is placed before a prompt that is given in another way, with a newline between them. The command
    # ends with a message if there is no prompt or more than one, if stdin is empty, or if the bytes are not UTF-8.
    sources = {"PROMPT": options.prompt, "-p": options.prompt_option, "-f": options.file}
    used_sources = [name for name, value in sources.items() if value is not None]
    if len(used_sources) > 1:
        raise UsageError(f"the prompt is given twice, by {' and '.join(used_sources)}")
    path = options.file
    text = options.prompt_option
    if options.prompt == "-":
        path = STDIN
    elif options.prompt is not None:
        text = options.prompt
    if path is not None and not is_stdin(path):
        text = read_text(path)
    if text is not None:
        piped = _decode_text(read_piped("is placed before the prompt") or b"", STDIN)
        parts = [part for part in (piped, text) if part]
        return PromptText("\n".join(parts), piped)
    stdin = input_path(path)
    if stdin is None:
        raise UsageError('there is no prompt: type one ("gen PROMPT"), use -f FILE, or pipe one in')
    if is_stdin(stdin) and sys.stdin.isatty():
        print_note("type the prompt; Ctrl-D on a line of its own ends it")
    piped = read_text(stdin)
    if not piped:
        raise UsageError('there is no prompt: stdin is empty; "" is a prompt without text')
    return PromptText(piped, piped)


def read_text(path: Path) -> str:
    """Return the text of a file, without the line end of its last line. Ends the command if it is not UTF-8."""
    return _decode_text(read_input(path), path)


def _decode_text(data: bytes, path: Path) -> str:
    """Return the text of a file, without the line end of the last line. Ends the command if it is not text."""
    try:
        return without_last_line_end(decode_text(data))
    except UndecodableTextError as error:
        fail(f"{input_name(path)} is {error}")


def input_path(path: Path | None) -> Path | None:
    """Return the file to read: ``path``, or stdin for None or ``-``. Return None if there is nothing to read."""
    if path is not None and not is_stdin(path):
        return path
    if sys.stdin is None or (path is None and sys.stdin.isatty()):
        return None
    return STDIN


# Time after which a note says that the command waits for stdin.
# A program that writes into the pipe has begun by then. A pipe that was inherited by mistake stays silent.
_SECONDS_UNTIL_NOTE = 2.0


def read_piped(purpose: str) -> bytes | None:
    """Return the bytes of stdin if it is a pipe or a redirected file; None for a terminal or /dev/null."""
    # If nothing arrives for a while, a note says that the command waits. ``purpose`` is for this note, such as
    # ``is placed before the prompt``. Raises ``InputTooLargeError``.
    try:
        is_terminal_or_null = sys.stdin is None or stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)
        if is_terminal_or_null:
            return None
        _wait_for_stdin(purpose)
        return read_input(STDIN)
    except InputTooLargeError:
        raise
    except OSError:  # nohup opens stdin for writing only
        return None


def _wait_for_stdin(purpose: str) -> None:
    """Print a note if nothing arrives in stdin for two seconds."""
    with suppress(OSError, ValueError):  # select does not support every kind of stdin
        readable, _, _ = select.select([sys.stdin], [], [], _SECONDS_UNTIL_NOTE)
        if not readable:
            print_note(f"waiting for stdin, which {purpose}; add < /dev/null if there is no input")


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt as the model reads it."""

    # text that the model tokenizes, or token ids if prefix, prompt and suffix are tokenized separately
    tokens: str | list[int]
    text: str  # the complete text, with the chat template or with prefix and suffix
    shown: str  # the text without the chat template, but with prefix and suffix
    template: ChatTemplate | None = None  # the chat template, if something other than the model chooses it

    @property
    def has_template(self) -> bool:
        return isinstance(self.tokens, str) and self.text != self.shown


def prepare_prompt(
    model: Model,
    text: str,
    settings: Settings,
    affixes: PromptAffixOptions,
    template: ChatTemplateFlags,
    is_chat: bool | None,
) -> PreparedPrompt:
    """Put a prompt into the chat template or between a prefix and a suffix, or leave it unchanged."""
    # ``is_chat``: whether the chat template is used; None to use it if there is a system message.
    from ...engine.templates import build_prompt, tokenize_with_affixes
    from .settings import note_unused_phases

    system = settings["system"].value
    if affixes.typed_flag is None:
        opened = template.open(model, settings)
        if settings.story is not None:
            return _prompt_of_story(model, settings.story, text, settings, opened, is_chat)
        built = build_prompt(model, text, system=system, chat=is_chat, template=opened, report=print_note)
        prompt = PreparedPrompt(built, built, text, opened)
        if prompt.has_template:
            note_unused_phases(settings, model, opened)
        return prompt
    if system is not None:
        print_note(f"{affixes.typed_flag} replaces the chat template; the system message is left out")
    if settings.story is not None:
        print_note(f"{affixes.typed_flag} writes the prompt; memory, author's note and world info are left out")
    tokens = tokenize_with_affixes(model.vocabulary, text, affixes.in_prefix or "", affixes.in_suffix or "")
    text_with_affixes = affixes.add_affixes(text)
    return PreparedPrompt(tokens, text_with_affixes, text_with_affixes)


def _prompt_of_story(
    model: Model,
    story: Story,
    text: str,
    settings: Settings,
    template: ChatTemplate | None,
    is_chat: bool | None,
) -> PreparedPrompt:
    from ...engine.templates import format_chat, messages_of_user
    from ...requests.engine_request import make_request
    from ...requests.story_reader import StoryReader

    reader = StoryReader(model, print_note)
    messages = messages_of_user(text, system=settings["system"].value, chat=is_chat, template=template)
    if messages is None:
        context = reader.read(story, make_request(settings, text, None, seed=0))
        reader.note_left_out(context)
        return PreparedPrompt(context.text, context.text, context.text)
    built = format_chat(model, reader.chat_with_story(story, messages), template, print_note)
    return PreparedPrompt(built, built, text, template)


def after_template(
    model: Model, request: GenerationRequest, prompt: PreparedPrompt, is_chat: bool | None
) -> GenerationRequest:
    """Return the request for a prompt in the chat template, where a negative prompt is the system message."""
    # Without a chat template, the negative prompt stays a text in place of the prompt. ``is_chat``: see
    # `prepare_prompt`.
    from ...engine.templates import build_prompt, open_chat_template

    if not prompt.has_template:
        return request
    chat_template = prompt.template or open_chat_template(model)
    request = request.with_chat_text(prompt.tokens, chat_template.reasoning_after(prompt.text))
    system = request.rules.negative_text
    if system is None:
        return request
    text = build_prompt(model, prompt.shown, system=system, chat=is_chat, template=chat_template)
    return request.with_negative_prompt(text)
