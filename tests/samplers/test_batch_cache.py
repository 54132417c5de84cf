"""The counts of requests, kept from step to step, against new counts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers.batch import SamplingData, SamplingParam, penalties as cache, sample, step as batch_step
from logitsmith.samplers.batch.arguments import row_lengths
from logitsmith.samplers.batch.penalties import TokenCountCache, count_tokens

from .rows import make_row
from .test_batch import padded

SIZE = 300


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    own = TokenCountCache()
    monkeypatch.setattr(batch_step, "_request_cache", own)
    return own


@pytest.fixture
def recounted(monkeypatch):
    """The number of rows that were counted as a whole, call by call."""
    calls = []

    def spy(everything, output, width):
        calls.append(len(everything))
        return count_tokens(everything, output, width)

    monkeypatch.setattr(cache, "count_tokens", spy)
    return calls


def entries(counted):
    """Counts as a table."""
    return {
        (int(row), int(token)): (bool(seen), int(made)) for row, token, seen, made in zip(*counted, strict=True)
    }


def brute_force(everything, output):
    """The same by a loop over texts."""
    table = {}
    for row, (text, made) in enumerate(zip(everything, output, strict=True)):
        counts = Counter(made)
        table |= {(row, token): (token in text, counts[token]) for token in {*text, *made}}
    return table


TEXTS = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=5)


@given(TEXTS, st.integers(0, 99), st.sampled_from([np.int64, np.int32, np.int16, np.uint64]))
def test_counts_against_a_brute_force(batch, seed, dtype):
    rng = np.random.default_rng(seed)
    outputs = [text[len(text) // 2 :][::-1] for text in batch]
    everything, output = (padded(it, rng.choice([10, 11, 255]), rng).astype(dtype) for it in (batch, outputs))
    assert entries(count_tokens(everything, output, 10)) == brute_force(batch, outputs)
    assert entries(count_tokens(everything, None, 10)) == brute_force(batch, [[]] * len(batch))
    assert entries(count_tokens(None, output, 10)) == brute_force([[]] * len(batch), outputs)
    assert row_lengths(output, 10).tolist() == [len(text) for text in outputs]
    counted = count_tokens(everything, output, 10)
    assert (np.diff(counted.rows * 10 + counted.ids) > 0).all(), "rows ascend, and ids within a row"
    negative = everything.astype(np.int64)
    negative[negative >= 10] = -1
    assert entries(count_tokens(negative, None, 10)) == entries(count_tokens(everything, None, 10))


class Traffic:
    """Requests that come and go: each has a prompt, and grows by a token a step."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.running = {}
        self.next = 100

    def come(self, count_tokens):
        """New requests, each of which takes part from its first token on."""
        new = {}
        for _ in range(count_tokens):
            prompt = self.rng.integers(0, SIZE, int(self.rng.integers(0, 30))).tolist()
            new[self.next] = (prompt, [])
            self.next += int(self.rng.integers(1, 5))
        self.running |= new
        return list(new)

    def go(self):
        """Some end."""
        for request in list(self.running):
            if self.rng.random() < 0.1:
                del self.running[request]

    def arguments(self, requests, *, is_prefill, cached):
        """Data and parameters of a step of these requests; padding lies anywhere."""
        rng = np.random.default_rng(len(self.running))
        fill = int(rng.choice([-1, SIZE]))
        prompts, outputs = zip(*(self.running[request] for request in requests), strict=True)
        everything = padded([[*it, *made] for it, made in zip(prompts, outputs, strict=True)], fill, rng)
        data = SamplingData.from_numpy(
            everything, padded(outputs, fill, rng), np.asarray, is_prefill, np.array(requests) if cached else None
        )
        ones = np.ones(len(requests))
        # Every third request has no penalty.
        param = SamplingParam.from_numpy(
            np.where(np.array(requests) % 3, 1.5, 1),
            np.where(np.array(requests) % 3, 0.3, 0),
            np.where(np.array(requests) % 3, -0.2, 0),
            0.9 * ones,
            seed=np.array(requests),
            to_tensor=np.asarray,
        )
        return data, param


@pytest.mark.parametrize("seed", range(4))
def test_equal_to_no_cache_while_requests_come_and_go(seed, own_cache, recounted):
    traffic = Traffic(seed)
    steps = 0
    while steps < 50:
        new = traffic.come(int(traffic.rng.integers(0, 3)) if traffic.running else 3)
        kinds = [(new, True)] if new else []
        traffic.go()
        old = [request for request in traffic.running if request not in new]
        traffic.rng.shuffle(old)
        kinds += [(old, False)] if old else []
        for all_of_them, is_prefill in kinds:
            requests = [it for it in all_of_them if it in traffic.running]
            if not requests:
                continue
            logits = np.stack([make_row("normal", SIZE, request + steps) for request in requests])
            plain, cached = (
                sample(logits, *traffic.arguments(requests, is_prefill=is_prefill, cached=it))
                for it in (False, True)
            )
            assert cached[0].tolist() == plain[0].tolist()
            assert cached[1].tolist() == plain[1].tolist()
            again = sample(logits, *traffic.arguments(requests, is_prefill=is_prefill, cached=True))
            assert again[0].tolist() == plain[0].tolist()
            if not is_prefill:
                assert sorted(own_cache.requests) == sorted(requests), "finished requests are forgotten"
            for request, token in zip(requests, plain[0].tolist(), strict=True):
                traffic.running[request][1].append(token)
            steps += 1
    assert steps >= 50


TEXT = [1, 2, 3, 2, 4, 1, 1, 1, 6, 6]
CHANGES = {
    "one token more": (lambda text: [*text, 5], False),
    "eight tokens more": (lambda text: [*text, 5, 5, 5, 6, 7, 8, 9, 9], False),
    "nine tokens more": (lambda text: [*text, 5, 5, 5, 6, 7, 8, 9, 9, 1], True),
    "nothing more": (lambda text: text, False),
    "a token less": (lambda text: text[:-1], True),
    "another first token": (lambda text: [8, *text[1:]], True),
    "another last token": (lambda text: [*text[:-1], 8], True),
    "the end comes round": (lambda text: [*text[1:], text[0]], True),
    "nothing": (lambda text: [], True),
}


@pytest.mark.parametrize(("change", "afresh"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", ["all_input_ids", "output_ids", "both"])
def test_a_text_that_changed_is_counted_afresh(change, afresh, kind, recounted):
    own = TokenCountCache()
    requests = np.array([30, 10])
    both, changed = padded([TEXT, TEXT[::-1]], -1), padded([change(TEXT), TEXT[::-1]], -1)
    own.step(requests, (both, both), 10, is_prefill=True)
    pair = (both if kind == "output_ids" else changed, both if kind == "all_input_ids" else changed)
    counted = own.step(requests, pair, 10, is_prefill=False)
    assert entries(counted) == entries(count_tokens(*pair, 10))
    assert recounted == ([2, 1] if afresh else [2])


def test_a_request_id_that_is_used_again(recounted):
    own = TokenCountCache()
    for number in range(3):
        text = np.full((1, 4), number)
        counted = own.step(np.array([5]), (text, text), 10, is_prefill=True)
        assert entries(counted) == {(0, number): (True, 4)}
    # Also without is_prefill.
    text = np.full((1, 5), 7)
    assert entries(own.step(np.array([5]), (text, text), 10, is_prefill=False)) == {(0, 7): (True, 5)}


def test_another_vocabulary():
    own = TokenCountCache()
    text = np.array([[1, 2, 50, 3]])
    assert entries(own.step(np.array([1]), (text, None), 10, is_prefill=True)) == brute_force([[1, 2, 3]], [[]])
    for width in (100, 10, 2):
        kept = [token for token in text[0].tolist() if token < width]
        assert entries(own.step(np.array([1]), (text, None), width, is_prefill=False)) == brute_force([kept], [[]])


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(cache, "_MAX_ABSENT_REQUESTS", 10)
    own = TokenCountCache()
    for request in range(100):
        text = np.full((1, 3), request % 10)
        counted = own.step(np.array([request]), (text, None), 10, is_prefill=True)
        assert entries(counted) == {(0, request % 10): (True, 0)}
        assert len(own.requests) <= 11


def test_a_step_that_is_broken_off_leaves_nothing_behind(monkeypatch):
    own = TokenCountCache()
    text = padded([TEXT, TEXT[::-1]], -1)
    requests = np.array([1, 2])

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(cache, "count_tokens", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.step(requests, (text, text), 10, is_prefill=True)
    assert own.requests == []
    assert entries(own.step(requests, (text, text), 10, is_prefill=False)) == entries(count_tokens(text, text, 10))


@pytest.mark.parametrize("fill", [-1, 10])
def test_the_longest_text_ends(fill, recounted):
    # The others' tables become narrower; nothing of them is counted again.
    own = TokenCountCache()
    texts = [TEXT, TEXT[::-1], TEXT * 50]
    table = padded(texts, fill)
    own.step(np.array([1, 2, 3]), (table, table), 10, is_prefill=True)
    table = padded(texts[:2], fill)
    assert entries(own.step(np.array([1, 2]), (table, table), 10, is_prefill=False)) == brute_force(
        texts[:2], texts[:2]
    )
    assert own._texts[0].shape[1] <= len(TEXT) + cache._GROWTH_COLUMNS
    assert recounted == [3]


def test_without_penalties_nothing_is_counted(own_cache, recounted):
    text = np.ones((2, 3), int)
    data = SamplingData.from_numpy(text, text, np.asarray, True, np.array([1, 2]))
    sample(
        np.zeros((2, 10), np.float32), data, SamplingParam.from_numpy(temperature=np.ones(2), to_tensor=np.asarray)
    )
    assert recounted == []
    assert own_cache.requests == []
