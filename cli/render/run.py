"""A run as plain text, as JSON, in the shapes of other systems' APIs, and in the numbers that `--stats` prints.

Text and JSON are written while the run goes, each piece flushed at once. With them, what makes a text safe for a
terminal: every note and every table needs that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from ...common.text import count_noun

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event, Start
    from ...logprobs.openai import Completion, CompletionFinish, CompletionHead
    from ...logprobs.records import TokenRecord


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


def render_jsonl(events: Iterable[Event], out: TextIO, prompt: str, command: str) -> Done:
    """Write ``start``, a ``prompt`` line for each echoed token, a ``token`` line for each new one, and ``done``.

    The texts of the ``token`` lines joined are the text of the run: the line of a token whose text is held back
    waits for the next event.

    Args:
        events: the events of the run.
        out: where the lines go; each is flushed at once.
        prompt: the text before its chat template.
        command: what makes the run again.

    Returns the last event.
    """
    from ...logprobs.events import Done, PromptToken, Token
    from ...logprobs.jsonl import done_line, prompt_line, start_line, token_line
    from ...logprobs.openai import HeldBackText

    model = ""
    held_back = HeldBackText()
    waiting: Token | None = None
    for event in events:
        if waiting is not None:
            # At the end of the run the text that was held back is the last token's.
            out.write(
                token_line(
                    replace(waiting, text=waiting.text + event.rest) if isinstance(event, Done) else waiting
                )
            )
            waiting = None
        if isinstance(event, Token):
            if held_back.is_held_back(event):
                waiting = event
            else:
                out.write(token_line(event))
        elif isinstance(event, PromptToken):
            out.write(prompt_line(event))
        elif isinstance(event, Done):
            out.write(done_line({"model": model, **_done_fields(event)}))
            out.flush()
            return event
        else:
            model = event.model
            out.write(start_line({**_start_fields(event), "prompt": prompt, "command": command}))
        out.flush()
    raise RuntimeError("the run ended without a Done event")


def _start_fields(event: Start) -> dict[str, object]:
    fields = asdict(event)
    del fields["prompt_ids"]  # `--echo` writes a line for each of them
    if event.batch_exactness is not None:
        fields["batch_exactness"] = str(event.batch_exactness)
    optional = ("grammar", "logprobs", "batch_exactness", "trace")
    return {name: value for name, value in fields.items() if value is not None or name not in optional}


def _done_fields(event: Done) -> dict[str, object]:
    times = event.timings
    lookup = {"drafted": event.drafted_tokens, "accepted": event.accepted_tokens}
    grammar = {} if event.complete is None else {"complete": event.complete, "forced_tokens": event.forced_tokens}
    return {
        "finish_reason": event.finish_reason,
        **grammar,
        **({} if event.drafted_tokens is None else {"lookup": lookup}),
        **({} if event.context_shifts is None else {"context_shifts": event.context_shifts}),
        "stop": event.stop,
        "text": event.text,
        "usage": {
            "prompt_tokens": event.prompt_tokens,
            "completion_tokens": event.completion_tokens,
            "total_tokens": event.prompt_tokens + event.completion_tokens,
        },
        "timings": {
            "prompt_ms": round(times.prompt * 1e3, 3),
            "generation_ms": round(times.generation * 1e3, 3),
            "chain_ms": round(times.chain * 1e3, 3),
            **({} if event.complete is None else {"grammar_ms": round(times.grammar * 1e3, 3)}),
        },
    }


@dataclass(frozen=True)
class ApiShape:
    """Which shape to write.

    ``name``: as `--format` has it. ``stream``: in chunks. ``echo``: the prompt comes first. ``chat``: the
    prompt went through a chat template.
    """

    name: str
    stream: bool
    echo: bool
    chat: bool


def render_api(events: Iterable[Event], out: TextIO, shape: ApiShape, prompt: str) -> Done:
    """Write the run as one object on a line, or as server-sent events, each flushed.

    Args:
        events: the run.
        out: where it is written.
        shape: which shape.
        prompt: the prompt as the model got it.

    Returns the last event.
    """
    from ...logprobs.events import Done, PromptToken, Start, Token
    from ...logprobs.openai import Completion, completion_finish

    prompt_tokens: list[TokenRecord] = []
    tokens: list[TokenRecord] = []
    writer = None
    start = None
    for event in events:
        if isinstance(event, Start):
            start = event
            writer = _ChunkWriter(out, _head(start, prompt), shape) if shape.stream else None
        elif isinstance(event, PromptToken):
            prompt_tokens.append(event)
        elif isinstance(event, Token):
            if writer is not None:
                writer.token(event, prompt_tokens)
            else:
                tokens.append(event)
        elif isinstance(event, Done):
            if writer is not None:
                writer.finish(completion_finish(event), prompt_tokens)
            elif start is not None:
                echo = tuple(prompt_tokens) if shape.echo else None
                completion = Completion(_head(start, prompt), echo, tuple(tokens), completion_finish(event))
                _write_object(out, shape, completion, start, event)
            return event
    raise RuntimeError("the run ended without a Done event")


def _write_object(out: TextIO, shape: ApiShape, completion: Completion, start: Start, done: Done) -> None:
    from ...common.strict_json import encode_json
    from ...logprobs.openai import chat_completion, text_completion
    from ...logprobs.other_apis import llama_server_completion, together_completion

    match shape.name:
        case "openai":
            body = text_completion(completion)
        case "openai-chat":
            body = chat_completion(completion)
        case "together":
            body = together_completion(completion, shape.chat)
        case _:
            body = llama_server_completion(completion, _settings(start), _timings(done), start.cached_tokens)
    out.write(encode_json(body) + "\n")
    out.flush()


class _ChunkWriter:
    """Writes the chunks that OpenAI streams."""

    def __init__(self, out: TextIO, head: CompletionHead, shape: ApiShape) -> None:
        from ...logprobs.openai import TextOffsets, TextTokenStream, chat_first_chunk

        self._out = out
        self._head = head
        self._is_chat = shape.name == "openai-chat"
        self._prompt_is_due = shape.echo
        self._offsets = TextOffsets()
        self._text_tokens = TextTokenStream()
        if self._is_chat:
            self._send(chat_first_chunk(head))

    def token(self, token: TokenRecord, prompt_tokens: list[TokenRecord]) -> None:
        """Send the tokens that are part of the text for certain; before them, the prompt if it is echoed."""
        self._send_prompt(prompt_tokens)
        for certain in self._text_tokens.push(token):
            self._send_token(certain)

    def _send_token(self, token: TokenRecord) -> None:
        from ...logprobs.openai import chat_chunk, text_chunk

        if self._is_chat:
            self._send(chat_chunk(self._head, token))
        else:
            self._send(text_chunk(self._head, [token], self._offsets.of([token]), token.text))

    def finish(self, finish: CompletionFinish, prompt_tokens: list[TokenRecord]) -> None:
        """Send the last tokens, the last chunk, and the end mark."""
        from ...logprobs.openai import SERVER_SENT_DONE, chat_last_chunk, text_last_chunk

        self._send_prompt(prompt_tokens)
        for token in self._text_tokens.finish(finish.text, finish.stop):
            self._send_token(token)
        held_back = finish.text[self._text_tokens.text_length :]  # U+FFFD for a character that is not finished
        last_chunk = chat_last_chunk if self._is_chat else text_last_chunk
        self._send(last_chunk(self._head, finish, held_back))
        self._out.write(SERVER_SENT_DONE)
        self._out.flush()

    def _send_prompt(self, prompt_tokens: list[TokenRecord]) -> None:
        from ...logprobs.openai import text_chunk

        if self._prompt_is_due:
            self._prompt_is_due = False
            echo = [token.without_added_bytes() for token in prompt_tokens]
            offsets = self._offsets.of(echo)
            self._send(text_chunk(self._head, echo, offsets, self._head.prompt))
            self._offsets.skip_to(len(self._head.prompt))

    def _send(self, data: dict[str, Any]) -> None:
        from ...logprobs.openai import server_sent

        self._out.write(server_sent(data))
        self._out.flush()


_ID_BYTES = 12
"""Of a random id: enough that no two runs share one."""


def _head(start: Start, prompt: str) -> CompletionHead:
    import secrets  # takes 4 ms to import, and each note and table imports this module

    from ...logprobs.openai import completion_head

    return completion_head(start, secrets.token_hex(_ID_BYTES), prompt)


def _settings(start: Start) -> dict[str, Any]:
    """The settings of the run, under the names of llama.cpp's server where it has them."""
    return {
        "seed": start.seed,
        "n_predict": -1 if start.max_tokens is None else start.max_tokens,
        "n_ctx": start.context,
        "stop": list(start.stop),
        "samplers": [name for step in start.chain for name in step],
        "chain": start.chain,
        "grammar": "" if start.grammar is None else start.grammar["source"],
    }


def _timings(done: Done) -> dict[str, Any]:
    """Counts, milliseconds and speeds, as llama.cpp's server names them."""
    times = done.timings
    fields: dict[str, float] = {}
    for name, count, seconds in (
        ("prompt", done.prompt_tokens, times.prompt),
        ("predicted", done.completion_tokens, times.generation),
    ):
        fields |= {
            f"{name}_n": count,
            f"{name}_ms": round(seconds * 1e3, 3),
            f"{name}_per_token_ms": round(seconds * 1e3 / count, 3) if count else 0.0,
            f"{name}_per_second": round(count / seconds, 3) if seconds > 0 else 0.0,
        }
    return fields


def show(done: Done, model_name: str, seed: int) -> None:
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
