"""`gen score`: texts, choices, files of them, and what is wrong with them."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

ONE = ("-t", "1")


@pytest.mark.bundled_model
def test_a_text_in_every_format(gen):
    found = json.loads(gen("score", "The sea was calm.", *ONE, "--format", "json").out)
    assert found["tokens"] == ["The", " sea", " was", " calm", "."]
    assert found["token_logprobs"][0] is None
    assert sum(found["token_logprobs"][1:]) == pytest.approx(found["sum_logprob"])
    assert b"".join(map(bytes, found["bytes"])) == b"The sea was calm."
    assert found["scored_tokens"] == 4
    start, *tokens, done = gen("score", *ONE, "--format", "jsonl", stdin="The sea was calm.\n").lines
    assert (start["event"], done["event"]) == ("start", "done")
    assert [token["logprob"] for token in tokens] == found["token_logprobs"]
    assert done["sum_logprob"] == found["sum_logprob"]
    table = gen("score", "The sea was calm.", *ONE, "--tokens").out
    assert "4 scored of 5" in table
    assert f"perplexity     {found['perplexity']:.4f}" in table
    assert "' calm'" in table


@pytest.mark.bundled_model
def test_choices(gen):
    capital = ("score", "The capital of France is", "--choices", " Paris", "--choices", " London", *ONE)
    found = json.loads(gen(*capital, "--format", "json").out)["choices"]
    assert [choice["text"] for choice in found] == [" Paris", " London"]
    assert sum(choice["probability"] for choice in found) == pytest.approx(1)
    assert found[0]["probability"] > 0.9
    assert found[0]["per_byte"] == pytest.approx(found[0]["sum_logprob"] / 6)
    assert [choice["is_greedy"] for choice in found] == [True, False]
    assert [b"".join(map(bytes, choice["bytes"])) for choice in found] == [b" Paris", b" London"]
    lines = gen(*capital).out.splitlines()
    assert lines[2].split()[:3] == ["'", "Paris'", f"{found[0]['probability']:.4f}"]
    assert "*" in lines[2]
    assert "*" not in lines[3]


def test_choices_that_overlap_or_join_the_prompt_are_noted(gen):
    err = gen("score", "Is it spel", "--choices", "ling", "--choices", "lingo", *ONE).err
    assert "'ling' begins 'lingo', so their probabilities overlap" in err
    assert "'ling' would join the prompt's last token" in err


def scored(gen, prompt, choices):
    """The scores of choices by flags, which are those of a line of a file."""
    flags = [word for choice in choices for word in ("--choices", choice)]
    found = json.loads(gen("score", prompt, *flags, *ONE, "--format", "json").out)["choices"]
    line = json.dumps({"prompt": prompt, "choices": choices})
    (record,) = gen("score", "--jsonl", "-", *ONE, stdin=line).lines
    assert record["choices"] == found
    return found


@pytest.mark.bundled_model
def test_white_space_before_a_choice_is_part_of_it(gen):
    six, nine = scored(gen, "One, two, three, four, five, ", ["six", "nine"])
    assert (six["tokens"], nine["tokens"]) == ([" six"], [" nine"])
    assert six["probability"] > 0.9
    plain = scored(gen, "One, two, three, four, five,", [" six", " nine"])
    assert [choice["token_logprobs"] for choice in (six, nine)] == [choice["token_logprobs"] for choice in plain]


@pytest.mark.parametrize("prompt", ["", " ", "\n"])
def test_an_empty_prompt_is_the_beginning_of_a_text(gen, prompt):
    (choice,) = scored(gen, prompt, ["The sea"])
    assert "".join(choice["tokens"]) == prompt + "The sea"
    assert all(value < 0 for value in choice["token_logprobs"])


def test_empty_and_equal_choices_are_scored(gen):
    empty, calm, again = scored(gen, "The sea", ["", " calm", " calm"])
    assert (empty["sum_logprob"], empty["per_token"], empty["per_byte"]) == (0, None, None)
    assert (empty["tokens"], empty["is_greedy"]) == ([], True)
    assert calm == again
    assert empty["probability"] + calm["probability"] + again["probability"] == pytest.approx(1)
    result = gen("score", "The sea", "--choices", " a", "--choices", " a", *ONE)
    assert "' a' is given 2 times, and each counts in the probabilities" in result.err


@pytest.mark.bundled_model
def test_lines(gen, home):
    (home / "work" / "tasks.jsonl").write_text(
        '{"prompt": "The capital of France is", "choices": [" Paris", " London"], "id": 7}\n'
        '{"x":\n'
        "\n"
        '{"text": "The sea was calm."}\n'
        '{"prompt": 3, "choices": ["a"], "id": "five"}\n'
        '{"prompt": "a", "choices": ["b", "b"]}\n'
        '{"prompt": "a", "choices": []}\n'
        '{"text": ""}\n'
        '{"prompt": "a", "choices": ["\\ud83d"]}\n'
        '{"prompt": "a", "choices": ["' + "b c " * 40 + '"]}\n'
        "[1]\n"
        '{"text": "hello there", "x": 1e999}\n'
        '{"text": "hello there", "x": "\\ud83d"}\n'
        '{"text": "hello there", "tokens": "mine"}\n'
    )
    result = gen("score", "--jsonl", "tasks.jsonl", "-c", "32", *ONE, code=1)
    records = result.lines
    assert [record["line"] for record in records] == [1, 2, *range(4, 15)]
    first, second, equal = [record for record in records if record["error"] is None]
    assert (first["line"], first["id"], first["choices"][0]["probability"] > 0.9) == (1, 7, True)
    assert (second["line"], second["token_logprobs"][0]) == (4, None)
    assert (equal["line"], [choice["probability"] for choice in equal["choices"]]) == (6, [0.5, 0.5])
    failures = {record["line"]: record for record in records if record["error"] is not None}
    assert failures[2]["error"]["line"] == 2
    assert (failures[5]["id"], failures[5].keys()) == ("five", {"id", "line", "error"})
    said = result.err.splitlines()
    assert sorted(failures) == [2, 5, *range(7, 15)]
    for number, record in failures.items():
        assert record["error"]["message"]
        assert any(f"tasks.jsonl: line {number}: " in line for line in said)
    assert len(said) == 10


LONG = "one two three four five six seven eight nine ten eleven twelve"
LONG_CHOICE = " thirteen fourteen fifteen sixteen"


@pytest.mark.bundled_model
def test_a_prompt_that_does_not_fit_with_a_choice_loses_its_beginning(gen):
    choices = ("--choices", " a", "--choices", LONG_CHOICE)
    shared = ("--format", "json", *ONE)
    result = gen("score", LONG, *choices, "-c", "14", *shared)
    found = json.loads(result.out)
    assert [choice["truncated_prompt_tokens"] for choice in found["choices"]] == [0, 1]
    assert found["notes"] == [
        f"with {LONG_CHOICE!r} the prompt exceeds the context of 14 tokens; its beginning, 1 token, was left out"
    ]
    cut = LONG.removeprefix("one")
    alone = json.loads(gen("score", cut, "--choices", LONG_CHOICE, "-c", "14", *shared).out)["choices"][0]
    assert found["choices"][1]["token_logprobs"] == alone["token_logprobs"]
    whole = json.loads(gen("score", LONG, *choices, *shared).out)
    assert found["choices"][0]["token_logprobs"] == whole["choices"][0]["token_logprobs"]
    assert "notes" not in whole
    err = gen("score", LONG, *choices, "-c", "14", *ONE).err
    assert "its beginning, 1 token, was left out" in err


@pytest.mark.bundled_model
def test_strict_rejects_a_prompt_that_does_not_fit(gen):
    line = json.dumps({"prompt": LONG, "choices": [" a", LONG_CHOICE]})
    message = "does not fit: the prompt has 12 tokens, the choice 4, and the context holds 14; give a larger "
    arguments = ("-c", "14", "--strict", *ONE)
    assert f"{message}-c" in gen("score", LONG, "--choices", LONG_CHOICE, *arguments, code=1).err
    done = gen("score", "--jsonl", "-", *arguments, stdin=line, code=1)
    assert f"{message}-c" in done.err
    assert done.lines[0]["error"]["message"].endswith(f"{message}-c")
    (record,) = gen("score", "--jsonl", "-", "-c", "14", *ONE, stdin=line).lines
    assert [choice["truncated_prompt_tokens"] for choice in record["choices"]] == [0, 1]
    assert len(record["notes"]) == 1


def test_a_text_longer_than_the_context(gen):
    text = "The sea was calm. " * 14
    found = json.loads(gen("score", text, "-c", "32", "--stride", "8", "--format", "json", *ONE).out)
    assert found["scored_tokens"] == len(found["ids"]) - 1 > 64
    wide = json.loads(gen("score", text, "-c", "512", "--format", "json", *ONE).out)
    assert wide["token_logprobs"][:32] == pytest.approx(found["token_logprobs"][:32], abs=1e-6)
    assert wide["sum_logprob"] > found["sum_logprob"]


WRONG = {
    "an empty text": (["score", ""], "empty", 2),
    "a choice that does not fit": (["score", "a", "-c", "8", "--choices", "b c d e f g h i j"], "does not fit", 1),
    "no stride": (["score", "a b", "--stride", "0"], "--stride: 0 is not ≥ 1", 2),
    "a stride of the context": (["score", "a b", "-c", "8", "--stride", "8"], "--stride: 8", 2),
    "a stride for choices": (["score", "a", "--choices", "b", "--stride", "2"], "choices", 2),
    "strict about a text": (["score", "a b", "--strict"], "--strict", 2),
    "tokens of choices": (["score", "a", "--choices", "b", "--tokens"], "--tokens", 2),
    "lines as a table": (["score", "--jsonl", "-", "--format", "table"], "--format table", 2),
    "lines and a text": (["score", "a", "--jsonl", "-"], "--jsonl", 2),
    "lines and choices": (["score", "--jsonl", "-", "--choices", "a"], "--choices", 2),
    "no such file": (["score", "--jsonl", "none.jsonl"], "none.jsonl: ", 1),
    "tokens in json": (["score", "a", "--tokens", "--format", "json"], "--tokens", 2),
}


@pytest.mark.parametrize(("arguments", "named", "code"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(gen, arguments, named, code):
    result = gen(*arguments, *ONE, code=code)
    assert named in " ".join(result.err.replace("│", "").split())
    assert not result.out
