"""The comparison of two records of outputs: a table of texts excuses a change of wording, and only that."""

import pytest

from .record_outputs import compare, read_wording


@pytest.fixture
def records(tmp_path):
    def write(before, after):
        for name, text in (("before", before), ("after", after)):
            (tmp_path / name / "run").mkdir(parents=True)
            (tmp_path / name / "run" / "1.stderr").write_text(text)
        return tmp_path / "before", tmp_path / "after"

    return write


def table(tmp_path, text):
    path = tmp_path / "wording.tsv"
    path.write_text(text)
    return read_wording(path)


@pytest.mark.parametrize(
    ("after", "wording", "code", "printed"),
    [
        pytest.param("12 is no token", "", 0, "0 of 1", id="equal"),
        pytest.param("12  is no token", "", 1, "1 of 1", id="layout counts without a table"),
        pytest.param("12 is not a token", "is no token\tis not a token\n", 0, "0 of 1", id="excused"),
        pytest.param("12 is not a token", "", 1, "1 of 1", id="no table"),
        pytest.param("13 is not a token", "is no token\tis not a token\n", 1, "1 of 1", id="a value differs, too"),
        pytest.param("12 is no token", "is no token\tis not a token\n", 1, "not needed", id="unused"),
        pytest.param(
            "12 is not a token", "is no\tis a\nis no token\tis not a token\n", 1, "not needed", id="longest"
        ),
    ],
)
def test_compare(tmp_path, records, capsys, after, wording, code, printed):
    before, after = records("12 is no token", after)
    assert compare(before, after, wording=table(tmp_path, wording)) == code
    assert printed in capsys.readouterr().out


def test_the_width_of_columns_does_not_count(tmp_path, records):
    before, after = records(
        "what    by\n──────────\nmade    it\n", "what         by\n───────────────\ngenerated    it\n"
    )
    assert compare(before, after, wording=table(tmp_path, "made\tgenerated\n")) == 0
