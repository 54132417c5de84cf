"""A basis: computed from a matrix or from rows, solved, saved, and rejected if it does not fit."""

import numpy as np
import pytest
from logitsmith.recover import (
    Basis,
    LocalEndpoint,
    RecoverError,
    RecoverySettings,
    basis_from_rows,
    output_matrix,
    recover,
)

from .fakes import Fake, log_softmax

SIZE, WIDTH = 600, 24
RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.normal(0, 0.5, (SIZE, WIDTH)).astype(np.float32)


def row(seed=7):
    return log_softmax(MATRIX.astype(np.float64) @ np.random.default_rng(seed).normal(0, 1.5, WIDTH))


BASES = {
    "matrix": Basis.of_matrix(MATRIX, "matrix"),
    "rows": Basis.of_rows([row(seed) for seed in range(100, 140)], "rows"),
}


@pytest.mark.parametrize("kind", BASES)
def test_columns_span_all_rows(kind):
    basis = BASES[kind]
    assert (basis.vocab_size, basis.rank) == (SIZE, WIDTH + 1)
    ids = basis.determining_tokens[: basis.rank].astype(np.intp)
    assert len(set(basis.determining_tokens.tolist())) == len(basis.determining_tokens)
    assert np.abs(basis.solve(ids, row()[ids]) - row()).max() < 1e-4


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("window", [0, 1, 5])
def test_recovers_a_whole_row(kind, window):
    endpoint = Fake(row(), window)
    found = recover(endpoint, "x", settings=RecoverySettings(basis=BASES[kind], bisection_error_nats=1e-6))
    assert found.method == "basis"
    assert found.is_complete
    assert found.is_normalized
    assert np.abs(found.logprobs - row()).max() < 1e-4
    assert found.max_error_nats < 1e-3
    if window == 5:
        assert endpoint.calls <= 3 + -(-(25 + 20 + 60) // 4)


def test_forced_responses_recover_a_row_too():
    found = recover(Fake(row(), 5, raw=True), "x", settings=RecoverySettings(basis=BASES["matrix"]))
    assert found.method == "basis"
    assert np.abs(found.logprobs - row()).max() < 1e-4


def test_a_basis_of_another_model_is_rejected():
    other = Basis.of_matrix(RANDOM.normal(0, 0.5, (SIZE, WIDTH)).astype(np.float32), "other")
    found = recover(Fake(row(), 5), "x", settings=RecoverySettings(basis=other))
    assert not found.is_complete
    assert any("the basis does not fit" in note for note in found.notes)
    known = ~np.isnan(found.logprobs)
    assert 80 < known.sum() < 130
    assert np.abs(found.logprobs[known] - row()[known]).max() < 1e-9
    with pytest.raises(RecoverError, match="600 tokens, but the endpoint has 300; use a basis of the same model"):
        recover(Fake(row()[:300], 5), "x", settings=RecoverySettings(basis=BASES["matrix"]))


def dominated(seed):
    """A row of 100 directions, one of which has almost all of its size."""
    random = np.random.default_rng(seed)
    wide = np.random.default_rng(1).normal(0, 0.05, (SIZE, 100))
    wide[:, 0] *= 200
    return log_softmax(wide @ random.normal(0, 1, 100))


def small(seed):
    return log_softmax(MATRIX[:, :5].astype(np.float64) @ np.random.default_rng(seed).normal(0, 1.5, 5))


ROWS = {
    "fewer than dimensions": (row, 20, None),
    "as many as dimensions": (row, 24, None),
    "one more": (row, 25, None),
    "some more": (row, 28, 25),
    "far too few": (small, 3, None),
    "as many, and one is almost a mix of others": (small, 5, None),
    "a few more than five": (small, 9, 6),
    "one large direction hides the others": (dominated, 10, None),
    "the same, and many rows": (dominated, 60, None),
    "the same row each time": (lambda seed: row(0), 10, 2),
    "one row": (row, 1, None),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("start", range(0, 400, 80))
def test_rows_are_enough_if_they_reproduce_held_out_rows(name, start):
    made, count, rank = ROWS[name]
    rows = [made(start + number) for number in range(count)]
    if rank is None:
        with pytest.raises(RecoverError, match=f"{count} rows are too few"):
            Basis.of_rows(rows, "rows")
    else:
        assert Basis.of_rows(rows, "rows").rank == rank


def test_held_out_tokens_do_not_join_the_solution_before_they_are_compared():
    """A solution with as many columns as queried logprobs fits all of them, so only held-out tokens show its
    error."""
    from logitsmith.recover.methods.by_basis import count_queried

    wide = Basis.of_matrix(np.random.default_rng(5).normal(size=(SIZE, 79)).astype(np.float32), "noise")
    assert count_queried(wide) == wide.rank + 20 + 60
    # 100 tokens leave 20 to tell the error by, and those held out are farther off than the row's own spread.
    found = recover(
        Fake(row(), 20), "x", settings=RecoverySettings(basis=wide, max_held_out_error_nats=3 * float(row().std()))
    )
    assert not found.is_complete
    assert any("the basis does not fit" in note for note in found.notes)
    off = recover(Fake(row(), 20), "x", settings=RecoverySettings(basis=NEAR))
    actual = np.abs(off.logprobs - row()).max()
    assert off.max_error_nats > 0.3 * actual


NEAR = Basis.of_matrix(MATRIX + RANDOM.normal(0, 2e-4, MATRIX.shape).astype(np.float32), "almost it")


def test_the_best_determining_tokens_are_first():
    """A solution from tokens in pivot order amplifies errors less than one from tokens in drawn order."""
    basis = BASES["matrix"]
    count = basis.rank
    grown = [
        np.linalg.cond(basis.matrix[basis.determining_tokens[at : at + count]])
        for at in range(0, 3 * count, count)
    ]
    assert grown[0] < 0.5 * min(grown[1:])


def test_files(tmp_path):
    path = tmp_path / "b.npz"
    basis = Basis(
        BASES["matrix"].matrix,
        BASES["matrix"].determining_tokens,
        "matrix",
        tuple(bytes([i % 256]) * (i % 3) for i in range(SIZE)),
    )
    basis.save(path)
    again = Basis.load(path)
    assert np.array_equal(again.matrix, basis.matrix)
    assert (again.source, again.token_bytes) == (basis.source, basis.token_bytes)
    assert [file.name for file in tmp_path.iterdir()] == ["b.npz"]
    with pytest.raises(RecoverError, match="there is no such file"):
        Basis.load(tmp_path / "no.npz")
    with pytest.raises(RecoverError, match="cannot be written: No such file"):
        basis.save(tmp_path / "no" / "b.npz")


def test_an_invalid_matrix():
    with pytest.raises(RecoverError, match="does not consist of finite numbers"):
        Basis.of_matrix(np.full((4, 2), np.nan, dtype=np.float32), "m")


@pytest.mark.slow
def test_the_bundled_models_rows_and_matrix(model):
    """Both bases of the real model, on prompts that were used for neither."""
    endpoint = LocalEndpoint(model, 20)
    for basis in (
        Basis.of_matrix(output_matrix(model.path), "matrix"),
        basis_from_rows(model),
    ):
        assert basis.rank == 577
        for prompt in ("The sea was", "def main():\n    ", "Une petite"):
            found = recover(endpoint, prompt, settings=RecoverySettings(basis=basis))
            off = np.abs(found.logprobs - endpoint.row(prompt)).max()
            print(
                f"\nbasis of {basis.source}, {prompt!r}: {found.total_calls} calls, "
                f"error {off:.1e}, told {found.max_error_nats:.1e}"
            )
            assert found.is_complete
            assert off < 1e-3
