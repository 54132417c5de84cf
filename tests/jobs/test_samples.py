"""Several texts of one prompt, when the run is interrupted."""

import pytest
from logitsmith.engine import GenerationRequest, Model
from logitsmith.jobs.samples import generate_samples, sample_requests
from logitsmith.logprobs.events import Done, Token
from logitsmith.models.errors import AbortedError


@pytest.fixture
def model(pruned_model):
    with Model.load(pruned_model, n_ctx=256) as loaded:
        yield loaded


REQUESTS = sample_requests(GenerationRequest("The sea was", "temp1", max_tokens=100, ends_at_eog=False), 2)


def test_an_abort_keeps_the_texts(model):
    """The first Ctrl-C aborts llama.cpp's call. The texts end with the tokens before it."""
    counts = []

    def abort_at_tenth(token_count):
        counts.append(token_count)
        if token_count == 10:
            model.abort()

    runs = list(generate_samples(model, REQUESTS, lambda: counts[-1:] == [10], abort_at_tenth))
    assert [sum(isinstance(event, Token) for event in run) for run in runs] == [5, 5]
    for run in runs:
        assert isinstance(run[-1], Done)
        assert run[-1].finish_reason == "interrupted"
        assert run[-1].text == "".join(event.text for event in run[1:-1]) + run[-1].rest


def test_an_abort_without_a_reader_of_interruptions_is_an_error(model):
    model.abort()
    with pytest.raises(AbortedError):
        list(generate_samples(model, REQUESTS))


def test_an_abort_that_nothing_has_asked_for_delays_a_step(model):
    expected = list(generate_samples(model, REQUESTS))
    aborts = [True]

    def abort_once(token_count):
        if token_count == 10 and aborts.pop():
            model.abort()
            aborts.append(False)

    runs = list(generate_samples(model, REQUESTS, lambda: False, abort_once))
    assert [[event.id for event in run[1:-1]] for run in runs] == [
        [event.id for event in run[1:-1]] for run in expected
    ]
