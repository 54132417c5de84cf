"""Each quantization that llama.cpp writes: a run and its score agree."""

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from logitsmith.engine import Model, Token, generate, score
from logitsmith.samplers import build

from .quantized_models import quantize
from .small_models import make_metadata, tensor_shapes, write_model

SIZES = {"llama.embedding_length": 256, "llama.feed_forward_length": 256}
"""K-quants need rows of a multiple of 256 weights."""
QUANTIZATIONS = sorted(
    name.removeprefix("LLAMA_FTYPE_MOSTLY_").removeprefix("LLAMA_FTYPE_ALL_")
    for name in dir(lib)
    if name.startswith(("LLAMA_FTYPE_MOSTLY", "LLAMA_FTYPE_ALL")) and "NVFP4" not in name  # which it only reads
)
SCORE_TOLERANCE = 0.02
"""Nats. Activations are quantized too, and rounding may fall otherwise in a batch."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "source.gguf", "llama", "gpt2", SIZES)


@pytest.fixture(scope="module")
def row_lengths(source):
    shapes = tensor_shapes(source.with_name("shapes.gguf"), make_metadata("llama") | SIZES)
    return {name: shape[-1] for name, shape in shapes.items() if len(shape) == 2}


@pytest.mark.parametrize(
    "quantization",
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith(("IQ1", "IQ2", "IQ3_XXS")) else ())
        for name in QUANTIZATIONS  # the smallest ones take seconds to write
    ],
)
def test_a_score_is_that_of_the_run(source, row_lengths, tmp_path, quantization):
    path = tmp_path / "m.gguf"
    quantize(source, path, quantization, row_lengths)
    with Model.load(path, n_ctx=64, threads=1) as model:
        start, *events = generate(model, "hello in", build("greedy"), max_tokens=8, top_logprobs=0)
        tokens = [event for event in events if isinstance(event, Token)]
        assert len(tokens) == 8
        text = [*start.prompt_ids, *(token.id for token in tokens)]
        scored = list(score(model, text))[len(start.prompt_ids) :]
        drawn = [token.chosen.logprob for token in tokens]
        assert np.isfinite(drawn).all()
        assert [token.chosen.logprob for token in scored] == pytest.approx(drawn, abs=SCORE_TOLERANCE)
