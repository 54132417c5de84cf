"""The tokens of the bundled model."""

import pytest
from logitsmith.engine import ModelError
from logitsmith.engine.vocabulary import first_different_token

TEXTS = {
    "english": "Hello, world!",
    "spaces": "  two  spaces ",
    "newlines": "a\n\nb\r\n",
    "accents": "naïve café",
    "chinese": "采样算法",
    "japanese": "日本語のテキスト",
    "arabic": "مرحبا",
    "emoji": "👩‍🚀🚀",
    "code": "def f(x):\n\treturn x ** 2\n",
    "nul": "a\0b",
    "like a control token": "<|im_end|>",
    "empty": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_round_trip(bundled, text):
    ids = bundled.vocabulary.tokenize(text.encode())
    assert bundled.vocabulary.detokenize(ids) == text.encode()
    assert b"".join(bundled.vocabulary.piece(token) for token in ids) == text.encode()


def test_special_tokens_are_read_only_on_request(bundled):
    vocabulary = bundled.vocabulary
    (token,) = vocabulary.tokenize(b"<|im_end|>", special=True)
    assert token in vocabulary.eog
    assert vocabulary.is_eog(token)
    assert vocabulary.is_control(token)
    assert vocabulary.piece(token) == b"<|im_end|>"
    assert vocabulary.detokenize([token]) == b""
    assert len(vocabulary.tokenize(b"<|im_end|>")) > 1


def test_size_pieces_and_newline(bundled):
    vocabulary = bundled.vocabulary
    assert vocabulary.size == 49152 == len(vocabulary.pieces)
    assert vocabulary.piece(vocabulary.newline) == b"\n"
    assert all(vocabulary.pieces[token] == vocabulary.piece(token) for token in range(0, 49152, 997))


@pytest.mark.parametrize("data", [b"\xff", b"ab\xc3", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf8_are_refused(bundled, data):
    # llama.cpp would end the process with an uncaught exception
    with pytest.raises(ModelError, match="the text is not UTF-8"):
        bundled.vocabulary.tokenize(data)


@pytest.mark.parametrize("token", [-1, 49152])
def test_ids_outside_the_vocabulary(bundled, token):
    vocabulary = bundled.vocabulary
    for use in (
        vocabulary.piece,
        vocabulary.is_control,
        vocabulary.is_eog,
        lambda one: vocabulary.detokenize([one]),
    ):
        with pytest.raises(ModelError, match=r"not within 0\.\.49151"):
            use(token)


@pytest.mark.parametrize(
    ("texts", "other_texts", "start", "expected"),
    [
        ([b"a", b"b"], [b"a", b"b"], 0, None),
        ([b"a", b"b"], [b"a", b"c"], 0, 1),
        ([b"x", b"b"], [b"a", b"b"], 1, None),
        ([b"a", b"b", b"c"], [b"a", b"b"], 0, None),
    ],
    ids=["equal", "different", "before the start", "another size"],
)
def test_the_first_different_token(texts, other_texts, start, expected):
    assert first_different_token(texts, other_texts, start) == expected
