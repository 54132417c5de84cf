"""Ctrl-C while a C function runs that never returns, or that returns when it is aborted."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

# A mutex that is locked twice: unlike sleep or read, it does not return for a signal.
PROGRAM = """
import ctypes
from contextlib import nullcontext
from logitsmith.cli.interrupt import interruptible
c = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(128)
print("a line of the run", end="", flush={flush})
with interruptible() as interrupt:
    {abort}
    c.pthread_mutex_lock(mutex)
    with {context}:
        c.write(2, b"x", 1)
        c.pthread_mutex_lock(mutex)
        print(", aborted", end="", flush=True)
"""
ABORT = "interrupt.abort_with(lambda: c.pthread_mutex_unlock(mutex), RuntimeError)"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@contextmanager
def start(abort="pass", context="nullcontext()"):
    program = PROGRAM.format(abort=abort, context=context, flush=abort != "pass")
    unblocked = f"import signal; [signal.signal(n, signal.SIG_DFL) for n in {[int(n) for n in CODES]}]\n"
    with subprocess.Popen(
        [sys.executable, "-c", unblocked + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr.read(1) == "x"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_the_second_ctrl_c_ends_a_call_that_never_returns():
    with start() as hung:
        hung.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert hung.poll() is None
        hung.send_signal(signal.SIGINT)
        out, err = hung.communicate(timeout=30)
    assert (hung.returncode, out, err) == (130, "a line of the run", "")


@pytest.mark.slow
def test_one_ctrl_c_waits_for_it():
    with start() as hung:
        hung.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            hung.wait(1.5)


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_one_signal_aborts_what_ends_soon(number):
    with start(ABORT, "interrupt.graceful_shutdown()") as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "a line of the run, aborted", "")


@pytest.mark.slow
def test_other_work_goes_on_until_the_second_signal():
    with start(ABORT) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (143, "a line of the run", "")
