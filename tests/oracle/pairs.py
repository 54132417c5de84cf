"""Chains of two and three of llama.cpp's samplers, compared with ours step by step, draw by draw."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from logitsmith.samplers import Candidates, build

from .native import Left, NativeChain

WINDOW = 32
"""How far penalties look back, in tokens."""
DRAWS = 8
"""Rows in a table, and so draws in a comparison."""
RTOL = 3e-6
"""Of logits: a power or a logarithm of libm is sometimes wrong in the last bit."""

NAN_ENTROPY = "typical on rows of no probability: llama.cpp's entropy is NaN"
SORTED_BIAS = "logit_bias on sorted rows: llama.cpp still takes them to be sorted"
EQUAL_SCORES = "typical: scores that are equal but for the last bits"

STEPS: dict[str, list[dict[str, Any]]] = {
    "temperature": [{"t": 1.4}, {"t": 0.0}],
    "dynatemp": [{"temperature": 1.0, "range": 0.6, "exponent": 1.3}, {"temperature": 0.6, "range": 0.5}],
    "top_k": [{"k": 12}, {"k": 140}],
    "top_p": [{"p": 0.8}, {"p": 0.5, "min_keep": 5}],
    "min_p": [{"p": 0.1}, {"p": 0.5, "min_keep": 5}],
    "typical": [{"p": 0.7}, {"p": 0.3, "min_keep": 4}],
    "top_n_sigma": [{"n": 1.5}, {"n": 0.4}],
    "xtc": [{"probability": 0.5, "threshold": 0.08}, {"probability": 0.6, "threshold": 0.01, "min_keep": 9}],
    "penalties": [{"repeat": 1.3, "frequency": 0.2, "presence": 0.3, "last_n": WINDOW}],
    "dry": [{"multiplier": 0.8, "allowed_length": 1, "breakers": []}],
    "logit_bias": [{"bias": {}}],  # filled in for each row: see `steps_for`
    "infill": [{}],
}
"""Every sampler of llama.cpp that does not select, with parameters that act."""

SELECTORS: dict[str, dict[str, Any]] = {
    "dist": {},
    "greedy": {},
    "mirostat": {"tau": 3.0, "m": 20, "overflow": "one"},
    "mirostat_v2": {"tau": 3.0},
    "adaptive_p": {"target": 0.4},
}


class Rows(NamedTuple):
    """Rows of logits, float32 (n,) each, over the same tokens, with a text before them."""

    ids: np.ndarray
    logits: list[np.ndarray]
    prompt: list[int]
    bias: dict[int, float]
    has_ties: bool


class Outcome(NamedTuple):
    """The number of equal draws, and the reason why the comparison ended early, if it did."""

    draws: int
    end: str | None


def distinct_rows(vocabulary: Any, seed: int) -> Rows:
    """Peaked, flat and ordinary rows in which no two logits are equal, in turn."""
    rng = np.random.default_rng(seed)
    ends = sorted(vocabulary.eog)
    text = [i for i in range(vocabulary.size) if i not in vocabulary.eog and vocabulary.pieces[i]]
    ids = rng.permutation([*ends, *rng.choice(text, 150, replace=False)]).astype(np.int32)
    logits = []
    for number in range(DRAWS):
        row = rng.permutation(np.linspace(-3, 3, ids.size) + rng.uniform(0, 1e-3, ids.size))
        if number % 4 == 0:
            row *= 2
            row[rng.integers(ids.size)] += 14  # one row is left after top_n_sigma
        elif number % 4 == 1:
            row *= 0.05
        elif number % 4 == 2:
            row = row**3 / 3
        else:
            row[rng.integers(0, ids.size, 3)] += [4, 3.5, 3]
        if number % 3:
            row[np.isin(ids, ends)] -= 9  # else infill ends the text every time
        logits.append(row.astype(np.float32))
    a, b, c, d = ids[:4].tolist()
    bias = dict(zip(ids[5:25].tolist(), rng.uniform(-2, 2, 20).tolist(), strict=True))
    return Rows(ids, logits, [a, b, c, a, b, d, a, b], bias, has_ties=False)


def tied_rows(vocabulary: Any, seed: int) -> Rows:
    """Rows in groups of equal logits. A group is penalized and biased as one, so that its order changes no logit.

    No piece begins another, for infill. Llama.cpp's sort is unstable, so which of equal rows comes first differs.
    """
    rng = np.random.default_rng(seed)
    ends = sorted(vocabulary.eog)
    pieces: dict[bytes, int] = {}
    for token in rng.permutation(vocabulary.size).tolist():
        piece = vocabulary.pieces[token]
        if (
            len(piece) > 2
            and token not in vocabulary.eog
            and not any(piece.startswith(other) or other.startswith(piece) for other in pieces)
        ):
            pieces[piece] = token
        if len(pieces) == 150:
            break
    groups = np.array_split(np.array(list(pieces.values())), 30)
    ids = np.concatenate([*groups, ends]).astype(np.int32)
    logits = []
    for number in range(DRAWS):
        heights = rng.normal(0, [3.0, 0.1, 1.0][number % 3], len(groups))
        heights[rng.integers(len(groups))] += [12, 0, 4][number % 3]
        row = np.concatenate([np.repeat(heights, [group.size for group in groups]), np.full(len(ends), -9.0)])
        logits.append(row.astype(np.float32))
    a, b = np.setdiff1d(np.arange(vocabulary.size), ids)[:2].tolist()  # not among the rows
    prompt = [*itertools.chain(*((a, b, token) for token in groups[1].tolist())), *groups[2].tolist() * 3, a, b]
    assert len(prompt) == WINDOW
    bias = dict.fromkeys(groups[3].tolist(), 1.5) | dict.fromkeys(groups[4].tolist(), -1.0)
    return Rows(ids, logits, prompt, bias, has_ties=True)


def variants(names: Sequence[str], rows: Rows) -> Iterator[list[dict[str, Any]]]:
    """Yield chains of these samplers, with all combinations of their parameters."""
    for parameters in itertools.product(*(STEPS.get(name) or [SELECTORS[name]] for name in names)):
        yield [
            {name: {"bias": rows.bias} if name == "logit_bias" else dict(values)}
            for name, values in zip(names, parameters, strict=True)
        ]


def follow(steps: Sequence[Mapping[str, Any]], rows: Rows, vocabulary: Any, seed: int) -> Outcome:
    """Compare the rows after every step, llama.cpp's count of rows, and the token, over one draw from each row."""
    ours = build(list(steps), seed=seed, vocab=vocabulary)
    ours.reset(rows.prompt)
    pointer = vocabulary._native.handle
    with NativeChain(ours.config, vocabulary=vocabulary.size, seed=seed, vocab=pointer) as native:
        native.accept(*rows.prompt)
        for number, logits in enumerate(rows.logits):
            lefts = native.trace(logits, rows.ids)
            candidates = Candidates(logits, rows.ids, vocabulary.size)
            with np.errstate(over="ignore"):  # as in a chain
                end = _compare_steps(ours, lefts, candidates, rows)
                if end:
                    return Outcome(number, end)
                token, theirs = ours.draw(candidates), lefts[-1].token
            row_of = dict(zip(rows.ids.tolist(), logits.tolist(), strict=True))
            is_same = row_of[token] == row_of[theirs] if rows.has_ties else token == theirs
            assert is_same, f"draw {number}: {token}, and llama.cpp has {theirs}"
            # After tied rows the prompt is accepted, not the token that was drawn, so that groups stay groups.
            for accepted in rows.prompt if rows.has_ties else [theirs]:
                ours.accept(accepted)
                native.accept(accepted)
    return Outcome(len(rows.logits), None)


def _compare_steps(ours: Any, lefts: Sequence[Left], candidates: Candidates, rows: Rows) -> str | None:
    """Apply and compare step by step; return why parity ends at a step, or None."""
    was_cut_among_masked = False
    for step, left in zip(ours.steps[:-1], lefts, strict=False):
        name, masked_before = step.about.name, candidates.masked_count
        scores = _typical_scores(candidates) if name == "typical" else {}
        if scores and (masked_before or np.inf in scores.values()):
            return NAN_ENTROPY
        step.apply(candidates)
        is_held = left.logits > -np.inf
        held_logits, held_ids = left.logits[is_held], left.ids[is_held]
        if name == "logit_bias" and left.sorted and (np.diff(held_logits) > 0).any():
            return SORTED_BIAS
        if scores and _differ_by_rounding(scores, candidates.ids.tolist(), held_ids.tolist()):
            return EQUAL_SCORES
        mine = candidates.logits
        assert mine.size == held_logits.size, f"{name}: {mine.size} rows, not {held_logits.size}"
        with np.errstate(invalid="ignore"):
            distance = np.abs(mine - held_logits)
        assert (distance <= RTOL * np.abs(held_logits) + RTOL).all(), f"{name}: {mine} and {held_logits}"
        assert rows.has_ties or (candidates.ids == held_ids).all(), f"{name}: {candidates.ids} and {held_ids}"
        if not (name == "infill" and was_cut_among_masked):
            count = candidates.llama_cpp_count
            assert count == left.ids.size, f"{name}: {count} rows counted, not {left.ids.size}"
        was_cut_among_masked |= 0 < candidates.masked_count < masked_before
    return None


def _typical_scores(candidates: Candidates) -> dict[int, float]:
    """The distance of each token's surprise from the entropy, by token; inf where a probability is 0."""
    probs = candidates.probs().astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprises = -np.log(probs)
        entropy = np.where(probs > 0, probs * surprises, 0).sum()
    return dict(zip(candidates.ids.tolist(), np.abs(surprises - entropy).tolist(), strict=True))


def _differ_by_rounding(scores: Mapping[int, float], mine: Sequence[int], theirs: Sequence[int]) -> bool:
    """True if the rows differ only where scores are equal but for the last bits of float32; ties are not a
    reason."""
    if not scores.keys() >= {*theirs}:  # an earlier step kept other rows of equal logits
        return False
    pairs = [(scores[a], scores[b]) for a, b in zip(mine, theirs, strict=False)]
    return any(a != b for a, b in pairs) and len(mine) == len(theirs) and all(abs(a - b) < 1e-5 for a, b in pairs)
