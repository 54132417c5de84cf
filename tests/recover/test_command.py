"""`gen recover` and `gen recover-basis` as processes: output, checkpoints, plans, errors."""

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
from math import exp

import numpy as np
import pytest
from logitsmith.cli import main
from logitsmith.cli.app import app
from typer.testing import CliRunner

from ..cli.conftest import Result, environment, gen, gen_server, home  # noqa: F401 - fixtures
from .conftest import api
from .fakes import Fake, row_of

SIZE = 400
ROW = row_of(SIZE)
KEY = "sk-very-secret-0123456789"


def served(window=8, seconds=0.0, fake=None, **habits):
    """Return the response function of an API like llama.cpp's server, for `api`, and the `Fake` that computes
    its responses."""
    fake = fake or Fake(ROW, window, **habits)

    def answer(path, body, headers):
        time.sleep(seconds)
        if path.endswith("/models"):
            return 200, {"data": [{"meta": {"n_vocab": SIZE}}]}, {}
        if path.endswith("/tokenize"):
            return 200, {"tokens": [1, 2, 3]}, {}
        said = fake.query("x", {int(token): value for token, value in body["logit_bias"]})
        if isinstance(said, int):
            return 200, {"tokens": [said]}, {}
        shown = [{"id": i, "bytes": [65, i % 200], "prob": exp(value)} for i, value in said.logprobs.items()]
        return 200, {"completion_probabilities": [{"id": said.token, "prob": 0.5, "top_probs": shown}]}, {}

    return answer, fake


def asked(url, *rest):
    return ("recover", "--endpoint", url, "--api", "llama-server", "--window", "8", "-p", "x", *rest)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """`gen` in this process, which starts faster, in an empty folder."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments, code=0, **extra):
        done = CliRunner().invoke(app, list(arguments), env=extra)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code == code, done.output
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
def test_files(here, tmp_path, ending):
    answer, _ = served()
    with api(answer) as url:
        done = here(*asked(url, "-o", f"out.{ending}", "--verify", "5"))
    assert done.out == ""
    assert "verified 5 tokens by single" in done.err
    path = tmp_path / "work" / f"out.{ending}"
    if ending == "npz":
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            found = data["logprobs"]
    else:
        text = path.read_text()
        found = json.loads(text)["tokens"] if ending == "json" else [json.loads(x) for x in text.splitlines()][1:]
        found = [token["logprob"] for token in found]
    assert np.abs(np.array(found) - ROW).max() < 1e-5
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


def test_the_plan_requests_no_token(here):
    answer, fake = served()
    with api(answer) as url:
        done = here(*asked(url, "--dry-run", "--price", "0.5,1.5", "--top", "50"))
        assert fake.calls == 0
        lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line[:1].isalpha()}
        assert lines["top_n"] == ["9", "36", "$0.0000"]
        assert lines["parallel"] == ["59", "236", "$0.0002"]
        assert "the prompt has 3 tokens" in done.out
        done = here(*asked(url, "--dry-run", "--method", "parallel", "--vocab-size", "100002"))
        assert "14,430" in done.out
        done = here(*asked(url, "--dry-run", "--top", "401"), code=1)
        assert "top_count: 401 is not within 1..400" in done.err
    local = here("recover", "The sea was", "--dry-run", "-t", "1")
    assert "12,412" in local.out


def test_max_calls_and_resume(here, tmp_path):
    answer, fake = served()
    with api(answer) as url:
        done = here(*asked(url, "-o", "out.json", "--max-calls", "20"), code=1)
        assert fake.calls == 20
        assert "--max-calls is reached after 20 calls" in done.err
        assert "out.json.checkpoint; continue with the same command and --resume" in done.err
        part = json.loads((tmp_path / "work" / "out.json").read_text())
        assert (part["complete"], part["stopped"]) == (False, "max_calls")
        done = here(*asked(url, "-o", "out.json"), code=1)
        assert "the checkpoint already exists; continue it with --resume" in done.err
        done = here(
            *asked(url, "-o", "out.json", "-p", "y", "--resume")[:7],
            "-p",
            "y",
            "-o",
            "out.json",
            "--resume",
            code=1,
        )
        assert "the checkpoint belongs to another run; prompt is" in done.err
        assert fake.calls == 20
        done = here(*asked(url, "-o", "out.json", "--resume"))
        assert f"{fake.calls} calls, 20 of them from the checkpoint" in done.err
    assert json.loads((tmp_path / "work" / "out.json").read_text())["complete"]
    assert not (tmp_path / "work" / "out.json.checkpoint").exists()


def test_a_result_is_not_replaced(here, tmp_path):
    answer, fake = served()
    folder = tmp_path / "work"
    with api(answer) as url:
        for ending in ("json", "jsonl", "npz"):
            file = folder / f"out.{ending}"
            here(*asked(url, "-o", file.name, "--ids", "1,2"))
            before, calls = file.read_bytes(), fake.calls
            done = here(*asked(url, "-o", file.name, "--ids", "1,2"), code=1)
            assert f"{file.name}: the file already exists; continue it with --resume" in done.err
            done = here(*asked(url, "-o", file.name, "--ids", "1,2", "--resume"))
            assert f"{file.name}: the result is already complete; no call was made" in done.err
            done = here(*asked(url, "-o", file.name, "--ids", "1,2", "--resume", "--verify", "2"), code=1)
            assert "to verify another one, choose another file" in done.err
            done = here(*asked(url, "-o", file.name, "--ids", "1,3", "--resume"), code=1)
            assert 'request is {"top": null, "ids": [1, 2]}, not {"top": null, "ids": [1, 3]}' in done.err
            done = here(
                "recover",
                "y",
                *asked(url, "-o", file.name, "--ids", "1,2", "--resume")[1:7],
                "-o",
                file.name,
                "--ids",
                "1,2",
                "--resume",
                code=1,
            )
            assert "the file contains the result of another run; prompt is 'x', not 'y'" in done.err
            assert (file.read_bytes(), fake.calls) == (before, calls)
        here(*asked(url, "-o", "out.json", "--dry-run"))  # a plan replaces nothing
        (folder / "empty.json").touch()
        here(*asked(url, "-o", "empty.json", "--ids", "1"))
        old = json.loads((folder / "out.json").read_text())
        del old["request"]  # as earlier versions wrote it
        (folder / "old.json").write_text(json.dumps(old))
        done = here(*asked(url, "-o", "old.json", "--top", "50", "--resume"), code=1)
        assert (
            "old.json: the file does not contain the request of its run; choose another file with -o" in done.err
        )
        assert json.loads((folder / "old.json").read_text()) == old
        (folder / "notes.json").write_text("[1]")
        done = here(*asked(url, "-o", "notes.json", "--ids", "1", "--resume"), code=1)
        assert "notes.json: the file is not a result of gen recover" in done.err
        assert (folder / "notes.json").read_text() == "[1]"


def started(url, home, environment, *rest):  # noqa: F811
    command = [sys.executable, "-m", "logitsmith.cli", *asked(url, "-o", "out.json", *rest)]
    return subprocess.Popen(command, cwd=home / "work", env=environment, stderr=subprocess.PIPE, text=True)


def wait_for_answers(path, count):
    while not path.exists() or path.read_bytes().count(b"\n") <= count:
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_a_signal_ended_is_resumed(gen, home, environment, number, code):  # noqa: F811
    answer, fake = served(seconds=0.01)
    path = home / "work" / "out.json.checkpoint"
    with api(answer) as url:
        process = started(url, home, environment, "--in-flight", "2")
        wait_for_answers(path, 10)
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == code
        assert "Traceback" not in err
        if number == signal.SIGINT:
            assert "interrupted after" in err
            assert "--resume" in err
        kept = path.read_bytes().count(b"\n") - 1
        before = fake.calls
        done = gen(*asked(url, "-o", "out.json", "--resume"))
        assert f"{kept} of them from the checkpoint" in done.err
        # What was in flight when it was killed was answered, but not kept.
        assert fake.calls - before + kept == fake.calls - (before - kept)
        assert before - kept <= (2 if number == signal.SIGKILL else 0)
    assert json.loads((home / "work" / "out.json").read_text())["complete"]


def test_an_endpoint_that_fails_during_the_run(here, tmp_path):
    answer, fake = served()

    def dying(path, body, headers):
        return answer(path, body, headers) if fake.calls < 15 else (500, {"error": {"message": "no memory"}}, {})

    with api(dying) as url:
        done = here(*asked(url, "-o", "out.json", "--retries", "0"), code=1)
    assert "500 Internal Server Error: no memory; the responses are saved, continue with --resume" in done.err
    assert not (tmp_path / "work" / "out.json").exists()


REFUSALS = {
    "wrong key": ([], 0, "401"),
    "a method that does not work": (["--method", "forced"], None, "forced does not work on this endpoint"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_no_advice_to_resume_if_that_does_not_help(here, tmp_path, name):
    rest, most, message = REFUSALS[name]
    answer, fake = served()

    def refusing(path, body, headers):
        if most is not None and "completion" in path and fake.calls >= most:
            return 401, {"error": {"message": "no such key"}}, {}
        return answer(path, body, headers)

    with api(refusing) as url:
        done = here(*asked(url, "-o", "out.json", *rest), code=1)
        assert message in done.err
        assert "--resume" not in done.err
        assert (tmp_path / "work" / "out.json.checkpoint").exists() == (most is None)
        if most is None:  # another method continues with the saved responses
            here(*asked(url, "-o", "out.json", "--resume"))


def test_a_limit_before_the_first_response_gives_no_advice_to_resume(here, tmp_path):
    """A server that hides its first draw uses up the only call."""
    with api(lambda *_: (200, {"tokens": [1]}, {})) as url:
        done = here(*asked(url, "--vocab-size", "9", "-o", "out.json", "--max-calls", "1"), code=1)
    assert "--max-calls is reached after 1 call; there were no responses to save" in done.err
    assert not (tmp_path / "work" / "out.json.checkpoint").exists()


def test_no_advice_to_delete_a_file_that_another_run_writes(here, tmp_path):
    from logitsmith.recover.journal import QueryJournal

    answer, fake = served()
    journal = QueryJournal(tmp_path / "work" / "c", {"endpoint": {}, "prompt": "x"}, False)
    with api(answer) as url:
        done = here(*asked(url, "--checkpoint", "c"), code=1)
    journal.close()
    assert "c: another run is writing to it" in done.err
    assert "delete" not in done.err
    assert fake.calls == 0


def test_a_resume_without_a_checkpoint_is_noted(here):
    answer, _ = served()
    with api(answer) as url:
        done = here(*asked(url, "-o", "out.json", "--resume", "--ids", "1"))
    assert (
        "note: out.json.checkpoint: the checkpoint does not exist; the recovery starts from the beginning"
        in done.err
    )


def test_a_resume_with_another_model_is_rejected(here, tmp_path):
    """It has the same URL, and its server does not report its model."""
    models = [served()[0], served(fake=Fake(row_of(SIZE, seed=1), 8))[0]]

    def answer(path, body, headers):
        return models[0](path, body, headers)

    with api(answer) as url:
        here(*asked(url, "-o", "out.json", "--max-calls", "20"), code=1)
        models.pop(0)
        done = here(*asked(url, "-o", "out.json", "--resume"), code=1)
    assert "nats from those in the checkpoint; the endpoint may now serve another model" in done.err
    assert (tmp_path / "work" / "out.json.checkpoint").exists()


def test_an_interrupted_verification(home, environment):  # noqa: F811
    answer, _ = served(seconds=0.01)
    path = home / "work" / "out.json"
    with api(answer) as url:
        process = started(url, home, environment, "--verify", "100")
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert "gen: interrupted during the verification" in err
    assert json.loads(path.read_text())["complete"]


@pytest.mark.parametrize("left", [0, 3])
def test_max_calls_holds_for_the_verification_too(here, left):
    answer, fake = served()
    with api(answer) as url:
        here(*asked(url, "-o", "first.json", "--ids", "1,2"))
        most = fake.calls + left
        fake.calls = 0
        rest = ("-o", "out.json", "--ids", "1,2", "--verify", "20", "--max-calls", str(most))
        done = here(*asked(url, *rest), code=1)
    assert fake.calls == most
    assert "--max-calls is reached during the verification" in done.err


def test_relative_values_have_no_probabilities(here):
    answer, _ = served(window=0)
    with api(answer) as url:
        done = here("recover", "--endpoint", url, *SERVER[2:], "-p", "x", "--window", "0", "--ids", "3,4")
        assert "relative logprob" in done.out
        assert "probability" not in done.out
        assert "sum to" not in done.err
    with api(served()[0]) as url:
        assert "probability" in here(*asked(url, "--ids", "3")).out


def test_a_bar_on_terminals_only(home, environment):  # noqa: F811
    answer, _ = served(seconds=0.01)
    with api(answer) as url:
        main, side = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "logitsmith.cli", *asked(url, "-o", "out.json")],
            cwd=home / "work",
            env={**environment, "TERM": "xterm"},
            stderr=side,
        )
        os.close(side)
        seen = b""
        while True:
            try:
                data = os.read(main, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
        os.close(main)
        assert process.wait() == 0
    assert b"Recovering" in seen
    assert re.search(rb"\d/[\d,]+ ", seen)


def test_the_openai_key_is_shown_nowhere(here, tmp_path):
    (tmp_path / "work" / "t.tiktoken").write_text("IQ== 0\nIg== 1\n")
    seen = []

    def answer(path, body, headers):
        seen.append(headers["Authorization"])
        return 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, {}

    with api(answer) as url:
        rest = ("--api", "openai", "--api-model", "m", "--tokenizer", "t.tiktoken", "-o", "o.json", "x")
        done = here("recover", "--endpoint", f"{url}/v1", *rest, "--key-env", "MY_KEY", code=1, MY_KEY=KEY)
        assert seen == [f"Bearer {KEY}"]
        assert KEY not in done.err + done.out
        assert "401" in done.err
        assert all(KEY.encode() not in path.read_bytes() for path in (tmp_path / "work").iterdir())
        done = here("recover", "--endpoint", f"{url}/v1", *rest, "--dry-run")
        assert "the prompt has about 1 token;" in done.out
        assert "window" not in done.err
        assert len(seen) == 1
    done = here("recover", "--endpoint", "http://127.0.0.1:9/v1", *rest, code=1, OPENAI_API_KEY="")
    assert "$OPENAI_API_KEY is not set" in done.err


@pytest.mark.parametrize(("rest", "shown"), [((), 5), (("--api-chat",), 20), (("--window", "3"), 3)])
def test_openais_limits_of_the_window_hold_by_default(here, tmp_path, rest, shown):
    lines = [f"{base64.b64encode(bytes([65 + i])).decode()} {i}" for i in range(26)]
    (tmp_path / "work" / "t.tiktoken").write_text("\n".join(lines))
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


def test_basis_of_saved_rows(here, tmp_path):
    from logitsmith.recover import Basis, recover, save_recovery

    from .fakes import log_softmax

    matrix = np.random.default_rng(0).normal(0, 0.5, (SIZE, 8))
    for number in range(14):
        row = log_softmax(matrix @ np.random.default_rng(number).normal(0, 2, 8))
        save_recovery(recover(Fake(row, 20), "x"), tmp_path / "work" / f"{number}.npz", {})
    files = [part for number in range(14) for part in ("--vectors", f"{number}.npz")]
    done = here("recover-basis", "-o", "b.npz", *files)
    assert "b.npz: 400 tokens, 9 dimensions, from 14 recoveries" in done.err
    assert Basis.load(tmp_path / "work" / "b.npz").rank == 9
    done = here("recover-basis", "-o", "b.npz", *files[:8], code=1)
    assert "4 rows are too few" in done.err


USAGE = {
    "no api": (["--endpoint", "http://x"], "--endpoint needs --api llama-server or --api openai"),
    "two of them": (["--endpoint", "http://x", "--api", "llama-server", "-m", "x.gguf"], "give one"),
    "a flag of endpoints": (["--rate", "3"], "--rate is for an --endpoint"),
    "no model name": (["--endpoint", "http://x", "--api", "openai"], "needs --api-model NAME"),
    "no tokenizer": (["--endpoint", "http://x", "--api", "openai", "--api-model", "m"], "needs --tokenizer"),
    "window": (["--window", "-1"], "--window: -1 is not ≥ 0"),
    "both": (["--top", "3", "--ids", "1"], "--top and --ids cannot be combined"),
    "ids": (["--ids", "1,x"], "'1,x' is not a list of token ids"),
    "top_n": (["--method", "top_n"], "--method top_n needs --top N"),
    "basis": (["--method", "basis"], "--method basis needs --basis FILE"),
    "nothing to resume": (["--resume"], "--resume needs a checkpoint"),
    "verify": (["--verify", "0"], "--verify: 0 is not ≥ 1"),
    "price": (["--price", "much"], "'much' is not one or two numbers"),
    "three prices": (["--price", "1,2,3"], "'1,2,3' is not one or two numbers"),
    "a price of nothing": (["--price", "1"], "--price needs --dry-run"),
    "method": (["--method", "magic"], "'magic' is not auto"),
    "two prompts": (["-p", "y"], "the prompt is given twice"),
    "a tolerance of nothing": (["--tolerance", "0.1"], "--tolerance is for a --basis"),
    "over the checkpoint": (["-o", "x.json", "--checkpoint", "./x.json"], "-o and --checkpoint are the same file"),
    "over the basis": (["-o", "b.npz", "--basis", "b.npz"], "-o and --basis are the same file"),
    "over a link to the basis": (["-o", "link.npz", "--basis", "b.npz"], "-o and --basis are the same file"),
    "over the prompt": (["-f", "b.npz", "-o", "b.npz"], "-o and -f are the same file"),
    "answers over the basis": (
        ["--checkpoint", "b.npz", "--basis", "b.npz"],
        "--checkpoint and --basis are the same file",
    ),
    "answers over the model": (
        ["--checkpoint", "m.gguf", "-m", "m.gguf"],
        "--checkpoint and -m are the same file",
    ),
    **{
        f"{flag} {value}": ([flag, value], f"{flag}: {value} is not")
        for flag, values in {
            "--top": ("0", "-5"),
            "--repeats": ("0",),
            "--in-flight": ("0",),
            "--max-calls": ("0",),
            "--eps": ("0", "-1", "nan", "inf"),
        }.items()
        for value in values
    },
}
LOCAL = (
    "--api-chat",
    "--key-env X",
    "--pre-sampling",
    "--slot 0",
    "--vocab-size 9",
    "--timeout 9",
    "--retries 9",
    "--wait",
)
HERE = ("-c 9", "-t 1", "-ngl 0", "-b 9", "--lora x", "--no-mmap", "--mlock")
SERVER = ["--endpoint", "http://127.0.0.1:9", "--api", "llama-server"]
OPENAI = [*SERVER[:2], "--api", "openai", "--api-model", "m", "--tokenizer", "t"]
MEANINGLESS = {
    **{f"{flag}, a model": (flag, [], "is for an --endpoint") for flag in LOCAL},
    **{f"{flag}, a server": (flag, SERVER, "is for a local model") for flag in (*HERE, "-v")},
    **{f"{flag}, an API": (flag, OPENAI, "is for a local model") for flag in HERE},
    **{
        f"{flag}, a server": (flag, SERVER, "is for --api openai")
        for flag in ("--api-chat", "--api-model m", "--tokenizer t")
    },
    **{
        f"{flag}, an API": (flag, OPENAI, "is for --api llama-server")
        for flag in ("--pre-sampling", "--slot 0", "--vocab-size 9")
    },
    **{
        f"{flag}, a server": (flag, SERVER, "is not")
        for flag in ("--rate 0", "--timeout 0", "--timeout -1", "--timeout nan", "--retries -1", "--slot -2")
    },
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_flags_without_effect_are_rejected(name):
    flag, arguments, message = MEANINGLESS[name]
    code, said = invoked("recover", "x", *arguments, *flag.split())
    assert (code, message in said) == (2, True), said
    assert flag.split()[0] in said or flag.split()[0] == "-v"


NOBODY = ["--endpoint", "http://127.0.0.1:9", "--api", "llama-server", "--retries", "0", "--vocab-size", "10"]
FAILURES = {
    "no such basis": (["--basis", "no.npz"], "no.npz: there is no such file"),
    "output of no kind": (["-o", "x.txt"], "x.txt: the file name must end in one of .npz, .json, .jsonl"),
    "no such folder": (["-o", "no/x.json"], "the folder no does not exist"),
    "a folder": (["-o", "folder.json"], "folder.json: this is a folder, not a file"),
    "top of more": (["--top", "11"], "top_count: 11 is not within 1..10"),
    "id outside": (["--ids", "10"], "token id 10 is not within 0..9"),
    "no server": ([], "http://127.0.0.1:9/: no connection"),
    "not a URL": (["--endpoint", "x"], "must begin with http:// or https://"),
}


def invoked(*arguments):
    """Run the command in this process, which starts faster; return its exit code and its output on one line."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code, " ".join(said.getvalue().split())


def test_a_refused_connection_ends_the_command_unless_it_waits():
    retries = NOBODY.index("--retries") + 1
    often = [*NOBODY[:retries], "8", *NOBODY[retries + 1 :]]
    started_at = time.monotonic()
    code, said = invoked("recover", "x", *often)
    assert (code, "no connection" in said, "trying again" in said) == (1, True, False)
    assert time.monotonic() - started_at < 10
    twice = [*NOBODY[:retries], "1", *NOBODY[retries + 1 :]]
    code, said = invoked("recover", "x", *twice, "--wait")
    assert (code, "trying again" in said, "(try 2)" in said) == (1, True, True)


@pytest.mark.parametrize("name", USAGE)
def test_bad_usage(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.npz").write_bytes(b"basis")
    (tmp_path / "link.npz").hardlink_to(tmp_path / "b.npz")
    arguments, message = USAGE[name]
    code, said = invoked("recover", *(["x"] if "-f" not in arguments else []), *arguments)
    assert (code, message in said) == (2, True), said
    assert (tmp_path / "b.npz").read_bytes() == b"basis"


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    arguments, message = FAILURES[name]
    code, said = invoked("recover", "x", *NOBODY, *arguments)
    assert (code, message in said) == (1, True), said


BASIS_USAGE = {
    "both": (["--rows", "3", "--vectors", "a.npz"], "--rows and --vectors cannot be combined"),
    "rows": (["--rows", "-1"], "--rows: -1 is not ≥ 0"),
    "ending": (["-o", "b.txt"], "b.txt must end in .npz"),
    "over a recovery": (["--vectors", "a.npz", "--vectors", "./b.npz"], "-o and --vectors are the same file"),
    "a model for nothing": (
        ["--vectors", "a.npz", "-m", "m.gguf"],
        "-m is for a model, which --vectors does not use",
    ),
    "a context for nothing": (
        ["--vectors", "a.npz", "-c", "9"],
        "-c is for a model, which --vectors does not use",
    ),
}


@pytest.mark.parametrize("name", BASIS_USAGE)
def test_bad_usage_of_basis(name):
    arguments, message = BASIS_USAGE[name]
    code, said = invoked("recover-basis", "-o", "b.npz", *arguments)
    assert (code, message in said) == (2, True), said


BASIS_FAILURES = {
    "no such folder": (["-o", "no/b.npz"], "the folder no does not exist"),
    "a folder": (["-o", "folder.npz"], "folder.npz: this is a folder, not a file"),
    "one recovery": (["--vectors", "a.npz"], "1 recovery is too few"),
    "two sizes": (
        ["--vectors", "a.npz", "--vectors", "c.npz"],
        "c.npz: the recovery has 30 tokens, but a.npz has 40",
    ),
    "a .npy": (["--vectors", "a.npz", "--vectors", "y.npz"], "y.npz: not a recovery"),
}


@pytest.mark.parametrize("name", BASIS_FAILURES)
def test_failures_of_basis(name, tmp_path, monkeypatch):
    from logitsmith.recover import recover, save_recovery

    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npz").mkdir()
    for file, size in (("a", 40), ("c", 30)):
        save_recovery(recover(Fake(row_of(size), 5), "x"), tmp_path / f"{file}.npz", {})
    with (tmp_path / "y.npz").open("wb") as file:
        np.save(file, ROW)
    if "-o" in BASIS_FAILURES[name][0]:  # before a model is looked for
        monkeypatch.setattr("logitsmith.cli.commands.recover_basis.load_model", lambda *_: pytest.fail("too late"))
    arguments, message = BASIS_FAILURES[name]
    code, said = invoked("recover-basis", "-o", "b.npz", *arguments)
    assert (code, message in said) == (1, True), said
