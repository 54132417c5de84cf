"""Scores of texts: refusals, interruption, memory, and what a score does not depend on."""

import subprocess
import sys

import pytest
from logitsmith.engine import (
    Model,
    ModelError,
    generate,
    score,
    score_choices,
    score_prompt,
    tokenize_continuation,
)
from logitsmith.engine.scoring import fit_prompt
from logitsmith.logprobs import Score, choice_scores
from logitsmith.samplers import build

from .big_model import write_model, write_sentencepiece_model

ENDS_IN_A_CHARACTER = "Look: 😀"


def test_nothing_to_score(model):
    with pytest.raises(ModelError, match="no tokens to score"):
        score(model, [])


@pytest.mark.parametrize("stride", [0, -1, 1024, 2000])
def test_strides_are_less_than_the_context(model, stride):
    with pytest.raises(ModelError, match=rf"stride: {stride} is not within 1\.\.1023"):
        score(model, [5, 6], stride)


@pytest.mark.parametrize(
    ("prompt", "choices", "message"),
    [
        ([], [[5]], "a choice needs at least one token before it"),
        ([5], [[6], []], "choice 2 has no tokens"),
        ([5] * 1000, [[6], [7] * 26], "choice 2 does not fit: the prompt has 1,000 tokens, the choice 26"),
        ([5], [[10**6]], "token id 1000000"),
        ([-1], [[5]], "token id -1"),
    ],
    ids=["no prompt", "an empty choice", "too long", "no token", "no token in the prompt"],
)
def test_choices_that_cannot_be_scored(model, prompt, choices, message):
    with pytest.raises(ModelError, match=message):
        score_choices(model, prompt, choices)


def test_a_choice_may_fill_the_context(pruned_model):
    with Model.load(pruned_model, n_ctx=32) as small:
        (steps,) = score_choices(small, [5] * 20, [[7] * 13])
        assert len(steps) == 13
        with pytest.raises(ModelError, match="does not fit"):
            score_choices(small, [5] * 20, [[7] * 14])


def test_interruption_keeps_the_scores_of_the_beginning(model):
    asked = iter([False] * 5 + [True] * 9)
    steps = list(score_prompt(model, list(range(100, 140)), is_interrupted=lambda: next(asked)))
    assert [step.id for step in steps] == list(range(100, 106))
    assert list(score_prompt(model, [5, 6]))[1].chosen.logprob < 0


def test_progress_is_reported(model):
    seen = []
    list(score(model, list(range(100, 110)), progress=lambda done, total: seen.append((done, total))))
    assert seen[-1] == (10, 10)


def test_a_character_over_several_tokens_is_decoded(model):
    ids = model.vocabulary.tokenize(ENDS_IN_A_CHARACTER.encode())
    steps = list(score(model, ids))
    assert "".join(step.text for step in steps) == ENDS_IN_A_CHARACTER
    assert "\ufffd" not in "".join(step.chosen.text for step in steps)


@pytest.mark.parametrize(
    ("prompt", "choice", "is_separate"),
    [("The sea is", " blue", False), ("The sea", " is", False), ("spel", "ling", True), ("", "The sea", False)],
)
def test_continuations(model, prompt, choice, is_separate):
    prompt_ids, choice_ids, was_separate = tokenize_continuation(model.vocabulary, prompt, choice)
    assert was_separate == is_separate
    assert prompt_ids == model.vocabulary.tokenize_prompt(prompt.encode())
    assert b"".join(map(model.vocabulary.piece, choice_ids)) == choice.encode()


@pytest.mark.parametrize("count", [1, 64, *(pytest.param(n, marks=pytest.mark.slow) for n in (63, 65, 127))])
def test_echo_changes_no_token(model, count):
    ids = [1000 + i * 7919 % 7000 for i in range(count)]
    chain = build("temp0.8", seed=4)
    model.context.truncate(0)
    _, *plain, done = generate(model, ids, chain, max_tokens=6, top_logprobs=0)
    _, *events, echoed_done = generate(model, ids, chain, max_tokens=6, top_logprobs=0, echo=True)
    echoed, generated = events[:count], events[count:]
    assert [event.id for event in echoed] == ids
    assert generated == plain
    assert (echoed_done.finish_reason, echoed_done.text) == (done.finish_reason, done.text)


def test_a_context_of_one_token_scores_nothing(pruned_model):
    with (
        Model.load(pruned_model, n_ctx=1) as small,
        pytest.raises(ModelError, match=r"stride: 1 is not within 1\.\.0"),
    ):
        score(small, [5, 6])


PEAK = r"""
import re, sys
from pathlib import Path
from logitsmith.engine import LogprobRequest, Model, score_prompt
def peak():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
with Model.load(sys.argv[1], n_ctx=4096, threads=1) as model:
    before = peak()
    steps = list(score_prompt(model, [i * 7919 % 150_000 for i in range(4000)], LogprobRequest(5)))
    print(len(steps), peak() - before)
"""


@pytest.mark.slow
def test_a_long_prompt_of_a_large_vocabulary_takes_little_memory(tmp_path):
    path = tmp_path / "big.gguf"
    write_model(path, 150_000)
    command = [sys.executable, "-c", PEAK, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    count, megabytes = done.stdout.split()
    assert int(count) == 4000
    assert float(megabytes) < 300
    print(f"\n4,000 prompt tokens, 150,000 in the vocabulary: {float(megabytes):.0f} MB above the model")


@pytest.mark.parametrize(
    ("beginnings", "prompts"),
    [
        pytest.param((317,), (253,), id="some lengths"),
        pytest.param((64, 190, 316, 318), (315, 316), id="more lengths", marks=pytest.mark.slow),
    ],
)
def test_a_score_depends_neither_on_what_follows_nor_on_where_batches_end(model, beginnings, prompts):
    ids = [1000 + 7919 * n % 7000 for n in range(331)]
    expected = [step.chosen.logprob for step in score(model, ids)][1:]
    for length in beginnings:
        logprobs = [step.chosen.logprob for step in score(model, ids[:length])][1:]
        assert logprobs == expected[: length - 1], length
    for length in prompts:
        choices = [ids[length : length + count] for count in (1, 2, 3)]
        for count, steps in enumerate(score_choices(model, ids[:length], choices), 1):
            assert [step.chosen.logprob for step in steps] == expected[length - 1 : length - 1 + count], length


@pytest.fixture(scope="module", params=[True, False], ids=["with BOS", "without BOS"])
def sentencepiece(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("sentencepiece") / "model.gguf"
    write_sentencepiece_model(path, adds_bos=request.param)
    with Model.load(path, n_ctx=64) as loaded:
        yield loaded


@pytest.mark.parametrize("text", ["The sea.", " The sea.", "  sea", "sea", "日本", "The<s>The", "<s>The<s> sea"])
def test_the_space_that_sentencepiece_adds_is_not_a_byte_of_the_text(sentencepiece, text):
    ids = sentencepiece.vocabulary.tokenize_prompt(text.encode())
    tokens = list(score(sentencepiece, ids))
    own = sum(len(token.data) - token.added_bytes for token in tokens if not token.is_control)
    is_bos_written = sentencepiece.vocabulary.adds_bos and text.startswith("<s>")
    assert own == len(text.encode()) - (len("<s>") if is_bos_written else 0)
    unscored = 0 if tokens[0].is_control else len(tokens[0].data) - tokens[0].added_bytes
    assert Score.of(tokens).bytes == own - unscored


def test_a_choice_has_all_its_bytes(sentencepiece):
    prompt, ids, _ = tokenize_continuation(sentencepiece.vocabulary, "The", " sea.")
    (tokens,) = score_choices(sentencepiece, prompt, [ids])
    assert Score.of(tokens).bytes == len(" sea.")


# Each row: a prompt, and a choice whose first token gets a space from the tokenizer.
AT_A_BEGINNING = {
    "an empty prompt": ("", "The sea."),
    "a choice with a space": ("", " sea."),
    "after a control token": ("The</s>", "sea"),
    "a control token in the choice": ("The", " sea</s>The"),
}


@pytest.mark.parametrize(("prompt", "choice"), AT_A_BEGINNING.values(), ids=AT_A_BEGINNING)
def test_a_choice_at_the_beginning_of_a_text_has_its_own_bytes_alone(sentencepiece, prompt, choice):
    prompt_ids, ids, is_separate = tokenize_continuation(sentencepiece.vocabulary, prompt, choice)
    if not prompt_ids:
        pytest.skip("without BOS nothing precedes the choice")
    assert not is_separate
    (tokens,) = score_choices(sentencepiece, prompt_ids, [ids])
    assert sum(len(token.data) for token in tokens) == len(choice.encode()) + 1
    assert Score.of(tokens).bytes == len(choice.encode())
    (record,) = choice_scores([(choice, tokens)])
    assert b"".join(map(bytes, record["bytes"])) == choice.encode()
    assert "".join(record["tokens"]) == choice
    assert record["per_byte"] == pytest.approx(record["sum_logprob"] / len(choice.encode()))


def test_every_window_begins_with_bos(sentencepiece):
    bos = [1] if sentencepiece.vocabulary.adds_bos else []
    text = [*bos, *(259 + 7 * number % 6 for number in range(150))]
    tokens = list(score(sentencepiece, text, 20))
    assert [token.id for token in tokens] == text
    length = sentencepiece.context.length
    window = [*bos, *text[20 : 20 + length - len(bos)]]
    expected = [step.chosen.logprob for step in score_prompt(sentencepiece, window)]
    assert [token.chosen.logprob for token in tokens[length : 20 + len(window) - len(bos)]] == expected[
        -20 + len(bos) :
    ]


# Each row: the lengths of prompt and choice, and how many of the prompt's last tokens are kept of a context of 64.
FITS = {
    "it fits": (60, 5, 60),
    "a token too long": (61, 5, 60),
    "only one token fits": (9, 64, 1),
    "the choice alone is too long": (9, 65, 9),
}


@pytest.mark.parametrize(("prompt_length", "choice_length", "kept"), FITS.values(), ids=FITS)
def test_a_prompt_loses_its_beginning(sentencepiece, prompt_length, choice_length, kept):
    prompt = [300 % 260 + number % 5 for number in range(prompt_length)]
    assert fit_prompt(sentencepiece, prompt, [265] * choice_length) == prompt[prompt_length - kept :]
    has_room_for_bos = 1 < kept < prompt_length
    if has_room_for_bos:
        assert fit_prompt(sentencepiece, [1, *prompt[1:]], [265] * choice_length) == [1, *prompt[1 - kept :]]


def test_choices_have_the_top_token_of_each_step(bundled):
    model = bundled
    prompt, ids, _ = tokenize_continuation(model.vocabulary, "The capital of France is", " Paris, where")
    (tokens,) = score_choices(model, prompt, [ids])
    assert [token.top[0].id == token.id for token in tokens] == [True, False, False]
    (record,) = choice_scores([(" Paris, where", tokens)])
    assert record["is_greedy"] is False


def test_byte_level_vocabularies_add_nothing(model):
    assert not any(token.added_bytes for token in score(model, model.vocabulary.tokenize(b" The sea.")))
