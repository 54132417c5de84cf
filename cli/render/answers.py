"""The texts of a run in the format of `--format`: this module says what is written for each format.

Plain text, JSON lines and streams are written while the run generates tokens, and flushed after each token. The
object of an API is written at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from ..options.output import Format, OutputOptions
from ..text import has_styles, terminal_safe

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event
    from ...logprobs.openai import OpenAIAnswer
    from ...logprobs.parts import TextPart
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
        self._output = output
        self._prompt = prompt
        self._command = command
        self._out = out
        self._number_name = number_name
        self._count = 0  # number of texts so far
        self._kept_runs: list[list[Event]] = []  # the texts that are written at the end

    def write(self, events: Iterable[Event], heading: str = "") -> Done:
        """Write a text, or keep it for the end, and return its last event."""
        # ``heading`` precedes the text in the format of text.
        run = RunEvents(events)
        output = self._output
        if output.format is Format.text:
            self._write_plain_text(run, heading)
        elif output.format is Format.jsonl:
            from ...logprobs.jsonl import stream_lines

            number = None if self._number_name is None else self._count
            name = self._number_name or "sample"
            _write_flushed(stream_lines(run, self._prompt.shown, self._command, number, name), self._out)
        elif output.stream:
            lines = server_sent_events(run, output.format, prompt=self._prompt.text, echo=output.echo)
            _write_flushed(lines, self._out)
        else:
            self._kept_runs.append(list(run))
        self._out.flush()
        self._count += 1
        return run.done

    def _write_plain_text(self, events: Iterable[Event], heading: str) -> None:
        self._out.write(heading)
        shown_prompt = self._prompt.shown if self._output.echo else ""
        shows_reasoning = self._output.show_reasoning
        done = render_text(
            events, self._out, shown_prompt, self._output.color.is_colored, shows_reasoning=shows_reasoning
        )
        has_several_texts = self._number_name is not None
        written_text = shown_prompt + (done.complete_text if shows_reasoning else done.text)
        ends_with_newline = self._out.isatty() or written_text.endswith("\n")
        if has_several_texts and not ends_with_newline:
            self._out.write("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None or not self._kept_runs:
            return
        from ...common.strict_json import json_line

        self._out.write(json_line(self._object()))
        self._out.flush()

    def _object(self) -> Any:
        """Return the texts as the object of an API. An API with one text per object needs a list of objects."""
        prompt = self._prompt
        if self._output.format is not Format.llama_server:
            return whole_answer(
                self._kept_runs,
                self._output.format,
                prompt=prompt.text,
                echo=self._output.echo,
                uses_chat_template=prompt.text != prompt.shown,
            )
        from ...logprobs.other_apis import llama_server_completion

        bodies = [
            llama_server_completion(run, prompt=prompt.text, index=index)
            for index, run in enumerate(self._kept_runs)
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
    chunks_of_runs = (answer.chunks(run, index, prompt) for index, run in enumerate(runs))
    return answer.whole(chain.from_iterable(chunks_of_runs))


def server_sent_events(
    events: Iterable[Event], output_format: Format, *, prompt: str, echo: bool
) -> Iterator[str]:
    """Yield the server-sent events of a stream in OpenAI's format."""
    from ...logprobs.openai import SERVER_SENT_DONE, server_sent

    for chunk in _openai_answer(output_format, echo).stream(events, prompt):
        yield server_sent(chunk)
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


def render_text(
    events: Iterable[Event],
    out: TextIO,
    prefix: str = "",
    is_colored: bool | None = None,
    *,
    shows_reasoning: bool = False,
) -> Done:
    """Write ``prefix`` and the text of a run, flush it after each token, and return the last event."""
    # On a terminal, control characters are made visible, the reasoning is dimmed, and a newline ends the output.
    # Elsewhere the text is exact, and the reasoning is left out. ``is_colored``: whether the prefix is yellow;
    # None to color it on a terminal, unless ``NO_COLOR`` is set. ``shows_reasoning``: whether all is written as
    # the model writes it, with the reasoning and its tags.
    from ...logprobs.events import Done, Start, Token
    from ...logprobs.parts import TokenParts

    if is_colored is None:
        is_colored = has_styles(out)
    parts = TokenParts(None)
    writer = _PartWriter(out)
    for event in events:
        if isinstance(event, Token):
            writer.write(parts.push(event))
        elif isinstance(event, Done):
            writer.write(parts.finish(event))
            writer.end()
            return event
        elif isinstance(event, Start):
            parts = TokenParts(None if shows_reasoning else event.reasoning)
            if prefix:
                shown_prefix = terminal_safe(prefix, out)
                out.write(f"{_YELLOW}{shown_prefix}{_RESET}" if is_colored else shown_prefix)
                out.flush()
    raise RuntimeError("the run ended without a Done event")


# escape codes for the color that llama.cpp gives prompts, and for the reasoning
_YELLOW = "\x1b[33m"
_DIM = "\x1b[2m"
_RESET = "\x1b[0m"


class _PartWriter:
    """A writer of a text's pieces: on a terminal, of reasoning and answer, elsewhere of the answer only."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._style = _DIM if has_styles(out) else ""
        self._is_in_reasoning = False

    def write(self, pieces: Iterable[TextPart]) -> None:
        for piece in pieces:
            is_reasoning = piece.part == "reasoning"
            if is_reasoning and not self._is_terminal:
                continue
            text = terminal_safe(piece.text, self._out)
            if is_reasoning and self._style:
                text = f"{self._style}{text}{_RESET}"
            if self._is_in_reasoning and not is_reasoning:
                self._out.write("\n\n")
            self._is_in_reasoning = is_reasoning
            self._out.write(text)
            self._out.flush()

    def end(self) -> None:
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()


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
