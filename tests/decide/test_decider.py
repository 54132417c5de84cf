"""Answers are what the reference computes of them: in every order of the options, and with a prior subtracted."""

import math
from itertools import permutations

import numpy as np
import pytest
from logitsmith.decide import Decider, DecideSettings, QuestionError, Wording, choice, decide, predicate, score
from logitsmith.decide.decider import orders_of
from logitsmith.decide.spellings import spellings_of
from logitsmith.models.errors import ModelError

INPUT = "I was charged twice, and nobody answers my mails."
QUESTIONS = [
    choice("What is it about?", ["money", "None", "No"], "topic", descriptions=["invoices", None, None]),
    predicate("The writer is angry.", "angry"),
    score("How urgent is it?", ["low", "mid"], "urgency"),
]
ROUNDING = {"abs": 1e-4, "rel": 1e-4}


def softmax(values):
    weights = np.exp(np.array(values) - max(values))
    return weights / weights.sum()


def answers(model, questions, text=INPUT, slots=4, plain=False, **settings):
    wording = Wording.for_model(model, chat=not plain)
    decider = Decider(model, questions, DecideSettings(wording, **settings))
    (outcome,) = decide(decider, [text], slots)
    return wording, outcome.decision


def reference_logprobs(reference, wording, question, order, text, plain):
    prompt = wording.prompt(wording.text(question, [question.options[number] for number in order], text))
    spellings = [spellings_of(option.label) for option in question.options]
    return np.array(reference.option_logprobs(prompt, spellings, plain=plain))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "chat"])
def test_answers_are_those_of_single_decodes(chat_pair, plain):
    model, reference = chat_pair
    wording, decision = answers(model, QUESTIONS, plain=plain)
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        given = range(len(question.options))
        expected = reference_logprobs(reference, wording, question, given, INPUT, plain)
        assert answer.logprobs == pytest.approx(expected.tolist(), **ROUNDING)
        assert answer.mass == pytest.approx(math.fsum(map(math.exp, expected)), **ROUNDING)
        assert answer.probabilities == pytest.approx(softmax(expected).tolist(), **ROUNDING)


def test_permutations_and_prior(chat_pair):
    model, reference = chat_pair
    question = QUESTIONS[0]
    wording, decision = answers(model, [question], permutations=9, prior="N/A")
    (answer,) = decision.answers
    shares, expected_orders = [], list(permutations(range(3)))
    for order in expected_orders:
        of_input, of_prior = (
            reference_logprobs(reference, wording, question, order, text, plain=False) for text in (INPUT, "N/A")
        )
        shares.append(softmax(of_input - of_prior))
    assert [one.order for one in answer.measured] == expected_orders
    assert answer.probabilities == pytest.approx(np.mean(shares, axis=0).tolist(), **ROUNDING)
    assert answer.spread == pytest.approx(np.std(shares, axis=0).tolist(), **ROUNDING)
    raw = reference_logprobs(reference, wording, question, (0, 1, 2), INPUT, plain=False)
    assert answer.logprobs == pytest.approx(raw.tolist(), **ROUNDING)


@pytest.mark.parametrize(
    ("options", "count", "expected"),
    [
        pytest.param(3, 1, 1, id="one"),
        pytest.param(3, 5, 5, id="some"),
        pytest.param(3, 6, 6, id="all"),
        pytest.param(3, 100, 6, id="more than there are"),
        pytest.param(255, 300, 300, id="of many options"),
    ],
)
def test_orders_are_distinct_and_begin_with_the_given_one(options, count, expected):
    orders = orders_of(options, count)
    assert len(set(orders)) == len(orders) == expected
    assert orders[0] == tuple(range(options))
    assert all(sorted(order) == list(range(options)) for order in orders)
    assert orders == orders_of(options, count)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_numbers_do_not_depend_on_the_slots(pruned, slots):
    texts = [INPUT, "", "The weather is fine. " * 20]
    wording = Wording.for_model(pruned)

    def decided(slots):
        decider = Decider(pruned, QUESTIONS, DecideSettings(wording, permutations=2))
        return [outcome.decision for outcome in decide(decider, iter(texts), slots)]

    for one, other in zip(decided(slots), decided(3), strict=True):
        for first, second in zip(one.answers, other.answers, strict=True):
            assert first.logprobs == pytest.approx(second.logprobs, **ROUNDING)
        assert one.usage.input_tokens == other.usage.input_tokens
        assert one.usage.option_tokens == other.usage.option_tokens


def test_the_input_is_read_once(pruned):
    """After the first question, only what follows the input is read."""
    text = "A long input. " * 40
    input_tokens = len(pruned.vocabulary.tokenize(text.encode()))
    questions = [predicate(f"Is it true that {number} is even?") for number in range(12)]
    _, decision = answers(pruned, questions, text, slots=4)
    usage = decision.usage
    assert usage.cached_tokens > 11 * input_tokens
    assert usage.input_tokens - usage.cached_tokens < input_tokens + 12 * 80


def test_a_prompt_beyond_the_context_is_an_error_of_its_input(pruned):
    wording = Wording.for_model(pruned)
    decider = Decider(pruned, QUESTIONS, DecideSettings(wording))
    outcomes = list(decide(decider, [INPUT, "word " * 2000, INPUT], 4))
    assert [isinstance(outcome.result, Exception) for outcome in outcomes] == [False, True, False]
    with pytest.raises(ModelError, match=r"1,?024"):
        print(outcomes[1].decision)


def test_an_input_without_a_text_is_handed_back_at_once(pruned):
    taken = []

    def inputs(given):
        for one in given:
            taken.append(one)
            yield one

    wrong = [QuestionError(word) for word in "abc"]
    decider = Decider(pruned, QUESTIONS, DecideSettings(Wording.for_model(pruned), prior="N/A"))
    assert next(decide(decider, inputs(wrong), 4)).result is wrong[0]
    assert taken == wrong[:1]
    outcomes = list(decide(decider, inputs([wrong[0], INPUT, None, wrong[1], INPUT, wrong[2]]), 4))
    assert [outcome.number for outcome in outcomes] == [0, 1, 2, 3, 4]
    found = [outcome.result if isinstance(outcome.result, Exception) else None for outcome in outcomes]
    assert found == [wrong[0], None, wrong[1], None, wrong[2]]


def test_an_empty_prompt_is_an_error_of_its_input(pruned):
    decider = Decider(pruned, [predicate("It rains.")], DecideSettings(Wording("{{ input }}")))
    outcomes = list(decide(decider, ["Wet", "", "Dry"], 2))
    assert [isinstance(one.result, Exception) for one in outcomes] == [False, True, False]
    assert str(outcomes[1].result) == "'It rains.': the prompt is empty"


@pytest.mark.parametrize(("first", "prior_words"), [("N/A", 1), (INPUT, 1), ("word " * 2000, 1), ("N/A", 2000)])
def test_the_prior_is_asked_once_for_all_inputs(pruned, monkeypatch, first, prior_words):
    prior = "word " * prior_words
    asked = []
    ask = Decider.ask

    def counted(self, place, input_text):
        asked.append(place)
        return ask(self, place, input_text)

    monkeypatch.setattr(Decider, "ask", counted)
    decider = Decider(pruned, QUESTIONS, DecideSettings(Wording(), permutations=2, prior=prior))
    outcomes = list(decide(decider, [first, *["Hi"] * 4], 8))
    priors = [place for place in asked if place.is_prior]
    assert len(priors) == len(set(priors))
    fits = [prior_words == 1 and len(text) < 2000 for text in [first, *["Hi"] * 4]]
    assert [not isinstance(outcome.result, Exception) for outcome in outcomes] == fits
    usages = [outcome.decision.usage for outcome, fit in zip(outcomes, fits, strict=True) if fit]
    assert len({usage.input_tokens for usage in usages[1:]}) <= 1
    assert all(usage.input_tokens < usages[0].input_tokens for usage in usages[1:])
    assert list(decide(decider, [], 8)) == []
