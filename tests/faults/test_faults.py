"""Every command that writes, under every fault: written results are kept, and none is repeated.

The exit codes are those in docs/output.md, and no failure is a traceback.
"""

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..engine.big_model import write_sentencepiece_model
from .commands import COMMANDS, plain_environment, start, write_inputs

pytestmark = pytest.mark.slow

SECONDS = 120
MEGABYTE = 1 << 20
ENDING = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}
CLOCK_SET_BACK = """
import time
_now, _began = time.time, time.time()
time.time = lambda: 2 * _began - _now()
"""


@dataclass(frozen=True)
class Fault:
    """A fault under which a command runs.

    Attributes:
        codes: the exit codes that are allowed.
        prepare: called in the new process before the command.
        environment: changed environment variables; None removes a variable.
        number: signal that is sent at a random time; None for no signal.
    """

    codes: tuple[int, ...] = (0,)
    prepare: Callable[[], object] = lambda: None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    number: signal.Signals | None = None


def limit(kind: int, value: int) -> Callable[[], object]:
    return lambda: resource.setrlimit(kind, (value, value))


SIGNALS = {
    f"{number.name} {moment}": Fault((0, code), number=number)
    for number, code in ENDING.items()
    for moment in ("early", "late")
}
FAULTS = {
    **SIGNALS,
    "stopped and continued": Fault(number=signal.SIGSTOP),
    **{f"files of {size} bytes": Fault((1,), limit(resource.RLIMIT_FSIZE, size)) for size in (0, 700, 5000)},
    "no home": Fault(environment={"HOME": None}),
    "locale C": Fault(environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "closed stdin": Fault(prepare=lambda: os.close(0)),
    "closed stdout": Fault((0, 1), lambda: os.close(1)),
    "16 descriptors": Fault((0, 1), limit(resource.RLIMIT_NOFILE, 16)),
    "1,000 MB of addresses": Fault((0, 1), limit(resource.RLIMIT_AS, 1000 * MEGABYTE)),
    "clock set back": Fault(environment={"PYTHONPATH": "back"}),
}
COUNTS: Counter[str] = Counter()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_sentencepiece_model(path, adds_bos=True)
    return path


@pytest.fixture
def folder(tmp_path, model):
    write_inputs(tmp_path, model)
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "sitecustomize.py").write_text(CLOCK_SET_BACK)
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory, model):
    """Return a function that runs a command undisturbed, once, and returns its result and its seconds."""
    found = {}

    def of(name):
        if name not in found:
            folder = tmp_path_factory.mktemp("whole")
            write_inputs(folder, model)
            began = time.monotonic()
            process = start(COMMANDS[name], folder, plain_environment(folder))
            assert process.wait(SECONDS) == 0, (folder / "stderr").read_text()
            found[name] = COMMANDS[name].result(folder), time.monotonic() - began
            assert found[name][0]
        return found[name]

    return of


@pytest.fixture(scope="module", autouse=True)
def counts():
    yield
    print("\n" + ", ".join(f"{name}: {count}" for name, count in sorted(COUNTS.items())))


def changed(environment, changes):
    values = dict(environment)
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        elif name == "PYTHONPATH":
            values[name] = os.pathsep.join([value, *filter(None, [environment.get(name)])])
        else:
            values[name] = value
    return values


def restore_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def disturb(process, number, seconds):
    """Send a signal after this many seconds; a stopped process is continued later."""
    time.sleep(seconds)
    if process.poll() is None:
        process.send_signal(number)
        COUNTS["signals that met a running command"] += 1
    if number == signal.SIGSTOP:
        time.sleep(0.3)
        process.send_signal(signal.SIGCONT)


def check_messages(folder, command):
    """Check that stderr has no traceback, and that a failure names what failed."""
    said = (folder / "stderr").read_text()
    assert "Traceback" not in said, said
    assert "Exception ignored" not in said, said
    assert "gen: output:" not in said or command.output is None, said


def check_part(command, part, complete):
    """Check that the partial result is correct, without duplicates."""
    assert len(part) == len(set(part)) or command.result.__name__ == "run_result"
    if command.ordered:
        assert part == complete[: len(part)]
    else:
        assert set(part) <= set(complete)


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def finish(command, folder, complete, part):
    """Continue undisturbed; check that the result is complete, and that the earlier part precedes the new one."""
    for left in leftovers(folder):
        (folder / left).unlink()
    process = start(command, folder, plain_environment(folder), [*command.arguments, *command.resume])
    assert process.wait(SECONDS) == 0, (folder / "stderr").read_text()
    result = command.result(folder)
    assert result == complete if command.ordered else sorted(result) == sorted(complete)
    if command.resume and part:
        assert result[: len(part)] == part
        COUNTS["results that were kept"] += len(part)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_under_a_fault(name, fault, folder, whole):
    command, fault_case = COMMANDS[name], FAULTS[fault]
    complete, seconds = whole(name)
    draw = random.Random(f"{name} {fault}")

    def prepare():
        restore_signals()
        fault_case.prepare()

    environment = changed(plain_environment(folder), fault_case.environment)
    process = start(command, folder, environment, preexec_fn=prepare)
    if fault_case.number is not None:
        span = (0.3, 0.6) if "early" in fault else (0.6, 1.0)
        disturb(process, fault_case.number, seconds * draw.uniform(*span))
    code = process.wait(SECONDS)
    COUNTS[f"exit code {code}"] += 1
    said = (folder / "stderr").read_text()
    codes = (
        {*fault_case.codes, 1} if fault_case.number == signal.SIGINT and name == "recover" else fault_case.codes
    )
    if fault_case.number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        codes = (*codes, -fault_case.number)  # the signal arrived before Python had started
    assert code in codes, said
    if not (fault.startswith("files of") and command.output is None and name != "batch"):
        check_messages(folder, command)
    part = command.result(folder)
    check_part(command, part, complete)
    reads_nothing = fault == "closed stdin" and command.stdin is not None
    if code == 0 and fault != "closed stdout" and not reads_nothing:
        assert len(part) == len(complete)
    if fault_case.number != signal.SIGKILL:
        assert not leftovers(folder)
    if name == "run" and fault_case.number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) and part:
        assert b'{"event": "done"' in (folder / "stdout").read_bytes()
    finish(command, folder, complete, part)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.output is not None])
def test_a_folder_that_cannot_be_written(name, folder, whole):
    command = COMMANDS[name]
    arguments = [f"/proc/{word}" if word == command.output else word for word in command.arguments]
    process = start(command, folder, plain_environment(folder), arguments)
    assert process.wait(SECONDS) == 1
    said = (folder / "stderr").read_text()
    assert f"/proc/{command.output}" in said
    assert said.count("\n") == 1
    COUNTS["folders that cannot be written"] += 1


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.resume])
def test_two_processes_with_one_output(name, folder, whole):
    command = COMMANDS[name]
    complete, seconds = whole(name)
    first = start(command, folder, plain_environment(folder), [*command.arguments, "--resume"])
    time.sleep(seconds * 0.7)
    second = start(command, folder, plain_environment(folder), [*command.arguments, "--resume"])
    codes = {first.wait(SECONDS), second.wait(SECONDS)}
    assert codes <= {0, 1}
    assert 0 in codes
    result = command.result(folder)
    assert sorted(result) == sorted(complete)
    COUNTS["two processes"] += 1


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_device_as_stdout(name, folder, whole):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    command = COMMANDS[name]
    with Path("/dev/full").open("wb") as full:
        process = start(command, folder, plain_environment(folder), stdout=full)
    assert process.wait(SECONDS) == (0 if command.output is not None else 1)
    said = (folder / "stderr").read_text()
    assert "Traceback" not in said
    if command.output is None:
        assert "No space left on device" in said
    COUNTS["full devices"] += 1
