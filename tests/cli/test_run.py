"""`gen` as a person and as a pipe uses it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

SEA = ("The sea was", "-n", "8", "--seed", "7")


def test_text_streams_to_stdout_and_nothing_else(gen):
    result = gen(*SEA)
    assert result.err == ""
    assert len(result.out) > 10
    assert not result.out.endswith("\n\n")


def test_same_seed_same_text(gen):
    assert gen(*SEA).out == gen("run", *SEA).out == gen("-p", "The sea was", "-n", "8", "-s", "7").out


def test_prompt_from_stdin_and_file_lose_one_newline(gen, home):
    (home / "work" / "prompt.txt").write_text("The sea was\n")
    (home / "work" / "bom.txt").write_bytes(b"\xef\xbb\xbfThe sea was\n")
    expected = gen(*SEA).out
    rest = SEA[1:]
    assert gen(*rest, stdin="The sea was\n").out == expected
    assert gen("-f", "prompt.txt", *rest).out == expected
    assert gen("-f", "bom.txt", *rest).out == expected
    assert gen("-f", "-", *rest, stdin="The sea was").out == expected


def test_echo_writes_the_prompt_first(gen):
    assert gen(*SEA, "--echo").out == "The sea was" + gen(*SEA).out


def test_jsonl_is_start_tokens_done(gen):
    lines = gen(*SEA, "--format", "jsonl", "--logprobs", "5").lines
    assert [line["event"] for line in lines] == ["start", *["token"] * 8, "done"]
    start, *tokens, done = lines
    assert start["seed"] == 7
    assert [list(step) for step in start["chain"]] == [
        ["top_k"],
        ["top_p"],
        ["min_p"],
        ["temperature"],
        ["dist"],
    ]
    for index, token in enumerate(tokens):
        assert token["index"] == index
        assert bytes(token["bytes"]).decode() == token["token"]
        assert len(token["top_logprobs"]) == 5
        assert token["logprob"] <= token["top_logprobs"][0]["logprob"] <= 0
    assert done["text"] == "".join(token["text"] for token in tokens) == gen(*SEA).out
    assert done["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    assert set(done["timings"]) == {"prompt_ms", "generation_ms", "chain_ms"}


def test_jsonl_echo_gives_the_prompt_its_lines(gen):
    lines = gen("naïve 日", "-n", "1", "--format", "jsonl", "--echo").lines
    prompt = [line for line in lines if line["event"] == "prompt"]
    assert b"".join(bytes(line["bytes"]) for line in prompt).decode() == "naïve 日"


def test_random_seed_is_told_and_repeats_the_run(gen):
    first = gen("The sea was", "-n", "8", "--format", "jsonl").lines
    again = gen("The sea was", "-n", "8", "--format", "jsonl", "--seed", str(first[0]["seed"])).lines
    assert first[-1]["text"] == again[-1]["text"]
    other = gen("The sea was", "-n", "1", "--format", "jsonl", "--seed", "-1").lines
    assert other[0]["seed"] != first[0]["seed"]


CHAINS = {
    "chain": (["--chain", "top-k5 > temp0.5"], [{"top_k": {"k": 5}}, {"temperature": {"t": 0.5}}]),
    "greedy preset": (["-P", "deterministic"], [{"greedy": {}}]),
    "flag over preset": (["--chain", "top-k5", "--top-k", "7"], [{"top_k": {"k": 7}}]),
    "flag over --set": (["--chain", "top-k5", "--set", "top_k.k=6", "--top-k", "7"], [{"top_k": {"k": 7}}]),
    "--set over chain": (["--chain", "top-k5", "--set", "top_k.k=6"], [{"top_k": {"k": 6}}]),
    "off is dropped": (["--chain", "top-k5 > temp0.5", "--temp", "1"], [{"top_k": {"k": 5}}]),
    "inserted in llama.cpp's order": (
        ["--chain", "top-k5 > temp0.5", "--min-p", "0.1"],
        [{"top_k": {"k": 5}}, {"min_p": {"p": 0.1, "min_keep": 1}}, {"temperature": {"t": 0.5}}],
    ),
    "ignore eos": (["--chain", "top-k5", "--ignore-eos"], [{"ignore_eos": {}}, {"top_k": {"k": 5}}]),
    "bias by id and text": (
        ["--chain", "top-k5", "--logit-bias", "15-2", "--logit-bias", " sea=-inf"],
        [{"logit_bias": {"bias": {"15": -2.0, " sea": False}}}, {"top_k": {"k": 5}}],
    ),
}


@pytest.mark.parametrize(("flags", "chain"), CHAINS.values(), ids=CHAINS)
def test_chain_that_ran(gen, flags, chain):
    ran = gen("Hi", "-n", "1", "--format", "jsonl", *flags).lines[0]["chain"]
    assert [step for step in ran if step != {"dist": {}}] == chain


def test_every_shorthand_reaches_its_parameter(gen):
    flags = "--temp 0.7 --top-k 11 --top-p 0.8 --min-p 0.02 --repeat-penalty 1.1 --repeat-last-n 33"
    flags += " --presence-penalty 0.2 --frequency-penalty 0.3"
    out = gen("x", "--show-config", *flags.split(), "--seed", "5", "-n", "3", "--stop", "END", "--system", "S").out
    told = {line.split()[-1]: line.split()[-2] for line in out.splitlines()}
    assert told["--temp"] == "0.7"
    assert told["--top-k"] == "11"
    assert told["--top-p"] == "0.8"
    assert told["--min-p"] == "0.02"
    assert told["--repeat-penalty"] == "1.1"
    assert told["--repeat-last-n"] == "33"
    assert told["--presence-penalty"] == "0.2"
    assert told["--frequency-penalty"] == "0.3"
    assert told["--seed"] == "5"
    assert told["-n"] == "3"
    assert told["--stop"] == '["END"]'
    assert told["--system"] == "S"


@pytest.mark.bundled_model
def test_stop_string_ends_the_text_before_it(gen):
    free = gen("1, 2, 3,", "-P", "deterministic", "-n", "20").out
    result = gen("1, 2, 3,", "-P", "deterministic", "-n", "20", "--stop", ", 6", "--format", "jsonl")
    assert result.lines[-1]["finish_reason"] == "stop"
    assert result.lines[-1]["stop"] == ", 6"
    assert result.lines[-1]["text"] == free[: free.index(", 6")]


@pytest.mark.bundled_model
def test_chat_and_system(gen):
    prompt = "".join(
        line["token"]
        for line in gen("Hi", "--system", "Be kind.", "-n", "1", "--format", "jsonl", "--echo").lines
        if line["event"] == "prompt"
    )
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert "Be kind." in prompt
    done = gen("--chat", "Say hi.", "-P", "deterministic", "--format", "jsonl").lines[-1]
    assert done["finish_reason"] == "stop"
    plain = gen("Hi", "-n", "1", "--format", "jsonl").lines[0]
    assert plain["prompt_tokens"] == 1


def prompt_text(result):
    return "".join(line["token"] for line in result.lines if line["event"] == "prompt")


TEMPLATE = "{% for m in messages %}({{ m.role }}) {{ m.content }}{% endfor %} {{ mood|default('calm') }}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
TEMPLATES = {
    "name": (["--chat-template", "gemma"], "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", ""),
    "text": (["--chat-template", TEMPLATE], "(user) Hi calm", ""),
    "file": (["--chat-template", "a.jinja", "--system", "S"], "(system) S(user) Hi calm", ""),
    "llama.cpp's flag of a file": (["--chat-template-file", "a.jinja"], "(user) Hi calm", ""),
    "variables": (
        ["--chat-template", TEMPLATE, "--chat-template-kwargs", '{"mood": "gay"}'],
        "(user) Hi gay",
        "",
    ),
    "variables of the model's own": (
        ["--chat-template-kwargs", '{"enable_thinking": false}'],
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        "",
    ),
    "no system role": (
        ["--chat-template", NO_SYSTEM, "--system", "S"],
        "(user) S\nHi calm",
        "gen: note: the chat template has no system role: "
        "the system message is placed before the user's first message\n",
    ),
}


@pytest.mark.parametrize(("flags", "expected", "notes"), TEMPLATES.values(), ids=TEMPLATES)
def test_chat_template(gen, home, flags, expected, notes):
    (home / "work" / "a.jinja").write_text(TEMPLATE)
    result = gen("Hi", *flags, "-n", "1", "--format", "jsonl", "--echo", "--logprobs", "0")
    assert prompt_text(result).endswith(expected)
    assert result.err == notes


def test_context_full_and_no_limit(gen):
    done = gen("The sea", "-c", "16", "-n", "-1", "--ignore-eos", "--format", "jsonl").lines[-1]
    assert done["finish_reason"] == "context"
    assert done["usage"]["total_tokens"] == 17


@pytest.mark.bundled_model
def test_stats_go_to_stderr(gen):
    result = gen(*SEA, "--stats")
    assert result.out == gen(*SEA).out
    assert [line.split()[0] for line in result.err.split("\n") if line] == [
        "model",
        "device",
        "prompt",
        "generation",
        "chain",
        "finish",
    ]
    assert result.err.startswith("model       SmolLM2-135M-Instruct.Q4_1\n")
    assert "seed 7" in result.err


@pytest.fixture
def gen_into_one_file(gen_server, home, environment):
    """Run `gen` with stdout and stderr in one file; returns the file's text."""

    def run(*arguments):
        with (home / "both").open("w+b") as both, (home / "nothing").open("w+b") as nothing:
            streams = [nothing.fileno(), both.fileno(), both.fileno()]
            assert gen_server._call(arguments, streams, cwd=home, env=environment, timeout=60) == 0
        return (home / "both").read_text()

    return run


FULL = ("The sea", "-c", "16", "-n", "-1", "--ignore-eos")
AFTER_THE_TEXT = {
    "statistics": ((*SEA, "--stats"), "model       "),
    "statistics of an empty text": (("x", "-n", "0", "--stats"), "model       "),
    "a text that ends a line": (("x", "-n", "4", "--regex", "a\n", "--stats"), "model       "),
    "statistics of JSON": ((*SEA, "--stats", "--format", "jsonl"), "model       "),
    "a note": ((*FULL, "--seed", "7"), "gen: note: the text ends here "),
    "a note and statistics": ((*FULL, "--seed", "7", "--stats"), "gen: note: "),
}


@pytest.mark.parametrize(("arguments", "beginning"), AFTER_THE_TEXT.values(), ids=AFTER_THE_TEXT)
def test_what_follows_the_text_begins_on_a_line_of_its_own(gen, gen_into_one_file, arguments, beginning):
    apart = gen(*arguments)
    text, _, rest = gen_into_one_file(*arguments).partition(beginning)
    assert apart.err.startswith(beginning)
    assert rest
    if arguments[-1] == "jsonl":
        assert [json.loads(line)["event"] for line in text.splitlines()][-1] == "done"
    else:
        assert text == (apart.out if apart.out.endswith("\n") or not apart.out else f"{apart.out}\n")


def test_statistics_on_a_terminal_are_apart_from_a_piped_text(environment):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "logitsmith.cli", *SEA, "--stats"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower, env=environment, check=False
    )
    os.close(follower)
    screen = os.read(leader, 4096)
    os.close(leader)
    assert done.returncode == 0, screen
    assert screen.startswith(b"\r\nmodel       ")


def test_verbose_shows_llama_cpps_log_on_stderr(gen):
    result = gen(*SEA, "-v")
    assert "llama_model_loader" in result.err
    assert "llama" not in gen(*SEA).err


def test_preset_of_the_user_and_of_the_folder(gen, home):
    folder = home / "work" / "presets"
    folder.mkdir()
    (folder / "mine.yaml").write_text("description: mine\nchain: [top_k: 3, temp: 0.5]\nmax_tokens: 2\nstop: Z\n")
    start = gen("Hi", "-P", "mine", "--format", "jsonl").lines[0]
    assert start["chain"][0] == {"top_k": {"k": 3}}
    assert start["max_tokens"] == 2
    assert start["stop"] == ["Z"]
    (home / "config" / "logitsmith").mkdir()
    (home / "config" / "logitsmith" / "config.yaml").write_text("preset: mine\n")
    assert gen("Hi", "--format", "jsonl").lines[0]["max_tokens"] == 2


def test_preset_model_says_so_when_the_gguf_names_nothing(gen):
    result = gen(*SEA, "-P", "model")
    assert "note: this model names no sampling settings" in result.err
    assert result.out == gen(*SEA).out


@pytest.mark.bundled_model
def test_model_by_flag_environment_and_config(gen, home):
    from logitsmith.engine import locate

    path = str(locate()[0])
    expected = gen(*SEA).out
    assert gen(*SEA, "-m", path).out == expected
    assert gen(*SEA, GEN_MODEL=path).out == expected
    missing = gen(*SEA, GEN_MODEL="nowhere.gguf", code=1)
    assert missing.err == "gen: $GEN_MODEL: nowhere.gguf: there is no such file\n"
    (home / "config" / "logitsmith").mkdir()
    (home / "config" / "logitsmith" / "config.yaml").write_text("model: lost.gguf\n")
    assert "lost.gguf" in gen(*SEA, code=1).err


MODEL_CHOICES = {
    "bundled": ([], {}, "bundled", ""),
    "name": (["-m", "smollm2-135m"], {}, "-m", ""),
    "no file": (["-m", "lost.gguf"], {}, "-m", "lost.gguf: there is no such file"),
    "no name": ([], {"GEN_MODEL": "lost"}, "$GEN_MODEL", "$GEN_MODEL: lost: there is no such file, and no model"),
    "hub": (["-hf", "user/repo:Q8_0"], {}, "-hf", "gen models pull hf:user/repo:Q8_0 downloads it"),
}


@pytest.mark.bundled_model
@pytest.mark.parametrize(("flags", "variables", "origin", "note"), MODEL_CHOICES.values(), ids=MODEL_CHOICES)
def test_show_config_names_the_model(gen, flags, variables, origin, note):
    result = gen("x", *flags, "--show-config", **variables)
    typed = next(iter((*variables.values(), *flags[1:], ""))).replace("user/", "hf:user/")
    name = typed if note else "SmolLM2-135M-Instruct.Q4_1"
    assert result.out.splitlines()[0].split() == ["model", name, origin]
    assert note in result.err


@contextmanager
def process_of(environment, *arguments, **options):
    """`gen` without end, killed at the latest when the test is over."""
    command = [sys.executable, "-m", "logitsmith.cli", "Hello", "-n", "-1", "--ignore-eos", *arguments]
    streams = {"stderr": subprocess.PIPE, "bufsize": 0}  # `communicate` leaves out what a buffer has read ahead
    with subprocess.Popen(command, env=environment, **streams, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_interrupt_keeps_what_was_made(environment):
    with process_of(environment, "--format", "jsonl", stdout=subprocess.PIPE) as process:
        first = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""
    lines = [json.loads(line) for line in [*first, *rest.splitlines()]]
    assert lines[-1]["event"] == "done"
    assert lines[-1]["finish_reason"] == "interrupted"
    assert lines[-1]["text"] == "".join(line["text"] for line in lines if line["event"] == "token")


@pytest.mark.bundled_model
def test_interrupt_while_a_long_prompt_is_read(environment, tmp_path):
    (tmp_path / "long.txt").write_text("The sea was calm. " * 1500)
    command = [sys.executable, "-m", "logitsmith.cli", "-f", "long.txt", "-c", "0", "--format", "jsonl", "-v"]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # The log's last line before reading begins.
        assert any(b"reserve took" in line for line in iter(process.stderr.readline, b""))
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        lines = [json.loads(line) for line in process.stdout.read().splitlines()]
        process.stderr.read()
        assert process.wait(60) == 130
    assert [line["event"] for line in lines] == ["start", "done"]
    assert lines[-1]["finish_reason"] == "interrupted"


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_closed_pipe_ends_quietly(environment, form):
    with process_of(environment, "--format", form, stdout=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_full_disk_is_a_named_failure(environment):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with full.open("w") as out, process_of(environment, stdout=out) as process:
        assert process.stderr.read() == b"gen: output: No space left on device\n"
        assert process.wait(60) == 1


@pytest.mark.parametrize("closed", ["stdin", "stderr"])
def test_closed_streams(environment, closed):
    number = {"stdin": 0, "stderr": 2}[closed]
    program = f"exec {sys.executable} -m logitsmith.cli Hello -n 2 --stats {number}>&-"
    done = subprocess.run(["sh", "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("coding", ["ascii", "latin-1"])
def test_text_is_utf8_in_any_locale(gen, coding):
    assert gen("日本 é", "-n", "1", "--echo", PYTHONIOENCODING=coding).out.startswith("日本 é")


@pytest.mark.bundled_model
def test_interrupt_while_the_model_loads(environment):
    # The first line of llama.cpp's log says that loading has begun.
    with process_of(environment, "-v", "--no-mmap", stdout=subprocess.PIPE) as process:
        assert b"llama" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def on_terminal(environment, *arguments):
    """Run with stdout a terminal; return what it showed."""
    leader, follower = pty.openpty()
    with process_of(environment, *arguments, stdout=follower, stdin=subprocess.DEVNULL) as process:
        os.close(follower)
        shown = b""
        while part := _read(leader):
            shown += part
        os.close(leader)
        assert process.wait(60) == 0
    return shown.decode()


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is gone
        return b""


def test_a_prompt_that_is_typed(environment):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "logitsmith.cli", "-", "-n", "0", "--echo"]
    streams = {"stdin": follower, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **streams) as process:
        os.close(follower)
        note = process.stderr.readline()
        os.write(leader, b"Hello\n\x04")
        out, _ = process.communicate(timeout=60)
    os.close(leader)
    assert (note, out) == (b"gen: note: type the prompt; Ctrl-D on a line of its own ends it\n", b"Hello")


def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(gen, environment):
    escape = ["--chain", "greedy", "--logit-bias", "\x1b=1000", "-n", "3"]
    assert gen("Hello", *escape).out == "\x1b" * 3
    assert on_terminal(environment, *escape).endswith("␛␛␛\r\n")


def prompt_of(gen, *arguments, **options):
    """The prompt that the model reads."""
    return gen(*arguments, "-n", "1", "--echo", "--seed", "7", **options).out


@pytest.mark.parametrize("arguments", [["Summary:"], ["-p", "Summary:"], ["-f", "prompt.txt"]], ids=str)
def test_what_is_piped_in_goes_before_the_prompt(gen, home, arguments):
    (home / "work" / "prompt.txt").write_text("Summary:\n")
    assert prompt_of(gen, *arguments, stdin="The sea was calm.\n").startswith("The sea was calm.\nSummary:")
    assert prompt_of(gen, *arguments, stdin="").startswith("Summary:")


def test_a_dash_is_stdin(gen):
    assert prompt_of(gen, "-", stdin="The sea\n") == prompt_of(gen, "The sea")
    assert prompt_of(gen, "", stdin="The sea\n") == prompt_of(gen, "The sea")


@pytest.mark.parametrize("arguments", [[], ["-"], ["-f", "-"]], ids=str)
@pytest.mark.parametrize("stdin", ["", "\n"], ids=repr)
def test_an_empty_stdin_is_no_prompt(gen, arguments, stdin):
    assert "there is no prompt: stdin is empty" in gen(*arguments, stdin=stdin, code=2).err


def test_a_stdin_that_cannot_be_read_is_no_input(environment):
    command = [sys.executable, "-m", "logitsmith.cli", "The sea", "-n", "1", "--echo"]
    with Path(os.devnull).open("wb") as unreadable:  # as nohup gives it
        done = subprocess.run(command, stdin=unreadable, capture_output=True, env=environment, check=True)
    assert done.stdout.startswith(b"The sea")


def test_a_stdin_that_stays_silent_is_named(environment):
    command = [sys.executable, "-m", "logitsmith.cli", "Summary:", "-n", "1", "--echo"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stderr.readline() == (
            b"gen: note: waiting for stdin, which is placed before the prompt; "
            b"add < /dev/null if there is no input\n"
        )
        out, _ = process.communicate(b"The sea.", timeout=60)
    assert out.startswith(b"The sea.\nSummary:")


def test_a_context_that_is_full_is_named(gen):
    full = gen("The sea", "-c", "16", "-n", "-1", "--ignore-eos")
    note = (
        "gen: note: the text ends here because the context is full: it holds 16 tokens; -c makes it larger, "
        "--context-shift discards older tokens\n"
    )
    assert full.err == note
    assert gen("The sea", "-c", "16", "-n", "3").err == ""


def test_a_context_longer_than_the_models_is_named(gen):
    assert gen("The sea", "-c", "8192", "-n", "1").err == ""
    note = "gen: note: -c 8193: the model was trained with 8,192 tokens, and may write nonsense beyond that\n"
    assert gen("The sea", "-c", "8193", "-n", "1").err == note


@pytest.mark.bundled_model
def test_the_format_of_chat_completions_implies_the_chat_template(gen):
    run = ("Hi", "-n", "2", "--seed", "7", "--format", "openai-chat")
    answers = [json.loads(gen(*run, *flag).out) for flag in ([], ["--chat"], ["--no-chat"])]
    tokens = [answer["usage"]["prompt_tokens"] for answer in answers]
    assert tokens[0] == tokens[1] > tokens[2] == 1


SAME_RUNS = {
    "--temperature": (["--temperature", "0.3"], ["--temp", "0.3"]),
    "--reverse-prompt": (["--reverse-prompt", " the"], ["--stop", " the"]),
    "-ngl all": (["-ngl", "all"], ["-ngl", "-2"]),
    "-ngl -1": (["-ngl", "-1"], ["-ngl", "auto"]),
    "-dev none": (["-dev", "none"], []),
    "-n -2": (["-n", "-2", "-c", "16", "--ignore-eos"], ["-n", "-1", "-c", "16", "--ignore-eos"]),
    "--mmap": (["--no-mmap", "--mmap"], []),
    "--no-mmap": (["--no-mmap"], []),
    "--no-display-prompt": (["--echo", "--no-display-prompt"], []),
    "--log-disable": (["-v", "--log-disable"], []),
    "--no-warmup": (["--no-warmup"], []),
    "--jinja": (["--chat", "--jinja"], ["--chat"]),
    "-no-cnv": (["-no-cnv"], ["--no-chat"]),
    "--no-conversation": (["--no-conversation", "--no-cnv"], []),
    "--single-turn": (["-st", "--single-turn", "--simple-io", "--no-perf", "--no-show-timings"], []),
    "-t -1": (["-t", "-1", "-tb", "-1"], []),
    "-t 0": (["-t", "0", "-tb", "0"], []),
    "--top_k": (["--top_k", "3", "--repeat_last_n=4"], ["--top-k", "3", "--repeat-last-n", "4"]),
}


@pytest.mark.parametrize(("flags", "same"), SAME_RUNS.values(), ids=SAME_RUNS)
def test_llama_cpps_other_names(gen, flags, same):
    one, other = gen(*SEA, *flags), gen(*SEA, *same)
    assert (one.out, one.err) == (other.out, other.err)


def test_no_token_only_reads_the_prompt(gen):
    assert (gen("The sea", "-n", "0").out, gen("The sea", "-n", "0", "--echo").out) == ("", "The sea")
    start, *prompt, done = gen("The sea", "-n", "0", "--echo", "--format", "jsonl", "--logprobs", "0").lines
    assert [line["token"] for line in prompt] == ["The", " sea"]
    assert prompt[1]["logprob"] < 0
    assert (start["max_tokens"], done["finish_reason"], done["usage"]["completion_tokens"]) == (0, "length", 0)


def test_no_token_in_a_batch(gen, home):
    (home / "work" / "one.jsonl").write_text('{"prompt": "The sea"}')
    (line,) = gen("batch", "one.jsonl", "-n", "0", "--format", "jsonl", "--parallel", "1").lines
    assert (line["text"], line["finish_reason"]) == ("", "length")


LLAMA_CPPS_WORDS = {
    "-fa on": r"flash_attn += enabled",
    "-fa off": r"flash_attn += disabled",
    "--flash-attn auto": r"flash_attn += auto",
    "-fa 1": r"flash_attn += enabled",
    "-fa disabled": r"flash_attn += disabled",
    "-ub 16": r"n_ubatch += 16\n",
    "-ub 4096": r"n_ubatch += 512\n",
    "-ctk q8_0": r"K \(q8_0\).* V \(f16\)",
    "--cache-type-k bf16 --cache-type-v f32": r"K \(bf16\).* V \(f32\)",
    "-fa on -ctk q4_0 -ctv q5_1": r"K \(q4_0\).* V \(q5_1\)",
    "-ctv iq4_nl": r"V \(iq4_nl\)",
    "--rope-freq-base 50000": r"freq_base += 50000\.0",
    "--rope-freq-scale 0.25": r"freq_scale += 0\.25\n",
    "--rope-scale 4": r"freq_scale += 0\.25\n",
    "--rope-scaling yarn --rope-scale 2": r"freq_scale += 0\.5\n",
}


@pytest.mark.parametrize(("flags", "words"), LLAMA_CPPS_WORDS.items())
def test_flags_of_the_context_reach_llama_cpp(gen, flags, words):
    assert re.search(words, gen("The sea was", "-n", "1", "-v", *flags.split()).err)


def test_threads_for_the_prompt(gen):
    """llama.cpp does not log them; they change no token."""
    assert (
        gen(*SEA, "-t", "1", "-tb", "2").out == gen(*SEA, "-t", "2", "--threads-batch", "1").out == gen(*SEA).out
    )


def logprobs_of(gen, *flags):
    run = ("The sea was calm and the", "-n", "0", "--echo", "--format", "jsonl", "--logprobs", "0")
    return [line["logprob"] for line in gen(*run, *flags).lines if line["event"] == "prompt"][1:]


def test_the_cache_and_rope_change_the_numbers(gen):
    plain = logprobs_of(gen)
    coarse, scaled, none = (
        logprobs_of(gen, *flags.split())
        for flags in ("-ctk q4_0 -ctv q4_0", "--rope-scale 8", "--rope-scale 8 --rope-scaling none")
    )
    assert coarse != plain
    assert coarse == pytest.approx(plain, abs=2)
    assert scaled != plain
    assert none == plain


def test_the_types_of_the_cache_hold_in_a_batch(gen, home):
    (home / "work" / "two.jsonl").write_text('{"id": "a", "prompt": "The sea"}\n{"id": "b", "prompt": "A"}\n')
    run = ("batch", "two.jsonl", "--format", "jsonl", "-n", "4", "--parallel", "2", "-c", "64", "-v")
    result = gen(*run, "-ctk", "q8_0", "-ctv", "q8_0")
    assert len(result.out.splitlines()) == 2
    assert set(re.findall(r"K \((\w+)\)", result.err)) == {"q8_0"}


@pytest.mark.bundled_model
def test_metadata_is_overridden(gen):
    run = ("Hi", "-n", "1", "--format", "jsonl", "--override-kv")
    assert gen(*run[:-1]).lines[0]["prompt_tokens"] == 1
    assert gen(*run, "tokenizer.ggml.add_bos_token=bool:true").lines[0]["prompt_tokens"] == 2
    both = "tokenizer.ggml.add_bos_token=bool:true,tokenizer.ggml.bos_token_id=int:5"
    assert gen(*run, both, "--echo").lines[1]["id"] == 5
    log = gen(*run, "llama.rope.freq_base=float:5000", "-v").err
    assert re.search(r"llama_context: freq_base += 5000\.0", log)


NEW_KEYS = {
    "llama.rope.freq_bse=float:5": "did you mean llama.rope.freq_base?",
    "x.y=int:1": "it has an effect only if llama.cpp uses it",
    "tokenizer.ggml.tokens=str:a": "it has an effect only if llama.cpp uses it",
}


@pytest.mark.parametrize(("override", "hint"), NEW_KEYS.items(), ids=range(3))
def test_an_override_of_a_key_that_the_file_lacks_is_named(gen, override, hint):
    key = override.partition("=")[0]
    note = f"gen: note: --override-kv {key}: the file has no such key; {hint}\n"
    assert gen("Hi", "-n", "0", "--override-kv", override).err == note


WRONG_OVERRIDES = {
    "llama.context_length=str:9": "override of llama.context_length: expected int, as in the file, but got str",
    "llama.block_count=int:0": "override: llama.block_count is 0, not within 1..512",
    f"{'k' * 128}=int:1": "key and string must have at most 127 bytes",
}


@pytest.mark.parametrize(("override", "message"), WRONG_OVERRIDES.items(), ids=range(3))
def test_an_override_that_llama_cpp_would_ignore_is_refused(gen, override, message):
    assert message in gen("Hi", "--override-kv", override, code=1).err
