"""`gen recover` and `gen recover-basis`: output, checkpoints, plans, retries, errors."""

import base64
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np
import pytest
from logitsmith.cli import main
from logitsmith.cli.app import app
from logitsmith.cli.render import progress as shown
from logitsmith.cli.render.progress import RetryDisplay
from logitsmith.recover import Basis, Retry, recover, save_recovery
from logitsmith.recover.journal import QueryJournal
from typer.testing import CliRunner

from ..cli.conftest import Result, environment, gen, home  # noqa: F401 - fixtures
from .conftest import api
from .fakes import Fake, log_softmax, row_of, served

SIZE = 400  # the vocabulary of `served`
KEY = "sk-very-secret-0123456789"


def asked(url, *rest, prompt="x"):
    return ("recover", "--endpoint", url, "--api", "llama-server", "--window", "8", "-p", prompt, *rest)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """An empty folder, in which the commands run."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def here(work):
    """`gen` in this process, which starts faster. ``says``: what is printed on stderr."""

    def run(*arguments, code=0, says="", **extra):
        done = CliRunner().invoke(app, list(arguments), env=extra)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code == code, done.output
        assert says in done.stderr
        return Result(done.stdout, done.stderr, done.exit_code)

    return run


def test_a_local_model(gen):  # noqa: F811
    done = gen("recover", "The sea was", "--window", "5", "--top", "12", "-t", "1", "-o", "-")
    head, *tokens = done.lines
    assert (head["method"], head["complete"], head["endpoint"]["api"]) == ("top_n", True, "local")
    assert len(tokens) == 12
    assert " a" in [token["token"] for token in tokens]
    assert "gen: top_n: 5 calls" in done.err
    table = gen("recover", "The sea was", "--ids", "253,17", "-t", "1")
    assert "253" in table.out
    assert "logprob" in table.out
    assert table.err.count("\n") >= 2


@pytest.mark.parametrize("ending", ["npz", "json", "jsonl"])
def test_files(here, work, ending):
    path = work / f"out.{ending}"
    with api(served()[0]) as url:
        assert here(*asked(url, "-o", path.name, "--verify", "5"), says="verified 5 tokens by single").out == ""
    if ending == "npz":
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            found = data["logprobs"]
    else:
        text = path.read_text()
        found = json.loads(text)["tokens"] if ending == "json" else [json.loads(x) for x in text.splitlines()][1:]
        found = [token["logprob"] for token in found]
    assert np.abs(np.array(found) - row_of(SIZE)).max() < 1e-5
    assert sorted(file.name for file in work.iterdir()) == [path.name]


def test_the_plan_requests_no_token(here):
    answer, fake = served()
    with api(answer) as url:
        done = here(*asked(url, "--dry-run", "--price", "0.5,1.5", "--top", "50"))
        lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line[:1].isalpha()}
        assert lines["top_n"] == ["9", "36", "$0.0000"]
        assert lines["parallel"] == ["59", "236", "$0.0002"]
        assert "the prompt has 3 tokens" in done.out
        done = here(*asked(url, "--dry-run", "--method", "parallel", "--vocab-size", "100002"))
        assert "14,430" in done.out
        here(*asked(url, "--dry-run", "--top", "401"), code=1, says="top_count: 401 is not within 1..400")
    assert fake.calls == 0
    assert "12,412" in here("recover", "The sea was", "--dry-run", "-t", "1").out


def test_max_calls_and_resume(here, work):
    answer, fake = served()
    with api(answer) as url:
        done = here(*asked(url, "-o", "out.json", "--max-calls", "20"), code=1)
        assert "--max-calls is reached after 20 calls" in done.err
        assert "out.json.checkpoint; continue with the same command and --resume" in done.err
        part = json.loads((work / "out.json").read_text())
        assert (part["complete"], part["stopped"]) == (False, "max_calls")
        here(*asked(url, "-o", "out.json"), code=1, says="already exists; continue it with --resume")
        other = asked(url, "-o", "out.json", "--resume", prompt="y")
        here(*other, code=1, says="the checkpoint belongs to another run; prompt is")
        assert fake.calls == 20
        done = here(*asked(url, "-o", "out.json", "--resume"))
        assert f"{fake.calls} calls, 20 of them from the checkpoint" in done.err
        assert json.loads((work / "out.json").read_text())["complete"]
        assert not (work / "out.json.checkpoint").exists()
        here(*asked(url, "-o", "new.json", "--resume", "--ids", "1"), says="note: new.json.checkpoint: ")


@pytest.mark.parametrize("ending", ["json", "jsonl", "npz"])
def test_a_result_is_not_replaced(here, work, ending):
    answer, fake = served()
    file = work / f"out.{ending}"
    with api(answer) as url:
        same = asked(url, "-o", file.name, "--ids", "1,2")
        here(*same)
        before, calls = file.read_bytes(), fake.calls
        here(*same, code=1, says=f"{file.name}: the file already exists; continue it with --resume")
        here(*same, "--resume", says=f"{file.name}: the result is already complete; no call was made")
        here(*same, "--resume", "--verify", "2", code=1, says="to verify another one, choose another file")
        ids = 'request is {"top": null, "ids": [1, 2]}, not {"top": null, "ids": [1, 3]}'
        here(*asked(url, "-o", file.name, "--ids", "1,3", "--resume"), code=1, says=ids)
        other = asked(url, "-o", file.name, "--ids", "1,2", "--resume", prompt="y")
        here(*other, code=1, says="the file contains the result of another run; prompt is 'x', not 'y'")
        here(*same, "--dry-run")  # a plan replaces nothing
        assert (file.read_bytes(), fake.calls) == (before, calls)


def test_other_files_are_not_replaced(here, work):
    (work / "empty.json").touch()
    old = {"method": "parallel", "complete": True, "prompt": "x"}  # as earlier versions wrote it
    with api(served()[0]) as url:
        here(*asked(url, "-o", "empty.json", "--ids", "1"))
        old["endpoint"] = json.loads((work / "empty.json").read_text())["endpoint"]
        for text, problem in (
            (json.dumps(old), "does not contain the request of its run"),
            ("[1]", "is not a result of gen recover"),
        ):
            (work / "old.json").write_text(text)
            here(
                *asked(url, "-o", "old.json", "--ids", "1", "--resume"),
                code=1,
                says=f"old.json: the file {problem}",
            )
            assert (work / "old.json").read_text() == text


def started(url, home, environment, *rest):  # noqa: F811
    command = [sys.executable, "-m", "logitsmith.cli", *asked(url, "-o", "out.json", *rest)]
    return subprocess.Popen(command, cwd=home / "work", env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_a_signal_ended_is_resumed(gen, home, environment, number, code):  # noqa: F811
    answer, fake = served(seconds=0.01)
    path = home / "work" / "out.json.checkpoint"
    with api(answer) as url:
        process = started(url, home, environment, "--in-flight", "2")
        while not path.exists() or path.read_bytes().count(b"\n") <= 10:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == code
        assert "Traceback" not in err
        if number == signal.SIGINT:
            assert "interrupted after" in err
            assert "--resume" in err
        kept, before = path.read_bytes().count(b"\n") - 1, fake.calls
        done = gen(*asked(url, "-o", "out.json", "--resume"))
        calls = int(re.search(rf"(\d+) calls, {kept} of them from the checkpoint", done.err)[1])
        # What was in flight when it was killed was answered, but not kept.
        most = 2 if number == signal.SIGKILL else 0
        assert before - kept <= most
        assert 0 <= fake.calls - before - (calls - kept) <= most
    result = json.loads((home / "work" / "out.json").read_text())
    assert result["complete"]
    assert np.abs(np.array([token["logprob"] for token in result["tokens"]]) - row_of(SIZE)).max() < 1e-5


@pytest.mark.slow
def test_an_interrupted_verification(home, environment):  # noqa: F811
    path = home / "work" / "out.json"
    with api(served(seconds=0.01)[0]) as url:
        process = started(url, home, environment, "--verify", "100")
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert "gen: interrupted during the verification" in err
    assert json.loads(path.read_text())["complete"]


def failing_after(answer, fake, calls, status, message):
    """A server that fails once it has answered this many calls."""

    def answer_or_fail(path, body, headers):
        if "completion" in path and fake.calls >= calls:
            return status, {"error": {"message": message}}, {}
        return answer(path, body, headers)

    return answer_or_fail


def test_an_endpoint_that_fails_during_the_run(here, work):
    with api(failing_after(*served(), 15, 500, "no memory")) as url:
        said = "500 Internal Server Error: no memory; the responses are saved, continue with --resume"
        here(*asked(url, "-o", "out.json", "--retries", "0"), code=1, says=said)
    assert not (work / "out.json").exists()


NO_ADVICE = {
    "a wrong key": (0, [], "401"),
    "a method that does not work": (999, ["--method", "forced"], "forced does not work on this endpoint"),
}


@pytest.mark.parametrize("name", NO_ADVICE)
def test_no_advice_to_resume_if_that_does_not_help(here, work, name):
    calls, rest, message = NO_ADVICE[name]
    with api(failing_after(*served(), calls, 401, "no such key")) as url:
        assert "--resume" not in here(*asked(url, "-o", "out.json", *rest), code=1, says=message).err
        assert (work / "out.json.checkpoint").exists() == (calls > 0)
        if calls:  # another method continues with the saved responses
            here(*asked(url, "-o", "out.json", "--resume"))


def test_a_limit_before_the_first_response_gives_no_advice_to_resume(here, work):
    """A server that hides its first draw uses up the only call."""
    with api(lambda *_: (200, {"tokens": [1]}, {})) as url:
        said = "--max-calls is reached after 1 call; there were no responses to save"
        here(*asked(url, "--vocab-size", "9", "-o", "out.json", "--max-calls", "1"), code=1, says=said)
    assert not (work / "out.json.checkpoint").exists()


def test_no_advice_to_delete_a_file_that_another_run_writes(here, work):
    answer, fake = served()
    journal = QueryJournal(work / "c", {"endpoint": {}, "prompt": "x"}, False)
    with api(answer) as url:
        done = here(*asked(url, "--checkpoint", "c"), code=1, says="c: another run is writing to it")
    journal.close()
    assert "delete" not in done.err
    assert fake.calls == 0


@pytest.mark.parametrize("left", [0, 3])
def test_max_calls_holds_for_the_verification_too(here, left):
    answer, fake = served()
    with api(answer) as url:
        here(*asked(url, "-o", "first.json", "--ids", "1,2"))
        most = fake.calls + left
        fake.calls = 0
        rest = ("-o", "out.json", "--ids", "1,2", "--verify", "20", "--max-calls", str(most))
        here(*asked(url, *rest), code=1, says="--max-calls is reached during the verification")
    assert fake.calls == most


def test_relative_values_have_no_probabilities(here):
    with api(served(window=0)[0]) as url:
        done = here(*asked(url, "--window", "0", "--ids", "3,4"))
        assert "relative logprob" in done.out
        assert "probability" not in done.out
        assert "sum to" not in done.err
    with api(served()[0]) as url:
        assert "probability" in here(*asked(url, "--ids", "3")).out


def test_the_openai_key_is_shown_nowhere(here, work):
    (work / "t.tiktoken").write_text("IQ== 0\nIg== 1\n")
    seen = []

    def answer(path, body, headers):
        seen.append(headers["Authorization"])
        return 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, {}

    rest = ("--api", "openai", "--api-model", "m", "--tokenizer", "t.tiktoken", "-o", "o.json", "x")
    with api(answer) as url:
        command = ("recover", "--endpoint", f"{url}/v1", *rest)
        done = here(*command, "--key-env", "MY_KEY", code=1, MY_KEY=KEY, says="401")
        assert seen == [f"Bearer {KEY}"]
        assert KEY not in done.err + done.out
        assert all(KEY.encode() not in path.read_bytes() for path in work.iterdir())
        assert "the prompt has about 1 token;" in here(*command, "--dry-run").out
        assert len(seen) == 1
        here(*command, code=1, says="$OPENAI_API_KEY is not set", OPENAI_API_KEY="")


@pytest.mark.parametrize(("rest", "shown"), [((), 5), (("--api-chat",), 20), (("--window", "3"), 3)])
def test_openais_limits_of_the_window_hold_by_default(here, work, rest, shown):
    lines = [f"{base64.b64encode(bytes([65 + i])).decode()} {i}" for i in range(26)]
    (work / "t.tiktoken").write_text("\n".join(lines))
    seen = []

    def answer(path, body, headers):
        seen.append(body["top_logprobs"] if "top_logprobs" in body else body["logprobs"])
        return 400, {}, {}

    with api(answer) as url:
        given = ("--api", "openai", "--api-model", "m", "--tokenizer", "t.tiktoken", *rest)
        here("recover", "x", "--endpoint", f"{url}/v1", *given, code=1, OPENAI_API_KEY=KEY)
        assert seen == [shown]
        done = here("recover", "x", "--endpoint", f"{url}/v1", *given, "--dry-run", "--method", "parallel")
        calls = 3 + -(-(26 - shown) // (shown - 1))
        assert done.out.splitlines()[-3].split()[:2] == ["parallel", f"{calls}"]


def test_basis_of_saved_rows(here, work):
    matrix = np.random.default_rng(0).normal(0, 0.5, (SIZE, 8))
    for number in range(14):
        row = log_softmax(matrix @ np.random.default_rng(number).normal(0, 2, 8))
        save_recovery(recover(Fake(row, 20), "x"), work / f"{number}.npz", {})
    files = [part for number in range(14) for part in ("--vectors", f"{number}.npz")]
    said = "b.npz: 400 tokens, 9 dimensions, from 14 recoveries"
    here("recover-basis", "-o", "b.npz", *files, says=said)
    assert Basis.load(work / "b.npz").rank == 9
    here("recover-basis", "-o", "b.npz", *files[:8], code=1, says="4 rows are too few")


# Retries, as the user sees them: a line in a log, a countdown on a terminal


@pytest.fixture
def display(monkeypatch):
    """A display, with a clock that can be set, and its notes."""
    clock, notes = [100.0], []
    monkeypatch.setattr(shown.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(shown, "print_note", notes.append)
    return RetryDisplay(), clock, notes


def test_a_problem_is_named_once_as_long_as_it_lasts(display):
    retries, _, notes = display
    for problem in ("busy", "busy", "gone", "busy"):
        retries.show(Retry(problem, 0.3, 2, 9))
    assert notes == [f"{problem}; trying again in 1 s, try 2 of 9" for problem in ("busy", "gone", "busy")]


def test_the_seconds_until_the_next_try(display):
    retries, clock, _ = display
    assert retries.countdown() == ""
    retries.show(Retry("busy", 12.0, 3, 9))
    retries.show(Retry("busy", 600.0, 2, 9))
    for clock[0], seconds, attempt in (
        (100.0, 12, 3), (101.5, 11, 3), (111.9, 1, 3), (112.0, 588, 2), (699.5, 1, 2)
    ):  # fmt: skip
        assert retries.countdown() == f"Again in {seconds} s, try {attempt} of 9"
    clock[0] = 700.0
    assert retries.countdown() == ""


def busy_at_first(seconds):
    """A server that rejects its first request and asks to wait."""
    answer, _ = served(seconds=0.01)
    refused = []

    def answer_later(path, body, headers):
        if not refused and path.endswith("/completion"):
            refused.append(path)
            return 503, {}, {"Retry-After": str(seconds)}
        return answer(path, body, headers)

    return answer_later


def test_a_line_where_there_is_no_terminal(gen):  # noqa: F811
    with api(busy_at_first(1)) as url:
        done = gen(*asked(url, "--top", "3"))
    (line,) = [line for line in done.err.splitlines() if "503" in line]
    assert line.startswith("gen: note: http://")
    assert line.endswith("; trying again in 1 s, try 2 of 9")
    assert "Again in" not in done.err
    assert "\x1b" not in done.err


@pytest.mark.slow
def test_a_bar_and_a_countdown_on_a_terminal(environment):  # noqa: F811
    leader, follower = pty.openpty()
    with api(busy_at_first(3)) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "logitsmith.cli", *asked(url)],
            env={**environment, "COLUMNS": "80", "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=follower,
        )
        os.close(follower)
        said = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            said += part
        assert process.wait() == 0
    os.close(leader)
    places = [said.find(f"Again in {seconds} s, try 2 of 9".encode()) for seconds in (3, 2, 1)]
    assert -1 not in places
    assert places == sorted(places)
    assert b"Recovering" in said
    assert re.search(rb"\d/[\d,]+ ", said)
    assert b"Again" not in said.splitlines()[-1]


# Wrong command lines and files: arguments -> what the error says


SERVER = "--endpoint http://127.0.0.1:9 --api llama-server"
OPENAI = "--endpoint http://127.0.0.1:9 --api openai --api-model m --tokenizer t"
NOBODY = f"{SERVER} --retries 0 --vocab-size 10"
MODEL_FLAGS = ("-c 9", "-t 1", "-ngl 0", "-b 9", "--lora x", "--no-mmap", "--mlock")
OPENAI_FLAGS = ("--api-chat", "--api-model m", "--tokenizer t")
SERVER_FLAGS = ("--pre-sampling", "--slot 0", "--vocab-size 9")
ENDPOINT_FLAGS = (*SERVER_FLAGS, "--api-chat", "--key-env X", "--timeout 9", "--retries 9", "--wait", "--rate 3")
WRONG_VALUES = (
    *("--top 0", "--top -5", "--repeats 0", "--in-flight 0", "--max-calls 0", "--verify 0", "--window -1"),
    *("--eps 0", "--eps -1", "--eps nan", "--eps inf"),
)
WRONG_SERVER_VALUES = ("--rate 0", "--timeout 0", "--timeout -1", "--timeout nan", "--retries -1", "--slot -2")
USAGE = {
    "--endpoint http://x": "--endpoint needs --api llama-server or --api openai",
    "--endpoint http://x --api llama-server -m x.gguf": "give one",
    "--endpoint http://x --api openai": "needs --api-model NAME",
    "--endpoint http://x --api openai --api-model m": "needs --tokenizer",
    "--top 3 --ids 1": "--top and --ids cannot be combined",
    "--ids 1,x": "'1,x' is not a list of token ids",
    "--method top_n": "--method top_n needs --top N",
    "--method basis": "--method basis needs --basis FILE",
    "--resume": "--resume needs a checkpoint",
    "--price much": "'much' is not one or two numbers",
    "--price 1,2,3": "'1,2,3' is not one or two numbers",
    "--price 1": "--price needs --dry-run",
    "-p y": "the prompt is given twice",
    "--tolerance 0.1": "--tolerance is for a --basis",
    "-o x.json --checkpoint ./x.json": "-o and --checkpoint are the same file",
    "-o b.npz --basis b.npz": "-o and --basis are the same file",
    "-o link.npz --basis b.npz": "-o and --basis are the same file",
    "--checkpoint b.npz --basis b.npz": "--checkpoint and --basis are the same file",
    "--checkpoint m.gguf -m m.gguf": "--checkpoint and -m are the same file",
    **{flag: f"{flag.split()[0]} is for an --endpoint" for flag in ENDPOINT_FLAGS},
    **{f"{SERVER} {flag}": "is for a local model" for flag in (*MODEL_FLAGS, "-v")},
    **{f"{OPENAI} {flag}": "is for a local model" for flag in MODEL_FLAGS},
    **{f"{SERVER} {flag}": "is for --api openai" for flag in OPENAI_FLAGS},
    **{f"{OPENAI} {flag}": "is for --api llama-server" for flag in SERVER_FLAGS},
    **{flag: f"{flag.replace(' ', ': ')} is not" for flag in WRONG_VALUES},
    **{f"{SERVER} {flag}": f"{flag.replace(' ', ': ')} is not" for flag in WRONG_SERVER_VALUES},
    "--method magic": "'magic' is not one of auto, single",
}
FAILURES = {
    "--basis no.npz": "no.npz: there is no such file",
    "-o x.txt": "x.txt: the file name must end in one of .npz, .json, .jsonl",
    "-o no/x.json": "there is no folder no",
    "-o folder.json": "folder.json: it is a folder, not a file",
    "--top 11": "top_count: 11 is not within 1..10",
    "--ids 10": "token id 10 is not within 0..9",
    "--endpoint x": "must begin with http:// or https://",
}
BASIS_USAGE = {
    "--rows 3 --vectors a.npz": "--rows and --vectors cannot be combined",
    "--rows -1": "--rows: -1 is not ≥ 0",
    "-o b.txt": "b.txt must end in .npz",
    "--vectors a.npz --vectors ./b.npz": "-o and --vectors are the same file",
    "--vectors a.npz -m m.gguf": "-m is for a model, which --vectors does not use",
    "--vectors a.npz -c 9": "-c is for a model, which --vectors does not use",
}
BASIS_FAILURES = {
    "-o no/b.npz": "there is no folder no",  # before a model is looked for
    "--vectors a.npz": "1 recovery is too few",
    "--vectors a.npz --vectors c.npz": "c.npz: the recovery has 30 tokens, but a.npz has 40",
    "--vectors a.npz --vectors y.npz": "y.npz: not a recovery",
}
REFUSED = [
    *((f"recover x {line}", 2, problem) for line, problem in USAGE.items()),
    ("recover -f b.npz -o b.npz", 2, "-o and -f are the same file"),
    *((f"recover x {NOBODY} {line}", 1, problem) for line, problem in FAILURES.items()),
    *((f"recover-basis -o b.npz {line}", 2, problem) for line, problem in BASIS_USAGE.items()),
    *((f"recover-basis -o b.npz {line}", 1, problem) for line, problem in BASIS_FAILURES.items()),
    ("recover-basis -o folder.npz", 1, "folder.npz: it is a folder, not a file"),
]


def invoked(line):
    """Run the command in this process; return its exit code and its output on one line."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as end:
        main(line.split())
    return end.value.code, " ".join(said.getvalue().split())


@pytest.fixture(scope="module")
def recoveries(tmp_path_factory):
    """A folder with complete recoveries of two sizes, and another file of NumPy."""
    folder = tmp_path_factory.mktemp("recoveries")
    for name, size in (("a", 40), ("c", 30)):
        save_recovery(recover(Fake(row_of(size), 5), "x"), folder / f"{name}.npz", {})
    with (folder / "y.npz").open("wb") as file:
        np.save(file, row_of(40))
    return folder


@pytest.mark.parametrize(("line", "code", "problem"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_refusals(line, code, problem, recoveries, work, monkeypatch):
    monkeypatch.setattr("logitsmith.cli.commands.recover_basis.load_model", lambda *_: pytest.fail("too late"))
    for path in recoveries.iterdir():
        (work / path.name).hardlink_to(path)
    (work / "b.npz").write_bytes(b"basis")
    (work / "link.npz").hardlink_to(work / "b.npz")
    for name in ("folder.json", "folder.npz"):
        (work / name).mkdir()
    found_code, said = invoked(line)
    assert (found_code, problem in said) == (code, True), said
    assert (work / "b.npz").read_bytes() == b"basis"


def test_a_refused_connection_ends_the_command_unless_it_waits():
    began = time.monotonic()
    code, said = invoked(f"recover x {SERVER} --vocab-size 10 --retries 8")
    url = "http://127.0.0.1:9/"
    wait = "use --wait if the server is still starting"
    assert (code, said) == (1, f"gen: {url}: no connection: Connection refused; {wait}")
    assert time.monotonic() - began < 10
    code, said = invoked(f"recover x {SERVER} --vocab-size 10 --retries 1 --wait")
    assert (code, "trying again" in said, "(try 2)" in said) == (1, True, True)
