import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import BuildContext, SamplingError
from logitsmith.samplers.tokens import token_of

from .rows import FakeVocabulary

WITH = BuildContext(0, FakeVocabulary(128))
WITHOUT = BuildContext(0)

WORKED = {
    "an id": (5, WITH, 5),
    "the first id": (0, WITH, 0),
    "the last id": (127, WITH, 127),
    "an id without a vocabulary": (50_000, WITHOUT, 50_000),
    "a text": ("a", WITH, 97),
    "a text that looks like an id": ("5", WITH, 53),
    "a space": (" ", WITH, 32),
}


@pytest.mark.parametrize(("key", "context", "token"), WORKED.values(), ids=WORKED)
def test_worked_example(key, context, token):
    assert token_of(key, context, "it.tokens") == token


@given(st.integers(0, 127))
def test_a_text_of_one_token_is_that_token(token):
    assert token_of(chr(token), WITH, "it.tokens") == token_of(token, WITH, "it.tokens") == token


REFUSED = {
    "two tokens": ("ab", WITH, "it.tokens: 'ab' is 2 tokens [97, 98]; give one token, or its id"),
    "two bytes": ("é", WITH, "it.tokens: 'é' is 2 tokens [67, 41]; give one token, or its id"),
    "no token": ("", WITH, "it.tokens: '' is 0 tokens []; give one token, or its id"),
    "no vocabulary": (
        "a",
        WITHOUT,
        "it.tokens: 'a' needs a vocabulary: build the chain with vocab=",
    ),
    "beyond the vocabulary": (128, WITH, "it.tokens: token id 128 is not within 0..127"),
    "a negative id": (-1, WITH, "it.tokens: token id -1 is not within 0..127"),
    "a negative id without a vocabulary": (-1, WITHOUT, "it.tokens: token id -1 is not ≥ 0"),
    "half of a surrogate pair": ("\ud800", WITH, "it.tokens: '\\ud800' is not UTF-8"),
}


@pytest.mark.parametrize(("key", "context", "message"), REFUSED.values(), ids=REFUSED)
def test_refusal(key, context, message):
    with pytest.raises(SamplingError) as caught:
        token_of(key, context, "it.tokens")
    assert str(caught.value) == message
