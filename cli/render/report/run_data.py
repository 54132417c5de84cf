"""A run as the data of a page: a head with what is shown at once, and blocks with the traces of tokens.

A trace is packed in few numbers: the page computes the probabilities from the logits.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, isfinite, log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....logprobs.recorded import (
        RecordedCandidate,
        RecordedDone,
        RecordedEvent,
        RecordedStart,
        RecordedToken,
        RecordedTokenLine,
        RecordedTrace,
    )
    from ....logprobs.records import LogprobSource

Json = dict[str, Any]
Column = Sequence[float | None]
BLOCK_TOKENS = 128
"""Tokens whose traces are unpacked at once: some 60 KB packed, a few milliseconds in a browser."""
_DECIMALS = 6
"""Of logits, logprobs, entropies: a probability is then right to a millionth; the page shows four digits."""


@dataclass(frozen=True)
class RunData:
    """A run, ready for a page: ``head`` and ``blocks`` are compressed, in base64.

    Attributes:
        name: what the page calls the run.
        head: what is shown at once.
        blocks: the traces and alternatives of 128 tokens each.
        tokens: how many tokens it has.
        is_cut_off: True if its record does not end with a "done" line.
    """

    name: str
    head: str
    blocks: list[str]
    tokens: int
    is_cut_off: bool


class RunReader:
    """Takes the events of a run, and packs them as they come: a long run is never in memory as a whole."""

    def __init__(self, name: str, source: LogprobSource | None) -> None:
        """Name the run. ``source``: the distribution to show if the run has two; None: the first."""
        self._name = name
        self._source = source
        self._start: RecordedStart | None = None
        self._done: RecordedDone | None = None
        self._tokens = _Tokens()
        self._pieces: dict[int, str | list[int]] = {}
        self._details: list[Json | None] = []
        self._blocks: list[str] = []
        self._sources: set[str] = set()
        self._has_trace = False

    def read(self, events: Iterable[RecordedEvent]) -> RunData | None:
        """Pack the events of the run; None if it has none."""
        from ....logprobs.recorded import RecordedStart, RecordedTokenLine

        is_empty = True
        for event in events:
            is_empty = False
            if isinstance(event, RecordedStart):
                self._start = event
            elif isinstance(event, RecordedTokenLine):
                self._add(event)
            else:
                self._done = event
        if is_empty:
            return None
        self._close_block()
        return RunData(
            self._run_name(), pack(self._head()), self._blocks, len(self._tokens.ids), self._done is None
        )

    def _add(self, line: RecordedTokenLine) -> None:
        tokens = self._tokens
        source = self._source or line.logprobs_from or "model"
        shown = line.distribution(source)
        logprob = None if shown is None else shown.logprob
        entropy = None if shown is None else shown.entropy
        if logprob is not None:
            self._sources.add(source)
        details: Json = {}
        trace = line.trace
        fallen = None
        if trace is not None:
            self._has_trace = True
            likeliest = trace.dropped_top_candidate()
            if likeliest is not None and likeliest.dropped_by is not None:
                fallen = [likeliest.id, trace.stages[likeliest.dropped_by].name]
            details = packed_trace(trace)
            for candidate in trace.candidates:
                self._add_piece(candidate.id, candidate.data)
        self._add_piece(line.id, line.data)
        alternatives = self._alternatives([] if shown is None else shown.top_logprobs, set(details.get("ids", ())))
        self._details.append({**details, **({"others": alternatives} if alternatives else {})} or None)
        tokens.ids.append(line.id)
        tokens.texts.append(line.text)
        tokens.logprobs.append(_rounded(logprob))
        tokens.entropies.append(_rounded(entropy))
        tokens.fallen.append(fallen)
        tokens.prompt += line.event == "prompt"
        if len(self._details) == BLOCK_TOKENS:
            self._close_block()

    @staticmethod
    def _alternatives(others: Iterable[RecordedToken], traced: set[int]) -> list[list[Any]]:
        """The likely tokens that the trace does not have: text or bytes, and logprob of each."""
        return [
            [_text_or_bytes(other.data), _rounded(other.logprob)]
            for other in others
            if other.id is None or other.id not in traced
        ]

    def _add_piece(self, token: int | None, data: list[int]) -> None:
        if token is not None and token not in self._pieces:
            self._pieces[token] = _text_or_bytes(data)

    def _close_block(self) -> None:
        if self._details:
            self._blocks.append(pack(self._details) if any(self._details) else "")
            self._details = []

    def _run_name(self) -> str:
        has_id = self._start is not None and self._start.id is not None
        return f"{self._name}: {self._start.id}" if has_id and self._start is not None else self._name

    def _head(self) -> Json:
        tokens = self._tokens
        start = self._start.model_dump() if self._start is not None else {}
        return {
            "name": self._run_name(),
            "model": start.get("model", "?"),
            "seed": start.get("seed"),
            "settings": {
                key: _finite(value)
                for key, value in start.items()
                if key not in _START_FIELDS and value is not None
            },
            "versions": _finite(start.get("versions")),
            "command": start.get("command") if isinstance(start.get("command"), str) else None,
            "isCutOff": self._done is None,
            "finish": None if self._done is None else self._done.finish_reason,
            "source": "/".join(sorted(self._sources)) or None,
            "hasTrace": self._has_trace,
            "blockTokens": BLOCK_TOKENS,
            "promptTokens": tokens.prompt,
            "pieces": [list(self._pieces), list(self._pieces.values())],
            "ids": tokens.ids,
            "texts": tokens.texts,
            "logprobs": tokens.logprobs,
            "entropies": tokens.entropies,
            "fallen": tokens.fallen,
        }


_START_FIELDS = {"event", "model", "seed", "id", "command", "versions"}
"""The fields of the first line that do not go into the page's list of settings."""


@dataclass
class _Tokens:
    """What the page shows of all tokens at once, a list each."""

    ids: list[int | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    entropies: list[float | None] = field(default_factory=list)
    fallen: list[list[Any] | None] = field(default_factory=list)
    """Of each token the id of the likeliest one and the stage that dropped it; None if none did."""
    prompt: int = 0
    """How many of them are the prompt's."""


def pack(value: Any) -> str:
    """A value as JSON, compressed by zlib, in base64."""
    data = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return b64encode(zlib.compress(data, 9)).decode()


def _finite(value: Any) -> Any:
    """The value with a text for each number that JSON does not have."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return {key: _finite(item) for key, item in value.items()} if isinstance(value, dict) else value


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def _text_or_bytes(data: list[int]) -> str | list[int]:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return data


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


_RELATIVE_ERROR = 5e-6
"""A probability that differs more from the one that is computed is stored itself."""


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
