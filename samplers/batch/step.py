"""The step of a batch: penalties, temperature, top-k, top-p and the draw, for every row at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import describe
from ..errors import SamplingError
from .cache import RequestCache
from .counts import Counts, count
from .data import Doubles, Floats, Ints, SamplingData, lengths
from .draw import draw, draw_whole, numbers
from .heads import Heads, heads
from .nucleus import nucleus, reaching_p
from .param import Plan, SamplingParam
from .penalties import NOTHING, Part, Touched, penalise
from .tensors import Table

# What outlives a call, since the interface is a function. It changes no result, and only saves work.
_requests = RequestCache()


def sample(
    logits: Any, sampling_data: SamplingData | None = None, sampling_param: SamplingParam | None = None
) -> tuple[Ints, Floats | None]:
    """Choose the next token of every row, as a `Chain` of the same steps would.

    Formula, a row: repetition penalty over input and output, frequency and presence over the output
    (`penalties`, scope output), `temperature`, `top_k`, `top_p`, then `dist`, whose number u is the one
    after as many as the row has output tokens; a greedy row takes its highest logit after the penalties, of
    equal ones the first. Equal to the chain bit for bit, whatever the other rows are.

    ``logits``: real floats (B, V), a tensor of any library of the Python array API standard; not written to.
    ``sampling_data``: the tokens so far; None: none yet. ``sampling_param``: how to sample; None: greedily.
    Returns ``next_tokens``, int64 (B,), and ``logits_or_logprobs``, float32 (B,): of a greedy row the logit after
    penalties, of a sampled one the logprob, in nats, in the distribution that was drawn from; None where every row
    is greedy.
    Raises ``SamplingError`` that names the argument and the row: shapes, dtypes, values out of range, NaN, +inf, a
    row of -inf only.
    Source: the `sample` interface of MindIE LLM. Equal to llama.cpp as far as the steps are, see their docstrings.
    """
    data, param = _checked(sampling_data, sampling_param)
    table = Table(logits, data.to_tensor or param.to_tensor)
    plan = Plan.of(param, table.height, table.width)
    _fit(data, plan, table.height)
    counts = _counts(data, plan, table)
    if not table.height:
        return np.empty(0, np.int64), None
    touched = NOTHING if counts is None else penalise(table, counts, plan)
    if not plan.do_sample.any() and not touched.rows.size:
        return table.best()[0], None
    step = _Step(table, plan, touched, _numbers(data, plan, table))
    # Finite logits may lie further apart than float32 reaches, also after a temperature; each part sees to that.
    with np.errstate(over="ignore", under="ignore"):
        step.settle(np.arange(table.height))
    return step.tokens, step.values if plan.do_sample.any() else None


def _checked(data: object, param: object) -> tuple[SamplingData, SamplingParam]:
    if data is not None and not isinstance(data, SamplingData):
        raise SamplingError(f"sampling_data: expected SamplingData or None, got {describe(data)}")
    if param is not None and not isinstance(param, SamplingParam):
        raise SamplingError(f"sampling_param: expected SamplingParam or None, got {describe(param)}")
    return data or SamplingData(), param or SamplingParam()


def _fit(data: SamplingData, plan: Plan, height: int) -> None:
    """Raise ``SamplingError`` unless there are the texts that the parameters need, a row for each of the logits.

    Without `output_ids` there is no output yet, so at a first token these may be missing.
    """
    for name in ("all_input_ids", "output_ids", "request_ids"):
        array = getattr(data, name)
        if array is not None and len(array) != height:
            raise SamplingError(f"{name}: {len(array)} rows, while logits has {height}")
    needs = (
        ("all_input_ids", "repetition_penalty", plan.repetition_penalty != 1, False),
        ("output_ids", "frequency_penalty", plan.frequency_penalty != 0, True),
        ("output_ids", "presence_penalty", plan.presence_penalty != 0, True),
        ("output_ids", "seed", plan.do_sample & (plan.seed >= 0), True),
    )
    for name, parameter, wanted, later in needs:
        if getattr(data, name) is None and wanted.any() and not (later and data.is_prefill):
            row = wanted.nonzero()[0][0]
            after = " after the first token" if later else ""
            raise SamplingError(f"{name}: row {row} has a {parameter}, which needs them{after}")


def _counts(data: SamplingData, plan: Plan, table: Table) -> Counts | None:
    """The tokens that the penalties of each row look at, or None if there are none."""
    rows = plan.penalised.nonzero()[0]
    texts = (data.all_input_ids, data.output_ids)
    if not rows.size or all(ids is None for ids in texts):
        return None
    if data.request_ids is not None:
        found = _requests.step(data.request_ids, texts, table.width, data.is_prefill)
        if rows.size == table.height:
            return found
        found = found.of(rows)
    else:
        everything, output = (None if ids is None else ids[rows] for ids in texts)
        found = count(everything, output, table.width)
    return found._replace(rows=rows[found.rows])


def _numbers(data: SamplingData, plan: Plan, table: Table) -> Doubles:
    """The uniform number of each row, float64 (B,): as many came before as the row has output tokens."""
    drawn = plan.do_sample.nonzero()[0]
    places = np.zeros(table.height, np.int64)
    if data.output_ids is not None:
        places = lengths(data.output_ids, table.width)
    u = np.zeros(table.height)
    u[drawn] = numbers(plan.seed[drawn], places[drawn])
    return u


class _Step:
    """What is known of a step, and what comes out: ``tokens``, int64 (B,), and ``values``, float32 (B,)."""

    def __init__(self, table: Table, plan: Plan, touched: Touched, u: Doubles) -> None:
        self._table, self._plan, self._touched, self._u = table, plan, touched, u
        self.tokens = np.zeros(table.height, np.int64)
        self.values = np.full(table.height, np.nan, np.float32)

    def settle(self, rows: Ints) -> None:
        """Choose a token for each of these rows, ascending."""
        plan = self._plan
        cut, nucleus = plan.top_k[rows] > 0, plan.top_p[rows] < 1
        for which, choose in (
            (cut, self._cut),
            (~cut & nucleus, self._nucleus),
            (~cut & ~nucleus, self._uncut),
        ):
            if which.any():
                some = rows[which]
                choose(Part.make(self._table, some, plan.temperature[some], self._touched))
        # A temperature so low that the highest quotient is beyond float32 leaves the most likely token only.
        lost = rows[np.isnan(self.values[rows])]
        if lost.size:
            plan.only_best(lost)
            self.settle(lost)

    def _uncut(self, part: Part) -> None:
        """The draw from whole rows."""
        for places, quotients, highest in part.quotients():
            rows = part.rows[places]
            self.tokens[rows], probs = draw_whole(quotients, highest, self._u[rows])
            self.values[rows] = np.log(probs)

    def _cut(self, part: Part) -> None:
        """The draw among the k highest, or those of them that reach p; a greedy row has only one."""
        for places, found in heads(part, self._plan.top_k[part.rows]):
            finite = np.isfinite(found.logits[:, 0]).nonzero()[0]
            rows, found = part.rows[places[finite]], found.of(finite)  # noqa: PLW2901
            self._draw(rows, found, reaching_p(found.logits, self._plan.top_k[rows], self._plan.top_p[rows]))

    def _nucleus(self, part: Part) -> None:
        """The draw among those that reach p, with no top_k before it."""
        for places, quotients, highest in part.quotients():
            rows = part.rows[places]
            for some, found, kept in nucleus(quotients, highest, self._plan.top_p[rows]):
                self._draw(rows[some], found, kept)

    def _draw(self, rows: Ints, found: Heads, kept: Ints) -> None:
        """The draw from the first ``kept`` candidates of each row."""
        places, probs = draw(found.logits, kept, self._u[rows])
        self.tokens[rows] = found.tokens(places)
        chosen = found.logits[np.arange(rows.size), places]
        self.values[rows] = np.where(self._plan.do_sample[rows], np.log(probs), chosen)
