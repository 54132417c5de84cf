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
    "an infinite id": (json.dumps(ANSWER).replace('"ids": [3]', '"ids": [1e999]'), "ids.0: "),
    "infinite calls": (
        json.dumps(ANSWER).replace('"calls": 1', '"calls": Infinity'),
        "Infinity is not a number in JSON",
    ),
    "an infinite logprob": (json.dumps(ANSWER).replace("[-0.5]", "[-1e999]"), "logprobs.0: "),
    "a negative id": (json.dumps({**ANSWER, "ids": [-1]}), "ids.0: "),
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


def basis_file():
    file = io.BytesIO()
    matrix = np.ones((3, 1), np.float32)
    np.savez(file, matrix=matrix, order=np.arange(1), source="m", bytes=np.zeros(0, np.uint8), offsets=[0])
    return file.getvalue()


def row_file():
    file = io.BytesIO()
    np.savez_compressed(file, ids=np.arange(3), logprobs=np.full(3, -1.0))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "read"), [(basis_file(), Basis.load), (row_file(), read_row)], ids=["basis", "row"]
)
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
def test_an_array_that_is_larger_than_its_file_is_refused(tmp_path, shape):
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f4", "fortran_order": False, "shape": shape})
    for names, read in (
        (("matrix", "order", "source", "bytes", "offsets"), Basis.load),
        (("ids", "logprobs"), read_row),
    ):
        path = tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w") as file:
            for name in names:
                file.writestr(f"{name}.npy", array.getvalue())
        with pytest.raises(RecoverError, match=r"a\.npz: not a "):
            read(path)
