"""Lines in a file of results that no batch wrote."""

import pytest
from logitsmith.common.journal import JournalError
from logitsmith.jobs.journal import ResultJournal

OURS = '{"id": "o", "request_id": "178036a8a003f4879a67c8d7", "text": "x", "error": null}\n'
GOOD = '{"id": "a", "text": "x", "error": null}\n'
FAILED = '{"id": "b", "line": 2, "error": {"code": "c", "message": "m", "line": 2, "digest": "d"}}\n'
INVALID = {
    "no id": ('{"text": "a", "error": null}', "it has no id"),
    "an id that is a number": ('{"id": 1, "text": "a", "error": null}', "id: 1 is not a string"),
    "a line that is a list": (
        '{"id": "a", "error": {"line": [1], "digest": "d"}}',
        "error.line: [1] is not an integer",
    ),
    "a digest that is a table": (
        '{"id": "a", "error": {"line": 1, "digest": {}}}',
        "error.digest: {} is not a string",
    ),
    "an error that is a text": ('{"id": "a", "error": "x"}', "error: 'x' is not an object;"),
    "5,000 brackets": ('{"id": ' + "[" * 5000 + "]" * 5000 + "}", "it is nested too deeply"),
    "NaN": ('{"id": "a", "text": NaN, "error": null}', "NaN is not a number in JSON"),
    "not JSON": (
        "nope",
        "it is not JSON: Expecting value, at character 1; remove this line, or choose another file",
    ),
    "an array": ("[]", "it has neither an answer nor an error"),
}


@pytest.mark.parametrize(("line", "problem"), INVALID.values(), ids=INVALID)
def test_an_invalid_line_is_reported_and_the_file_unchanged(tmp_path, line, problem):
    path = tmp_path / "out.jsonl"
    content = GOOD + FAILED + line + "\n" + GOOD
    path.write_text(content)
    with pytest.raises(JournalError) as caught:
        ResultJournal(path, should_resume=True, is_openai=False)
    assert str(caught.value).startswith(f"{path}: line 3 is not a result: {problem}")
    assert path.read_text() == content


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"\xff\n")
    with pytest.raises(JournalError, match="line 1 is not a result: it is not UTF-8; remove this line"):
        ResultJournal(path, should_resume=True, is_openai=False)


def test_keys_of_answers_and_failures(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text(OURS + GOOD + FAILED + '{"id": "c", "te')
    journal = ResultJournal(path, should_resume=True, is_openai=False)
    assert journal.existing_results == {"o": "178036a8a003f4879a67c8d7", "a": None, (2, "d"): None}
    journal.close()
    assert path.read_text() == OURS + GOOD + FAILED
