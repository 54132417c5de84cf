"""`gen chat` in a pipe: each line is a turn or a command. A small model of random weights answers."""

import json
import re
import signal

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.store import ChatStore

from ...chats.conftest import WITHOUT_REASONING

SIZES = ("-t", "1", "-c", "512", "-n", "6", "--chat-template", WITHOUT_REASONING)


@pytest.fixture
def chat(gen, model_path):
    """Hand lines to `gen chat`; returns what it printed, without the speed of anything."""

    def run(*lines, flags=(), code=0):
        stdin = "".join(f"{line}\n" for line in lines)
        return gen("chat", "-m", model_path, *SIZES, "-s", "1", *flags, stdin=stdin, code=code)

    return run


def test_each_line_is_answered(chat, gen, model_path):
    done = chat("one", "", '"""', "two", "", "lines", '"""', "/settings")
    flags = ("-m", model_path, *SIZES, "-s", "1")
    first = gen("run", "one", "--chat", *flags).out
    assert done.out.startswith(first.rstrip("\n") + "\n")
    assert re.search(r"^seed +1 +--seed$", done.out, re.MULTILINE)


def test_answers_go_back_and_loops_end(chat):
    letters = "[!-~]"
    assert re.search(letters, chat("one", "two").out)
    assert not re.search(letters, chat("one", "two", flags=("--ban-regex", letters)).out)
    phases = (
        "--reasoning-budget",
        "2",
        "--reasoning-budget-message",
        "Now.",
        "--thinking-end",
        "END.",
        "-n",
        "30",
    )
    assert chat("one", "two", flags=phases).out.count("Now.END.") == 2
    looped = chat("one", flags=("--regex", "a{40}", "-n", "40", "--set", "loop_guard={repeats: 2, min_tokens: 2}"))
    assert re.search(r"the answer ends because its last \d+ tokens repeat", looped.err)
    assert re.fullmatch("a+\n", looped.out)


def test_settings_change(chat):
    done = chat(
        "/chain top-k40 > temp0.8",
        "/set min-p=0.25",
        "/seed 7",
        "/system Be brief.",
        "/grammar regex [ab]+",
        "/settings",
        "/preset deterministic",
        "/grammar none",
        "/seed",
        "/seed random",
        "/seed",
        "/system",
        "/settings",
    )
    rows = [re.split(r"  +", line.strip()) for line in done.out.splitlines()]
    assert ["[0] top_k.k", "40", "/chain"] in rows
    assert ["[1] min_p.p", "0.25", "/set min-p"] in rows
    assert ["seed", "7", "/seed"] in rows
    assert ["system", "Be brief.", "/system"] in rows
    assert ["grammar", "'[ab]+'", "/grammar"] in rows
    assert ["[0] greedy", "preset deterministic"] in rows
    assert ["grammar", "none", "/grammar"] in rows
    assert ["7"] in rows
    assert ["random: a new seed for each answer"] in rows
    assert ["Be brief."] in rows
    assert done.err == ""


CARD = {"spec": "chara_card_v2", "data": {"description": "Odile waits."}}


def test_memory_note_and_world_info_are_kept_with_the_chat(chat, home):
    entry = {"uid": 0, "key": ["lamp"], "content": "It burns oil.", "sticky": 2}
    (home / "work" / "world.json").write_text(json.dumps({"entries": {"0": entry}}))
    done = chat("/memory A quiet story.", "/note short", "/world world.json", "one")
    assert done.err.startswith("gen: note: world.json: entries[].sticky: it has no effect\n")
    show = ("/memory", "/note", "/world")
    resumed = chat(*show, "/memory none", "/note none", "/world none", *show, flags=("--resume",))
    assert resumed.out.splitlines() == [
        *("A quiet story.", "short", "lamp: It burns oil."),
        *("there is no memory", "there is no author's note", "there is no world info"),
    ]


WRONG = {
    "/sete x": "/set?",
    "/": "/;",
    "/temp 0.5": "/set temp=0.5",
    "/top_k": "/set top_k=VALUE",
    "/max_tokens 7": "/set max_tokens=7",
    "/qqqq": "/qqqq",
    "/set": "/set needs",
    "/set min_p.p=7": "/set min_p.p: 7 is not within 0..1",
    "/set nothing=1": "/set nothing: ",
    "/set stop=[a, '']": "/set stop[1]: ",
    "/set greedy=true": "greedy",
    "/chain top-q9": "/chain: ",
    "/chain": "/chain needs",
    "/preset nope": "nope",
    "/preset": "/preset needs",
    "/seed x": "/seed: 'x'",
    "/world nothing.json": "nothing.json",
    "/world card.json": "card.json: there is no world info in this file",
    "/world a.gbnf": "a.gbnf: it is not JSON",
    "/grammar": "/grammar needs",
    "/grammar root ::= ": "/grammar",
    "/grammar a.gbnf": "/grammar file a.gbnf",
    "/regen": "no message",
    "/regen 0": "/regen: '0'",
    "/edit": "no message",
    "/edit this": "/edit: ",
    "/undo": "no message",
    "/undo 2": "/undo takes no argument",
    "/branch": "version",
    "/tree": "no messages",
    "/goto": "/goto needs",
    "/goto abc": "'abc'",
    "/next": "no message",
    "/why": "no answer",
    "/save": "/save needs",
    "/export": "/export needs",
    "/export x.txt": "/export: x.txt",
    "/export x.md": "no messages",
    "/clear all": "/clear takes no argument",
    "/exit now": "/exit takes no argument",
}


def test_a_wrong_command_prints_the_reason_and_the_chat_continues(chat, home):
    (home / "work" / "a.gbnf").touch()
    (home / "work" / "card.json").write_text(json.dumps(CARD))
    done = chat(*WRONG, "/seed", code=1)
    assert done.out == "1\n"
    errors = done.err.splitlines()
    for line, expected in WRONG.items():
        assert any(error.startswith("gen: ") and expected in error for error in errors), (line, done.err)


def test_a_chat_begins_again(chat):
    done = chat("/system Be brief.", "/clear", "one", "/clear", "two", "/tree", "/quit", "three")
    _, second, *tree = done.out.splitlines()
    assert second == chat("/system Be brief.", "two").out.rstrip("\n")
    assert [line[11:].split(":")[0].strip() for line in tree] == ["system", "you", "model", "you", "model"]
    assert len(re.findall(r"^gen: note: the chat starts over; /goto [0-9a-f]{8} goes back$", done.err, re.M)) == 1


def test_a_message_that_does_not_fit_is_not_kept(chat, gen):
    done = chat('/grammar root ::= "ok"', "Hello", "more " * 200, "/tree", "Short", code=1)
    tree = re.findall(r"^[|*] [0-9a-f]{8} (\w+): (\w+)$", done.out, re.MULTILINE)
    assert tree == [("you", "Hello"), ("model", "ok")]
    assert done.out.endswith("\nok\n")
    assert "gen: the context is full: the chat has " in done.err
    assert "; the message is not sent\n" in done.err
    assert gen("chat", "--search", "more").out == "no message has this\n"


def test_a_message_without_an_answer(chat, home):
    """It is named when the chat is resumed; a message that follows takes its place."""
    chat("Hello")
    store = ChatStore.open(home / "data" / "logitsmith" / "chats.db")
    Conversation.resume(store, store.find_conversation().id, print).add_user_message("Open")
    store.close()
    done = chat("/tree", "New", "/tree", flags=["--resume"])
    assert done.err.splitlines() == [
        "gen: note: the last message has no answer; /regen answers it, and a new message replaces it",
        "gen: note: this message replaces the one without an answer; /branch shows both",
        "gen: note: the answer ends at 6 tokens, the limit max_tokens in /settings",
    ]
    rows = re.findall(r"^([|* ]) [0-9a-f]{8} +you: (\w+)", done.out, re.MULTILINE)
    assert rows == [("|", "Hello"), ("*", "Open"), ("|", "Hello"), (" ", "Open"), ("|", "New")]
    assert chat("/undo", "New", "/tree", flags=["--resume"]).err.count("takes the place") == 0


def test_versions_and_branches(chat):
    done = chat("Hello", "/regen 2", "/branch", "/branch 1", "more", "/tree", "/undo", "/tree")
    versions = re.findall(r"^([* ]) (\d)  model: ", done.out, re.MULTILINE)
    assert versions == [(" ", "1"), (" ", "2"), ("*", "3")]
    assert re.findall(r"^\[.*\]$", done.out, re.MULTILINE) == ["[version 2 of 3]", "[version 3 of 3]"]
    trees = re.findall(r"^([*| ]) ([0-9a-f]{8}) ( *)(you|model): ", done.out, re.MULTILINE)
    assert [mark for mark, *_ in trees] == list("|||*  |*    ")
    assert "gen: note: version 3 of 3; /branch N shows another version\n" in done.err
    assert "gen: note: undone: you: more; /goto " in done.err


def test_versions_have_further_seeds(chat, gen, model_path):
    done = chat("Hello", "/regen", flags=["--set", "temperature=5"])
    flags = ("-m", model_path, *SIZES, "--set", "temperature=5")
    texts = [gen("run", "Hello", "--chat", *flags, "-s", str(seed)).out.rstrip("\n") for seed in (1, 2)]
    assert done.out.rstrip("\n") == "\n".join(texts)


def test_an_answer_with_the_text_of_another_is_not_a_new_version(chat):
    """Each attempt has a different seed, but here the first two give the same text."""
    done = chat("/grammar root ::= [a-b]", "Hello", "/regen 4", "/branch", flags=["--set", "temperature=5"])
    versions = re.findall(r"^[* ] \d  model: ([ab])$", done.out, re.MULTILINE)
    assert len(versions) == len(set(versions)) == 2
    headings = re.findall(r"^\[version (\d) of (\d)\]$", done.out, re.MULTILINE)
    assert len(headings) == 4
    assert headings[0] == ("2", "5")
    assert headings[-1] == ("3", "3")
    repeated = re.findall(r"^gen: note: the answer has the same text as version (\d)$", done.err, re.MULTILINE)
    assert len(repeated) == 3
    assert re.search(r"^gen: note: version [12] of 2; /branch N shows another version$", done.err, re.MULTILINE)


def test_a_message_is_edited(chat):
    done = chat("Hello", "/edit", "Good day", "/tree", "/branch 1", "/edit answer", "Well,", "/tree")
    first, second = done.out.split("> Hello\n")
    assert first.count("you: ") == 2
    assert "you: Good day" in first
    assert re.search(r"^\* [0-9a-f]{8} +model: Well,", second, re.MULTILINE)


def test_an_answer_is_explained(chat):
    done = chat("Hello", "/why", "/why 2", "/why 99", "/next", "/next a", "/stats", code=1)
    assert done.out.count("token 0: ") == 1
    assert done.out.count("token 2: ") == 1
    assert done.out.count(" lies in ") == 2
    assert done.out.count("\nkept ") == 4
    assert "gen: /why 99: the answer has 6 tokens, numbered from 0\n" in done.err
    assert re.search(r"^generation +6 tokens", done.out, re.MULTILINE)
    assert re.search(r"^finish +length, seed 1$", done.out, re.MULTILINE)
    assert re.search(r"^chat +\w+, 2 messages$", done.out, re.MULTILINE)


def test_the_next_token_is_under_the_grammar(chat):
    done = chat("/grammar regex [a-c]{2}d", "Hello", "/next a", "/next ab", "/next", "/next x", code=1)
    assert re.findall(r"^kept +263 +(\d+) ", done.out, re.MULTILINE) == ["3", "1", "1"]
    assert done.err.count("gen: ") == 1


def test_files(chat, home):
    done = chat("Hello", "/export out.jsonl", "/export out.md", "/export out.md", code=1)
    (line,) = (home / "work" / "out.jsonl").read_text().splitlines()
    assert [message["role"] for message in json.loads(line)["messages"]] == ["user", "assistant"]
    assert (home / "work" / "out.md").read_text().startswith("## User\n\nHello\n")
    assert "gen: note: out.md: 2 messages\ngen: out.md already exists; choose another name\n" in done.err


def test_help_names_every_command(chat):
    from logitsmith.cli.chat.commands import COMMANDS

    out = chat("/help", "/exit", "never read").out
    assert all(f"  {command.usage}" in out for command in COMMANDS)
    assert "Alt-Enter" in out


def test_a_chat_is_resumed(chat, gen, home):
    chat("Hello", "/set min-p=0.25", "/save my first", "/exit")
    done = chat("/settings", "/tree", "/exit", flags=["--resume", "my first"])
    assert re.search(r"min_p.p +0.25 +preset of the resumed chat\n", done.out)
    assert "you: Hello" in done.out
    chat("About penguins")
    chats = gen("chat", "--list").out.splitlines()
    assert len(chats) == 4
    assert "About penguins" in chats[2]
    assert "my first" in chats[3]
    assert "About penguins" in gen("chat", "--search", "penguins").out
    assert gen("chat", "--search", "whales").out == "no message has this\n"
    assert "you: About penguins" in chat("/tree", flags=["--resume"]).out
    gen("chat", "--delete", "my first")
    assert len(gen("chat", "--list").out.splitlines()) == 3
    folder = home / "data" / "logitsmith"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_chat_without_answers_can_be_resumed(chat):
    """A preset cannot have a length of 0, which only reads the prompt; the resumed chat answers again."""
    chat("/set max_tokens=0", "Hello")
    done = chat("/regen", "/settings", flags=["--resume"])
    assert re.search(r"^max_tokens +6 +-n$", done.out, re.MULTILINE)


def test_a_prompt_cache_is_kept(chat, home):
    chat("Hello", flags=["--prompt-cache", home / "cache"])
    assert (home / "cache").stat().st_size > 0
    assert chat("Hello", flags=["--prompt-cache", home / "cache"]).err.count("cache") == 0


def test_bytes_that_are_not_utf8_are_refused(gen, model_path):
    done = gen("chat", "-m", model_path, "-n", "2", "--no-log", stdin=b"\xff\n/seed 3\n/seed\n", code=1)
    assert done.out == "3\n"
    assert done.err.startswith("gen: stdin is not UTF-8")


@pytest.mark.slow
def test_ctrl_c_ends_a_chat_in_a_pipe(start_gen, model_path):
    """The answer so far is written and stored; the lines behind it are not read."""
    command = start_gen("chat", "-m", model_path, "-t", "1", "-c", "20000", "--ignore-eos", has_stdin=True)
    command.stdin.write(b"Hello\n/seed\n")
    assert command.stdout.read(100)
    command.send_signal(signal.SIGINT)
    out, err = command.finish()
    assert command.returncode == 130, err
    assert b"random" not in out
    assert b"Traceback" not in err


WHY = {
    "two tokens": ("/why bca", 0, ["token 1: "]),
    "in quotes": ("/why 'bca'", 0, ["token 1: "]),
    "all of it": ("/why abcab", 0, ["token 0: "]),
    "the last of two": ("/why ab", 0, ["token 3: "]),
    "the first of two": ("/why ab 1", 0, ["token 0: "]),
    "the second of two": ("/why ab 2", 0, ["token 3: "]),
    "no third one": ("/why ab 3", 1, []),
    "not there": ("/why xyz", 1, []),
}


@pytest.mark.parametrize(("command", "code", "shown"), WHY.values(), ids=WHY)
def test_a_text_of_an_answer_is_explained(chat, command, code, shown):
    done = chat("/grammar regex abcab", "Hello", command, code=code)
    assert re.findall(r"token \d+: ", done.out) == shown
    assert ("gen: /why: the answer does not contain the text" in done.err) == bool(code)


def test_nothing_is_stored(chat, home):
    chat("Hello", flags=["--no-log"])
    assert not (home / "data").exists()
