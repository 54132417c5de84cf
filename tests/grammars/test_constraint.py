"""Constraints that users write: which protocol they implement, and the method names of version 0.1."""

import numpy as np
import pytest
from logitsmith.engine import Model, Token, generate
from logitsmith.grammars import compile_grammar, constraint
from logitsmith.grammars.constraint import CompletableConstraint, as_completable, as_forcing
from logitsmith.samplers import build

GBNF = 'root ::= "The sea is " [a-z]{1,3} " and calm."'


class MasksOnly:
    """A constraint with the two methods that every constraint has."""

    def __init__(self, state):
        self.state = state

    def mask(self):
        return self.state.mask()

    def accept(self, token):
        self.state.accept(token)


class NewNames(MasksOnly):
    def forced_tokens(self):
        return self.state.forced_tokens()

    @property
    def is_complete(self):
        return self.state.is_complete

    def completion_tokens(self):
        return self.state.completion_tokens()


class OldForcing(MasksOnly):
    """A constraint as version 0.1 documented it, without a method that completes the text."""

    def forced(self):
        return self.state.forced_tokens()

    @property
    def is_complete(self):
        return self.state.is_complete


class OldNames(OldForcing):
    def closing(self):
        return self.state.completion_tokens()


def state():
    return compile_grammar(GBNF).start()


def test_a_constraint_with_masks_only():
    assert as_forcing(MasksOnly(state())) is as_completable(MasksOnly(state())) is None
    assert as_forcing(None) is as_completable(None) is None


def test_a_constraint_with_the_new_names_is_returned_unchanged():
    written = NewNames(state())
    assert as_forcing(written) is as_completable(written) is written


def test_a_constraint_with_the_old_names_works_and_warns():
    written = OldNames(state())
    with pytest.warns(DeprecationWarning, match="OldNames: forced is now called forced_tokens"):
        forcing = as_forcing(written)
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        completable = as_completable(written)
    assert "OldNames: closing is now called completion_tokens" in str(caught[-1].message)
    assert bytes(forcing.forced_tokens()) == bytes(forcing.forced()) == b"The sea is "
    assert bytes(completable.completion_tokens()) == b"The sea is a and calm."
    completable.accept(ord("T"))
    assert np.flatnonzero(forcing.mask()).tolist() == [ord("h")]
    assert not forcing.is_complete


def test_a_constraint_with_the_old_names_need_not_complete_the_text():
    with pytest.warns(DeprecationWarning, match="forced_tokens"):
        assert as_completable(OldForcing(state())) is None


def test_a_subclass_of_an_old_protocol():
    with pytest.warns(DeprecationWarning, match="Closable is now called CompletableConstraint"):
        base = constraint.Closable
    assert base is CompletableConstraint
    with pytest.warns(DeprecationWarning, match="is now called"):

        class Mine(base):
            mask, accept, is_complete = MasksOnly.mask, MasksOnly.accept, OldNames.is_complete

            def __init__(self, state):
                self.state = state

            def forced(self):
                return [1]

            def closing(self):
                return [2]

    assert as_forcing(Mine(state())).forced_tokens() == [1]
    assert as_completable(Mine(state())).completion_tokens() == [2]


def test_a_name_that_never_existed():
    with pytest.raises(AttributeError, match="has no attribute 'Guided'"):
        _ = constraint.Guided


def test_a_run_is_the_same_with_the_old_names(pruned_model):
    with Model.load(pruned_model, n_ctx=256) as model:
        grammar = compile_grammar(GBNF, model.vocabulary)

        def run(kind):
            chain = build("temp0.8", seed=3, vocab=model.vocabulary)
            constraint = kind(grammar.start())
            events = list(generate(model, "Weather:", chain, constraint, max_tokens=4, complete_sentence=True))
            return [event.id for event in events if isinstance(event, Token)], events[-1].forced_tokens

        with pytest.warns(DeprecationWarning, match="OldNames"):
            old_run = run(OldNames)
        assert old_run == run(NewNames)
        assert old_run[1] > 0
