"""A trace in few numbers: the page computes the probabilities from the logits."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....logprobs.recorded import RecordedCandidate, RecordedTrace

Json = dict[str, Any]
Column = Sequence[float | None]

_DECIMALS = 6
"""Of a logit: its probability is then right to a millionth, and the page shows four digits."""
_RELATIVE_ERROR = 5e-6
"""A probability that differs more from the one that is computed is stored itself."""


def packed_trace(trace: RecordedTrace) -> Json:
    """The trace, without what follows from the rest.

    ``stages`` as they are. ``ids`` of the candidates; ``dropped``: the stage that dropped each, -1 for none.
    ``logits``: one list per stage, null where the remaining candidates keep theirs. ``totals``: one number per
    stage, with probability = exp(logit - total), or a list of the probabilities where that does not hold.
    """
    candidates = trace.candidates
    dropped = [_dropped_by(candidate) for candidate in candidates]
    logits = [
        [_rounded(candidate.logits[stage]) for candidate in candidates] for stage in range(len(trace.stages))
    ]
    return {
        "stages": [stage.model_dump(exclude_none=True) for stage in trace.stages],
        "ids": [candidate.id for candidate in candidates],
        "dropped": dropped,
        "logits": [_changed_logits(logits, dropped, stage) for stage in range(len(logits))],
        "totals": [
            _log_total(column, [candidate.probs[stage] for candidate in candidates], dropped, stage)
            for stage, column in enumerate(logits)
        ],
        "draw": None if trace.draw is None else [trace.draw.u, trace.draw.low, trace.draw.high],
        **({"forced": True} if trace.forced else {}),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def _dropped_by(candidate: RecordedCandidate) -> int:
    """The stage after the last one at which it has a probability; -1 if that is the last stage."""
    if candidate.probs[-1] is not None:
        return -1
    return max((stage + 1 for stage, prob in enumerate(candidate.probs) if prob is not None), default=0)


def _is_present(dropped: int, stage: int) -> bool:
    return dropped < 0 or stage < dropped


def _changed_logits(logits: Sequence[Column], dropped: Sequence[int], stage: int) -> Column | None:
    """The logits of a stage; None if the candidates that are present have those of the stage before."""
    if stage == 0:
        return logits[0]
    rows = zip(logits[stage - 1], logits[stage], dropped, strict=True)
    return None if all(new == old for old, new, by in rows if _is_present(by, stage)) else logits[stage]


def _log_total(logits: Column, probs: Column, dropped: Sequence[int], stage: int) -> float | Column:
    """The logarithm of the sum of exp(logit); the probabilities themselves if they do not follow from it."""
    pairs = list(zip(logits, probs, strict=True))
    total = max(((prob, logit - log(prob)) for logit, prob in pairs if logit is not None and prob), default=None)
    if total is not None:
        log_total = round(total[1], _DECIMALS)
        if all(
            _follows(logit, prob, log_total) if _is_present(by, stage) else prob is None
            for (logit, prob), by in zip(pairs, dropped, strict=True)
        ):
            return log_total
    return [None if prob is None else float(f"{prob:.7g}") for prob in probs]


def _follows(logit: float | None, prob: float | None, log_total: float) -> bool:
    if prob is None or logit is None:
        return prob == 0
    return abs(exp(min(logit - log_total, 1.0)) - prob) <= _RELATIVE_ERROR * prob + 1e-15
