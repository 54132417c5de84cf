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


def test_keep_alone_has_no_effect_and_says_so(gen):
    assert notes(gen(PROMPT, *ONE_TOKEN, "--keep", "4")) == ["--keep has no effect without --context-shift"]
    assert notes(gen(PROMPT, *ONE_TOKEN, "--keep", "4", "--context-shift")) == []


GPU_FLAGS = (
    "-ngl 99",
    "-ngl all",
    "-cmoe",
    "-ncmoe 3",
    "-mg 0",
    "--main-gpu 1 --split-mode row",
    "-ts 3/1 -sm none",
)


@pytest.mark.parametrize("flags", GPU_FLAGS)
def test_flags_of_gpus_say_once_that_there_is_none(gen, flags):
    if pytest.importorskip("logitsmith.engine.native.devices").has_gpus():
        pytest.skip("there is a GPU")
    result = gen(PROMPT, *ONE_TOKEN, *flags.split())
    assert len(notes(result)) == 1
    assert "GPU" in notes(result)[0]
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


@pytest.mark.parametrize("words", ["--color always", "--color never", "--color auto", ""])
def test_a_prompt_is_colored_only_where_that_is_asked_for(gen, words):
    out = gen(PROMPT, *ONE_TOKEN, "--echo", *words.split()).out
    assert out.startswith(YELLOW_PROMPT if "always" in words else PROMPT)


REFUSED = {
    "--in-prefix a --chat": "--in-prefix",
    "--in-suffix a --system b": "--in-suffix",
    "--in-prefix a --chat-template chatml": "--chat-template",
    "--in-suffix a --format openai-chat": "--format openai-chat",
    "--color always --format jsonl": "--color",
    "--keep -2": "--keep: -2",
    "-ts a,b": "-ts: 'a,b'",
    "-ts 0,0": "-ts: '0,0'",
    "-mg -2": "-mg: -2 is not within -1..",
    "-sm both": "'--split-mode'",
    "-fa 2": "'2' is not on, off or auto",
    "--color yes": "'yes' is not auto, always, never, on or off",
    "--numa mirror": "'--numa'",
    "--sampling-seq kqz": "--samplers: unknown sampler",
}


@pytest.mark.parametrize(("flags", "named"), REFUSED.items())
def test_what_is_refused(gen, flags, named):
    result = gen("x", *flags.split(), code=2)
    assert named in " ".join(result.err.replace("│", "").split())
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
    "x --spec-type ngram-mod": "--lookup N",
    "x -o out.txt": "> FILE",
    "-hft foo Hi": "HF_TOKEN",
    "x -cnv": "gen chat",
    "chat -st": "gen run",
    "x -np 4": "gen batch -np N",
    "x --log_file x": "-v 2> FILE",
    "x --host 0.0.0.0": "gen serve",
    "serve --cache-reuse 256": "gen serve --cache-tokens N",
    "batch x.jsonl -co on": "leave it out",
}
"""Command lines with a flag of llama.cpp that the command lacks, and what is to be used instead."""


@pytest.mark.parametrize(("words", "advice"), FOREIGN.items())
def test_a_flag_of_llama_cpp_that_gen_lacks_says_what_to_use(gen, words, advice):
    result = gen(*words.split(), code=2)
    assert advice in " ".join(result.err.split())
    assert result.out == ""


OTHER_NAMES = {
    "--typical-p 0.5": "typical.p +0.5 ",
    "--sampling-seq kt": r"\[1\] temperature.t ",
    "--system-prompt hello": "system +hello ",
}


@pytest.mark.parametrize(("flags", "shown"), OTHER_NAMES.items())
def test_other_names_of_llama_cpps_flags(gen, flags, shown):
    assert re.search(shown, gen("x", *flags.split(), "--show-config").out)


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
