"""Steps and runs, written by hand or drawn at random."""

import codecs
import math
import struct
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from hypothesis import strategies as st
from logitsmith.common.strict_json import json_line
from logitsmith.logprobs import Distribution, TokenLogprob, TokenRecord
from logitsmith.logprobs.events import Done, PromptToken, Start, Timings, Token
from logitsmith.logprobs.jsonl import token_fields
from logitsmith.logprobs.openai import ChatAnswer, TextAnswer

START = Start(
    model="SmolLM2-135M-Instruct",
    seed=7,
    chain=[{"top_k": {"k": 40}}, {"dist": {}}],
    grammar=None,
    prompt_tokens=4,
    prompt_ids=(1, 2, 3, 4),
    cached_tokens=2,
    context=2048,
    logprobs=None,
    max_tokens=16,
    stop=(),
    versions={"logitsmith": "0.1.0", "llama-cpp-python": "0.3.0"},
)

FINISH_REASONS = {
    "stop": "stop",
    "grammar": "stop",
    "length": "length",
    "context": "length",
    "interrupted": "length",
}

NO_NUMBERS = {"none": None, "minus_inf": -math.inf, "inf": math.inf, "nan": math.nan}


def likely(*tokens):
    """Tokens from (bytes, logprob); their ids are 0, 1, 2 …"""
    return tuple(TokenLogprob(number, data, logprob) for number, (data, logprob) in enumerate(tokens))


def said(logprob, *top, source="model", **rest):
    """A distribution. ``top``: (bytes, logprob) each."""
    return Distribution(source, logprob, likely(*top), **rest)


def step(data, *distributions, index=0, token=7, text=None, is_control=False):
    """One step by itself; its text is its bytes, as far as they are text."""
    shown = data.decode("utf-8", "ignore") if text is None else text
    return TokenRecord(index, token, data, "" if is_control else shown, is_control, distributions)


def follow(*steps):
    """Steps with the index and the text that they have one after the other."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return tuple(
        replace(one, index=index, text="" if one.is_control else decoder.decode(one.data))
        for index, one in enumerate(steps)
    )


def pieces(*tokens, source="model"):
    """Steps that follow each other, from (bytes, logprob), each with itself and " x" as the most likely tokens."""
    return follow(
        *(
            step(data, said(logprob, (data, logprob), (b" x", -9.0), source=source), token=100 + number)
            for number, (data, logprob) in enumerate(tokens)
        )
    )


@dataclass(frozen=True)
class Run:
    """The events of a run, and what else a shape is made of."""

    start: Start
    echo: tuple | None
    tokens: tuple
    done: Done
    prompt: str

    @property
    def events(self):
        return (self.start, *(self.echo or ()), *self.tokens, self.done)

    @property
    def source(self):
        return self.start.logprobs and self.start.logprobs["from"]

    @property
    def top(self):
        return self.start.logprobs["top"] if self.start.logprobs else 0

    @property
    def frame(self):
        """The arguments of a shape that may be streamed."""
        return {"answer_id": "0123456789abcdef", "created": 1_700_000_000}

    @property
    def text_frame(self):
        """Those of a shape that may begin with the prompt."""
        return {**self.frame, "prompt": self.prompt, "echo": self.echo is not None}


def text_answer(whole):
    """OpenAI's answer to a text, with the prompt if the run has an echo."""
    return TextAnswer(**whole.frame, echo=whole.echo is not None)


def text_completion(whole):
    answer = text_answer(whole)
    return answer.whole(answer.chunks(whole.events, prompt=whole.prompt))


def chat_completion(whole):
    answer = ChatAnswer(**whole.frame)
    return answer.whole(answer.chunks(whole.events))


def token_line(token):
    """The line of jsonl of a generated token."""
    return json_line({"event": "token", **token_fields(token)})


def prompt_line(token):
    """The line of jsonl of a token of the prompt."""
    return json_line({"event": "prompt", **token_fields(token)})


def event(kind, record):
    return kind(*(getattr(record, field.name) for field in fields(record)))


def run(steps, *, echo=None, reason="stop", stop=None, text=None, prompt="", source="model", top=2):
    """A run of these steps. Its text is what they show."""
    shown = "".join(one.text for one in steps) if text is None else text
    done = Done(
        finish_reason=reason,
        complete=None,
        text=shown,
        rest="",
        stop=stop,
        prompt_tokens=START.prompt_tokens,
        completion_tokens=len(steps),
        forced_tokens=0,
        drafted_tokens=None,
        accepted_tokens=None,
        timings=Timings(0.5, 2.0, 0.25, 0.0),
    )
    return Run(
        replace(START, logprobs=source and {"from": source, "top": top, "unit": "nats"}),
        None if echo is None else tuple(event(PromptToken, one) for one in echo),
        tuple(event(Token, one) for one in steps),
        done,
        prompt,
    )


CHARACTERS = st.sampled_from('aé中😀 \n"\\\u2028\x85\0\x1b\ufeff') | st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=12)
DATA = st.binary(max_size=5) | TEXTS.map(str.encode)
# Two float32 logits lie at most this far apart.
LOGPROBS = st.none() | st.floats(-7e38, 0.0) | st.sampled_from([-math.inf, math.nan])
TOKENS = st.builds(TokenLogprob, st.integers(0, 2**31 - 1), DATA, LOGPROBS)


def distributions(source):
    """Any distribution of this source."""
    rows = st.lists(st.floats(max_value=0.0, width=32), max_size=4)
    return st.builds(
        Distribution,
        st.just(source),
        LOGPROBS,
        st.lists(TOKENS, max_size=3).map(tuple),
        st.lists(TOKENS, max_size=2).map(tuple),
        st.none() | st.floats(min_value=0.0),
        st.none() | rows.map(lambda row: struct.pack(f"<{len(row)}f", *row)),
    )


STEPS = st.builds(
    TokenRecord,
    st.integers(0, 10**9),
    st.integers(0, 2**31 - 1),
    DATA,
    TEXTS,
    st.booleans(),
    st.just(())
    | st.tuples(distributions("model"))
    | st.tuples(distributions("chain"))
    | st.tuples(distributions("model"), distributions("chain")),
)


@st.composite
def cut_texts(draw, max_size=12):
    """A text, and its bytes cut anywhere into tokens, some of them empty."""
    text = draw(st.text(CHARACTERS, max_size=max_size))
    data = text.encode()
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    ends = [0, *places, len(data)]
    return text, [data[start:end] for start, end in pairwise(ends)]
