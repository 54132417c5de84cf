"""How signals and closed streams end a command: what is written, and the exit codes that the manual names."""

import json
import signal
import subprocess
import sys
import time

import pytest
from logitsmith.cli import interrupt, main
from logitsmith.cli.interrupt import interruptible
from logitsmith.engine import AbortedError
from logitsmith.jobs import scoring as score_lines

pytestmark = pytest.mark.usefixtures("with_pruned_model")

GEN = (sys.executable, "-m", "logitsmith.cli")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
signals = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)


def start(command, environment, **options):
    """Start a command whose signals are not ignored, even where those of the tests are."""
    script = f"import os, signal, sys; [signal.signal(n, signal.SIG_DFL) for n in {[int(n) for n in CODES]}]; "
    script += "os.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", script, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # `communicate` leaves out what a buffer has read ahead
        **options,
    )


@signals
@pytest.mark.parametrize("count", [1, 2])
def test_a_run_writes_its_end(environment, number, count):
    command = [*GEN, "Hello", "-n", "-1", "--ignore-eos", "--format", "jsonl", "--stop", "never to be seen"]
    with start(command, environment) as process:
        first = [process.stdout.readline() for _ in range(4)]
        for _ in range(count):
            process.send_signal(number)
            time.sleep(0.002)
        rest, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (CODES[number], b"")
    lines = [json.loads(line) for line in [*first, *rest.splitlines()]]
    assert lines[-1]["finish_reason"] == "interrupted"
    assert lines[-1]["text"].startswith("".join(line["text"] for line in lines if line["event"] == "token"))


@signals
def test_a_command_without_work_to_keep_ends_with_its_code(environment, number, tmp_path):
    with start([*GEN, "score", "--jsonl", "-", "-v"], environment, stdin=subprocess.PIPE) as process:
        assert b"llama" in process.stderr.readline()  # the model is being loaded
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == CODES[number]
    assert b"Traceback" not in err


ENDLESS_LOAD = """
import ctypes, os, sys
from logitsmith.engine.native import model

def load_file(path, params):
    os.write(2, b"loading\\n")
    while True:
        ctypes.CDLL(None).usleep(100_000)

model.load_file = load_file
from logitsmith.cli import main
sys.argv = ["gen", "score", "a"]
main()
"""


@signals
def test_one_signal_ends_a_load_that_nothing_can_stop(environment, number):
    with start([sys.executable, "-c", ENDLESS_LOAD], environment) as process:
        assert process.stderr.readline() == b"loading\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (CODES[number], b"")


LOST_IN_AN_IMPORT = """
import os, signal, sys, weakref
from logitsmith.cli import app, main

class Thing: pass

def lose(*_):
    os.kill(os.getpid(), {number})
    for _ in range(1000): pass

def load_command(_):
    thing = Thing()
    reference = weakref.ref(thing, lose)
    del thing
    while True: pass

app.load_command = load_command
sys.argv = ["gen", "samplers"]
main()
"""


@signals
def test_a_signal_in_a_callback_of_an_import_is_not_lost(environment, number):
    with start([sys.executable, "-c", LOST_IN_AN_IMPORT.format(number=int(number))], environment) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (CODES[number], b"", b"")


IN_A_CLASS = """
import os, sys
from logitsmith.cli import app, main

class Name:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), {number})
        for _ in range(1000): pass
        {then}

def load_command(_):
    class Thing:
        name = Name()

app.load_command = load_command
sys.argv = ["gen", "samplers"]
main()
"""


@signals
def test_a_signal_while_a_class_is_made_prints_no_traceback(environment, number):
    script = IN_A_CLASS.format(number=int(number), then="")
    with start([sys.executable, "-c", script], environment) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (CODES[number], b"", b"")


@pytest.mark.parametrize("then", ["raise ValueError('a fault')", "raise SystemExit('a fault')"])
def test_a_fault_while_a_class_is_made_is_shown(environment, then):
    with start([sys.executable, "-c", IN_A_CLASS.format(number=0, then=then)], environment) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"a fault" in err


ENDING = """
import os, sys, threading, time
from logitsmith.cli import main
threading.Thread(target=time.sleep, args=(30,)).start()
sys.argv = ["gen", "--version"]
try:
    main()
finally:
    os.write(2, b"ended\\n")
"""


@signals
def test_a_signal_while_python_ends_prints_nothing(environment, number):
    with start([sys.executable, "-c", ENDING], environment) as process:
        assert process.stderr.readline() == b"ended\n"
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (CODES[number], b"")
    assert out.startswith(b"gen ")


LOST = """
import ctypes, os, sys, time
from logitsmith.cli import interrupt, main
from logitsmith.cli.interrupt import interruptible
from logitsmith.engine import AbortedError

@ctypes.CFUNCTYPE(None)
def call_back():
    os.kill(os.getpid(), {number})
    time.sleep(0.05)  # here Python calls the handler, and the exception cannot leave the callback

with interruptible():
    os.kill(os.getpid(), {number})
    call_back()
    try:
        time.sleep(30)
    finally:
        os.write(1, b"left")
"""


@signals
def test_the_second_signal_is_not_lost_in_a_callback(environment, number):
    with start([sys.executable, "-c", LOST.format(number=int(number))], environment) as process:
        out, err = process.communicate(timeout=20)
    assert out == b"left"
    assert b"ctypes" not in err
    assert process.returncode in (CODES[number], -number)


@pytest.mark.bundled_model
@pytest.mark.parametrize("seconds", [0.3, 0.6, 1.0])
def test_the_second_ctrl_c_ends_a_batch_while_its_slots_are_made(environment, home, seconds):
    lines = [json.dumps({"id": str(n), "prompt": "The", "max_tokens": 400}) + "\n" for n in range(12)]
    (home / "in.jsonl").write_text("".join(lines))
    with start([*GEN, "batch", "in.jsonl", "-o", "out.jsonl", "-v"], environment, cwd=home) as process:
        while b"llama_context" not in (line := process.stderr.readline()):
            assert line, "it ended early"
        process.send_signal(signal.SIGINT)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        started_at = time.monotonic()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - started_at < 10
    assert b"Traceback" not in err


def in_shell(environment, command, cwd):
    program = f"exec {sys.executable} -m logitsmith.cli {command}"
    return subprocess.run(
        ["sh", "-c", program], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "command", ["x -m none.gguf", "score x -m none.gguf", "batch none.jsonl", "recover x", "--help", "samplers"]
)
def test_a_closed_stdout_is_refused_before_the_work(environment, home, command):
    done = in_shell(environment, f"{command} >&-", home)
    assert (done.returncode, done.stderr) == (1, "gen: stdout: it is closed\n")


def test_a_closed_stdout_does_not_matter_to_a_file(environment, home):
    (home / "in.jsonl").write_text('{"prompt": "The", "max_tokens": 1}\n')
    done = in_shell(environment, "batch in.jsonl -o out.jsonl >&-", home)
    assert done.returncode == 0, done.stderr
    assert (home / "out.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("command", ["score --jsonl -", "grammars check json --text-file -", "batch -"])
def test_a_closed_stdin_is_input_that_cannot_be_read(environment, home, command):
    done = in_shell(environment, f"{command} <&-", home)
    assert (done.returncode, done.stderr) == (1, "gen: stdin: it is closed\n")


def test_an_aborted_call_counts_as_the_signal_that_aborted_it():
    def compute():
        with interruptible() as interrupt:
            interrupt.abort_with(lambda: None, ArithmeticError)
            signal.raise_signal(signal.SIGINT)
            raise ArithmeticError

    with pytest.raises(KeyboardInterrupt):
        compute()


def test_a_line_that_the_second_ctrl_c_aborts_is_not_reported_as_wrong(tmp_path, monkeypatch, capsys):
    def abort(*_arguments, **_options):
        raise AbortedError

    monkeypatch.setattr(score_lines, "scored_line", abort)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "a"}\n')
    with pytest.raises(AbortedError):
        list(score_lines.scored_lines(None, [(1, lines.read_bytes())], None))
    assert capsys.readouterr().err == ""


def test_a_ctrl_c_after_the_end_of_a_command_prints_no_traceback(monkeypatch):
    """It may come before the signals that end the process at once are set."""

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupt, "exit_on_signals", lambda: None)
    monkeypatch.setattr(interrupt, "exit_immediately_on_signals", interrupted)
    monkeypatch.setattr(sys, "argv", ["gen", "--version"])
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == CODES[signal.SIGINT]
