"""The run in the shapes of other systems: one JSON object, or server-sent chunks of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from ...engine import Done, Event, Start
    from ...logprobs import CompletionFinish, CompletionHead, TokenRecord


@dataclass(frozen=True)
class ApiShape:
    """Which shape: ``name`` as `--format` has it. ``echo``: the prompt goes first; ``chat``: it was a chat."""

    name: str
    stream: bool
    echo: bool
    chat: bool


def render(events: Iterable[Event], out: TextIO, shape: ApiShape, prompt: str) -> Done:
    """Write the run as one object on a line, or as server-sent events, each flushed. Returns the last event."""
    from ...engine import Done, PromptToken, Start, Token

    echoed: list[TokenRecord] = []
    steps: list[TokenRecord] = []
    writer = None
    start = None
    for event in events:
        if isinstance(event, Start):
            start = event
            head = _head(event, prompt)
            writer = _Stream(out, head, shape) if shape.stream else None
        elif isinstance(event, PromptToken):
            echoed.append(event)
        elif isinstance(event, Token):
            if writer is not None:
                writer.token(event, echoed)
            else:
                steps.append(event)
        elif isinstance(event, Done):
            finish = _finish(event)
            if writer is not None:
                writer.finish(finish, event.rest, echoed)
            elif start is not None:
                _write_whole(out, shape, (head, echoed, steps, finish), (start, event))
            return event
    raise RuntimeError("the run ended without a Done event")


def _write_whole(
    out: TextIO,
    shape: ApiShape,
    parts: tuple[CompletionHead, list[TokenRecord], list[TokenRecord], CompletionFinish],
    ends: tuple[Start, Done],
) -> None:
    from ... import logprobs

    head, echoed, steps, finish = parts
    run = logprobs.Completion(head, tuple(echoed) if shape.echo else None, tuple(steps), finish)
    match shape.name:
        case "openai":
            found = logprobs.text_completion(run)
        case "openai-chat":
            found = logprobs.chat_completion(run)
        case "together":
            found = logprobs.together_completion(run, shape.chat)
        case _:
            found = logprobs.llama_server_completion(
                run, _settings(ends[0]), _timings(ends[1]), ends[0].cached_tokens
            )
    out.write(logprobs.encode_json(found) + "\n")
    out.flush()


class _Stream:
    """Writes OpenAI's chunks."""

    def __init__(self, out: TextIO, head: CompletionHead, shape: ApiShape) -> None:
        from ... import logprobs

        self._shapes = logprobs
        self._out = out
        self._head = head
        self._chat = shape.name == "openai-chat"
        self._echo = shape.echo
        self._offsets = logprobs.TextOffsets()
        if self._chat:
            self._send(logprobs.chat_first_chunk(head))

    def token(self, step: TokenRecord, echoed: list[TokenRecord]) -> None:
        """Send one token; before the first, the prompt if it is wanted."""
        self._send_prompt(echoed)
        if self._chat:
            self._send(self._shapes.chat_chunk(self._head, step))
        else:
            self._send(self._shapes.text_chunk(self._head, [step], self._offsets.of([step]), step.text))

    def finish(self, finish: CompletionFinish, rest: str, echoed: list[TokenRecord]) -> None:
        """Send the end."""
        self._send_prompt(echoed)
        last = self._shapes.chat_last_chunk if self._chat else self._shapes.text_last_chunk
        self._send(last(self._head, finish, rest))
        self._out.write(self._shapes.SERVER_SENT_DONE)
        self._out.flush()

    def _send_prompt(self, echoed: list[TokenRecord]) -> None:
        if self._echo:
            self._echo = False
            at = self._offsets.of(echoed)
            self._send(self._shapes.text_chunk(self._head, echoed, at, self._head.prompt))
            self._offsets.skip_to(len(self._head.prompt))

    def _send(self, data: dict[str, Any]) -> None:
        self._out.write(self._shapes.server_sent(data))
        self._out.flush()


def _head(start: Start, prompt: str) -> CompletionHead:
    from ...logprobs import CompletionHead

    wanted = start.logprobs
    return CompletionHead(
        id=secrets.token_hex(12),
        created=int(time.time()),
        model=start.model,
        prompt=prompt,
        source=None if wanted is None else wanted["from"],
        top=0 if wanted is None else wanted["top"],
        prompt_tokens=start.prompt_tokens,
        version=start.versions["logitsmith"],
    )


def _finish(done: Done) -> CompletionFinish:
    from ...logprobs import CompletionFinish

    return CompletionFinish(
        done.finish_reason, done.stop, done.text, done.completion_tokens, done.finish_reason == "context"
    )


def _settings(start: Start) -> dict[str, Any]:
    """What the run was made with, under the server's names where it has them."""
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
    times = done.timings
    found: dict[str, float] = {}
    for name, count, seconds in (
        ("prompt", done.prompt_tokens, times.prompt),
        ("predicted", done.completion_tokens, times.generation),
    ):
        found |= {
            f"{name}_n": count,
            f"{name}_ms": round(seconds * 1e3, 3),
            f"{name}_per_token_ms": round(seconds * 1e3 / count, 3) if count else 0.0,
            f"{name}_per_second": round(count / seconds, 3) if seconds > 0 else 0.0,
        }
    return found
