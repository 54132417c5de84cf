"""The context: batches, common prefixes, interruption, and what happens when it is full."""

from contextlib import contextmanager

import numpy as np
import pytest
from logitsmith.engine import AbortedError, Model, ModelError
from logitsmith.engine.context import Context

TEXT = "The keeper of the lighthouse wrote each evening about the weather, the ships and the sea. " * 6


class FakeNative:
    """Records the calls."""

    length = 8
    vocab_size = 100
    is_interrupted = None

    def __init__(self, can_go_back=True):
        self.calls = []
        self.can_go_back = can_go_back

    def decode(self, tokens, position):
        if self.is_interrupted is not None and self.is_interrupted():
            raise AbortedError
        self.calls.append((position, list(tokens)))

    @contextmanager
    def abort_when(self, is_interrupted):
        self.is_interrupted = is_interrupted
        yield
        self.is_interrupted = None

    def truncate_sequence(self, position):
        self.calls.append(("truncate", position))
        return self.can_go_back or position == 0


def test_prompt_is_read_in_batches_with_progress():
    native = FakeNative()
    seen = []
    context = Context(native, batch_size=3)
    assert context.read([1, 2, 3, 4, 5, 6, 7], lambda done, total: seen.append((done, total))) == 0
    assert native.calls == [("truncate", 0), (0, [1, 2, 3]), (3, [4, 5, 6]), (6, [7])]
    assert seen == [(0, 7), (3, 7), (6, 7), (7, 7)]
    seen.clear()
    context.read([1, 2, 3, 4, 8], lambda done, total: seen.append((done, total)))
    assert seen == [(4, 5), (5, 5)]


PREFIXES = {
    "continues": ([1, 2, 3], [1, 2, 3, 4], 3, [("truncate", 3), (3, [4])]),
    "same prompt: the last token is read again": ([1, 2, 3], [1, 2, 3], 2, [("truncate", 2), (2, [3])]),
    "branches off": ([1, 2, 3, 4], [1, 2, 9], 2, [("truncate", 2), (2, [9])]),
    "shorter": ([1, 2, 3, 4], [1, 2], 1, [("truncate", 1), (1, [2])]),
    "nothing in common": ([1, 2], [5, 6], 0, [("truncate", 0), (0, [5, 6])]),
}


@pytest.mark.parametrize(("first", "second", "kept", "calls"), PREFIXES.values(), ids=PREFIXES)
def test_common_prefix_is_kept(first, second, kept, calls):
    native = FakeNative()
    context = Context(native, batch_size=4)
    context.read(first)
    native.calls.clear()
    assert context.read(second) == kept
    assert native.calls == calls
    assert context.tokens == second


def test_model_that_cannot_truncate_reads_everything_again():
    native = FakeNative(can_go_back=False)
    context = Context(native, batch_size=4)
    context.read([1, 2, 3])
    native.calls.clear()
    assert context.read([1, 2, 9]) == 0
    assert native.calls == [("truncate", 2), ("truncate", 0), (0, [1, 2, 9])]


def test_interrupted_reading_continues_later():
    native = FakeNative()
    context = Context(native, batch_size=2)
    answers = iter([False, False, True])
    assert context.read([1, 2, 3, 4, 5, 6], is_interrupted=lambda: next(answers)) == 0
    assert context.tokens == [1, 2, 3, 4]
    assert context.read([1, 2, 3, 4, 5, 6]) == 4
    assert native.calls[-2:] == [("truncate", 4), (4, [5, 6])]


def test_one_batch_is_aborted_in_the_middle(model):
    ids = model.vocabulary.tokenize(TEXT.encode())
    model.context.read([1])
    model.context.read(ids)
    expected = model.context.logits().copy()
    model.context.read([1])
    asked = []
    model.context.read(ids, is_interrupted=lambda: asked.append(1) or len(asked) > 20)
    assert len(asked) == 21
    assert model.context.tokens == []
    model.context.read(ids)
    assert np.array_equal(model.context.logits(), expected)


def test_full_context():
    context = Context(FakeNative(), batch_size=4)
    context.read([1] * 7)
    assert not context.is_full
    context.append(2)
    assert context.is_full
    with pytest.raises(ModelError, match="the context is full"):
        context.append(3)
    with pytest.raises(ModelError, match="the prompt has 9 tokens and the context holds 8"):
        context.read([1] * 9)
    with pytest.raises(ModelError, match="the prompt is empty"):
        context.read([])


def test_logits_are_read_in_place_and_cannot_be_written(model):
    model.context.read([5, 6])
    row = model.context.logits()
    before = row.copy()
    assert model.context.logits() is row
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1
    model.context.append(7)
    assert not np.array_equal(model.context.logits(), before)


def test_threads_do_not_change_a_bit(model):
    ids = model.vocabulary.tokenize(TEXT.encode())
    model.context.read([1])  # so that no prefix is kept: llama.cpp's kernels differ with the size of a batch
    model.context.read(ids)
    expected = model.context.logits().copy()
    with Model.load(model.path, n_ctx=1024, threads=1) as single:
        single.context.read(ids)
        assert np.array_equal(single.context.logits(), expected)


def test_prefix_reuse_gives_the_logits_of_a_fresh_read(model):
    ids = model.vocabulary.tokenize(TEXT.encode())[:60]
    model.context.read([1])
    model.context.read(ids)
    fresh = model.context.logits().copy()
    model.context.read([*ids[:30], 5, 6, 7])
    assert model.context.read(ids) == 30
    assert np.array_equal(model.context.logits(), fresh)
    assert model.context.read(ids[:40]) == 39
    for token in ids[40:]:
        model.context.append(token)
    assert np.array_equal(model.context.logits(), fresh)
