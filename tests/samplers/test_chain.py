import math

import numpy as np
import pytest
from logitsmith.common.seeds import SEED_VALUES
from logitsmith.samplers import (
    SEED_MAX,
    SEED_MIN,
    BuildContext,
    Candidates,
    Chain,
    Sampler,
    SamplerInfo,
    SamplingError,
    Selector,
    StepError,
    StepSpec,
    build,
    make_sampler,
)
from logitsmith.samplers.methods.greedy import Greedy

from .parity import CHAINS, same_tokens
from .rows import NEG, FakeVocabulary, make_row, ranked, row, table


def names(chain):
    return [step.about.name for step in chain.steps]


@pytest.mark.parametrize("size", [256, 3000])
@pytest.mark.parametrize("seed", [0, 1234, 2**32 - 2])
@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_draws_the_tokens_of_llama_cpps_chain(steps, seed, size):
    same_tokens(steps, seed, draws=200, size=size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [512, 32_000])
@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS)
def test_draws_the_tokens_of_llama_cpps_chain_at_length(steps, size):
    draws = sum(same_tokens(steps, seed, draws=2000 if size < 1000 else 300, size=size) for seed in (1, 77, 2**31))
    print(f"\n{steps}, {size} tokens: {draws} draws equal llama.cpp's")


LEADING = {
    "top_k": ("top_k5 > greedy", 5000, 5),
    "more steps after it": ("top_k40 > top_p0.5 > temp2", 5000, 40),
    "changed logits": ("temp2 > top_k5", 5000, None),
    "a bias": ("logit_bias(3=100) > top_k5", 5000, None),
    "a dropped row": ("ban(tokens=3) > top_k5", 5000, None),
    "no top_k": ("min_p0.1", 5000, None),
    "a short row": ("top_k5", 500, None),
}


@pytest.mark.parametrize(("steps", "size", "count"), LEADING.values(), ids=LEADING)
def test_leading_rows_are_those_of_the_logits(steps, size, count):
    chain, logits = build(steps, seed=1), make_row("normal", size, 1)
    candidates = chain.apply(logits)
    chain.draw(candidates)
    if count is None:
        assert candidates.top_rows is None
    else:
        ids, values = candidates.top_rows
        assert ids.tolist() == ranked(logits)[:count]
        assert values.tolist() == logits[ids].tolist()


def test_no_leading_rows_under_a_mask():
    chain, logits = build("top_k5", seed=1), make_row("normal", 5000, 1)
    assert chain.apply(logits, np.arange(5000) % 2 == 0).top_rows is None


def test_dist_is_appended():
    assert names(build([])) == ["dist"]
    assert names(build(["top_k"])) == ["top_k", "dist"]
    assert names(build(["top_k", "greedy"])) == ["top_k", "greedy"]


def test_neutral_needs_all_of_its_parameters():
    chain = build([{"penalties": {"repeat": 1.0, "frequency": 0.1}}])
    assert names(chain) == ["penalties", "dist"]


def test_steps_run_in_order():
    # Halving the temperature before top_p keeps fewer than after it.
    logits = row(2, 1.5, 1, 0.5)
    before = build([{"temperature": 0.5}, {"top_p": 0.75}]).apply(logits)
    after = build([{"top_p": 0.75}, {"temperature": 0.5}]).apply(logits)
    assert (len(before), len(after)) == (2, 3)


def test_the_same_sampler_twice():
    assert len(build("top_k5 > temp2 > top_k3").apply(row(1, 2, 3, 4, 5, 6))) == 3
    assert build("temp2 > temp2").apply(row(4, 8)).logits.tolist() == [1.0, 2.0]
    chain = build([{"penalties": {"repeat": 2.0}}, {"penalties": {"presence": 1.0}}])
    chain.reset([1])
    assert chain.apply(row(0, 8)).logits.tolist() == [0.0, 3.0]


def test_the_same_object_twice_or_in_two_chains_shares_no_state():
    step = make_sampler({"penalties": 2.0}, "step")
    one, other = build([step]), build([step, step])
    one.reset([1])
    assert one.apply(row(8, 8)).logits.tolist() == [8.0, 4.0]
    assert other.apply(row(8, 8)).logits.tolist() == [8.0, 8.0]


def run(chain, logits, prompt, count=40):
    chain.reset(prompt)
    tokens = []
    for _ in range(count):
        tokens.append(chain.sample(logits))
        chain.accept(tokens[-1])
    return tokens


def test_the_seed_and_the_prompt_matter():
    logits = make_row("flat", 500, 4)
    assert run(build([], seed=1), logits, []) != run(build([], seed=2), logits, [])
    steps = [{"penalties": 3.0}, "greedy"]
    best = int(logits.argmax())
    assert run(build(steps), logits, [best], 1) != run(build(steps), logits, [], 1)


def test_sample_is_apply_then_draw():
    logits = make_row("normal", 100, 2)
    one, other = build("top_k9 > temp0.7", seed=3), build("top_k9 > temp0.7", seed=3)
    assert [one.sample(logits) for _ in range(30)] == [other.draw(other.apply(logits)) for _ in range(30)]


def test_logits_further_apart_than_float32_reaches_are_drawn_without_a_warning():
    logits = row(3e38, -3e38, 3e38)
    assert build([]).sample(logits) in (0, 2)
    assert build([]).draw(Candidates(logits)) in (0, 2)


def test_a_token_is_an_int():
    for steps in ([], ["greedy"], ["top_k"]):
        assert type(build(steps).sample(row(1, 2, 3))) is int


# The mask


def test_the_mask_precedes_the_steps():
    logits = row(9, 1, 3, 2)
    mask = np.array([False, True, True, True])
    left = build([{"top_k": 2}]).apply(logits, mask)
    assert table(left) == [(2, 3.0), (3, 2.0)]
    assert left.probs().sum() == pytest.approx(1.0, abs=1e-6)
    assert left.vocab_size == 4
    assert build(["greedy"]).sample(logits, mask) == 2


def test_a_mask_of_everything_changes_nothing():
    logits = row(9, 1)
    assert build([]).apply(logits, np.ones(2, bool)).logits is logits


MASKS = {
    "a list": ([True, True, True], "mask: expected bool of shape (3,), got list"),
    "numbers": (np.ones(3), "mask: expected bool of shape (3,), got float64 of shape (3,)"),
    "too short": (np.ones(2, bool), "mask: expected bool of shape (3,), got bool of shape (2,)"),
    "two rows": (np.ones((1, 3), bool), "mask: expected bool of shape (3,), got bool of shape (1, 3)"),
    "nothing allowed": (np.zeros(3, bool), "mask: it allows no token"),
    "only -inf allowed": (np.array([True, False, False]), "mask: every token it allows has a logit of -inf"),
}


@pytest.mark.parametrize(("mask", "message"), MASKS.values(), ids=MASKS)
def test_a_bad_mask(mask, message):
    with pytest.raises(SamplingError) as caught:
        build([]).apply(row(NEG, 1, 2), mask)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [math.nan, math.inf, NEG])
def test_a_step_that_leaves_no_finite_logit_is_named(value):
    class Broken(Sampler):
        about = make_sampler("top_k", "step").about.__class__(
            name="broken", summary="s", formula="f", reference="r", llama_cpp="l"
        )

        def apply(self, candidates):
            candidates.set_logits(np.full_like(candidates.logits, value))

    with pytest.raises(SamplingError, match=r"^broken: left no finite logit$"):
        build([Broken()]).apply(row(1, 2))


# What selects


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            ["dist", "greedy"],
            "chain[0] dist and chain[1] greedy both select a token; a chain has one, its last step",
        ),
        (
            ["greedy", "top_k", "greedy"],
            "chain[0] greedy and chain[2] greedy both select a token; a chain has one, its last step",
        ),
        (
            ["dist", {"top_k": 3}, "temp"],
            "chain[0] dist selects a token, so it must be the last step; chain[1] top_k follows",
        ),
        (
            ["dist", {"top_k": 0}],
            "chain[0] dist selects a token, so it must be the last step; chain[1] top_k follows",
        ),
    ],
)
def test_what_selects_stands_once_and_last(steps, message):
    with pytest.raises(SamplingError) as caught:
        build(steps)
    assert str(caught.value) == message


def test_a_sampler_that_only_says_that_it_selects():
    class Liar(Sampler):
        about = Greedy.about

    with pytest.raises(SamplingError, match=r"^greedy has is_selector=True, but is not a Selector$"):
        Chain([StepSpec(Liar())], BuildContext(0))


# The seed and the rest


@pytest.mark.parametrize(
    ("seed", "shown"),
    [
        (SEED_MIN - 1, "-9223372036854775809"),
        (SEED_MAX + 1, "9223372036854775808"),
        (1.0, "1.0"),
        (True, "true"),
        (None, "null"),
        ("1", "'1'"),
    ],
)
def test_a_seed_outside_the_range(seed, shown):
    with pytest.raises(SamplingError) as caught:
        build([], seed=seed)
    assert str(caught.value) == f"seed: {shown} is not {SEED_VALUES}"


@pytest.mark.parametrize("seed", [SEED_MIN, 0, SEED_MAX])
def test_a_seed_at_the_ends(seed):
    assert build([], seed=seed).seed == seed


@pytest.mark.parametrize("seed", [7 + 2**32, 7 - 2**32, 7 + 2**62, 7 - 2**63], ids=str)
def test_samplers_get_the_low_32_bits_of_a_seed(seed):
    chain, small = build([], seed=seed), build([], seed=7)
    assert chain.seed == seed
    logits = row(*[0.0] * 1000)
    assert [chain.sample(logits) for _ in range(50)] == [small.sample(logits) for _ in range(50)]


def test_minus_one_is_a_random_seed_that_repeats():
    seeds = {build([], seed=-1).seed for _ in range(5)}
    assert len(seeds) > 1
    assert min(seeds) >= 0


def test_config_spells_everything_out_and_builds_the_same_chain():
    chain = build([{"top_p": 0.9}, "temp", {"logit_bias": {3: False, 1: 2}}], seed=5)
    assert chain.config == [
        {"top_p": {"p": 0.9, "min_keep": 1, "boundary": "include"}},
        {"temperature": {"t": 0.8}},
        {"logit_bias": {"bias": {3: False, 1: 2.0}}},
        {"dist": {}},
    ]
    assert chain.config[2]["logit_bias"]["bias"][3] is False, "JSON has no -inf"
    assert build(chain.config, seed=5).config == chain.config


def test_repr():
    assert repr(build("top_k40 > temp0.8", seed=7)) == "Chain(top_k > temperature > dist, seed=7)"


# Steps that fail, as another package's may


def failing(verb, error):
    """A step that raises in one of its verbs."""

    class Failing(Selector if verb == "select" else Sampler):
        about = SamplerInfo(
            name="failing", summary="s", formula="f", reference="r", llama_cpp="l", is_selector=verb == "select"
        )

    def fail(self, _):
        raise error

    setattr(Failing, verb, fail)
    return Failing()


def use(step):
    chain = build([step])
    chain.accept(chain.sample(row(1, 2, 3)))


@pytest.mark.parametrize("verb", ["bind", "reset", "apply", "select", "accept"])
def test_an_exception_of_a_step_is_reported_with_its_name(verb):
    with pytest.raises(SamplingError, match=rf"^failing: {verb} failed: ValueError: kaput$"):
        use(failing(verb, ValueError("kaput")))
    with pytest.raises(SamplingError, match=r"^(chain\[0\]\.failing: )?of its own$"):
        use(failing(verb, SamplingError("of its own")))
    with pytest.raises(KeyboardInterrupt):
        use(failing(verb, KeyboardInterrupt()))


@pytest.mark.parametrize("before", [[], ["top_k"]], ids=["unordered", "ordered"])
def test_a_step_that_leaves_nothing_is_reported_by_name(before):
    class Nothing(Sampler):
        about = SamplerInfo(name="nothing", summary="s", formula="f", reference="r", llama_cpp="l")

        def apply(self, candidates):
            candidates.filter_rows(np.zeros(len(candidates), dtype=bool))

    with pytest.raises(SamplingError, match=r"^nothing: left no candidate$"):
        build([*before, Nothing(), "top_p"]).apply(row(1, 2))


def test_a_selected_token_is_one_of_the_vocabulary():
    class Beyond(Selector):
        about = SamplerInfo(
            name="beyond", summary="s", formula="f", reference="r", llama_cpp="l", is_selector=True
        )

        def select(self, candidates):
            return 9

    with pytest.raises(SamplingError, match=r"^beyond: selected 9, not within 0\.\.1$"):
        build([Beyond()]).sample(row(1, 2))


# What shows only when the chain gets its vocabulary


def test_a_parameter_that_does_not_fit_the_vocabulary_is_reported_with_its_place():
    vocabulary = FakeVocabulary()
    for steps, message in [
        (
            ["top_k", {"ban": "ab"}],
            "chain[1].ban.tokens: 'ab' is 2 tokens [97, 98]; give one token, or its id; or use ban.strings",
        ),
        ([{"top_k": 0}, {"ban": "a"}, {"ban": [200]}], "chain[2].ban.tokens: token id 200 is not within 0..127"),
    ]:
        with pytest.raises(StepError) as caught:
            build(steps, vocab=vocabulary)
        assert str(caught.value) == message


def test_a_step_that_knows_where_it_was_written_says_so():
    step = make_sampler({"ban": {"tokens": "ab", "strings": ["\udcff"]}}, "it")
    for tokens, origins, message in [
        (["ab"], {}, "mine.yaml: chain[7].ban.tokens: 'ab' is 2 tokens"),
        (["ab"], {"tokens": "--set ban"}, "--set ban: 'ab' is 2 tokens"),
        ([], {"tokens": "--set ban"}, "mine.yaml: chain[7].ban.strings: "),
    ]:
        sampler = step.model_copy(update={"tokens": tokens})
        with pytest.raises(StepError) as caught:
            build([StepSpec(sampler, origins, "preset mine", "mine.yaml: chain[7].ban")], vocab=FakeVocabulary())
        assert str(caught.value).startswith(message)
