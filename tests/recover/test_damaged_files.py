"""Files of `gen recover` that are damaged, or that another program wrote."""

import contextlib
import io
import json
import zipfile

import numpy as np
import pytest
from logitsmith.recover import RecoverError
from logitsmith.recover.basis import Basis
from logitsmith.recover.journal import QueryJournal
from logitsmith.recover.results import read_row

RUN = {"endpoint": {}, "prompt": "x"}
ANSWER = {"key": "k", "token": 3, "logprob": -0.5, "ids": [3], "logprobs": [-0.5], "bytes": ["61"], "calls": 1}
ODD = {
    "nested brackets": ('{"key": ' + "[" * 5000 + "]" * 5000 + "}", "it is nested too deeply"),
    "an infinite id": (json.dumps(ANSWER).replace('"ids": [3]', '"ids": [1e999]'), "ids[0]: "),
    "infinite calls": (json.dumps(ANSWER).replace('"calls": 1', '"calls": Infinity'), "Infinity is not a number"),
    "an infinite logprob": (json.dumps(ANSWER).replace("[-0.5]", "[-1e999]"), "logprobs[0]: "),
    "a negative id": (json.dumps({**ANSWER, "ids": [-1]}), "ids[0]: "),
    "a list for a key": (json.dumps({**ANSWER, "key": []}), "key: "),
    "two lengths": (json.dumps({**ANSWER, "bytes": []}), "ids, logprobs and bytes are not of one length"),
    "bytes that are none": (json.dumps({**ANSWER, "bytes": ["6g"]}), "non-hexadecimal"),
    "no object": ("[]", "[] is not an object"),
}


@pytest.mark.parametrize(("line", "problem"), ODD.values(), ids=ODD)
def test_an_invalid_line_of_a_checkpoint_is_named(tmp_path, line, problem):
    path = tmp_path / "c"
    content = f"{json.dumps({'recover': 1, **RUN})}\n{json.dumps(ANSWER)}\n{line}\n"
    path.write_text(content)
    with pytest.raises(RecoverError, match=r"c: line 3 is not a response: .*; the file is damaged$") as caught:
        QueryJournal(path, RUN, resume=True)
    assert problem in str(caught.value)
    assert path.read_text() == content


def npz(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


BASIS = {
    "matrix": np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32),
    "order": np.arange(30, dtype=np.int32),
    "source": "m",
    "bytes": np.zeros(0, np.uint8),
    "offsets": [0],
}
ROW = {"ids": np.arange(3), "logprobs": np.full(3, -1.0)}
FILES = {"basis": (npz(**BASIS), Basis.load), "row": (npz(np.savez_compressed, **ROW), read_row)}
DAMAGED = {
    "empty": b"",
    "text": b"hello",
    "an incomplete zip": b"PK\x03\x04",
    "a torn file": FILES["basis"][0][:-100],
    "a .npy": npy(ROW["logprobs"]),
    "another .npz": npz(x=ROW["logprobs"]),
}
DAMAGED_BASES = {
    "an order outside": {"order": BASIS["order"] + 1},
    "an order below": {"order": BASIS["order"] - 1},
    "an order of numbers": {"order": BASIS["order"].astype(np.float32)},
    "an order that repeats": {"order": np.zeros(30, dtype=np.int32)},
    "an order too short": {"order": np.arange(3, dtype=np.int32)},
    "a matrix of one row": {"matrix": np.ones(30, dtype=np.float32)},
    "a matrix with gaps": {"matrix": np.full((30, 7), np.nan, dtype=np.float32)},
    "bytes of others": {"offsets": np.arange(5)},
}
DAMAGED_ROWS = {
    "another shape": {"ids": np.zeros((2, 2)), "logprobs": np.zeros((2, 2))},
    "numbers": {"ids": np.int32(3), "logprobs": np.float64(3)},
    "two lengths": {"ids": np.arange(50), "logprobs": np.zeros(40)},
    "texts": {"ids": np.arange(2), "logprobs": np.array(["a", "b"])},
}
REFUSED = [
    *((data, read) for data in DAMAGED.values() for _, read in FILES.values()),
    *((npz(**{**BASIS, **change}), Basis.load) for change in DAMAGED_BASES.values()),
    *((npz(**arrays), read_row) for arrays in DAMAGED_ROWS.values()),
]


@pytest.mark.parametrize(("data", "read"), REFUSED)
def test_other_files_are_refused(tmp_path, data, read):
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    with pytest.raises(RecoverError, match=r"a\.npz: not a (basis|recovery)"):
        read(path)


@pytest.mark.parametrize(("data", "read"), FILES.values(), ids=FILES)
def test_a_flipped_bit_of_the_directory_gives_a_value_or_a_sentence(tmp_path, data, read):
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    read(path)
    for bit in range(8 * data.index(b"PK\x01\x02"), 8 * len(data), 3):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with contextlib.suppress(RecoverError):
            read(path)


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**62, 4)])
@pytest.mark.parametrize(("names", "read"), [(BASIS, Basis.load), (ROW, read_row)])
def test_an_array_that_is_larger_than_its_file_is_refused(tmp_path, shape, names, read):
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f4", "fortran_order": False, "shape": shape})
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(f"{name}.npy", array.getvalue())
    with pytest.raises(RecoverError, match=r"a\.npz: not a "):
        read(path)
