"""Tensors of other libraries, other dtypes and other layouts."""

from dataclasses import replace

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from logitsmith.samplers import SamplingError
from logitsmith.samplers.batch import sample
from logitsmith.samplers.batch.logits import LogitTable, _to_numpy

from .rows import make_row
from .test_batch import CUTS, Row, agrees, arguments, batches


def batch_of(size, style="normal"):
    """Every way of cutting, some with penalties, and a greedy row."""
    batch = []
    for number, cut in enumerate(CUTS.values()):
        if cut.get("top_k", 0) < size:
            penalties = {"repetition_penalty": 1.2, "frequency_penalty": 0.3} if number % 2 else {}
            text = np.random.default_rng(number).integers(0, size, 40).tolist()
            batch.append(Row(make_row(style, size, number), cut | penalties, text[:20], text[20:], number))
    return [*batch, Row(make_row(style, size, 99), sampled=False)]


def check_backend(batch, to_tensor):
    """Assert that a tensor gives bit for bit what an array gives, and arrays."""
    logits = np.stack([it.logits for it in batch])
    tokens, values = sample(logits, *arguments(batch))
    found, others = sample(to_tensor(logits), *arguments(batch, to_tensor))
    assert type(found) is np.ndarray
    assert found.dtype == np.int64
    assert found.tolist() == tokens.tolist()
    if values is None:
        assert others is None
    else:
        assert type(others) is np.ndarray
        assert others.tolist() == values.tolist()
    return tokens


@settings(max_examples=30)
@given(batches(3000))
def test_array_api_strict(batch):
    check_backend(batch, strict.asarray)


@pytest.mark.parametrize("size", [10, 3000, 20_000])
@pytest.mark.parametrize("style", ["normal", "ties"])
def test_array_api_strict_on_every_path(size, style):
    with strict.ArrayAPIStrictFlags(api_version="2023.12"):  # the oldest that numpy.from_dlpack reads
        check_backend(batch_of(size, style), strict.asarray)
        greedy = [Row(make_row(style, size, seed), sampled=False) for seed in range(3)]
        check_backend(greedy, strict.asarray)


def test_array_api_strict_without_to_tensor():
    logits = make_row("normal", 20_000, 1)[None]
    assert sample(strict.asarray(logits))[0].tolist() == [int(logits.argmax())]
    table = LogitTable(strict.asarray(logits), None)
    assert table.logits_at(np.array([[3, 19_999]])).tolist() == logits[:, [3, 19_999]].tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sampled", [True, False])
def test_array_api_strict_refuses_what_numpy_refuses(value, sampled):
    logits = np.zeros((2, 5000), np.float32)
    logits[1, slice(None) if value < 0 else 7] = value
    given = arguments([Row(it, sampled=sampled) for it in logits], strict.asarray)
    with pytest.raises(SamplingError, match="logits: row 1: "):
        sample(strict.asarray(logits), *given)


def test_torch():
    torch = pytest.importorskip("torch")
    for size in (10, 3000, 20_000):
        batch = batch_of(size)
        check_backend(batch, torch.from_numpy)
        check_backend(batch, torch.tensor)
        half = [replace(it, logits=it.logits.astype(np.float16).astype(np.float32)) for it in batch]
        tokens, _ = sample(
            torch.tensor(np.stack([it.logits for it in half])).half(), *arguments(half, torch.tensor)
        )
        assert tokens.tolist() == agrees(half)[0].tolist()


WRONG = {
    "another library": (lambda array: array, "MultipleArrayNamespaces|Multiple namespaces|multiple"),
    "no tensor": (lambda array: array.tolist(), "TypeError"),
    "it fails": (lambda array: 1 // 0, "ZeroDivisionError"),
}


@pytest.mark.parametrize(("to_tensor", "message"), WRONG.values(), ids=WRONG)
def test_to_tensor_that_does_not_fit_is_refused(to_tensor, message):
    logits = make_row("normal", 20_000, 1)
    given = arguments([Row(logits, {"top_k": 5})], to_tensor)
    with pytest.raises(SamplingError) as caught:
        sample(strict.asarray(logits[None]), *given)
    assert str(caught.value).startswith("to_tensor: made no tensor of the logits' library: ")
    assert any(word in str(caught.value) for word in message.split("|"))


def test_a_tensor_on_another_device_is_fetched():
    class Far:
        """A tensor that another library can't read where it lies."""

        def __dlpack__(self, **_):
            raise BufferError("it lies elsewhere")

        def __dlpack_device__(self):
            return (2, 0)

        def to_device(self, device, stream=None):
            assert device == "cpu"
            return np.arange(3)

    assert _to_numpy(Far()).tolist() == [0, 1, 2]


def bfloat16(logits):
    """Rounded to the eight bits that a bfloat16 keeps, which makes many ties."""
    bits = logits.view(np.uint32) + np.uint32(0x8000)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


ROUNDED = {
    "float16": lambda logits: logits.astype(np.float16),
    "float64": lambda logits: logits.astype(np.float64) * (1 + 1e-9),
    "bfloat16": bfloat16,
}


@pytest.mark.parametrize("size", [10, 3000, 20_000])
@pytest.mark.parametrize("rounded", ROUNDED.values(), ids=ROUNDED)
def test_other_precisions_are_sampled_as_float32(rounded, size):
    batch = batch_of(size)
    logits = rounded(np.stack([it.logits for it in batch]))
    same = [replace(old, logits=it) for it, old in zip(logits.astype(np.float32), batch, strict=True)]
    tokens, values = sample(logits, *arguments(same))
    expected = agrees(same)
    assert tokens.tolist() == expected[0].tolist()
    assert values.tolist() == expected[1].tolist()


LAYOUTS = {
    "a part of the columns": lambda logits: np.pad(logits, ((0, 0), (0, 64)))[:, : logits.shape[1]],
    "every other row": lambda logits: np.repeat(logits, 2, axis=0)[::2],
    "Fortran's order": np.asfortranarray,
    "backwards": lambda logits: np.ascontiguousarray(logits[:, ::-1])[:, ::-1],
    "the other byte order": lambda logits: logits.astype(logits.dtype.newbyteorder()),
}


@pytest.mark.parametrize("size", [10, 3000, 20_000])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_does_not_matter(layout, size):
    batch = batch_of(size)
    logits = np.stack([it.logits for it in batch])
    other = layout(logits)
    before = other.tobytes()
    tokens, values = sample(other, *arguments(batch))
    assert other.tobytes() == before, "the input was written to"
    expected = sample(logits, *arguments(batch))
    assert tokens.tolist() == expected[0].tolist()
    assert values.tolist() == expected[1].tolist()
    assert tokens.tolist() == agrees(batch)[0].tolist()
