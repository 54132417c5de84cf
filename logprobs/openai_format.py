"""OpenAI's text_completion and chat.completion, whole and as streamed chunks.

One field is ours: ``logprobs_from``. A missing logprob is null, where OpenAI writes -9999.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .completion import (
    Completion,
    CompletionFinish,
    CompletionHead,
    TextOffsets,
    finish_reason,
    logprobs_by_text,
    tokens_of_text,
    usage,
)
from .records import TokenLogprob, TokenRecord, display_text, finite_or_none

Json = dict[str, Any]


def text_completion(completion: Completion) -> Json:
    """A whole run as a ``text_completion``; with ``echo``, text and logprobs begin with the prompt.

    The tokens are those of the text, see `tokens_of_text`. Echoed tokens lack the space that a tokenizer adds; a
    BOS token that it adds is the first one, and not part of the text.
    """
    head, finish = completion.head, completion.finish
    offsets = TextOffsets()
    written, text = tokens_of_text(completion.tokens, finish.text, finish.stop), finish.text
    tokens, token_offsets = written, []
    if completion.echo is not None:
        echo = tuple(map(TokenRecord.without_added_bytes, completion.echo))
        tokens = (*echo, *written)
        token_offsets = offsets.of(echo)
        offsets.skip_to(len(head.prompt))
        text = head.prompt + text
    token_offsets += offsets.of(written)
    choice = _text_choice(text, _text_logprobs(head, tokens, token_offsets), finish_reason(finish))
    return _text_head(head) | {"choices": [choice], "usage": usage(head, finish.completion_tokens)}


def text_chunk(head: CompletionHead, tokens: Sequence[TokenRecord], offsets: Sequence[int], text: str) -> Json:
    """A streamed chunk of a ``text_completion``.

    Args:
        head: the run's head.
        tokens: the chunk's tokens.
        offsets: where each begins in the text, in characters.
        text: the text that can be shown once they are there.
    """
    choice = _text_choice(text, _text_logprobs(head, tokens, offsets), None)
    return _text_head(head) | {"choices": [choice]}


def text_last_chunk(head: CompletionHead, finish: CompletionFinish, held_back: str) -> Json:
    """The last chunk: the text that was held back, the finish reason and the usage."""
    choice = _text_choice(held_back, None, finish_reason(finish))
    return _text_head(head) | {"choices": [choice], "usage": usage(head, finish.completion_tokens)}


def chat_completion(completion: Completion) -> Json:
    """A whole run as a ``chat.completion``. The tokens are those of the message, see `tokens_of_text`."""
    head, finish = completion.head, completion.finish
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": finish.text, "refusal": None},
        "logprobs": _chat_logprobs(head, tokens_of_text(completion.tokens, finish.text, finish.stop)),
        "finish_reason": finish_reason(finish),
    }
    return _chat_head(head, "chat.completion") | {
        "choices": [choice],
        "usage": usage(head, finish.completion_tokens),
    }


def chat_first_chunk(head: CompletionHead) -> Json:
    """The first chunk of a chat, which names the role."""
    return _chat_chunk(head, {"role": "assistant", "content": ""}, None, None)


def chat_chunk(head: CompletionHead, token: TokenRecord) -> Json:
    """A streamed chunk of a chat: one token."""
    return _chat_chunk(head, {"content": token.text}, _chat_logprobs(head, [token]), None)


def chat_last_chunk(head: CompletionHead, finish: CompletionFinish, held_back: str) -> Json:
    """The last chunk of a chat: the text that was held back, the finish reason and the usage."""
    delta = {"content": held_back} if held_back else {}
    chunk = _chat_chunk(head, delta, None, finish_reason(finish))
    return chunk | {"usage": usage(head, finish.completion_tokens)}


def _head_fields(head: CompletionHead, response_id: str, kind: str) -> Json:
    """The fields with which every response begins."""
    return {
        "id": response_id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "system_fingerprint": f"logitsmith-{head.version}",
        "logprobs_from": head.source,
    }


def _text_head(head: CompletionHead) -> Json:
    return _head_fields(head, f"cmpl-{head.id}", "text_completion")


def _text_choice(text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}


def _text_logprobs(head: CompletionHead, tokens: Sequence[TokenRecord], offsets: Sequence[int]) -> Json | None:
    if head.source is None:
        return None
    return {
        "tokens": [display_text(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
        "top_logprobs": [logprobs_by_text(token) for token in tokens] if head.top else None,
        "text_offset": list(offsets),
    }


def _chat_head(head: CompletionHead, kind: str) -> Json:
    return _head_fields(head, f"chatcmpl-{head.id}", kind)


def _chat_chunk(head: CompletionHead, delta: Json, logprobs: Json | None, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return _chat_head(head, "chat.completion.chunk") | {"choices": [choice]}


def _chat_logprobs(head: CompletionHead, tokens: Sequence[TokenRecord]) -> Json | None:
    if head.source is None:
        return None
    content = [
        _chat_token(token.chosen) | {"top_logprobs": [_chat_token(top) for top in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


def _chat_token(token: TokenLogprob) -> Json:
    return {"token": token.text, "logprob": finite_or_none(token.logprob), "bytes": list(token.data)}
