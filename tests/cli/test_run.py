"""`gen` as a person and as a pipe uses it."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

SEA = ("The sea was", "-n", "8", "--seed", "7")


def test_every_way_to_give_a_prompt(gen, home):
    (home / "work" / "prompt.txt").write_text("The sea was\n")
    (home / "work" / "bom.txt").write_bytes(b"\xef\xbb\xbfThe sea was\n")
    first = gen(*SEA)
    rest = SEA[1:]
    ways = [
        gen("run", *SEA),
        gen("-p", *SEA),
        gen("-f", "prompt.txt", *rest),
        gen("-f", "bom.txt", *rest),
        *(gen(*dash, *rest, stdin="The sea was\n") for dash in ([], ["-"], [""], ["-f", "-"])),
    ]
    assert {(way.out, way.err) for way in ways} == {(first.out, "")}


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
    plain = gen(*SEA)
    assert (plain.out, plain.err) == (done["text"], "")
    assert done["text"] == "".join(token["text"] for token in tokens)
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
    values = {
        "--temp": "0.7",
        "--top-k": "11",
        "--top-p": "0.8",
        "--min-p": "0.02",
        "--repeat-penalty": "1.1",
        "--repeat-last-n": "33",
        "--presence-penalty": "0.2",
        "--frequency-penalty": "0.3",
        "--seed": "5",
        "-n": "3",
        "--stop": "END",
        "--system": "S",
    }
    out = gen("x", "--show-config", *(word for pair in values.items() for word in pair)).out
    told = {line.split()[-1]: line.split()[-2] for line in out.splitlines()}
    assert {flag: told[flag] for flag in values} == {**values, "--stop": '["END"]'}


def test_stop_string_ends_the_text_before_it(gen):
    free = gen(*SEA).out
    stop = free[3:6]
    done = gen(*SEA, "--stop", stop, "--format", "jsonl").lines[-1]
    assert (done["finish_reason"], done["stop"], done["text"]) == ("stop", stop, free[: free.index(stop)])


def test_chat_and_system(gen):
    result = gen("Hi", "--system", "Be kind.", "-n", "1", "--format", "jsonl", "--echo")
    assert prompt_text(result).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert "Be kind." in prompt_text(result)
    run = ("The", "-n", "1", "--format")
    answers = [json.loads(gen(*run, "openai-chat", *flag).out) for flag in ([], ["--chat"], ["--no-chat"])]
    tokens = [answer["usage"]["prompt_tokens"] for answer in answers]
    assert tokens[0] == tokens[1] > tokens[2] == gen(*run, "jsonl").lines[0]["prompt_tokens"] == 1


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
        "has no system role",
    ),
}


@pytest.mark.parametrize(("flags", "expected", "notes"), TEMPLATES.values(), ids=TEMPLATES)
def test_chat_template(gen, home, flags, expected, notes):
    (home / "work" / "a.jinja").write_text(TEMPLATE)
    result = gen("Hi", *flags, "-n", "1", "--format", "jsonl", "--echo", "--logprobs", "0")
    assert prompt_text(result).endswith(expected)
    assert (notes in result.err) if notes else result.err == ""


def test_stats_go_to_stderr(gen):
    result = gen(*SEA, "--stats")
    assert result.out == gen(*SEA).out
    assert [line.split()[0] for line in result.err.split("\n") if line] == [
        "model",
        "device",
        "prompt",
        "generation",
        "chain",
        "confidence",
        "finish",
    ]
    assert result.err.startswith("model       pruned\n")
    assert "seed 7" in result.err


@pytest.fixture
def gen_into_one_file(gen_server, home, environment):
    """Run `gen` with stdout and stderr in one file; returns the file's text."""

    def run(*arguments):
        with (home / "both").open("w+b") as both, (home / "nothing").open("w+b") as nothing:
            streams = [nothing.fileno(), both.fileno(), both.fileno()]
            assert gen_server.wait(gen_server.start(arguments, streams, cwd=home, env=environment), 60) == 0
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


def test_statistics_on_a_terminal_are_apart_from_a_piped_text(start_gen):
    leader, follower = pty.openpty()
    command = start_gen(*SEA, "--stats", stderr=follower)
    assert command.wait() == 0
    os.close(follower)
    screen = os.read(leader, 4096)
    os.close(leader)
    assert screen.startswith(b"\r\nmodel       ")


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


def test_a_model_of_the_environment_and_of_the_config(gen, home, pruned_model):
    expected = gen(*SEA).out
    assert gen(*SEA, "-m", pruned_model, GEN_MODEL="nowhere.gguf").out == expected
    assert gen(*SEA, GEN_MODEL="nowhere.gguf", code=1).err.startswith("gen: $GEN_MODEL: nowhere.gguf: ")
    (home / "config" / "logitsmith").mkdir()
    (home / "config" / "logitsmith" / "config.yaml").write_text("model: lost.gguf\n")
    assert gen(*SEA).out == expected
    assert "lost.gguf" in gen(*SEA, GEN_MODEL="", code=1).err


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


@pytest.mark.parametrize("coding", ["ascii", "latin-1"])
def test_text_is_utf8_in_any_locale(environment, pruned_model, coding):
    words = [sys.executable, "-m", "logitsmith.cli", "日本 é", "-n", "1", "--echo", "-m", str(pruned_model)]
    variables = {**environment, "PYTHONIOENCODING": coding}  # which Python reads when it starts
    done = subprocess.run(words, capture_output=True, env=variables, check=True)
    assert done.stdout.decode().startswith("日本 é")


def test_a_prompt_that_is_typed(start_gen):
    leader, follower = pty.openpty()
    command = start_gen("-", "-n", "0", "--echo", stdin=follower)
    os.close(follower)
    assert b"Ctrl-D" in command.stderr.readline()
    os.write(leader, b"Hello\n\x04")
    assert command.finish() == (b"Hello", b"")
    os.close(leader)


@pytest.mark.parametrize(("words", "shown"), [(["-n", "5"], "prompt"), ([], "gen --chat")], ids=["flags", "none"])
def test_without_a_prompt_at_a_terminal(start_gen, words, shown):
    leader, follower = pty.openpty()
    command = start_gen(*words, stdin=follower)
    out, err = command.finish()
    for end in (leader, follower):
        os.close(end)
    assert command.returncode == 2
    assert shown in (out + err).decode()


def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(gen, gen_server, home, environment):
    escape = ["Hello", "--chain", "greedy", "--logit-bias", "\x1b=1000", "-n", "3"]
    assert gen(*escape).out == "\x1b" * 3
    places = {"cwd": home, "env": environment, "timeout": 60}
    assert gen_server.run_on_terminal(escape, columns=80, **places)[0].endswith("␛␛␛\n")


@pytest.mark.parametrize("arguments", [["Summary:"], ["-p", "Summary:"], ["-f", "prompt.txt"]], ids=str)
def test_what_is_piped_in_goes_before_the_prompt(gen, home, arguments):
    (home / "work" / "prompt.txt").write_text("Summary:\n")
    read = (*arguments, "-n", "0", "--echo")
    assert gen(*read, stdin="The sea was calm.\n").out == "The sea was calm.\nSummary:"
    assert gen(*read, stdin="").out == "Summary:"


@pytest.mark.parametrize(("arguments", "stdin"), [([], ""), (["-"], "\n"), (["-f", "-"], "")], ids=str)
def test_an_empty_stdin_is_no_prompt(gen, arguments, stdin):
    assert "stdin is empty" in gen(*arguments, stdin=stdin, code=2).err


def test_a_stdin_that_cannot_be_read_is_no_input(start_gen):
    with Path(os.devnull).open("wb") as unreadable:  # as nohup gives it
        out, _ = start_gen("The sea", "-n", "1", "--echo", stdin=unreadable.fileno()).finish()
    assert out.startswith(b"The sea")


@pytest.mark.slow
def test_a_stdin_that_stays_silent_is_named(start_gen):
    command = start_gen("Summary:", "-n", "1", "--echo", has_stdin=True)
    assert b"waiting for stdin" in command.stderr.readline()
    out, _ = command.finish(b"The sea.")
    assert out.startswith(b"The sea.\nSummary:")


def test_a_context_that_is_full_is_named(gen):
    full = ("The sea", "-c", "16", "--ignore-eos", "--format", "jsonl", "-n")
    for limit in ("-1", "-2"):
        result = gen(*full, limit)
        done = result.lines[-1]
        assert (done["finish_reason"], done["usage"]["total_tokens"]) == ("context", 17)
        assert "16 tokens" in result.err
    assert gen("The sea", "-c", "16", "-n", "3").err == ""


def test_a_context_longer_than_the_models_is_named(gen):
    assert gen("The sea", "-c", "8192", "-n", "1").err == ""
    assert gen("The sea", "-c", "8193", "-n", "1").err.startswith("gen: note: -c 8193: ")


IGNORED = "--no-mmap --mmap --echo --no-display-prompt -v --log-disable --no-warmup -no-cnv --no-conversation"
IGNORED += " -st --single-turn --simple-io --no-perf --no-show-timings -t -1 -tb 0 --jinja"


OTHER_NAMES = {
    "-ngl -2": (["-ngl", "-2"], ["-ngl", "all"]),
    "-ngl -1": (["-ngl", "-1"], ["-ngl", "auto"]),
    "-dev none": (["-dev", "none"], []),
}


@pytest.mark.parametrize(("flags", "same"), OTHER_NAMES.values(), ids=OTHER_NAMES)
def test_llama_cpps_numbers_of_layers(gen, flags, same):
    one, other = gen(*SEA, *flags), gen(*SEA, *same)
    assert (one.out, one.err) == (other.out, other.err)


def test_llama_cpps_flags_without_an_effect_here(gen):
    one, other = gen(*SEA, *IGNORED.split()), gen(*SEA)
    assert (one.out, one.err) == (other.out, other.err)


def test_no_token_only_reads_the_prompt(gen):
    assert (gen("The sea", "-n", "0").out, gen("The sea", "-n", "0", "--echo").out) == ("", "The sea")
    start, *prompt, done = gen("The sea", "-n", "0", "--echo", "--format", "jsonl", "--logprobs", "0").lines
    assert [line["token"] for line in prompt] == ["The", " sea"]
    assert prompt[1]["logprob"] < 0
    assert (start["max_tokens"], done["finish_reason"], done["usage"]["completion_tokens"]) == (0, "length", 0)


LLAMA_CPPS_WORDS = {
    "-fa on -ub 16 -ctk q4_0 -ctv q5_1": [
        r"flash_attn += enabled",
        r"n_ubatch += 16\n",
        r"K \(q4_0\).* V \(q5_1\)",
    ],
    "--flash-attn auto": [r"flash_attn += auto"],
    "-ub 4096 -ctv iq4_nl": [r"n_ubatch += 512\n", r"V \(iq4_nl\)"],
    "-fa disabled --cache-type-k bf16": [r"flash_attn += disabled", r"K \(bf16\).* V \(f16\)"],
    "-fa 1 --rope-freq-base 50000 --rope-freq-scale 0.25": [
        *(r"flash_attn += enabled", r"freq_base += 50000\.0", r"freq_scale += 0\.25\n"),
    ],
    "--rope-scaling yarn --rope-scale 2": [r"freq_scale += 0\.5\n"],
}


@pytest.mark.parametrize(("flags", "words"), LLAMA_CPPS_WORDS.items())
def test_flags_of_the_context_reach_llama_cpp(gen, flags, words):
    log = gen("The sea was", "-n", "1", "-v", *flags.split()).err
    assert [word for word in words if not re.search(word, log)] == []


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


def test_metadata_is_overridden(gen):
    run = ("The", "-n", "1", "--format", "jsonl", "--override-kv")
    assert gen(*run[:-1]).lines[0]["prompt_tokens"] == 1
    assert gen(*run, "tokenizer.ggml.add_bos_token=bool:true").lines[0]["prompt_tokens"] == 2
    both = "tokenizer.ggml.add_bos_token=bool:true,tokenizer.ggml.bos_token_id=int:5"
    assert gen(*run, both, "--echo").lines[1]["id"] == 5
    log = gen(*run, "llama.rope.freq_base=float:5000", "-v").err
    assert re.search(r"llama_context: freq_base += 5000\.0", log)


def test_an_override_of_a_key_that_the_file_lacks_is_named(gen):
    error = gen("Hi", "-n", "0", "--override-kv", "llama.rope.freq_bse=float:5").err
    assert error.startswith("gen: note: --override-kv llama.rope.freq_bse: ")
    assert "llama.rope.freq_base?" in error


WRONG_OVERRIDES = {
    "llama.context_length=str:9": "llama.context_length: expected int",
    "llama.block_count=int:0": "llama.block_count is 0, not within 1..512",
    f"{'k' * 128}=int:1": "at most 127 bytes",
}


@pytest.mark.parametrize(("override", "message"), WRONG_OVERRIDES.items(), ids=range(3))
def test_an_override_that_llama_cpp_would_ignore_is_refused(gen, override, message):
    assert message in gen("Hi", "--override-kv", override, code=1).err


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]], ids=" ".join)
def test_a_reader_of_the_help_may_close_the_pipe(environment, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "logitsmith.cli", *words], stdout=writer, env=environment, check=False
    )
    os.close(writer)
    assert done.returncode == 0
