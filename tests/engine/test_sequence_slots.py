"""Which rows are decoded at once, on a context whose rows tell how many there were."""

import numpy as np
import pytest
from logitsmith.engine.batch_exactness import BatchExactness, ExactnessLevel
from logitsmith.engine.decode_plan import DecodePlan
from logitsmith.engine.sequence_slots import NewTokens, SequenceSlots


class ScriptedContext:
    """Keeps the tokens of each sequence. A row has its sequence's tokens' sum, and what the kernel adds."""

    length, can_truncate = 100, True

    def __init__(self, kernel):
        self._kernel = kernel
        self.tokens = {}
        self.decoded = []

    def decode_spans(self, spans, all_logits=True):
        self._rows = []
        total = sum(len(span.tokens) for span in spans)
        self.decoded.append([span.sequence for span in spans for _ in span.tokens])
        for tokens, position, sequence in spans:
            held = self.tokens.setdefault(sequence, [])
            assert len(held) == position
            for token in tokens:
                held.append(token)
                self._rows.append(np.float32([sum(held), self._kernel(total)]))

    def logits_at(self, index):
        return self._rows[index]

    def forget(self, position, sequence):
        del self.tokens.get(sequence, [])[position:]
        return True


def push(slots, numbers, token=1):
    appends = [NewTokens(slots.all[number], [token]) for number in numbers]
    return {slot.number: rows[0].tolist() for slot, rows in slots.push(appends)}


def make_slots(counts, kernel=lambda total: 0, copies=2):
    native = ScriptedContext(kernel)
    plan = DecodePlan(BatchExactness(ExactnessLevel.EXACT), counts, copies)
    slots = SequenceSlots(native, 8, 512, isolated=False, plan=plan)
    for slot in slots.all:
        slots.read(slot, [slot.number])
    native.decoded.clear()
    return slots, native, plan


@pytest.mark.parametrize(
    ("counts", "numbers", "decoded"),
    [
        pytest.param((2, 4, 8), range(8), [[0, 1, 2, 3, 4, 5, 6, 7]], id="all at once"),
        pytest.param((2, 4), range(8), [[0, 1, 2, 3], [4, 5, 6, 7]], id="two halves"),
        pytest.param((2, 3), range(8), [[0, 1], [2, 3, 4], [5, 6, 7]], id="threes"),
        pytest.param((2, 4), [5, 2, 3], [[2, 3], [5, 5]], id="only adjacent ones, and one is doubled"),
        pytest.param((4,), [1], [[1, 1, 1, 1]], id="three copies"),
    ],
)
def test_rows_are_decoded_in_groups_that_agree(counts, numbers, decoded):
    slots, native, _ = make_slots(counts, copies=min(counts))
    rows = push(slots, numbers)
    assert native.decoded == decoded
    assert rows == {number: [number + 1, 0] for number in numbers}
    assert all(native.tokens[number] == slots.all[number].tokens == [number, 1] for number in numbers)


def test_a_number_of_rows_that_agrees_is_used_from_then_on():
    slots, native, plan = make_slots((2, 4, 8))
    push(slots, range(6))
    assert native.decoded == [[0, 1, 2, 3, 4, 5], [0, 1], [2, 3, 4, 5]]
    assert plan.counts == (2, 4, 6, 8)
    native.decoded.clear()
    assert push(slots, range(6)) == {number: [number + 2, 0] for number in range(6)}
    assert native.decoded == [[0, 1, 2, 3, 4, 5]]


def test_a_number_of_rows_that_does_not_agree_is_tried_once_and_its_rows_are_thrown_away():
    slots, native, plan = make_slots((2, 4, 8), kernel=lambda total: total % 2)
    assert push(slots, range(2, 7)) == {number: [number + 1, 0] for number in range(2, 7)}
    assert plan.counts == (2, 4, 8)
    native.decoded.clear()
    push(slots, range(2, 7))
    assert native.decoded == [[2, 2], [3, 4, 5, 6]]


def test_more_rows_than_agree_are_not_tried():
    slots, native, _ = make_slots((2, 4))
    push(slots, range(5))
    assert native.decoded == [[0, 0], [1, 2, 3, 4]]


def test_only_chunks_that_both_prompts_would_read_are_shared():
    slots, native, _ = make_slots((2, 4))
    native.copy = lambda source, target: native.tokens.update({target: native.tokens[source][:]})
    donor = list(range(90))  # one chunk
    assert slots.read(slots.all[0], donor[:80]) == 0
    native.length = 1000
    slots.length = slots.all[1].length = slots.all[2].length = slots.all[3].length = 1000
    assert slots.read(slots.all[1], [*donor, *range(200)]) == 0  # its first chunk has 64 tokens, not 80
    assert slots.read(slots.all[2], [*donor, *range(110)]) == 128
    assert slots.read(slots.all[3], [*donor, *range(10, 110)]) == 64
