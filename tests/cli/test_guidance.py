"""The flags of guidance, in runs, samples, batches, chats, `gen next` and `gen compare`."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

RUN = ["run", "The sea was", "--no-chat", "-n", "12", "--seed", "5", "--format", "jsonl"]
FLAGS = ["--cfg-scale", "1.8", "--cfg-negative-prompt", "A desert of dust and"]
PRESET = "chain: [{temperature: 1.0}, dist]\nguidance: {scale: 1.8, negative_prompt: A desert of dust and}\n"


def ids(result):
    return [line["id"] for line in result.lines if line["event"] == "token"]


@pytest.fixture
def expected(gen):
    tokens = ids(gen(*RUN, *FLAGS))
    assert tokens != ids(gen(*RUN))
    return tokens


@pytest.mark.parametrize(
    "flags",
    [
        ["--set", "guidance.scale=1.8", "--set", "guidance.negative_prompt=A desert of dust and"],
        ["--set", "guidance={scale: 1.8, negative_prompt: A desert of dust and}"],
        ["--cfg-scale", "1.8", "--cfg-negative-prompt-file", "negative.txt"],
        ["--cfg-scale", "1.8", "--set", "guidance.scale=3", *FLAGS],
        ["-P", "guided.yaml", "--cfg-scale", "1.8"],
        ["-P", "other.yaml", *FLAGS],
    ],
    ids=["--set keys", "--set a table", "a file", "a flag over --set", "a preset", "a flag over a preset"],
)
def test_every_way_to_set_guidance(gen, home, expected, flags):
    work = home / "work"
    (work / "negative.txt").write_text("A desert of dust and\n")
    (work / "guided.yaml").write_text("guidance: {scale: 9, negative_prompt: A desert of dust and}\n")
    (work / "other.yaml").write_text("guidance: {scale: 9, negative_prompt: no}\n")
    result = gen(*RUN, *flags)
    assert ids(result) == expected
    assert result.lines[0]["guidance"] == {"scale": 1.8, "negative_prompt": "A desert of dust and"}


def test_a_chat_tells_that_the_negative_prompt_is_too_long(gen):
    flags = ["-c", "128", "--cfg-scale", "2", "--cfg-negative-prompt", "word " * 180]
    result = gen("chat", *flags, "-n", "3", stdin="Hello\n", code=1)
    assert "the negative prompt of guidance and the last message do not fit: they have" in result.err
    assert result.out == ""


def test_the_scale_1_is_off(gen):
    off = gen(*RUN, "--cfg-scale", "1", "--cfg-negative-prompt", "x")
    assert ids(off) == ids(gen(*RUN))
    assert "guidance" not in off.lines[0]


def test_samples_and_batches_are_guided(gen, home, expected):
    (home / "work" / "guided.yaml").write_text(PRESET)
    samples = gen(*RUN, *FLAGS, "--samples", "2")
    assert [
        line["id"] for line in samples.lines if line["event"] == "token" and line.get("sample", 0) == 0
    ] == expected
    lines = [
        {"id": "a", "prompt": "The sea was", "seed": 5, "preset": "guided.yaml", "max_tokens": 12},
        {"id": "b", "prompt": "The sea was", "seed": 5, "chain": "temp1", "max_tokens": 12},
        {
            "id": "c",
            "prompt": "The sea was",
            "seed": 5,
            "max_tokens": 12,
            "set": ["guidance.scale=1"],
            "chain": "temp1",
        },
    ]
    batch = gen(
        "batch",
        "-",
        "--no-chat",
        "--parallel",
        "3",
        *FLAGS,
        stdin="".join(json.dumps(line) + "\n" for line in lines),
    )
    texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in batch.lines}
    alone = {
        "a": gen("run", "The sea was", "--no-chat", "-n", "12", "--seed", "5", "-P", "guided.yaml").out,
        "b": gen("run", "The sea was", "--no-chat", "-n", "12", "--seed", "5", "--chain", "temp1", *FLAGS).out,
        "c": gen("run", "The sea was", "--no-chat", "-n", "12", "--seed", "5", "--chain", "temp1").out,
    }
    assert {name: text.rstrip("\n") for name, text in alone.items()} == {
        name: text.rstrip("\n") for name, text in texts.items()
    }


def test_in_a_chat_the_negative_prompt_is_the_system_message(gen):
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    flags = ["-n", "8", "--seed", "5", "--format", "jsonl", "--cfg-scale", "2", "--cfg-negative-prompt"]
    chat = gen("run", "Hello", "--system", "Be kind.", "--chat-template", template, *flags, "Be rude.")
    plain = gen(
        *("run", "system: Be kind.\nuser: Hello\nassistant:", "--no-chat", *flags),
        "system: Be rude.\nuser: Hello\nassistant:",
    )
    assert ids(chat) == ids(plain)
    batch = gen(
        *("batch", "-", "--chat-template", template, "--cfg-scale", "2", "--cfg-negative-prompt", "Be rude."),
        stdin=json.dumps(
            {
                "id": 1,
                "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}],
                "seed": 5,
                "max_tokens": 8,
            }
        ),
    )
    assert batch.lines[0]["response"]["body"]["choices"][0]["message"]["content"] == plain.lines[-1]["text"]


def test_next_shows_the_stage(gen):
    found = json.loads(gen("next", "The sea was", "--no-chat", "--format", "json", "--top", "3", *FLAGS).out)
    assert [stage["name"] for stage in found["stages"][:2]] == ["model", "guidance"]
    table = gen("next", "The sea was", "--no-chat", *FLAGS).out
    assert "guidance" in table
    assert "scale 1.8" in table


def test_a_stored_answer_is_replayed_with_its_guidance(gen):
    flags = ["--cfg-scale", "2", "--cfg-negative-prompt", "Be rude.", "--seed", "3", "-n", "8"]
    guided = gen("chat", *flags, stdin="Hello\n/why 2\n")  # a replay fails at a token that differs
    assert "guidance" in guided.out


REFUSED = {
    "no scale": (["--cfg-negative-prompt", "x"], "--cfg-negative-prompt: ", 2),
    "nan": (["--cfg-scale", "nan"], "--cfg-scale: nan", 2),
    "unknown key": (["--set", "guidance.size=2"], "--set guidance.size: ", 2),
    "no table": (["--set", "guidance=2"], "--set guidance: 2", 2),
    "no file": (
        ["--cfg-scale", "2", "--cfg-negative-prompt-file", "gone"],
        "--cfg-negative-prompt-file gone: ",
        2,
    ),
    "both": (
        [*FLAGS, "--cfg-negative-prompt-file", "y"],
        "--cfg-negative-prompt and --cfg-negative-prompt-file",
        2,
    ),
    "no model": (["--cfg-scale", "2", "--cfg-model", "nowhere"], "gen: --cfg-model: nowhere: ", 1),
    "shift": (["--cfg-scale", "2", "--context-shift"], "guidance: ", 1),
}


@pytest.mark.parametrize(("flags", "named", "code"), REFUSED.values(), ids=REFUSED)
def test_refused(gen, flags, named, code):
    assert named in gen(*RUN, *flags, code=code).err
