"""A run as plain text, as JSON, in the shapes of other systems' APIs, and in the numbers that `--stats` prints.

Text and JSON are written while the run goes, each piece flushed at once. With them, what makes a text safe for a
terminal: every note and every table needs that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from ...common.text import count_noun

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event


def render_text(events: Iterable[Event], out: TextIO, prefix: str = "", is_colored: bool | None = None) -> Done:
    """Write the text of a run, each piece flushed at once; returns the last event.

    On a terminal, control characters are made visible and a newline ends the output; elsewhere the text is exact.

    Args:
        events: the events of the run.
        out: where to write.
        prefix: comes first: the prompt, for `--echo`.
        is_colored: whether the prefix is yellow; None: on a terminal, unless ``NO_COLOR`` is set.
    """
    from ...logprobs.events import Done, PromptToken, Token

    is_terminal = out.isatty()

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
            begin, end = (_YELLOW, _RESET) if _is_colored(out, is_colored) else ("", "")
            out.write(begin)
            write(prefix)
            out.write(end)
    raise RuntimeError("the run ended without a Done event")


_YELLOW, _RESET = "\x1b[33m", "\x1b[0m"
"""llama.cpp's color of prompts."""


def _is_colored(out: TextIO, is_colored: bool | None) -> bool:
    if is_colored is not None:
        return is_colored
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class RunEvents:
    """Passes the events of a run on, and keeps the last one: ``done``, a ``RuntimeError`` in a run without."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self._last: Event | None = None

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self._last = event
            yield event

    @property
    def done(self) -> Done:
        """The last event."""
        from ...logprobs.events import Done

        if not isinstance(self._last, Done):
            raise RuntimeError("the run ended without a Done event")
        return self._last


def render_jsonl(events: Iterable[Event], out: TextIO, prompt: str, command: str) -> Done:
    """Write the lines of a run, each flushed at once; returns the last event.

    Args:
        events: the run.
        out: where it is written.
        prompt: the text before its chat template.
        command: what makes the run again.
    """
    from ...logprobs.jsonl import stream_lines

    run = RunEvents(events)
    for line in stream_lines(run, prompt, command):
        out.write(line)
        out.flush()
    return run.done


def render_api(
    events: Iterable[Event], out: TextIO, form: str, *, prompt: str, echo: bool, chat: bool, streams: bool
) -> Done:
    """Write the run as one object on a line, or as server-sent events, each flushed.

    Args:
        events: the run.
        out: where it is written.
        form: ``openai``, ``openai-chat``, ``together`` or ``llama-server``.
        prompt: the prompt as the model got it.
        echo: True if it comes first.
        chat: True if it went through a chat template.
        streams: True for server-sent events.

    Returns the last event.
    """
    import secrets  # takes 4 ms to import, and each note and table imports this module

    from ...common.strict_json import encode_json
    from ...logprobs import openai, other_apis

    run = RunEvents(events)
    answer_id = secrets.token_hex(_ID_BYTES)
    if streams:
        if form == "openai-chat":
            chunks = openai.chat_chunks(run, answer_id)
        else:
            chunks = openai.text_chunks(run, answer_id, prompt=prompt, echo=echo)
        for chunk in chunks:
            out.write(openai.server_sent(chunk))
            out.flush()
        out.write(openai.SERVER_SENT_DONE)
    else:
        match form:
            case "openai":
                body = openai.text_completion(run, answer_id, prompt=prompt, echo=echo)
            case "openai-chat":
                body = openai.chat_completion(run, answer_id)
            case "together":
                body = other_apis.together_completion(run, answer_id, prompt=prompt, echo=echo, chat=chat)
            case _:
                body = other_apis.llama_server_completion(run, prompt=prompt)
        out.write(encode_json(body) + "\n")
    out.flush()
    return run.done


_ID_BYTES = 12
"""Of a random id: enough that no two runs share one."""


def show_stats(done: Done, model_name: str, seed: int) -> None:
    """Print the model's name, speeds and counts to stderr."""
    times = done.timings
    tokens = done.completion_tokens
    chain_share = times.chain / times.generation if times.generation else 0.0
    chain_us = times.chain / tokens * 1e6 if tokens else 0.0
    lines = [
        terminal_safe(f"model       {model_name}", sys.stderr),
        speed_line("prompt", done.prompt_tokens, times.prompt),
        speed_line("generation", tokens, times.generation),
        f"chain       {chain_us:6,.0f} µs a token, {chain_share:.1%} of the generation",
        *_grammar(done),
        *_lookup(done),
        *_context_shifts(done),
        f"finish      {done.finish_reason}{f' at {done.stop!r}' if done.stop is not None else ''}, seed {seed}",
    ]
    print("\n".join(lines), file=sys.stderr)


def _grammar(done: Done) -> list[str]:
    if done.complete is None:
        return []
    grammar_us = done.timings.grammar / done.completion_tokens * 1e6 if done.completion_tokens else 0.0
    completeness = "complete" if done.complete else "not complete"
    forced = f"{done.forced_tokens} of {count_noun(done.completion_tokens, 'token')} forced"
    return [f"grammar     {grammar_us:6,.0f} µs a token, {forced}, {completeness}"]


def _lookup(done: Done) -> list[str]:
    if done.drafted_tokens is None or done.accepted_tokens is None:
        return []
    share = f", {done.accepted_tokens / done.drafted_tokens:.0%}" if done.drafted_tokens else ""
    return [f"lookup      {_tokens(done.drafted_tokens).rstrip()} guessed, {done.accepted_tokens:,} right{share}"]


def _context_shifts(done: Done) -> list[str]:
    if done.context_shifts is None:
        return []
    times = "once" if done.context_shifts == 1 else f"{done.context_shifts:,} times"
    return [f"context     {f'full {times}: older tokens discarded' if done.context_shifts else 'never full'}"]


def speed_line(title: str, tokens: int, seconds: float) -> str:
    """A line on how many tokens there were, and how many of them a second."""
    return f"{title:10}  {_tokens(tokens)}  {_rate(tokens, seconds)}"


def _tokens(count: int) -> str:
    """The number with its noun, as wide for one token as for several."""
    return f"{count:6,} {'token ' if count == 1 else 'tokens'}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:8,.1f} tokens/s" if seconds > 0 else "       -"


# A terminal would obey these: C0 except tab and newline, DEL, C1, and the marks that reverse text.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_ESCAPED = {
    code: f"\\u{code:04x}" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_VISIBLE = {**_PICTURES, 0x7F: "\u2421", **_ESCAPED}


def visible(text: str) -> str:
    """Return the text with control characters as pictures or escapes, so that a terminal shows them."""
    return text.translate(_VISIBLE)


def terminal_safe(text: str, out: TextIO) -> str:
    """Return the text as ``out`` should get it: `visible` on a terminal, exact elsewhere."""
    return visible(text) if out.isatty() else text


def file_size(count: int) -> str:
    """Return a number of bytes in decimal units, such as ``98.4 MB``."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"
