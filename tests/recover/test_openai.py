"""Completions and chat in OpenAI's format, from an API that accepts biases and names tokens by text."""

import json

import httpx
import numpy as np
import pytest
from logitsmith.recover import HttpOptions, OpenAIEndpoint, RecoverError, TokenTextTable, read_tiktoken, recover

from .fakes import Fake, row_of
from .odd import Odd

SIZE = 120
ROW = row_of(SIZE)
PIECES = [f" t{i}".encode() for i in range(SIZE - 6)] + [
    b"\xf0\x9f",
    b"\x98\x80",
    b"caf\xc3\xa9",
    b"\n",
    b'"',
    b"same",
]


def endpoint(chat=False, window=5, pieces=PIECES, raw=False, **change):
    """An API in OpenAI's shape over a `Fake`; ``plain``: bytes that are not UTF-8 are shown as U+FFFD."""
    plain = change.pop("plain", False)
    fake = change.pop("fake", None) or Fake(ROW, window, raw=raw)

    def named(token):
        piece = pieces[token]
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
            text = piece.decode("utf-8", "replace") if plain else text
        return text, {"token": text, "bytes": None if plain else list(piece)}

    def answer(request):
        body = json.loads(request.content)
        assert request.url.path == ("/v1/chat/completions" if chat else "/v1/completions")
        assert body["max_tokens"] == 1
        assert all(abs(value) <= 100 for value in body["logit_bias"].values())
        said = fake.query("x", {int(token): value for token, value in body["logit_bias"].items()})
        if not window:
            text = named(said)[0]
            choice = {"message": {"content": text}} if chat else {"text": text}
        elif chat:
            assert body["messages"] == [{"role": "user", "content": "x"}]
            top = [{**named(i)[1], "logprob": value} for i, value in said.logprobs.items()]
            choice = {
                "logprobs": {"content": [{**named(said.token)[1], "logprob": said.logprob, "top_logprobs": top}]}
            }
        else:
            top = {named(i)[0]: value for i, value in said.logprobs.items()}
            own = {"tokens": [named(said.token)[0]], "token_logprobs": [said.logprob], "top_logprobs": [top]}
            choice = {"logprobs": own}
        return httpx.Response(200, json={"choices": [{**choice, **change}]})

    made = OpenAIEndpoint(
        "http://api.test/v1/",
        "m",
        window,
        token_bytes=pieces,
        uses_chat_completions=chat,
        options=HttpOptions(),
        transport=httpx.MockTransport(answer),
    )
    made.fake = fake
    return made


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    ("window", "raw", "method"), [(5, False, "parallel"), (1, False, "single"), (5, True, "forced")]
)
def test_recovers(chat, window, raw, method):
    found = recover(endpoint(chat, window, raw=raw), "x")
    assert found.method == method
    assert found.is_complete
    assert np.abs(found.logprobs - ROW).max() < 1e-9
    assert found.token_bytes[3] == b" t3"


@pytest.mark.parametrize("chat", [False, True])
def test_only_the_token(chat):
    pieces = [f" t{i}".encode() for i in range(SIZE)]
    found = recover(endpoint(chat, 0, pieces), "x", tokens=[1, 2])
    assert found.method == "bisection"
    assert np.abs(found.logprobs[[1, 2]] - (ROW - ROW.max())[[1, 2]]).max() < 1e-3


@pytest.mark.parametrize("chat", [False, True])
def test_tokens_that_share_their_bytes_are_missing_and_never_wrong(chat):
    pieces = [*PIECES[:-1], PIECES[7]]
    made = endpoint(chat, pieces=[*pieces[:20], b"", *pieces[21:]])
    assert made.unnameable_ids == {7, 20, SIZE - 1}
    found = recover(made, "x")
    assert np.flatnonzero(np.isnan(found.logprobs)).tolist() == [7, 20, SIZE - 1]
    assert not found.is_complete
    assert any("3 tokens that the endpoint cannot name" in note for note in found.notes)
    assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9


@pytest.mark.parametrize("change", [{"logprobs": {"content": []}}, {"logprobs": {"content": [{"token": 1}]}}])
def test_another_format(change):
    with pytest.raises(RecoverError, match="does not have the format of OpenAI's API"):
        endpoint(True, **change).query("x", {})


def test_the_identity_of_an_api():
    others = ([*PIECES[:-1], b"x"], [*PIECES[:-1], None], [*PIECES[:-2], PIECES[-2] + b"s", b"ame"])
    told, again, *rest = (endpoint(pieces=pieces).identity for pieces in (PIECES, list(PIECES), *others))
    assert told == again
    for other in rest:
        assert {name for name in told if told[name] != other[name]} == {"tokenizer"}


@pytest.mark.parametrize(("chat", "window"), [(True, 20), (False, 5)])
def test_the_window_is_the_most_that_openai_allows(chat, window):
    assert endpoint(chat, None).limits.window == window


def alike(count):
    """A vocabulary in which this many tokens are U+FFFD if bytes are not shown."""
    return [*PIECES[: SIZE - count], *(bytes([0x80 + i]) for i in range(count))]


@pytest.mark.parametrize("chat", [False, True])
def test_tokens_that_need_bytes_cost_no_calls(chat):
    made = endpoint(chat, pieces=alike(9), plain=True)
    assert (len(made.ids_that_need_bytes), made.unnameable_ids) == (9, frozenset())
    found = recover(made, "x")
    assert np.flatnonzero(np.isnan(found.logprobs)).tolist() == list(range(SIZE - 9, SIZE))
    assert any("9 tokens that the endpoint cannot name" in note for note in found.notes)
    assert not any("with any bias" in note for note in found.notes)
    assert found.total_calls <= 4 + -(-(SIZE - 9) // 4)
    named = recover(endpoint(chat, pieces=alike(9)), "x")
    assert named.is_complete
    assert named.total_calls <= 4 + -(-SIZE // 4)


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(("rank", "complete"), [(2, False), (7, False), (12, True)])
def test_likely_tokens_without_a_text(chat, rank, complete):
    pieces = list(PIECES)
    pieces[np.argsort(-ROW)[rank]] = None
    served = endpoint(chat, pieces=[b"<|end|>" if piece is None else piece for piece in pieces])
    made = OpenAIEndpoint(
        "http://a/v1", "m", 5, token_bytes=pieces, uses_chat_completions=chat, options=HttpOptions()
    )
    made._http = served._http
    found = recover(made, "x", top_count=10)
    assert found.is_complete == complete
    assert any("most likely tokens, which the endpoint cannot name" in note for note in found.notes) == (
        not complete
    )


@pytest.mark.parametrize("window", [0, 5])
def test_a_tokenizer_of_another_model(window):
    made = endpoint(window=window)
    other = OpenAIEndpoint("http://a/v1", "m", window, token_bytes=[b"x"] * SIZE, options=HttpOptions())
    other._http = made._http
    with pytest.raises(RecoverError, match="use the tokenizer of this model"):
        recover(other, "x", tokens=[1])


def test_the_drawn_token_is_not_one_of_the_top_entries():
    """OpenAI's completions: "up to logprobs + 1 elements"."""
    made = endpoint(fake=Odd(ROW, 5, sampled=True, drawn=True))
    drawn = [made.query("x", {int(np.argmin(ROW)): 0.01 * number}) for number in range(40)]
    assert all(set(answer.logprobs) == set(np.argsort(-ROW)[:5]) for answer in drawn)
    assert any(answer.token not in answer.logprobs and answer.logprob is not None for answer in drawn)
    for n in (5, 30):
        found = recover(made, "x", top_count=n)
        assert set(found.ids) == set(np.argsort(-ROW)[:n])


@pytest.mark.parametrize("chat", [False, True])
def test_bisection_queries_the_top_token(chat):
    made = endpoint(chat, raw=True)
    asked = []
    post = made._http.post
    made._http.post = lambda path, body: asked.append(body["temperature"]) or post(path, body)
    assert recover(made, "x", "bisection", tokens=[1, 2]).method == "bisection"
    assert asked[:2] == [1, 1]
    assert set(asked[5:]) == {0}


def test_a_text_that_only_looks_like_bytes():
    table = TokenTextTable([b"bytes:\\x41", b"A", b"bytes:"])
    assert table.find_text_id("bytes:\\x41") == 0
    assert table.find_text_id("bytes:") == 2
    assert table.find_text_id("bytes:\\x41\\x41") is None


def test_names():
    table = TokenTextTable([b"a", b"\xff", b"\xfe", b"caf\xc3\xa9", None, b"a", b"\xf0\x9f"])
    assert table.unnameable_ids == {0, 4, 5}
    assert table.ids_that_need_bytes == {1, 2, 6}
    assert table.find_text_id("caf\u00e9") == 3
    assert table.find_text_id("\ufffd") is None  # three tokens look like this
    assert table.find_text_id("bytes:\\xff") == 1
    assert table.find_text_id("bytes:\\xzz") is None
    assert table.find_text_id("a") is None
    assert table.find_entry_id({"token": "?", "bytes": [0xF0, 0x9F]}) == 6
    assert table.find_entry_id({"token": "caf\u00e9", "bytes": None}) == 3
    with pytest.raises(RecoverError, match="has no tokens"):
        TokenTextTable([])


def test_tiktoken_files(tmp_path):
    path = tmp_path / "t.tiktoken"
    path.write_bytes(b"IQ== 0\nIg== 1\n\nIw== 3\n")
    assert read_tiktoken(path) == [b"!", b'"', None, b"#"]
    for data, message in (
        (b"IQ== 0\nxx 1\n", "line 2 is not base64"),
        (b"hello\n", "line 1 is not base64"),
        (b"", "not those of a vocabulary"),
        (b"IQ== 99999\n", "not those of a vocabulary"),
    ):
        path.write_bytes(data)
        with pytest.raises(RecoverError, match=message):
            read_tiktoken(path)
    with pytest.raises(RecoverError, match="there is no such file"):
        read_tiktoken(tmp_path / "no")


def test_the_real_servers_own_chat_and_completions(server, model):
    """llama.cpp's logprobs are those before the biases, so ``auto`` uses ``forced``."""
    pieces = [None if model.vocabulary.is_control(i) else piece for i, piece in enumerate(model.vocabulary.pieces)]
    for chat in (False, True):
        made = OpenAIEndpoint(
            f"{server}/v1", "any", 5, token_bytes=pieces, uses_chat_completions=chat, options=HttpOptions()
        )
        found = recover(made, "The sea was", tokens=[253, 500, 17])
        assert found.method == "forced"
        assert found.is_complete
        again = recover(made, "The sea was", "forced", tokens=[253, 500, 17])
        assert np.nanmax(np.abs(found.logprobs - again.logprobs)) < 1e-3
        made.close()
