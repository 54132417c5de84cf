"""The data of a run in a report: an overview that the page needs first, and blocks with the traces of tokens.

A trace is packed into a few numbers, from which the HTML page computes the probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, isfinite, log
from typing import Any

from ..recorded import (
    RecordedCandidate,
    RecordedDistribution,
    RecordedDone,
    RecordedEvent,
    RecordedRewind,
    RecordedStart,
    RecordedToken,
    RecordedTokenLine,
    RecordedTrace,
)
from ..records import LogprobSource
from ..web import pack

Json = dict[str, Any]
Column = Sequence[float | None]
# Number of tokens whose traces are in one block. A block has about 60 KB, and is unpacked in milliseconds.
TOKENS_PER_BLOCK = 128
# Decimals of logits, logprobs and entropies. Probabilities are then exact to a millionth.
_DECIMALS = 6


@dataclass(frozen=True)
class RunData:
    """A run, packed for a page."""

    name: str
    # Settings, texts and logprobs of the run, compressed and base64-encoded.
    overview: str
    # Traces and alternatives of `TOKENS_PER_BLOCK` tokens each, compressed and base64-encoded; empty without any.
    blocks: list[str]
    token_count: int
    # Whether the record of the run does not end with a done line.
    is_cut_off: bool


class RunReader:
    """A reader that packs the events of a run one by one, so that a long run is never in memory completely."""

    # `source`: the distribution to show if the run has two; None for the first one.
    def __init__(self, name: str, source: LogprobSource | None) -> None:
        self._name = name
        self._source = source
        self._start: RecordedStart | None = None
        self._done: RecordedDone | None = None
        self._tokens = _TokenColumns()
        # Content of each token by id: text, or bytes if they are not UTF-8.
        self._contents: dict[int, str | list[int]] = {}
        # Trace and alternatives of each token of the current block.
        self._block_details: list[Json | None] = []
        self._blocks: list[str] = []
        # The distributions that the shown logprobs are from: `model`, `chain` or both.
        self._sources: set[str] = set()
        self._has_trace = False
        # Returns to tokens whose lines have not been read.
        self._waiting_returns: list[RecordedRewind] = []

    def read(self, events: Iterable[RecordedEvent]) -> RunData | None:
        """Pack the events of the run. Return None if there are no events."""
        is_empty = True
        for event in events:
            is_empty = False
            if isinstance(event, RecordedStart):
                self._start = event
            elif isinstance(event, RecordedTokenLine):
                self._add_token(event)
            elif isinstance(event, RecordedRewind):
                # What was dropped at later tokens is of no interest, because these are drawn again.
                self._waiting_returns = [item for item in self._waiting_returns if item.index <= event.index]
                self._waiting_returns.append(event)
            elif isinstance(event, RecordedDone):
                self._done = event
        if is_empty:
            return None
        self._close_block()
        return RunData(
            name=self._run_name(),
            overview=pack(self._overview()),
            blocks=self._blocks,
            token_count=len(self._tokens.ids),
            is_cut_off=self._done is None,
        )

    def _add_token(self, line: RecordedTokenLine) -> None:
        tokens = self._tokens
        source = self._source or line.logprobs_from or "model"
        distribution = line.distribution(source) or RecordedDistribution()
        if distribution.logprob is not None:
            self._sources.add(source)
        dropped_candidate: list[Any] | None = None
        details: Json = {}
        trace = line.trace
        if trace is not None:
            self._has_trace = True
            top = trace.dropped_top_candidate()
            if top is not None and top.dropped_by is not None:
                dropped_candidate = [top.id, trace.stages[top.dropped_by].name]
            details = packed_trace(trace)
            for candidate in trace.candidates:
                self._add_content(candidate.id, candidate.data)
        self._add_content(line.id, line.data)
        alternatives = self._alternatives(distribution.top_logprobs, set(details.get("ids", ())))
        if alternatives:
            details["alternatives"] = alternatives
        self._block_details.append(details or None)
        if line.event == "prompt":
            tokens.prompt_count += 1
        else:
            self._add_returns(len(tokens.ids) - tokens.prompt_count)
        tokens.ids.append(line.id)
        tokens.texts.append(line.text)
        tokens.logprobs.append(_round(distribution.logprob))
        tokens.entropies.append(_round(distribution.entropy))
        tokens.dropped_candidates.append(dropped_candidate)
        if len(self._block_details) == TOKENS_PER_BLOCK:
            self._close_block()

    def _add_returns(self, index: int) -> None:
        """Add the returns to the generated token with this index, which is the next token."""
        returns = [[item.ban, item.text] for item in self._waiting_returns if item.index == index]
        if returns:
            self._tokens.returns[len(self._tokens.ids)] = returns

    @staticmethod
    def _alternatives(top_tokens: Iterable[RecordedToken], traced_ids: set[int]) -> list[list[Any]]:
        """Return the text or bytes and the logprob of each likely token that the trace does not contain."""
        return [
            [_text_or_bytes(token.data), _round(token.logprob)]
            for token in top_tokens
            if token.id is None or token.id not in traced_ids
        ]

    def _add_content(self, token_id: int | None, data: list[int]) -> None:
        if token_id is not None and token_id not in self._contents:
            self._contents[token_id] = _text_or_bytes(data)

    def _close_block(self) -> None:
        if self._block_details:
            self._blocks.append(pack(self._block_details) if any(self._block_details) else "")
            self._block_details = []

    def _run_name(self) -> str:
        label = None if self._start is None else self._start.label
        return self._name if label is None else f"{self._name}: {label}"

    def _overview(self) -> Json:
        tokens = self._tokens
        start = self._start.model_dump() if self._start is not None else {}
        settings = {}
        for name, value in start.items():
            if name not in _START_FIELDS and value is not None:
                settings[name] = _finite(value)
        command = start.get("command")
        return {
            "name": self._run_name(),
            "model": start.get("model", "?"),
            "seed": start.get("seed"),
            "settings": settings,
            "versions": _finite(start.get("versions")),
            "command": command if isinstance(command, str) else None,
            "isCutOff": self._done is None,
            "finish": None if self._done is None else self._done.finish_reason,
            "source": "/".join(sorted(self._sources)) or None,
            "hasTrace": self._has_trace,
            "blockTokens": TOKENS_PER_BLOCK,
            "promptTokens": tokens.prompt_count,
            "contents": [list(self._contents), list(self._contents.values())],
            "ids": tokens.ids,
            "texts": tokens.texts,
            "logprobs": tokens.logprobs,
            "entropies": tokens.entropies,
            "droppedTop": tokens.dropped_candidates,
            "returns": tokens.returns,
        }


# The fields of the first line that are not part of the page's list of settings.
_START_FIELDS = {"event", "model", "seed", "id", "sample", "beam", "command", "versions"}


@dataclass
class _TokenColumns:
    """The values of all tokens that the page needs first, in one list per kind of value."""

    ids: list[int | None] = field(default_factory=list)
    # The text that each token added to the run.
    texts: list[str] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    entropies: list[float | None] = field(default_factory=list)
    # For each token, the id of the most likely token and the name of the stage that dropped it.
    dropped_candidates: list[list[Any] | None] = field(default_factory=list)
    # By the position of a token, the ban and the text of each return to this token. The ban of a loop is None.
    returns: dict[int, list[list[str | None]]] = field(default_factory=dict)
    prompt_count: int = 0


def _finite(value: Any) -> Any:
    """Return the value with strings in place of numbers that JSON does not support, such as infinity."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def _text_or_bytes(data: list[int]) -> str | list[int]:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return data


def packed_trace(trace: RecordedTrace) -> Json:
    """Return a trace without the values that can be computed from other values."""
    # The fields are:
    #
    # - ``stages``: the stages of the trace, unchanged.
    # - ``ids``: the token ids of the candidates.
    # - ``dropped``: for each candidate, the index of the stage that dropped it, or -1.
    # - ``logits``: for each stage, the logits of the candidates, or null if the stage changed none.
    # - ``totals``: for each stage, the number ``total`` in probability = exp(logit - total), or a list of the
    #   probabilities if that formula does not give them.
    # - ``draw``: the random number and the interval of the chosen token, or null.
    # - ``forced``: true if the grammar forced the token; otherwise missing.
    candidates = trace.candidates
    dropped_by = [_dropped_by(candidate) for candidate in candidates]
    changed_logits: list[Column | None] = []
    totals: list[float | Column] = []
    previous_logits: Column | None = None
    for stage in range(len(trace.stages)):
        is_present = [dropped < 0 or stage < dropped for dropped in dropped_by]
        logits = [_round(candidate.logits[stage]) for candidate in candidates]
        probs = [candidate.probs[stage] for candidate in candidates]
        is_unchanged = previous_logits is not None and _are_equal(previous_logits, logits, is_present)
        changed_logits.append(None if is_unchanged else logits)
        totals.append(_log_total(logits, probs, is_present))
        previous_logits = logits
    return {
        "stages": [stage.model_dump(exclude_none=True) for stage in trace.stages],
        "ids": [candidate.id for candidate in candidates],
        "dropped": dropped_by,
        "logits": changed_logits,
        "totals": totals,
        "draw": None if trace.draw is None else [trace.draw.u, trace.draw.low, trace.draw.high],
        **({"forced": True} if trace.forced else {}),
    }


def _dropped_by(candidate: RecordedCandidate) -> int:
    """Return the index of the stage that dropped the candidate; -1 if no stage dropped it."""
    if candidate.probs[-1] is not None:
        return -1
    stages_with_candidate = [stage for stage, prob in enumerate(candidate.probs) if prob is not None]
    return max(stages_with_candidate, default=-1) + 1


def _are_equal(old_logits: Column, new_logits: Column, is_present: Sequence[bool]) -> bool:
    """Return whether all candidates that are present have the same logit in both columns."""
    rows = zip(old_logits, new_logits, is_present, strict=True)
    return all(old == new for old, new, present in rows if present)


_MAX_RELATIVE_ERROR = 5e-6  # of a probability that is computed from a logit
_MAX_ABSOLUTE_ERROR = 1e-15


def _log_total(logits: Column, probs: Column, is_present: Sequence[bool]) -> float | Column:
    """Return the logarithm of the sum of exp(logit); a list of the probabilities if they do not follow from it."""
    rows = list(zip(logits, probs, is_present, strict=True))
    # The highest probability is the most exact one.
    known_rows = [(prob, logit - log(prob)) for logit, prob, _ in rows if logit is not None and prob]
    if known_rows:
        _, exact_log_total = max(known_rows)
        log_total = round(exact_log_total, _DECIMALS)
        if all(_follows(logit, prob, log_total) if present else prob is None for logit, prob, present in rows):
            return log_total
    return [None if prob is None else float(f"{prob:.7g}") for prob in probs]


def _follows(logit: float | None, prob: float | None, log_total: float) -> bool:
    """Return whether a probability is exp(logit - log_total), except for rounding."""
    if prob is None or logit is None:
        return prob == 0
    computed_prob = exp(min(logit - log_total, 1.0))  # a wrong total could cause an overflow
    return abs(computed_prob - prob) <= _MAX_RELATIVE_ERROR * prob + _MAX_ABSOLUTE_ERROR
