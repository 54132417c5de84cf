"""The step of a batch: penalties, temperature, top-k, top-p and the draw, for every row at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_types import describe
from ..errors import SamplingError
from .counts import TokenCounts, count_tokens
from .logit_table import LogitTable
from .nucleus import count_reaching_p, select_nucleus
from .penalties import NO_PENALTIES, PenalisedLogits, RowSelection, compute_penalties
from .random_draw import draw_from_candidates, draw_from_rows, uniform_numbers
from .request_cache import RequestTokenCache
from .sampling_data import Doubles, Floats, Ints, SamplingData, row_lengths
from .sampling_param import RowPlan, SamplingParam
from .top_candidates import TopCandidates, find_top_candidates

# `sample` is a function, so what outlives a call stands here. It only saves work and changes no result.
_request_cache = RequestTokenCache()


def sample(
    logits: Any, sampling_data: SamplingData | None = None, sampling_param: SamplingParam | None = None
) -> tuple[Ints, Floats | None]:
    """Choose the next token of every row, as a `Chain` of the same steps would.

    Formula for a row: the repetition penalty over input and output, the frequency and presence penalties over the
    output (`penalties` with scope output), `temperature`, `top_k`, `top_p`, then `dist`. The uniform number of a
    row with n output tokens is number n of its seed's sequence. A greedy row takes its highest logit after the
    penalties; of equal logits the first. A row equals its chain bit for bit, whatever the other rows are.

    Args:
        logits: real floats (B, V), a tensor of any library of the Python array API standard. It is not written to.
            In a masked array of NumPy, a masked entry counts as -inf.
        sampling_data: the tokens so far; None: no tokens yet.
        sampling_param: how to sample; None: greedily.

    Returns ``next_tokens``, int64 (B,), and ``logits_or_logprobs``, float32 (B,). The latter holds, for a greedy
    row, the logit after penalties; for a sampled row, the logprob in nats in the distribution that was drawn from.
    It is None if every row is greedy. Raises ``SamplingError`` that names the argument and the row, for wrong
    shapes and dtypes, values out of range, NaN, +inf, and a row of -inf only.
    Source: the `sample` interface of MindIE LLM. Equals llama.cpp as far as the steps do, see their docstrings.
    """
    data, param = _check_arguments(sampling_data, sampling_param)
    table = LogitTable(logits, data.to_tensor or param.to_tensor)
    plan = RowPlan.from_param(param, table.height, table.width)
    _check_rows(data, plan, table.height)
    counts = _count_penalised(data, plan, table)
    if not table.height:
        return np.empty(0, np.int64), None
    penalised = NO_PENALTIES if counts is None else compute_penalties(table, counts, plan)
    if not plan.do_sample.any() and not penalised.rows.size:
        return table.best()[0], None
    step = _BatchStep(table, plan, penalised, _row_numbers(data, plan, table))
    # Finite logits may lie further apart than float32 reaches; each part of the step handles that.
    with np.errstate(over="ignore", under="ignore"):
        step.choose_tokens(np.arange(table.height))
    return step.tokens, step.values if plan.do_sample.any() else None


def _check_arguments(data: object, param: object) -> tuple[SamplingData, SamplingParam]:
    if data is not None and not isinstance(data, SamplingData):
        raise SamplingError(f"sampling_data: expected SamplingData or None, got {describe(data)}")
    if param is not None and not isinstance(param, SamplingParam):
        raise SamplingError(f"sampling_param: expected SamplingParam or None, got {describe(param)}")
    return data or SamplingData(), param or SamplingParam()


def _check_rows(data: SamplingData, plan: RowPlan, height: int) -> None:
    """Raise ``SamplingError`` unless the data have a row for each row of logits, and what the parameters need.

    At the first token there is no output yet, so `output_ids` may be missing.
    """
    for name in ("all_input_ids", "output_ids", "request_ids"):
        array = getattr(data, name)
        if array is not None and len(array) != height:
            raise SamplingError(f"{name}: {len(array)} rows, while logits has {height}")
    requirements = (
        ("all_input_ids", "repetition_penalty", plan.repetition_penalty != 1, False),
        ("output_ids", "frequency_penalty", plan.frequency_penalty != 0, True),
        ("output_ids", "presence_penalty", plan.presence_penalty != 0, True),
        ("output_ids", "seed", plan.do_sample & (plan.seed >= 0), True),
    )
    for name, parameter, is_used, is_optional_at_first in requirements:
        if getattr(data, name) is None and is_used.any() and not (is_optional_at_first and data.is_prefill):
            row = is_used.nonzero()[0][0]
            after = " after the first token" if is_optional_at_first else ""
            raise SamplingError(f"{name}: row {row} has a {parameter}, which needs them{after}")


def _count_penalised(data: SamplingData, plan: RowPlan, table: LogitTable) -> TokenCounts | None:
    """Count the tokens that the penalties of each row use; None if there are none."""
    rows = plan.penalised.nonzero()[0]
    texts = (data.all_input_ids, data.output_ids)
    if not rows.size or all(ids is None for ids in texts):
        return None
    if data.request_ids is not None:
        counts = _request_cache.step(data.request_ids, texts, table.width, data.is_prefill)
        if rows.size == table.height:
            return counts
        counts = counts.of(rows)
    else:
        all_input, output = (None if ids is None else ids[rows] for ids in texts)
        counts = count_tokens(all_input, output, table.width)
    return counts._replace(rows=rows[counts.rows])


def _row_numbers(data: SamplingData, plan: RowPlan, table: LogitTable) -> Doubles:
    """The uniform number of each row, float64 (B,): number n of its sequence for a row with n output tokens."""
    drawn = plan.do_sample.nonzero()[0]
    positions = np.zeros(table.height, np.int64)
    if data.output_ids is not None:
        positions = row_lengths(data.output_ids, table.width)
    u = np.zeros(table.height)
    u[drawn] = uniform_numbers(plan.seed[drawn], positions[drawn])
    return u


class _BatchStep:
    """Chooses the tokens of a batch.

    Results: ``tokens``, int64 (B,), and ``values``, float32 (B,), the logits or logprobs that `sample` returns.
    """

    def __init__(self, table: LogitTable, plan: RowPlan, penalised: PenalisedLogits, u: Doubles) -> None:
        self._table, self._plan, self._penalised, self._u = table, plan, penalised, u
        self.tokens = np.zeros(table.height, np.int64)
        self.values = np.full(table.height, np.nan, np.float32)

    def choose_tokens(self, rows: Ints) -> None:
        """Choose a token for each of these rows, ascending."""
        plan = self._plan
        has_top_k, has_top_p = plan.top_k[rows] > 0, plan.top_p[rows] < 1
        for is_chosen, choose in (
            (has_top_k, self._choose_by_top_k),
            (~has_top_k & has_top_p, self._choose_by_top_p),
            (~has_top_k & ~has_top_p, self._choose_from_all),
        ):
            if is_chosen.any():
                chosen_rows = rows[is_chosen]
                temperature = plan.temperature[chosen_rows]
                choose(RowSelection.create(self._table, chosen_rows, temperature, self._penalised))
        # With a temperature so low that the highest quotient is beyond float32, only the likeliest token remains.
        without_token = rows[np.isnan(self.values[rows])]
        if without_token.size:
            plan.keep_only_best(without_token)
            self.choose_tokens(without_token)

    def _choose_from_all(self, selection: RowSelection) -> None:
        """Draw from whole rows."""
        for positions, scaled, highest in selection.scaled_rows():
            rows = selection.rows[positions]
            self.tokens[rows], probs = draw_from_rows(scaled, highest, self._u[rows])
            self.values[rows] = np.log(probs)

    def _choose_by_top_k(self, selection: RowSelection) -> None:
        """Draw from the k highest candidates, or those of them that reach p; a greedy row has k = 1."""
        for positions, candidates in find_top_candidates(selection, self._plan.top_k[selection.rows]):
            finite = np.isfinite(candidates.logits[:, 0]).nonzero()[0]
            rows, finite_candidates = selection.rows[positions[finite]], candidates.of(finite)
            kept = count_reaching_p(finite_candidates.logits, self._plan.top_k[rows], self._plan.top_p[rows])
            self._draw(rows, finite_candidates, kept)

    def _choose_by_top_p(self, selection: RowSelection) -> None:
        """Draw from the candidates that reach p, without a top_k before it."""
        for positions, scaled, highest in selection.scaled_rows():
            rows = selection.rows[positions]
            for nucleus in select_nucleus(scaled, highest, self._plan.top_p[rows]):
                self._draw(rows[nucleus.rows], nucleus.candidates, nucleus.kept)

    def _draw(self, rows: Ints, candidates: TopCandidates, kept: Ints) -> None:
        """Draw from the first ``kept`` candidates of each row."""
        positions, probs = draw_from_candidates(candidates.logits, kept, self._u[rows])
        self.tokens[rows] = candidates.tokens(positions)
        logits = candidates.logits[np.arange(rows.size), positions]
        self.values[rows] = np.where(self._plan.do_sample[rows], np.log(probs), logits)
