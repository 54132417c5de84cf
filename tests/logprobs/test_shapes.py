"""What all shapes have in common: they are strict, with the run's text and reason, null for no number."""

import json

import pytest
from hypothesis import given, strategies as st
from logitsmith.common.strict_json import encode_json
from logitsmith.logprobs import other_apis
from logitsmith.logprobs.openai import ChatAnswer

from . import strict
from .steps import (
    FINISH_REASONS,
    NO_NUMBERS,
    STEPS,
    chat_completion,
    follow,
    pieces,
    run,
    said,
    step,
    text_answer,
    text_completion,
)
from .strict import checked

PLAIN = pieces((b"The", -0.5), (b" cat", -1.25), (b"\n", -0.1), (b"sat", -2.0))
EMOJI = pieces((b"a", -0.5), (b"\xf0\x9f", -1.0), (b"\x98", -0.25), (b"\x80!", -0.125), ("é中".encode(), -3.0))
HALVES = follow(step(b"a", said(-0.5)), step("é".encode()[:1], said(-0.25)))
PROMPT = "<s>Hi 😀 there"
ECHO = follow(
    step(b"<s>", is_control=True, token=1),
    step(b"<s>Hi", said(-4.0, (b"Hello", -1.0))),
    step(b" \xf0\x9f", said(-5.0, (b" ", -1.0))),
    step(b"\x98\x80", said(-0.25, (b"\x98\x80", -0.25))),
    step(b" there", said(-2.0, (b" there", -2.0))),
)
RUNS = {
    "plain": run(PLAIN),
    "from the chain": run(pieces((b"a", -0.5), (b"b", None), source="chain"), source="chain"),
    "no logprobs": run(follow(step(b"The"), step(b" cat")), source=None, top=0),
    "no likely tokens": run(follow(step(b"The", said(-0.5)), step(b" cat", said(-1.5))), top=0),
    "an emoji over tokens": run(EMOJI),
    "a special token": run((*PLAIN, step(b"<|im_end|>", said(-0.75), index=4, is_control=True))),
    "held back at a stop": run(PLAIN, stop="cat", text="The cat\nsat on"),
    "cut off inside a character": run(HALVES, reason="length", text="a\ufffd"),
    "nothing written": run((), reason="length"),
    "every separator": run(pieces(("a\u2028b\u2029\x85\r\n\x0b\x1c".encode(), -1.0), (b"\n\ndata: x\n\n", -2.0))),
}
ECHOES = {
    "echo": run(PLAIN, echo=ECHO, prompt=PROMPT),
    "echo alone": run((), echo=ECHO, prompt=PROMPT, reason="length"),
    "echo without logprobs": run(follow(step(b"a")), echo=(), prompt=PROMPT, source=None, top=0),
    "echo without likely tokens": run(
        follow(step(b"!", said(-0.5))), echo=follow(step(b"a"), step(b"b", said(-1.0))), prompt="ab", top=0
    ),
}
TEXT_RUNS = {**RUNS, **ECHOES}


def text_parts(whole):
    """A run as it is streamed as text."""
    return text_answer(whole).stream(whole.events, whole.prompt)


def chat_parts(whole):
    """A run as it is streamed as a chat."""
    return ChatAnswer(**whole.frame).stream(whole.events)


def together(whole, chat=False):
    """Its lists have the chosen token's logprob alone if no more is asked for."""
    return other_apis.together_completion([whole.events], chat=chat, **whole.text_frame)


def together_chat(whole):
    return together(whole, chat=True)


def llama_server(whole):
    return other_apis.llama_server_completion(whole.events, prompt=whole.prompt)


SHAPES = {
    "OpenAI, text": (text_completion, strict.TextCompletion),
    "OpenAI, chat": (chat_completion, strict.ChatCompletion),
    "Together, text": (together, strict.TogetherText),
    "Together, chat": (together_chat, strict.TogetherChat),
    "llama-server": (llama_server, None),
}


def kind_for(kind, whole):
    return strict.LLAMA_KINDS[whole.source] if kind is None else kind


def text_of(found):
    if isinstance(found, strict.LlamaPlain):
        return found.content
    (choice,) = found.choices
    return choice.message.content if hasattr(choice, "message") else choice.text


def logprobs_of(found):
    """The logprobs of the tokens; None where the answer has no list."""
    if isinstance(found, strict.LlamaPlain):
        entries = getattr(found, "completion_probabilities", None)
        return None if entries is None else [getattr(entry, "logprob", None) for entry in entries]
    (choice,) = found.choices
    if isinstance(choice, strict.ChatChoice):
        return choice.logprobs and [entry.logprob for entry in choice.logprobs.content]
    return choice.logprobs and choice.logprobs.token_logprobs


def for_shape(whole, make):
    """Together's lists beside more than one likely token are ours, and no part of the strict shape."""
    return run_with_top(whole, min(whole.top, 1)) if make in (together, together_chat) else whole


def run_with_top(whole, top):
    return run(
        whole.tokens,
        echo=whole.echo,
        reason=whole.done.finish_reason,
        stop=whole.done.stop,
        text=whole.done.text,
        prompt=whole.prompt,
        source=whole.source,
        top=top,
    )


@pytest.mark.parametrize(("make", "kind"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("whole", TEXT_RUNS.values(), ids=TEXT_RUNS)
def test_an_answer_is_strict_and_has_the_text(whole, make, kind):
    whole = for_shape(whole, make)
    wanted = make(whole)
    found = checked(kind_for(kind, whole), wanted)
    assert found.model_dump(mode="json", exclude_unset=True) == json.loads(encode_json(wanted))
    assert "logprobs_from" in wanted
    assert found.logprobs_from == whole.source
    has_prompt = make is text_completion and whole.echo is not None
    assert text_of(found) == (whole.prompt if has_prompt else "") + whole.done.text
    logprobs = logprobs_of(found)
    assert (logprobs is None) == (whole.source is None)
    if logprobs is not None and make is chat_completion and whole.done.stop is None:
        assert len(logprobs) == sum(not token.is_control for token in whole.tokens)
    elif logprobs is not None and make is not chat_completion:
        assert len(logprobs) == len(whole.tokens) + (len(whole.echo) if has_prompt else 0)


@pytest.mark.parametrize(
    ("parts", "kind"), [(text_parts, strict.TextChunk), (chat_parts, strict.ChatChunk)], ids=["text", "chat"]
)
@pytest.mark.parametrize("whole", TEXT_RUNS.values(), ids=TEXT_RUNS)
def test_each_chunk_is_strict(whole, parts, kind):
    chunks = [checked(kind, part) for part in parts(whole)]
    ends = [True] * (len(chunks) - 1) + [False]
    assert [chunk.usage is None for chunk in chunks] == ends
    assert [chunk.choices[0].finish_reason is None for chunk in chunks] == ends
    if kind is strict.ChatChunk:
        deltas = [part["choices"][0]["delta"] for part in parts(whole)]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert all("role" not in delta for delta in deltas[1:])


@given(
    st.lists(STEPS, max_size=3),
    st.none() | st.lists(STEPS, max_size=2).map(tuple),
    st.integers(0, 2),
    st.sampled_from(["model", "chain", None]),
)
def test_any_run_is_strict(steps, echo, top, source):
    whole = run(steps, echo=echo, prompt="a\u2028b", top=top, source=source)
    for make, kind in SHAPES.values():
        checked(kind_for(kind, whole), make(for_shape(whole, make)))
    for part in text_parts(whole):
        checked(strict.TextChunk, part)
    for part in chat_parts(whole):
        checked(strict.ChatChunk, part)


@pytest.mark.parametrize("make", [text_completion, chat_completion, together, together_chat])
@pytest.mark.parametrize(("ours", "theirs"), FINISH_REASONS.items())
def test_every_finish_reason(ours, theirs, make):
    whole = run(PLAIN, reason=ours)
    assert make(whole)["choices"][0]["finish_reason"] == theirs
    for parts in (text_parts, chat_parts):
        assert [*parts(whole)][-1]["choices"][0]["finish_reason"] == theirs


@pytest.mark.parametrize(("make", "kind"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_json_has_no_number_for_is_null(value, make, kind):
    whole = run([step(b"a", said(value, (b"b", value)))], echo=(step(b"b", said(value)),), top=1)
    assert set(logprobs_of(checked(kind_for(kind, whole), make(whole)))) == {None}
