"""From the events of a run to the head and the finish of its `Completion`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...engine.events import Done, Start
    from ...logprobs.completion import CompletionFinish, CompletionHead


def completion_head(start: Start, completion_id: str, prompt: str) -> CompletionHead:
    """The head of a completion that begins now; ``completion_id`` without the prefix of a format."""
    from ...logprobs.completion import CompletionHead

    logprob_facts = start.logprobs
    return CompletionHead(
        id=completion_id,
        created=int(time.time()),
        model=start.model,
        prompt=prompt,
        source=None if logprob_facts is None else logprob_facts["from"],
        top=0 if logprob_facts is None else logprob_facts["top"],
        prompt_tokens=start.prompt_tokens,
        version=start.versions["logitsmith"],
    )


def completion_finish(done: Done) -> CompletionFinish:
    """How a run ended."""
    from ...logprobs.completion import CompletionFinish

    return CompletionFinish(
        reason=done.finish_reason,
        stop=done.stop,
        text=done.text,
        completion_tokens=done.completion_tokens,
        truncated=done.finish_reason == "context",
    )
