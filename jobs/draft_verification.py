"""The check of a run with drafts: the same run without drafts, and the first token that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..engine.generation import generate_request
from ..engine.model import Model
from ..engine.request import GenerationRequest
from ..engine.token_records import LogprobRequest
from ..logprobs.events import Done, Token

_SHOWN_TOKENS = 5
"""Number of most likely tokens of each row that a difference shows."""


@dataclass(frozen=True)
class ComparedToken:
    """A token in the rows of both runs at the first difference.

    Attributes:
        id: the token's id.
        data: the token's bytes.
        drafted_logprob: its logprob in the run with drafts, nats.
        plain_logprob: its logprob in the run without drafts, nats.
    """

    id: int
    data: bytes
    drafted_logprob: float
    plain_logprob: float


@dataclass(frozen=True)
class DraftDifference:
    """The first place where a run with drafts differs from the run without.

    Attributes:
        index: index of the token, counted from 0.
        drafted: the token of the run with drafts; None if its text ended before.
        plain: the token of the run without drafts; None if its text ended before.
        top: the most likely tokens of both rows, by their logprob without drafts; empty if a text ended before.
        max_logprob_difference: the largest difference of a logprob between the rows, nats.
    """

    index: int
    drafted: Token | None
    plain: Token | None
    top: tuple[ComparedToken, ...] = ()
    max_logprob_difference: float = 0.0


@dataclass(frozen=True)
class DraftVerification:
    """The result of `verify_drafts`.

    Attributes:
        equal_token_count: number of tokens up to the first difference, or all tokens.
        difference: the first difference; None if there is none.
        is_complete: False if the check was interrupted, so that later tokens may differ.
    """

    equal_token_count: int
    difference: DraftDifference | None = None
    is_complete: bool = True


def verify_drafts(
    model: Model,
    request: GenerationRequest,
    token_ids: Sequence[int],
    is_interrupted: Callable[[], bool] | None = None,
) -> DraftVerification:
    """Repeat a run without drafts, and compare the tokens.

    At a difference, both runs are repeated up to this token, to read the rows of the model's logprobs.

    Args:
        model: the model, whose context is used.
        request: the request of the run, whose chain and constraint are not built yet.
        token_ids: the tokens of the run with drafts.
        is_interrupted: once it returns True, the check ends.
    """
    plain_request = replace(request, lookup=0, draft=None, trace=None, logprobs=LogprobRequest(), exact_reuse=True)
    plain_ids: list[int] = []
    for event in generate_request(model, plain_request, is_interrupted=is_interrupted):
        if isinstance(event, Token):
            plain_ids.append(event.id)
            if plain_ids != list(token_ids[: len(plain_ids)]):
                break
        elif isinstance(event, Done) and event.finish_reason == "interrupted":
            return DraftVerification(len(plain_ids), is_complete=False)
    if plain_ids == list(token_ids):
        return DraftVerification(len(plain_ids))
    index = next(
        (place for place, ids in enumerate(zip(plain_ids, token_ids, strict=False)) if ids[0] != ids[1]),
        min(len(plain_ids), len(token_ids)),
    )
    drafted_request = replace(plain_request, lookup=request.lookup, draft=request.draft)
    drafted = _token_at(model, drafted_request, index) if index < len(token_ids) else None
    plain = _token_at(model, plain_request, index)
    if drafted is None or plain is None:
        return DraftVerification(index, DraftDifference(index, drafted, plain))
    drafted_row, plain_row = _row_of(drafted), _row_of(plain)
    differences = np.abs(drafted_row - plain_row)
    difference = float(differences[np.isfinite(differences)].max(initial=0.0))
    top = tuple(
        ComparedToken(token, model.vocabulary.piece(token), float(drafted_row[token]), float(plain_row[token]))
        for token in _top_ids(drafted_row, plain_row, (drafted.id, plain.id))
    )
    return DraftVerification(index, DraftDifference(index, drafted, plain, top, difference))


def _token_at(model: Model, request: GenerationRequest, index: int) -> Token | None:
    """Return a token of a run with the complete row of its logprobs; None if the text is shorter."""
    events = generate_request(model, replace(request, logprobs=LogprobRequest(-1)))
    tokens: Iterator[Token] = (event for event in events if isinstance(event, Token))
    return next(islice(tokens, index, None), None)


def _row_of(token: Token) -> NDArray[np.float32]:
    """Return the logprobs of all tokens, float32 (V,)."""
    return np.frombuffer(token.distributions[0].row or b"", dtype="<f4")


def _top_ids(
    drafted_row: NDArray[np.float32], plain_row: NDArray[np.float32], chosen_ids: tuple[int, int]
) -> list[int]:
    """Return the most likely tokens of both rows and the chosen tokens, by their logprob without drafts."""
    ids = {*chosen_ids}
    for row in (drafted_row, plain_row):
        ids |= set((-row).argsort(kind="stable")[:_SHOWN_TOKENS].tolist())
    return sorted(ids, key=lambda token: -plain_row[token])
