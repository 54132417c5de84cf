"""Calibrations: the fit against a search, measures against their formulas, and the file."""

import json
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from logitsmith.common.intervals import Bootstrap
from logitsmith.decide import (
    Answer,
    Calibration,
    Decider,
    DecideSettings,
    LabelledAnswers,
    QuestionError,
    choice,
    decide,
    fit_calibration,
    predicate,
    read_calibration,
    score,
)
from logitsmith.decide.fitting import cross_validated, fit, quality
from logitsmith.engine import Model
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

LEVELS = score("How urgent?", ["low", "mid", "high"], "urgency")


def labelled(seed, rows, orders, options, scale=1.0):
    """Log values that tell the right option, but with a bias and on a wrong scale."""
    random = np.random.default_rng(seed)
    labels = np.arange(rows) % options
    values = 2 * random.normal(size=(rows, 1, options)) + random.normal(size=(rows, orders, options))
    values += random.normal(size=options)
    values[np.arange(rows), :, labels] += 1.5
    return scale * values, labels


def loss(temperature, bias, values, labels):
    logs = log_softmax(values / temperature + np.asarray(bias), axis=2)[np.arange(len(labels)), :, labels]
    return np.log(values.shape[1]) - logsumexp(logs, axis=1).mean()


CASES = [
    (1, 200, 1, 2, 1.0),
    (2, 200, 1, 3, 0.2),
    (3, 90, 3, 3, 5.0),
    (4, 300, 6, 5, 1.0),
    (5, 24, 2, 2, 0.1),
    (6, 240, 1, 40, 1.0),
]


@pytest.mark.parametrize("case", CASES)
def test_the_temperature_is_the_best_of_a_fine_grid(case):
    values, labels = labelled(*case)
    fitted = fit(values, labels)
    grid = np.geomspace(0.01, 100, 600)
    losses = [loss(temperature, 0.0, values, labels) for temperature in grid]
    assert fitted.bias == (0,) * values.shape[2]
    assert loss(fitted.temperature, 0.0, values, labels) <= min(losses)
    assert fitted.temperature == pytest.approx(grid[np.argmin(losses)], rel=2e-2)


@pytest.mark.parametrize("case", CASES)
def test_temperature_and_biases_are_those_of_another_optimizer(case):
    values, labels = labelled(*case)
    count = values.shape[2]
    fitted = fit(values, labels, with_bias=True)

    def other_loss(point):
        return loss(np.exp(point[0]), point[1:], values, labels)

    bounds = [(np.log(0.01), np.log(100))] + [(-20, 20)] * count
    starts = [[start] + [0.0] * count for start in (-2.0, 0.0, 2.0)]
    best = min((minimize(other_loss, start, bounds=bounds) for start in starts), key=lambda found: found.fun)
    assert sum(fitted.bias) == pytest.approx(0, abs=1e-12)
    assert loss(fitted.temperature, fitted.bias, values, labels) == pytest.approx(best.fun, abs=1e-7)
    assert loss(fitted.temperature, fitted.bias, values, labels) <= best.fun + 1e-10
    np.testing.assert_allclose(fitted.bias, best.x[1:] - best.x[1:].mean(), atol=0.02)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("gap", "temperature"), [(1e-3, 0.01), (700.0, None), (-3.0, 100.0), (0.0, None)])
def test_answers_that_are_all_right_all_wrong_or_all_equal_end_in_finite_numbers(gap, temperature, with_bias):
    labels = np.arange(40) % 2
    values = np.zeros((40, 2, 2))
    values[np.arange(40), :, labels] = gap
    fitted = fit(values, labels, with_bias=with_bias)
    assert 0.01 - 1e-12 <= fitted.temperature <= 100 + 1e-9
    assert np.abs(fitted.bias).max() <= 20
    if temperature is not None:
        assert fitted.temperature == pytest.approx(temperature)
    measured = quality(cross_validated(values, labels, with_bias=with_bias), labels, Bootstrap())
    assert np.isfinite(np.array([measured.accuracy, measured.log_loss, measured.brier, measured.ece])).all()


def test_the_quality_after_a_fit_is_that_of_rows_which_the_fit_has_not_seen():
    values, labels = labelled(7, 60, 2, 3)
    logs = cross_validated(values, labels, with_bias=True)
    np.testing.assert_allclose(logsumexp(logs, axis=1), 0, atol=1e-12)
    assert (cross_validated(values, labels, with_bias=True) == logs).all()
    # With one row a part, everything is a fit to all other rows.
    few, few_labels = values[:9], labels[:9]
    for row, others in enumerate(np.arange(9) != np.arange(9)[:, None]):
        expected = fit(few[others], few_labels[others])
        shares = softmax(few[row] / expected.temperature, axis=1).mean(axis=0)
        np.testing.assert_allclose(np.exp(cross_validated(few, few_labels)[row]), shares, rtol=1e-9)


def test_measures_are_their_formulas():
    random = np.random.default_rng(8)
    shares = random.dirichlet([0.7, 0.5, 0.4], size=150)
    shares[:2] = [1, 0, 0], [0.1, 0.8, 0.1]
    labels = random.integers(3, size=150)
    labels[0] = 0
    with np.errstate(divide="ignore"):
        measured = quality(np.log(shares), labels, Bootstrap())
    rows = [(list(row), label) for row, label in zip(shares, labels, strict=True)]
    right = [row.index(max(row)) == label for row, label in rows]
    assert measured.accuracy.value == pytest.approx(np.mean(right))
    assert measured.log_loss.value == pytest.approx(np.mean([-np.log(row[label]) for row, label in rows]))
    brier = [sum((p - (n == label)) ** 2 for n, p in enumerate(row)) for row, label in rows]
    assert measured.brier.value == pytest.approx(np.mean(brier))
    error = 0.0
    for low in range(10):
        inside = [n for n, (row, _) in enumerate(rows) if low == min(int(max(row) * 10), 9)]
        if inside:
            confidence = np.mean([max(rows[n][0]) for n in inside])
            error += len(inside) / 150 * abs(confidence - np.mean([right[n] for n in inside]))
    assert measured.ece.value == pytest.approx(error)
    for one in (measured.accuracy, measured.log_loss, measured.brier, measured.ece):
        assert one.low < one.value < one.high
    assert 0.1 < measured.accuracy.high - measured.accuracy.low < 0.2  # 2 x 1.98 sqrt(p (1 - p) / 150)


def test_an_interval_of_answers_that_are_all_right_does_not_end_at_them():
    measured = quality(np.log([[0.9, 0.1]] * 30), np.zeros(30, dtype=int), Bootstrap())
    assert measured.accuracy == (1, pytest.approx(0.025 ** (1 / 30)), 1)
    assert measured.ece.value == pytest.approx(0.1)


CONDITIONS = {"method": "sequence", "permutations": 1, "prior": None, "chat_template": None}


def asked(*questions):
    return SimpleNamespace(questions=questions, fingerprint="model", conditions=CONDITIONS)


def rows_of(question, values, labels):
    answers = [Answer(question, (), (), one) for one in values]
    return [LabelledAnswers([answer], [label]) for answer, label in zip(answers, labels, strict=True)]


@pytest.fixture(scope="module")
def calibration():
    values, labels = labelled(9, 60, 2, 3)
    return fit_calibration(asked(LEVELS), rows_of(LEVELS, values, labels.tolist()), with_bias=True)


def test_rows_without_a_label_do_not_count(calibration):
    values, labels = labelled(9, 60, 2, 3)
    rows = rows_of(LEVELS, values, labels.tolist())
    unlabelled = rows_of(LEVELS, -values, [None] * 60)
    mixed = [row for pair in zip(rows, unlabelled, strict=True) for row in pair]
    assert fit_calibration(asked(LEVELS), mixed, with_bias=True) == calibration
    assert calibration.questions[0].rows == (20, 20, 20)
    assert calibration.questions[0].note is None


@pytest.mark.parametrize(
    ("sign", "note"),
    [
        (1, "'urgency': of 14 labelled rows, few have one of the options ('low' 7, 'mid' 7, 'high' 0): the fit"),
        (-1, "'urgency': the temperature is the highest that is allowed, because the answers do not tell which"),
    ],
)
def test_a_note_about_a_fit_that_says_little(sign, note):
    values, labels = labelled(9, 14, 1, 2)
    padded = np.pad(sign * values, ((0, 0), (0, 0), (0, 1)), constant_values=-1e4)
    fitted = fit_calibration(asked(LEVELS), rows_of(LEVELS, padded, labels))
    assert fitted.questions[0].note.startswith(note)


@pytest.mark.parametrize(
    ("change", "labels", "with_bias", "message"),
    [
        (np.nan, [0, 1, 2, 0, 1, 2], False, "row 2: the logarithm of the probability of 'mid' is not finite"),
        (-np.inf, [0, 1, 2, 0, 1, 2], False, "row 2: the logarithm of the probability of 'mid' is not finite"),
        (0, [None] * 6, False, "'urgency' has 0 labelled rows, and a fit needs at least 2"),
        (0, [1, *[None] * 5], False, "'urgency' has 1 labelled row, and a fit needs at least 2"),
        (0, [0, 1, 0, 0, 1, 2], True, "'urgency': 1 row with the label 'high', and a bias needs at least 2"),
        (0, [], False, "'urgency' has 0 labelled rows"),
    ],
)
def test_rows_that_cannot_be_fitted(change, labels, with_bias, message):
    values, _ = labelled(10, len(labels), 1, 3)
    values[1:2, 0, 1] += change
    with pytest.raises(QuestionError, match=message):
        fit_calibration(asked(LEVELS), rows_of(LEVELS, values, labels), with_bias=with_bias)


def test_a_file_is_read_as_it_was_written(calibration, tmp_path):
    path = tmp_path / "cal.json"
    path.write_text("old")
    calibration.save(path)
    assert read_calibration(path) == calibration
    (question,) = json.loads(path.read_text())["questions"]
    assert question["question"] == LEVELS.as_json()
    assert len(question["bias"]) == 3
    measures = ["accuracy", "log_loss", "brier", "ece"]
    for name in ("before", "after"):
        assert list(question[name]) == [*measures, "intervals"]
        assert list(question[name]["intervals"]) == measures
    assert list(tmp_path.iterdir()) == [path]


WRONG_FILES = [
    (lambda _: "[1]", r"\[1\] is not an object"),
    (lambda _: "{", "it is not JSON: .*, at line 1, column 2"),
    (lambda _: "NaN", "it is not JSON: NaN is not a number"),
    (lambda _: "[" * 10_000, "it is not JSON: it is nested too deeply"),
    (lambda _: "1" * 10_000, "it has a number of too many digits"),
    (lambda value: value.pop("model"), 'there is no "model"'),
    (lambda value: value.update(model=3), "model: 3 is not a text"),
    (lambda value: value.update(questions={}), r"questions: \{\} is not a list"),
    (lambda value: value["questions"].insert(0, None), r"questions\[0\]: null is not an object"),
    (lambda value: value["questions"][0].pop("bias"), r'questions\[0\]: there is no "bias"'),
    (lambda value: value["questions"][0]["bias"].pop(), r"questions\[0\].bias: it has 2 numbers in place of 3"),
    (lambda value: value["questions"][0].update(temperature=0), "temperature: 0.0 is not a number from 0.01"),
    (lambda value: value["questions"][0].update(temperature=True), "temperature: true is not a number"),
    (lambda value: value["questions"][0].update(temperature=10**400), "temperature: 1000.* is not a number"),
    (lambda value: value["questions"][0]["rows"].insert(0, "3"), "rows: it has 4 numbers"),
    (lambda value: value["questions"][0]["question"].update(levels=["a"]), r"questions\[0\].question.levels: "),
    (lambda value: value["questions"][0]["after"].pop("ece"), r'questions\[0\].after: there is no "ece"'),
    (lambda value: value["questions"][0]["after"]["intervals"].update(ece=[0]), "after.ece: it has 1 number in"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_FILES)
def test_a_file_that_is_no_calibration(calibration, tmp_path, change, message):
    value = deepcopy(calibration.as_json())
    changed = change(value)
    path = tmp_path / "cal.json"
    path.write_text(changed if isinstance(changed, str) and changed != "model" else json.dumps(value))
    with pytest.raises(QuestionError, match=f"cal.json: .*{message}"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("model", "changes", "question", "message"),
    [
        ("other", {}, LEVELS, "the calibration is for another model"),
        ("model", {}, predicate("It is urgent."), "the calibration has no question like 'It is urgent.'"),
        ("model", {}, score("How urgent?", ["low", "high"], "urgency"), "no question like 'urgency'"),
        ("model", {"permutations": 4}, LEVELS, r"another value of the number of permutations \(1, and here 4\)"),
        ("model", {"prior": ""}, LEVELS, r"another value of the input of the prior \(null, and here ''\)"),
        ("model", {"chat_template": "f0"}, LEVELS, "another value of the chat template; ask as in the fit"),
    ],
)
def test_a_calibration_refuses_what_it_was_not_fitted_to(calibration, model, changes, question, message):
    calibration.check("model", CONDITIONS, [LEVELS])
    with pytest.raises(QuestionError, match=message):
        calibration.check(model, {**CONDITIONS, **changes}, [question])


@pytest.mark.parametrize(
    ("fitted", "wanted", "question", "is_same"),
    [
        (6, 100, LEVELS, True),
        (5, 6, LEVELS, False),
        ("6", 6, LEVELS, False),
        (2, 100, predicate("It is urgent."), True),
        (1, 2, predicate("It is urgent."), False),
    ],
)
def test_permutations_are_compared_by_the_orders_that_there_are(calibration, fitted, wanted, question, is_same):
    (one,) = calibration.questions
    calibration = replace(
        calibration,
        conditions={**CONDITIONS, "permutations": fitted},
        questions=[replace(one, question=question)],
    )
    with nullcontext() if is_same else pytest.raises(QuestionError, match="number of permutations"):
        calibration.check("model", {**CONDITIONS, "permutations": wanted}, [question])


def test_a_decider_applies_a_calibration_to_each_order(pruned_model):
    questions = [choice("Which?", ["red", "blue", "green"]), predicate("It is warm.")]
    inputs = ["The sea", "A fire", "Snow", "The sun"]
    with Model.load(pruned_model, n_ctx=512) as model:
        plain = Decider(model, questions, DecideSettings(permutations=2, prior="-"))
        rows = [
            LabelledAnswers(outcome.decision.answers, [number % 3, number % 2])
            for number, outcome in enumerate(decide(plain, inputs, 2))
        ]
        fitted = fit_calibration(plain, rows)
        settings = DecideSettings(permutations=2, prior="-", calibration=fitted)
        for row, outcome in zip(rows, decide(Decider(model, questions, settings), inputs, 2), strict=True):
            for before, after in zip(row.answers, outcome.decision.answers, strict=True):
                values = before.log_values / fitted.of(before.question).temperature
                np.testing.assert_allclose(after.probabilities, softmax(values, axis=1).mean(axis=0), rtol=1e-6)
        with pytest.raises(QuestionError, match=r"the number of permutations \(2, and here 3\)"):
            Decider(model, questions, DecideSettings(permutations=3, prior="-", calibration=fitted))
        with pytest.raises(QuestionError, match=r"no question like 'It is cold\."):
            Decider(model, [predicate("It is cold.")], settings)
    assert isinstance(fitted, Calibration)
