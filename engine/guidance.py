"""Classifier-free guidance: logits that move away from those of a negative prompt, or of another model.

The text is read twice: after its prompt, and after the negative prompt. With p the logits after the prompt, n
those after the negative prompt, and s the scale, the chain draws from n + s (p - n). The scale 1 changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..common.llama_cpp_limits import MAX_GUIDANCE_SCALE
from ..logprobs.events import BatchExactness, ExactnessLevel
from ..models.errors import ModelError
from .context import Context, Progress, check_prompt
from .native.context import Logits
from .vocabulary import first_different_token

if TYPE_CHECKING:
    from .model import Model


NEGATIVE_PROMPT = "the negative prompt of guidance"  # in messages


@dataclass(frozen=True)
class Guidance:
    """The settings of guidance. They say nothing about a model that runs, so they are part of a request.

    Attributes:
        scale: the scale s; 1: no guidance; above 1: away from the negative prompt.
        negative_prompt: text, UTF-8 bytes or token ids that take the place of the prompt. In a chat, a text takes
            the place of the system message. None or empty: the prompt itself if ``model`` is set, or else the last
            token of the prompt.
        model: path of a GGUF file with the same vocabulary, which reads the negative prompt; None: the model
            itself.
    """

    scale: float = 1.0
    negative_prompt: str | bytes | Sequence[int] | None = None
    model: str | None = None

    @property
    def is_off(self) -> bool:
        """True if the guidance changes nothing, so that no negative prompt is read."""
        return self.scale == 1

    def as_setting(self) -> dict[str, Any]:
        """Return the guidance as a preset writes it."""
        negative = self.negative_prompt
        if isinstance(negative, bytes):
            negative = negative.decode("utf-8", "replace")
        elif negative is not None and not isinstance(negative, str):
            negative = list(negative)
        fields = {"scale": self.scale, "negative_prompt": negative or None, "model": self.model}
        return {name: value for name, value in fields.items() if value is not None}


class GuidedLogits(NamedTuple):
    """The logits of one step under guidance, float32 (V,)."""

    # the model's own logits after the text, float32 (V,), which the model's logprobs are computed from
    model: Logits
    guided: Logits  # the logits that the chain draws from, float32 (V,)
    scale: float

    def copy(self) -> GuidedLogits:
        """Return logits that the next step does not overwrite."""
        return self._replace(model=self.model.copy())  # the guided ones are never overwritten


def guide(logits: Logits, negative_logits: Logits, scale: float) -> GuidedLogits:
    """Return the logits under guidance: n + s (p - n), computed in float32.

    A token with an infinite logit in one of the rows keeps the model's own logit.

    Args:
        logits: p, the logits after the text, float32 (V,).
        negative_logits: n, the logits after the negative prompt with the same text, float32 (V,).
        scale: s.

    Source: Sanchez et al. 2023, "Stay on topic with Classifier-Free Guidance". transformers computes the same with
    the log-softmax of both rows, which moves all logits by one number, so probabilities are equal.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        guided = negative_logits + np.float32(scale) * (logits - negative_logits)
    if not np.isfinite(guided).all():
        guided = np.where(np.isfinite(guided), guided, logits)
    guided.flags.writeable = False
    return GuidedLogits(logits, guided, scale)


def check_guidance(guidance: Guidance) -> None:
    if not abs(guidance.scale) <= MAX_GUIDANCE_SCALE:
        raise ModelError(f"the scale {guidance.scale:g} is not within ±{MAX_GUIDANCE_SCALE:g}", origin="guidance")


def guidance_model(model: Model, guidance: Guidance) -> Model:
    """Return the model that reads the negative prompt, loaded once."""
    # Raises ``ModelError``, also if its vocabulary differs.
    if guidance.model is None:
        return model
    other = model.companion(guidance.model)
    difference = _vocabulary_difference(model, other)
    if difference:
        raise ModelError(
            f"guidance: {other.path} has another vocabulary than {model.path}: {difference}",
            advice="give a model of the same family",
        )
    return other


def _vocabulary_difference(model: Model, other: Model) -> str:
    """Return the first difference between two vocabularies in words; empty if they are equal."""
    vocabulary = model.vocabulary
    other_vocabulary = other.vocabulary
    if vocabulary.size != other_vocabulary.size:
        return f"{other_vocabulary.size:,} tokens, not {vocabulary.size:,}"
    token = first_different_token(vocabulary.pieces, other_vocabulary.pieces)
    if token is None:
        return ""
    return f"token {token} is {other_vocabulary.pieces[token]!r}, not {vocabulary.pieces[token]!r}"


def with_system_message(messages: Sequence[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Return the messages of a chat with another system message, or with one if there is none."""
    others = messages[1:] if messages and messages[0].get("role") == "system" else messages
    return [{"role": "system", "content": text}, *others]


class NegativeText:
    """The text of a single run after its negative prompt, in a context of its own."""

    def __init__(self, context: Context, prompt_ids: Sequence[int], scale: float) -> None:
        """Take the context. Raises ``ModelError`` if the negative prompt does not fit."""
        self.context = context
        self.prompt_ids = prompt_ids
        self._scale = scale
        check_prompt(prompt_ids, context.length, NEGATIVE_PROMPT)

    def read_prompt(
        self, progress: Progress | None, is_interrupted: Callable[[], bool] | None, exact: bool
    ) -> bool:
        """Read the negative prompt as `Context.read` does; return whether it was read to its end."""
        self.context.read(self.prompt_ids, progress, is_interrupted, exact=exact)
        return len(self.context.tokens) == len(self.prompt_ids)

    def guide_rows(self, rows: Sequence[Logits], tokens: Sequence[int], drop_count: int) -> list[GuidedLogits]:
        """Read the tokens that the text has read, and return the logits under guidance."""
        context = self.context
        if drop_count:
            context.truncate(len(context.tokens) - drop_count)
        negative_rows = context.append_batch(tokens) if tokens else (context.logits(),)
        return [guide(row, negative, self._scale) for row, negative in zip(rows, negative_rows, strict=True)]


def guided_exactness(
    exactness: BatchExactness, negative: BatchExactness, scale: float, extra_tokens: int
) -> BatchExactness:
    """Return the weaker of two promises, for an answer under guidance."""
    # ``extra_tokens``: by how many tokens the negative prompt is longer than the prompt.
    levels = list(ExactnessLevel)  # from the strongest to the weakest
    weaker = max((exactness, negative), key=lambda promise: levels.index(promise.level))
    difference = abs(scale) * exactness.max_logit_difference + abs(1 - scale) * negative.max_logit_difference
    limits = [
        promise.max_exact_tokens for promise in (exactness, negative) if promise.max_exact_tokens is not None
    ]
    max_exact_tokens = None
    if limits:
        max_exact_tokens = max(0, min(limits) - max(0, extra_tokens))
    return replace(weaker, max_logit_difference=difference, max_exact_tokens=max_exact_tokens)
