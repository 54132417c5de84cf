"""The tokens of every shape, joined, are its text: whatever ended it, and wherever tokens divide characters."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from logitsmith.engine.text_stream import TextStream
from logitsmith.logprobs import tokens_of_text
from logitsmith.logprobs.batch_results import result_line
from logitsmith.logprobs.other_apis import llama_server_completion, together_completion
from logitsmith.logprobs.text_tokens import HeldBackText, TextTokenStream

from .steps import chat_completion, cut_texts, run, said, step, text_completion

_PART_OF_A_CHARACTER = re.compile(r"\\x([0-9a-f]{2})")


def whole_run(pieces, stops=(), echo=None):
    """A run of these bytes as the engine would show it; None stands for the end token."""
    stream = TextStream(stops)
    steps = []
    for number, data in enumerate(pieces):
        if stream.matched_stop is not None:
            break
        text = "" if data is None else stream.push(data)
        written = b"<|im_end|>" if data is None else data
        steps.append(step(written, said(-1.0), index=number, text=text, is_control=data is None))
    stream.finish()
    return run(
        steps, text=stream.text, stop=stream.matched_stop, echo=echo, prompt="" if echo is None else "Hi all"
    )


def named_bytes(name):
    """The bytes that a token's name stands for, where the shape has no list of bytes."""
    if not name.startswith("bytes:"):
        return name.encode()
    return _PART_OF_A_CHARACTER.sub(lambda part: chr(int(part[1], 16)), name[6:]).encode("latin-1")


def of_text(whole):
    (choice,) = text_completion(whole)["choices"]
    return map(named_bytes, choice["logprobs"]["tokens"]), choice["text"]


def of_chat(whole):
    (choice,) = chat_completion(whole)["choices"]
    return (bytes(token["bytes"]) for token in choice["logprobs"]["content"]), choice["message"]["content"]


def of_together(whole):
    (choice,) = together_completion([whole.events], **whole.text_frame)["choices"]
    return map(named_bytes, choice["logprobs"]["tokens"]), choice["text"]


def of_llama_server(whole):
    found = llama_server_completion(whole.events)
    assert found["tokens"] == [token.id for token in whole.tokens]
    return (bytes(token["bytes"]) for token in found["completion_probabilities"]), found["content"]


def of_batch(whole):
    found = result_line(whole.events, "a", 1, answer_id="b", exactness="exact")
    assert len(found["tokens"]) == len(whole.tokens)
    return (token["text"].encode() for token in found["tokens"]), found["text"]


def of_stream(whole):
    stream = TextTokenStream()
    tokens = [one for token in whole.tokens for one in stream.push(token)]
    tokens += stream.finish(whole.done.text, whole.done.stop)
    assert tokens == list(tokens_of_text(whole.tokens, whole.done.text, whole.done.stop))
    assert "".join(token.text for token in tokens) == whole.done.text[: stream.text_length]
    assert whole.done.text[stream.text_length :] in ("", "\ufffd")
    return (token.data for token in tokens), whole.done.text


SHAPES = {
    "openai": of_text,
    "openai-chat": of_chat,
    "together": of_together,
    "llama-server": of_llama_server,
    "jsonl of a batch": of_batch,
    "streamed": of_stream,
}

EMOJI = "😀".encode()
# Each row: the bytes of the tokens, None for the end token, and the stop strings.
RUNS = {
    "the end token": ([b"The", b" cat", None], []),
    "the length": ([b"The", b" cat"], []),
    "a stop string of whole tokens": ([b"The", b" cat", b" sat"], [" cat"]),
    "a stop string inside a token": ([b"The", b" cat", b" sat"], ["at"]),
    "a stop string over two tokens": ([b"The", b" cat", b" sat", b" on"], ["t s"]),
    "a stop string that only began": ([b"The", b" cat", None], [" catalog"]),
    "a stop string at the beginning": ([b"The", b" cat"], ["The"]),
    "a character over two tokens": ([b"a" + EMOJI[:2], EMOJI[2:] + b"b", None], []),
    "a stop string that is such a character": ([b"a" + EMOJI[:2], EMOJI[2:] + b"b"], ["😀"]),
    "a stop string after such a character": ([b"a", EMOJI[:2], EMOJI[2:], b"bc"], ["c"]),
    "a character that is not finished": ([b"a", EMOJI[:3]], []),
    "a character that is broken off": ([b"a", EMOJI[:3], b"b"], []),
    "a stop string after bytes that are not UTF-8": ([b"\xff", b"a\xf0", b"stop"], ["stop"]),
    "tokens without bytes": ([b"", b"a", b"", None], []),
    "an end token amid the text": ([b"a", None, b"b"], []),
    "nothing": ([None], []),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("pieces", "stops"), RUNS.values(), ids=RUNS)
def test_tokens_joined_are_the_text(pieces, stops, shape):
    tokens, text = shape(whole_run(pieces, stops))
    assert b"".join(tokens).decode(errors="replace") == text


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@given(cut=cut_texts(), stops=st.lists(st.text(min_size=1, max_size=3), max_size=2), start=st.integers(0, 11))
def test_any_tokens_joined_are_the_text(shape, cut, stops, start):
    text, pieces = cut
    inside = text[start : start + 2]
    whole = whole_run([*pieces, None], [*stops, *([inside] if inside else [])])
    tokens, found = shape(whole)
    assert b"".join(tokens).decode() == found == whole.done.text


def test_an_end_token_has_an_entry_without_text_in_llama_servers_shape():
    found = llama_server_completion(whole_run([b"The", None]).events)["completion_probabilities"]
    assert [(token["token"], token["bytes"], token["logprob"]) for token in found] == [
        ("The", [*b"The"], -1.0),
        ("", [], -1.0),
    ]


def test_echoed_tokens_lack_the_space_of_the_tokenizer():
    echo = (replace(step(b" Hi"), added_bytes=1), step(b" all", said(-2.0)))
    whole = whole_run([b" you"], echo=echo)
    (choice,) = text_completion(whole)["choices"]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == "Hi all you"
    assert choice["logprobs"]["text_offset"] == [0, 2, 6]
    (prompt,) = together_completion([whole.events], **whole.text_frame)["prompt"]
    assert "".join(prompt["logprobs"]["tokens"]) == prompt["text"] == "Hi all"


# Each row: the bytes of the tokens, the stop strings, and after which tokens a part of the text is held back.
HELD_BACK = {
    "nothing": ([b"The", b" cat", None], [], [False, False, False]),
    "a character": ([EMOJI[:2], EMOJI[2:], b"b"], [], [True, False, False]),
    "the beginning of a stop string": ([b"The", b" cat", b" sat"], ["cab"], [False, False, False]),
    "a stop string perhaps": ([b"The", b" cat", b"c"], ["cat on"], [False, True, True]),
}


@pytest.mark.parametrize(("pieces", "stops", "wanted"), HELD_BACK.values(), ids=HELD_BACK)
def test_held_back_text(pieces, stops, wanted):
    held_back = HeldBackText()
    assert [held_back.is_held_back(token) for token in whole_run(pieces, stops).tokens] == wanted
