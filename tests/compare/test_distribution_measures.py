"""Distances between distributions: against scipy, and against what chains really draw."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from logitsmith.common.errors import UsageError
from logitsmith.compare.distribution_measures import (
    MeasuredArm,
    TokenPath,
    jensen_shannon,
    measure_paths,
    summarize,
    text_windows,
)
from logitsmith.engine.next_token import probabilities
from logitsmith.samplers.building import build, parse_chain
from logitsmith.samplers.chain import StepSpec
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr, softmax
from scipy.stats import chisquare

VOCABULARY_SIZE = 12


class TinyVocabulary:
    size, eog, end, bos, newline, adds_bos = VOCABULARY_SIZE, frozenset({0}), 0, 1, 2, False

    pieces = tuple(f" t{token}".encode() for token in range(VOCABULARY_SIZE))

    def piece(self, token):
        return self.pieces[token]


class TinyModel:
    """A model whose logits depend on the last two tokens."""

    def __init__(self, seed=0, scale=2.0):
        table = np.random.default_rng(seed).normal(0, scale, size=(VOCABULARY_SIZE,) * 3).astype(np.float32)
        self.vocabulary = TinyVocabulary()
        self.context = SimpleNamespace(read_each=self.rows)
        self._table = table

    def rows(self, tokens):
        for index, token in enumerate(tokens):
            yield self._table[tokens[index - 1] if index else 0, token]


def arm(name, chain, model):
    return MeasuredArm(name, model, [StepSpec(sampler) for sampler in parse_chain(chain)])


PATH = TokenPath("prompt 1", (3, 4, 5, 6, 7, 8, 3, 4, 5, 6), 2)


def chain_rows(model, chain, path=PATH):
    """The distribution of a chain at each measured token of a path, by `Chain.apply` alone."""
    built = build(chain, vocab=model.vocabulary)
    built.reset(path.tokens[: path.first])
    for index, row in enumerate(model.rows(path.tokens[:-1]), 1):
        if index >= path.first:
            yield probabilities(built.apply(row))
            built.accept(path.tokens[index])


def test_distances_are_those_of_scipy():
    model = TinyModel()
    values = measure_paths([arm("a", "temp0.9", model), arm("b", "temp1.7", model)], [PATH])[1]
    pairs = list(zip(chain_rows(model, "temp0.9"), chain_rows(model, "temp1.7"), strict=True))
    assert len(values.kl) == len(pairs) == 8
    for index, (p, q) in enumerate(pairs):
        assert values.total_variation[index] == pytest.approx(np.abs(p - q).sum() / 2, abs=1e-12)
        assert values.kl[index] == pytest.approx(rel_entr(p, q).sum(), abs=1e-9)
        assert values.reverse_kl[index] == pytest.approx(rel_entr(q, p).sum(), abs=1e-9)
        assert values.jensen_shannon[index] == pytest.approx(jensenshannon(p, q) ** 2, abs=1e-9)
        assert values.same_top[index] == (p.argmax() == q.argmax())


def test_jensen_shannon_of_disjoint_distributions_is_ln_2():
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(math.log(2))


def test_dropped_mass_is_the_models():
    model = TinyModel()
    values = measure_paths([arm("a", "dist", model), arm("b", "top_k=3", model)], [PATH])
    rows = [softmax(row.astype(np.float64)) for row in list(model.rows(PATH.tokens[:-1]))[1:]]
    assert values[0].dropped_mass == pytest.approx([0] * len(rows), abs=1e-12)
    assert values[1].dropped_mass == pytest.approx([1 - np.sort(row)[-3:].sum() for row in rows])
    assert values[1].kept == [3] * len(rows)
    assert all(map(math.isinf, values[1].kl))
    assert np.isfinite(values[1].reverse_kl).all()


def test_penalties_see_the_text_before():
    model = TinyModel(scale=0.1)
    values = measure_paths([arm("a", "dist", model), arm("b", "penalties(repeat=3.0, last_n=64)", model)], [PATH])
    assert values[1].total_variation[-1] > 0
    expected = list(chain_rows(model, "penalties(repeat=3.0, last_n=64) > dist"))
    plain = list(chain_rows(model, "dist"))
    assert values[1].total_variation == pytest.approx(
        [np.abs(p - q).sum() / 2 for p, q in zip(plain, expected, strict=True)]
    )


@pytest.mark.parametrize(
    "chain",
    [
        "dist",
        "temp0.7 > dist",
        "top_k=4 > temp1.3 > dist",
        "min_p=0.2 > dist",
        "typical=0.8 > dist",
        "greedy",
        "adaptive_p=0.3",
        "mirostat_v2=2.0",
    ],
)
@pytest.mark.parametrize("draws", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_distribution_is_that_of_many_draws(chain, draws):
    """The first token's distribution, enumerated, against the tokens that the chain really draws."""
    model = TinyModel(seed=4)
    row = next(model.rows([3]))
    path = TokenPath("prompt", (3, 4), 1)
    built = build(chain, seed=1, vocab=model.vocabulary)
    candidates = built.apply(row)
    built.draw(candidates)
    expected = probabilities(candidates)
    counts = np.zeros(VOCABULARY_SIZE)
    kept_state = build(chain, seed=9, vocab=model.vocabulary)
    for _ in range(draws):
        if chain.startswith("mirostat"):  # each draw changes mu, so only the first draw of a text is compared
            kept_state = build(chain, seed=int(counts.sum()), vocab=model.vocabulary)
        counts[kept_state.sample(row)] += 1
        if chain.startswith("mirostat") and counts.sum() == 5000:
            break
    possible = expected > 0
    assert counts[~possible].sum() == 0
    if possible.sum() > 1:
        assert chisquare(counts[possible], expected[possible] * counts.sum()).pvalue > 1e-4
    values = measure_paths([arm("a", "dist", model), arm("b", chain, model)], [path])[1]
    assert values.total_variation == pytest.approx([np.abs(softmax(row.astype(np.float64)) - expected).sum() / 2])


def test_the_worst_places_are_those_with_the_largest_distance():
    model = TinyModel()
    paths = [TokenPath(f"prompt {number}", (number, *PATH.tokens), 2) for number in range(3, 9)]
    values = measure_paths([arm("a", "dist", model), arm("b", "temp3", model)], paths)[1]
    worst = [place.total_variation for place in values.worst]
    assert worst == sorted(values.total_variation, reverse=True)[: len(worst)]
    assert len(worst) == 5
    place = values.worst[0]
    path = next(path for path in paths if path.label == place.label)
    before = path.tokens[: path.first + place.position]
    assert place.before == "".join(f" t{token}" for token in before)
    assert all(0 <= share <= 1 for token in place.tokens for share in token[1:])


def test_models_with_other_tokens_are_rejected():
    other = TinyModel(1)
    other.vocabulary = SimpleNamespace(size=VOCABULARY_SIZE, pieces=(b"x",) * VOCABULARY_SIZE, eog=frozenset({0}))
    with pytest.raises(UsageError, match="different tokens"):
        measure_paths([arm("a", "dist", TinyModel()), arm("b", "dist", other)], [PATH])


def test_two_models_have_the_figures_of_the_perplexity_tool():
    first, second = TinyModel(0), TinyModel(1)
    values = measure_paths([arm("a", "dist", first), arm("b", "dist", second)], [PATH])[1]
    fields = summarize(values)["models"]
    rows = [
        [softmax(row.astype(np.float64)) for row in list(model.rows(PATH.tokens[:-1]))[1:]]
        for model in (first, second)
    ]
    kl = [rel_entr(p, q).sum() for p, q in zip(*rows, strict=True)]
    assert fields["kl"]["mean"] == pytest.approx(np.mean(kl))
    assert fields["kl"]["standard_error"] == pytest.approx(np.std(kl, ddof=1) / math.sqrt(len(kl)))
    tokens = PATH.tokens[2:]
    surprises = [[-math.log(row[token]) for row, token in zip(side, tokens, strict=True)] for side in rows]
    assert fields["perplexity"] == pytest.approx(math.exp(np.mean(surprises[0])))
    assert fields["other_perplexity"] == pytest.approx(math.exp(np.mean(surprises[1])))


@pytest.mark.parametrize(("length", "firsts"), [(5, [2]), (8, [5]), (20, [5, 5]), (24, [5, 5, 5])])
def test_a_text_is_cut_into_windows_whose_second_half_counts(length, firsts):
    windows = list(text_windows(TinyModel(), range(length), 8))
    assert [window.first for window in windows] == firsts
    assert [token for window in windows for token in window.tokens] == list(range(len(firsts) * 8))[:length]
