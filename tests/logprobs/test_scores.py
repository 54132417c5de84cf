"""Sums over the logprobs of a text, and choices weighed against each other."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st
from logitsmith.common.strict_json import encode_json
from logitsmith.logprobs import Distribution, Score, TokenLogprob, choice_scores, text_score

from .steps import DATA, LOGPROBS, STEPS, TEXTS, said, step

LN2 = math.log(2)
HALF, QUARTER = math.log(1 / 2), math.log(1 / 4)

NAMES = ("sum_logprob", "per_token", "per_byte", "perplexity", "bits_per_byte", "scored_tokens", "scored_bytes")


def text_of(*tokens):
    """A text from (bytes, logprob), the logprob left out where there is no distribution."""
    return [step(data, *map(said, logprob), token=10 + index) for index, (data, *logprob) in enumerate(tokens)]


# Each row: a text, then sum, per token, per byte, perplexity, bits per byte, tokens and bytes that were scored.
SCORES = {
    "empty": ([], (0.0, None, None, None, None, 0, 0)),
    "one token, nothing before it": ([(b"The",)], (0.0, None, None, None, None, 0, 0)),
    "two tokens": ([(b"The",), (b" cat", HALF)], (HALF, HALF, HALF / 4, 2.0, 0.25, 1, 4)),
    "halves": (
        [(b"a",), (b"b", HALF), (b"c", HALF), (b"d", HALF)],
        (3 * HALF, HALF, HALF, 2.0, 1.0, 3, 3),
    ),
    "unlike each other": (
        [(b"The",), (b" cat", QUARTER), (b" sat", HALF), (b" there", HALF)],
        (-4 * LN2, -4 / 3 * LN2, -4 / 14 * LN2, 2 ** (4 / 3), 4 / 14, 3, 14),
    ),
    "a first token that is scored": ([(b"ab", HALF)], (HALF, HALF, HALF / 2, 2.0, 0.5, 1, 2)),
    "characters of many bytes": (
        [("é".encode(),), ("😀".encode(), QUARTER)],
        (QUARTER, QUARTER, QUARTER / 4, 4.0, 0.5, 1, 4),
    ),
    "a part of a character": (
        [(b"\xf0\x9f",), (b"\x98\x80", QUARTER)],
        (QUARTER, QUARTER, QUARTER / 2, 4.0, 1.0, 1, 2),
    ),
    "certain": ([(b"a",), (b"b", 0.0), (b"c", 0.0)], (0.0, 0.0, 0.0, 1.0, 0.0, 2, 2)),
    "tokens without bytes": ([(b"a",), (b"", HALF)], (HALF, HALF, None, 2.0, None, 1, 0)),
    "impossible": (
        [(b"a",), (b"b", HALF), (b"c", -math.inf)],
        (-math.inf, -math.inf, -math.inf, math.inf, math.inf, 2, 2),
    ),
    "removed": ([(b"a",), (b"b", None)], (-math.inf, -math.inf, -math.inf, math.inf, math.inf, 1, 1)),
    "perplexity beyond float64": (
        [(b"a",), (b"b", -1000.0)],
        (-1000.0, -1000.0, -1000.0, math.inf, 1000 / LN2, 1, 1),
    ),
}


def values(score):
    return (
        score.sum_logprob,
        score.per_token,
        score.per_byte,
        score.perplexity,
        score.bits_per_byte,
        score.tokens,
        score.bytes,
    )


def near(wanted):
    return None if wanted is None else pytest.approx(wanted, rel=1e-14, abs=0)


def number(value):
    return value if value is not None and math.isfinite(value) else None


@pytest.mark.parametrize(("tokens", "wanted"), SCORES.values(), ids=SCORES)
def test_score(tokens, wanted):
    score = Score.of(text_of(*tokens))
    assert list(values(score)) == [near(value) for value in wanted]
    found = json.loads(encode_json(score.as_json()), parse_constant=pytest.fail)
    assert [*found] == [*NAMES]
    if not score.tokens:
        wanted = (None, *wanted[1:])  # a sum of nothing would read as a certain text
    assert [*found.values()] == [near(number(value)) for value in wanted]


@pytest.mark.parametrize("name", ["sum_logprob", "per_token", "per_byte", "bits_per_byte"])
def test_a_certain_text_scores_0_and_not_minus_0(name):
    value = getattr(Score.of(text_of((b"a",), (b"b", 0.0))), name)
    assert math.copysign(1, value) == 1


def test_the_first_distribution_counts():
    score = Score.of([step(b"a", said(HALF), said(QUARTER, source="chain"))])
    assert score.sum_logprob == HALF


def test_the_sum_does_not_round_on_its_way():
    logprobs = [-1e16, *[-1.0] * 10, *[-0.1] * 10]
    score = Score.of(text_of(*((b"a", logprob) for logprob in logprobs)))
    assert score.sum_logprob == float(sum(map(Fraction, logprobs)))
    assert score.sum_logprob != sum(logprobs)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=20), st.lists(st.floats(-50, 0), max_size=20))
def test_scores_add_up(first, second):
    whole, left, right = (
        Score.of(text_of(*((b"ab", logprob) for logprob in logprobs)))
        for logprobs in (first + second, first, second)
    )
    assert whole.sum_logprob == pytest.approx(left.sum_logprob + right.sum_logprob, rel=1e-14)
    assert (whole.tokens, whole.bytes) == (left.tokens + right.tokens, left.bytes + right.bytes)
    assert whole.perplexity == pytest.approx(math.exp(-sum(first + second) / whole.tokens), rel=1e-12)
    assert whole.bits_per_byte * whole.bytes * LN2 == pytest.approx(-whole.sum_logprob, rel=1e-12)


def test_text_score():
    found = text_score(
        text_of((b"The",), (b" cat", HALF), (b"\xf0\x9f", QUARTER), (b"\x98\x80", -math.inf), (b"!", None))
    )
    assert [*found] == ["logprobs_from", "tokens", "ids", "bytes", "token_logprobs", *NAMES]
    assert found["logprobs_from"] == "model"
    assert found["tokens"] == ["The", " cat", "bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "!"]
    assert found["ids"] == [10, 11, 12, 13, 14]
    assert found["bytes"] == [[84, 104, 101], [32, 99, 97, 116], [0xF0, 0x9F], [0x98, 0x80], [33]]
    assert found["token_logprobs"] == [None, HALF, QUARTER, None, None]
    assert (found["sum_logprob"], found["scored_tokens"], found["scored_bytes"]) == (None, 4, 9)


def test_text_score_of_nothing():
    found = text_score([])
    assert [found[name] for name in ("tokens", "ids", "bytes", "token_logprobs")] == [[], [], [], []]
    assert [found[name] for name in NAMES] == [None, None, None, None, None, 0, 0]


@given(st.lists(STEPS, max_size=6))
def test_any_text_score_is_strict_json(steps):
    found = text_score(steps)
    assert json.loads(encode_json(found), parse_constant=pytest.fail) == found
    lists = (found["tokens"], found["ids"], found["bytes"], found["token_logprobs"])
    assert {len(values) for values in lists} == {len(steps)}
    assert [bytes(data) for data in found["bytes"]] == [one.data for one in steps]


def choices_of(*sums):
    """Choices of one token each, with these logprobs."""
    return [(f"choice {number}", [step(b"ab", said(value))]) for number, value in enumerate(sums)]


# Each row: the sums of some choices, then their probabilities.
PROBABILITIES = {
    "one": ([-3.0], [1.0]),
    "even": ([-2.0, -2.0], [0.5, 0.5]),
    "three to one": ([math.log(0.3), math.log(0.1)], [0.75, 0.25]),
    "from low to high": ([math.log(0.1), math.log(0.2), math.log(0.5)], [1 / 8, 2 / 8, 5 / 8]),
    "certain": ([0.0, 0.0], [0.5, 0.5]),
    "very small": ([-100_000.0, -100_001.0], [math.e / (1 + math.e), 1 / (1 + math.e)]),
    "as small as can be": ([-1.7e308, -1.7e308], [0.5, 0.5]),
    "far apart": ([-1.0, -100_000.0], [1.0, 0.0]),
    "one impossible": ([-math.inf, -800.0, None], [0.0, 1.0, 0.0]),
    "all impossible": ([-math.inf, -math.inf], [None, None]),
    "all removed": ([None, None, None], [None, None, None]),
}


@pytest.mark.parametrize(("sums", "wanted"), PROBABILITIES.values(), ids=PROBABILITIES)
def test_probabilities_of_choices(sums, wanted):
    found = choice_scores(choices_of(*sums))
    assert [choice["probability"] for choice in found] == [near(value) for value in wanted]
    assert [choice["text"] for choice in found] == [f"choice {number}" for number in range(len(sums))]
    assert json.loads(encode_json(found[0]), parse_constant=pytest.fail) == found[0]


def test_choice_scores():
    first = text_of((b" yes", HALF), (b"\xf0\x9f", HALF))
    second = text_of((b" no", QUARTER - LN2))
    found = choice_scores([(" yes…", first), (" no", second)])
    assert [*found[0]] == [
        "text",
        "sum_logprob",
        "per_token",
        "per_byte",
        "probability",
        "is_greedy",
        "tokens",
        "ids",
        "bytes",
        "token_logprobs",
    ]
    assert found == [
        {
            "text": " yes…",
            "sum_logprob": near(-2 * LN2),
            "per_token": near(-LN2),
            "per_byte": near(-2 * LN2 / 6),
            "probability": near(2 / 3),
            "is_greedy": None,
            "tokens": [" yes", "bytes:\\xf0\\x9f"],
            "ids": [10, 11],
            "bytes": [[*b" yes"], [0xF0, 0x9F]],
            "token_logprobs": [HALF, HALF],
        },
        {
            "text": " no",
            "sum_logprob": near(-3 * LN2),
            "per_token": near(-3 * LN2),
            "per_byte": near(-LN2),
            "probability": near(1 / 3),
            "is_greedy": None,
            "tokens": [" no"],
            "ids": [10],
            "bytes": [[*b" no"]],
            "token_logprobs": [QUARTER - LN2],
        },
    ]


# Each row: for each token of a choice its id and the most likely one, None if that was not read.
GREEDY = {
    "every token is the most likely one": ([(5, 5), (6, 6)], True),
    "one is not": ([(5, 5), (6, 7)], False),
    "nothing is known of one": ([(5, 5), (6, None)], None),
}


@pytest.mark.parametrize(("tokens", "wanted"), GREEDY.values(), ids=GREEDY)
def test_greedy_choices(tokens, wanted):
    steps = [
        step(
            b"a", Distribution("model", HALF, () if top is None else (TokenLogprob(top, b"a", HALF),)), token=token
        )
        for token, top in tokens
    ]
    (found,) = choice_scores([("aa", steps)])
    assert found["is_greedy"] is wanted


def test_a_space_that_the_tokenizer_added_is_not_part_of_a_choice():
    first = replace(step(b" The", said(HALF), token=3), added_bytes=1)
    (found,) = choice_scores([("The sea", [first, step(b" sea", said(HALF), token=4)])])
    assert (found["tokens"], found["bytes"]) == (["The", " sea"], [[*b"The"], [*b" sea"]])
    assert found["per_byte"] == near(2 * HALF / 7)


def test_truncated_prompts_are_counted():
    found = choice_scores(choices_of(-1.0, -2.0), [0, 3])
    assert [choice["truncated_prompt_tokens"] for choice in found] == [0, 3]
    assert "truncated_prompt_tokens" not in choice_scores(choices_of(-1.0))[0]


@pytest.mark.parametrize("sums", [[math.nan, -1.0], [-1.0, math.nan], [math.nan]], ids=str)
def test_a_choice_without_a_number_leaves_strict_json(sums):
    found = choice_scores(choices_of(*sums))
    assert json.loads(encode_json({"choices": found}), parse_constant=pytest.fail) == {"choices": found}


@pytest.mark.parametrize("value", [None, -math.inf], ids=str)
def test_a_choice_that_cannot_come_has_no_numbers(value):
    _, found = choice_scores(choices_of(-1.0, value))
    assert (found["sum_logprob"], found["per_token"], found["per_byte"]) == (None, None, None)
    assert (found["probability"], found["token_logprobs"]) == (0.0, [None])


def test_longer_choices_are_not_favoured():
    long = text_of((b"a", -0.5), (b"b", -0.5), (b"c", -0.5), (b"d", -0.5))
    short = text_of((b"abcd", -1.0))
    found = choice_scores([("long", long), ("short", short)])
    assert found[0]["per_token"] > found[1]["per_token"]
    assert found[0]["probability"] < found[1]["probability"]


def probabilities(sums):
    return [choice["probability"] for choice in choice_scores(choices_of(*sums))]


@given(st.lists(st.floats(max_value=0.0, allow_nan=False), min_size=1, max_size=8))
def test_probabilities_add_up_to_1_in_the_order_of_the_sums(sums):
    found = probabilities(sums)
    if max(sums) == -math.inf:
        assert found == [None] * len(sums)
        return
    assert math.fsum(found) == pytest.approx(1)
    assert min(found) >= 0
    by_sum = [probability for _, probability in sorted(zip(sums, found, strict=True))]
    assert by_sum == sorted(by_sum)


@given(st.lists(st.integers(-700, 0), min_size=1, max_size=8), st.integers(-(10**9), 0))
def test_what_all_sums_share_does_not_count(sums, shift):
    assert probabilities([value + shift for value in sums]) == probabilities(sums)


def is_a_number(value):
    return value is None or not math.isnan(value)


TOKENS = st.builds(lambda data, value: step(data, said(value)), DATA, LOGPROBS.filter(is_a_number))


@given(st.lists(st.tuples(TEXTS, st.lists(TOKENS, min_size=1, max_size=4)), min_size=1, max_size=4))
def test_any_choices_are_strict_json(choices):
    found = choice_scores(choices)
    assert json.loads(encode_json({"choices": found}), parse_constant=pytest.fail) == {"choices": found}
    assert [(choice["text"], len(choice["tokens"])) for choice in found] == [
        (text, len(steps)) for text, steps in choices
    ]
