"""Presets with a memory, an author's note and world info."""

import json

import pytest

PRESET = """
memory: A quiet story by the sea.
authors_note: {text: sad, depth: 1}
world_info: [{keys: [lamp], content: It burns oil.}]
"""
BEFORE = "A quiet story by the sea.\nIt burns oil.\n"
NOTE = "[Author's note: sad]\n"
LAMP = "Hello.\nThe lamp"
FLAGS = ("-n", "8", "--seed", "3")


@pytest.fixture(autouse=True)
def preset(home):
    (home / "work" / "story.yaml").write_text(PRESET)


def test_a_text_is_continued_with_the_story(gen):
    whole = gen(f"{BEFORE}Hello.\n{NOTE}The lamp", *FLAGS).out
    assert gen(LAMP, "-P", "./story.yaml", *FLAGS).out == whole
    without = gen(f"It burns oil.\nHello.\n{NOTE}The lamp", *FLAGS).out
    assert gen(LAMP, "-P", "./story.yaml", "--set", "memory=", *FLAGS).out == without != whole
    other = gen(LAMP, "-P", "./story.yaml", "--set", "memory=A hill.", *FLAGS).out
    assert other == gen(f"A hill.\nIt burns oil.\nHello.\n{NOTE}The lamp", *FLAGS).out != whole


def test_a_message_is_answered_with_the_story(gen):
    def prompt(*arguments):
        return gen(*arguments, "-n", "1", "--echo", "--logprobs", "1", "--format", "openai").out

    found = json.loads(prompt("The lamp?", "-P", "./story.yaml", "--system", "Be brief."))
    text = found["choices"][0]["text"]
    assert f"system\n{BEFORE}Be brief." in text
    assert "user\n[Author's note: sad]\n\nThe lamp?" in text


def test_the_next_token_is_that_of_the_story(gen):
    found = gen("next", LAMP, "-P", "./story.yaml", "--seed", "1", "--format", "json").out
    whole = gen("next", f"{BEFORE}Hello.\n{NOTE}The lamp", "--format", "json").out
    assert json.loads(found)["stages"] == json.loads(whole)["stages"]


def test_a_prefix_leaves_the_story_out(gen):
    plain = gen("The lamp", "--in-prefix", "Q: ", *FLAGS)
    done = gen("The lamp", "--in-prefix", "Q: ", "-P", "./story.yaml", *FLAGS)
    assert done.out == plain.out
    assert done.err.startswith(
        "gen: note: --in-prefix writes the prompt; memory, author's note and world info are"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        pytest.param(["word " * 400], "text", id="text"),
        pytest.param(["The lamp", "--set", "memory=" + "word " * 400], "memory", id="memory"),
        pytest.param(["Hi", "--chat", "--set", "memory=" + "word " * 400], "memory", id="memory in a chat"),
        pytest.param(
            [
                "The lamp",
                "--set",
                "world_info="
                + json.dumps({"token_budget": 1, "entries": [{"keys": ["lamp"], "content": "It burns oil."}]}),
            ],
            "world_info",
            id="world info beyond its budget",
        ),
    ],
)
def test_a_run_says_what_has_no_room(gen, arguments, part):
    done = gen(*arguments, "-P", "./story.yaml", "-c", "256", *FLAGS)
    assert f"gen: note: {part}: " in done.err


def test_a_batch_and_a_comparison_read_the_story(gen, home):
    (home / "work" / "lines.jsonl").write_text(json.dumps({"prompt": LAMP, "seed": 3, "max_tokens": 8}) + "\n")
    whole = gen(f"{BEFORE}Hello.\n{NOTE}The lamp", *FLAGS).out
    (line,) = gen("batch", "lines.jsonl", "-P", "./story.yaml", "--format", "jsonl").lines
    assert line["text"] == whole.rstrip("\n")
    arms = ("--arm", "plain=default", "--arm", "story=./story.yaml")
    gen("compare", LAMP, *arms, "--seeds", "1", "--seed", "3", "-n", "8", "--results", "texts.jsonl")
    texts = [json.loads(text)["text"] for text in (home / "work" / "texts.jsonl").read_text().splitlines()]
    assert texts == [gen(LAMP, *FLAGS).out.rstrip("\n"), whole.rstrip("\n")]


def test_a_batch_says_what_has_no_room(gen, home):
    lines = [{"prompt": "word " * 400, "max_tokens": 2}] * 2
    (home / "work" / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = gen("batch", "lines.jsonl", "-P", "./story.yaml", "-c", "256")
    assert done.err.count("line 1: text: the first") == 1
    assert "line 2: text" not in done.err


def test_the_settings_are_shown(gen):
    out = gen("x", "-P", "./story.yaml", "--show-config").out
    assert "A quiet story by the sea." in out
    assert "memory" not in gen("x", "--show-config").out
