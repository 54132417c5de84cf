"""Bans, the loop guard, phases and healing on the command line."""

import json
import random
import re

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

RUN = ["run", "The sea was", "-n", "16", "-s", "3"]


def test_a_banned_word_is_rewritten_and_each_return_has_a_line(gen):
    free = gen(*RUN, "--format", "jsonl")
    word = re.search(r"[a-z]{3,}", free.text)[0]
    lines = gen(*RUN, "--format", "jsonl", "--ban-phrase", word.upper(), "--ban-retries", "3").lines
    rewinds = [line for line in lines if line["event"] == "rewind"]
    tokens = [line for line in lines if line["event"] == "token"]
    assert list(rewinds[0]) == ["event", "index", "ban", "text", "dropped", "attempt"]
    assert rewinds[0]["ban"] == word.upper()
    assert word in rewinds[0]["text"]
    assert word not in lines[-1]["text"]
    assert lines[-1]["usage"]["discarded_tokens"] == sum(len(line["dropped"]) for line in rewinds)
    assert "".join(token["text"] for token in tokens) == lines[-1]["text"]
    assert lines[0]["bans"] == [word.upper()]
    assert [token["index"] for token in tokens] == list(range(len(tokens)))


@pytest.mark.parametrize(
    "number", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))]
)
def test_nothing_that_was_printed_is_taken_back(start_gen, number):
    """The output of a pipe, read byte by byte, is the text of a run that went back without a banned phrase."""
    chooser = random.Random(number)
    pattern = f"(?i)[{''.join(chooser.sample('aeionrst', 5))}]|{chooser.choice(['th', 'he', ' in', 'an'])}"
    flags = ["-n", "40", "-s", str(number), "--ban-regex", pattern, "--ban-retries", str(chooser.choice([1, 20]))]
    words = ["run", "The sea was", "--no-chat", "-t", "1", *flags]
    command = start_gen(*words)
    printed = b""
    while byte := command.stdout.read(1):
        printed += byte
        assert not re.search(pattern, printed.decode(errors="ignore"))
    command.finish()
    command = start_gen(*words, "--format", "jsonl")
    events, streamed = [], ""
    for line in command.stdout:
        events.append(json.loads(line))
        streamed += events[-1]["text"] if events[-1]["event"] == "token" else ""
        assert not re.search(pattern, streamed)
    tokens = [event for event in events if event["event"] == "token"]
    assert any(event["event"] == "rewind" for event in events)
    assert [token["index"] for token in tokens] == list(range(len(tokens)))
    assert "".join(token["text"] for token in tokens) == events[-1]["text"]
    assert printed.decode().rstrip("\n") == events[-1]["text"].rstrip("\n")


def test_a_file_of_bans_and_the_trace_of_a_place(gen, home):
    word = re.search(r"[a-z]{3,}", gen(*RUN).out)[0]
    path = home / "bans.txt"
    path.write_text(f"zzzz\n/{word}/\n")
    lines = gen(*RUN, "--ban-file", str(path), "--format", "jsonl", "--trace", "2").lines
    rewinds = [line for line in lines if line["event"] == "rewind"]
    place = next(line for line in lines if line["event"] == "token" and line["index"] == rewinds[-1]["index"])
    assert [stage["name"] for stage in place["trace"]["stages"]][:2] == ["model", "bans"]
    recorded = home / "run.jsonl"
    recorded.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "went back" in gen("inspect", str(recorded)).out


@pytest.mark.parametrize(
    ("pattern", "reason"), [("(?i)th|he", "length"), ("(?s)[a-z].{400,900}q", "context")], ids=["short", "long"]
)
def test_a_full_context_discards_no_token_that_may_be_returned_to(gen, pattern, reason):
    flags = ["-n", "200", "-c", "64", "--context-shift", "--ban-regex", pattern, "--format", "jsonl"]
    done = gen("run", "The sea was", "-s", "3", "--ignore-eos", *flags).lines[-1]
    assert done["finish_reason"] == reason
    assert done["context_shifts"] > 0
    assert not re.search(pattern, done["text"])


def test_phases_and_the_loop_guard(gen):
    flags = ["--reasoning-budget", "4", "--reasoning-budget-message", " Now.", "--thinking-end", "END."]
    lines = gen(*RUN, *flags, "--format", "jsonl").lines
    assert "".join(line["text"] for line in lines if line["event"] == "token").count(" Now.END.") == 1
    done = gen(*RUN[:2], "-n", "200", "--chain", "greedy", "--loop-guard", "--format", "jsonl").lines[-1]
    if done["finish_reason"] == "loop":
        assert done["usage"]["loop_period"] >= 1


def test_a_preset_has_all_keys(gen, home):
    preset = home / "mine.yaml"
    preset.write_text(
        'bans: [abc, {regex: "x+"}]\nban_retries: 2\nban_then: keep\nloop_guard: {action: rewind, repeats: 3}\n'
        "heal: true\nphases:\n  - {until: zz, max_tokens: 2, chain: temp0.5}\n  - {chain: greedy}\n"
    )
    out = gen("x", "-P", str(preset), "--show-config").out
    for shown in ("ban_retries", "keep", '"x+"', '"rewind"', "[0] greedy", "heal"):
        assert shown in out
    assert gen(*RUN, "-P", str(preset)).code == 0


WRONG = {
    "empty phrase": ["--ban-phrase", ""],
    "empty match": ["--ban-regex", "a*"],
    "invalid": ["--ban-regex", "(a"],
    "action": ["--ban-then", "wait"],
    "retries": ["--ban-retries", "-1"],
    "no file": ["--ban-file", "missing.txt"],
    "message": ["--reasoning-budget-message", "x"],
    "repeats": ["--set", "loop_guard={repeats: 1}"],
    "until": ["--set", "phases=[{until: ''}, {}]"],
    "last phase": ["--set", "phases=[{until: a}]"],
}


@pytest.mark.parametrize("flags", WRONG.values(), ids=WRONG)
def test_wrong_values(gen, flags):
    named = flags[1].partition("=")[0] if flags[0] == "--set" else flags[0]
    assert named in gen(*RUN, *flags, code=2).err


def test_healing_needs_a_text_without_a_grammar(gen):
    assert "heal: not supported under a grammar" in gen(*RUN, "--heal", "--regex", "a+", code=1).err
    assert gen(*RUN, "--heal").code == 0


CHAT = ("--chat-template", "chatml", "--format", "jsonl")


@pytest.mark.parametrize("flags", [(), ("--regex", "a+")], ids=["text", "grammar"])
def test_the_end_of_a_chat_template_is_not_healed(gen, flags):
    plain, healed = (gen(*RUN, *CHAT, *flags, *heal).lines for heal in ((), ("--heal",)))
    plain_end, healed_end = plain[-1], healed[-1]
    assert healed_end["text"] == plain_end["text"]
    assert healed_end["usage"]["prompt_tokens"] == plain_end["usage"]["prompt_tokens"]


def test_a_line_of_a_batch_has_bans(gen, home):
    word = re.search(r"[a-z]{3,}", gen(*RUN).out)[0]
    lines = [{"id": "a", "prompt": "The sea was", "seed": 3, "max_tokens": 16, "bans": [word]}]
    path = home / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert gen("batch", str(path), "-o", str(home / "out.jsonl"), "--format", "jsonl").code == 0
    answer = json.loads((home / "out.jsonl").read_text().splitlines()[0])
    single = gen(*RUN, "--ban-phrase", word, "--format", "jsonl").lines[-1]
    assert answer["text"] == single["text"]
    assert answer["usage"]["discarded_tokens"] == single["usage"]["discarded_tokens"] > 0
