"""Errors: the text is the problem and the advice, also after another process has sent them."""

import pickle

import pytest
from logitsmith.common.errors import LogitsmithError
from logitsmith.engine import AdapterError, ModelError
from logitsmith.grammars import GrammarError
from logitsmith.presets import PresetError
from logitsmith.recover import RecoverError

ERRORS = {
    "neither": (LogitsmithError(), "", ""),
    "no advice": (PresetError("a is not b"), "a is not b", ""),
    "advice": (ModelError("n_ctx is full", advice="give a larger n_ctx"), "n_ctx is full", "give a larger n_ctx"),
    "a kind of error": (AdapterError("a", advice="b"), "a", "b"),
    "another package": (RecoverError("a", advice="b"), "a", "b"),
    "a position": (GrammarError("a", 1, 2, "xy", advice="b"), "line 1, column 2: a\n  xy\n   ^", "b"),
    "a label": (GrammarError("a", advice="b").within("--grammar"), "--grammar: a", "b"),
}


@pytest.mark.parametrize("is_sent", [False, True], ids=["here", "from another process"])
@pytest.mark.parametrize(("error", "problem", "advice"), ERRORS.values(), ids=ERRORS)
def test_the_text_is_the_problem_and_the_advice(error, problem, advice, is_sent):
    found = pickle.loads(pickle.dumps(error)) if is_sent else error
    assert type(found) is type(error)
    assert (found.problem, found.advice) == (problem, advice)
    assert str(found) == (f"{problem}; {advice}" if advice else problem)
