"""The probabilities of options are those of single decodes, for each kind of vocabulary."""

from functools import partial

import numpy as np
import pytest
from logitsmith.decide.reading import OptionReader
from logitsmith.decide.spellings import spellings_of
from logitsmith.engine import ModelError
from logitsmith.engine.batch import BatchEngine, BatchFailure
from logitsmith.engine.paths import PathRequest, PathsRead

ROUNDING = {"abs": 1e-4, "rel": 1e-4}


def read(model, prompt, spellings, *, plain=True, with_grammar=False, slots=1):
    ids = model.vocabulary.tokenize_prompt(prompt.encode())
    reader = OptionReader(model.vocabulary, is_plain=plain)
    ask = partial(reader.read, previous_token=ids[-1], spellings=spellings, with_grammar=with_grammar)
    with BatchEngine(model, slots) as engine:
        engine.add(PathRequest(ids, ask, id=1))
        events = []
        while not engine.is_idle:
            events += engine.step()
    ((_, event),) = events
    if isinstance(event, BatchFailure):
        raise event.error
    assert isinstance(event, PathsRead)
    return event


CASES = {
    "one begins another": [spellings_of("No"), spellings_of("None")],
    "of several tokens": [spellings_of("yellow grass"), spellings_of("yellow"), spellings_of("Yes")],
    "not ASCII": [spellings_of("größer"), spellings_of("día")],
    "names of control tokens are text": [["<|im_end|>"], ["</s>"], ["Yes"]],
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "chat"])
@pytest.mark.parametrize("case", CASES)
def test_logprobs_are_those_of_single_decodes(pair, case, plain):
    model, reference = pair
    prompt = "Is the grass green?\nAnswer:\n"
    result = read(model, prompt, CASES[case], plain=plain).result
    if case.startswith("names"):  # the joined text would become control tokens
        ids = [[token.id for token in spelling.tokens] for (spelling,) in result.spellings]
        texts = [b"".join(map(model.vocabulary.piece, one)).decode().strip() for one in ids]
        assert texts == [text for (text,) in CASES[case]]
        return
    assert [[spelling.text for spelling in texts] for texts in result.spellings] == list(map(list, CASES[case]))
    expected = reference.option_logprobs(prompt, CASES[case], plain=plain)
    assert result.logprobs == pytest.approx(expected, **ROUNDING)


@pytest.mark.parametrize(
    "spellings",
    [
        pytest.param([["No", " No"], ["None"]], id="one begins another"),
        pytest.param([["Yes"], ["Yeti"], ['"Ye"']], id="a common beginning"),
        pytest.param([["a"], ["ab", " ab"], ["b"]], id="letters"),
    ],
)
def test_grammar_is_the_sum_over_all_divisions(pair, spellings):
    model, reference = pair
    prompt = "Say it:\n"
    result = read(model, prompt, spellings, with_grammar=True).result
    assert result.grammar_probabilities == pytest.approx(
        reference.grammar_probabilities(prompt, spellings), **ROUNDING
    )
    assert sum(result.grammar_probabilities) == pytest.approx(1, abs=1e-9)


def test_each_token_of_the_tree_is_read_once(pruned):
    spellings = CASES["one begins another"]
    event = read(pruned, "Answer:", spellings)
    nodes = {
        tuple(token.id for token in spelling.tokens[:length])
        for texts in event.result.spellings
        for spelling in texts
        for length in range(1, len(spelling.tokens) + 1)
    }
    assert event.path_tokens == len(nodes)


def test_logits_that_are_no_numbers_are_an_error(pruned):
    row = np.full(pruned.vocabulary.size, np.nan, dtype=np.float32)
    reading = OptionReader(pruned.vocabulary, is_plain=True).read(row, 1, [["a"], ["b"]], with_grammar=False)
    with pytest.raises(ModelError, match="not finite numbers"):
        next(reading)
