"""`gen completion`: what completes a line, in general and in real shells."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.store import ChatStore
from logitsmith.cli.chat.commands import complete_line
from logitsmith.cli.completion.shells import ANSWERS, LINE_VARIABLE, SCRIPTS, SHELL_VARIABLE, TypedWord, split_line
from logitsmith.cli.completion.values import CompletionItem, CompletionResult
from logitsmith.cli.completion.words import complete_words, is_group, subcommands
from logitsmith.samplers import catalogue

from ..docs.test_commands import COMMANDS, LEAVES

ROOT = Path(__file__).parents[2]


def texts(line):
    words = split_line(line)
    result = complete_words([word.text for word in words[1:-1]], words[-1].text)
    return [item.text for item in result.items]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gen ba", ["batch"]),
        ("gen recover", ["recover", "recover-basis"]),
        ("gen --se", ["--set", "--seed"]),
        ("gen --vers", ["--version"]),
        ("gen Hello --vers", []),
        ("gen Hello --typ", ["--typical", "--typical-p"]),
        ("gen Hello --seed 3 --se", ["--set"]),
        ("gen Hello --set x=1 --se", ["--set", "--seed"]),
        ("gen Hello --no-esc", ["--no-escape"]),
        ("gen Hello -- --se", []),
        ("gen run Hello -ng", ["-ngl"]),
        ("gen --help", ["--help"]),
        ("gen --format js", ["jsonl"]),
        ("gen --format=js", ["--format=jsonl"]),
        ("gen --nonsuch=js", []),
        ("gen --echo=js", []),
        ("gen --logprobs-from ", ["model", "chain", "both"]),
        ("gen -n5 -fa o", ["on", "off"]),
        ("gen -n 5 -fa o", ["on", "off"]),
        ("gen --temp ", []),
        ("gen Hello ", []),
        ("gen -P deter", ["deterministic"]),
        ("gen -P mod", ["model"]),
        ("gen next --against cre", ["creative"]),
        ("gen next --against temp0.8 --against temp", ["temperature"]),
        ("gen --preset=deter", ["--preset=deterministic"]),
        ("gen --grammar che", ["chess"]),
        ("gen presets ex", ["export"]),
        ("gen presets --he", ["--help"]),
        ("gen presets export x --to ol", ["ollama"]),
        ("gen presets import x --from ko", ["koboldai", "koboldcpp"]),
        ("gen presets show deter", ["deterministic"]),
        ("gen presets list x", []),
        ("gen presets nonsuch x", []),
        ("gen grammars check yes", ["yes_no"]),
        ("gen samplers typ", ["typical"]),
        ("gen score Hello -ctk q4", ["q4_0", "q4_1"]),
        ("gen completion z", ["zsh"]),
        ("gen --set top_", [f"{name}." for name in catalogue() if name.startswith("top_")]),
        ("gen --set top-n", ["top-n-sigma."]),
        ("gen --set ignore", ["ignore_eos="]),
        ("gen --set ignore_eos=", ["ignore_eos=true", "ignore_eos=false"]),
        ("gen --set see", ["seed="]),
        ("gen --set top_p.", ["top_p.p=", "top_p.min_keep=", "top_p.boundary="]),
        ("gen --set top_p#2.b", ["top_p#2.boundary="]),
        ("gen --set top-p.min-", ["top-p.min-keep="]),
        ("gen --set top_p.boundary=", ["top_p.boundary=include", "top_p.boundary=exclude"]),
        ("gen --set=top_k.", ["--set=top_k.k="]),
        ("gen --set top_k.k=", []),
        ("gen --set nonsuch.", []),
        ("gen --chain temp", ["temperature"]),
        ("gen --chain 'top_k40 > temp", ["top_k40 > temperature"]),
        ("gen --chain 'top-k40>top-n", ["top-k40>top-n-sigma"]),
        ("gen --chain 'top_p(", ["top_p(p=", "top_p(min_keep=", "top_p(boundary="]),
        ("gen --chain 'top_p(p=0.9, b", ["top_p(p=0.9, boundary="]),
        ("gen --samplers 'top_k;typ", ["top_k;typ_p"]),
    ],
)
def test_candidates(line, expected):
    assert texts(line) == expected


@pytest.mark.parametrize(
    ("line", "suffix", "start"),
    [
        ("gen -m ~/mod", ".gguf", 0),
        ("gen --lora ", ".gguf", 0),
        ("gen --lora=mod", ".gguf", 7),
        ("gen -f ", "", 0),
        ("gen batch ", "", 0),
        ("gen presets import ", "", 0),
        ("gen -P ./pre", "", 0),
        ("gen grammars show ./x", "", 0),
        ("gen --grammar ./x", None, 0),
        ("gen --temp ", None, 0),
        ("gen Hello ", None, 0),
    ],
)
def test_files(line, suffix, start):
    words = split_line(line)
    result = complete_words([word.text for word in words[1:-1]], words[-1].text)
    assert (result.items, result.file_suffix, result.path_start_index) == ([], suffix, start)


@pytest.fixture
def models(home, monkeypatch):
    """Model files here and in a folder of the user's config; ``texts`` runs in this process."""
    user = home / "mine"
    folders = [home / "work" / "models", home / "work" / ".hidden", user, home / "config" / "logitsmith"]
    for folder in folders:
        folder.mkdir(parents=True)
    for file in ("models/tiny.gguf", "models/notes.txt", "large.GGUF", ".secret.gguf"):
        (home / "work" / file).touch()
    (user / "model-of-mine.gguf").write_bytes(b"GGUF")
    (folders[-1] / "config.yaml").write_text(f"model_folders: [{user}, 3]\n")
    monkeypatch.chdir(home / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home


MODEL_COMPLETIONS = {
    "gen -m mod": ["model-of-mine", "models/"],
    "gen --model=la": ["--model=large.GGUF"],
    "gen -m Smol": ["SmolLM2-135M-Instruct.Q4_1"],
    "gen models show model-": ["model-of-mine"],
    "gen score x -m models/": ["models/tiny.gguf"],
    "gen -m .": [".hidden/", ".secret.gguf"],
    "gen -m nonsuch/": [],
}


@pytest.mark.parametrize(("line", "expected"), MODEL_COMPLETIONS.items())
def test_models_are_completed_by_name_and_by_file(models, line, expected):
    assert texts(line) == expected


EXPORT_COMPLETIONS = {
    "": ["large.GGUF", "models/"],
    "mod": ["models/"],
    "models/": ["models/notes.txt", "models/tiny.gguf"],
    ".": [".hidden/", ".secret.gguf"],
    "~/mi": ["~/mine/"],
    "nonsuch/": [],
    "~nonsuch/": [],
}


@pytest.mark.parametrize(("typed", "expected"), EXPORT_COMPLETIONS.items())
def test_the_file_of_an_export_is_completed(models, monkeypatch, typed, expected):
    monkeypatch.setenv("HOME", str(models))
    result, replaced = complete_line(None, f"/export {typed}")
    assert ([item.text for item in result.items], replaced) == (expected, len(typed))


def test_models_of_a_config_that_cannot_be_read_are_left_out(models):
    (models / "config" / "logitsmith" / "config.yaml").write_text("model_folders: [")
    assert texts("gen -m mod") == ["models/"]


@pytest.fixture
def chats(home, monkeypatch):
    """Two stored chats, one of them with a name; returns their ids."""
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    store = ChatStore.open()
    named, other = (Conversation.new(store, print) for _ in range(2))
    named.add_user_message("Hello")
    named.rename("my sea's story")
    other.add_user_message("About whales")
    store.close()
    return named.id, other.id


@pytest.mark.parametrize("flag", ["--resume", "--delete"])
def test_chats_are_completed_by_name_and_by_id(chats, flag):
    named, other = chats
    assert texts(f"gen chat {flag} my") == ["my sea's story"]
    assert texts(f"gen chat {flag} {other[:6]}") == [other]
    assert texts(f"gen chat {flag}=my") == [f"{flag}=my sea's story"]
    assert texts(f"gen chat {flag} ") == ["my sea's story", other, named]
    assert texts(f"gen chat {flag} nonsuch") == []
    words = split_line(f"gen chat {flag} {other}")
    (item,) = complete_words([word.text for word in words[1:-1]], words[-1].text).items
    assert item.help == "About whales"


def test_where_no_chats_are_stored_none_are_completed(home, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    assert texts("gen chat --resume ") == []
    assert not (home / "data").exists()


def test_a_store_that_cannot_be_read_completes_nothing(home, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    (home / "data" / "logitsmith").mkdir(parents=True)
    (home / "data" / "logitsmith" / "chats.db").write_text("no database, but more than nothing")
    assert texts("gen chat --resume ") == []


@pytest.mark.parametrize(("words", "command"), LEAVES, ids=[" ".join(words) for words, _ in LEAVES])
def test_each_flag_of_a_command_is_completed(words, command):
    expected = {name for flag in command.flags for name in flag.names}
    assert set(texts(f"gen {' '.join(words)} -")) == expected >= {"--help", "-h"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_completed(name):
    assert name in texts("gen ")
    is_single = not is_group(name)
    assert ([] if is_single else list(subcommands(name))) == list(getattr(COMMANDS[name], "commands", {}))


def test_a_command_without_options_has_its_help():
    assert [flag.names for flag in subcommands("presets")["list"].flags] == [("--help", "-h")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("gen", ["gen"]),
        ("gen ", ["gen", ""]),
        ("gen  a", ["gen", "a"]),
        ("gen 'a b' c", ["gen", "a b", "c"]),
        ("gen 'a b", ["gen", "a b"]),
        ("gen ''", ["gen", ""]),
        (r"gen a\ b", ["gen", "a b"]),
        (r'gen "a\"b\n"', ["gen", r'a"b\n']),
        ("gen 'a\\'", ["gen", "a\\"]),
        ("gen a\\", ["gen", "a"]),
    ],
)
def test_words_of_a_line(line, words):
    assert [word.text for word in split_line(line)] == words


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("gen --format=js", TypedWord("--format=js", "", 9)),
        ("gen 'a > b", TypedWord("a > b", "'", 0)),
        ("gen --chain='a > b", TypedWord("--chain=a > b", "'", 8)),
        (r"gen a\=b", TypedWord("a=b", "", 0)),
    ],
)
def test_part_that_readline_replaces(line, word):
    assert split_line(line)[-1] == word


@pytest.mark.parametrize(
    ("shell", "line", "expected"),
    [
        ("bash", "x --a=b", "words\nb\\ \\$c\n"),
        ("bash", "x '--a=b", "words\n--a=b $c\n"),
        ("bash", 'x "--a=b', "words\n--a=b \\$c\n"),
        ("zsh", "x --a=b", "words\n--a=b $c:help: two lines\n"),
        ("fish", "x --a=b", "words\n--a=b $c\thelp: two lines\n"),
    ],
)
def test_form_of_an_answer(shell, line, expected):
    result = CompletionResult([CompletionItem("--a=b $c", "help: two\nlines")])
    assert ANSWERS[shell](result, split_line(line)[-1]) == expected


def test_colons_are_escaped_for_zsh():
    assert ANSWERS["zsh"](CompletionResult([CompletionItem("a:b\\")]), TypedWord("")) == "words\na\\:b\\\\\n"


@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(
    "line",
    [
        "gen --se",
        "gen -P ",
        "gen -m ",
        "gen --grammar ",
        "gen --set top_k.",
        "gen --chain 'a > t",
        "gen chat --resume ",
    ],
)
@pytest.mark.usefixtures("chats")
def test_nothing_slow_is_imported(shell, line, environment, home):
    program = (
        "import sys\nfrom logitsmith.cli import main\nmain()\n"
        "slow = {'numpy', 'llama_cpp', 'pydantic', 'rich', 'logitsmith.engine', 'logitsmith.logprobs'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, SHELL_VARIABLE: shell, LINE_VARIABLE: line},
        cwd=home / "work",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "[]\n"
    assert len(done.stdout.splitlines()) > 1


def test_the_file_of_samplers_is_that_of_the_code():
    spec = importlib.util.spec_from_file_location("sampler_names", ROOT / "tools" / "sampler_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FILE.read_text(encoding="utf-8") == module.file_text(), "run python tools/sampler_names.py"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script(gen, shell):
    assert gen("completion", shell).out == SCRIPTS[shell]


def test_an_unknown_shell_is_refused(gen):
    assert "tcsh" in gen("completion", "tcsh", code=2).err


READY, DONE = b"ready> ", b":end"
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts a shell that controls its terminal. Python warns of `pty.fork` in a process with threads, as here."""
STARTS = {
    "bash": (".bashrc", ["bash", "--noprofile", "-i"], 'PS1="ready> "'),
    "zsh": (".zshrc", ["zsh", "-i"], 'PS1="ready> "'),
    "fish": (
        ".config/fish/config.fish",
        ["fish", "-i"],
        'function fish_prompt; echo "ready> "; end; set -U fish_greeting',
    ),
}


class Terminal:
    """A shell in a pseudo-terminal, with the completion that `gen completion` prints."""

    def __init__(self, shell, home, environment):
        (home / "bin").mkdir()
        stub = home / "bin" / "gen"
        stub.write_text(
            f'#!/bin/sh\nif [ -n "${SHELL_VARIABLE}" ]; then exec {sys.executable} -m logitsmith.cli; fi\n'
            f"printf 'args:'; printf '<%s>' \"$@\"; echo {DONE.decode()}\n"
        )
        stub.chmod(0o755)
        name, command, prompt = STARTS[shell]
        settings = home / name
        settings.parent.mkdir(parents=True, exist_ok=True)
        start = "autoload -Uz compinit; compinit -u -D\n" if shell == "zsh" else ""
        settings.write_text(f"{start}{SCRIPTS[shell]}\n{prompt}\n")
        variables = {
            **environment,
            "HOME": str(home),
            "ZDOTDIR": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "PATH": f"{home / 'bin'}:{environment['PATH']}",
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }
        self._terminal, follower = os.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *command],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=home / "work",
            env=variables,
            start_new_session=True,
        )
        os.close(follower)
        self._unread = b""
        self._read_until(READY)

    def type(self, text):
        """Type a line and Enter; return the arguments that `gen` was started with."""
        os.write(self._terminal, text.encode() + b"\n")
        written = self._read_until(DONE)
        self._read_until(READY)
        return written[written.index(b"args:") + len(b"args:") :]

    def _read_until(self, mark):
        while mark not in self._unread:
            self._unread += os.read(self._terminal, 4096)
        before, self._unread = self._unread.split(mark, 1)
        return before

    def close(self):
        os.write(self._terminal, b"exit\n")
        self._process.wait()
        os.close(self._terminal)


@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.usefixtures("chats")
def test_in_a_real_shell(shell, home, environment):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    work = home / "work"
    (work / "presets").mkdir()
    (work / "presets" / "$(touch ran) b.yaml").write_text("chain: [greedy]\n")
    (work / "my models").mkdir()
    (work / "my models" / "small.gguf").touch()
    (work / "my models" / "small.txt").touch()
    (work / "prompt.txt").touch()
    (home / "home.gguf").touch()
    terminal = Terminal(shell, home, environment)
    quote = "'" if shell == "zsh" else ""  # the others close it
    try:
        typed = {
            "gen samp\t": "samplers",
            "gen --see\t": "--seed",
            "gen Hello --set top_p.bo\tinc\t": "Hello><--set><top_p.boundary=include",
            f"gen --chain 'top_k40 > temp\t{quote}": "--chain><top_k40 > temperature",
            "gen --format=jso\t": "--format=jsonl",
            "gen -P deter\t": "-P><deterministic",
            "gen -m my\ts\t": "-m><my models/small.gguf",
            "gen -m Smol\t": "-m><SmolLM2-135M-Instruct.Q4_1",
            "gen -f prom\t": "-f><prompt.txt",
            "gen --file=prom\t": "--file=prompt.txt",
            "echo x | gen --see\t": "--seed",
            "gen -P \\$\t": "-P><$(touch ran) b",
            "gen -m ~/ho\t": f"-m><{home}/home.gguf",
            "gen chat --resume my\t": "chat><--resume><my sea's story",
        }
        assert {line: terminal.type(line) for line in typed} == {
            line: f"<{arguments}>".encode() for line, arguments in typed.items()
        }
    finally:
        terminal.close()
    assert not (work / "ran").exists()
