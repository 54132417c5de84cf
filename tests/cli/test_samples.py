"""`gen run --samples`: several texts of one prompt, each as a run by itself writes it."""

import re
from collections import Counter

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

RUN = ["run", "The sea was", "--no-chat", "-n", "8"]


def single(gen, seed, *flags):
    return gen(*RUN, *flags, "--seed", str(seed))


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--chain", "mirostat_v2"],
        ["--regex", "[a-z ]{5,20}"],
        ["--ban-regex", "[aeo]", "--ban-retries", "3"],
        ["--stop", "e"],
        ["-P", "creative", "--echo"],
    ],
    ids=["default", "mirostat", "grammar", "bans", "stop", "echo"],
)
def test_each_text_is_that_of_its_seed(gen, flags):
    out = gen(*RUN, *flags, "--seed", "7", "--samples", "3").out
    parts = re.split(r"^--- (\d) of 3, seed (\d+) ---\n", out, flags=re.MULTILINE)
    assert parts[0] == ""
    assert parts[1::3] == ["1", "2", "3"]
    for seed, text in zip(parts[2::3], parts[3::3], strict=True):
        assert text.rstrip("\n") == single(gen, seed, *flags).out.rstrip("\n")


def test_each_line_has_the_number_of_its_text(gen):
    lines = gen(*RUN, "--seed", "7", "--samples", "3", "--format", "jsonl", "--logprobs", "2", "--trace").lines
    for number in range(3):
        own = [line for line in lines if line["sample"] == number]
        assert [next(iter(line)) for line in own] == ["sample"] * len(own)
        expected = single(gen, 7 + number, "--format", "jsonl", "--logprobs", "2", "--trace").lines
        kept = [{**line, "sample": number} for line in expected if line["event"] == "token"]
        assert [line for line in own if line["event"] == "token"] == kept
        assert own[0]["seed"] == 7 + number
        assert own[-1]["text"] == expected[-1]["text"]


@pytest.mark.parametrize("form", ["openai", "openai-chat", "together"])
def test_an_answer_of_an_api_has_all_choices(gen, form):
    run = ["run", "The sea was", "-n", "6", "--format", form]
    answer = gen(*run, "--seed", "7", "--samples", "3").lines[0]
    singles = [gen(*run, "--seed", str(seed)).lines[0] for seed in (7, 8, 9)]
    expected = [one["choices"][0] | {"index": index} for index, one in enumerate(singles)]
    assert answer["choices"] == expected
    assert answer["usage"]["prompt_tokens"] == singles[0]["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == sum(one["usage"]["completion_tokens"] for one in singles)


SEEDS = {2**32 - 1: 2**32, -2: 0, -5: -4, 2**63 - 1: -(2**63)}


@pytest.mark.parametrize(("seed", "next_seed"), SEEDS.items(), ids=str)
def test_seeds_count_up_without_minus_one(gen, seed, next_seed):
    lines = gen(*RUN, "--seed", str(seed), "--samples", "2", "--format", "jsonl").lines
    assert [line["seed"] for line in lines if line["event"] == "start"] == [seed, next_seed]


def test_the_statistics_are_of_all_texts(gen):
    err = gen(*RUN, "--seed", "7", "--samples", "3", "--stats", "--ignore-eos").err
    assert re.search(r"^together +24 tokens", err, re.MULTILINE)
    assert re.search(r"^samples +3 texts, seeds 7 to 9$", err, re.MULTILINE)


WRONG = {
    "none": (["--samples", "0"], "--samples: 0"),
    "stream": (["--samples", "2", "--format", "openai", "--stream"], "--stream"),
    "shift": (["--samples", "2", "--context-shift"], "--context-shift"),
    "a vote of one text": (["--vote", "--extract", "x"], "--samples N"),
    "a vote without an answer": (["--vote", "--samples", "2"], "--extract REGEX"),
    "an answer without a vote": (["--extract", "x", "--samples", "2"], "--vote"),
    "an answer of no regex": (["--vote", "--extract", "(", "--samples", "2"], "--extract"),
    "a vote in another format": (["--vote", "--extract", "x", "--samples", "2", "--format", "openai"], "--vote: "),
}


@pytest.mark.parametrize(("flags", "named"), WRONG.values(), ids=WRONG)
def test_wrong_usage(gen, flags, named):
    assert named in gen(*RUN, *flags, code=2).err


def test_a_vote_counts_the_answers_of_all_texts(gen):
    words = [*RUN, "--seed", "3", "--samples", "12", "--regex", " ?[0-3]"]
    lines = gen(*words, "--vote", "--format", "jsonl").lines
    texts = [line["text"].strip() for line in lines if line["event"] == "done"]
    (vote,) = (line for line in lines if line["event"] == "vote")
    counts = Counter(texts)
    assert vote["texts"] == 12
    assert vote["without_answer"] == 0
    assert {each["answer"]: len(each["samples"]) for each in vote["answers"]} == counts
    for each in vote["answers"]:
        assert [texts[number] for number in each["samples"]] == [each["answer"]] * len(each["samples"])
        assert each["share"] == pytest.approx(counts[each["answer"]] / 12)
    highest = max(counts.values())
    assert vote["answer"] == next(text for text in texts if counts[text] == highest)
    shown = gen(*words, "--vote")
    assert shown.out == vote["answer"] + "\n"
    assert f"12 texts: '{vote['answer']}' {highest} ({highest / 12:.0%})" in shown.err


def test_the_last_match_is_the_answer(gen):
    words = [*RUN, "--seed", "3", "--samples", "5", "--vote", "--format", "jsonl"]
    texts = [line["text"] for line in gen(*words, "--extract", ".").lines if line["event"] == "done"]
    for pattern, find in {
        r"\w+": lambda text: (re.findall(r"\w+", text) or [None])[-1],
        r"(\w)\w*": lambda text: (re.findall(r"\b(\w)\w*", text) or [None])[-1],
    }.items():
        vote = gen(*words, "--extract", pattern).lines[-1]
        expected = Counter(answer for text in texts if (answer := find(text)) is not None)
        assert {each["answer"]: len(each["samples"]) for each in vote["answers"]} == expected
        assert vote["without_answer"] == 5 - expected.total()


def test_texts_without_an_answer_are_a_failure(gen):
    run = gen(*RUN, "--samples", "3", "--vote", "--extract", "qqq", code=1)
    assert run.out == ""
    assert "none of 3 texts has an answer" in run.err
