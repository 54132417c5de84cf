"""Properties of every sampler, and for chains of any of them."""

import re
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from logitsmith.samplers import Candidates, Sampler, SamplingError, build, catalogue
from logitsmith.samplers.chain_state import ChainStates

from .rows import FakeVocabulary, make_row, rows, run, table

SAMPLERS = catalogue()
SELECTORS = [name for name, cls in SAMPLERS.items() if cls.about.is_selector]
OTHERS = [name for name in SAMPLERS if name not in SELECTORS]

FEW = settings(max_examples=settings.default.max_examples // 3)
"""Enough for each of many samplers."""

MAY_REFUSE = {"logit_bias", "ignore_eos", "min_tokens", "ban", "sequence_bias", "scripts"}
"""Samplers that ban tokens, and so may find that nothing is left: they say so, they leave no empty row."""


def values(field):
    """A strategy for a parameter, made from its type and its range."""
    kind = field.annotation
    if kind is bool:
        return st.booleans()
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    bounds = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("ge", "gt", "le", "lt")
        if hasattr(rule, key)
    }
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if kind is int:
        low = -20 if low is None else low + ("gt" in bounds)
        return st.integers(low, low + 40 if high is None else high)
    if kind is float:
        low = -4 if low is None else low
        open_ends = {"exclude_min": "gt" in bounds, "exclude_max": "lt" in bounds}
        return st.floats(low, low + 8 if high is None else high, **open_ends) | st.just(field.get_default())
    return st.just(field.get_default(call_default_factory=True))


SPECIAL = {
    "logit_bias": st.fixed_dictionaries(
        {"bias": st.dictionaries(st.just(0), st.floats(-9, 9) | st.just(False), max_size=1)}
    ),
    **{
        name: st.fixed_dictionaries(
            {}, optional={"epsilon": st.floats(0, 0.999), "unit": st.floats(0, 1, exclude_min=True)}
        )
        for name in ("epsilon_cutoff", "eta_cutoff")
    },
    "sequence_bias": st.fixed_dictionaries(
        {},
        optional={
            "bias": st.dictionaries(st.sampled_from(["a", "ab", "\x01\x02"]), st.floats(-9, 9) | st.just(False)),
            "ids": st.lists(st.tuples(st.sampled_from([[0], [0, 0]]), st.floats(-9, 9)), max_size=1),
        },
    ),
    "scripts": st.fixed_dictionaries(
        {}, optional={"allow": st.lists(st.sampled_from(["Latin", "Greek", "Common"]))}
    ),
    "ban": st.fixed_dictionaries(
        {},
        optional={
            "tokens": st.lists(st.just(0), max_size=1),
            "strings": st.lists(st.sampled_from(["a", "ab", "\n", "\x01\x02"]), max_size=2),
            "ignore_case": st.booleans(),
        },
    ),
    "synthid": st.fixed_dictionaries(
        {},
        optional={
            "keys": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9),
            "ngram_len": st.integers(2, 9),
            "context_history_size": st.integers(0, 30),
            "sampling_table_size": st.integers(1, 70_000),
            "sampling_table_seed": st.integers(0, 2**64),
            "skip_first_ngram_calls": st.booleans(),
        },
    ),
}
"""Parameters that their types say too little of."""


def step(name):
    """A step with parameters of any allowed value."""
    if name in SPECIAL:
        return SPECIAL[name].map(lambda params: {name: params})
    fields = SAMPLERS[name].model_fields
    params = st.fixed_dictionaries({}, optional={key: values(field) for key, field in fields.items()})
    return params.map(lambda chosen: {name: chosen})


steps = st.sampled_from(OTHERS).flatmap(step)
selectors = st.sampled_from(SELECTORS).flatmap(step)
chains = st.builds(lambda before, last: [*before, last], st.lists(steps, max_size=7), selectors)
seeds = st.integers(0, 2**32 - 1)
histories = st.lists(st.integers(0, 10_000), max_size=20)
repetitive = st.lists(st.integers(0, 4), max_size=12)


def make_chain(chosen, seed, logits):
    return build(chosen, seed=seed, vocab=FakeVocabulary(logits.size))


def prompt_for(history, logits):
    return [token % logits.size for token in history]


def check(chosen, logits, history, seed):
    """Apply the chain; returns what is left, or None where a step that may refuse did."""
    before = logits.tobytes()
    chain = make_chain(chosen, seed, logits)
    chain.reset(prompt_for(history, logits))
    try:
        left = chain.apply(logits)
    except SamplingError as error:
        refused = str(error).partition(":")[0]
        if refused not in MAY_REFUSE:
            raise
        return None
    finally:
        assert logits.tobytes() == before
    assert 1 <= len(left) <= logits.size
    assert left.ids.dtype == np.int32
    assert left.logits.dtype == left.probs().dtype == np.float32
    assert len(set(left.ids.tolist())) == len(left) == left.logits.size == left.probs().size
    assert np.isfinite(left.max)
    assert left.max == left.logits.max()
    if left.is_ordered:
        assert np.all(left.logits[:-1] >= left.logits[1:])
    assert left.probs().sum(dtype=np.float64) == pytest.approx(1, abs=1e-5)
    assert chain.draw(left) in left.ids
    return left


@pytest.mark.parametrize("name", OTHERS)
@given(data=st.data(), logits=rows(), history=histories)
def test_a_sampler_leaves_rows_and_the_input_alone(name, data, logits, history):
    check([data.draw(step(name))], logits, history, seed=0)


@pytest.mark.parametrize("name", SELECTORS)
@given(data=st.data(), logits=rows(), seed=seeds)
def test_a_selector_selects_one_of_the_rows(name, data, logits, seed):
    chain = make_chain([data.draw(step(name))], seed, logits)
    for _ in range(3):
        token = chain.sample(logits)
        assert 0 <= token < logits.size
        assert logits[token] > -np.inf
        chain.accept(token)


@given(chains, rows(), histories, seeds)
def test_a_chain_leaves_rows_and_the_input_alone(chosen, logits, history, seed):
    check(chosen, logits, history, seed)


def check_reset(chosen, logits, history, seed):
    chain = make_chain(chosen, seed, logits)
    other = make_chain(chosen, seed, logits)

    def tokens_of(one):
        one.reset(prompt_for(history, logits))
        tokens = []
        try:
            for _ in range(8):
                tokens.append(one.sample(logits))
                one.accept(tokens[-1])
            one.sample(logits)  # a token that is never accepted
        except SamplingError as error:
            tokens.append(str(error))
        return tokens

    first = tokens_of(chain)
    assert tokens_of(chain) == first
    assert tokens_of(other) == first


@pytest.mark.parametrize("name", SAMPLERS)
@FEW
@given(data=st.data(), logits=rows(100), history=histories, seed=seeds)
def test_reset_repeats_the_run_of_a_sampler(name, data, logits, history, seed):
    check_reset([data.draw(step(name))], logits, history, seed)


@given(chains, rows(500), histories, seeds)
def test_reset_repeats_a_run(chosen, logits, history, seed):
    check_reset(chosen, logits, history, seed)


@given(chains, seeds, st.data())
def test_apply_changes_no_state(chosen, seed, data):
    logits = make_row("normal", 60, data.draw(seeds))
    one, other = make_chain(chosen, seed, logits), make_chain(chosen, seed, logits)

    def outcome(chain):
        try:
            return chain.sample(logits)
        except SamplingError as error:
            return str(error)

    for _ in range(2):
        try:
            one.apply(logits)
        except SamplingError:
            break
    assert outcome(one) == outcome(other)


MORE_OFF = [
    {"dry": {"multiplier": 1.0, "base": 0.99}},
    {"dry": {"multiplier": 1.0, "last_n": 0}},
    {"k_shift": {"k": 3, "steps": 0}},
    {"penalties": {"repeat": 2.0, "last_n": 0}},
    {"top_n_sigma": -0.5},
    {"top_p": 0.99999999},  # 1 in float32
    {"typical": 0.99999999},
    {"xtc": {"probability": 1.0, "threshold": 0.51}},
]
"""Steps that are off, though not by their off values."""


def changes_nothing(off, logits, history):
    left = run(off, logits, prompt_for(history, logits), prompt_for(history, logits))
    return left.is_full_vocabulary and np.array_equal(left.logits, logits)


LINKED = {"epsilon_cutoff", "eta_cutoff", "logit_bias", "sequence_bias"}
"""Samplers whose other parameters need not fit the off value."""


@pytest.mark.parametrize("name", [name for name in OTHERS if SAMPLERS[name].about.off_values])
@FEW
@given(data=st.data(), logits=rows(300), history=histories)
def test_a_sampler_that_is_off_is_the_identity(name, data, logits, history):
    others = data.draw(step(name))[name] if name not in LINKED else {}
    off = {name: others | SAMPLERS[name].about.off_values}
    assert [made.about.name for made in build([off]).steps] == ["dist"], "it needs no vocabulary either"
    assert changes_nothing(off, logits, history)


@pytest.mark.parametrize("off", MORE_OFF, ids=str)
@FEW
@given(logits=rows(300), history=histories)
def test_more_that_is_off(off, logits, history):
    assert build([off]).apply(logits).logits is logits
    assert changes_nothing(off, logits, history)


def outcome(chosen, candidates, history):
    """The candidates that a step leaves after a text, or what it says."""
    vocabulary = FakeVocabulary(candidates.vocab_size)
    sampler = build([chosen], seed=3, vocab=vocabulary).steps[0]
    sampler.reset(history[: len(history) // 2])
    for token in history[len(history) // 2 :]:
        sampler.accept(token)
    with np.errstate(over="ignore"):  # as in a chain
        sampler.apply(candidates)
    return sorted(table(candidates))


@pytest.mark.parametrize("name", OTHERS)
@FEW
@given(data=st.data(), logits=rows(), history=histories, count=st.integers(1, 6000))
def test_rows_that_an_earlier_step_sorted_are_treated_as_any_rows(name, data, logits, history, count):
    chosen, history = data.draw(step(name)), prompt_for(history, logits)
    ordered = Candidates(logits)
    with np.errstate(over="ignore"):
        ordered.keep_top_rows(count)
        ordered.llama_cpp_probs()
    fresh = Candidates(ordered.logits.copy(), ordered.ids.copy(), logits.size)
    try:
        expected = outcome(chosen, fresh, history)
    except SamplingError as error:
        with pytest.raises(SamplingError, match=f"^{re.escape(str(error))}$"):
            outcome(chosen, ordered, history)
        return
    assert outcome(chosen, ordered, history) == expected
    assert not ordered.is_ordered or np.all(ordered.logits[:-1] >= ordered.logits[1:])


DETERMINISTIC = [name for name in OTHERS if SAMPLERS[name].roll is Sampler.roll]


@pytest.mark.parametrize("name", DETERMINISTIC)
@FEW
@given(data=st.data(), logits=rows(60), prompt=repetitive, output=repetitive)
def test_a_saved_state_is_that_of_the_text(name, data, logits, prompt, output):
    prompt, output = prompt_for(prompt, logits), prompt_for(output, logits)
    chosen = data.draw(step(name))
    chain, unasked = make_chain([chosen], 0, logits), make_chain([chosen], 0, logits)
    states = ChainStates(chain)

    def left(chain=chain):
        try:
            return table(chain.apply(logits))
        except SamplingError as error:
            return str(error)

    def write():
        for token in output:
            yield states.save(), left()
            chain.accept(token)
        yield states.save(), left()

    chain.reset(prompt)
    seen = list(write())
    for place in (len(output), 0, *range(len(output))):
        states.restore(seen[place][0], prompt, output[:place])
        assert left() == seen[place][1]
    states.restore(seen[0][0], prompt, [])
    assert [found for _, found in write()] == [found for _, found in seen]
    chain.reset(prompt)
    assert [found for _, found in write()] == [found for _, found in seen]
    unasked.reset(prompt)
    for token in output:
        unasked.accept(token)
    assert left(unasked) == seen[-1][1]


@given(chains)
def test_config_builds_the_chain_again(chosen):
    chain = build(chosen, seed=3, vocab=FakeVocabulary())
    assert build(chain.config, seed=3, vocab=FakeVocabulary()).config == chain.config
