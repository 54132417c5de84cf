"""A recorded chain draws what the chain alone draws, and the record is what a whole row shows."""

import math

import numpy as np
import pytest
from hypothesis import given
from logitsmith.samplers import (
    Candidates,
    ChainRecorder,
    Sampler,
    SamplerInfo,
    SamplingError,
    Selector,
    StageCandidates,
    build,
)

from .rows import FakeVocabulary, make_row, row, rows, softmax, table
from .test_properties import chains, histories, make_chain, prompt_for, seeds

TOKENS = 6


def outcomes(chain, sample, logits, history, mask):
    """Tokens, what was drawn from, and the message if a step refuses."""
    chain.reset(prompt_for(history, logits))
    found = []
    try:
        for _ in range(TOKENS):
            token, ids, left = sample(logits, mask)
            found.append((token, ids.tolist(), left.tobytes()))
            chain.accept(token)
    except SamplingError as error:
        found.append(str(error))
    return found


def alone(chain):
    def sample(logits, mask):
        left = chain.apply(logits, mask)
        return chain.draw(left), left.ids, left.logits

    return sample


def recorded(chain, records):
    recorder = ChainRecorder(chain)

    def sample(logits, mask):
        records.append(recorder.sample(logits, mask))
        last = records[-1].stages[-1].candidates
        return records[-1].token, last.ids, last.logits

    return sample


def check_record(record, chain, logits, mask):
    names = ["model", *(["grammar"] if mask is not None else []), *(step.about.name for step in chain.steps)]
    assert [stage.name for stage in record.stages] == names
    assert [stage.step for stage in record.stages if stage.step is not None] == list(range(len(chain.steps)))
    assert record.stages[0].candidates.logits.tobytes() == logits.tobytes()
    for stage in record.stages:
        probs = np.array(softmax(stage.candidates.logits))
        terms = probs[probs > 0]
        assert len(stage.candidates) == stage.candidates.ids.size == probs.size
        assert stage.candidates.entropy == pytest.approx(-(terms * np.log(terms)).sum(), abs=1e-5, rel=1e-5)
        assert stage.candidates.highest_probability == pytest.approx(probs.max(), rel=1e-5)
        assert stage.note is None or (stage.note and stage.note == stage.note.strip())
    draw = record.draw
    if draw is not None:
        probs = np.array(softmax(record.stages[-1].candidates.logits))
        position = record.stages[-1].candidates.ids.tolist().index(record.token)
        assert draw.low - 1e-12 <= draw.u <= draw.high + 1e-12
        assert draw.low == pytest.approx(probs[:position].sum(), abs=1e-5)
        assert draw.high == pytest.approx(probs[: position + 1].sum(), abs=1e-5)


@given(chains, rows(700), histories, seeds, seeds)
def test_tracing_changes_nothing(chosen, logits, history, seed, mask_seed):
    mask = None
    if mask_seed % 2:
        mask = np.random.default_rng(mask_seed).random(logits.size) < 0.7
    records = []
    chain, other = make_chain(chosen, seed, logits), make_chain(chosen, seed, logits)
    before = logits.tobytes()
    assert outcomes(other, recorded(other, records), logits, history, mask) == outcomes(
        chain, alone(chain), logits, history, mask
    )
    assert logits.tobytes() == before
    for record in records:
        check_record(record, other, logits, mask)
    for record in records[:1]:
        steps = other.config[:-1]
        for number, stage in enumerate(record.stages[-1 - len(steps) : -1], 1):
            shorter = make_chain(steps[:number], seed, logits)
            shorter.reset(prompt_for(history, logits))
            assert table(stage.candidates) == table(shorter.apply(logits, mask))


@pytest.mark.parametrize("selector", ["dist", "mirostat", "mirostat_v2", "adaptive_p0.3"])
@pytest.mark.parametrize("size", [5, 700, 49_152])
def test_u_finds_the_token_by_bisection(selector, size):
    chain = build(f"temp1.5 > {selector}", seed=11)
    recorder = ChainRecorder(chain)
    drawn = []
    for number in range(20):
        logits = make_row("normal", size, number)
        record = recorder.sample(logits)
        last = record.stages[-1].candidates
        if record.draw is None:
            assert len(last) == 1
            continue
        sums = np.cumsum(last.candidates.weights().astype(np.float64))
        position = int(np.searchsorted(sums / sums[-1], record.draw.u))
        assert last.ids[position] == record.token
        edges = (0 if position == 0 else sums[position - 1] / sums[-1], sums[position] / sums[-1])
        assert (record.draw.low, record.draw.high) == pytest.approx(edges, abs=1e-6)
        assert record.draw.low <= record.draw.u <= record.draw.high
        drawn.append(record.draw.u)
        chain.accept(record.token)
    assert len(set(drawn)) == len(drawn) > 0


def test_the_random_numbers_are_those_of_the_seed():
    chain = build("dist", seed=5)
    recorder = ChainRecorder(chain)
    logits = row(1, 2, 3)
    drawn = [recorder.sample(logits).draw.u for _ in range(200)]
    words = np.random.RandomState(5).bytes(8 * 200)
    assert drawn == (np.frombuffer(words, dtype="<u8").astype(np.float64) / 2.0**64).tolist()


def test_recorded_and_plain_tokens_can_take_turns():
    logits = make_row("normal", 300, 1)
    plain, mixed = (build("xtc(probability=0.5, threshold=0.01) > dist", seed=9) for _ in range(2))
    recorder = ChainRecorder(mixed)
    for number in range(100):
        expected = plain.sample(logits)
        token = recorder.sample(logits).token if number % 3 else mixed.sample(logits)
        assert token == expected
        plain.accept(token)
        mixed.accept(token)


def test_a_mask_is_a_stage_of_its_own():
    logits = row(1, 2, 3, 4)
    record = ChainRecorder(build("greedy")).sample(logits, np.array([True, True, False, False]))
    assert [(stage.name, len(stage.candidates), stage.note) for stage in record.stages] == [
        ("model", 4, None),
        ("grammar", 2, "2 of 4 tokens allowed"),
        ("greedy", 1, "the highest of 2 logits, 2"),
    ]
    assert record.token == 1
    assert record.draw is None


def test_the_roll_of_xtc_is_recorded():
    logits = row(3, 3, 1)
    chain = build("xtc(probability=0.5, threshold=0.1) > dist", seed=4)
    recorder = ChainRecorder(chain)
    words = np.frombuffer(np.random.RandomState(4).bytes(4 * 30), dtype="<u4")
    rolls = [float(word / np.float32(2**32)) for word in words.astype(np.float32)]
    for roll in rolls:
        record = recorder.sample(logits)
        assert record.stages[1].roll == roll
        assert len(record.stages[1].candidates) == (3 if roll > 0.5 else 2)
        assert record.stages[1].note.startswith("not rolled" if roll > 0.5 else "rolled")
        assert record.stages[2].roll is None
        chain.accept(record.token)


class Plain(Sampler):
    """A step of another package, without a note."""

    about = SamplerInfo("plain", "", "", "", "")

    def apply(self, candidates):
        candidates.filter_rows(candidates.logits > 1)


class Careless(Plain):
    """A step whose note fails."""

    about = SamplerInfo("careless", "", "", "", "")

    def note(self, before, after):
        return f"{1 / (len(after) - len(after))}"


class Last(Selector):
    """A selector of another package that draws nothing by chance."""

    about = SamplerInfo("last", "", "", "", "", is_selector=True)

    def select(self, candidates):
        return int(candidates.ids[-1])


def test_a_plug_in_without_a_note_has_the_rest():
    chain = build([Plain(), Last()])
    record = ChainRecorder(chain).sample(row(0, 2, 3))
    assert record.token == 2
    assert record.draw is None
    assert [(stage.name, len(stage.candidates), stage.note) for stage in record.stages[1:]] == [
        ("plain", 2, None),
        ("last", 2, None),
    ]
    assert record.stages[1].candidates.entropy == pytest.approx(0.582203, abs=1e-6)


def test_a_note_that_fails_names_its_step():
    chain = build([Careless(), Last()])
    assert chain.sample(row(0, 2, 3)) == 2
    with pytest.raises(SamplingError, match="careless: note failed: ZeroDivisionError"):
        ChainRecorder(chain).sample(row(0, 2, 3))


def test_a_step_that_fails_fails_as_without_a_trace():
    chain = build("ban(tokens=[0]) > greedy", vocab=FakeVocabulary(1))
    with pytest.raises(SamplingError) as plain:
        chain.sample(row(1))
    with pytest.raises(SamplingError) as traced:
        ChainRecorder(chain).sample(row(1))
    assert str(plain.value) == str(traced.value) == "ban: every candidate left is banned"


def stage(values, ids=None, vocabulary=10):
    return StageCandidates(Candidates(row(*values), None if ids is None else np.array(ids, np.int32), vocabulary))


def test_positions_of_tokens():
    whole = stage([1, 2, 3], vocabulary=3)
    assert whole.positions_of(np.array([2, 0])).tolist() == [2, 0]
    few, many = stage([1, 2, 3], [7, 2, 5], 1000), stage([1, 2, 3], [7, 2, 5], 10)
    for some in (few, many):
        assert some.positions_of(np.array([5, 7, 1, 9, 2])).tolist() == [2, 0, -1, -1, 1]


def test_changes_of_logits():
    before = stage([1, 2, 3, -math.inf], [4, 3, 2, 1])
    assert stage([1, 2, 3, -math.inf], [4, 3, 2, 1]).changes_since(before).tolist() == []
    assert stage([3.5, 1], [2, 4]).changes_since(before).tolist() == [0.5]
    assert stage([0.5, 2, 3, -math.inf], [4, 3, 2, 1]).changes_since(before).tolist() == [-0.5]


def test_the_mass_that_a_later_stage_kept():
    before = stage([math.log(p) for p in (0.5, 0.25, 0.125, 0.125)], [0, 1, 2, 3])
    assert before.mass_of(stage([math.log(0.5), math.log(0.125)], [0, 3])) == pytest.approx(0.625)
    assert before.mass_of(before) == 1.0
