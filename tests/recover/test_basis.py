"""A basis: made of a matrix or of rows, solved, saved, and refused where it does not fit."""

import numpy as np
import pytest
from logitsmith.recover import Basis, LocalEndpoint, RecoverError, Settings, basis_of_rows, output_matrix, recover

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
    ids = basis.order[: basis.rank].astype(np.intp)
    assert len(set(basis.order.tolist())) == len(basis.order)
    assert np.abs(basis.solve(ids, row()[ids]) - row()).max() < 1e-4


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("window", [0, 1, 5])
def test_recovers_a_whole_row(kind, window):
    endpoint = Fake(row(), window)
    found = recover(endpoint, "x", settings=Settings(basis=BASES[kind], eps=1e-6))
    assert found.method == "basis"
    assert found.complete
    assert found.normalised
    assert np.abs(found.logprobs - row()).max() < 1e-4
    assert found.error < 1e-3
    if window == 5:
        assert endpoint.calls <= 3 + -(-(25 + 20 + 60) // 4)


def test_forced_answers_do_too():
    found = recover(Fake(row(), 5, raw=True), "x", settings=Settings(basis=BASES["matrix"]))
    assert found.method == "basis"
    assert np.abs(found.logprobs - row()).max() < 1e-4


def test_a_basis_of_another_model_is_not_believed():
    other = Basis.of_matrix(RANDOM.normal(0, 0.5, (SIZE, WIDTH)).astype(np.float32), "other")
    found = recover(Fake(row(), 5), "x", settings=Settings(basis=other))
    assert not found.complete
    assert any("the basis does not fit" in note for note in found.notes)
    known = ~np.isnan(found.logprobs)
    assert 80 < known.sum() < 130
    assert np.abs(found.logprobs[known] - row()[known]).max() < 1e-9
    with pytest.raises(RecoverError, match="600 tokens and the endpoint 300: it is of another model"):
        recover(Fake(row()[:300], 5), "x", settings=Settings(basis=BASES["matrix"]))


def test_rows_that_are_too_few_are_told_of():
    with pytest.raises(RecoverError, match="20 rows are too few"):
        Basis.of_rows([row(seed) for seed in range(20)], "rows")


def test_files(tmp_path):
    path = tmp_path / "b.npz"
    basis = Basis(
        BASES["matrix"].matrix,
        BASES["matrix"].order,
        "matrix",
        tuple(bytes([i % 256]) * (i % 3) for i in range(SIZE)),
    )
    basis.save(path)
    again = Basis.load(path)
    assert np.array_equal(again.matrix, basis.matrix)
    assert (again.source, again.pieces) == (basis.source, basis.pieces)
    assert [file.name for file in tmp_path.iterdir()] == ["b.npz"]
    for data in (b"", b"PK\x03\x04", path.read_bytes()[:-100], b"x" * 100):
        path.write_bytes(data)
        with pytest.raises(RecoverError, match="not a basis"):
            Basis.load(path)
    with pytest.raises(RecoverError, match="No such file"):
        Basis.load(tmp_path / "no.npz")
    with pytest.raises(RecoverError, match="cannot be written: No such file"):
        basis.save(tmp_path / "no" / "b.npz")


def test_a_matrix_that_is_none():
    with pytest.raises(RecoverError, match="no matrix of finite numbers"):
        Basis.of_matrix(np.full((4, 2), np.nan, dtype=np.float32), "m")


@pytest.mark.slow
def test_the_bundled_models_rows_and_matrix(model, capsys):
    """Both bases of the real model, on prompts that neither has seen."""
    endpoint = LocalEndpoint(model, 20)
    for basis in (
        Basis.of_matrix(output_matrix(model.path), "matrix"),
        basis_of_rows(model),
    ):
        assert basis.rank == 577
        for prompt in ("The sea was", "def main():\n    ", "Une petite"):
            found = recover(endpoint, prompt, settings=Settings(basis=basis))
            off = np.abs(found.logprobs - endpoint.row(prompt)).max()
            with capsys.disabled():
                print(
                    f"\nbasis of {basis.source}, {prompt!r}: {found.queries} calls, "
                    f"error {off:.1e}, told {found.error:.1e}"
                )
            assert found.complete
            assert off < 1e-3
