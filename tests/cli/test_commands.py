"""`gen --help`, `--version`, `samplers` and `presets`."""

import json
import re
import subprocess
import sys
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


def test_help_of_run_is_grouped(gen):
    out = gen("run", "--help").out
    places = [out.index(f"─ {panel} ─") for panel in ("Prompt", "Sampling", "Length", "Model")]
    assert places == sorted(places)


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("arguments", [["--version"], ["doctor"], ["grammars", "check", "json"], ["--unknown"]])
def test_garbage_is_collected_as_before_when_the_command_is_done(environment, arguments, is_enabled):
    program = (
        f"import gc, sys\nfrom logitsmith.cli import main\ngc.{'enable' if is_enabled else 'disable'}()\n"
        "def state(): return gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()\n"
        f"before = state()\ntry: main({arguments})\nexcept SystemExit: pass\n"
        "assert state() == before, state()"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)


COLLECTED = {
    "a run": (["Hello", "-n", "1"], True),
    "a run that fails": (["Hello", "-m", "missing.gguf"], True),
    "a chat": (["chat", "--no-log"], True),
    "a batch": (["batch", "requests.jsonl", "-o", "-"], True),
    "next": (["next", "Hello"], True),
    "score": (["score", "Hello you"], True),
    "recover": (["recover", "Hello", "--dry-run"], True),
    "a basis": (["recover-basis", "-o", "basis.npz", "--vectors", "missing.npz"], True),
    "doctor": (["doctor"], True),
    "models": (["models"], True),
    "models list": (["models", "list"], True),
    "models show": (["models", "show", "missing"], True),
    "models pull": (["models", "pull", "wrong"], True),
    "grammars check": (["grammars", "check", "json"], True),
    "grammars sample": (["grammars", "sample", "json"], True),
    "inspect": (["inspect", "missing.jsonl"], True),
    "what only prints something": (["samplers"], False),
    "a wrong flag": (["Hello", "--unknown"], False),
    "a wrong value": (["Hello", "-n", "x"], False),
    "help": (["run", "--help"], False),
}


@pytest.mark.usefixtures("with_pruned_model")
@pytest.mark.parametrize(("arguments", "is_on"), COLLECTED.values(), ids=COLLECTED)
def test_garbage_is_collected_while_a_command_works(environment, home, arguments, is_on):
    (home / "work" / "requests.jsonl").write_text('{"prompt": "Hello", "max_tokens": 1}\n')
    program = (
        "import gc, sys\nfrom logitsmith.cli import main\ndefaults = gc.get_threshold()\nruns = []\n"
        "before = gc.get_freeze_count()  # Python 3.12 begins with some\n"
        "gc.callbacks.append(lambda phase, info: runs.append(gc.get_freeze_count() > before))\n"
        f"sys.argv[1:] = {arguments}\ntry: main()\nexcept SystemExit: pass\n"
        "print(f'\\n{gc.isenabled()}', gc.get_freeze_count() > before, all(runs), gc.get_threshold() == defaults)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="Hello\n" if "chat" in arguments else "",
        capture_output=True,
        text=True,
        cwd=home / "work",
        env=environment,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{is_on} {is_on} True True"


def test_an_interrupt_while_the_command_is_being_imported(environment):
    program = (
        "import sys\nfrom logitsmith.cli import main\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'logitsmith.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\nmain(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


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


def test_sampler_by_alias_and_ranges(gen):
    assert gen("samplers", "Top-P").out == gen("samplers", "nucleus").out
    assert "0..1" in gen("samplers", "top_p").out
    assert "include or exclude" in gen("samplers", "top_p").out


@pytest.mark.parametrize("name", [name for name, cls in catalogue().items() if cls.about.main_parameter])
def test_the_example_of_a_preset_is_read_as_the_value_that_it_shows(gen, name):
    cls = catalogue()[name]
    (shown,) = re.findall(r"^in a preset: (.*)$", gen("samplers", name).out, re.MULTILINE)
    default = cls.model_fields[cls.about.main_parameter].get_default(call_default_factory=True)
    assert parse_yaml_scalar(shown) == {name: default if cls.about.example is None else cls.about.example}


def test_lists_are_shown_as_a_preset_writes_them(gen):
    assert r'["\n", ":", "\"", "*"]' in gen("samplers", "dry").out


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
    "--samplers top_k;temperature --top-p 0.5": "--top-p has no effect: --samplers leaves its sampler out",
    "--samplers top_k --set min_p.p=0.2": "--set min_p.p has no effect: --samplers leaves its sampler out",
    "--mirostat 2 --top-k 5": "--top-k has no effect: --mirostat leaves its sampler out",
    "--mirostat 2 --top-k 0": "",
    "--dry-base 1.5": "--dry-base has no effect: dry is off, with multiplier 0",
    "--set xtc.threshold=0.2": "--set xtc.threshold has no effect: xtc is off, with probability 0",
    "--repeat-last-n 64": (
        "--repeat-last-n has no effect: penalties is off, with repeat 1 and frequency 0 and presence 0"
    ),
    "--dynatemp-exp 2": "--dynatemp-exp has no effect: dynatemp has range 0",
    "--dynatemp-exp 2 --temp 1": "--dynatemp-exp has no effect: dynatemp has range 0",
    "--dynatemp-exp 2 --dynatemp-range 0": "",
    "--dynatemp-exp 2 --dynatemp-range 0.5": "",
    "--dry-base 1.5 --dry-multiplier 0": "",
    "--dry-base 1.5 --dry-multiplier 0.8": "",
    "--repeat-last-n 64 --presence-penalty 0.1": "",
    "--top-k 0": "",
    "--temp 1": "",
    "--mirostat 2 --temp 0.5 --logit-bias 5+1": "",
    "--samplers top_p;top_k --top-p 0.5 --top-k 7": "",
}


@pytest.mark.parametrize(("flags", "note"), IGNORED_FLAGS.items())
def test_a_flag_whose_sampler_is_left_out_is_named(gen, flags, note):
    result = gen("x", *flags.split(), "--show-config")
    assert result.err == (f"gen: note: {note}\n" if note else "")


LLAMA_CPPS_FLAGS = {
    "--mirostat 2 --mirostat-ent 3 --mirostat-lr 0.2 --top-k 5": ["tau +3 ", "eta +0.2 ", "mirostat_v2"],
    "--mirostat 0 --mirostat-ent 3": [r"\] dist"],
    "--adaptive-target 0.3 --adaptive-decay 0.5": ["adaptive_p.target +0.3 ", "decay +0.5 "],
    "--samplers top_p;top_k --top-k 7": [r"\[1\] top_k.k +7 "],
    r"--dry-multiplier 1 --dry-sequence-breaker x --dry-sequence-breaker \n": [r'breakers +\["x", "\\n"\] '],
    "--dry-multiplier 1 --dry-sequence-breaker x --dry-sequence-breaker none": [r"breakers +none "],
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
    rules = {"bans", "ban_retries", "ban_then", "loop_guard", "phases", "heal", "guidance"}
    settings = {"description", "chain", "seed", "max_tokens", "stop", "system", "grammar"}
    assert set(schema["properties"]) == settings | rules


def test_without_arguments_at_a_terminal_there_is_help(environment):
    import os
    import pty

    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "logitsmith.cli"],
        stdin=follower,
        capture_output=True,
        env=environment,
        check=False,
    )
    os.close(leader)
    os.close(follower)
    assert b"gen --chat" in done.stdout + done.stderr


def test_help_shows_the_defaults_that_are_words(gen):
    out = gen("run", "--help").out
    assert all(default in out for default in ("[same as -t]", "[text]", "[root]"))


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
