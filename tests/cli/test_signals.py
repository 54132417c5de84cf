"""How signals and closed streams end a command: what is written, and the exit codes that the manual names."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from logitsmith.cli import interrupt, main
from logitsmith.cli.interrupt import interruptible
from logitsmith.engine import AbortedError
from logitsmith.jobs import scoring as score_lines

pytestmark = pytest.mark.usefixtures("with_pruned_model")

GEN = (sys.executable, "-m", "logitsmith.cli")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
signals = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)


def start(command, environment, stdout=subprocess.PIPE):
    """Start a process whose signals are not ignored, even where those of the tests are."""
    script = f"import os, signal, sys; [signal.signal(n, signal.SIG_DFL) for n in {[int(n) for n in CODES]}]; "
    script += "os.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", script, *command],
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        bufsize=0,  # `communicate` leaves out what a buffer has read ahead
    )


@pytest.mark.parametrize(
    ("number", "count"),
    [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGHUP, 2)],
    ids=["SIGINT", "SIGINT twice", "SIGTERM", "SIGHUP twice"],
)
def test_a_run_writes_its_end(environment, number, count):
    words = ["Hello", "-n", "-1", "--ignore-eos", "--format", "jsonl", "--stop", "never to be seen"]
    with start([*GEN, *words], environment) as process:
        first = [process.stdout.readline() for _ in range(4)]
        for _ in range(count):
            process.send_signal(number)
            time.sleep(0.002)
        rest, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (CODES[number], b"")
    lines = [json.loads(line) for line in [*first, *rest.splitlines()]]
    assert (lines[-1]["event"], lines[-1]["finish_reason"]) == ("done", "interrupted")
    assert lines[-1]["text"].startswith("".join(line["text"] for line in lines if line["event"] == "token"))


LOADS = {
    "score": (["score", "--jsonl", "-", "-v"], signal.SIGTERM),
    "run": (["Hello", "-n", "-1", "--ignore-eos", "-v", "--no-mmap"], signal.SIGINT),
}


@pytest.mark.bundled_model
@pytest.mark.parametrize(("words", "number"), LOADS.values(), ids=LOADS)
def test_a_signal_while_the_model_loads_ends_the_command(start_gen, words, number):
    command = start_gen(*words)
    assert b"llama" in command.stderr.readline()
    command.send_signal(number)
    _, err = command.finish()
    assert command.returncode == CODES[number]
    assert b"Traceback" not in err


@pytest.mark.bundled_model
def test_a_signal_while_a_long_prompt_is_read(start_gen, home):
    (home / "work" / "long.txt").write_text("The sea was calm. " * 1500)
    command = start_gen("-f", "long.txt", "-c", "0", "--format", "jsonl", "-v")
    assert any(b"reserve took" in line for line in iter(command.stderr.readline, b""))  # the last before reading
    time.sleep(0.3)
    command.send_signal(signal.SIGINT)
    out, _ = command.finish()
    assert command.returncode == 130
    start, done = map(json.loads, out.splitlines())
    assert (start["event"], done["event"], done["finish_reason"]) == ("start", "done", "interrupted")


ODD_MOMENTS = {
    "in a load that nothing can stop": """
import ctypes, os, sys
from logitsmith.cli import main
from logitsmith.engine.native import model

def load_file(path, params):
    os.kill(os.getpid(), {number})
    while True:
        ctypes.CDLL(None).usleep(100_000)

model.load_file = load_file
sys.argv = ["gen", "score", "a"]
main()
""",
    "in a callback of an import": """
import os, sys, weakref
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
""",
    "while a class is made": """
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
""",
}


CUT_SHORT = [(moment, number) for moment in ODD_MOMENTS for number in CODES]
del CUT_SHORT[:2]  # each signal ends a load after two seconds


DECISIONS = {
    "a text": ["decide", "The sea"],
    "a fit": ["decide", "--fit", "labelled.jsonl", "-o", "cal.json"],
}
SIGNAL_WHILE_READING = """
import os, sys, time
from logitsmith.cli import main
from logitsmith.engine.native.context import NativeContext
from logitsmith.engine.slots import SequenceSlots

read, decode = SequenceSlots.read, NativeContext.decode_spans

def read_with_signal(*arguments, **options):
    os.kill(os.getpid(), {number})
    time.sleep(0.5)  # the thread that counts signals needs less
    NativeContext.decode_spans = decode_with_message
    return read(*arguments, **options)

def decode_with_message(*arguments, **options):
    print("decoded", flush=True)
    return decode(*arguments, **options)

SequenceSlots.read = read_with_signal
sys.argv = ["gen", *{words}, "--predicate", "It is calm.", "-c", "512"]
main()
"""


@pytest.mark.parametrize("words", DECISIONS.values(), ids=DECISIONS)
def test_a_signal_ends_a_decision_within_its_prompt(gen, home, words):
    rows = [{"input": "The sea", "label": number == 1} for number in range(2)]
    (home / "work" / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = SIGNAL_WHILE_READING.format(number=int(signal.SIGINT), words=words)
    done = gen(program=program, code=130)
    assert (done.out, done.err) == ("decoded\n", "")


@pytest.mark.parametrize(("moment", "number"), CUT_SHORT, ids=lambda value: getattr(value, "name", value))
def test_a_signal_at_an_odd_moment_ends_the_command(gen, moment, number):
    program = ODD_MOMENTS[moment]
    done = gen(program=program.format(number=int(number), then=""), code=CODES[number])
    assert (done.out, done.err) == ("", "")


@pytest.mark.parametrize("then", ["raise ValueError('a fault')", "raise SystemExit('a fault')"])
def test_a_fault_while_a_class_is_made_is_shown(start_gen, then):
    command = start_gen(program=ODD_MOMENTS["while a class is made"].format(number=0, then=then))
    _, err = command.finish()
    assert command.returncode == 1
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
from logitsmith.cli.interrupt import interruptible

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
def test_the_second_signal_is_not_lost_in_a_callback(start_gen, number):
    command = start_gen(program=LOST.format(number=int(number)))
    out, err = command.finish()
    assert out == b"left"
    assert b"ctypes" not in err
    assert command.returncode in (CODES[number], -number)


@pytest.mark.bundled_model
@pytest.mark.parametrize("seconds", [0.3, 0.8])
def test_the_second_ctrl_c_ends_a_batch_while_its_slots_are_made(start_gen, home, seconds):
    lines = [json.dumps({"id": str(n), "prompt": "The", "max_tokens": 400}) + "\n" for n in range(12)]
    (home / "work" / "in.jsonl").write_text("".join(lines))
    command = start_gen("batch", "in.jsonl", "-o", "out.jsonl", "-v")
    while b"llama_context" not in (line := command.stderr.readline()):
        assert line, "it ended early"
    command.send_signal(signal.SIGINT)
    time.sleep(seconds)
    command.send_signal(signal.SIGINT)
    started_at = time.monotonic()
    _, err = command.finish()
    assert command.returncode == 130
    assert time.monotonic() - started_at < 10
    assert b"Traceback" not in err


WITHOUT_A_STREAM = """
import os, sys
os.close({number})
sys.{name} = sys.__{name}__ = None
from logitsmith.cli import main
main()
"""
STREAMS = ("stdin", "stdout", "stderr")
CLOSED = {
    "stdout": ["x -m none.gguf", "score x -m none.gguf", "batch none.jsonl", "recover x", "--help", "samplers"],
    "stdin": ["score --jsonl -", "grammars check json --text-file -", "batch -"],
}


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, lines in CLOSED.items() for words in lines], ids=str
)
def test_a_closed_stream_that_is_needed_is_refused_before_the_work(gen, name, words):
    program = WITHOUT_A_STREAM.format(number=STREAMS.index(name), name=name)
    assert gen(*words.split(), program=program, code=1).err == f"gen: {name}: it is closed\n"


@pytest.mark.parametrize("name", STREAMS)
def test_a_closed_stream_that_is_not_needed_does_not_matter(gen, home, name):
    (home / "work" / "in.jsonl").write_text('{"prompt": "The", "max_tokens": 1}\n')
    program = WITHOUT_A_STREAM.format(number=STREAMS.index(name), name=name)
    gen("batch", "in.jsonl", "-o", "out.jsonl", program=program)
    assert (home / "work" / "out.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_pipe_that_is_closed_ends_a_run_quietly(start_gen, form):
    command = start_gen("Hello", "-n", "-1", "--ignore-eos", "--format", form)
    command.stdout.read(10)
    command.stdout.close()
    assert (command.stderr.read(), command.wait()) == (b"", 0)


def test_a_full_disk_is_a_named_failure(environment):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    command = [*GEN, "Hello", "-n", "-1", "--ignore-eos"]
    with full.open("w") as out, start(command, environment, stdout=out) as process:
        assert process.stderr.read() == b"gen: output: No space left on device\n"
        assert process.wait(60) == 1


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
