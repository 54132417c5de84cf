"""One step of a batch: penalties, temperature, top-k, top-p and the draw, for all rows together.

Each row draws with the next random number of its seed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..candidates import Candidates
from ..errors import SamplingError
from ..kernels import BLOCK_ROWS, LONG_ROW, Floats, describe, exact_weights
from ..mersenne_twister import next_numbers, seeded_generator
from .arguments import Doubles, Ints, Mask, RowPlan, SamplingData, SamplingParam, row_lengths
from .candidates import TopCandidates, count_reaching_p, find_top_candidates, select_nucleus, softmax_weights
from .logits import LogitTable
from .penalties import (
    NO_PENALTIES,
    BatchRowSelection,
    PenalizedLogits,
    TokenCountCache,
    TokenCounts,
    compute_penalties,
    count_tokens,
)

# The cache is a global variable because `sample` is a function. It saves work, and never changes a result.
_request_cache = TokenCountCache()


def sample(
    logits: Any, sampling_data: SamplingData | None = None, sampling_param: SamplingParam | None = None
) -> tuple[Ints, Floats | None]:
    """Choose the next token of every row, as a `Chain` of the same steps would.

    Formula for a row: the repetition penalty over input and output, the frequency and presence penalties over the
    output (`penalties` with scope output), `temperature`, `top_k`, `top_p`, then `dist`. A row with n output
    tokens draws with number n of its seed's sequence. A greedy row takes the token with the highest logit after
    the penalties; of equal logits the first. Each row equals its chain bit for bit, regardless of the other rows.

    Args:
        logits: real floats (B, V), a tensor of any library of the Python array API standard. It is not written to.
            In a masked array of NumPy, a masked entry counts as -inf.
        sampling_data: the tokens so far; None if there are none.
        sampling_param: the parameters of each row; None if every row is greedy.

    Returns ``next_tokens``, int64 (B,), and ``logits_or_logprobs``, float32 (B,). The second array has the logit
    after penalties for a greedy row. For other rows it has the logprob, in nats, in the distribution of the draw.
    It is None if every row is greedy. Raises ``SamplingError``, whose message names the argument and the row, for
    wrong shapes and dtypes, values that are not allowed, NaN, +inf, and a row of -inf only. Source: the `sample`
    interface of MindIE LLM. The docstring of each step says whether it equals llama.cpp's.
    """
    data, param = _check_arguments(sampling_data, sampling_param)
    table = LogitTable(logits, data.to_tensor or param.to_tensor)
    plan = RowPlan.from_param(param, table.height, table.width)
    _check_rows(data, plan, table.height)
    counts = _count_penalized(data, plan, table)
    if not table.height:
        return np.empty(0, np.int64), None
    penalized = NO_PENALTIES if counts is None else compute_penalties(table, counts, plan)
    if not plan.do_sample.any() and not penalized.rows.size:
        return table.top_tokens()[0], None
    step = _BatchStep(table, plan, penalized, _random_numbers_of_rows(data, plan, table))
    # The difference of two finite logits may exceed float32. Each part of the step handles that.
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
    """Raise ``SamplingError`` if an array has the wrong number of rows, or a parameter needs a missing array."""
    for name in ("all_input_ids", "output_ids", "request_ids"):
        array = getattr(data, name)
        if array is not None and len(array) != height:
            raise SamplingError(f"{name}: {len(array)} rows, while logits has {height}")
    if data.all_input_ids is None:
        _check_unused("all_input_ids", "repetition_penalty", plan.repetition_penalty != 1, "requires them")
    if data.output_ids is None and not data.is_prefill:  # before the first token there is no output
        reason = "requires them after the first token"
        _check_unused("output_ids", "frequency_penalty", plan.frequency_penalty != 0, reason)
        _check_unused("output_ids", "presence_penalty", plan.presence_penalty != 0, reason)
        _check_unused("output_ids", "seed", plan.do_sample & (plan.seed >= 0), reason)


def _check_unused(missing_array: str, parameter: str, is_used: Mask, reason: str) -> None:
    """Raise ``SamplingError`` if a row uses the parameter, which needs the missing array."""
    if is_used.any():
        row = is_used.nonzero()[0][0]
        raise SamplingError(f"{missing_array}: row {row} has a {parameter}, which {reason}")


def _count_penalized(data: SamplingData, plan: RowPlan, table: LogitTable) -> TokenCounts | None:
    """Count the tokens of the rows with a penalty; return None if there are none."""
    rows = plan.has_penalty.nonzero()[0]
    texts = (data.all_input_ids, data.output_ids)
    if not rows.size or all(ids is None for ids in texts):
        return None
    if data.request_ids is not None:
        counts = _request_cache.step(data.request_ids, texts, table.width, data.is_prefill)
        if rows.size == table.height:
            return counts
        counts = counts.select_rows(rows)
    else:
        all_input, output = (None if ids is None else ids[rows] for ids in texts)
        counts = count_tokens(all_input, output, table.width)
    return counts._replace(rows=rows[counts.rows])


def _random_numbers_of_rows(data: SamplingData, plan: RowPlan, table: LogitTable) -> Doubles:
    """Return a random number for each row, float64 (B,)."""
    # A row with n output tokens gets number n of its seed's sequence.
    sampled_rows = plan.do_sample.nonzero()[0]
    positions = np.zeros(table.height, np.int64)
    if data.output_ids is not None:
        positions = row_lengths(data.output_ids, table.width)
    random_numbers = np.zeros(table.height)
    random_numbers[sampled_rows] = uniform_numbers(plan.seed[sampled_rows], positions[sampled_rows])
    return random_numbers


class _BatchStep:
    """The choice of tokens for the rows of a batch."""

    def __init__(self, table: LogitTable, plan: RowPlan, penalized: PenalizedLogits, u: Doubles) -> None:
        self._table = table
        self._plan = plan
        self._penalized = penalized
        self._random_numbers = u
        self.tokens = np.zeros(table.height, np.int64)  # the chosen tokens, int64 (B,)
        # the logits or logprobs that `sample` returns, float32 (B,); NaN for a row without a token yet
        self.values = np.full(table.height, np.nan, np.float32)

    def choose_tokens(self, rows: Ints) -> None:
        """Choose a token for each of some ascending rows."""
        has_top_k = self._plan.top_k[rows] > 0
        has_top_p = self._plan.top_p[rows] < 1
        self._choose_by_top_k(self._select(rows[has_top_k]))
        self._choose_by_top_p(self._select(rows[~has_top_k & has_top_p]))
        self._choose_from_all(self._select(rows[~has_top_k & ~has_top_p]))
        # If the temperature is so low that the highest quotient exceeds float32, the row has no token yet. Only
        # the most likely token remains.
        rows_without_token = rows[np.isnan(self.values[rows])]
        if rows_without_token.size:
            self._plan.keep_only_best(rows_without_token)
            self.choose_tokens(rows_without_token)

    def _select(self, rows: Ints) -> BatchRowSelection:
        return BatchRowSelection.create(self._table, rows, self._plan.temperature[rows], self._penalized)

    def _choose_from_all(self, selection: BatchRowSelection) -> None:
        """Draw from all tokens of the rows."""
        for positions, scaled, highest in selection.scaled_rows():
            rows = selection.rows[positions]
            self.tokens[rows], probs = draw_from_rows(scaled, highest, self._random_numbers[rows])
            self.values[rows] = np.log(probs)

    def _choose_by_top_k(self, selection: BatchRowSelection) -> None:
        """Draw from the k highest candidates, or from the first of these that reach top-p."""
        # A greedy row has k = 1.
        for positions, candidates in find_top_candidates(selection, self._plan.top_k[selection.rows]):
            finite_positions = np.isfinite(candidates.logits[:, 0]).nonzero()[0]
            finite_candidates = candidates.select_rows(finite_positions)
            rows = selection.rows[positions[finite_positions]]
            kept_counts = count_reaching_p(
                finite_candidates.logits, self._plan.top_k[rows], self._plan.top_p[rows]
            )
            self._draw(rows, finite_candidates, kept_counts)

    def _choose_by_top_p(self, selection: BatchRowSelection) -> None:
        """Draw from the candidates that reach top-p, for rows without a top_k."""
        for positions, scaled, highest in selection.scaled_rows():
            rows = selection.rows[positions]
            for nucleus in select_nucleus(scaled, highest, self._plan.top_p[rows]):
                self._draw(rows[nucleus.rows], nucleus.candidates, nucleus.kept_counts)

    def _draw(self, rows: Ints, candidates: TopCandidates, kept_counts: Ints) -> None:
        """Draw from the first ``kept_counts`` candidates of each row."""
        positions, probs = draw_from_candidates(candidates.logits, kept_counts, self._random_numbers[rows])
        self.tokens[rows] = candidates.tokens(positions)
        logits = candidates.logits[np.arange(rows.size), positions]
        self.values[rows] = np.where(self._plan.do_sample[rows], np.log(probs), logits)


def uniform_numbers(seeds: Ints, positions: Ints) -> Doubles:
    """Return number ``positions[i]`` of the sequence of ``seeds[i]``, each in [0, 1): float64 (n,)."""
    # A seed is 0..2^32-1; -1 means an unpredictable number. Source: MT19937 as libstdc++ draws from it. Number n
    # is what call n of `MersenneTwister.uniform` returns, counted from 0.
    numbers = np.zeros(seeds.size)
    for row, (seed, position) in enumerate(zip(seeds.tolist(), positions.tolist(), strict=True)):
        if seed >= 0:
            numbers[row] = _random_number_at(seed, position)
    is_unseeded = seeds < 0
    if is_unseeded.any():
        numbers[is_unseeded] = np.random.default_rng().random(np.count_nonzero(is_unseeded))
    return numbers


def _random_number_at(seed: int, position: int) -> float:
    page, position_in_page = divmod(position, _PAGE_SIZE)
    return _random_number_page(seed, page)[position_in_page]


_PAGE_SIZE = 256  # number of random numbers that are generated together


@lru_cache(maxsize=4096)
def _random_number_page(seed: int, page: int) -> list[float]:
    """Return a page of consecutive random numbers. Each page is generated from the start of the sequence."""
    generator = seeded_generator(seed)
    next_numbers(generator, _PAGE_SIZE * page)
    return next_numbers(generator, _PAGE_SIZE).tolist()


def draw_from_candidates(logits: Floats, kept_counts: Ints, u: Doubles) -> tuple[Ints, Doubles]:
    """Draw a candidate of each row, as `Candidates.pick`; return its position and its probability, both (R,)."""
    # ``logits``: candidates from high to low, (R, n). Only the first ``kept_counts`` of a row are drawn from.
    weights = softmax_weights(logits)
    weights[np.arange(weights.shape[1]) >= kept_counts[:, None]] = 0
    sums = np.add.accumulate(weights, axis=1, dtype=np.float64)
    total = sums[:, -1]
    positions = _first_position_reaching(sums, total * u)
    # `Candidates.pick` adds the weights of a long row block by block, which may round differently.
    for row in (kept_counts > LONG_ROW).nonzero()[0]:
        row_logits = np.full(kept_counts[row], -np.inf, np.float32)
        row_logits[: logits.shape[1]] = logits[row, : kept_counts[row]]
        positions[row] = Candidates(row_logits).pick(float(u[row]))
    probs: Doubles = weights[np.arange(positions.size), positions] / total
    return positions, probs


def draw_from_rows(scaled: Floats, highest: Floats, u: Doubles) -> tuple[Ints, Doubles]:
    """Draw a token from all tokens of each row; return the drawn tokens, (R,), and their probabilities, (R,)."""
    # A row draws the first token whose running sum of weights, in float64, reaches u times the total, as
    # `Candidates.pick` does. Weights in single precision are used first, which is twice as fast. If u is so near
    # to the border of a token that rounding errors matter, the exact weights decide. ``scaled``, (R, V), is
    # overwritten.
    differences = np.subtract(scaled, highest[:, None], out=scaled)
    tokens, probs, is_certain = _locate_tokens(np.exp(differences), u, np.float32)
    uncertain_rows = (~is_certain).nonzero()[0]
    if uncertain_rows.size:
        weights = exact_weights(differences[uncertain_rows])
        exact = _locate_tokens(weights, u[uncertain_rows], np.float64)
        tokens[uncertain_rows] = exact.tokens
        probs[uncertain_rows] = exact.probs
    return tokens, probs


class _LocatedTokens(NamedTuple):
    """The drawn token of each row."""

    tokens: Ints  # token ids, (R,)
    probs: Doubles  # probabilities of these tokens, (R,)
    is_certain: Mask  # for each row, whether exact weights are sure to draw the same token, (R,)


# Greatest error of a sum of single-precision weights, as a fraction of the total. NumPy's exp is off by at most 3
# units in the last place, and its sum of 512 weights by 21. This allows 32 units for each of the two sums.
_MAX_RELATIVE_ERROR = 64 * 2.0**-24


def _locate_tokens(weights: Floats, u: Doubles, dtype: type[np.floating]) -> _LocatedTokens:
    """Find the token that ``u`` selects in each row. The sums of blocks have a certain ``dtype``."""
    all_rows = np.arange(u.size)
    width = weights.shape[1]
    block_size = BLOCK_ROWS if width > LONG_ROW else width
    block_sums = np.add.reduceat(weights, np.arange(0, width, block_size), axis=1, dtype=dtype)
    sums_up_to_blocks = np.add.accumulate(block_sums, axis=1, dtype=np.float64)
    total = sums_up_to_blocks[:, -1]
    block = _first_position_reaching(sums_up_to_blocks, total * u)
    ids = (block * block_size)[:, None] + np.arange(block_size)
    # The last block may be shorter than the others. Ids after the last token get the weight 0.
    block_weights = np.where(ids < width, np.take_along_axis(weights, np.minimum(ids, width - 1), axis=1), 0)
    sums = np.add.accumulate(block_weights, axis=1, dtype=np.float64)
    if block_size == width:
        total = sums[:, -1]
    sum_before_block = np.where(block > 0, sums_up_to_blocks[all_rows, block - 1], 0.0)
    target = total * u - sum_before_block
    position = _first_position_reaching(sums, target)
    lower_sum = np.where(position > 0, sums[all_rows, position - 1], 0.0)
    upper_sum = sums[all_rows, position]
    distance = np.minimum(target - lower_sum, upper_sum - target)
    return _LocatedTokens(
        tokens=block * block_size + position,
        probs=block_weights[all_rows, position] / total,
        is_certain=distance > _MAX_RELATIVE_ERROR * total,
    )


def _first_position_reaching(sums: Doubles, target: Doubles) -> Ints:
    """Return the first position in each row at which the running sum reaches the target, or the total."""
    positions: Ints = np.count_nonzero(sums < np.minimum(target, sums[:, -1])[:, None], axis=1)
    return positions
