"""The texts of a run in the format of `--format`: this module says what is written for each format.

Plain text, JSON lines and streams are written while the run generates tokens, and flushed after each token. The
object of an API is written at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from ..options.output import Format, OutputOptions
from ..text import has_styles, visible

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event
    from ...logprobs.openai import OpenAIAnswer
    from ..inputs.prompt import PreparedPrompt


class AnswerWriter:
    """A writer of the texts of one command, one after another."""

    def __init__(
        self,
        output: OutputOptions,
        prompt: PreparedPrompt,
        command: str,
        out: TextIO,
        number_name: Literal["sample", "beam"] | None = None,
    ) -> None:
        # ``command``: the shell command that repeats the run. ``number_name``: the field of a text's number in
        # JSON lines; None if the command writes one text.
        self._output, self._prompt, self._command, self._out = output, prompt, command, out
        self._number_name = number_name
        self._count = 0
        self._runs: list[list[Event]] = []

    def write(self, events: Iterable[Event], heading: str = "") -> Done:
        """Write a text, after ``heading`` in the format of text, or keep it for the end; return its last event."""
        run, is_one = RunEvents(events), self._number_name is None
        output, prompt, out = self._output, self._prompt, self._out
        match output.format:
            case Format.text:
                out.write(heading)
                shown = prompt.shown if output.echo else ""
                done = render_text(run, out, shown, output.color.is_colored)
                if not (is_one or out.isatty() or (shown + done.text).endswith("\n")):
                    out.write("\n")
            case Format.jsonl:
                from ...logprobs.jsonl import stream_lines

                number = None if is_one else self._count
                name = self._number_name or "sample"
                _write_flushed(stream_lines(run, prompt.shown, self._command, number, name), out)
            case _ if output.stream:
                _write_flushed(server_sent_events(run, output.format, prompt=prompt.text, echo=output.echo), out)
            case _:
                self._runs.append(list(run))
        out.flush()
        self._count += 1
        return run.done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None or not self._runs:
            return
        from ...common.strict_json import json_line

        self._out.write(json_line(self._object()))
        self._out.flush()

    def _object(self) -> Any:
        """Return the texts as the object of an API; as a list for a server that answers with one text only."""
        prompt, output = self._prompt, self._output
        if output.format is not Format.llama_server:
            is_chat = prompt.text != prompt.shown
            return whole_answer(
                self._runs, output.format, prompt=prompt.text, echo=output.echo, uses_chat_template=is_chat
            )
        from ...logprobs.other_apis import llama_server_completion

        bodies = [
            llama_server_completion(run, prompt=prompt.text, index=index) for index, run in enumerate(self._runs)
        ]
        return bodies[0] if self._number_name is None else bodies


def whole_answer(
    runs: Sequence[Iterable[Event]], output_format: Format, *, prompt: str, echo: bool, uses_chat_template: bool
) -> dict[str, Any]:
    """Return runs of the same prompt as one answer in OpenAI's or in Together's format."""
    from ...logprobs.other_apis import together_completion

    if output_format is Format.together:
        return together_completion(runs, _random_id(), prompt=prompt, echo=echo, chat=uses_chat_template)
    answer = _openai_answer(output_format, echo)
    return answer.whole(chunk for index, run in enumerate(runs) for chunk in answer.chunks(run, index, prompt))


def server_sent_events(
    events: Iterable[Event], output_format: Format, *, prompt: str, echo: bool
) -> Iterator[str]:
    """Yield the server-sent events of a stream in OpenAI's format."""
    from ...logprobs.openai import SERVER_SENT_DONE, server_sent

    yield from map(server_sent, _openai_answer(output_format, echo).stream(events, prompt))
    yield SERVER_SENT_DONE


def _openai_answer(output_format: Format, echo: bool) -> OpenAIAnswer:
    from ...logprobs.openai import ChatAnswer, TextAnswer

    is_chat = output_format is Format.openai_chat
    return ChatAnswer(_random_id()) if is_chat else TextAnswer(_random_id(), echo=echo)


def _random_id() -> str:
    import secrets  # takes 4 ms to import

    return secrets.token_hex(12)


def _write_flushed(lines: Iterable[str], out: TextIO) -> None:
    for line in lines:
        out.write(line)
        out.flush()


def render_text(events: Iterable[Event], out: TextIO, prefix: str = "", is_colored: bool | None = None) -> Done:
    """Write ``prefix`` and the text of a run, flush it after each token, and return the last event."""
    # On a terminal, control characters are made visible, and a newline ends the output. Elsewhere the text is
    # exact. ``is_colored``: whether the prefix is yellow; None to color it on a terminal, unless ``NO_COLOR`` is
    # set.
    from ...logprobs.events import Done, PromptToken, Token

    is_terminal = out.isatty()
    begin, end = (_YELLOW, _RESET) if (has_styles(out) if is_colored is None else is_colored) else ("", "")

    def write(text: str) -> None:
        if text:
            out.write(visible(text) if is_terminal else text)
            out.flush()

    for event in events:
        if isinstance(event, Token):
            write(event.text)
        elif isinstance(event, PromptToken):
            continue
        elif isinstance(event, Done):
            write(event.rest)
            if is_terminal:
                write("\n")
            return event
        elif prefix:
            out.write(begin)
            write(prefix)
            out.write(end)
    raise RuntimeError("the run ended without a Done event")


_YELLOW, _RESET = "\x1b[33m", "\x1b[0m"  # escape codes for the color that llama.cpp gives prompts


class RunEvents:
    """An iterable of a run's events that remembers the last event."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self._last_event: Event | None = None

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self._last_event = event
            yield event

    @property
    def done(self) -> Done:
        """The last event. Raises ``RuntimeError`` if the run ended without a ``Done`` event."""
        from ...logprobs.events import Done

        if not isinstance(self._last_event, Done):
            raise RuntimeError("the run ended without a Done event")
        return self._last_event
