"""min_tokens: stop strings and stop tokens wait for it, as in vLLM."""

import pytest
from logitsmith.engine import GenerationRequest, generate_many
from logitsmith.engine.beams import generate_beams
from logitsmith.engine.generation import generate
from logitsmith.engine.request import BeamSearch
from logitsmith.engine.text_stream import TextStream
from logitsmith.logprobs.events import Token

# tokens of which the first n must not end the text, n, stop strings, text, stop string
STREAMS = {
    "not before": ("a b . c . d", 3, ["."], "a b . c ", "."),
    "the token with the number n": ("a b . c .", 3, ["."], "a b . c ", "."),
    "the next token": ("a b . c", 2, ["."], "a b ", "."),
    "begun before": ("a x y c", 2, ["x y"], "a ", "x y"),
    "begun before, in part only": ("a x x y c", 3, ["x x y", "x x"], "a ", "x x y"),
    "ended before": ("a x y c", 3, ["x y"], "a x y c", None),
    "overlapping with itself": ("a a a b", 2, ["a a "], "a ", "a a "),
    "two, of which one is passed": ("a b c d", 2, ["a b", "c"], "a b ", "c"),
    "no minimum": ("a . b", 0, ["."], "a ", "."),
}


@pytest.mark.parametrize(("tokens", "n", "stops", "text", "matched"), STREAMS.values(), ids=STREAMS)
def test_a_stream_passes_over_stop_strings(tokens, n, stops, text, matched):
    stream = TextStream(stops)
    pieces = [f"{token} ".encode() for token in tokens.split()]
    shown = ""
    for number, piece in enumerate(pieces):
        state = stream.save()
        stream.push(b"other", finds_stop=number >= n)
        stream.restore(state)
        shown += stream.push(piece, finds_stop=number >= n)
        if stream.matched_stop is not None:
            break
        stream = stream.copy()
    shown += stream.finish()
    assert (shown.rstrip(), stream.matched_stop) == (text.rstrip(), matched)
    assert stream.text == shown


def run(model, **settings):
    return list(generate(model, GenerationRequest("The sea was", **settings)))


def tokens_of(events):
    return [event.id for event in events if isinstance(event, Token)]


@pytest.fixture(scope="module")
def text(model):
    """The tokens of a greedy text."""
    return tokens_of(run(model, chain=["greedy"], max_tokens=24))


PLACES = {"alone": 0, "in a batch": 1, "in a batch of two": 2}
ALWAYS_SEA = {"logit_bias": {"bias": {" sea": 1000.0}}}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_stop_strings_wait(model, place):
    request = GenerationRequest(
        "The sea was", [{"min_tokens": 20}, ALWAYS_SEA, "greedy"], stop=" sea", max_tokens=40
    )
    if place == 0:
        events = list(generate(model, request))
    else:
        events = [list(answer.events) for answer in generate_many(model, [request] * place, place)][-1]
    done = events[-1]
    assert (done.finish_reason, done.stop) == ("stop", " sea")
    assert (done.completion_tokens, done.text) == (21, " sea" * 20)


def test_without_stop_nothing_changes(model, text):
    events = run(model, chain=[{"min_tokens": 20}, "greedy"], max_tokens=24)
    assert tokens_of(events)[:8] == text[:8]


def test_stop_tokens_are_not_drawn_before(model, text):
    stop = text[4]
    events = run(model, chain=["greedy"], stop_token_ids=[stop], max_tokens=24)
    assert len(tokens_of(events)) == text.index(stop) + 1
    events = run(model, chain=[{"min_tokens": 10}, "greedy"], stop_token_ids=[stop], max_tokens=24)
    assert stop not in tokens_of(events)[:10]
    assert len(tokens_of(events)) > 10


def test_a_text_of_a_beam_search_waits(model):
    found = generate_beams(
        model,
        GenerationRequest(
            "The sea was",
            [{"min_tokens": 14}, ALWAYS_SEA, "dist"],
            stop=" sea",
            max_tokens=20,
            beams=BeamSearch(2),
        ),
    )
    assert all(events[-1].completion_tokens > 14 for events in found)
