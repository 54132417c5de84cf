"""The code of CONTRIBUTING.md works, and the files that the Markdown files name are there."""

import json
import re
from io import StringIO
from textwrap import dedent, indent
from typing import ClassVar

import httpx
import numpy as np
import pytest
import typer
from logitsmith import recover
from logitsmith.cli.inputs.settings import overrides
from logitsmith.cli.options import output, sampling
from logitsmith.cli.options.signature import takes_options
from logitsmith.logprobs import Distribution
from logitsmith.presets import load_preset, resolve_settings
from logitsmith.recover.transport.api_client import ApiClient
from logitsmith.samplers import About, Candidates, Sampler, Stage, build
from pydantic import Field
from typer.testing import CliRunner

from .markdown import FILES, ROOT, name_of, without_blocks

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FILE = re.compile(
    r"`((?:cli|common|engine|grammars|logprobs|presets|recover|samplers|tests|docs|examples)/[^`\s]*)`"
)
EXAMPLE_NAMES = {
    "samplers/methods/top_m.py",
    "tests/samplers/test_top_m.py",
    "presets/NAME.yaml",
    "cli/render/tsv.py",
    "recover/endpoints/acme.py",
    "tests/recover/test_acme.py",
    "tests/cli/test_tsv.py",
}


def block(beginning):
    """The Python block that begins so, without its indentation."""
    return dedent(re.search(rf"```python\n( *{re.escape(beginning)}.*?) *```", CONTRIBUTING, re.DOTALL)[1])


def test_the_sampler_works():
    source = block("class TopM")
    names = {
        "About": About,
        "Candidates": Candidates,
        "ClassVar": ClassVar,
        "Field": Field,
        "Sampler": Sampler,
        "Stage": Stage,
    }
    exec(source, names)
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert build([names["TopM"](m=1.0)]).apply(logits).ids.tolist() == [0, 1]
    assert build([names["TopM"](m=0.0)]).apply(logits).ids.tolist() == [0, 1, 2, 3]


def test_the_flag_works():
    names = dict(vars(sampling))
    field = block("top_h: float")
    exec(f"@options_class\nclass Flags(SamplingOptions):\n{indent(field, '    ')}", names)
    app, seen = typer.Typer(), []
    app.command()(takes_options(names["Flags"])(seen.append))
    assert "--top-h" in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["--top-h", "0.4", "--temp", "0.5"]).exit_code == 0
    (override,) = (override for override in overrides(seen[0]) if override.origin == "--top-h")
    (step,) = (
        step
        for step in resolve_settings(load_preset("default"), flags=[override]).steps
        if step.sampler.about.name == "top_h"
    )
    assert step.sampler.h == 0.4


def test_the_format_works():
    from logitsmith.engine import Done, Timings, Token

    names = {"__package__": "logitsmith.cli.render"}
    exec(f"from __future__ import annotations\n{block('def render(')}", names)
    distributions = (Distribution("model", -0.5, ()),)
    token = Token(0, 42, b" sea", " sea", special=False, distributions=distributions)
    done = Done("length", None, " sea", "", None, 3, 1, 0, None, None, Timings(0.1, 0.1, 0.01, 0.0))
    out = StringIO()
    assert names["render"]([token, done], out) is done
    assert out.getvalue() == "42\t-0.500000\t' sea'\n"


def test_what_is_done_for_a_format_is_there():
    assert isinstance(output.Format.jsonl, str)
    assert output.Format.jsonl in output._WHY_NOT_STREAMED
    assert "if options.format is Format.jsonl:" in (ROOT / "cli" / "commands" / "run.py").read_text()
    assert "LLAMA_CPPS_FLAGS" in (ROOT / "tests" / "cli" / "test_commands.py").read_text()


def test_the_groups_of_flags_are_where_the_table_says():
    rows = re.findall(r"^\| ((?:`\w+Options`(?:, )?)+) \| `(cli/options/\w+\.py)`", CONTRIBUTING, re.MULTILINE)
    assert len(rows) == 7
    for groups, path in rows:
        source = (ROOT / path).read_text()
        assert all(f"class {group}(" in source for group in re.findall(r"\w+Options", groups)), path


def test_the_endpoint_works():
    source = block("class AcmeEndpoint")
    names = {**vars(recover), "ApiClient": ApiClient}
    exec("from __future__ import annotations\n" + source, names)
    endpoint = names["AcmeEndpoint"]("http://a", 4, window=2, options=recover.HttpOptions())
    logits = np.array([1.0, 0.0, -1.0, -2.0])

    def answer(request):
        biased = logits.copy()
        for token, bias in json.loads(request.content)["bias"]:
            biased[token] += bias
        logprobs = biased - np.log(np.exp(biased).sum())
        top = [[int(token), float(logprobs[token])] for token in np.argsort(-logprobs)[:2]]
        return httpx.Response(200, json={"next": {"token": top[0][0], "top": top}})

    endpoint._http = ApiClient("http://a", recover.HttpOptions(), httpx.MockTransport(answer))
    found = recover.recover(endpoint, "x")
    assert found.complete
    assert np.abs(found.logprobs - (logits - np.log(np.exp(logits).sum()))).max() < 1e-9


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_that_are_named_exist(path):
    for name in FILE.findall(without_blocks(path.read_text())):
        if name not in EXAMPLE_NAMES and not set(name) & set("*<{ "):
            known = (ROOT / name).exists() or (ROOT / "cli" / name).exists() or (path.parent / name).exists()
            assert known, name
