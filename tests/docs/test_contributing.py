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
import typer
from logitsmith.cli.command_line import GenCommand
from logitsmith.cli.command_options import takes_options
from logitsmith.cli.inputs.overrides import flag_overrides
from logitsmith.cli.options import output, sampling
from logitsmith.logprobs import Distribution
from logitsmith.presets import load_preset, resolve_settings
from logitsmith.samplers import build, catalogue
from typer.testing import CliRunner

from ..recover.conftest import api
from .markdown import FILES, ROOT, name_of, without_blocks
from .test_counts import number_in_words

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
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
    exec(block('"""Top-m'), names)
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert build([names["TopM"](m=1.0)]).apply(logits).ids.tolist() == [0, 1]
    assert build([names["TopM"](m=0.0)]).apply(logits).ids.tolist() == [0, 1, 2, 3]


def test_the_flag_works():
    names = dict(vars(sampling))
    field = block("top_h: float")
    exec(f"@dataclass(frozen=True, kw_only=True)\nclass Flags(SamplingOptions):\n{indent(field, '    ')}", names)
    app, seen = typer.Typer(), []
    app.command(cls=GenCommand)(takes_options(names["Flags"])(seen.append))
    assert "--top-h" in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["--top-h", "0.4", "--temp", "0.5"]).exit_code == 0
    (override,) = (override for override in flag_overrides(seen[0]) if override.origin == "--top-h")
    (step,) = (
        step
        for step in resolve_settings(load_preset("default"), flags=[override]).steps
        if step.sampler.about.name == "top_h"
    )
    assert step.sampler.h == 0.4


def test_the_format_works():
    from logitsmith.engine import Done, Timings, Token

    names = {"__package__": "logitsmith.cli.render"}
    exec(block('"""A run as a table'), names)
    distributions = (Distribution("model", -0.5, ()),)
    token = Token(0, 42, b" sea", " sea", is_control=False, distributions=distributions)
    done = Done("length", None, " sea", "", None, 3, 1, 0, None, None, Timings(0.1, 0.1, 0.01, 0.0))
    out = StringIO()
    assert names["render"]([token, done], out) is done
    assert out.getvalue() == "42\t' sea'\n"


def test_what_is_done_for_a_format_is_there():
    assert isinstance(output.Format.jsonl, str)
    assert set(output.FORMATS) == set(output.Format)
    assert "case Format.jsonl:" in (ROOT / "cli" / "render" / "answers.py").read_text()
    assert "LLAMA_CPPS_FLAGS" in (ROOT / "tests" / "cli" / "test_commands.py").read_text()


def test_the_groups_of_flags_are_where_the_table_says():
    rows = re.findall(r"^\| ((?:`\w+Options`(?:, )?)+) \| `(cli/options/\w+\.py)`", CONTRIBUTING, re.MULTILINE)
    assert len(rows) == 13
    for groups, path in rows:
        source = (ROOT / path).read_text()
        assert all(f"class {group}(" in source for group in re.findall(r"\w+Options", groups)), path


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
    """`gen` after the walk-throughs of a format and of an endpoint, in a copy of the rooms that they change."""
    tree = tmp_path_factory.mktemp("extended")
    package = tree / "logitsmith"
    package.mkdir()
    shutil.copy(ROOT / "src" / "logitsmith" / "__init__.py", package)
    for room in ("common", "engine", "grammars", "logprobs", "models", "presets", "samplers"):
        (package / room).symlink_to(ROOT / room)
    for room in ("cli", "recover"):
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))

    def insert(path, before, text):
        source = (package / path).read_text()
        assert source.count(before) == 1, (path, before)
        (package / path).write_text(source.replace(before, text + before))

    def replace(path, old, new):
        insert(path, old, "")
        (package / path).write_text((package / path).read_text().replace(old, new))

    (package / "cli/render/tsv.py").write_text(block('"""A run as a table'))
    replace("cli/options/output.py", 'jsonl = "jsonl"\n', 'jsonl = "jsonl"\n    tsv = "tsv"\n')
    insert("cli/options/output.py", "    Format.openai: ", f"    {block('Format.tsv: ')}")
    insert(
        "cli/render/answers.py",
        "            case Format.jsonl:",
        indent(block("case Format.tsv:"), "            "),
    )
    (package / "recover/endpoints/acme.py").write_text(block('"""Acme\'s API'))
    exported = re.search(r"\*\*Export it\*\* in .*?: `(.*?)`.*?`(.*?)`", CONTRIBUTING, re.DOTALL).groups()
    insert("recover/__init__.py", "    from .endpoints.base import", f"    {exported[0]}\n")
    insert("recover/__init__.py", '        ".endpoints.base": ', f"        {exported[1]},\n")
    replace("cli/commands/recover.py", 'openai = "openai"\n', 'openai = "openai"\n    acme = "acme"\n')
    flag_of_servers = "limit=at_least(1),\n        required_companions=Api.llama_server.as_flag,\n"
    wider = f"limit=at_least(1),\n        {block('required_companions=')}"
    replace("cli/commands/recover.py", flag_of_servers, wider)
    insert("cli/commands/recover.py", "def _read_token_bytes(", f"{block('def _acme')}\n\n")
    insert("cli/commands/recover.py", "    Api.openai: ApiCommandLine", f"    {block('Api.acme: ')}")

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", "from logitsmith.cli import main; main()", *arguments],
            check=False,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200", "ACME_KEY": "secret"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


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


@pytest.mark.parametrize("flags", [("--logprobs", "3"), ("--logprob-of", "a"), ("--echo",), ("--stream",)])
def test_the_format_refuses_what_it_has_no_room_for(gen_as_extended, flags):
    done = gen_as_extended("run", "x", "--format", "tsv", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert flags[0] in done.stderr


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

    (tree / "samplers" / "methods" / "top_m.py").write_text(block('"""Top-m'))
    case, brute = re.findall(r'^ *("top_m": .*)$', CONTRIBUTING, re.MULTILINE)
    edit("tests/samplers/test_notes.py", r"(?m)^CASES = \{$", f"CASES = {{\n    {case}")
    edit("tests/oracle/test_trace.py", r"(?m)^BRUTE = \{$", f"BRUTE = {{\n    {brute}")
    for path in ("README.md", "docs/index.md"):
        present, increased = (number_in_words(len(catalogue()) + new).capitalize() for new in (0, 1))
        edit(path, f"{present} samplers", f"{increased} samplers")
    run("tools/sampler_names.py")
    run("-m", "tests.record_screens")
    assert "top_m" in (tree / "tests" / "screens" / "gen_samplers.80.txt").read_text()
    run("-m", "ruff", "check", "samplers/methods/top_m.py")
    run("-m", "ruff", "format", "--check", "samplers/methods/top_m.py")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", *catalogue_walks())


def test_the_walk_throughs_record_the_screens_that_they_change():
    parts = re.split(r"(?m)^## ", CONTRIBUTING)
    walks = {part.partition("\n")[0]: part for part in parts if part.startswith("Add a")}
    for title in ("Add a sampler", "Add a flag", "Add an output format", "Add an endpoint"):
        assert "python -m tests.record_screens" in walks[title], title


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_that_are_named_exist(path):
    for name in FILE.findall(without_blocks(path.read_text())):
        if name not in EXAMPLE_NAMES and not set(name) & set("*<{ "):
            places = (ROOT / name, ROOT / f"{name}.py", ROOT / "cli" / name, path.parent / name)
            known = any(place.exists() for place in places)
            assert known, name
