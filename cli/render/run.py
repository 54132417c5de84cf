"""The output of a run: plain text, JSON, the formats of other systems' APIs, and the statistics of `--stats`.

Text and JSON are written while the run generates tokens, and flushed after each token. The functions that make
text safe for a terminal are here, too, because every note and every table uses them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from ...common.text import count_noun, short_repr

if TYPE_CHECKING:
    from ...jobs.draft_verification import DraftVerification
    from ...logprobs.events import Done, Event


def render_text(events: Iterable[Event], out: TextIO, prefix: str = "", is_colored: bool | None = None) -> Done:
    """Write the text of a run, flush it after each token, and return the last event.

    On a terminal, control characters are made visible, and a newline ends the output. Elsewhere the text is exact.

    Args:
        events: events of the run.
        out: stream to write to.
        prefix: text that is written before the text of the run, such as the prompt for `--echo`.
        is_colored: whether the prefix is yellow; None to color it on a terminal, unless ``NO_COLOR`` is set.
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
"""Escape codes for the color that llama.cpp gives prompts."""


def _is_colored(out: TextIO, is_colored: bool | None) -> bool:
    if is_colored is not None:
        return is_colored
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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


def render_jsonl(events: Iterable[Event], out: TextIO, prompt: str, command: str) -> Done:
    """Write a JSON object per line for each event, flush each line, and return the last event.

    Args:
        events: events of the run.
        out: stream to write to.
        prompt: text of the prompt without the chat template.
        command: command line that repeats the run.
    """
    from ...logprobs.jsonl import stream_lines

    run = RunEvents(events)
    for line in stream_lines(run, prompt, command):
        out.write(line)
        out.flush()
    return run.done


def render_api(
    events: Iterable[Event],
    out: TextIO,
    api_format: str,
    *,
    prompt: str,
    echo: bool,
    uses_chat_template: bool,
    is_streamed: bool,
) -> Done:
    """Write the run in the format of an API, and return the last event.

    Args:
        events: events of the run.
        out: stream to write to.
        api_format: ``openai``, ``openai-chat``, ``together`` or ``llama-server``.
        prompt: complete prompt that the model reads.
        echo: True to write the prompt before the text.
        uses_chat_template: True if the prompt is in a chat template.
        is_streamed: True for server-sent events, each of which is flushed; False for one JSON object on a line.
    """
    import secrets  # not at the top: takes 4 ms to import, and every note and table imports this module

    from ...common.strict_json import encode_json
    from ...logprobs import openai, other_apis

    run = RunEvents(events)
    answer_id = secrets.token_hex(_ID_BYTES)
    if is_streamed:
        if api_format == "openai-chat":
            chunks = openai.chat_chunks(run, answer_id)
        else:
            chunks = openai.text_chunks(run, answer_id, prompt=prompt, echo=echo)
        for chunk in chunks:
            out.write(openai.server_sent(chunk))
            out.flush()
        out.write(openai.SERVER_SENT_DONE)
    else:
        match api_format:
            case "openai":
                body = openai.text_completion(run, answer_id, prompt=prompt, echo=echo)
            case "openai-chat":
                body = openai.chat_completion(run, answer_id)
            case "together":
                body = other_apis.together_completion(
                    run, answer_id, prompt=prompt, echo=echo, chat=uses_chat_template
                )
            case _:
                body = other_apis.llama_server_completion(run, prompt=prompt)
        out.write(encode_json(body) + "\n")
    out.flush()
    return run.done


_ID_BYTES = 12
"""Length of a random id, so that no two runs get the same id."""


def show_stats(done: Done, model_name: str, seed: int) -> None:
    """Print the model's name, speeds and counts of a run to stderr.

    Args:
        done: last event of the run.
        model_name: name of the model.
        seed: seed of the chain.
    """
    times = done.timings
    token_count = done.completion_tokens
    chain_share = times.chain / times.generation if times.generation else 0.0
    chain_us = times.chain / token_count * 1e6 if token_count else 0.0
    lines = [
        terminal_safe(f"model       {model_name}", sys.stderr),
        speed_line("prompt", done.prompt_tokens, times.prompt),
        speed_line("generation", token_count, times.generation),
        f"chain       {chain_us:6,.0f} µs per token, {chain_share:.1%} of the generation",
        *_grammar(done),
        *draft_lines([done]),
        *_context_shifts(done),
        *_discarded(done),
        f"finish      {done.finish_reason}{f' at {done.stop!r}' if done.stop is not None else ''}, seed {seed}",
    ]
    print("\n".join(lines), file=sys.stderr)


def _grammar(done: Done) -> list[str]:
    if done.complete is None:
        return []
    grammar_us = done.timings.grammar / done.completion_tokens * 1e6 if done.completion_tokens else 0.0
    completeness = "complete" if done.complete else "not complete"
    forced = f"{done.forced_tokens} of {count_noun(done.completion_tokens, 'token')} forced"
    return [f"grammar     {grammar_us:6,.0f} µs per token, {forced}, {completeness}"]


def draft_lines(dones: Sequence[Done]) -> list[str]:
    """Return a line with the counts of drafts in several texts; none if no text had drafts."""
    drafted_counts = [done.drafted_tokens for done in dones if done.drafted_tokens is not None]
    if not drafted_counts:
        return []
    return [draft_line(sum(drafted_counts), sum(done.accepted_tokens or 0 for done in dones))]


def draft_line(drafted: int, accepted: int) -> str:
    """Return a line with the numbers of drafted and of accepted tokens."""
    share = f", {accepted / drafted:.0%}" if drafted else ""
    return f"drafts      {_tokens(drafted).rstrip()} drafted, {accepted:,} accepted{share}"


def show_verification(result: DraftVerification) -> None:
    """Print the result of `--verify-draft` to stderr; at a difference, the top tokens of both rows."""
    from ...logprobs.records import display_text

    tokens, difference = count_noun(result.equal_token_count, "token"), result.difference
    if not result.is_complete:
        lines = [f"gen: the check of the drafts was interrupted; {tokens} were equal"]
    elif difference is None:
        lines = [f"gen: {tokens}: all are equal to those of the run without drafts"]
    else:
        drafted, plain = (
            "the end of the text" if token is None else repr(token.chosen.text)
            for token in (difference.drafted, difference.plain)
        )
        lines = [f"gen: token {difference.index} (from 0) is {drafted} with drafts, and {plain} without"]
    if difference is not None and difference.top:
        lines.append(f"{'token':20}  {'with drafts':>12}  {'without':>12}")
        for token in difference.top:
            text = short_repr(display_text(token.data))
            lines.append(f"{text:20}  {token.drafted_logprob:12.6f}  {token.plain_logprob:12.6f}")
        lines.append(f"largest difference of two logprobs: {difference.max_logprob_difference:.2g} nats")
    print("\n".join(terminal_safe(line, sys.stderr) for line in lines), file=sys.stderr)


def _context_shifts(done: Done) -> list[str]:
    if done.context_shifts is None:
        return []
    times = "once" if done.context_shifts == 1 else f"{done.context_shifts:,} times"
    return [f"context     {f'full {times}: older tokens discarded' if done.context_shifts else 'never full'}"]


def _discarded(done: Done) -> list[str]:
    return [f"went back   {_tokens(done.discarded_tokens).rstrip()} dropped"] if done.discarded_tokens else []


def speed_line(title: str, token_count: int, seconds: float) -> str:
    """Return a line with the number of tokens and the tokens per second."""
    return f"{title:10}  {_tokens(token_count)}  {_rate(token_count, seconds)}"


def _tokens(count: int) -> str:
    """Return the number with its noun, padded so that all numbers have the same width."""
    return f"{count:6,} {'token ' if count == 1 else 'tokens'}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:8,.1f} tokens/s" if seconds > 0 else "       -"


# Characters that a terminal would execute: C0 except tab and newline, DEL, C1, and marks that reverse text.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_ESCAPED = {
    code: f"\\u{code:04x}" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_VISIBLE = {**_PICTURES, 0x7F: "\u2421", **_ESCAPED}


def visible(text: str) -> str:
    """Return the text with control characters replaced by pictures or escapes, which a terminal shows."""
    return text.translate(_VISIBLE)


def terminal_safe(text: str, out: TextIO) -> str:
    """Return the text for a stream: with visible control characters on a terminal, unchanged elsewhere."""
    return visible(text) if out.isatty() else text


def file_size(count: int) -> str:
    """Return a number of bytes in decimal units, such as ``98.4 MB``."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"
