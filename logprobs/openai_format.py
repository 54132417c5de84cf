"""OpenAI's text_completion and chat.completion, whole and as streamed chunks.

One field is ours: ``logprobs_from``. A logprob that there is none for is null (OpenAI writes -9999).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .completion import Completion, CompletionFinish, CompletionHead, TextOffsets, by_text, finish_reason, usage
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none

Json = dict[str, Any]


def text_completion(run: Completion) -> Json:
    """The whole run as a ``text_completion``; with ``echo``, the prompt comes first in text and logprobs."""
    offsets = TextOffsets()
    steps, text = run.steps, run.finish.text
    at: list[int] = []
    if run.echo is not None:
        steps = (*run.echo, *steps)
        at = offsets.of(run.echo)
        offsets.skip_to(len(run.head.prompt))
        text = run.head.prompt + text
    at += offsets.of(run.steps)
    return _text_object(run.head) | {
        "choices": [_text_choice(text, _legacy(run.head, steps, at), finish_reason(run.finish))],
        "usage": usage(run.head, run.finish.completion_tokens),
    }


def text_chunk(head: CompletionHead, steps: Sequence[TokenRecord], at: Sequence[int], text: str) -> Json:
    """A streamed part: these tokens, which begin at these offsets, and the text that they let be shown."""
    return _text_object(head) | {"choices": [_text_choice(text, _legacy(head, steps, at), None)]}


def text_last_chunk(head: CompletionHead, finish: CompletionFinish, rest: str) -> Json:
    """The last part: what was held back of the text, why it ended, and the usage."""
    choice = _text_choice(rest, None, finish_reason(finish))
    return _text_object(head) | {"choices": [choice], "usage": usage(head, finish.completion_tokens)}


def chat_completion(run: Completion) -> Json:
    """The whole run as a ``chat.completion``."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": run.finish.text, "refusal": None},
        "logprobs": _content(run.head, run.steps),
        "finish_reason": finish_reason(run.finish),
    }
    return _chat_object(run.head, "chat.completion") | {
        "choices": [choice],
        "usage": usage(run.head, run.finish.completion_tokens),
    }


def chat_first_chunk(head: CompletionHead) -> Json:
    """The first streamed part, which names the role."""
    return _chat_chunk(head, {"role": "assistant", "content": ""}, None, None)


def chat_chunk(head: CompletionHead, step: TokenRecord) -> Json:
    """A streamed part: one token."""
    return _chat_chunk(head, {"content": step.text}, _content(head, [step]), None)


def chat_last_chunk(head: CompletionHead, finish: CompletionFinish, rest: str) -> Json:
    """The last part: what was held back of the text, why it ended, and the usage."""
    delta = {"content": rest} if rest else {}
    part = _chat_chunk(head, delta, None, finish_reason(finish))
    return part | {"usage": usage(head, finish.completion_tokens)}


def _text_object(head: CompletionHead) -> Json:
    return {
        "id": f"cmpl-{head.id}",
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"logitsmith-{head.version}",
        "logprobs_from": head.source,
    }


def _text_choice(text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}


def _legacy(head: CompletionHead, steps: Sequence[TokenRecord], at: Sequence[int]) -> Json | None:
    if head.source is None:
        return None
    return {
        "tokens": [display_text(step.data) for step in steps],
        "token_logprobs": [finite_or_none(step.chosen.logprob) for step in steps],
        "top_logprobs": [by_text(step) for step in steps] if head.top else None,
        "text_offset": list(at),
    }


def _chat_object(head: CompletionHead, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{head.id}",
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"logitsmith-{head.version}",
        "logprobs_from": head.source,
    }


def _chat_chunk(head: CompletionHead, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return _chat_object(head, "chat.completion.chunk") | {"choices": [choice]}


def _content(head: CompletionHead, steps: Sequence[TokenRecord]) -> Json | None:
    if head.source is None:
        return None
    return {
        "content": [_named(step.chosen) | {"top_logprobs": [_named(top) for top in step.top]} for step in steps],
        "refusal": None,
    }


def _named(token: TokenLogprob) -> Json:
    return {"token": token.text, "logprob": finite_or_none(token.logprob), "bytes": list(token.data)}
