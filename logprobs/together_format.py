"""Together's completion: plain lists of tokens and logprobs, also of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .completion import Completion, finish_reason, logprobs_by_text, tokens_of_text, usage
from .records import TokenRecord, display_text, finite_or_none


def together_completion(completion: Completion, chat: bool) -> dict[str, Any]:
    """A whole run. With ``echo``, ``prompt`` holds the prompt with its logprobs; otherwise it is empty.

    The tokens are those of the text, see `tokens_of_text`. Tokens of the prompt lack the space of the tokenizer.
    ``chat``: the text stands in a message. Two fields are ours: ``logprobs_from``, and ``top_logprobs`` where more
    than the chosen token's logprobs are requested.
    """
    head, text = completion.head, completion.finish.text

    def logprobs(tokens: Sequence[TokenRecord]) -> dict[str, Any] | None:
        return None if head.source is None else _logprob_lists(tokens, head.top)

    choice = {
        "finish_reason": finish_reason(completion.finish),
        "logprobs": logprobs(tokens_of_text(completion.tokens, text, completion.finish.stop)),
        "index": 0,
        **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
    }
    echo = completion.echo
    prompt_tokens = [token.without_added_bytes() for token in echo or ()]
    return {
        "id": head.id,
        "object": "chat.completion" if chat else "text_completion",
        "created": head.created,
        "model": head.model,
        "logprobs_from": head.source,
        "prompt": [] if echo is None else [{"text": head.prompt, "logprobs": logprobs(prompt_tokens)}],
        "choices": [choice],
        "usage": usage(head, completion.finish.completion_tokens),
    }


def _logprob_lists(tokens: Sequence[TokenRecord], top: int) -> dict[str, Any]:
    lists: dict[str, Any] = {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
    }
    if top > 1:
        lists["top_logprobs"] = [logprobs_by_text(token) for token in tokens]
    return lists
