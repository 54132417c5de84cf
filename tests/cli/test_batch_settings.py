"""What the results of a batch were made with, beside them; and that `--resume` mixes nothing without a word."""

import json

import pytest
from logitsmith.common.journal import JournalError
from logitsmith.jobs.journal import (
    check_and_write_settings,
    read_settings,
    settings_differences,
    settings_digest,
    settings_path,
)

SETTINGS = {
    "name": "small",
    "model": "a" * 64,
    "chain": ["top_k", "dist"],
    "top_k.k": 40,
    "seed": 0,
    "stop": [],
    "grammar": None,
}
CHANGES = {
    "nothing": ({}, []),
    "the model's name alone": ({"name": "renamed"}, []),
    "another model": ({"name": "large", "model": "b" * 64}, ['model "small", now "large"']),
    "another model of one name": ({"model": "b" * 64}, ["another model"]),
    "a seed": ({"seed": 7}, ["seed 0, now 7"]),
    "a parameter": ({"top_k.k": 20}, ["top_k.k 40, now 20"]),
    "a chain, whose parameters say no more": (
        {"chain": ["top_p", "dist"], "top_k.k": 1},
        ['chain ["top_k", "dist"], now ["top_p", "dist"]'],
    ),
    "a long value": ({"grammar": {"source": "x" * 50}}, ["another grammar"]),
    "two": ({"seed": 1, "stop": ["."]}, ["seed 0, now 1", 'stop [], now ["."]']),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_what_has_changed_is_named(change, words):
    now = {**SETTINGS, **change}
    assert settings_differences(SETTINGS, now) == words
    assert (settings_digest(SETTINGS) == settings_digest(now)) == (words == [])


def test_other_settings_are_refused_unless_forced(tmp_path):
    results, other = tmp_path / "out.jsonl", {**SETTINGS, "seed": 7}
    check_and_write_settings(results, SETTINGS, has_results=False, overwrite=False)
    check_and_write_settings(results, SETTINGS, has_results=True, overwrite=False)
    with pytest.raises(JournalError, match="was made with seed 0, now 7; use the same settings, or --force"):
        check_and_write_settings(results, other, has_results=True, overwrite=False)
    assert read_settings(settings_path(results)) == SETTINGS
    check_and_write_settings(results, other, has_results=True, overwrite=True)
    assert read_settings(settings_path(results)) == other


@pytest.mark.parametrize("content", ["", "[]", '{"seed": ', "\xff"])
def test_a_damaged_file_is_refused_unless_forced(tmp_path, content):
    results = tmp_path / "out.jsonl"
    path = settings_path(results)
    path.write_text(content, encoding="latin-1")
    with pytest.raises(JournalError, match="does not contain settings of results; --force to keep"):
        check_and_write_settings(results, SETTINGS, has_results=True, overwrite=False)
    check_and_write_settings(results, SETTINGS, has_results=True, overwrite=True)
    assert json.loads(path.read_text()) == SETTINGS


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(JournalError, match="No such file or directory"):
        check_and_write_settings(tmp_path / "absent" / "out.jsonl", SETTINGS, has_results=False, overwrite=False)


REQUEST = '{"id": "a", "prompt": "The sea", "max_tokens": 1}\n'
RESUMED = {
    "the same": ((), REQUEST, None),
    "more requests, and a line that moved": ((), REQUEST.replace('"a"', '"b"') + REQUEST, None),
    "another text": ((), REQUEST.replace("sea", "hill"), "the result of 'a' (line 1) was made from another text"),
    "another seed": (("--seed", "7"), REQUEST, "was made with seed 0, now 7; use the same settings, or --force"),
}


@pytest.mark.slow
@pytest.mark.parametrize("output_format", ["openai", "jsonl"])
def test_resume_goes_on_with_the_same_only(gen, home, output_format):
    work = home / "work"
    arguments = ("batch", "in.jsonl", "-o", "out.jsonl", "--format", output_format, "-c", "256", "--parallel", "2")
    (work / "in.jsonl").write_text(REQUEST)
    gen(*arguments)
    before = (work / "out.jsonl").read_text()
    for flags, requests, complaint in RESUMED.values():
        (work / "in.jsonl").write_text(requests)
        done = gen(*arguments, "--resume", *flags, code=0 if complaint is None else 1)
        assert (complaint or "1 already existed") in done.err
        if complaint is not None:
            assert (work / "out.jsonl").read_text().startswith(before)
            assert "1 already existed" in gen(*arguments, "--resume", "--force", *flags).err


def test_results_of_another_program_are_kept_with_a_note(gen, home):
    work = home / "work"
    (work / "in.jsonl").write_text(REQUEST)
    (work / "out.jsonl").write_text('{"id": "a", "text": "x", "error": null}\n')
    arguments = ("batch", "in.jsonl", "-o", "out.jsonl", "--format", "jsonl", "-c", "256", "--parallel", "2")
    done = gen(*arguments, "--resume")
    assert (
        "out.jsonl has 1 result without a request_id: whether they fit the requests cannot be checked" in done.err
    )
    assert "1 already existed" in done.err


def test_a_changed_line_of_a_pipe_is_refused(gen, home):
    work = home / "work"
    (work / "in.jsonl").write_text(REQUEST)
    arguments = ("-o", "out.jsonl", "-c", "256", "--parallel", "2")
    gen("batch", "in.jsonl", *arguments)
    done = gen("batch", "-", *arguments, "--resume", stdin=REQUEST.replace("sea", "hill"), code=1)
    assert "made from another text" in done.err
