"""The number of requests that a model gets at a time, and the memory that is asked for."""

import pytest
from logitsmith.engine import LoadOptions, Model
from logitsmith.engine.model_files import estimate_memory
from logitsmith.engine.slots import default_slots

BUFFERS_BYTES = 400_000_000


@pytest.mark.parametrize(("threads", "slots"), [(1, 4), (2, 8), (3, 8), (64, 8)])
def test_default_slots(threads, slots):
    assert default_slots(threads) == slots


@pytest.mark.parametrize(("length", "tokens"), [(256, 256), (None, 4096), (0, 8192)])
def test_the_memory_is_that_of_the_file_the_cache_and_the_buffers(pruned_model, length, tokens):
    with Model.load(pruned_model, n_ctx=256) as model:
        cache = model._native.cache_bytes_per_token()
        assert model.trained_context == 8192
    assert cache == 2 * 192 * 2 * 2  # layers, three heads of 64 numbers, key and value, two bytes
    expected = pruned_model.stat().st_size + 8 * tokens * cache + BUFFERS_BYTES
    assert estimate_memory(pruned_model, 8, LoadOptions(n_ctx=length)) == expected
