"""Together's completion: plain lists of tokens and logprobs, and the prompt's with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .completion import Completion, by_text, finish_reason, usage
from .records import TokenRecord, display_text, finite_or_none


def together_completion(run: Completion, chat: bool) -> dict[str, Any]:
    """The whole run. ``prompt`` holds the prompt with its logprobs if ``echo`` was asked for, else nothing.

    ``chat``: the text stands in a message. Ours are ``logprobs_from``, and ``top_logprobs`` where more than the
    chosen token's logprobs are asked for.
    """
    head, text = run.head, run.finish.text

    def lists(steps: Sequence[TokenRecord]) -> dict[str, Any] | None:
        return None if head.source is None else _lists(steps, head.top)

    choice = {
        "finish_reason": finish_reason(run.finish),
        "logprobs": lists(run.steps),
        "index": 0,
        **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
    }
    return {
        "id": head.id,
        "object": "chat.completion" if chat else "text_completion",
        "created": head.created,
        "model": head.model,
        "logprobs_from": head.source,
        "prompt": [] if run.echo is None else [{"text": head.prompt, "logprobs": lists(run.echo)}],
        "choices": [choice],
        "usage": usage(head, run.finish.completion_tokens),
    }


def _lists(steps: Sequence[TokenRecord], top: int) -> dict[str, Any]:
    found = {
        "tokens": [display_text(step.data) for step in steps],
        "token_logprobs": [finite_or_none(step.chosen.logprob) for step in steps],
    }
    return found | {"top_logprobs": [by_text(step) for step in steps]} if top > 1 else found
