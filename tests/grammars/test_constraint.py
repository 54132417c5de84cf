"""Constraints that users write: which protocol they implement."""

from logitsmith.engine import Model, Token, generate
from logitsmith.grammars import compile_grammar
from logitsmith.grammars.constraint import as_completable, as_forcing
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


class Forcing(MasksOnly):
    def forced_tokens(self):
        return self.state.forced_tokens()

    @property
    def is_complete(self):
        return self.state.is_complete


class Completable(Forcing):
    def completion_tokens(self):
        return self.state.completion_tokens()


def state():
    return compile_grammar(GBNF).start()


def test_a_constraint_with_masks_only():
    assert as_forcing(MasksOnly(state())) is as_completable(MasksOnly(state())) is None
    assert as_forcing(None) is as_completable(None) is None


def test_a_constraint_that_cannot_complete_the_text():
    written = Forcing(state())
    assert as_forcing(written) is written
    assert as_completable(written) is None


def test_a_constraint_that_completes_the_text():
    written = Completable(state())
    assert as_forcing(written) is as_completable(written) is written


def test_a_run_with_a_written_constraint_is_that_of_the_grammar(pruned_model):
    with Model.load(pruned_model, n_ctx=256) as model:
        grammar = compile_grammar(GBNF, model.vocabulary)

        def run(constraint):
            chain = build("temp0.8", seed=3, vocab=model.vocabulary)
            events = list(generate(model, "Weather:", chain, constraint, max_tokens=4, complete_sentence=True))
            return [event.id for event in events if isinstance(event, Token)], events[-1].forced_tokens

        run_of_grammar = run(grammar.start())
        assert run(Completable(grammar.start())) == run_of_grammar
        assert run_of_grammar[1] > 0
