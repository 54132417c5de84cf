"""The samplers that transformers has, against its logits processors; and whole chains, against its `generate`."""

import json

import numpy as np
import pytest
from logitsmith.presets import export_preset, import_preset
from logitsmith.samplers import build
from logitsmith.samplers.mersenne_twister import random_bits

from ..oracle.transformers_oracle import ask
from .rows import FakeVocabulary, make_row
from .test_synthid import KEYS

pytestmark = pytest.mark.slow

HISTORY = [3, 1, 4, 1, 3, 0, 2, 4, 1, 3]
PROMPT_LENGTH = 4
SIZES = (5, 60, 3000)

SEQUENCES = [[[2], -1.5], [[3, 0], 2.5], [[1, 3, 0], 4.0], [[4, 1, 3, 1], -3.0], [[0, 3, 4], 9.0], [[3, 1], 0.5]]
"""Sequences of which the history ends with the beginning, except the fifth one."""

# a step, and the logits processor that does the same; END stands for the vocabulary's end token
END = "end"
STEPS = {
    "temperature": ("temp0.7", "TemperatureLogitsWarper", {"temperature": 0.7}),
    "top_k": ("top_k7", "TopKLogitsWarper", {"top_k": 7}),
    "top_p": ("top_p0.8", "TopPLogitsWarper", {"top_p": 0.8}),
    "top_p, min_keep": (
        "top_p(p=0.2, min_keep=3)",
        "TopPLogitsWarper",
        {"top_p": 0.2, "min_tokens_to_keep": 3},
    ),
    "min_p": ("min_p0.05", "MinPLogitsWarper", {"min_p": 0.05}),
    "typical": ("typical0.7", "TypicalLogitsWarper", {"mass": 0.7}),
    "epsilon_cutoff": ("epsilon_cutoff0.003", "EpsilonLogitsWarper", {"epsilon": 0.003}),
    "epsilon_cutoff, too high": ("epsilon_cutoff0.9", "EpsilonLogitsWarper", {"epsilon": 0.9}),
    "eta_cutoff": ("eta_cutoff0.02", "EtaLogitsWarper", {"epsilon": 0.02}),
    "top_h": ("top_h0.4", "TopHLogitsWarper", {"top_h": 0.4}),
    "penalties": ("penalties(repeat=1.3, last_n=-1)", "RepetitionPenaltyLogitsProcessor", {"penalty": 1.3}),
    "repetition_penalty": ("repetition_penalty1.3", "RepetitionPenaltyLogitsProcessor", {"penalty": 1.3}),
    "encoder_repetition_penalty": (
        "encoder_repetition_penalty1.3",
        "EncoderRepetitionPenaltyLogitsProcessor",
        {"penalty": 1.3, "encoder_input_ids": HISTORY[:PROMPT_LENGTH]},
    ),
    **{
        f"no_repeat_ngram{n}": (f"no_repeat_ngram{n}", "NoRepeatNGramLogitsProcessor", {"ngram_size": n})
        for n in (2, 3)
    },
    "logit_bias": (
        "logit_bias(1=-2.5, 3=1.25)",
        "SequenceBiasLogitsProcessor",
        {"sequence_bias": [[[1], -2.5], [[3], 1.25]]},
    ),
    "sequence_bias": (
        [{"sequence_bias": {"ids": SEQUENCES}}],
        "SequenceBiasLogitsProcessor",
        {"sequence_bias": SEQUENCES},
    ),
    "sequence_bias, bans": (
        [{"sequence_bias": {"ids": [[ids, False] for ids, _ in SEQUENCES]}}],
        "NoBadWordsLogitsProcessor",
        {"bad_words_ids": [ids for ids, _ in SEQUENCES]},
    ),
    **{
        f"length_decay, {start}, {factor}": (
            [{"length_decay": {"start": start, "factor": factor}}],
            "ExponentialDecayLengthPenalty",
            {
                "exponential_decay_length_penalty": [start, factor],
                "eos_token_id": END,
                "input_ids_seq_length": PROMPT_LENGTH,
            },
        )
        for start, factor in ((0, 1.05), (3, 1.5), (5, 0.8), (6, 2.0), (9, 2.0))
    },
    "ban": ("ban(tokens=[1, 2])", "SuppressTokensLogitsProcessor", {"suppress_tokens": [1, 2]}),
    "min_tokens": (
        "min_tokens9",
        "MinNewTokensLengthLogitsProcessor",
        {"prompt_length_to_skip": PROMPT_LENGTH, "min_new_tokens": 9, "eos_token_id": END},
    ),
    "min_tokens, reached": (
        "min_tokens6",
        "MinNewTokensLengthLogitsProcessor",
        {"prompt_length_to_skip": PROMPT_LENGTH, "min_new_tokens": 6, "eos_token_id": END},
    ),
}


def assert_same_row(candidates, scores, **tolerance):
    """The candidates are the tokens without -inf, with the same logits."""
    scores = np.array(scores)
    order = candidates.ids.argsort()
    np.testing.assert_array_equal(candidates.ids[order], np.nonzero(scores > -np.inf)[0])
    np.testing.assert_allclose(candidates.logits[order], scores[candidates.ids[order]], **tolerance)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("step", "processor", "arguments"), STEPS.values(), ids=STEPS)
def test_a_step_leaves_what_the_logits_processor_leaves(step, processor, arguments, size):
    # In a flat row, rounding decides which of the surprises are nearest to the entropy.
    styles = ("normal", "peaked") if processor == "TypicalLogitsWarper" else ("normal", "flat", "peaked")
    rows = [make_row(style, size, seed) for style in styles for seed in range(6)]
    arguments = {name: size - 1 if value == END else value for name, value in arguments.items()}
    expected = ask("processors", steps=[(processor, arguments)], input_ids=HISTORY, rows=rows)
    chain = build(step, vocab=FakeVocabulary(size))
    chain.reset(HISTORY[:PROMPT_LENGTH])
    for token in HISTORY[PROMPT_LENGTH:]:
        chain.accept(token)
    for row, scores in zip(rows, expected, strict=True):
        assert_same_row(chain.apply(row), scores, rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 5489, 2**31, 2**32 + 5, 2**63, 2**64 - 1])
def test_the_table_of_a_watermark_is_torchs(seed):
    assert random_bits(seed, 2**16).tolist() == ask("random_bits", seed=seed, count=2**16)


WATERMARKS = {
    "nine keys": {"keys": KEYS, "ngram_len": 5},
    "thirty keys": {"keys": [7 * number for number in range(30)], "ngram_len": 5},
    "large keys": {"keys": [-1, 2**63 - 1, -(2**63)], "ngram_len": 3},
    "a table of another size": {
        "keys": KEYS,
        "ngram_len": 4,
        "sampling_table_size": 1000,
        "sampling_table_seed": 9,
    },
    "a short history": {"keys": KEYS, "ngram_len": 2, "context_history_size": 3},
    "no history": {"keys": KEYS, "ngram_len": 2, "context_history_size": 0},
    "skipped": {"keys": KEYS, "ngram_len": 5, "skip_first_ngram_calls": True},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("watermark", WATERMARKS.values(), ids=WATERMARKS)
def test_a_watermark_along_a_text(watermark, size):
    """In float64, transformers' probabilities are exact; in float32 they are rounded at each layer."""
    chooser = np.random.default_rng(size)
    tokens = [*HISTORY, *HISTORY, *chooser.integers(0, 4, 60).tolist()]
    rows = [make_row(("normal", "flat", "peaked")[number % 3], size, number) for number in range(len(tokens) + 1)]
    rows[5] = np.where(np.arange(size) % 3 == 1, -np.inf, rows[5]).astype(np.float32)
    asked = {"watermark": watermark, "rows": rows, "tokens": tokens, "prompt": [2, 3]}
    exact, rounded = ask("watermark_scores", **asked, dtype="float64"), ask("watermark_scores", **asked)
    chain = build([{"synthid": watermark}])
    chain.reset([2, 3])
    for number, (row, token) in enumerate(zip(rows, [*tokens, 0], strict=True)):
        candidates = chain.apply(row)
        is_marked = not np.array_equal(exact[number], row.astype(np.float64))
        assert is_marked == (candidates.logits is not row)
        if is_marked:
            logits = np.full(size, -np.inf)
            logits[candidates.ids] = candidates.logits
            # Of probabilities near 0 only rounding is left. transformers then writes the lowest number.
            is_likely = logits > -25
            np.testing.assert_array_equal(is_likely, np.array(exact[number]) > -25)
            np.testing.assert_allclose(logits[is_likely], np.array(exact[number])[is_likely], atol=3e-6, rtol=1e-6)
            np.testing.assert_allclose(np.exp(logits), np.exp(rounded[number]), atol=2e-6, rtol=2e-4)
        chain.accept(token)


CONFIGS = {
    "all cuts": {
        "temperature": 0.9,
        "top_h": 0.9,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.001,
        "typical_p": 0.95,
        "epsilon_cutoff": 1e-4,
        "eta_cutoff": 1e-3,
    },
    "top_k by default": {"top_p": 0.9, "temperature": 0.7},
    "before them": {
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 2,
        "sequence_bias": [[[4], -2.5], [[7], 1.5]],
        "suppress_tokens": [3],
        "bad_words_ids": [[5]],
        "top_k": 0,
    },
    "sequences and the end": {
        "sequence_bias": [[[4], -2.5], [[7, 8], 3.0], [[9, 7], 2.0]],
        "bad_words_ids": [[5], [6, 7], [8, 9, 10]],
        "min_new_tokens": 4,
        "exponential_decay_length_penalty": [6, 1.2],
        "eos_token_id": 89,
        "top_p": 0.98,
    },
    "a watermark": {
        "temperature": 1.2,
        "top_k": 20,
        "watermarking_config": {"keys": KEYS, "ngram_len": 3},
    },
    "a watermark after all": {
        "repetition_penalty": 1.3,
        "top_k": 0,
        "top_p": 0.9,
        "watermarking_config": {"keys": KEYS[:3], "ngram_len": 2, "context_history_size": 2},
    },
}


@pytest.mark.parametrize("do_sample", [True, False], ids=["drawn", "the most likely"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_an_imported_chain_leaves_the_scores_of_generate(tmp_path, config, do_sample):
    """A generation_config.json, imported, along the text that transformers generates with it."""
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({**config, "do_sample": do_sample}))
    steps = [{name: params} for name, params in import_preset(path).chain]
    size, prompt = 90, [1, 2, 3]
    table = [make_row("normal", size, number) for number in range(size)]
    for seed in range(4):
        answer = ask(
            "generate",
            rows=table,
            prompt=prompt,
            config={**config, "do_sample": do_sample, "max_new_tokens": 30},
            seed=seed,
        )
        chain = build(steps, vocab=FakeVocabulary(size))
        chain.reset(prompt)
        last = prompt[-1]
        for token, scores in zip(answer["tokens"], answer["scores"], strict=True):
            candidates = chain.apply(table[last])
            expected = np.where(np.array(scores) < -1e30, -np.inf, scores)
            if "watermarking_config" in config:  # transformers' scores are logarithms of probabilities then
                assert_same_row(candidates, expected, atol=1e-4, rtol=1e-4)
            else:
                assert_same_row(candidates, expected, rtol=2e-6)
            if not do_sample:
                assert chain.draw(candidates) == token
            chain.accept(token)
            last = token


def test_a_watermark_is_exported_as_generate_takes_it_not_as_the_file_is_read():
    """transformers writes a table of SynthID-Text, and reads each table as the other watermark."""
    exported = export_preset([{"temperature": 0.7}, {"synthid": {"keys": [1, 2]}}], "huggingface")
    assert "cannot read it from a file" in exported.unsupported_settings[0]
    values = json.loads(exported.text)
    assert "unexpected keyword argument" in ask("config_error", values=values)
    rows = [make_row("normal", 20, number) for number in range(20)]
    assert len(ask("generate", rows=rows, prompt=[1], config={**values, "max_new_tokens": 4})["tokens"]) == 4
    del values["watermarking_config"]
    assert ask("config_error", values=values) is None
