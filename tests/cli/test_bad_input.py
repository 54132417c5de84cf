"""Bad input: one clear sentence on stderr, the right exit code, nothing on stdout."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

USAGE = {
    "-n -3": (["x", "-n", "-3"], "-n: -3 is not ≥ 0, nor -1 or -2 for no limit"),
    "-ngl -3": (["x", "-ngl", "-3"], "'-3' is not auto, all or an integer within 0.."),
    "-ngl most": (["x", "-ngl", "most"], "'most' is not auto, all or an integer within 0.."),
    "-ngl beyond 32 bits": (["x", "-ngl", "4294967296"], "is not auto, all or an integer within 0.."),
    "-dev with an empty name": (["x", "-dev", "CUDA0,"], "-dev: 'CUDA0,' is not none or a comma-separated list"),
    "-dev none and a name": (["x", "-dev", "none,CUDA0"], "is not none or a comma-separated list"),
    "-dev twice the same": (
        ["x", "-dev", "CUDA0,CUDA0"],
        "is not none or a comma-separated list",
    ),
    "-dev none with layers": (
        ["x", "-dev", "none", "-ngl", "all"],
        "-ngl all needs a GPU, and -dev none",
    ),
    "-ncmoe -1": (["x", "-ncmoe", "-1"], "-ncmoe: -1 is not within 0.."),
    "-n text": (["x", "-n", "many"], "'-n'"),
    "-t -2": (["x", "-t", "-2"], "-t: -2 is not within 1..512"),
    "-t many": (["x", "-t", "many"], "'many' is not an integer"),
    "-t 100000": (["x", "-t", "100000"], "-t: 100000 is not within 1..512"),
    "-c -1": (["x", "-c", "-1"], "-c: -1 is not within 0.."),
    "-c beyond 32 bits": (["x", "-c", "4294967296"], "-c: 4294967296 is not within 0.."),
    "-tb -2": (["x", "-tb", "-2"], "-tb: -2 is not within 1..512"),
    "-ub 0": (["x", "-ub", "0"], "-ub: 0 is not within 1.."),
    "-fa maybe": (["x", "-fa", "maybe"], "'maybe' is not on, off or auto"),
    "-ctk q3": (["x", "-ctk", "q3"], "'q3'"),
    "-ctv without flash attention": (["x", "-fa", "off", "-ctv", "q8_0"], "-ctv q8_0 needs flash attention"),
    "--rope-scale 0": (["x", "--rope-scale", "0"], "--rope-scale: 0 is not a number > 0"),
    "two factors of RoPE": (
        ["x", "--rope-scale", "2", "--rope-freq-scale", "0.5"],
        "set the same factor; give only one",
    ),
    "a dash in a score": (["score", "-ve"], "there is no flag -ve; text that begins with a dash follows --"),
    "a dash in a batch": (["batch", "-ve"], "there is no flag -ve; text that begins with a dash follows --"),
    "a sampler's flag in a batch": (["batch", "x", "--dry-base", "1"], "No such option: --dry-base"),
    "ignoring the end in a batch": (["batch", "x", "--ignore-eos"], "No such option: --ignore-eos"),
    "a sampler's flag in a score": (["score", "x", "--dry-base", "1"], "No such option: --dry-base"),
    "a stop text by its other name": (
        ["x", "-r", ""],
        "--stop: '' is empty; a stop string has at least one character",
    ),
    "a long other name": (["x", "--reverse-prompt="], "--stop: '' is empty"),
    "a number by its other name": (["x", "--temperature", "-1"], "gen: --temp: -1 is not"),
    "no number by its other name": (["x", "--temperature", "a"], "'--temp'"),
    "a limit by its other name": (["x", "--n-predict", "-9"], "gen: -n: -9 is not"),
    "an override of no type": (["x", "--override-kv", "a=b"], "--override-kv: 'a=b' is not KEY=TYPE:VALUE"),
    "an override that is no bool": (["x", "--override-kv", "a=bool:1"], "'a=bool:1' is not KEY=TYPE:VALUE"),
    "-b 0": (["x", "-b", "0"], "-b: 0 is not within 1.."),
    "a stop that is not UTF-8": (["x", "--stop", b"\xff"], "--stop is not UTF-8"),
    "a prompt that is not UTF-8": ([b"\xff"], "the prompt is not UTF-8"),
    "nothing alike": (["x", "--qqq"], "No such option: --qqq"),
    "an endpoint of other tools": (
        ["recover", "x", "--base-url", "http://127.0.0.1:1"],
        "No such option: --base-url",
    ),
    "timings": (["batch", "x", "--no-perf"], "--no-perf is no printout of timings in llama.cpp; leave it out"),
    "mirostat's rate alone": (
        ["x", "--mirostat-lr", "0.2"],
        "gen: --mirostat-lr: the chain selects by dist, not by mirostat; add --mirostat 2\n",
    ),
    "adaptive_p's memory alone": (
        ["x", "--adaptive-decay", "0.5"],
        "gen: --adaptive-decay: the chain selects by dist, not by adaptive_p; add --adaptive-target N\n",
    ),
    "a file as schema": (
        ["x", "-j", "s.json"],
        "--json-schema: 's.json' is not JSON but looks like a file; pass a file as -jf",
    ),
    "unknown option": (["x", "--tempp", "1"], "--temp"),
    "two flags in a word": (
        ["x", "-ve"],
        "there is no flag -ve; text that begins with a dash follows --",
    ),
    "a path stuck to its flag": (["-fprompt.txt"], "there is no flag -fprompt.txt"),
    "a long flag with one dash": (["x", "-temp", "1"], "there is no flag -temp"),
    "llama.cpp's -hft": (
        ["-hft", "foo", "Hi"],
        "-hft is the token for Hugging Face in llama.cpp; set HF_TOKEN, or run `hf auth login` once",
    ),
    "llama.cpp's -no-cnv": (["chat", "-no-cnv"], "-no-cnv is conversation mode off in llama.cpp; use gen run"),
    "llama.cpp's -st": (["chat", "-st"], "-st is a single turn in llama.cpp; use gen run, which ends after one"),
    "llama.cpp's -np": (
        ["x", "-np", "4"],
        "-np is the number of parallel requests in llama.cpp; use gen batch -np N, or gen serve -np N",
    ),
    "llama.cpp's -i": (["x", "-i"], "-i is interactive mode in llama.cpp; use gen chat"),
    "a bundle for a command of a group": (["presets", "list", "-hx"], "there is no flag -hx"),
    "unknown format": (
        ["x", "--format", "xml"],
        "'--format'",
    ),
    "logprobs without jsonl": (["x", "--logprobs", "3"], "--logprobs needs a --format with logprobs"),
    "negative logprobs": (["x", "--format", "jsonl", "--logprobs", "-3"], "--logprobs: -3 is not ≥ 0"),
    "system without chat": (["x", "--no-chat", "--system", "y"], "omit --no-chat"),
    "template without chat": (
        ["x", "--no-chat", "--chat-template", "chatml"],
        "--chat-template needs the chat template; omit --no-chat",
    ),
    "variables without chat": (["x", "--no-chat", "--chat-template-kwargs", "{}"], "--chat-template-kwargs needs"),
    "unknown chat template": (
        ["x", "--chat-template", "chatm"],
        "chatm: there is no such file; did you mean chatml?",
    ),
    "missing file of a chat template": (
        ["x", "--chat-template-file", "chatm"],
        "--chat-template: chatm: there is no such file; did you mean chatml?",
    ),
    "missing file of a chat template, in a chat": (
        ["chat", "--no-log", "--chat-template-file", "chatm"],
        "--chat-template: chatm: there is no such file; did you mean chatml?",
    ),
    "chat template without Jinja": (
        ["x", "--chat-template", "/dev/null"],
        "/dev/null: this is not a chat template",
    ),
    "chat template that is not valid": (
        ["x", "--chat-template", "{% for x in y %}"],
        "the chat template is not valid Jinja: line 1: Unexpected end of template",
    ),
    "variables that are no JSON": (["x", "--chat-template-kwargs", "{a}"], "--chat-template-kwargs is not JSON"),
    "variables that are no object": (
        ["x", "--chat-template-kwargs", "[]"],
        "--chat-template-kwargs is not a JSON object",
    ),
    "variables of a built-in template": (
        ["x", "--chat-template", "chatml", "--chat-template-kwargs", '{"a": 1}'],
        "the chat template chatml is built into llama.cpp and has no variables",
    ),
    "two prompts": (["x", "-p", "y"], "the prompt is given twice, by PROMPT and -p"),
    "two words": (["x", "y"], "(y)"),
    "bias of another form": (["x", "--logit-bias", "foo"], "'foo' is not ID+BIAS"),
    "bias that is no number": (["x", "--logit-bias", "foo=much"], "'much' in 'foo=much' is not a number"),
    "unknown preset": (["x", "-P", "creativ"], "unknown preset 'creativ'; did you mean creative?"),
    "missing preset file": (["x", "-P", "no/where.yaml"], "no/where.yaml"),
    "unknown sampler": (
        ["x", "--chain", "top-q3"],
        "--chain: chain[0]: unknown sampler 'top-q'; did you mean top_p?",
    ),
    "chain that is none": (["x", "--chain", "top-k40 >"], "chain[1] of 'top-k40 >': a step is missing"),
    "two selecting steps": (["x", "--chain", "greedy > dist"], "chain[0] greedy"),
    "flag out of range": (["x", "--top-p", "1.5"], "--top-p: 1.5 is not within 0..1; 1 = off\n"),
    "negative temperature": (["x", "--temp", "-1"], "--temp: -1 is not ≥ 0; 0 = the most likely token\n"),
    "seed out of range": (["x", "--seed", "9223372036854775808"], "--seed"),
    "unknown parameter": (
        ["x", "--set", "top_k.kk=3"],
        "--set top_k.kk: unknown parameter 'kk'; known: k",
    ),
    "--set without a value": (["x", "--set", "top_k.k"], "--set"),
    "temperature for greedy": (["x", "-P", "deterministic", "--temp", "2"], "greedy"),
    "bias text of two tokens": (["x", "--logit-bias", " a b=1"], "' a b' is 2 tokens"),
    "bias id outside": (["x", "--logit-bias", "99999+1"], "token id 99999 is not within 0..8191"),
    "a flag without its value": (["x", "-n"], "'-n'"),
    "a value for a switch": (["x", "--stats=1"], "'--stats'"),
    "a number of a group's command": (["grammars", "sample", "json", "-n", "x"], "'-n'"),
    "a number that is too high": (["x", "--mirostat", "3"], "gen: --mirostat: 3 is not within 0..2\n"),
    "no requests": (
        ["batch"],
        "REQUESTS",
    ),
    "no basis": (["recover-basis"], "--output"),
    "no shell": (["completion"], "SHELL"),
    "no model": (
        ["models", "show"],
        "NAME",
    ),
    "a command that is none": (
        ["presets", "shwo"],
        "'show'",
    ),
    "a message behind chat": (
        ["chat", "Hi"],
        "(Hi)",
    ),
    "a second sampler": (
        ["samplers", "a", "b"],
        "(b)",
    ),
    "unknown sampler to show": (["samplers", "top_x"], "unknown sampler 'top_x'"),
}

FAILURES = {
    "missing model": (["x", "-m", "no.gguf"], b"", "no.gguf: there is no such file"),
    "folder as model": (["x", "-m", "."], b"", ".: this is a folder"),
    "missing prompt file": (["-f", "no.txt"], b"", "no.txt: there is no such file"),
    "folder as prompt": (["-f", "."], b"", ".: it is a folder, not a file"),
    "stdin is not UTF-8": ([], b"ab\xff", "stdin is not UTF-8: byte 0xff at offset 2"),
    "prompt longer than the context": (["x " * 50, "-c", "32"], b"", "and the context holds 32; shorten it"),
    "adapter that is missing": (["x", "--lora", "no.gguf=0.5"], b"", "--lora no.gguf: there is no such file"),
    "adapter that is a folder": (["x", "--lora", "."], b"", "--lora .: this is a folder"),
}

FILES = {
    "range": (
        "chain: [top_k: 40, temp: 1, top_p: {p: 1.5}]",
        "bad.yaml: chain[2].top_p.p: 1.5 is not within 0..1",
    ),
    "unknown key": ("chian: []", "bad.yaml: unknown key 'chian'; did you mean chain?"),
    "syntax": ("chain: [a\nb: {", "bad.yaml: line 2, column 2: "),
    "duplicate key": ("seed: 1\nseed: 2", "bad.yaml: line 2, column 1: "),
    "not a mapping": ("- a\n- b", "bad.yaml: "),
    "empty": ("", "bad.yaml: "),
    "python object": ("chain: !!python/object/apply:os.system ['true']", "bad.yaml: line 1"),
    "half a surrogate pair": ('stop: "\\ud800"', "bad.yaml: line 1, column 7: half of a surrogate pair"),
    "max_tokens": ("max_tokens: 0", "bad.yaml: max_tokens: 0 is not"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE)
def test_bad_usage_is_code_2(gen, arguments, message):
    result = gen(*arguments, code=2)
    assert message.strip() in " ".join(result.err.replace("│", "").split())
    assert result.err.startswith("gen: ") or "─ Error ─" in result.err
    assert result.out == ""


@pytest.mark.parametrize(("arguments", "stdin", "message"), FAILURES.values(), ids=FAILURES)
def test_failure_is_code_1_and_one_line(gen, arguments, stdin, message):
    assert gen(*arguments, "--format", "jsonl", stdin=stdin, code=1).out == ""
    result = gen(*arguments, stdin=stdin, code=1)
    assert message in result.err
    assert result.err.startswith("gen: ")
    assert result.err.count("\n") == 1
    assert result.out == ""


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES)
def test_bad_preset_file_names_the_place(gen, home, text, message):
    (home / "work" / "bad.yaml").write_text(text)
    for arguments in (["presets", "check", "bad.yaml"], ["x", "-P", "./bad.yaml"]):
        result = gen(*arguments, code=2)
        assert message in result.err
        assert result.err.count("\n") == 1


MODELS = {
    "empty": (b"", "the file is empty"),
    "text": (b"not a model", "not a GGUF file"),
    "cut after the magic": (b"GGUF", "damaged GGUF file"),
    "web page": (b"<!DOCTYPE html>", "it looks like a web page"),
}


@pytest.mark.parametrize(("data", "message"), MODELS.values(), ids=MODELS)
def test_bad_model_file(gen, home, data, message):
    (home / "work" / "m.gguf").write_bytes(data)
    result = gen("x", "-m", "m.gguf", code=1)
    assert result.err.startswith("gen: m.gguf: ")
    assert message in result.err


def test_truncated_model(gen, home):
    from logitsmith.engine import locate

    with locate()[0].open("rb") as whole:
        (home / "work" / "cut.gguf").write_bytes(whole.read(40_000_000))
    assert "truncated: its tensors need" in gen("x", "-m", "cut.gguf", code=1).err


def test_no_prompt_at_a_terminal(environment):
    import os
    import pty

    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "logitsmith.cli", "-n", "5"]
    done = subprocess.run(command, stdin=follower, capture_output=True, env=environment, check=False)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 2
    assert b"there is no prompt" in done.stderr


@pytest.mark.parametrize("place", ["GEN_MODEL", "config"])
def test_a_bad_adapter_is_not_blamed_on_what_names_the_model(gen, home, pruned_model, place):
    folder = home / "config" / "logitsmith"
    folder.mkdir()
    (folder / "config.yaml").write_text(f"model: {pruned_model}" if place == "config" else "{}")
    variables = {"GEN_MODEL": str(pruned_model) if place == "GEN_MODEL" else ""}
    (home / "work" / "bad.gguf").write_bytes(b"not one")
    for command in (["x"], ["next", "x"], ["score", "x"]):
        result = gen(*command, "--lora", "bad.gguf=2", XDG_CONFIG_HOME=str(home / "config"), **variables, code=1)
        assert result.err == "gen: --lora bad.gguf: not a GGUF file\n"


NAMES_LIKE_PARAMETERS = {
    "a model": (["hi", "-m", "n_ctx_d/n_ctx/model.gguf"], "n_ctx_d/n_ctx/model.gguf: there is no such file"),
    "an adapter": (["hi", "--lora", "n_ctx"], "--lora n_ctx: there is no such file"),
    "a preset": (["hi", "-P", "n_ctx"], "unknown preset 'n_ctx'; known:"),
    "a chat": (["chat", "--resume", "basis_from_rows"], "there is no conversation 'basis_from_rows'"),
    "a schema": (
        ["hi", "-j", "n_ctx.json"],
        "--json-schema: 'n_ctx.json' is not JSON but looks like a file; pass a file as -jf\n",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), NAMES_LIKE_PARAMETERS.values(), ids=NAMES_LIKE_PARAMETERS)
def test_a_name_that_reads_like_a_parameter_is_shown_as_typed(gen, arguments, message):
    result = gen(*arguments, code=1 if {"-m", "--lora", "--resume"} & set(arguments) else 2)
    assert result.err.startswith(f"gen: {message}")


NEARLY_COMMANDS = {
    "preset": "presets",
    "grammar": "grammars",
    "grammer": "grammars",
    "modles": "models",
    "inspct": "inspect",
    "docter": "doctor",
    "recovery": "recover",
    "model": "models",
}


@pytest.mark.parametrize(("word", "meant"), NEARLY_COMMANDS.items())
def test_a_lone_word_that_looks_like_a_command_does_not_run(gen, word, meant):
    result = gen(word, code=2)
    assert f"'{meant}'" in result.err
    assert result.out == ""


@pytest.mark.parametrize("word", ["grammer", "list", "serve"])
def test_gen_run_continues_a_word_that_looks_like_a_command(gen, word):
    result = gen("run", word, "-n", "1", "--format", "jsonl")
    assert result.err == ""
    assert result.lines[0]["prompt"] == word


def test_flags_after_a_word_say_that_it_is_a_prompt(gen):
    assert gen("grammer", "-n", "1").err == ""


@pytest.mark.parametrize("line", ["bacth x.jsonl", "sampler min-p", "preset show creative", "pull llama3"])
def test_a_misspelt_command_with_arguments_does_not_run(gen, line):
    assert gen(*line.split(), code=2).out == ""


@pytest.mark.parametrize("word", ["Hello", "sun", "watch", "Help!", "once", "Show", "text", "that"])
def test_another_word_is_a_prompt(gen, word):
    assert gen(word, GEN_MODEL="none.gguf", code=1).err == "gen: $GEN_MODEL: none.gguf: there is no such file\n"


CONFIGS = {
    "a model": ("model: none.gguf", "{file}: model: {folder}/none.gguf: there is no such file\n"),
    "a preset": ("preset: creativ", "{file}: preset: unknown preset 'creativ'; did you mean creative?"),
    "a number": ("model: 3", "{file}: model: 3 is not a path or a model's name\n"),
}


@pytest.mark.bundled_model
@pytest.mark.parametrize(("text", "message"), CONFIGS.values(), ids=CONFIGS)
def test_the_config_is_named_where_a_wrong_value_comes_from_it(gen, home, text, message):
    folder = home / "config" / "logitsmith"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    expected = message.format(file=folder / "config.yaml", folder=folder)
    code = 1 if "no such file" in message else 2
    result = gen("x", "-n", "1", XDG_CONFIG_HOME=str(home / "config"), code=code)
    assert result.err.startswith(f"gen: {expected}")
    assert result.err.count("\n") == 1


NO_RUNS = {
    "CSV": b"a,b\n" * 30,
    "an answer of OpenAI's API": b'{"id": "x", "object": "text_completion", "choices": []}\n' * 30,
    "a text": b"Once upon a time\n" * 30,
    "lists": b"[1, 2]\n" * 30,
}


@pytest.mark.parametrize("data", NO_RUNS.values(), ids=NO_RUNS)
def test_another_format_is_one_line_for_inspect(gen, home, data):
    (home / "work" / "run.txt").write_bytes(data)
    result = gen("inspect", "run.txt", code=1)
    assert result.err.startswith(
        "gen: run.txt: this file was not written by gen --format jsonl or gen batch --format jsonl; line 1: "
    )
    assert result.err.count("\n") == 1
    assert "Input" not in result.err


TEXT_TOO_LARGE = "it is larger than 100 MB; give a shorter text\n"
LINE_TOO_LONG = "line 1 is longer than 256 MB; give a file of shorter lines\n"
ENDLESS = {
    "a prompt": (["-f", "{}"], TEXT_TOO_LARGE),
    "a prompt of gen next": (["next", "-f", "{}"], TEXT_TOO_LARGE),
    "a text to score": (["score", "-f", "{}"], TEXT_TOO_LARGE),
    "a prompt of gen recover": (["recover", "-f", "{}", "--window", "5", "-o", "-"], TEXT_TOO_LARGE),
    "a text to check": (["grammars", "check", "json", "--text-file", "{}"], TEXT_TOO_LARGE),
    "a run": (["inspect", "{}"], LINE_TOO_LONG),
    "lines to score": (["score", "--jsonl", "{}"], LINE_TOO_LONG),
    "requests": (["batch", "{}", "-o", "out.jsonl"], LINE_TOO_LONG),
    "rows of requests": (["batch", "{}", "-o", "out.jsonl", "--template", "{{a}}"], LINE_TOO_LONG),
}
ENDLESS_OPTIONS = {
    "a preset": (["-P", "{}"], "{}: it is larger than 1 MB; give a shorter text\n"),
    "a grammar": (["--grammar-file", "{}"], "--grammar-file: {}: it is larger than 4 MB; give a shorter text\n"),
    "a schema": (["-jf", "{}"], "--json-schema-file: {}: it is larger than 4 MB; give a shorter text\n"),
    "a template": (
        ["--chat-template-file", "{}"],
        "--chat-template: {}: it is larger than 8 MB; give a shorter text\n",
    ),
    "a template or a name": (
        ["--chat-template", "{}"],
        "--chat-template: {}: it is larger than 8 MB; give a shorter text\n",
    ),
    "a model": (["-m", "{}"], "{}: not a GGUF file\n"),
    "an adapter": (["--lora", "{}"], "--lora {}: not a GGUF file\n"),
}


@pytest.mark.parametrize(("arguments", "message"), ENDLESS.values(), ids=ENDLESS)
def test_a_file_without_end_is_read_to_a_limit(gen, arguments, message):
    result = gen(*[argument.format("/dev/zero") for argument in arguments], code=1)
    assert result.err.splitlines(keepends=True)[-1] == f"gen: /dev/zero: {message}"


@pytest.mark.parametrize(("arguments", "message"), ENDLESS_OPTIONS.values(), ids=ENDLESS_OPTIONS)
def test_an_option_names_a_file_without_end(gen, arguments, message):
    code = 1 if "GGUF" in message else 2
    result = gen("x", *[argument.format("/dev/zero") for argument in arguments], code=code)
    assert result.err == f"gen: {message.format('/dev/zero')}"


def test_a_preset_without_end_that_is_shown(gen):
    result = gen("presets", "show", "/dev/zero", code=2)
    assert result.err == "gen: /dev/zero: it is larger than 1 MB; give a shorter text\n"


ENDLESS_PIPES = {
    "a prompt": ([], f"gen: stdin: {TEXT_TOO_LARGE}"),
    "a chat": (
        ["chat", "--no-log"],
        "gen: stdin: a line is larger than 100 MB, so the chat ends; send shorter turns\n",
    ),
    "a run": (["inspect"], f"gen: stdin: {LINE_TOO_LONG}"),
    "requests": (["batch", "-", "-o", "-"], f"gen: stdin: {LINE_TOO_LONG}"),
}


@pytest.mark.parametrize(("arguments", "message"), ENDLESS_PIPES.values(), ids=ENDLESS_PIPES)
def test_a_stdin_without_end_is_read_to_a_limit(environment, arguments, message):
    with Path("/dev/zero").open("rb") as zeros:
        command = [sys.executable, "-m", "logitsmith.cli", *arguments]
        done = subprocess.run(command, stdin=zeros, capture_output=True, env=environment, check=False, text=True)
    assert (done.returncode, done.stderr.splitlines(keepends=True)[-1]) == (1, message)


def test_what_is_piped_in_before_a_prompt_is_read_to_a_limit(environment):
    command = [sys.executable, "-m", "logitsmith.cli", "x"]
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as zeros:
        done = subprocess.run(
            command, stdin=zeros.stdout, capture_output=True, env=environment, check=False, text=True
        )
        zeros.kill()
    assert (done.returncode, done.stderr) == (1, f"gen: stdin: {TEXT_TOO_LARGE}")
