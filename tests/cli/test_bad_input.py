"""Bad input: one clear sentence on stderr, the right exit code, nothing on stdout."""

import pytest

USAGE = {
    "-n -3": (["x", "-n", "-3"], "-n: -3 is not ≥ 0, nor -1 or -2 for no limit"),
    "-ngl auto": (["x", "-ngl", "auto"], "'auto' is not a whole number, nor all"),
    "-ngl -2": (["x", "-ngl", "-2"], "-ngl: -2 is not within -1.."),
    "-n text": (["x", "-n", "many"], "'--predict' / '--n-predict': 'many' is not a whole number"),
    "-t 0": (["x", "-t", "0"], "-t: 0 is not within 1..512"),
    "-t 100000": (["x", "-t", "100000"], "-t: 100000 is not within 1..512"),
    "-c -1": (["x", "-c", "-1"], "-c: -1 is not within 0.."),
    "-c beyond 32 bits": (["x", "-c", "4294967296"], "-c: 4294967296 is not within 0.."),
    "-tb 0": (["x", "-tb", "0"], "-tb: 0 is not within 1..512"),
    "-ub 0": (["x", "-ub", "0"], "-ub: 0 is not within 1.."),
    "-fa maybe": (["x", "-fa", "maybe"], "'maybe' is not one of"),
    "-ctk q3": (["x", "-ctk", "q3"], "'q3' is not one of"),
    "-ctv without flash attention": (["x", "-fa", "off", "-ctv", "q8_0"], "-ctv q8_0 needs flash attention"),
    "--rope-scale 0": (["x", "--rope-scale", "0"], "--rope-scale: 0 is not a number > 0"),
    "two factors of RoPE": (["x", "--rope-scale", "2", "--rope-freq-scale", "0.5"], "set one factor; give one"),
    "an override of no type": (["x", "--override-kv", "a=b"], "--override-kv: 'a=b' is not KEY=TYPE:VALUE"),
    "an override that is no bool": (["x", "--override-kv", "a=bool:1"], "'a=bool:1' is not KEY=TYPE:VALUE"),
    "-b 0": (["x", "-b", "0"], "-b: 0 is not within 1.."),
    "a stop that is not UTF-8": (["x", "--stop", b"\xff"], "--stop is not UTF-8"),
    "a prompt that is not UTF-8": ([b"\xff"], "the prompt is not UTF-8"),
    "unknown option": (["x", "--tempp", "1"], "No such option: --tempp"),
    "two flags in a word": (
        ["x", "-ve"],
        "there is no flag -ve; for a text that begins with a dash: gen run [FLAGS] --",
    ),
    "a path stuck to its flag": (["-fprompt.txt"], "there is no flag -fprompt.txt"),
    "a value behind =": (["x", "-n=5"], "-n=5: write -n 5"),
    "a long flag with one dash": (["x", "-temp", "1"], "there is no flag -temp; write --temp"),
    "llama.cpp's -hff": (
        ["-hff", "foo/bar", "Hi"],
        "-hff is a model file of Hugging Face in llama.cpp; download the GGUF file and name it: -m FILE",
    ),
    "llama.cpp's -no-cnv": (["x", "-no-cnv"], "-no-cnv is conversation mode off in llama.cpp; use --no-chat"),
    "llama.cpp's -st": (["x", "-st"], "-st is a single turn in llama.cpp; leave it out: gen ends after one"),
    "llama.cpp's -np": (
        ["x", "-np", "4"],
        "-np is the number of parallel requests in llama.cpp; use gen batch -np N",
    ),
    "llama.cpp's -i": (["x", "-i"], "-i is interactive mode in llama.cpp; leave it out"),
    "a bundle for a command of a group": (["presets", "list", "-hx"], "there is no flag -hx"),
    "unknown format": (["x", "--format", "xml"], "'xml' is not one of"),
    "logprobs without jsonl": (["x", "--logprobs", "3"], "--logprobs needs a --format with room for logprobs"),
    "negative logprobs": (["x", "--format", "jsonl", "--logprobs", "-3"], "--logprobs: -3 is not ≥ 0"),
    "system without chat": (["x", "--no-chat", "--system", "y"], "--no-chat leaves it out"),
    "two prompts": (["x", "-p", "y"], "the prompt is given twice, by PROMPT and -p"),
    "two words": (["x", "y"], "unexpected extra argument"),
    "bias of another form": (["x", "--logit-bias", "foo"], "'foo' is not ID+BIAS"),
    "bias that is no number": (["x", "--logit-bias", "foo=much"], "'much' in 'foo=much' is not a number"),
    "unknown preset": (["x", "-P", "creativ"], "unknown preset 'creativ'; did you mean creative?"),
    "missing preset file": (["x", "-P", "no/where.yaml"], "no/where.yaml"),
    "unknown sampler": (
        ["x", "--chain", "top-q3"],
        "--chain: chain[0]: unknown sampler 'top-q'; did you mean top_p?",
    ),
    "chain that is none": (["x", "--chain", "top-k40 >"], "step 2: a step is missing"),
    "two selecting steps": (["x", "--chain", "greedy > dist"], "chain[0] greedy"),
    "flag out of range": (["x", "--top-p", "1.5"], "--top-p: 1.5 is not within 0..1"),
    "negative temperature": (["x", "--temp", "-1"], "--temp: -1.0 is not ≥ 0"),
    "seed out of range": (["x", "--seed", "4294967296"], "--seed"),
    "unknown parameter": (
        ["x", "--set", "top_k.kk=3"],
        "--set top_k.kk: unknown parameter 'kk'; did you mean k?",
    ),
    "--set without a value": (["x", "--set", "top_k.k"], "--set"),
    "temperature for greedy": (["x", "-P", "deterministic", "--temp", "2"], "greedy"),
    "bias text of two tokens": (["x", "--logit-bias", " a b=1"], "' a b' is 2 tokens"),
    "bias id outside": (["x", "--logit-bias", "99999+1"], "token id 99999 is not within 0..49151"),
    "unknown sampler to show": (["samplers", "top_x"], "unknown sampler 'top_x'"),
}

FAILURES = {
    "missing model": (["x", "-m", "no.gguf"], b"", "no.gguf: there is no such file"),
    "folder as model": (["x", "-m", "."], b"", ".: this is a folder"),
    "missing prompt file": (["-f", "no.txt"], b"", "no.txt: there is no such file"),
    "folder as prompt": (["-f", "."], b"", ".: it is a folder, not a file"),
    "stdin is not UTF-8": ([], b"ab\xff", "stdin is not UTF-8: byte 0xff at offset 2"),
    "prompt longer than the context": (["x " * 50, "-c", "32"], b"", "and the context holds 32; shorten it"),
    "adapter that is missing": (["x", "--lora", "no.gguf=0.5"], b"", "no.gguf: there is no such file"),
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
    assert message in result.err
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
    import subprocess
    import sys

    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "logitsmith.cli", "-n", "5"]
    done = subprocess.run(command, stdin=follower, capture_output=True, env=environment, check=False)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 2
    assert b"there is no prompt" in done.stderr


NEARLY_COMMANDS = {
    "preset": "gen presets",
    "grammar": "gen grammars",
    "inspct": "gen inspect",
    "recovery": "gen recover",
    "help": "gen --help",
    "version": "gen --version",
    "models": "gen -m FILE",
}


@pytest.mark.parametrize(("word", "meant"), NEARLY_COMMANDS.items())
def test_a_lone_word_that_is_nearly_a_command_asks(gen, word, meant):
    result = gen(word, code=2)
    assert result.err == f"gen: did you mean {meant}? for the text: gen run '{word}'\n"
    assert gen(word, "-n", "1").err == gen("run", word, "-n", "1").err == ""


@pytest.mark.parametrize("word", ["Hello", "sun", "watch", "Help!", "once"])
def test_another_word_is_a_prompt(gen, word):
    assert gen(word, GEN_MODEL="none.gguf", code=1).err == "gen: none.gguf: there is no such file\n"
