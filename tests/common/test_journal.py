"""Journals: what a crash leaves is removed, and nothing else."""

import os
from pathlib import Path

import pytest
from logitsmith.common.journal import Journal, JournalError

HEADER = '{"kind": 1}'


def read(journal):
    return journal.records(lambda record: record["n"], start='{"n": ', name="a number", advice="remove it")


@pytest.mark.parametrize("header", [None, HEADER], ids=["no header", "header"])
@pytest.mark.parametrize("tail", ["", "{", '{"n": 3', '{"n": 3}'], ids=repr)
def test_records_are_appended_and_a_torn_line_is_removed(tmp_path, header, tail):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, header)
    assert journal.is_new
    journal.append('{"n": 1}')
    journal.sync()
    journal.close()
    written = path.read_text()
    path.write_text(written + tail)
    journal = Journal(path, header)
    assert not journal.is_new
    assert (read(journal), path.read_text()) == ([1], written)
    journal.append('{"n": 2}')
    journal.close()
    assert path.read_text() == (f"{HEADER}\n" if header else "") + '{"n": 1}\n{"n": 2}\n'


@pytest.mark.parametrize("length", range(len(HEADER) + 1))
def test_a_torn_header_is_written_again(tmp_path, length):
    path = tmp_path / "journal.jsonl"
    path.write_text(HEADER[:length])
    journal = Journal(path, HEADER)
    assert (journal.is_new, journal.header(), path.read_text()) == (True, {"kind": 1}, f"{HEADER}\n")
    journal.close()


@pytest.mark.parametrize("line", ["diary\n", "diary", '{"m": 1}', '{"m": 1}\n', "\n"], ids=repr)
def test_another_line_is_named_and_the_file_left_alone(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_text(content := '{"n": 1}\n' + line)
    journal = Journal(path)

    def read_number(record):
        if "n" not in record:
            raise ValueError("it has no number")

    with pytest.raises(JournalError, match=r"journal.jsonl: line 2 is not a number: it .*; remove it$"):
        journal.records(read_number, start='{"n": ', name="a number", advice="remove it")
    journal.close()
    assert path.read_text() == content


def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    with pytest.raises(JournalError, match="another run is writing to it"):
        Journal(path)
    first.close()
    Journal(path).close()


def test_a_file_that_another_run_removes_before_it_is_locked(tmp_path, monkeypatch):
    """Without this check, records would be written to a file that has no name."""
    monkeypatch.setattr("logitsmith.common.journal.flock", lambda *_: (tmp_path / "j").unlink())
    with pytest.raises(JournalError, match="another run is writing"):
        Journal(tmp_path / "j")


def test_a_failed_write_leaves_the_lines_before_it(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append("one")
    real_write = os.write

    def write_half(handle, data):
        if len(data) < 4:
            raise OSError(28, "No space left on device")
        return real_write(handle, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(OSError, match="No space"):
        journal.append("second")
    journal.close()
    assert path.read_bytes() == b"one\n"


def test_a_device_is_written_to_and_nothing_else():
    journal = Journal(Path(os.devnull))
    assert not journal.is_regular
    journal.append("line")
    journal.sync()
    journal.close()
