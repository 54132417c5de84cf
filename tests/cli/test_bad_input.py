"""Bad input: one clear sentence on stderr, the right exit code, nothing on stdout."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

NEARLY_COMMANDS = {
    "preset": "presets",
    "grammer": "grammars",
    "modles": "models",
    "inspct": "inspect",
    "docter": "doctor",
    "recovery": "recover",
}
USAGE = {
    "-n -3": (["x", "-n", "-3"], "-n: -3"),
    "-ngl -3": (["x", "-ngl", "-3"], "'-3' is not auto (-1), all (-2) or"),
    "-ngl most": (["x", "-ngl", "most"], "'most' is not auto (-1), all (-2) or"),
    "-ngl beyond 32 bits": (["x", "-ngl", "4294967296"], "is not auto (-1), all (-2) or"),
    "-dev with an empty name": (["x", "-dev", "CUDA0,"], "-dev: 'CUDA0,'"),
    "-dev none and a name": (["x", "-dev", "none,CUDA0"], "is not none or a comma-separated list"),
    "-dev twice the same": (["x", "-dev", "CUDA0,CUDA0"], "-dev: a GPU is named twice: CUDA0"),
    "-dev none with layers": (["x", "-dev", "none", "-ngl", "all"], "-ngl: all needs a GPU, and none"),
    "-ncmoe -1": (["x", "-ncmoe", "-1"], "-ncmoe: -1"),
    "-n text": (["x", "-n", "many"], "'-n'"),
    "-t -2": (["x", "-t", "-2"], "-t: -2 is not within 1..512"),
    "-t many": (["x", "-t", "many"], "'many'"),
    "-c -1": (["x", "-c", "-1"], "-c: -1 is not within 0.."),
    "-c beyond 32 bits": (["x", "-c", "4294967296"], "-c: 4294967296 is not within 0.."),
    "-tb -2": (["x", "-tb", "-2"], "-tb: -2 is not within 1..512"),
    "-b 0": (["x", "-b", "0"], "-b: 0 is not within 1.."),
    "-ub 0": (["x", "-ub", "0"], "-ub: 0 is not within 1.."),
    "-fa maybe": (["x", "-fa", "maybe"], "'maybe'"),
    "-ctk q3": (["x", "-ctk", "q3"], "'q3'"),
    "-ctv without flash attention": (["x", "-fa", "off", "-ctv", "q8_0"], "-ctv: q8_0 needs flash attention"),
    "--rope-scale 0": (["x", "--rope-scale", "0"], "--rope-scale: 0"),
    "two factors of RoPE": (["x", "--rope-scale", "2", "--rope-freq-scale", "0.5"], "--rope-freq-scale"),
    "a dash in a score": (["score", "-ve"], "-ve"),
    "a sampler's flag in a batch": (["batch", "x", "--dry-base", "1"], "--dry-base"),
    "ignoring the end in a batch": (["batch", "x", "--ignore-eos"], "--ignore-eos"),
    "a sampler's flag in a score": (["score", "x", "--dry-base", "1"], "--dry-base"),
    "a stop text by its other name": (["x", "-r", ""], "--stop: ''"),
    "a number by its other name": (["x", "--temperature", "-1"], "gen: --temp: -1"),
    "an override of no type": (["x", "--override-kv", "a=b"], "--override-kv: 'a=b' is not KEY=TYPE:VALUE"),
    "an override that is no bool": (["x", "--override-kv", "a=bool:1"], "'a=bool:1' is not KEY=TYPE:VALUE"),
    "a stop that is not UTF-8": (["x", "--stop", b"\xff"], "--stop is not UTF-8"),
    "a prompt that is not UTF-8": ([b"\xff"], "the prompt is not UTF-8"),
    "nothing alike": (["x", "--qqq"], "--qqq"),
    "an endpoint of other tools": (["recover", "x", "--base-url", "http://127.0.0.1:1"], "--base-url"),
    "mirostat's rate alone": (["x", "--mirostat-lr", "0.2"], "--mirostat 2"),
    "adaptive_p's memory alone": (["x", "--adaptive-decay", "0.5"], "--adaptive-target"),
    "a file as schema": (["x", "-j", "s.json"], "-jf"),
    "unknown option": (["x", "--tempp", "1"], "--temp"),
    "two flags in a word": (["x", "-ve"], "-ve"),
    "a path stuck to its flag": (["-fprompt.txt"], "-fprompt.txt"),
    "a long flag with one dash": (["x", "-temp", "1"], "-temp"),
    "a bundle for a command of a group": (["presets", "list", "-hx"], "-hx"),
    "unknown format": (["x", "--format", "xml"], "'--format'"),
    "logprobs without jsonl": (["x", "--logprobs", "3"], "--logprobs needs a --format"),
    "negative logprobs": (["x", "--format", "jsonl", "--logprobs", "-3"], "--logprobs: -3"),
    "system without chat": (["x", "--no-chat", "--system", "y"], "--no-chat"),
    "template without chat": (["x", "--no-chat", "--chat-template", "chatml"], "--no-chat"),
    "variables without chat": (["x", "--no-chat", "--chat-template-kwargs", "{}"], "--chat-template-kwargs"),
    "unknown chat template": (["x", "--chat-template", "chatm"], "did you mean chatml?"),
    "missing file of a chat template, in a chat": (
        ["chat", "--no-log", "--chat-template-file", "chatm"],
        "--chat-template: chatm",
    ),
    "chat template without Jinja": (["x", "--chat-template", "/dev/null"], "/dev/null: "),
    "chat template that is not valid": (["x", "--chat-template", "{% for x in y %}"], "line 1"),
    "variables that are no JSON": (["x", "--chat-template-kwargs", "{a}"], "--chat-template-kwargs"),
    "reasoning neither on nor off": (["x", "--reasoning", "maybe"], "--reasoning: 'maybe' is not on, off or auto"),
    "an unknown effort": (["x", "--reasoning-effort", "huge"], "is not none, minimal, low, medium, high or xhigh"),
    "variables that are no object": (["x", "--chat-template-kwargs", "[]"], "--chat-template-kwargs"),
    "variables of a built-in template": (
        ["x", "--chat-template", "chatml", "--chat-template-kwargs", '{"a": 1}'],
        "chatml",
    ),
    "two prompts": (["x", "-p", "y"], "PROMPT and -p"),
    "two words": (["x", "y"], "(y)"),
    "bias of another form": (["x", "--logit-bias", "foo"], "'foo' is not ID+BIAS"),
    "bias that is no number": (["x", "--logit-bias", "foo=much"], "'much'"),
    "unknown preset": (["x", "-P", "creativ"], "did you mean creative?"),
    "missing preset file": (["x", "-P", "no/where.yaml"], "no/where.yaml"),
    "unknown sampler": (["x", "--chain", "top-q3"], "--chain: chain[0]: unknown sampler 'top-q'"),
    "chain that is none": (["x", "--chain", "top-k40 >"], "chain[1] of 'top-k40 >'"),
    "two selecting steps": (["x", "--chain", "greedy > dist"], "chain[0] greedy"),
    "flag out of range": (["x", "--top-p", "1.5"], "--top-p: 1.5 is not within 0..1"),
    "unknown parameter": (["x", "--set", "top_k.kk=3"], "--set top_k.kk"),
    "--set without a value": (["x", "--set", "top_k.k"], "--set"),
    "temperature for greedy": (["x", "-P", "deterministic", "--temp", "2"], "greedy"),
    "bias text of two tokens": (["x", "--logit-bias", " a b=1"], "' a b' is 2 tokens"),
    "bias id outside": (["x", "--logit-bias", "99999+1"], "0..8191"),
    "a flag without its value": (["x", "-n"], "'-n'"),
    "a value for a switch": (["x", "--stats=1"], "'--stats'"),
    "a number of a group's command": (["grammars", "sample", "json", "-n", "x"], "'-n'"),
    "a number that is too high": (["x", "--mirostat", "3"], "--mirostat: 3 is not within 0..2"),
    "no requests": (["batch"], "REQUESTS"),
    "no basis": (["recover-basis"], "--output"),
    "no shell": (["completion"], "SHELL"),
    "no model": (["models", "show"], "NAME"),
    "a command that is none": (["presets", "shwo"], "'show'"),
    "a message behind chat": (["chat", "Hi"], "(Hi)"),
    "a second sampler": (["samplers", "a", "b"], "(b)"),
    "unknown sampler to show": (["samplers", "top_x"], "'top_x'"),
    "a preset without end": (["presets", "show", "/dev/zero"], "/dev/zero: "),
    **{f"{word}, nearly a command": ([word], f"'{meant}'") for word, meant in NEARLY_COMMANDS.items()},
    "a command of groups alone": (["list"], "'list'"),
    "a value behind a flag of several letters": (["x", "-ngl99"], "write -ngl 99"),
    "a word behind a flag of one letter": (["x", "-Pcreative"], "write -P creative"),
    **{f"{line}, misspelt": (line.split(), "") for line in ("bacth x.jsonl", "sampler min-p", "pull llama3")},
}

FAILURES = {
    "missing model": (["x", "-m", "no.gguf"], b"", "no.gguf: there is no such file"),
    "folder as model": (["x", "-m", "."], b"", ".: this is a folder"),
    "missing prompt file": (["-f", "no.txt"], b"", "no.txt: there is no such file"),
    "folder as prompt": (["-f", "."], b"", ".: it is a folder"),
    "stdin is not UTF-8": ([], b"ab\xff", "byte 0xff at offset 2"),
    "prompt longer than the context": (["x " * 50, "-c", "32"], b"", "the context holds 32"),
    "adapter that is missing": (["x", "--lora", "no.gguf=0.5"], b"", "--lora no.gguf: "),
    "adapter that is a folder": (["x", "--lora", "."], b"", "--lora .: "),
    # names that read like parameters of Python
    "a model in n_ctx": (["hi", "-m", "n_ctx_d/n_ctx/m.gguf"], b"", "gen: n_ctx_d/n_ctx/m.gguf: "),
    "an adapter n_ctx": (["hi", "--lora", "n_ctx"], b"", "gen: --lora n_ctx: "),
    **{f"the prompt {word}": ([word, "-m", "none.gguf"], b"", "none.gguf") for word in ("Help!", "once", "watch")},
}

FILES = {
    "range": ("chain: [top_k: 40, temp: 1, top_p: {p: 1.5}]", "chain[2].top_p.p: 1.5"),
    "unknown key": ("chian: []", "unknown key 'chian'"),
    "syntax": ("chain: [a\nb: {", "line 2, column 2: "),
    "not a mapping": ("- a\n- b", ""),
    "python object": ("chain: !!python/object/apply:os.system ['true']", "line 1"),
}


@pytest.mark.parametrize(("arguments", "named"), USAGE.values(), ids=USAGE)
def test_bad_usage_is_code_2(gen, arguments, named):
    result = gen(*arguments, code=2)
    assert named in " ".join(result.err.replace("│", "").split())
    assert result.err.startswith("gen: ") or "─ Error ─" in result.err
    assert result.out == ""


@pytest.mark.parametrize(("arguments", "stdin", "named"), FAILURES.values(), ids=FAILURES)
def test_failure_is_code_1_and_one_line(gen, arguments, stdin, named):
    for form in ("jsonl", "text"):
        result = gen(*arguments, "--format", form, stdin=stdin, code=1)
        assert named in result.err
        assert result.err.startswith("gen: ")
        assert (result.err.count("\n"), result.out) == (1, "")


@pytest.mark.parametrize(("text", "place"), FILES.values(), ids=FILES)
def test_bad_preset_file_names_the_place(gen, home, text, place):
    (home / "work" / "bad.yaml").write_text(text)
    for arguments in (["presets", "check", "bad.yaml"], ["x", "-P", "./bad.yaml"]):
        result = gen(*arguments, code=2)
        assert f"bad.yaml: {place}" in result.err
        assert result.err.count("\n") == 1


MODELS = {
    "empty": b"",
    "text": b"not a model",
    "cut after the magic": b"GGUF",
    "web page": b"<!DOCTYPE html>",
}


@pytest.mark.parametrize("kind", [*MODELS, "truncated"])
def test_bad_model_file(gen, home, pruned_model, kind):
    data = MODELS.get(kind) or (pruned_model.read_bytes()[:4_000_000] if kind == "truncated" else b"")
    (home / "work" / "m.gguf").write_bytes(data)
    result = gen("x", "-m", "m.gguf", code=1)
    assert result.err.startswith("gen: m.gguf: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("place", ["GEN_MODEL", "config"])
def test_a_bad_adapter_is_not_blamed_on_what_names_the_model(gen, home, pruned_model, place):
    folder = home / "config" / "logitsmith"
    folder.mkdir()
    (folder / "config.yaml").write_text(f"model: {pruned_model}" if place == "config" else "{}")
    model = str(pruned_model) if place == "GEN_MODEL" else ""
    (home / "work" / "bad.gguf").write_bytes(b"not one")
    for command in (["x"], ["next", "x"], ["score", "x"]):
        result = gen(*command, "--lora", "bad.gguf=2", GEN_MODEL=model, code=1)
        assert result.err.startswith("gen: --lora bad.gguf: ")


@pytest.mark.parametrize("words", [["run", "list"], ["run", "grammer"], ["grammer", "-n", "1"]], ids=" ".join)
def test_a_word_that_looks_like_a_command_is_a_prompt_of_run_and_before_flags(gen, words):
    result = gen(*words, "-n", "1", "--format", "jsonl")
    assert (result.err, result.lines[0]["prompt"]) == ("", words[1] if words[0] == "run" else words[0])


CONFIGS = {
    "a model": ("model: none.gguf", "{file}: model: {folder}/none.gguf: ", 1),
    "a preset": ("preset: creativ", "{file}: preset: ", 2),
    "a number": ("model: 3", "{file}: model: 3 ", 2),
}


@pytest.mark.bundled_model
@pytest.mark.parametrize(("text", "place", "code"), CONFIGS.values(), ids=CONFIGS)
def test_the_config_is_named_where_a_wrong_value_comes_from_it(gen, home, text, place, code):
    folder = home / "config" / "logitsmith"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    result = gen("x", "-n", "1", code=code)
    assert result.err.startswith(f"gen: {place.format(file=folder / 'config.yaml', folder=folder)}")
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
    assert result.err.startswith("gen: run.txt: ")
    assert result.err.count("\n") == 1
    assert "Input" not in result.err


ENDLESS = {
    "a prompt": (["-f", "{}"], "100 MB"),
    "a prompt of gen next": (["next", "-f", "{}"], "100 MB"),
    "a text to score": (["score", "-f", "{}"], "100 MB"),
    "a prompt of gen recover": (["recover", "-f", "{}", "--window", "5", "-o", "-"], "100 MB"),
    "a text to check": (["grammars", "check", "json", "--text-file", "{}"], "100 MB"),
    "a run": (["inspect", "{}"], "256 MB"),
    "lines to score": (["score", "--jsonl", "{}"], "256 MB"),
    "requests": (["batch", "{}", "-o", "out.jsonl"], "256 MB"),
    "rows of requests": (
        ["batch", "{}", "-o", "out.jsonl", "--template", "{{a}}"],
        "256 MB",
    ),
}
ENDLESS_OPTIONS = {
    "-P": "1 MB",
    "--grammar-file": "4 MB",
    "-jf": "4 MB",
    "--chat-template-file": "8 MB",
    "--chat-template": "8 MB",
    "-m": "GGUF",
    "--lora": "GGUF",
}


@pytest.mark.parametrize(("arguments", "limit"), ENDLESS.values(), ids=ENDLESS)
def test_a_file_without_end_is_read_to_a_limit(gen, arguments, limit):
    result = gen(*[argument.format("/dev/zero") for argument in arguments], code=1)
    last = result.err.splitlines()[-1]
    assert last.startswith("gen: /dev/zero: ")
    assert limit in last


@pytest.mark.parametrize(("flag", "limit"), ENDLESS_OPTIONS.items())
def test_an_option_names_a_file_without_end(gen, flag, limit):
    error = gen("x", flag, "/dev/zero", code=1 if limit == "GGUF" else 2).err
    assert "/dev/zero: " in error
    assert limit in error
    assert error.count("\n") == 1


ENDLESS_PIPES = {
    "a prompt": ([], "100 MB"),
    "a chat": (["chat", "--no-log"], "100 MB"),
    "requests": (["batch", "-", "-o", "-"], "256 MB"),
}


@pytest.mark.parametrize(("arguments", "limit"), ENDLESS_PIPES.values(), ids=ENDLESS_PIPES)
def test_a_stdin_without_end_is_read_to_a_limit(start_gen, arguments, limit):
    with Path("/dev/zero").open("rb") as zeros:
        command = start_gen(*arguments, stdin=zeros.fileno())
    _, err = command.finish()
    assert command.returncode == 1
    last = err.decode().splitlines()[-1]
    assert last.startswith("gen: stdin: ")
    assert limit in last


def test_what_is_piped_in_before_a_prompt_is_read_to_a_limit(start_gen):
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as zeros:
        command = start_gen("x", stdin=zeros.stdout.fileno())
        _, err = command.finish()
        zeros.kill()
    assert command.returncode == 1
    assert b"100 MB" in err
