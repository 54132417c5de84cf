"""`gen completion`: what completes a line, in general and in real shells."""

import importlib.util
import io
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from logitsmith.cli.app import start
from logitsmith.cli.chat.commands import complete_line
from logitsmith.cli.commands.completion import SCRIPTS
from logitsmith.samplers import catalogue

from ..docs.test_commands import COMMANDS, LEAVES

ROOT = Path(__file__).parents[2]


def question(line):
    """The variables with which a script asks for the completions of a line."""
    asked = {"_GEN_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args", "COLUMNS": "999"}
    return {**asked, "_TYPER_COMPLETE_ARGS": line}


def answers(line):
    """The completions of a line, each with its help."""
    out = io.StringIO()
    with patch.dict(os.environ, question(line)), redirect_stdout(out), pytest.raises(SystemExit):
        start([])
    return dict(row.partition("\t")[::2] for row in out.getvalue().splitlines() if row)


def texts(line):
    return list(answers(line))


CANDIDATES = {
    "gen ba": ["batch"],
    "gen recover": ["recover", "recover-basis"],
    "gen --se": ["--set", "--seed"],
    "gen Hello --vers": [],
    "gen Hello --seed 3 --se": ["--set"],
    "gen Hello --set x=1 --se": ["--set", "--seed"],
    "gen Hello --no-esc": ["--no-escape"],
    "gen run Hello -ng": ["-ngl"],
    "gen --help": ["--help"],
    "gen --format js": ["jsonl"],
    "gen --format=js": ["jsonl"],
    "gen --nonsuch=js": [],
    "gen --echo=js": [],
    "gen --logprobs-from ": ["model", "chain", "both"],
    "gen -n5 -fa o": ["on", "off"],
    "gen --temp ": [],
    "gen Hello ": [],
    "gen -P deter": ["deterministic"],
    "gen next --against cre": ["creative"],
    "gen next --against temp0.8 --against temp": ["temperature"],
    "gen --preset=deter": ["deterministic"],
    "gen --grammar che": ["chess"],
    "gen presets --he": ["--help"],
    "gen presets export x --to ol": ["ollama"],
    "gen presets import x --from ko": ["koboldai", "koboldcpp"],
    "gen presets show deter": ["deterministic"],
    "gen presets nonsuch x": [],
    "gen grammars check yes": ["yes_no"],
    "gen samplers typ": ["typical"],
    "gen score Hello -ctk q4": ["q4_0", "q4_1"],
    "gen completion z": ["zsh"],
    "gen --set top_": [f"{name}." for name in catalogue() if name.startswith("top_")],
    "gen --set top-n": ["top-n-sigma."],
    "gen --set ignore_eos=": ["ignore_eos=true", "ignore_eos=false"],
    "gen --set see": ["seed="],
    "gen --set top_p.": ["top_p.p=", "top_p.min_keep=", "top_p.boundary="],
    "gen --set top_p#2.b": ["top_p#2.boundary="],
    "gen --set top-p.min-": ["top-p.min-keep="],
    "gen --set top_p.boundary=": ["top_p.boundary=include", "top_p.boundary=exclude"],
    "gen --set=top_k.": ["top_k.k="],
    "gen --set top_k.k=": [],
    "gen --chain temp": ["temperature"],
    "gen --chain 'top_k40 > temp": ["top_k40 > temperature"],
    "gen --chain 'top-k40>top-n": ["top-k40>top-n-sigma"],
    "gen --chain 'top_p(": ["top_p(p=", "top_p(min_keep=", "top_p(boundary="],
    "gen --chain 'top_p(p=0.9, b": ["top_p(p=0.9, boundary="],
    "gen --samplers 'top_k;typ": ["top_k;typ_p"],
}


@pytest.mark.parametrize(("line", "expected"), CANDIDATES.items())
def test_candidates(line, expected):
    assert texts(line) == expected


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
    "gen --model=la": ["large.GGUF"],
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
    assert ([item.text for item in result], replaced) == (expected, len(typed))


def test_models_of_a_config_that_cannot_be_read_are_left_out(models):
    (models / "config" / "logitsmith" / "config.yaml").write_text("model_folders: [")
    assert texts("gen -m mod") == ["models/"]


@pytest.mark.parametrize("flag", ["--resume", "--delete"])
def test_chats_are_completed_by_name_and_by_id(chats, flag):
    named, other = chats
    assert texts(f"gen chat {flag} my") == ["my sea's story"]
    assert texts(f"gen chat {flag} {other[:6]}") == [other]
    assert texts(f"gen chat {flag}=my") == ["my sea's story"]
    assert texts(f"gen chat {flag} ") == ["my sea's story", other, named]
    assert texts(f"gen chat {flag} nonsuch") == []
    assert answers(f"gen chat {flag} {other}") == {other: "About whales"}


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
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    expected = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert set(texts(f"gen {' '.join(words)} -")) == expected | {"--help", "-h"}


def test_each_command_is_completed():
    assert texts("gen ") == list(COMMANDS)
    assert texts("gen presets ") == list(COMMANDS["presets"].commands)


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
            f'#!/bin/sh\nif [ -n "$_GEN_COMPLETE" ]; then exec {sys.executable} -m logitsmith.cli; fi\n'
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


@pytest.mark.slow
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
