"""`gen --help`, `--version`, `samplers` and `presets`."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from logitsmith.cli.command_table import COMMANDS, load_command
from logitsmith.presets.yaml_reader import parse_yaml_scalar
from logitsmith.samplers import catalogue

from ..traced_runs import jsonl, traced_events

BUILT_IN = {path.stem for path in (Path(__file__).parents[2] / "presets" / "builtin").glob("*.yaml")}


def test_help_names_the_commands(gen):
    out = gen("--help").out
    assert out == gen("-h").out
    for word in ("Generate", "Look up", "run", "samplers", "presets"):
        assert word in out


STATE = """
import gc
from logitsmith.cli import main
gc.{change}()
def state(): return gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
before = state()
try: main({arguments})
except SystemExit: pass
assert state() == before, state()
"""


@pytest.mark.parametrize("change", ["enable", "disable"])
@pytest.mark.parametrize("arguments", [["doctor"], ["grammars", "check", "json"], ["--unknown"]], ids=str)
def test_garbage_is_collected_as_before_when_the_command_is_done(gen, arguments, change):
    gen(program=STATE.format(change=change, arguments=arguments))


WORK = """
import gc
from logitsmith.cli import main
defaults = gc.get_threshold()
runs = []
before = gc.get_freeze_count()  # Python 3.12 begins with some
gc.callbacks.append(lambda phase, info: runs.append(gc.get_freeze_count() > before))
try: main()
except SystemExit: pass
print(f"\\n{gc.isenabled()}", gc.get_freeze_count() > before, all(runs), gc.get_threshold() == defaults)
"""
AT_WORK = ["Hello -n 1", "Hello -m missing.gguf", "chat --no-log -n 1", "batch requests.jsonl -o -", "next Hello"]
AT_WORK += ["score Hello", "recover Hello --dry-run", "recover-basis -o basis.npz --vectors missing.npz", "doctor"]
AT_WORK += ["models", "models show missing", "models pull wrong", "grammars check json", "grammars sample json"]
AT_WORK += ["inspect missing.jsonl"]
ONLY_PRINTS = ["samplers", "Hello --unknown", "Hello -n x", "run --help"]


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize("words", [*AT_WORK, *ONLY_PRINTS])
def test_garbage_is_collected_while_a_command_works(gen, home, words):
    (home / "work" / "requests.jsonl").write_text('{"prompt": "Hello", "max_tokens": 1}\n')
    done = gen(*words.split(), program=WORK, stdin="Hello\n" if "chat" in words else "")
    is_on = words in AT_WORK
    assert done.out.splitlines()[-1] == f"{is_on} {is_on} True True"


INTERRUPTED = """
import signal, sys
from logitsmith.cli import app, main
def start(_): raise KeyboardInterrupt
app.start = start
main(["--help"])
"""


def test_an_interrupt_before_the_command_handles_it(gen):
    done = gen(program=INTERRUPTED, code=130)
    assert (done.out, done.err) == ("", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_all_says_what_each_command_says_of_itself(name):
    assert " ".join(load_command(name).help.split()).startswith(COMMANDS[name].summary)


def test_version_names_both(gen):
    out = gen("--version").out
    assert out == f"gen {version('logitsmith')} (llama-cpp-python {version('llama-cpp-python')})\n"


def test_samplers_lists_them_all(gen):
    out = gen("samplers").out
    for name, cls in catalogue().items():
        assert re.search(rf"^{name} .*{re.escape(cls.about.summary)}", out, re.MULTILINE)


@pytest.mark.parametrize("name", catalogue())
def test_sampler_shows_everything(gen, name):
    out = gen("samplers", name).out
    cls = catalogue()[name]
    for fact in (cls.about.formula, cls.about.reference, cls.about.llama_cpp):
        assert fact in out
    for parameter, field in cls.model_fields.items():
        assert parameter in out
        assert field.description in out


@pytest.mark.parametrize("name", [name for name, cls in catalogue().items() if cls.about.main_parameter])
def test_the_example_of_a_preset_is_read_as_the_value_that_it_shows(gen, name):
    cls = catalogue()[name]
    (shown,) = re.findall(r"^in a preset: (.*)$", gen("samplers", name).out, re.MULTILINE)
    default = cls.model_fields[cls.about.main_parameter].get_default(call_default_factory=True)
    assert parse_yaml_scalar(shown) == {name: default if cls.about.example is None else cls.about.example}


def test_presets_lists_the_built_in_ones(gen):
    out = gen("presets").out
    assert out == gen("presets", "list").out
    assert {line.split()[0] for line in out.splitlines() if line.strip()} >= BUILT_IN


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_preset_shows_and_checks(gen, name):
    shown = gen("presets", "show", name).out
    assert yaml.safe_load(shown)["description"]
    assert gen("presets", "check", name).out.startswith(f"{name}: ok (")


def test_preset_copied_and_changed_runs(gen, home):
    changed = gen("presets", "show", "creative").out + "\nmax_tokens: 3\n"
    (home / "work" / "mine.yaml").write_text(changed)
    assert gen("Hi", "-P", "./mine.yaml", "--format", "jsonl").lines[0]["max_tokens"] == 3


IGNORED_FLAGS = {
    "--samplers top_k;temperature --top-p 0.5": "--top-p",
    "--samplers top_k --set min_p.p=0.2": "--set min_p.p",
    "--mirostat 2 --top-k 5": "--top-k",
    "--dry-base 1.5": "--dry-base",
    "--set xtc.threshold=0.2": "--set xtc.threshold",
    "--repeat-last-n 64": "--repeat-last-n",
    "--dynatemp-exp 2": "--dynatemp-exp",
}
EFFECTIVE_FLAGS = [
    *("--mirostat 2 --top-k 0", "--dynatemp-exp 2 --dynatemp-range 0", "--dynatemp-exp 2 --dynatemp-range 0.5"),
    *("--dry-base 1.5 --dry-multiplier 0", "--dry-base 1.5 --dry-multiplier 0.8", "--top-k 0", "--temp 1"),
    *("--repeat-last-n 64 --presence-penalty 0.1", "--mirostat 2 --temp 0.5 --logit-bias 5+1"),
    "--samplers top_p;top_k --top-p 0.5 --top-k 7",
]


FLAGS = IGNORED_FLAGS | dict.fromkeys(EFFECTIVE_FLAGS)


@pytest.mark.parametrize(("flags", "ignored"), FLAGS.items())
def test_a_flag_whose_sampler_is_left_out_is_named(gen, flags, ignored):
    error = gen("x", *flags.split(), "--show-config").err
    assert error.count("\n") == (ignored is not None)
    assert ignored is None or error.startswith(f"gen: note: {ignored} has no effect: ")


LLAMA_CPPS_FLAGS = {
    "--mirostat 2 --mirostat-ent 3 --mirostat-lr 0.2 --top-k 5": ["tau +3 ", "eta +0.2 ", "mirostat_v2"],
    "--mirostat 0 --mirostat-ent 3": [r"\] dist"],
    "--adaptive-target 0.3 --adaptive-decay 0.5": ["adaptive_p.target +0.3 ", "decay +0.5 "],
    "--samplers top_p;top_k --top-k 7": [r"\[1\] top_k.k +7 "],
    r"--dry-multiplier 1 --dry-sequence-breaker x --dry-sequence-breaker \n": [r'breakers +\["x", "\\n"\] '],
    "--dry-multiplier 1 --dry-sequence-breaker x --dry-sequence-breaker none": [r"breakers +none "],
    "--reasoning off --reasoning-effort low": ["enable_thinking +false ", "reasoning_effort +low "],
}


@pytest.mark.parametrize(("flags", "shown"), LLAMA_CPPS_FLAGS.items())
def test_llama_cpps_flags_for_the_chain(gen, flags, shown):
    out = gen("x", "--show-config", *flags.split()).out
    for pattern in shown:
        assert re.search(pattern, out), pattern


def test_two_flags_that_name_the_chain_are_refused(gen):
    assert (
        "--chain and --mirostat both choose the samplers"
        in gen("x", "--chain", "temp1", "--mirostat", "1", code=2).err
    )


def test_schema_is_json(gen):
    schema = json.loads(gen("presets", "schema").out)
    rules = {"bans", "ban_retries", "ban_then", "loop_guard", "phases", "heal", "guidance", "field_confidence"}
    switches = {"enable_thinking", "reasoning_effort"}
    settings = {"description", "chain", "seed", "max_tokens", "stop", "system", "grammar"}
    story = {"memory", "authors_note", "world_info"}
    assert set(schema["properties"]) == settings | rules | switches | story


COMMANDS_WITH_TABLES = {
    "samplers": "samplers",
    "a sampler": "samplers dry",
    "presets": "presets",
    "grammars": "grammars",
    "models": "models",
    "a model": "models show pruned.gguf",
    "doctor": "doctor",
    "settings": "run x --show-config",
    "the next token": "next x --against creative",
    "a run": "inspect run.jsonl",
    "the tokens of a run": "inspect run.jsonl --top 2",
    "a trace": "inspect run.jsonl --token 3",
    "a score": "score Once",
    "choices": "score x --choices a --choices longer",
    "a recovery": "recover x --window 5 --top 3",
}


@pytest.mark.parametrize("words", COMMANDS_WITH_TABLES.values(), ids=COMMANDS_WITH_TABLES)
@pytest.mark.usefixtures("with_pruned_model")
def test_what_goes_into_a_pipe_has_no_trailing_blanks(gen, home, pruned_model, words):
    (home / "work" / "run.jsonl").write_text(jsonl(traced_events(12)))
    (home / "work" / "pruned.gguf").symlink_to(pruned_model)
    lines = gen(*words.split()).out.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []
