"""Ctrl-C while a C function runs that never returns."""

import signal
import subprocess
import sys
import time

import pytest

# A mutex that is locked twice: unlike sleep or read, it does not return for a signal.
PROGRAM = """
import ctypes
from logitsmith.cli.interrupt import interruptible
c = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(128)
print("a line of the run", end="")
with interruptible():
    c.pthread_mutex_lock(mutex)
    c.write(2, b"x", 1)
    c.pthread_mutex_lock(mutex)
"""


@pytest.fixture
def hung():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr.read(1) == "x"
    yield process
    process.kill()
    process.communicate()


def test_the_second_ctrl_c_ends_a_call_that_never_returns(hung):
    hung.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert hung.poll() is None
    hung.send_signal(signal.SIGINT)
    out, err = hung.communicate(timeout=30)
    assert (hung.returncode, out, err) == (130, "a line of the run", "")


def test_one_ctrl_c_waits_for_it(hung):
    hung.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        hung.wait(4)
