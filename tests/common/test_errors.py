"""Errors: the text is the place, the problem and the advice, also after another process has sent them."""

import pickle

import pytest
from logitsmith.cli.messages import FLAGS
from logitsmith.common.errors import LogitsmithError, UsageError, Word
from logitsmith.engine import AbortedError, AdapterError, ModelError
from logitsmith.grammars import GrammarError
from logitsmith.models.errors import PromptTooLongError
from logitsmith.presets import PresetError
from logitsmith.recover import RecoverError
from logitsmith.samplers import SamplingError

LARGER = ("give a larger ", Word.N_CTX)
VALUE = SamplingError("1.5 is not within 0..1", place=("top_p", "p"))
ERRORS = {
    "nothing": (LogitsmithError(), ""),
    "a problem": (PresetError("a is not b"), "a is not b"),
    "an advice": (ModelError("n_ctx is full", advice=LARGER), "n_ctx is full; give a larger n_ctx"),
    "a kind of error": (AdapterError("a", advice="b"), "a; b"),
    "another package": (RecoverError("a", advice="b"), "a; b"),
    "a position": (GrammarError("a", 1, 2, "xy", advice="b"), "line 1, column 2: a\n  xy\n   ^; b"),
    "an origin": (PresetError("a", origin="--top-p"), "--top-p: a"),
    "a place": (VALUE, "top_p.p: 1.5 is not within 0..1"),
    "an item": (VALUE.under("chain", 2), "chain[2].top_p.p: 1.5 is not within 0..1"),
    "both": (VALUE.under("chain", 2).within("x.yaml"), "x.yaml: chain[2].top_p.p: 1.5 is not within 0..1"),
    "another place": (VALUE.under("chain", 2).at("--top-p"), "--top-p: 1.5 is not within 0..1"),
    "an origin in another": (PresetError("a", origin="x.yaml").within("preset"), "preset: x.yaml: a"),
    "another class": (PresetError.of(VALUE), "top_p.p: 1.5 is not within 0..1"),
    "other arguments": (AbortedError(), "the computation was aborted"),
    "numbers": (
        PromptTooLongError("a", advice=LARGER, prompt_tokens=3, context_tokens=2).within("arm b"),
        "arm b: a; give a larger n_ctx",
    ),
}


@pytest.mark.parametrize("is_sent", [False, True], ids=["here", "from another process"])
@pytest.mark.parametrize(("error", "text"), ERRORS.values(), ids=ERRORS)
def test_the_text_is_the_place_the_problem_and_the_advice(error, text, is_sent):
    found = pickle.loads(pickle.dumps(error)) if is_sent else error
    assert type(found) is type(error)
    assert str(found) == text
    assert vars(found) == vars(error)


def test_an_error_keeps_its_place():
    assert VALUE.under("chain").within("x.yaml") is not VALUE
    assert (VALUE.origin, VALUE.place) == ("", ("top_p", "p"))


ADVICE = ("write anyOf, or ", Word.SCHEMA_LENIENT, " reads it")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModelError("n_ctx is full", advice=LARGER), "n_ctx is full; give a larger -c"),
        (ModelError("a", advice="give a larger n_ctx"), "a; give a larger n_ctx"),
        (GrammarError("a", advice=ADVICE), "a; write anyOf, or --schema-lenient reads it"),
        (
            GrammarError("a", advice=ADVICE).within("p.yaml", {Word.SCHEMA_LENIENT: "b"}),
            "p.yaml: a; write anyOf, or b reads it",
        ),
        (UsageError.of(ModelError("a", advice=LARGER)), "a; give a larger -c"),
        (ModelError("a", advice=LARGER).with_words({Word.N_CTX: None}), "a"),
    ],
)
def test_a_front_end_has_its_own_words(error, text):
    assert error.sentence(FLAGS) == text


def test_flags_are_for_words():
    assert FLAGS.keys() == set(Word)


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("--json-schema", "--json-schema: a"),
        ("--set json-schema", "--set json-schema: a"),
        ("-j", "-j: JSON Schema: a"),
        ("preset x", "preset x: JSON Schema: a"),
    ],
)
def test_a_grammar_is_named_once(origin, text):
    assert str(GrammarError("a").within("JSON Schema").within(origin)) == text
