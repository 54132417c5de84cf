"""Files: named ones, and whole ones."""

import errno
import io
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from logitsmith.common.files import (
    InputTooLargeError,
    TextFileError,
    bounded_lines,
    file_problem,
    find_named_files,
    read_bounded,
    read_text_file,
    search_path,
    write_file_atomically,
    write_problem,
)


def test_named_files_are_sorted_and_hidden_ones_left_out(tmp_path):
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "note.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder.yaml").mkdir()
    assert [path.name for path in find_named_files(tmp_path, (".yaml", ".yml"))] == ["a.yml", "b.yaml"]
    assert find_named_files(tmp_path / "none", (".yaml",)) == []
    assert find_named_files(tmp_path / "note.txt", (".yaml",)) == []


def test_a_folder_that_occurs_twice_counts_once(tmp_path):
    mine, built_in = tmp_path / "mine", tmp_path / "built_in"
    mine.mkdir()
    built_in.mkdir()
    (tmp_path / "link").symlink_to(mine)
    folders = [("mine", mine), ("link", tmp_path / "link"), ("again", built_in)]
    assert search_path(folders, built_in) == [("mine", mine), ("built-in", built_in)]


def test_a_pipe_is_written_into_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(path.read_bytes)
        write_file_atomically(path, lambda file: file.write(b"whole"))
        assert reading.result() == b"whole"
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_written_into_and_not_replaced():
    write_file_atomically(Path("/dev/null"), lambda file: file.write(b"lost"))
    assert Path("/dev/null").is_char_device()


def test_a_whole_file_is_there_or_as_before(tmp_path):
    path = tmp_path / "out.bin"
    write_file_atomically(path, lambda file: file.write(b"first"))

    def fail(file):
        file.write(b"second")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space") as raised:
        write_file_atomically(path, fail)
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["out.bin"]


SMALL = 2_000_000
READS = {
    "as long as is allowed": (b"x" * SMALL, None),
    "a byte longer": (b"x" * (SMALL + 1), "it is larger than 2 MB; give a shorter text"),
    "nothing": (b"", None),
}


@pytest.mark.parametrize(("data", "problem"), READS.values(), ids=READS)
def test_a_read_is_bounded(data, problem):
    if problem is None:
        assert read_bounded(io.BytesIO(data), SMALL) == data
        return
    with pytest.raises(InputTooLargeError) as caught:
        read_bounded(io.BytesIO(data), SMALL)
    assert (caught.value.strerror, caught.value.errno) == (problem, errno.EFBIG)
    assert file_problem(caught.value, Path("x")) == problem


LINES = {
    "as long as is allowed": (b"a\n" + b"x" * (SMALL - 1) + b"\n", [2, SMALL], None),
    "a byte longer": (
        b"a\n" + b"x" * SMALL + b"\n",
        [2],
        "line 2 is longer than 2 MB; give a file",
    ),
    "no newline at the end": (b"a\nb", [2, 1], None),
    "empty": (b"", [], None),
}


@pytest.mark.parametrize("is_text", [False, True], ids=["bytes", "text"])
@pytest.mark.parametrize(("data", "lengths", "problem"), LINES.values(), ids=LINES)
def test_lines_are_bounded(data, lengths, problem, is_text):
    file = io.StringIO(data.decode()) if is_text else io.BytesIO(data)
    found = []
    with pytest.raises(InputTooLargeError, match=problem) if problem else nullcontext():
        for line in bounded_lines(file, SMALL):
            found.append(len(line))
    assert found == lengths


def test_a_device_without_end_is_read_to_the_limit():
    with Path("/dev/zero").open("rb") as file, pytest.raises(InputTooLargeError):
        read_bounded(file, SMALL)
    with Path("/dev/zero").open("rb") as file, pytest.raises(InputTooLargeError):
        next(bounded_lines(file, SMALL))
    with pytest.raises(TextFileError, match="it is larger than 2 MB; give a shorter text"):
        read_text_file(Path("/dev/zero"), SMALL)


def test_why_a_file_is_not_written(tmp_path):
    problems = {}
    for name in ("none/out.txt", ".", "out"):
        path = tmp_path / name
        if name == "out":
            path.mkdir()
        with pytest.raises(OSError) as raised:  # noqa: PT011 - which one is the system's choice
            write_file_atomically(path, lambda file: file.write(b"x"))
        problems[name] = write_problem(raised.value, path)
    folder = "it is a folder, not a file"
    assert problems == {"none/out.txt": f"there is no folder {tmp_path}/none", ".": folder, "out": folder}
    assert write_problem(OSError(28, "No space left on device"), tmp_path / "a") == "No space left on device"
