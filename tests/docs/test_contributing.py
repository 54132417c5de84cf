"""The code of CONTRIBUTING.md works, and the files that the Markdown files name are there."""

import json
import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from textwrap import dedent, indent

import numpy as np
import pytest
from logitsmith.cli.options import output
from logitsmith.logprobs import Distribution
from logitsmith.samplers import build, catalogue

from ..recover.conftest import api
from .markdown import FILES, ROOT, name_of, without_blocks
from .test_counts import number_in_words

EXAMPLES = ROOT / "examples" / "contributing"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text() + (EXAMPLES / "README.md").read_text()
FILE = re.compile(
    r"`((?:cli|chats|cluster|common|compare|engine|grammars|jobs|logprobs|models|presets|recover|request|samplers|serve|tests|docs|examples)/[^`\s]*)`"
)
EXAMPLE_NAMES = {
    "samplers/methods/top_m.py",
    "tests/samplers/test_top_m.py",
    "presets/NAME.yaml",
    "cli/render/tsv.py",
    "recover/endpoints/acme.py",
    "tests/recover/test_acme.py",
    "tests/cli/test_tsv.py",
    "samplers/methods/NAME.py",
    "models/x.gguf",
}


def block(beginning):
    """The Python block that begins so, without its indentation."""
    return dedent(re.search(rf"```python\n( *{re.escape(beginning)}.*?) *```", CONTRIBUTING, re.DOTALL)[1])


def test_the_sampler_works():
    names = {"__package__": "logitsmith.samplers.methods", "__name__": "logitsmith.samplers.methods.top_m"}
    exec((EXAMPLES / "top_m.py").read_text(), names)
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert build([names["TopM"](m=1.0)]).apply(logits).ids.tolist() == [0, 1]
    assert build([names["TopM"](m=0.0)]).apply(logits).ids.tolist() == [0, 1, 2, 3]


def test_the_format_works():
    from logitsmith.engine import Done, Timings, Token

    names = {"__package__": "logitsmith.cli.render"}
    exec((EXAMPLES / "tsv.py").read_text(), names)
    distributions = (Distribution("model", -0.5, ()),)
    token = Token(0, 42, b" sea", " sea", is_control=False, distributions=distributions)
    done = Done("length", None, " sea", "", None, 3, 1, 0, None, None, Timings(0.1, 0.1, 0.01, 0.0))
    out = StringIO()
    assert names["render"]([token, done], out) is done
    assert out.getvalue() == "42\t' sea'\n"


def test_what_is_done_for_a_format_is_there():
    assert isinstance(output.Format.jsonl, str)
    assert set(output.FORMATS) == set(output.Format)
    assert "elif output.format is Format.jsonl:" in (ROOT / "cli" / "render" / "answers.py").read_text()
    assert "LLAMA_CPPS_FLAGS" in (ROOT / "tests" / "cli" / "test_commands.py").read_text()


ACME_LOGITS = np.array([1.0, 0.0, -1.0, -2.0])


def answer_of_acme(path, body, headers):
    biased = ACME_LOGITS.copy()
    for token, bias in body["bias"]:
        biased[token] += bias
    logprobs = biased - np.log(np.exp(biased).sum())
    top = [[int(token), float(logprobs[token])] for token in np.argsort(-logprobs)[:2]]
    return 200, {"next": {"token": top[0][0], "top": top}}, {}


@pytest.fixture(scope="module")
def gen_as_extended(tmp_path_factory):
    """`gen` after the walk-throughs except that of a sampler, in a copy of the rooms that they change."""
    tree = tmp_path_factory.mktemp("extended")
    package = tree / "logitsmith"
    package.mkdir()
    shutil.copy(ROOT / "src" / "logitsmith" / "__init__.py", package)
    changed = ("cli", "engine", "presets", "recover")
    for room in (ROOT / "src" / "logitsmith").iterdir():
        if room.name in changed:
            shutil.copytree(room, package / room.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif room.is_dir():
            (package / room.name).symlink_to(room.resolve())

    def insert(path, before, text):
        source = (package / path).read_text()
        assert source.count(before) == 1, (path, before)
        (package / path).write_text(source.replace(before, text + before))

    def replace(path, old, new):
        insert(path, old, "")
        (package / path).write_text((package / path).read_text().replace(old, new))

    insert("presets/setting_table.py", '    Setting(\n        "guidance",\n', indent(block("Setting("), "    "))
    insert("engine/text_rules.py", "    guidance: Guidance | None", indent(block("one_line: bool"), "    "))
    stream = "        self._stream = TextStream("
    insert("engine/generation.py", stream, indent(block("if request.rules.one_line"), "        "))
    name = indent(block('"freq_penalty"'), " " * 12)
    insert("presets/parameter_names.py", '            "frequency_penalty": "', name)
    name = indent(block('"output_length"'), " " * 12)
    insert("presets/setting_table.py", '            "max_new_tokens": "', name)
    insert("presets/parameter_names.py", '            "logit_bias": "', '            "token_bias": "clients",\n')
    replace("presets/parameter_names.py", '{"rep_pen_slope": "', '{"penalty_slope": "clients", "rep_pen_slope": "')
    insert("presets/parameter_names.py", '    _more("--mirostat-lr"', indent(block("_more("), "    "))
    shutil.copy(EXAMPLES / "tsv.py", package / "cli/render")
    replace("cli/options/output.py", 'jsonl = "jsonl"\n', 'jsonl = "jsonl"\n    tsv = "tsv"\n')
    insert("cli/options/output.py", "    Format.openai: ", f"    {block('Format.tsv: ')}")
    insert(
        "cli/render/answers.py",
        "        elif output.format is Format.jsonl:",
        indent(block("elif output.format is Format.tsv:"), "        "),
    )
    shutil.copy(EXAMPLES / "acme.py", package / "recover/endpoints")
    exported = re.search(r"\*\*Export it\*\* in\s+`.*?`: `(.*?)`.*?`(.*?)`", CONTRIBUTING, re.DOTALL).groups()
    insert("recover/__init__.py", "    from .endpoints.base import", f"    {exported[0]}\n")
    insert("recover/__init__.py", '        ".endpoints.base": ', f"        {exported[1]},\n")
    replace("cli/commands/recover.py", 'openai = "openai"\n', 'openai = "openai"\n    acme = "acme"\n')
    flag_of_servers = "limit=at_least(1),\n        required_companions=Api.llama_server.as_flag,\n"
    wider = f"limit=at_least(1),\n        {block('required_companions=')}"
    replace("cli/commands/recover.py", flag_of_servers, wider)
    insert("cli/commands/recover.py", "def _read_token_bytes(", f"{block('def _acme')}\n\n")
    insert("cli/commands/recover.py", "    Api.openai: ApiCommandLine", f"    {block('Api.acme: ')}")

    def run(*arguments, program="from logitsmith.cli import main; main()", **variables):
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            check=False,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200", "ACME_KEY": "secret", **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def shown_setting(gen, name, *words):
    """The value and the origin of a setting, as `--show-config` prints them."""
    done = gen("run", "x", "--show-config", *words)
    assert done.returncode == 0, done.stderr
    rows = (re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines())
    return next(row[1:] for row in rows if row[0].endswith(name))


@pytest.mark.slow
def test_the_setting_is_taken_by_the_command_line_and_by_presets(gen_as_extended, tmp_path):
    preset = tmp_path / "mine.yaml"
    preset.write_text("one_line: true\n")
    assert shown_setting(gen_as_extended, "one_line", "--one-line") == ["true", "--one-line"]
    assert shown_setting(gen_as_extended, "one_line", "--set", "one_line=true") == ["true", "--set one_line"]
    assert shown_setting(gen_as_extended, "one_line", "-P", str(preset)) == ["true", "preset mine"]
    for command in ("run", "batch", "chat", "serve", "compare"):
        assert "--one-line" in gen_as_extended(command, "--help").stdout
    assert "End the text before its first line break." in gen_as_extended("run", "--help").stdout
    (listed,) = json.loads(gen_as_extended("settings", "one_line", "--format", "json").stdout)
    assert (listed["kind"], listed["flags"]) == ("true or false", ["--one-line"])
    schema = json.loads(gen_as_extended("presets", "schema").stdout)
    assert schema["properties"]["one_line"]["description"] == "whether the text ends before its first line break"
    assert "--one-line" in gen_as_extended("run", "--one-lin").stderr


READ_FIELDS = """
import sys
from logitsmith.requests.fields import ChatFields, read_body, read_settings
fields, unused = read_body(ChatFields, eval(sys.argv[1]), is_strict=True)
print([(override.target, override.value) for override in read_settings(fields, [])], unused)
"""


@pytest.mark.slow
def test_the_setting_is_a_field_of_requests(gen_as_extended):
    request = {"messages": [{"role": "user", "content": "x"}], "one_line": True}
    read = gen_as_extended(str(request), program=READ_FIELDS)
    assert read.stdout == "[('one_line', True)] []\n", read.stderr
    wrong = gen_as_extended(str({**request, "one_line": "yes"}), program=READ_FIELDS)
    assert "one_line: 'yes' is not true or false" in wrong.stderr


@pytest.mark.slow
def test_the_setting_does_what_it_says(gen_as_extended, pruned_model, tmp_path):
    two_lines = ("--regex", "one\\ntwo", "-m", str(pruned_model))
    assert gen_as_extended("run", "x", *two_lines).stdout == "one\ntwo"
    assert gen_as_extended("run", "x", *two_lines, "--one-line").stdout == "one"
    recorded = gen_as_extended("run", "x", *two_lines, "--one-line", "--format", "jsonl").stdout
    assert '"one_line":true' in recorded.replace(" ", "")
    requests = tmp_path / "requests.jsonl"
    requests.write_text("".join(json.dumps({"prompt": "x", "one_line": value}) + "\n" for value in (True, False)))
    answers = gen_as_extended("batch", str(requests), *two_lines, "--format", "jsonl").stdout.splitlines()
    texts = {answer["id"]: answer["text"] for answer in map(json.loads, answers)}
    assert texts == {"line-1": "one", "line-2": "one\ntwo"}


READ_SAMPLERS = """
from logitsmith.presets.foreign.formats import export_preset, import_text
from logitsmith.requests.fields import PromptFields, read_body, read_settings
from logitsmith.requests.sampler_fields import read_chain_changes
request = {"prompt": "x", "freq_penalty": 0.5, "output_length": 7, "token_bias": {"5": 1}}
fields, _ = read_body(PromptFields, request, is_strict=True)
overrides = [*read_chain_changes(fields, ()).overrides, *read_settings(fields, [])]
print([(override.origin, override.target, override.value) for override in overrides])
sloped, _ = read_body(PromptFields, {"prompt": "x", "rep_pen": 1.1, "penalty_slope": 0.5}, is_strict=True)
print([(change.origin, change.target, change.value) for change in read_chain_changes(sloped, ()).overrides][-4:])
imported = import_text('{"rep_pen": 1.1, "freq_penalty": 0.5}', "preset.json", "koboldcpp")
print([params for name, params in imported.chain if name == "penalties"], imported.unsupported_settings)
print('"freq_penalty": 0.5' in export_preset(imported.preset, "koboldcpp").text)
"""


@pytest.mark.slow
def test_the_name_of_another_tool_is_known_everywhere(gen_as_extended):
    read = gen_as_extended(program=READ_SAMPLERS)
    assert read.stdout.splitlines() == [
        "[('freq_penalty', 'penalties.frequency', 0.5), ('token_bias', 'logit_bias.bias', {5: 1.0}),"
        " ('output_length', 'max_tokens', 7)]",
        "[('rep_pen', 'penalties.repeat', 1), ('rep_pen', 'repetition_penalty.penalty', 1.1),"
        " ('penalty_slope', 'repetition_penalty.slope', 0.5),"
        " ('penalty_slope', 'repetition_penalty.shape', 'halves')]",
        "[{'repeat': 1.1, 'frequency': 0.5, 'last_n': 320}] []",
        "True",
    ], read.stderr
    assert "penalties.frequency" in gen_as_extended("settings", "freq_penalty").stdout


@pytest.mark.slow
def test_the_flag_works(gen_as_extended):
    assert "--top-h" in gen_as_extended("run", "--help").stdout
    assert "Keep this share of the entropy; 0 = off." in gen_as_extended("chat", "--help").stdout
    assert shown_setting(gen_as_extended, "top_h.h", "--top-h", "0.4") == ["0.4", "--top-h"]
    assert "--top-h" in gen_as_extended("settings", "top_h.h").stdout


@pytest.mark.slow
def test_the_endpoint_works(gen_as_extended):
    with api(answer_of_acme) as url:
        asked = ("recover", "x", "--endpoint", url, "--api", "acme", "--window", "2")
        done = gen_as_extended(*asked, "--vocab-size", "4", "-o", "-")
        assert "--api acme needs --vocab-size N" in gen_as_extended(*asked).stderr
        assert "--slot is for --api llama-server" in gen_as_extended(*asked, "--slot", "0").stderr
    assert done.returncode == 0, done.stderr
    head, *tokens = map(json.loads, done.stdout.splitlines())
    assert (head["complete"], head["endpoint"]["api"]) == (True, "acme")
    logprobs = np.array([token["logprob"] for token in sorted(tokens, key=lambda token: token["id"])])
    assert np.abs(logprobs - (ACME_LOGITS - np.log(np.exp(ACME_LOGITS).sum()))).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--logprobs", "3"), ("--logprob-of", "a"), ("--echo",), ("--stream",)])
def test_the_format_refuses_what_it_has_no_room_for(gen_as_extended, flags):
    done = gen_as_extended("run", "x", "--format", "tsv", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert flags[0] in done.stderr


@pytest.mark.slow
def test_the_help_names_the_format_and_the_endpoint(gen_as_extended):
    assert "tsv: a line a token" in " ".join(gen_as_extended("run", "--help").stdout.replace("│", "").split())
    assert "llama-server or openai or acme." in gen_as_extended("recover", "--help").stdout


def catalogue_walks():
    """The test files that walk through all samplers, with those of the screens and names that samplers change."""
    files = [
        path for path in (ROOT / "tests").rglob("test_*.py") if re.search(r"\bcatalogue\(\)", path.read_text())
    ]
    more = (
        "cli/test_completion.py",
        "cli/test_screens.py",
        "docs/test_counts.py",
        "test_layering.py",
    )
    return sorted({str(path.relative_to(ROOT)) for path in files} | {f"tests/{name}" for name in more})


@pytest.mark.slow
def test_the_sampler_passes_the_tests_that_walk_through_all_samplers(tmp_path):
    left_out = ("__pycache__", ".*", "site", "dist", "build", "*.egg-info")
    shutil.copytree(ROOT, tmp_path / "tree", symlinks=True, ignore=shutil.ignore_patterns(*left_out))
    tree = tmp_path / "tree"

    def edit(path, pattern, new):
        text, count = re.subn(pattern, lambda _: new, (tree / path).read_text())
        assert count == 1, path
        (tree / path).write_text(text)

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        done = subprocess.run(
            [sys.executable, *words], check=False, cwd=tree, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    shutil.copy(EXAMPLES / "top_m.py", tree / "samplers" / "methods")
    (case,) = re.findall(r'^ *("top_m": .*)$', CONTRIBUTING, re.MULTILINE)
    edit("tests/samplers/test_notes.py", r"(?m)^CASES = \{$", f"CASES = {{\n    {case}")
    for path in ("README.md", "docs/index.md"):
        present, increased = (number_in_words(len(catalogue()) + new).capitalize() for new in (0, 1))
        edit(path, f"{present} samplers", f"{increased} samplers")
    run("tools/sampler_names.py")
    run("-m", "tests.record_screens")
    assert "top_m" in (tree / "tests" / "screens" / "gen_samplers.80.txt").read_text()
    run("-m", "ruff", "check", "samplers/methods/top_m.py")
    run("-m", "ruff", "format", "--check", "samplers/methods/top_m.py")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", *catalogue_walks())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_that_are_named_exist(path):
    for name in FILE.findall(without_blocks(path.read_text())):
        if name not in EXAMPLE_NAMES and not set(name) & set("*<{ "):
            places = (ROOT / name, ROOT / f"{name}.py", ROOT / "cli" / name, path.parent / name)
            known = any(place.exists() for place in places)
            assert known, name
