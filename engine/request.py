"""What to generate: one type for a flag, a line of a batch, a message of a chat and a body of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .token_records import LogprobRequest

if TYPE_CHECKING:
    from ..grammars.constraint import Constraint
    from ..grammars.spec import GrammarSpec
    from ..samplers.building import Step
    from ..samplers.chain import Chain


@dataclass(frozen=True)
class ChatMessages:
    """A chat whose next message the model writes.

    Attributes:
        messages: ``{"role": "system" | "user" | "assistant", "content": text}`` each, the oldest one first.
        template: the chat template in Jinja, or the name of one of llama.cpp's; None: the model's own.
        variables: variables of the template; None: none.
    """

    messages: Sequence[dict[str, str]]
    template: str | None = None
    variables: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GenerationRequest:
    """What to generate. Nothing in it belongs to a model, unless it holds a built chain or a started constraint.

    Such a chain or constraint serves one request at a time. Otherwise the engine builds both when the request
    begins, and the request can be pickled.

    Attributes:
        prompt: text, UTF-8 bytes, token ids, or a chat.
        chain: a built chain, or what `build` takes: steps, or the notation.
        constraint: the grammar, or a started constraint; None: without one.
        stop: a stop text, or several.
        max_tokens: how many tokens to make at most; None: until the model ends its text or the context is full.
        logprobs: which logprobs the tokens have.
        jump: see `generate`, as for all that follows without an explanation.
        complete_sentence: likewise.
        lookup: likewise.
        trace: likewise.
        id: names the request among others.
        seed: of a chain that is given by its steps, 32 bits.
        beginning: the text of the answer with which the prompt ends: the grammar reads it before the first token.
            A chat has it after its template.
        echo: likewise.
        keep_on_shift: likewise; refused in a batch.
        exact_reuse: likewise. A batch always does this.
    """

    prompt: str | bytes | Sequence[int] | ChatMessages
    chain: Chain | str | Sequence[Step]
    constraint: GrammarSpec | Constraint | None = None
    stop: str | Sequence[str] = ()
    max_tokens: int | None = None
    logprobs: LogprobRequest = field(default_factory=LogprobRequest)
    jump: bool = True
    complete_sentence: bool = False
    lookup: int = 0
    trace: int | None = None
    id: object = None
    seed: int = 0
    beginning: str = ""
    echo: bool = False
    keep_on_shift: int | None = None
    exact_reuse: bool = False
