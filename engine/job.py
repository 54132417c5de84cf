"""One request: what is asked for, the run that answers it, and what is told at both ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from ..grammars import Constraint, as_closable
from ..samplers import Chain
from .distribution import LogprobReader, LogprobRequest
from .errors import ModelError
from .events import Done, Start, Timings, Token
from .lookup import Lookup
from .model import Model
from .native import BINDING_VERSION
from .run import Logits, Moves, Place, Read, Run
from .text import TextStream
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Request:
    """What is to be written; the fields mean what the arguments of `generate` mean.

    ``key`` names it among others. A chain and a constraint belong to one request at a time.
    """

    prompt: str | bytes | Sequence[int]
    chain: Chain
    constraint: Constraint | None = None
    stop: str | Sequence[str] = ()
    max_tokens: int | None = None
    wanted: LogprobRequest = field(default_factory=LogprobRequest)
    jump: bool = True
    close: bool = False
    lookup: int = 0
    key: object = None


class Job:
    """A request while it is worked on. Raises ``ModelError`` for what cannot be done.

    ``ids``: the prompt's tokens; ``place``: where they and what follows are read; ``stream``: the text so far.
    """

    def __init__(self, model: Model, request: Request, place: Place) -> None:
        if request.max_tokens is not None and request.max_tokens < 0:
            raise ModelError(f"max_tokens: {request.max_tokens} is not ≥ 0")
        if request.close and as_closable(request.constraint) is None:
            raise ModelError("close: only a text under a grammar can be closed")
        self.request = request
        self.ids = prompt_ids(model.vocabulary, request.prompt)
        self._model = model
        self._stops = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
        self.stream = TextStream(self._stops)
        reader = LogprobReader(model.vocabulary, request.wanted)
        self._lookup = _lookup(model, request, self.ids)
        self._run = Run(
            model.vocabulary,
            place,
            request.chain,
            request.constraint,
            reader,
            self.stream,
            request.jump,
            self._lookup,
        )

    def start(self, cached: int, context: int) -> Start:
        """Reset the chain, and tell what is needed to repeat the run."""
        chain = self.request.chain
        chain.reset(self.ids)
        return Start(
            model=self._model.name,
            seed=chain.seed,
            chain=chain.config,
            grammar=getattr(self.request.constraint, "description", None),
            prompt_tokens=len(self.ids),
            prompt_ids=tuple(self.ids),
            cached_tokens=cached,
            context=context,
            logprobs=_described(self.request.wanted, self._model.vocabulary.size),
            max_tokens=self.request.max_tokens,
            stop=self._stops,
            versions=versions(),
        )

    def moves(self, interrupted: Callable[[], bool] | None = None) -> Moves:
        """Write: tells of tokens, asks for logits, and returns why it ended."""
        limit = self.request.max_tokens
        reason = yield from self._run.write(sys.maxsize if limit is None else limit, interrupted)
        if self.request.close and reason == "length":
            yield from self._run.close()
        return reason

    def done(self, reason: str, prompt_seconds: float, seconds: float) -> Done:
        """Tell how it ended."""
        run, stream = self._run, self.stream
        rest = stream.finish()
        return Done(
            finish_reason=reason if stream.stopped is None else "stop",
            complete=run.complete,
            text=stream.text,
            rest=rest,
            stop=stream.stopped,
            prompt_tokens=len(self.ids),
            completion_tokens=run.count,
            forced_tokens=run.forced,
            drafted_tokens=None if self._lookup is None else self._lookup.drafted,
            accepted_tokens=None if self._lookup is None else self._lookup.accepted,
            timings=Timings(prompt_seconds, seconds, run.chain_seconds, run.grammar_seconds),
        )


class Steps:
    """What a run does until it needs logits, or ends; then ``reason`` says why."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self.reason: str | None = None
        self.wants: Sequence[int] = ()
        """The tokens that are to be read next."""
        self.back = 0
        """How many tokens are to be forgotten before that."""

    def go_on(self, rows: Sequence[Logits] | None = None) -> Iterator[Token]:
        """Send the logits that were asked for, none at first, and tell of the tokens that come of them."""
        answer = rows
        try:
            while True:
                move = self._moves.send(answer)
                answer = None
                if isinstance(move, Read):
                    self.wants, self.back = move
                    return
                yield move
        except StopIteration as end:
            self.reason = end.value


def _lookup(model: Model, request: Request, ids: Sequence[int]) -> Lookup | None:
    if request.lookup < 0:
        raise ModelError(f"lookup: {request.lookup} is not ≥ 0")
    if request.lookup and not model.goes_back:
        raise ModelError("lookup: this model is recurrent, and cannot take back what was guessed wrongly")
    return Lookup(request.lookup, ids) if request.lookup else None


def prompt_ids(vocabulary: Vocabulary, prompt: str | bytes | Sequence[int]) -> list[int]:
    """The tokens of a prompt: text, UTF-8 bytes, or ids. Raises ``ModelError``."""
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


def versions() -> dict[str, str]:
    """The versions of this package and of llama.cpp's binding."""
    return {"logitsmith": version("logitsmith"), "llama-cpp-python": BINDING_VERSION}


def _described(wanted: LogprobRequest, size: int) -> dict[str, Any] | None:
    """What logprobs there will be, for a record of the run."""
    if wanted.top is None:
        return None
    found: dict[str, Any] = {"from": wanted.sources, "top": wanted.top, "unit": "nats"}
    if wanted.named:
        found["of"] = list(wanted.named)
    if wanted.top < 0:
        found["row"] = {"encoding": "base64", "dtype": "float32", "byteorder": "little", "size": size}
    return found
