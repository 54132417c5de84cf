"""The division of prompts, and what slots may copy."""

import pytest
from logitsmith.engine.slots import PromptChunks, shared_token_count

WHOLE, FIXED, FREE = (
    PromptChunks(512, uses_whole_batches=True),
    PromptChunks(512),
    PromptChunks(512, is_divisible=True),
)


@pytest.mark.parametrize(
    ("chunks", "length", "ends", "call_ends"),
    [
        pytest.param(WHOLE, 600, [512, 600], [512, 600], id="deterministic: a context's batches"),
        pytest.param(FIXED, 63, [63], [63], id="short"),
        pytest.param(FIXED, 200, [64, 128, 200], [64, 128, 200], id="each chunk is read by itself"),
        pytest.param(FIXED, 191, [64, 191], [64, 191], id="the last chunk has at least 64 tokens"),
        pytest.param(FREE, 63, [63], [63], id="divisible, short"),
        pytest.param(FREE, 100, [16, 32, 100], [100], id="divisible: several chunks are read in one call"),
        pytest.param(FREE, 560, [*range(16, 449, 16), 512, 560], [512, 560], id="divisible: two batches"),
    ],
)
def test_prompts_are_divided(chunks, length, ends, call_ends):
    assert chunks.ends(length) == ends
    assert chunks.call_ends(ends) == call_ends


@pytest.mark.parametrize(
    ("chunks", "common", "lengths", "shared"),
    [
        pytest.param(FIXED, 90, (90, 200), 0, id="the first chunk of one has 90 tokens, of the other 64"),
        pytest.param(FIXED, 150, (200, 300), 128, id="whole chunks"),
        pytest.param(FREE, 150, (160, 300), 96, id="at least 64 tokens of the one that is held are left out"),
        pytest.param(FREE, 150, (400, 230), 144, id="up to a multiple of 16"),
        pytest.param(FREE, 150, (400, 170), 96, id="at least 64 tokens are read"),
        pytest.param(FREE, 560, (700, 560), 512, id="a short last batch is read as a whole"),
        pytest.param(WHOLE, 600, (700, 700), 512, id="deterministic: a whole batch"),
        pytest.param(FREE, 0, (400, 400), 0, id="nothing in common"),
    ],
)
def test_chunks_that_both_would_read_are_shared(chunks, common, lengths, shared):
    held, prompt = (
        [*range(common), *[mark] * (length - common)] for mark, length in zip((-1, -2), lengths, strict=True)
    )
    ends = [chunks.ends(len(tokens)) for tokens in (held, prompt)]
    assert shared_token_count(held, ends[0], prompt, ends[1]) == shared
