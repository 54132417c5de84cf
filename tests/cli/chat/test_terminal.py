"""`gen chat` on a terminal of 80 x 24 and of 50 x 15: keys are typed, and the screen is read back."""

import os
import random
import re
import signal
import subprocess
import time

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.store import ChatStore

from ...chats.conftest import TEMPLATE, WITHOUT_REASONING
from ...gen_server import GenServer
from .terminal import ALT_ENTER, CTRL_C, CTRL_E, CTRL_R, CTRL_X, ENTER, LEFT, TAB, UP, LimitedProcess, Terminal

SIZES = [(80, 24), (50, 15)]
RIGHT_TO_LEFT = "\u05e9\u05dc\u05d5\u05dd"
ENDLESS = ("-c", "20000", "-n", "-1", "--ignore-eos", "--grammar", "root ::= [a-z ]+")
FLAGS = ("-t", "1", "-c", "512", "-n", "40", "-s", "1", "--chat-template", WITHOUT_REASONING)


@pytest.fixture
def terminal(gen_server, environment, home, model_path):
    """Open `gen chat` on a terminal."""
    opened = []

    def open_terminal(*flags, columns=80, lines=24, **variables):
        arguments = ("chat", "-m", model_path, *FLAGS, *flags)
        environ = {**of_terminal(environment), **variables}
        opened.append(
            Terminal(gen_server, arguments, columns=columns, lines=lines, cwd=home / "work", env=environ)
        )  # fmt: skip
        opened[-1].wait_for_prompt()
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.__exit__()


def of_terminal(environment):
    """Return the environment without variables that override the size and colors of a terminal."""
    return {key: value for key, value in environment.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}


def saying(text):
    """Return the flags that make a model of random weights write this text."""
    return ("--grammar", f"root ::= {gbnf(text)}", "-n", "-1")


def gbnf(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\x1b", "\\x1B")
    return f'"{escaped}"'


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_an_answer_is_shown_as_markdown(terminal, columns, lines):
    chat = terminal(
        *saying(
            "# A *title*\n\nSome **bold** words, and `code`; enough of them for a second line.\n\n- one\n- two"
        ),
        columns=columns,
        lines=lines,
    )
    chat.send("Hello")
    wrapped = "Some bold words, and code; enough of them for a second line."
    if columns == 50:
        wrapped = "Some bold words, and code; enough of them for a\nsecond line."
    expected = f"> Hello\nA title\n\n{wrapped}\n\n• one\n• two\n\n>"
    assert chat.shown.endswith(expected)
    assert chat.style("bold").bold
    assert chat.style("title").italics
    assert chat.style("code").fg == "cyan"
    assert chat.leave() == 0


def test_nothing_is_moved_or_shown_twice(terminal):
    chat = terminal(*saying("word " * 60 + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"), columns=50, lines=15)
    before = len(chat.raw)
    chat.send("Hello")
    answer = chat.raw[before:].split(b"\r\n", 1)[1]
    answer = answer[answer.index(b"word") : answer.index(b"end")]
    assert answer.count(b"word") == 60
    assert re.findall(rb"\x1b\[[0-9;?]*[^m0-9;?]", answer) == []  # styles only: the cursor goes forward


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_wide_and_right_to_left_characters(terminal, columns, lines):
    chat = terminal(*saying("日本語の文章は続く。" * 6 + "\n\n" + RIGHT_TO_LEFT), columns=columns, lines=lines)
    chat.send("こんにちは、世界")
    assert "> こんにちは、世界" in chat.text.replace("\x00", "")
    rows = [line for line in chat.text.split("\n") if "日本" in line or "文章" in line]
    assert "".join(rows).replace(" ", "") == "日本語の文章は続く。" * 6
    assert RIGHT_TO_LEFT in chat.text


def test_reasoning_is_dimmed(terminal):
    reasoning = ("--chat-template", TEMPLATE.replace("[assistant]{%", "[assistant]<think>{%"))
    budget = ("--reasoning-budget", "0", "--reasoning-budget-message", "\nso it is\n\n")
    chat = terminal(*saying("The answer."), *reasoning, *budget)
    before = len(chat.raw)
    chat.send("Hello")
    assert chat.shown.endswith("> Hello\nso it is\n\nThe answer.\n\n>")
    assert re.search(rb"\x1b\[2;3m *so", chat.raw[before:])
    chat.send("/set max_tokens=3")
    chat.send("Again")
    assert "the model wrote reasoning, and no answer; /edit answer continues it" in chat.text


def test_several_lines(terminal):
    chat = terminal(*saying("ok"))
    chat.type(f"one{ALT_ENTER}two")
    chat.send("")
    chat.type(f'"""{ENTER}three{ENTER}')
    chat.wait_for("… three\n…")
    chat.send('four\r"""')
    chat.send("/tree")
    assert "you: one two" in chat.text
    assert "you: three four" in chat.text


def test_a_paste_of_100_kb_is_one_message(terminal):
    chat = terminal(*saying("ok"))
    lines = [f"line {number} of a long text that is pasted" for number in range(2400)]
    chat.paste("\n".join(lines))
    chat.wait_for("line 2399 of")
    chat.type(ENTER)
    chat.wait_for("gen: the last message does not fit")
    chat.wait_until(lambda: chat.shown.endswith("line 2399 of a long text that is pasted"))
    chat.type(CTRL_C)
    chat.wait_for_prompt()
    chat.send("/tree")
    assert "gen: there are no messages yet" in chat.text
    chat.send("Short")
    assert chat.text.endswith("> Short\nok\n\n>")


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_a_message_that_does_not_fit_is_in_the_input_line_again(terminal, columns, lines):
    chat = terminal(*saying("ok"), columns=columns, lines=lines)
    chat.send("Hello")
    chat.paste("a second turn " * 40)
    chat.type(f"{ENTER}")
    chat.wait_for("gen: the context is full")
    chat.wait_until(lambda: chat.shown.endswith("second turn"))
    words = " ".join(chat.text.split())
    assert "the message is not sent, and is in the input line again" in words
    chat.type(CTRL_C)
    chat.wait_for_prompt()
    chat.send("/tree")
    assert len(re.findall(r"^[|*] [0-9a-f]{8} ", chat.text, re.MULTILINE)) == 2
    assert chat.leave() == 0
    again = terminal("--resume")
    again.send("Short")
    assert again.shown.endswith("> Short\nok\n\n>")


LONG = (
    "The captain looked at the gray water for an extraordinarily long time, while the whole crew waited in "
    "complete silence for whatever would happen next to them."
)


def typed_lines(chat):
    """The rows of the text that is being typed, without their marks."""
    rows = chat.shown.split("\n")
    start = max(number for number, row in enumerate(rows) if row.startswith((">", "edit>")))
    return [re.sub(r"^(> |edit> |… )", "", row) for row in rows[start:]]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_what_is_typed_is_wrapped_between_words(terminal, columns, lines):
    chat = terminal(*saying(LONG), columns=columns, lines=lines)
    chat.type(f"{LONG[:-1]}{LEFT * len(' to them')}!")
    chat.wait_until(lambda: "next! to them" in " ".join(chat.shown.replace("…", "").split()))
    rows = typed_lines(chat)
    assert len(rows) > 1
    assert " ".join(rows).split() == LONG[:-1].replace("next", "next!").split()
    chat.type(CTRL_C)
    chat.send("Hello")
    chat.type(f"/edit answer{ENTER}")
    chat.wait_until(lambda: chat.shown.endswith("them."))
    assert " ".join(typed_lines(chat)).split() == LONG.split()
    assert all(len(row) + 2 < columns for row in typed_lines(chat))


def test_words_that_are_longer_than_a_row(terminal):
    chat = terminal(columns=50, lines=15)
    chat.type("a " + "日本" * 30 + " " + "x" * 97 + " end")
    chat.wait_until(lambda: chat.shown.endswith("x end"))
    assert "".join(typed_lines(chat)).replace(" ", "").replace("\0", "") == "a" + "日本" * 30 + "x" * 97 + "end"


EDITOR = """#!/bin/sh
case $1 in *.md) ;; *) exit 3;; esac
cat "$1" >> seen.txt
printf 'from the editor' > "$1"
"""


def test_the_editor_of_the_user(terminal, home):
    editor = home / "work" / "my editor"
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    chat = terminal(*saying("The answer"), VISUAL=f"'{editor}'", EDITOR="false")
    chat.send("Hello")
    chat.send("/grammar none")
    chat.send("/set max_tokens=2")
    chat.type(f"/edit answer{ENTER}")
    chat.wait_for("Ctrl-X Ctrl-E opens the text in")
    chat.wait_until(lambda: chat.shown.endswith("edit> The answer"))
    chat.type(CTRL_X + CTRL_E)
    chat.wait_until(lambda: chat.shown.endswith("edit> from the editor"))
    chat.send("")
    chat.send("/branch")
    assert "* 2  model: from the editor" in chat.text
    assert (home / "work" / "seen.txt").read_text() == "The answer"


def test_ctrl_c_in_the_editor_keeps_the_text(terminal, home):
    chat = terminal(VISUAL="sh -c 'touch started; sleep 30'")
    chat.type(f"kept{CTRL_X}{CTRL_E}")
    chat.wait_until((home / "work" / "started").exists)
    chat.type(CTRL_C)
    chat.wait_until(lambda: chat.shown.endswith("^C\n> kept"))
    chat.type(" and sent")
    chat.wait_until(lambda: chat.shown.endswith("\n> kept and sent"))


def test_completion(terminal):
    chat = terminal()
    chat.type(f"/sett{TAB}")
    chat.wait_for("> /settings")
    chat.type(f"{CTRL_C}/set min_p.p{TAB}")
    chat.wait_for("> /set min_p.p=")
    chat.type(f"{CTRL_C}/preset determ{TAB}")
    chat.wait_for("> /preset deterministic")
    chat.type(f"{CTRL_C}/chain top_k=40 > temper{TAB}")
    chat.wait_for("> temperature")
    chat.type(CTRL_C)
    chat.wait_for_prompt()
    chat.send("Hello")
    chat.send("/tree")
    (name,) = re.findall(r"^\| ([0-9a-f]{8}) you: Hello", chat.text, re.MULTILINE)
    chat.type(f"/goto {name[:5]}{TAB}")
    chat.wait_until(lambda: chat.shown.endswith(f"> /goto {name}"))
    chat.type(f"{CTRL_C}/goto {TAB}")
    chat.wait_for("you: Hello")
    chat.type(CTRL_C)
    assert chat.leave() == 0


def test_history_and_search(terminal):
    chat = terminal()
    chat.send("/seed 41")
    chat.send("/seed 42")
    assert chat.leave() == 0
    again = terminal()
    again.type(UP)
    again.wait_for("> /seed 42")
    again.type(f"{CTRL_C}{CTRL_R}41")
    again.wait_for("/seed 41")
    again.type(ENTER)
    again.send("")
    again.send("/seed")
    assert again.shown.endswith("\n41\n>")


def test_ctrl_c_at_the_prompt(terminal):
    chat = terminal()
    chat.type("half a line")
    chat.wait_until(lambda: chat.shown.endswith("\n> half a line"))
    chat.type(CTRL_C)
    chat.wait_for_prompt()
    chat.type(CTRL_C)
    chat.wait_for("gen: note: press Ctrl-C again, or Ctrl-D, to leave the chat")
    assert chat.leave(CTRL_C) == 130


def test_ctrl_c_ends_the_answer_and_keeps_it(terminal):
    chat = terminal(*ENDLESS)
    chat.type(f"Hello{ENTER}")
    chat.wait_for_answer("Hello")
    chat.type(CTRL_C)
    chat.wait_for("gen: note: the answer was interrupted, its text so far is kept;")
    chat.wait_for_prompt()
    chat.send("/tree")
    assert re.search(r"^\* [0-9a-f]{8} model: ", chat.text, re.MULTILINE)
    chat.send("/stats")
    assert re.search(r"^finish +interrupted, seed 1$", chat.text, re.MULTILINE)


def test_what_is_typed_ahead_waits(terminal):
    chat = terminal(*ENDLESS, "-n", "300")
    chat.type(f"Hello{ENTER}")
    chat.wait_for_answer("Hello")
    chat.stop_and_continue()
    chat.type("typed ahead")
    chat.wait_until(lambda: chat.shown.endswith("\n> typed ahead"))
    assert chat.text.count("typed ahead") == 1, chat.raw[-600:]


def test_alt_enter_typed_ahead_is_a_new_line(terminal):
    chat = terminal(*ENDLESS, "-n", "300")
    chat.type(f"Hello{ENTER}")
    chat.wait_for_answer("Hello")
    chat.type(f"one{ALT_ENTER}two")
    chat.wait_until(lambda: chat.shown.endswith("\n> one\n… two"))
    chat.type(CTRL_C)
    chat.wait_for_prompt()
    chat.send("/tree")
    assert chat.text.count("you: ") == 1


def test_ctrl_c_twice_leaves(terminal):
    chat = terminal(*ENDLESS)
    chat.type(f"Hello{ENTER}")
    chat.wait_for_answer("Hello")
    chat.type(CTRL_C)
    time.sleep(0.05)  # the kernel would merge two simultaneous signals
    assert chat.leave(CTRL_C) == 130


def test_a_message_is_edited(terminal):
    chat = terminal(*saying("Well, yes"))
    chat.send("Hello")
    chat.type(f"/edit{ENTER}")
    chat.wait_for("edit> Hello")
    chat.send(" there")
    chat.send("/tree")
    assert "you: Hello there" in chat.text
    chat.send("/grammar none")
    chat.type(f"/edit answer{ENTER}")
    chat.wait_for("edit> Well, yes")
    chat.type(CTRL_C)
    chat.type(CTRL_C)
    chat.wait_for("to leave the chat")
    chat.wait_for_prompt()
    chat.type(f"/edit answer{ENTER}")
    chat.wait_until(lambda: chat.shown.endswith("edit> Well, yes"))
    chat.send(" and no")
    chat.send("/branch")
    assert "* 2  model: Well, yes and no" in chat.text


def test_the_window_changes_its_size(terminal):
    chat = terminal(*ENDLESS)
    chat.type(f"Hello{ENTER}")
    chat.wait_for_answer("Hello")
    chat.resize(50, 15)
    before = len(chat.raw)
    chat.wait_until(lambda: len(chat.raw) > before + 300)
    chat.type(CTRL_C)
    chat.wait_for_prompt()
    chat.send("/seed")
    assert chat.shown.endswith("\n1\n>")


def test_a_chat_that_ended_before_the_answer_says_so(terminal, home):
    store = ChatStore.open(home / "data" / "logitsmith" / "chats.db")
    Conversation.new(store, print).add_user_message("Hello")
    store.close()
    chat = terminal("--resume", *saying("yes"))
    words = " ".join(chat.text.split())
    assert "> Hello gen: note: the last message has no answer; /regen answers it" in words
    chat.send("/regen")
    assert chat.shown.endswith("> /regen\nyes\n\n>")
    assert chat.leave() == 0
    assert "has no answer" not in terminal("--resume").text


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_every_command(terminal, home, columns, lines):
    """Each works on a terminal, and none of its lines is wider than that."""
    chat = terminal("-n", "3", columns=columns, lines=lines)
    settings = (
        "/set min_p.p=0.1;/chain top-k40 > temp0.8;/preset min-p;/seed 3;/system Be kind.;/grammar regex [a-c]+"
    )
    branches = "/regen 2;/branch;/branch 2;/tree;/goto;/next;/next a;/why;/why 1;/settings"
    files = "/save my chat;/export chat.md;/stats;/undo;/nothing"
    for line in f"Hello;/help;{settings};{branches};{files}".split(";"):
        chat.send(line)
    assert chat.text.count("\ngen: ") - chat.text.count("\ngen: note: ") == 2
    assert "gen: there is no command /nothing" in chat.text
    assert "gen: note: min_p.p = 0.1\n" in chat.text
    assert "gen: note: system = 'Be kind.'\n" in chat.text
    assert (home / "work" / "chat.md").exists()
    assert chat.leave(f"/exit{ENTER}") == 0


CONFIRMED = {
    "/set min_p.p=0.1": "min_p.p = 0.1",
    "/chain top-k40 > temp0.8": "chain = top_k=40 > temperature=0.8 > dist",
    "/chain top-k0 > greedy": "chain = top_k=0 (off) > greedy",
    "/preset min-p": "preset min-p: chain = min_p=0.1 > temperature=1 (off) > dist",
    "/preset mine.yaml": "preset mine.yaml: chain = greedy; it also sets seed, stop",
    "/grammar json": "grammar = json (18 lines)",
    "/grammar regex [a-c]+": "grammar = '[a-c]+'",
    "/grammar none": "there is no grammar now",
    "/seed 3": "seed = 3",
    "/seed random": "the seed is random now",
    "/system Be kind.": "system = 'Be kind.'",
    "/system none": "there is no system message now",
    "/memory A quiet story.": "memory = 'A quiet story.'",
    "/note short": "author's note = 'short'",
    "/note none": "there is no author's note now",
    "/world world.json": "world info = 1 text",
}


def test_changes_of_settings_are_confirmed(terminal, home):
    (home / "work" / "mine.yaml").write_text("chain: [greedy]\nstop: ['#']\nseed: 5\n")
    (home / "work" / "world.json").write_text('[{"keys": ["a"], "content": "b"}]')
    chat = terminal(columns=120, lines=60)
    for line in CONFIRMED:
        chat.send(line)
    notes = re.findall(r"^gen: note: (.*)$", chat.text, re.MULTILINE)
    assert [note[: len(text)] for note, text in zip(notes, CONFIRMED.values(), strict=True)] == [
        *CONFIRMED.values()
    ]


def test_without_colors(terminal):
    chat = terminal(*saying("Some **bold** `code`"), NO_COLOR="1")
    before = len(chat.raw)
    chat.send("Hello")
    assert b"\x1b[1mbold" in chat.raw[before:]
    assert b"\x1b[36m" not in chat.raw[before:]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
def test_ctrl_c_at_any_moment(terminal, seconds):
    """Every message that was sent is stored, and a prompt comes back or the chat is left."""
    chat = terminal(*ENDLESS)
    for number in range(5):
        chat.type(f"Message {number}{ENTER}")
        time.sleep(seconds * random.random())
        chat.wait_until(lambda number=number: f"> Message {number}" in chat.text)
        chat.type(CTRL_C)
        chat.wait_for_prompt()
    chat.send("/tree")
    assert all(f"you: Message {number}" in chat.text for number in range(5)), chat.text
    assert chat.leave() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.2, 0.4, 0.8])
def test_killed_at_any_moment(terminal, seconds):
    chat = terminal(*saying("The first answer"))
    chat.send("Hello")
    chat.send("/grammar none")
    chat.send("/set ignore_eos=true")
    chat.type(f"More{ENTER}")
    chat.wait_for("> More")
    time.sleep(seconds)
    chat.kill()
    again = terminal("--resume")
    again.send("/tree")
    assert "you: Hello" in again.text
    assert "model: The first answer" in again.text


@pytest.mark.slow
def test_two_concurrent_chats(environment, home, model_path, gen):
    """Each chat of one store has its own messages."""
    with GenServer({**os.environ}) as first_server, GenServer({**os.environ}) as second_server:
        arguments = ("chat", "-m", model_path, *FLAGS, *saying("ok"))
        places = {"cwd": home / "work", "env": of_terminal(environment)}
        first = Terminal(first_server, arguments, **places)
        second = Terminal(second_server, arguments, **places)
        with first, second:
            first.wait_for_prompt()
            second.wait_for_prompt()
            for number in range(3):
                first.send(f"first {number}")
                second.send(f"second {number}")
            first.send("/tree")
            second.send("/tree")
            assert (first.text.count("you: first"), first.text.count("you: second")) == (3, 0)
            assert (second.text.count("you: first"), second.text.count("you: second")) == (0, 3)
            assert (first.leave(), second.leave()) == (0, 0)
    assert len(gen("chat", "--list").out.splitlines()) == 4


@pytest.mark.slow
def test_a_full_disk_does_not_end_the_chat(environment, home, model_path):
    """If the store cannot be written, the chat says so, continues and answers."""
    arguments = ("chat", "-m", model_path, *FLAGS, "-c", "4096", "--on-full", "drop", *saying("ok"))
    with Terminal(LimitedProcess(400_000), arguments, cwd=home / "work", env=of_terminal(environment)) as chat:
        chat.wait_for_prompt()
        chat.send("Hello")
        for number in range(30):
            chat.paste(f"{number} long words " * 200)
            chat.send("")
            if "the chat continues, and is saved once that is possible" in " ".join(chat.text.split()):
                break
        else:
            pytest.fail("the disk is never full")
        chat.send("/undo")
        chat.send("Short")
        chat.send("/tree")
        assert "you: Short" in chat.text
        assert chat.leave() == 0


@pytest.mark.parametrize("is_answering", [True, False], ids=["in an answer", "at the prompt"])
def test_a_closed_terminal_ends_the_chat(environment, home, model_path, is_answering):
    arguments = ("chat", "-m", model_path, *FLAGS, *ENDLESS)
    process = LimitedProcess(stderr=subprocess.DEVNULL)
    with Terminal(process, arguments, cwd=home / "work", env=of_terminal(environment)) as chat:
        chat.wait_for_prompt()
        if is_answering:
            chat.type(f"Hello{ENTER}")
            chat.wait_for_answer("Hello")
        assert chat.hang_up() in (120, 129)  # Python exits with 120 if it cannot write what is left


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, None)])
def test_signals_at_the_prompt(terminal, number, code):
    chat = terminal(*saying("ok"))
    chat.send("Hello")
    os.kill(chat.pid, number)
    if code is None:
        chat.wait_for("gen: note: press Ctrl-C again, or Ctrl-D, to leave the chat")
    else:
        assert chat.ended() == code
        assert "Traceback" not in chat.text
