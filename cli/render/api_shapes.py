"""A run in the shapes of other systems' APIs: one JSON object, or server-sent chunks of it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ...logprobs.openai import completion_finish, completion_head

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event, Start
    from ...logprobs.openai import Completion, CompletionFinish, CompletionHead
    from ...logprobs.records import TokenRecord

_ID_BYTES = 12
"""Of a random id: enough that no two runs share one."""


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


def render(events: Iterable[Event], out: TextIO, shape: ApiShape, prompt: str) -> Done:
    """Write the run as one object on a line, or as server-sent events, each flushed.

    Args:
        events: the run.
        out: where it is written.
        shape: which shape.
        prompt: the prompt as the model got it.

    Returns the last event.
    """
    from ...logprobs.events import Done, PromptToken, Start, Token
    from ...logprobs.openai import Completion

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


def _head(start: Start, prompt: str) -> CompletionHead:
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
