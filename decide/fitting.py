"""The fit of a calibration to the answers about labelled inputs, by maximum likelihood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.intervals import LEVEL, Bootstrap, Values
from ..common.text import count_noun
from .answers import Answer, OptionCalibration, mean_log_probabilities
from .calibration import (
    MAX_BIAS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Calibration,
    Measured,
    Quality,
    QuestionCalibration,
)
from .decider import Decider
from .errors import QuestionError
from .questions import Question

Labels = NDArray[np.intp]  # the number of the right option of each row

_FOLDS = 10
_MIN_ROWS = 2
_BINS = 10
_MAX_STEPS = 200
_MIN_GAIN = 1e-13  # the fit ends when a step lowers the loss by less, nats
_MIN_STEP = 1e-10  # share of Newton's step


class LabelledAnswers(NamedTuple):
    """The answers about one input, and the number of the right option of each question; None: it is not known."""

    answers: Sequence[Answer]
    labels: Sequence[int | None]


def fit_calibration(decider: Decider, rows: Iterable[LabelledAnswers], *, with_bias: bool = False) -> Calibration:
    """Fit a temperature for each question, which makes the right options of all rows together most likely.

    The quality ``after`` is that of cross-validation: the rows are dealt into ten parts with about the same share
    of each option, and the answers of each part are calibrated by a fit to the other parts.

    Temperatures are within 0.01 and 100, and biases within ±20 nats, so that a fit to answers which are right in
    every row ends in finite numbers.

    Args:
        decider: The questions, and how they are asked.
        rows: The answers of the decider. Its own calibration, if it has one, does not count.
        with_bias: Whether to fit a number for each option, too, which is added to its logarithm. The mean of a
            question's biases is 0.

    Raises ``QuestionError`` if a question has fewer than 2 labelled rows, or with ``with_bias`` an option, and for
    values that are not finite.
    """
    values: list[list[Values]] = [[] for _ in decider.questions]
    labels: list[list[int]] = [[] for _ in decider.questions]
    for row_number, row in enumerate(rows, 1):
        for number, (answer, label) in enumerate(zip(row.answers, row.labels, strict=True)):
            if label is not None:
                _check_finite(answer, row_number)
                values[number].append(answer.log_values)
                labels[number].append(label)
    bootstrap = Bootstrap()
    questions: list[QuestionCalibration] = []
    for question, question_values, question_labels in zip(decider.questions, values, labels, strict=True):
        counts = _checked_counts(question, question_labels, with_bias)
        stacked, right = np.stack(question_values), np.array(question_labels, dtype=np.intp)
        before = quality(mean_log_probabilities(stacked), right, bootstrap)
        after = quality(cross_validated(stacked, right, with_bias=with_bias), right, bootstrap)
        fitted = fit(stacked, right, with_bias=with_bias)
        questions.append(QuestionCalibration(question, fitted, tuple(counts), before, after))
    return Calibration(decider.fingerprint, decider.conditions, questions)


def check_label_counts(
    questions: Sequence[Question], labels: Sequence[Sequence[int | None]], *, with_bias: bool = False
) -> None:
    """Raise ``QuestionError`` if the labels of rows are too few for a fit. ``labels``: those of each row."""
    for number, question in enumerate(questions):
        known = [row_labels[number] for row_labels in labels]
        _checked_counts(question, [label for label in known if label is not None], with_bias)


def _check_finite(answer: Answer, row_number: int) -> None:
    for option, column in zip(answer.question.options, answer.log_values.T, strict=True):
        if not np.isfinite(column).all():
            raise QuestionError(
                f"row {row_number}: the logarithm of the probability of {option.label!r} is not finite",
                advice="leave the row out",
            )


def _checked_counts(question: Question, labels: Sequence[int], with_bias: bool) -> list[int]:
    """Return the number of rows of each option."""
    counts: list[int] = np.bincount(np.array(labels, dtype=np.intp), minlength=len(question.options)).tolist()
    if sum(counts) < _MIN_ROWS:
        raise QuestionError(
            f"{question.title} has {count_noun(sum(counts), 'labelled row')}, and a fit needs at least {_MIN_ROWS}"
        )
    for option, count in zip(question.options, counts, strict=True):
        if with_bias and count < _MIN_ROWS:
            raise QuestionError(
                f"{question.title}: {count_noun(count, 'row')} with the label {option.label!r}, and a bias needs"
                f" at least {_MIN_ROWS} of each option",
                advice="label more rows, or fit a temperature only",
            )
    return counts


def fit(values: Values, labels: Labels, *, with_bias: bool = False) -> OptionCalibration:
    """Return the most likely calibration for labelled answers.

    Args:
        values: The log values of each row in each order of the options, float64 (rows, orders, K).
        labels: The number of the right option of each row.
        with_bias: Whether to fit biases, too.
    """
    # Newton's method in 1/T and the biases, within their bounds. With one order the loss is convex. With several,
    # each step is that of a convex function which touches the loss and is nowhere below it: the one that weights
    # the orders of each row by their share in the probability of the right option.
    option_count = values.shape[2]
    low = np.array([1 / MAX_TEMPERATURE, *[-MAX_BIAS] * option_count])
    high = np.array([1 / MIN_TEMPERATURE, *[MAX_BIAS] * option_count])
    is_fitted = np.array([True, *[with_bias] * option_count])
    point = np.array([1.0, *[0.0] * option_count])
    loss = _loss(point, values, labels)
    for _ in range(_MAX_STEPS):
        gradient, curvature = _derivatives(point, values, labels)
        is_blocked = ((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0))
        free = np.flatnonzero(is_fitted & ~is_blocked)
        # Biases that all grow by the same number change nothing: without the small number on the diagonal, there
        # would be many solutions.
        matrix = curvature[np.ix_(free, free)] + 1e-12 * np.eye(len(free))
        direction = np.zeros_like(point)
        direction[free] = np.linalg.lstsq(matrix, -gradient[free], rcond=None)[0]
        step = 1.0
        while step >= _MIN_STEP:
            candidate = np.clip(point + step * direction, low, high)
            new_loss = _loss(candidate, values, labels)
            if new_loss < loss:
                break
            step /= 2
        else:
            break
        gain, point, loss = loss - new_loss, candidate, new_loss
        if gain < _MIN_GAIN:
            break
    bias = np.clip(point[1:] - point[1:].mean(), -MAX_BIAS, MAX_BIAS)
    return OptionCalibration(min(float(1 / point[0]), MAX_TEMPERATURE), tuple(bias.tolist()))


def _loss(point: Values, values: Values, labels: Labels) -> float:
    logs = mean_log_probabilities(point[0] * values + point[1:])
    return -float(np.take_along_axis(logs, labels[:, None], axis=1).mean())


def _derivatives(point: Values, values: Values, labels: Labels) -> tuple[Values, Values]:
    """Return the gradient of the loss, and the second derivatives of the convex function that touches it."""
    row_count, order_count, option_count = values.shape
    # The highest value of each order is 0, so that squares of large values lose no digits.
    centered = (values - values.max(axis=2, keepdims=True)).reshape(-1, option_count)
    flat_labels = np.repeat(labels, order_count)
    scores = point[0] * centered + point[1:]
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    right = logs[np.arange(len(logs)), flat_labels].reshape(row_count, order_count)
    weights = np.exp(right - np.logaddexp.reduce(right, axis=1, keepdims=True)).reshape(-1, 1) / row_count
    shares = np.exp(logs)
    errors = shares.copy()
    errors[np.arange(len(logs)), flat_labels] -= 1
    errors *= weights
    gradient = np.array([(errors * centered).sum(), *errors.sum(axis=0)])
    means = (shares * centered).sum(axis=1, keepdims=True)
    curvature = np.empty((option_count + 1, option_count + 1))
    curvature[0, 0] = (weights * shares * (centered - means) ** 2).sum()
    curvature[0, 1:] = curvature[1:, 0] = (weights * shares * (centered - means)).sum(axis=0)
    curvature[1:, 1:] = np.diag((weights * shares).sum(axis=0)) - (weights * shares).T @ shares
    return gradient, curvature


def cross_validated(values: Values, labels: Labels, *, with_bias: bool = False) -> Values:
    """Return ln of the calibrated probabilities, float64 (rows, K), each row by a fit to the other parts."""
    part = _parts(labels)
    logs = np.empty((len(labels), values.shape[2]))
    for number in range(part.max() + 1):
        fitted = fit(values[part != number], labels[part != number], with_bias=with_bias)
        logs[part == number] = mean_log_probabilities(values[part == number], fitted)
    return logs


def _parts(labels: Labels) -> NDArray[np.intp]:
    """Deal rows into parts, those of each option in turn, in an order that is random but always the same."""
    order = np.random.default_rng(0).permutation(len(labels))
    by_label = order[np.argsort(labels[order], kind="stable")]
    part = np.empty(len(labels), dtype=np.intp)
    part[by_label] = np.arange(len(labels)) % min(_FOLDS, len(labels))
    return part


def quality(logs: Values, labels: Labels, bootstrap: Bootstrap) -> Quality:
    """Return the quality of answers.

    Args:
        logs: The ln of the probabilities of the options, float64 (rows, K).
        labels: The number of the right option of each row.
        bootstrap: Draws the resamples of rows for the intervals.
    """
    rows = np.arange(len(labels))
    shares = np.exp(logs)
    is_right = (shares.argmax(axis=1) == labels).astype(np.float64)
    errors = shares.copy()
    errors[rows, labels] -= 1
    return Quality(
        _mean(is_right, bootstrap, 1.0, is_share=True),
        _mean(-logs[rows, labels], bootstrap, np.inf),
        _mean((errors**2).sum(axis=1), bootstrap, 2.0),
        _calibration_error(shares.max(axis=1), is_right, bootstrap),
    )


def _mean(values: Values, bootstrap: Bootstrap, highest: float, *, is_share: bool = False) -> Measured:
    estimate = bootstrap.estimate(values[:, None], is_share=is_share)
    if estimate is None:
        raise QuestionError("an interval needs at least two rows")
    return Measured(estimate.mean, max(estimate.interval.low, 0.0), min(estimate.interval.high, highest))


def _calibration_error(confidence: Values, is_right: Values, bootstrap: Bootstrap) -> Measured:
    # A column for each bin. The mean of a column is the distance of its bin, times the share of its rows.
    bins = np.minimum((confidence * _BINS).astype(np.intp), _BINS - 1)
    distances = np.where(bins[:, None] == np.arange(_BINS), (confidence - is_right)[:, None], 0.0)
    error = float(np.abs(distances.mean(axis=0)).sum())
    # Of few rows, the error is too high by chance, and higher still in a resample. So the interval has the spread
    # of the resamples, around the error.
    resampled = np.abs(bootstrap.column_means(distances)).sum(axis=1)
    low, high = error + np.quantile(resampled - resampled.mean(), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Measured(error, max(float(low), 0.0), min(float(high), 1.0))
