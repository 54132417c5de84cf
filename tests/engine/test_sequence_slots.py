"""The rows that are decoded in one call, on a context whose rows tell how many there were."""

import numpy as np
import pytest
from logitsmith.engine.exactness import DecodePlan
from logitsmith.engine.slots import PromptChunks, SequenceSlots, SlotAppend
from logitsmith.logprobs.events import BatchExactness, ExactnessLevel


class ScriptedContext:
    """Keeps the tokens of each sequence. A row has its sequence's tokens' sum, and what the kernel adds."""

    length, can_truncate, vocab_size = 100, True, 4

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

    def logits(self):
        return self._rows[-1]

    def truncate_sequence(self, position, sequence):
        del self.tokens.get(sequence, [])[position:]
        return True


def append(slots, numbers, token=1, inexact_numbers=()):
    appends = [SlotAppend(slots.slots[number], [token], number not in inexact_numbers) for number in numbers]
    return {slot.number: rows[0].tolist() for slot, rows in slots.append(appends)}


def make_slots(counts, kernel=lambda total: 0, copies=2):
    native = ScriptedContext(kernel)
    plan = DecodePlan(BatchExactness(ExactnessLevel.AMONG_THEMSELVES), counts, copies)
    slots = SequenceSlots(native, 8, PromptChunks(512), plan)
    for slot in slots.slots:
        slots.read(slot, [slot.number])
    native.decoded.clear()
    return slots, native, plan


@pytest.mark.parametrize(
    ("counts", "numbers", "decoded"),
    [
        pytest.param((2, 4, 8), range(8), [[0, 1, 2, 3, 4, 5, 6, 7]], id="all in one call"),
        pytest.param((2, 4), range(8), [[0, 1, 2, 3], [4, 5, 6, 7]], id="two halves"),
        pytest.param((2, 3), range(8), [[0, 1], [2, 3, 4], [5, 6, 7]], id="threes"),
        pytest.param((2,), [5, 2, 3], [[2, 3], [5, 5]], id="only adjacent ones, and one is doubled"),
        pytest.param((2, 4, 8), [0, 1, 2, 4, 6], [[0, 1, 2, 3, 4, 5, 6, 7]], id="holes are filled"),
        pytest.param((2, 4), [7, 5], [[4, 5, 6, 7]], id="a group lies within the slots"),
        pytest.param((4,), [1], [[1, 1, 1, 1]], id="three copies"),
    ],
)
def test_rows_are_decoded_in_groups_that_agree(counts, numbers, decoded):
    slots, native, _ = make_slots(counts, copies=min(counts))
    rows = append(slots, numbers)
    assert native.decoded == decoded
    assert rows == {number: [number + 1, 0] for number in numbers}
    assert all(native.tokens[number] == slots.slots[number].tokens == [number, 1] for number in numbers)


@pytest.mark.parametrize(
    ("numbers", "inexact_numbers", "decoded"),
    [
        pytest.param([1], [1], [[1]], id="one alone without a copy"),
        pytest.param([0, 1, 2], [0, 1, 2], [[0, 1, 2]], id="three together"),
        pytest.param([0, 1, 2], [0, 2], [[0, 1, 2, 3]], id="with an exact one as the plan says"),
    ],
)
def test_tokens_that_need_not_be_exact_take_groups_of_any_size(numbers, inexact_numbers, decoded):
    slots, native, _ = make_slots((4,), copies=4)
    append(slots, numbers, inexact_numbers=inexact_numbers)
    assert native.decoded == decoded
    assert all(native.tokens[number] == [number, 1] for number in numbers)


def test_fillers_leave_nothing_behind():
    slots, native, _ = make_slots((2, 4, 8))
    native.tokens[3].append(9)  # of a prompt that could not be read to its end
    for _ in range(3):
        append(slots, [0, 2, 4, 5, 7])
    assert native.tokens == {n: [n, 1, 1, 1] if n in (0, 2, 4, 5, 7) else [n] for n in range(8)}


def append_run(slots, tokens):
    ((slot, rows),) = slots.append([SlotAppend(slots.slots[2], tokens)])
    assert slot.tokens == [2, *tokens]
    return [row.tolist() for row in rows]


def test_a_run_of_tokens_is_read_one_by_one_once_and_compared():
    slots, native, _ = make_slots((2, 4, 8))
    assert not slots.is_one_call_exact(3)
    assert append_run(slots, [5, 6, 7]) == [[7, 0], [13, 0], [20, 0]]
    assert native.decoded == [[2, 2, 2], [2, 2], [2, 2], [2, 2]]
    assert slots.is_one_call_exact(3)
    assert not slots.is_one_call_exact(4)
    slots.discard_last(slots.slots[2], 3)
    native.decoded.clear()
    append_run(slots, [5, 6, 7])
    assert native.decoded == [[2, 2, 2]]


def test_a_run_of_tokens_that_differs_one_by_one_is_always_read_at_once():
    slots, native, _ = make_slots((2, 4, 8), kernel=lambda total: total % 2)
    assert append_run(slots, [5, 6, 7]) == [[7, 1], [13, 1], [20, 1]]
    assert native.tokens[2] == [2, 5, 6, 7]
    assert not slots.is_one_call_exact(3)
    slots.discard_last(slots.slots[2], 3)
    native.decoded.clear()
    append_run(slots, [5, 6, 7])
    assert native.decoded == [[2, 2, 2]]


def test_only_chunks_that_both_prompts_would_read_are_shared():
    slots, native, _ = make_slots((2, 4))
    native.copy_sequence = lambda source, target: native.tokens.update({target: native.tokens[source][:]})
    donor = list(range(90))  # one chunk
    assert slots.read(slots.slots[0], donor[:80]).kept_count == 0
    native.length = 1000
    slots.length = slots.slots[1].length = slots.slots[2].length = slots.slots[3].length = 1000
    assert (
        slots.read(slots.slots[1], [*donor, *range(200)]).kept_count == 0
    )  # its first chunk has 64 tokens, not 80
    assert slots.read(slots.slots[2], [*donor, *range(110)]).kept_count == 128
    assert slots.read(slots.slots[3], [*donor, *range(10, 110)]).kept_count == 64
