"""A run as JSON: one object a line, flushed at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event, Start


def render(events: Iterable[Event], out: TextIO, prompt: str, command: str) -> Done:
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
    grammar = {} if event.complete is None else {"complete": event.complete, "forced_tokens": event.forced_tokens}
    return {
        "finish_reason": event.finish_reason,
        **grammar,
        **({} if event.drafted_tokens is None else {"lookup": _lookup_counts(event)}),
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


def _lookup_counts(event: Done) -> dict[str, int | None]:
    return {"drafted": event.drafted_tokens, "accepted": event.accepted_tokens}
