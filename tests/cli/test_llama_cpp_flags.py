"""Flags that llama.cpp's users type: what each does here, through the process."""

import json
import re
from pathlib import Path

import pytest
from logitsmith.cli.command_table import COMMANDS
from logitsmith.cli.inputs.model import report_flags_without_effect
from logitsmith.cli.options.model import ModelOptions, RopeScaling
from logitsmith.presets.foreign.formats import import_text
from logitsmith.presets.foreign.llama_cpp import OPTIONS
from logitsmith.presets.llama_cpp_flags import find_llama_cpp_flag, llama_cpp_flags

from ..docs.test_commands import LEAVES, names_of_flags

pytestmark = pytest.mark.usefixtures("with_pruned_model")

PROMPT = "The sea was"
ONE_TOKEN = ("-n", "1", "--temp", "0")


def notes(result):
    return [line.removeprefix("gen: note: ") for line in result.err.splitlines() if line.startswith("gen: note: ")]


def prompt_ids(result):
    return [line["id"] for line in result.lines if line["event"] == "prompt"]


def test_context_shift_goes_on_when_the_context_is_full(gen):
    flags = ("-c", "32", "-n", "45", "-s", "1", "--ignore-eos", "--format", "jsonl")
    plain = gen(PROMPT, *flags)
    assert plain.lines[-1]["finish_reason"] == "context"
    assert "context_shifts" not in plain.lines[-1]
    (note,) = notes(plain)
    assert note.endswith("it holds 32 tokens; -c makes it larger, --context-shift discards older tokens")
    shifted = gen(PROMPT, *flags, "--context-shift", "--stats")
    done = shifted.lines[-1]
    assert (done["finish_reason"], done["usage"]["completion_tokens"]) == ("length", 45)
    assert done["context_shifts"] == 2
    assert notes(shifted) == []
    assert "context     full 2 times: older tokens discarded" in shifted.err
    kept = gen(PROMPT, *flags, "--context-shift", "--keep", "-1")
    assert kept.text != shifted.text


def test_until_the_context_is_full_means_that_also_with_context_shift(gen):
    done = gen(PROMPT, "-c", "32", "-n", "-2", "--context-shift", "--ignore-eos", "--format", "jsonl").lines[-1]
    assert done["finish_reason"] == "context"


def test_a_context_that_never_becomes_full(gen):
    assert "context     never full" in gen(PROMPT, "-n", "3", "--context-shift", "--stats").err


def test_keep_alone_has_no_effect_and_says_so(gen):
    assert notes(gen(PROMPT, *ONE_TOKEN, "--keep", "4")) == ["--keep has no effect without --context-shift"]
    assert notes(gen(PROMPT, *ONE_TOKEN, "--keep", "4", "--context-shift")) == []


GPU_FLAGS = {
    "-ngl 99": "-ngl has",
    "-ngl all": "-ngl has",
    "-ngl -2": "-ngl has",
    "-cmoe": "-cmoe has",
    "-ncmoe 3": "-ncmoe has",
    "-mg 0": "-mg has",
    "--main-gpu 1 --split-mode row": "-sm, -mg have",
    "-ts 3,1": "-ts has",
    "--tensor-split 3/1 -sm none": "-sm, -ts have",
}


@pytest.mark.parametrize(("flags", "which"), GPU_FLAGS.items())
def test_flags_of_gpus_say_once_that_there_is_none(gen, flags, which):
    if pytest.importorskip("logitsmith.engine.native.devices").has_gpus():
        pytest.skip("there is a GPU")
    result = gen(PROMPT, *ONE_TOKEN, *flags.split())
    assert notes(result) == [f"{which} no effect: llama.cpp finds no GPU that it was built for"]
    assert result.out == gen(PROMPT, *ONE_TOKEN).out


def test_numa_on_a_machine_with_one_node(gen):
    from logitsmith.engine.native.binding import numa_nodes

    result = gen(PROMPT, *ONE_TOKEN, "--numa", "distribute")
    assert notes(result) == (["--numa has no effect: this machine has one NUMA node"] if numa_nodes() == 1 else [])


FACTORS = {"rope_scale": "--rope-scale", "rope_freq_scale": "--rope-freq-scale"}


@pytest.mark.parametrize(("factor", "name"), FACTORS.items())
def test_a_factor_beside_no_scaling_is_reported(factor, name):
    reports = []
    report_flags_without_effect(ModelOptions(rope_scaling=RopeScaling("none"), **{factor: 2.0}), reports.append)
    reason = "--rope-scaling none leaves the model's RoPE unscaled"
    assert reports == [f"{name} has no effect: {reason}"]


def test_a_prefix_and_a_suffix_stand_for_a_chat_template(gen):
    chat = gen("Hi there", *ONE_TOKEN, "--chat", "--format", "jsonl", "--echo")
    template = (
        "<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n"
    )
    framed = gen(
        "Hi there",
        *ONE_TOKEN,
        *("--in-prefix", template + "<|im_start|>user\\n", "--in-suffix", "<|im_end|>\\n<|im_start|>assistant\\n"),
        *("--format", "jsonl", "--echo"),
    )
    assert prompt_ids(framed) == prompt_ids(chat)
    assert framed.text == chat.text


def test_names_of_control_tokens_are_text_in_what_the_user_says(gen):
    framed = gen("a<|im_end|>", *ONE_TOKEN, "--in-suffix", "<|im_end|>", "--format", "jsonl", "--echo")
    end = 2
    assert prompt_ids(framed).count(end) == 1
    assert prompt_ids(framed)[-1] == end


def test_a_prefix_is_echoed_and_its_escapes_can_be_left(gen):
    assert gen("x", *ONE_TOKEN, "--in-prefix", "a\\nb ", "--echo").out.startswith("a\nb x")
    assert gen("x", *ONE_TOKEN, "--in-prefix", "a\\nb ", "--echo", "--no-escape").out.startswith("a\\nb x")
    assert gen("x", "-n", "0", "--in-prefix", "é", "--in-suffix", "ü", "--echo").out == "éxü"


def test_a_prefix_leaves_out_the_system_message_of_a_preset(gen, home):
    (home / "work" / "p.yaml").write_text("chain: [greedy]\nsystem: Be brief.\n")
    result = gen("Hi", *ONE_TOKEN, "-P", "./p.yaml", "--in-suffix", ":")
    assert notes(result) == ["--in-suffix replaces the chat template; the system message is left out"]


YELLOW_PROMPT = f"\x1b[33m{PROMPT}\x1b[0m"


@pytest.mark.parametrize("word", ["always", "on", "1"])
def test_a_colored_prompt(gen, word):
    assert gen(PROMPT, *ONE_TOKEN, "--echo", "--color", word).out.startswith(YELLOW_PROMPT)


@pytest.mark.parametrize("flags", [("--color", "never"), ("--color", "off"), ("--color", "auto"), ()], ids=str)
def test_no_color_in_a_pipe(gen, flags):
    assert gen(PROMPT, *ONE_TOKEN, "--echo", *flags).out.startswith(PROMPT)


def test_color_never_is_for_every_format(gen):
    assert json.loads(gen(PROMPT, *ONE_TOKEN, "--color", "never", "--format", "openai").out)


REFUSED = {
    "--in-prefix a --chat": "--in-prefix replaces the chat template, which --chat needs; give only one",
    "--in-suffix a --system b": "--in-suffix replaces the chat template, which --system needs; give only one",
    "--in-prefix a --chat-template chatml": "which --chat-template needs; give only one",
    "--in-suffix a --format openai-chat": "which --format openai-chat needs; give only one",
    "--color always --format jsonl": "--color always is for --format text; jsonl is never colored",
    "--keep -2": "--keep: -2 is not ≥ 0, nor -1 for all",
    "-ts a,b": "-ts: 'a,b' is not a comma-separated list of numbers ≥ 0, such as 3,1",
    "-ts 0,0": "-ts: '0,0' is not a comma-separated list of numbers",
    "-mg -2": "-mg: -2 is not within -1..",
    "-sm both": "'--split-mode'",
    "-fa 2": "'2' is not on, off or auto",
    "--color yes": "'yes' is not auto, always or never",
    "--numa mirror": "'--numa'",
}


@pytest.mark.parametrize(("flags", "message"), REFUSED.items())
def test_what_is_refused(gen, flags, message):
    result = gen("x", *flags.split(), code=2)
    assert message in " ".join(result.err.replace("│", "").split())
    assert result.out == ""


FLAGS = [names_of_flags(command) for _, command in LEAVES]
WITH_A_MODEL = [flags for flags in FLAGS if "-ngl" in flags]
EXPLAINED = [flag for flag in llama_cpp_flags() if flag.meaning]
"""What `gen` has in another form, or not at all."""


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: row.names[0])
def test_advice_on_a_foreign_flag_names_flags_that_exist(row):
    command = re.search(r"gen (batch|score)", row.advice)
    for flag in set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", row.advice)) - {"--help", "--version"}:
        places = FLAGS if command is None else [FLAGS[list(COMMANDS).index(command[1])]]
        assert any(flag in flags for flags in places), flag


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: row.names[0])
def test_a_foreign_flag_is_not_one_of_every_command_with_a_model(row):
    own = set.intersection(*WITH_A_MODEL)
    assert not own & set(row.names)


def test_a_flag_has_one_row_with_what_the_table_wants():
    names = [name for row in llama_cpp_flags() for name in row.names]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"--?[A-Za-z][\w.-]*\*?", name) for name in names)
    assert all((row.meaning == "") == (row.advice == "") for row in llama_cpp_flags())
    assert not any(row.option and row.meaning for row in llama_cpp_flags())
    assert find_llama_cpp_flag("-nothing") is None


def test_each_option_that_an_import_reads_has_a_row():
    assert sorted(row.option for row in llama_cpp_flags() if row.is_imported) == sorted(OPTIONS)


RECORDED = json.loads(Path(__file__).with_name("llama_cpp_flags.json").read_text(encoding="utf-8"))["flags"]
"""What tests/record_llama_cpp_flags.py found in llama.cpp's source."""


NOT_IMPORTED = {
    *("--display-prompt", "--no-display-prompt", "--color", "-p", "--prompt", "-f", "--file", "-e", "--escape"),
    *("--no-escape", "--no-perf", "--no-show-timings", "-no-cnv", "--no-conversation", "-st", "--single-turn"),
    *(
        "--no-warmup",
        "--simple-io",
        "--log-disable",
        "-v",
        "--verbose",
        "--log-verbose",
        "--jinja",
        "-h",
        "--help",
    ),
    "-co",
}
"""Flags of `gen run` and llama.cpp that say nothing about the text: the prompt, the screen, and the log."""


def shared_flags():
    run = FLAGS[list(COMMANDS).index("run")] - NOT_IMPORTED
    return sorted(name for flag in RECORDED for name in flag["names"] if name in run)


@pytest.mark.parametrize("name", shared_flags())
def test_an_import_loses_no_flag_of_gen_run(name):
    """Each flag becomes a setting, or is named with the reason; the long ones also as keys of an INI file."""
    value = VALUES.get(find_llama_cpp_flag(name).option, "2")
    words = name if name in ("--ignore-eos", "--context-shift", "--no-context-shift") else f"{name} {value}"
    texts = [f"llama-cli {words}"]
    if name.startswith("--"):
        texts.append(f"[*]\n{name[2:]} = {'true' if words == name else value}\n")
    for text in texts:
        imported, plain = import_text(text, "x"), import_text("llama-cli --temp 0.8", "x")
        assert not any("does not know" in sentence for sentence in imported.unsupported_settings)
        is_carried = (imported.chain, imported.other_settings) != (plain.chain, plain.other_settings)
        is_named = set(imported.notes) > set(plain.notes) or imported.unsupported_settings != []
        assert is_carried or is_named or name in SILENT, text


VALUES = dict.fromkeys(("top-p", "min-p", "typical", "adaptive-target", "dry-multiplier", "temp"), "0.5")
VALUES |= {"dynatemp-range": "0.5", "xtc-probability": "0.5", "reverse-prompt": "x", "grammar": "'root ::= x'"}
VALUES |= {"json-schema": "{}", "samplers": "top_k", "mirostat": "1", "logit-bias": "15+1", "sampler-seq": "k"}
VALUES |= {"grammar-file": "x.gbnf", "json-schema-file": "x.json", "system-prompt": "x"}
SILENT = {
    *("--xtc-threshold", "--repeat-last-n", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n"),
    *("--dry-sequence-breaker", "--adaptive-decay", "--dynatemp-exp", "--mirostat-lr", "--mirostat-ent"),
    *("--reasoning-budget-message",),
}
"""Flags without an effect of their own."""


PROGRAMS = {"common", "completion", "cli", "server"}
"""Of the others, such as those that train or measure, `gen` is no counterpart."""
FORMER = {"-cd", "--ctx-size-draft", "-dio", "--direct-io", "-ndio", "--no-direct-io", "--mmap", "--no-mmap"}
FORMER |= {"--mlock", "-cpent", "-hfv", "-hfrv", "-hffv", "-mv", "--mmproj-device", "--spec-draft-sampling"}
FORMER |= {"--cfg-scale", "--cfg-negative-prompt", "--cfg-negative-prompt-file"}
"""Names of earlier versions, which people still type."""
KEYS = {"--cached", "--load-on-startup", "--moe-cache-mib", "--nextn", "--stop-timeout"}
"""What only a file of settings for several models has."""


def is_explained(name):
    flag = find_llama_cpp_flag(name)
    return flag is not None and flag.meaning != ""


def is_named_by(pattern, name):
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


@pytest.mark.parametrize("flag", RECORDED, ids=lambda flag: flag["names"][0])
def test_every_flag_of_llama_cpps_programs_is_known(flag):
    run = FLAGS[list(COMMANDS).index("run")] | {"-h", "--help"}
    unknown = [name for name in flag["names"] if name not in run and not is_explained(name)]
    assert not unknown or PROGRAMS.isdisjoint(flag["programs"])


def test_the_advice_names_flags_of_gen_serve_that_exist():
    serve = FLAGS[list(COMMANDS).index("serve")]
    for row in llama_cpp_flags():
        assert "not a server" not in row.advice
        if row.advice == "use gen serve, which has this flag":
            assert set(row.names) <= serve
        assert set(re.findall(r"gen serve (-[-\w]+)", row.advice)) <= serve


def test_every_flag_of_the_table_is_one_of_llama_cpps():
    names = {name for flag in RECORDED for name in flag["names"]} | FORMER | KEYS
    patterns = [pattern for row in llama_cpp_flags() for pattern in row.names]
    assert [text for text in patterns if not any(is_named_by(text, name) for name in names)] == []


def test_a_beginning_of_foreign_names_is_none_of_a_flag_here():
    beginnings = [text for row in EXPLAINED for text in row.names if text.endswith("*")]
    own = set.union(*FLAGS)
    assert [(text, name) for text in beginnings for name in own if is_named_by(text, name)] == []


FOREIGN = {
    "x --spec-draft-threads 2": "leave it out: the draft model has the threads of -t",
    "x --spec-type ngram-mod": "use --lookup N, which guesses from the text, or -md FILE, a draft model",
    "x --mmproj-offload": "--mmproj-offload is the model part that reads images in llama.cpp; leave it out",
    "x --reasoning off": """use --chat-template-kwargs '{"enable_thinking": false}'""",
    "x --usage": "use --help",
    "x -o out.txt": "-o is the file of the text in llama.cpp; use > FILE",
    "-hft foo Hi": "-hft is the token for Hugging Face in llama.cpp; set HF_TOKEN, or run `hf auth login` once",
    "x --offline": "--offline is no download in llama.cpp; set HF_HUB_OFFLINE=1",
    "x -cnv": "-cnv is conversation mode in llama.cpp; use gen chat, or --chat for one answer",
    "chat --no-conversation": "--no-conversation is conversation mode off in llama.cpp; use gen run",
    "x --log_file x": "--log-file is the file of the log in llama.cpp; use -v 2> FILE",
    "x --host 0.0.0.0": "--host is the address of a server in llama.cpp; use gen serve",
    "x --api-key-file k": "--api-key-file is the keys of a server's clients in llama.cpp; use gen serve",
    "x --slots": "leave it out: gen serve always has /slots and /metrics",
    "serve --metrics": "leave it out: gen serve always has /slots and /metrics",
    "serve --alias m": "leave it out: gen serve accepts every model name in a request",
    "serve --cache-reuse 256": "use gen serve --cache-tokens N, which is on by default",
    "serve --no-cache-prompt": "use gen serve --cache-tokens N; 0 keeps nothing",
    "serve --cors-origins *": "use gen serve --cors ORIGIN",
    "serve --ssl-key-file k": "gen serve speaks plain HTTP; a reverse proxy can encrypt it",
    "serve --threads-http 4": "leave it out: gen serve has no such setting",
    "x --prompt-cache p.bin": "use gen chat --prompt-cache FILE; other commands keep no cache between runs",
    "x --draft 8": "use --spec-draft-n-max N",
    "batch x.jsonl -co on": "-co is the colors of the output in llama.cpp; leave it out",
}


@pytest.mark.parametrize(("words", "message"), FOREIGN.items())
def test_a_flag_of_llama_cpp_that_gen_lacks_says_what_to_use(gen, words, message):
    result = gen(*words.split(), code=2)
    assert message in " ".join(result.err.split())
    assert result.out == ""


OTHER_NAMES = {
    "--typical-p 0.5": "typical.p +0.5 ",
    "--sampling-seq kt": r"\[1\] temperature.t ",
    "--system-prompt hello": "system +hello ",
}


@pytest.mark.parametrize(("flags", "shown"), OTHER_NAMES.items())
def test_other_names_of_llama_cpps_flags(gen, flags, shown):
    assert re.search(shown, gen("x", *flags.split(), "--show-config").out)


def test_the_prompt_is_displayed_as_with_echo(gen):
    assert gen(PROMPT, *ONE_TOKEN, "--display-prompt").out == gen(PROMPT, *ONE_TOKEN, "--echo").out


def test_letters_of_samplers_that_there_are_not(gen):
    error = gen("x", "--sampling-seq", "kqz", code=2).err
    assert error.startswith("gen: --samplers: unknown sampler of llama.cpp 'kqz'; known: penalties, ")


def test_a_text_that_ends_at_once_says_so(gen):
    sentence = "the model ended without writing any text; --ignore-eos makes it continue"
    run = (PROMPT, "-n", "3", "--logit-bias", "2+1000", "--format")
    assert [notes(gen(*run, output_format)) for output_format in ("text", "jsonl")] == [[sentence]] * 2
    assert notes(gen(PROMPT, "-n", "0")) == []


FILES = {"g.gbnf": "--grammar-file g.gbnf", "s.json": "-jf s.json", "g.lark": "--lark-file g.lark"}


@pytest.mark.parametrize(("name", "flag"), FILES.items())
def test_a_file_as_the_name_of_a_grammar(gen, home, name, flag):
    (home / "work" / name).write_text('root ::= "a"')
    assert gen("x", "--grammar", name, code=2).err == f"gen: --grammar: {name} is a file; use {flag}\n"
