"""The run as JSON, one object a line, flushed at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ...engine import Done, Event, Start, Vocabulary


def render(events: Iterable[Event], out: TextIO, echo: Vocabulary | None = None) -> Done:
    """Write ``start``, a ``token`` each, ``done``; with ``echo``, a ``prompt`` line for each prompt token.

    Returns the last event.
    """
    from ...engine import Done, Token
    from ...logprobs import TokenLogprob, done_line, prompt_line, start_line, token_line

    for event in events:
        if isinstance(event, Token):
            out.write(token_line(event.index, event.chosen, event.top, event.text))
        elif isinstance(event, Done):
            out.write(done_line(_done_fields(event)))
            out.flush()
            return event
        else:
            out.write(start_line(_start_fields(event)))
            for index, token in enumerate(event.prompt_ids if echo else ()):
                data = echo.piece(token) if echo else b""
                out.write(prompt_line(index, TokenLogprob(token, data, None)))
        out.flush()
    raise RuntimeError("the run ended without a Done event")


def _start_fields(event: Start) -> dict[str, object]:
    fields = asdict(event)
    del fields["prompt_ids"]  # `--echo` gives each of them a line
    if event.grammar is None:
        del fields["grammar"]
    return fields


def _done_fields(event: Done) -> dict[str, object]:
    times = event.timings
    whole = {} if event.complete is None else {"complete": event.complete, "forced_tokens": event.forced_tokens}
    return {
        "finish_reason": event.finish_reason,
        **whole,
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
