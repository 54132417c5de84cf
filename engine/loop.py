"""The loop: read the prompt, then logits, chain, token, again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from time import perf_counter
from typing import Any

from ..grammars import Constraint, as_closable
from ..samplers import Chain
from .context import Progress
from .distribution import Reader, Wanted
from .errors import ModelError
from .events import Done, Event, Start, Timings
from .model import Model
from .native import BINDING_VERSION
from .run import Run
from .scoring import echoed
from .text import TextStream


def generate(  # noqa: PLR0913 - the contract's own names
    model: Model,
    prompt: str | bytes | Sequence[int],
    chain: Chain,
    constraint: Constraint | None = None,
    *,
    stop: str | Sequence[str] = (),
    max_tokens: int | None = None,
    top_logprobs: int | None = None,
    logprobs_from: str = "model",
    logprob_of: Sequence[int] = (),
    echo: bool = False,
    jump: bool = True,
    close: bool = False,
    progress: Progress | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Write on from ``prompt`` (text, UTF-8 bytes, or token ids), one event after the other.

    ``chain`` chooses each token; it is reset first. ``constraint``: masks tokens before the chain; the run ends
    when the text is whole and nothing can follow. ``stop``: a text, or texts, that end the run. ``max_tokens``:
    None: until the model ends or the context is full. ``top_logprobs``: None: no logprobs; 0: the chosen token's;
    n: the n likeliest beside it; -1: every token's. ``logprobs_from``: ``model``, the log-softmax of the untouched
    logits; ``chain``, of what was drawn from; or ``both``; nats. ``logprob_of``: tokens that are always told of.
    ``echo``: tell of the prompt's tokens too, with the model's logprobs if there are to be logprobs.
    ``jump``: read tokens that the constraint
    forces in one batch; the chain works on each all the same, so that its random numbers stay in step, but what
    it draws does not count. ``close``: bring a text that was cut off to its end by a short way, beyond
    ``max_tokens``; needs a `Closable` constraint. ``interrupted`` is asked while the prompt is read and before
    each token; once it returns True, the run ends in order. Raises ``ModelError``, ``SamplingError``,
    ``GrammarError``.
    """
    if max_tokens is not None and max_tokens < 0:
        raise ModelError(f"max_tokens: {max_tokens} is not ≥ 0")
    if close and as_closable(constraint) is None:
        raise ModelError("close: only a text under a grammar can be closed")
    stop = [stop] if isinstance(stop, str) else stop
    ids = _prompt_ids(model, prompt)
    stream = TextStream(stop)
    wanted = Wanted(top_logprobs, logprobs_from, tuple(logprob_of))
    run = Run(model, chain, constraint, Reader(model.vocabulary, wanted), stream, jump)
    model.context.check(ids)
    began = perf_counter()
    cached = 0 if echo else model.context.read(ids, progress, interrupted)
    prompt_seconds = perf_counter() - began
    chain.reset(ids)
    yield Start(
        model=model.name,
        seed=chain.seed,
        chain=chain.config,
        grammar=getattr(constraint, "description", None),
        prompt_tokens=len(ids),
        prompt_ids=tuple(ids),
        cached_tokens=cached,
        context=model.context.length,
        logprobs=_described(wanted, model.vocabulary.size),
        max_tokens=max_tokens,
        stop=tuple(stop),
        versions=versions(),
    )
    if echo:
        began = perf_counter()
        yield from echoed(model, ids, Wanted(top_logprobs, "model", wanted.named), progress, interrupted)
        if len(ids) > model.context.piece and len(model.context.tokens) == len(ids):
            # What is drawn must not depend on whether the prompt is told of.
            model.context.back_to(0)
            model.context.read(ids, progress, interrupted)
        prompt_seconds = perf_counter() - began
    began = perf_counter()
    if len(model.context.tokens) < len(ids):
        reason = "interrupted"
    else:
        reason = yield from run.write(sys.maxsize if max_tokens is None else max_tokens, interrupted)
        if close and reason == "length":
            yield from run.close()
    rest = stream.finish()
    yield Done(
        finish_reason=reason if stream.stopped is None else "stop",
        complete=run.complete,
        text=stream.text,
        rest=rest,
        stop=stream.stopped,
        prompt_tokens=len(ids),
        completion_tokens=run.count,
        forced_tokens=run.forced,
        timings=Timings(prompt_seconds, perf_counter() - began, run.chain_seconds, run.grammar_seconds),
    )


def _described(wanted: Wanted, size: int) -> dict[str, Any] | None:
    """What logprobs there will be, for a record of the run."""
    if wanted.top is None:
        return None
    found: dict[str, Any] = {"from": wanted.sources, "top": wanted.top, "unit": "nats"}
    if wanted.named:
        found["of"] = list(wanted.named)
    if wanted.top < 0:
        found["row"] = {"encoding": "base64", "dtype": "float32", "byteorder": "little", "size": size}
    return found


def versions() -> dict[str, str]:
    """The versions of this package and of llama.cpp's binding."""
    return {"logitsmith": version("logitsmith"), "llama-cpp-python": BINDING_VERSION}


def _prompt_ids(model: Model, prompt: str | bytes | Sequence[int]) -> list[int]:
    vocabulary = model.vocabulary
    if isinstance(prompt, str):
        try:
            prompt = prompt.encode()
        except UnicodeEncodeError:
            raise ModelError("the prompt is not UTF-8") from None
    ids = vocabulary.tokenize_prompt(prompt) if isinstance(prompt, bytes) else list(prompt)
    if not ids and vocabulary.bos is not None:
        ids = [vocabulary.bos]  # an empty prompt: let the model begin by itself
    vocabulary.check(ids)
    return ids
