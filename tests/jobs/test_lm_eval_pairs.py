"""Scores of choices are those of lm-evaluation-harness: of the same tokens, to the last bit."""

import pytest
from logitsmith.engine.model import Model
from logitsmith.engine.scoring import score_choices
from logitsmith.jobs.scoring import scored_choices


@pytest.fixture(scope="module")
def model(pruned_model):
    with Model.load(pruned_model, n_ctx=256, threads=1) as loaded:
        yield loaded


def lm_eval_pair(vocabulary, context, continuation):
    """The token ids of a request, as `loglikelihood` of lm-eval 0.4.13 makes them."""
    if not context:
        prefix = vocabulary.eos if vocabulary.bos is None else vocabulary.bos
        ids = vocabulary.tokenize(continuation.encode(), special=True)
        return ([prefix], ids) if ids[0] != prefix else (ids[:1], ids[1:])
    blanks = len(context) - len(context.rstrip())
    if blanks:
        continuation, context = context[-blanks:] + continuation, context[:-blanks]
    whole = vocabulary.tokenize_prompt((context + continuation).encode())
    ids = vocabulary.tokenize_prompt(context.encode())
    return ids, whole[len(ids) :]


PAIRS = {
    "no white space": ("One, two, three,", " four"),
    "a blank": ("One, two, three, ", "four"),
    "two blanks": ("One, two, three,  ", "four"),
    "a blank on both sides": ("One, two, three, ", " four"),
    "a line end": ("Question: two?\nAnswer:\n", "four"),
    "a blank and a line end": ("Answer: \n", "four"),
    "a tab": ("Answer:\t", "four"),
    "Unicode's white space": ("Answer:\u3000", "four"),
    "an empty prompt": ("", "four"),
    "an empty prompt, a blank": ("", " four five"),
    "an empty prompt, BOS in the choice": ("", "<|im_start|>four"),
    "a character of several tokens": ("Answer: ", "日本 😀"),
}


@pytest.mark.parametrize(("prompt", "choice"), PAIRS.values(), ids=PAIRS)
def test_choices_are_scored_as_by_lm_eval(model, prompt, choice):
    context_ids, ids = lm_eval_pair(model.vocabulary, prompt, choice)
    (tokens,) = score_choices(model, context_ids, [ids])
    (found,) = scored_choices(model, prompt, [choice])["choices"]
    assert found["ids"] == ids
    assert found["token_logprobs"] == [token.chosen.logprob for token in tokens]
    assert found["is_greedy"] == all(token.top[0].id == token.id for token in tokens)
