"""Together's completion: plain lists of tokens and logprobs, the prompt's beside them."""

import pytest
from logitsmith.logprobs.openai import logprobs_by_text

from .steps import follow, pieces, run as any_run, said, step
from .strict import TogetherChat, checked
from .test_shapes import together as together_completion

# As Together's own documentation shows them, shortened.
SHOWN = {
    "id": "85d3d3ff1a0d8c57-EWR",
    "object": "chat.completion",
    "created": 1709240335,
    "model": "codellama/CodeLlama-70b-Instruct-hf",
    "prompt": [],
    "choices": [
        {
            "finish_reason": "length",
            "logprobs": {"tokens": ["1", ".", " Define"], "token_logprobs": [-1.0029297, -0.07861328, -2.1367188]},
            "index": 0,
            "message": {"role": "assistant", "content": "1. Define"},
        }
    ],
    "usage": {"prompt_tokens": 33, "completion_tokens": 10, "total_tokens": 43},
}
SHOWN_WITH_ECHO = {
    **SHOWN,
    "prompt": [
        {
            "text": "<s> Source: user",
            "logprobs": {
                "tokens": ["<s>", "", "Source", ":", "user"],
                "token_logprobs": [None, -3.6757812, -12.984375, -0.025985718, -14],
            },
        }
    ],
}

PLAIN = pieces((b"1", -1.0029297), (b".", -0.07861328), (b" Define", -2.1367188))
ECHO = follow(
    step(b"<s>", token=1, is_control=True), step(b"Source", said(-12.984375)), step(b":", said(-0.025985718))
)


def run(steps, **rest):
    """A run with no more than the chosen token's logprobs, unless more are asked for."""
    return any_run(steps, **{"top": 1, **rest})


PLAIN_RUN = run(PLAIN)
ECHO_RUN = run(PLAIN, echo=ECHO, prompt="<s>Source:")


def names(value):
    """The names of all fields, in their order, without ours; of a list its first item's."""
    if isinstance(value, dict):
        return [(name, names(inner)) for name, inner in value.items() if name != "logprobs_from"]
    return names(value[0]) if isinstance(value, list) and value else None


def test_more_than_the_chosen_token_has_a_list_of_its_own():
    found = together_completion(run(PLAIN, top=2, echo=ECHO, prompt="<s>Source:"), chat=False)
    lists = found["choices"][0]["logprobs"]
    assert [list(likely) for likely in lists["top_logprobs"]] == [list(logprobs_by_text(one)) for one in PLAIN]
    assert lists["top_logprobs"][0]["1"] == lists["token_logprobs"][0]
    assert found["prompt"][0]["logprobs"]["top_logprobs"][0] is None


@pytest.mark.parametrize("shown", [SHOWN, SHOWN_WITH_ECHO], ids=["without echo", "with echo"])
def test_the_documented_shape_is_what_is_checked(shown):
    assert checked(TogetherChat, shown).model_dump(mode="json", exclude_unset=True) == shown


@pytest.mark.parametrize(("whole", "shown"), [(PLAIN_RUN, SHOWN), (ECHO_RUN, SHOWN_WITH_ECHO)])
def test_fields_stand_as_in_the_documented_shape(whole, shown):
    assert names(together_completion(whole, chat=True)) == names(shown)


def test_to_the_letter():
    assert together_completion(ECHO_RUN, chat=False) == {
        "id": "0123456789abcdef",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "SmolLM2-135M-Instruct",
        "logprobs_from": "model",
        "prompt": [
            {
                "text": "<s>Source:",
                "logprobs": {
                    "tokens": ["<s>", "Source", ":"],
                    "token_logprobs": [None, -12.984375, -0.025985718],
                },
            }
        ],
        "choices": [
            {
                "finish_reason": "stop",
                "logprobs": {
                    "tokens": ["1", ".", " Define"],
                    "token_logprobs": [-1.0029297, -0.07861328, -2.1367188],
                },
                "index": 0,
                "text": "1. Define",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7},
    }
