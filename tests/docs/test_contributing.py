"""The code of CONTRIBUTING.md works, and the files that the Markdown files name are there."""

import json
import re
from textwrap import dedent
from typing import ClassVar

import httpx
import numpy as np
import pytest
from logitsmith import recover
from logitsmith.recover.transport.api_client import ApiClient
from logitsmith.samplers import About, Candidates, Sampler, Stage, build
from pydantic import Field

from .markdown import FILES, ROOT, name_of, without_blocks

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FILE = re.compile(
    r"`((?:cli|common|engine|grammars|logprobs|presets|recover|samplers|tests|docs|examples)/[^`\s]*)`"
)
EXAMPLE_NAMES = {"samplers/methods/top_m.py", "tests/samplers/test_top_m.py", "presets/NAME.yaml"} | {
    "recover/endpoints/acme.py",
    "tests/recover/test_acme.py",
}


def test_the_sampler_works():
    source = dedent(re.search(r" *```python\n( *class TopM.*?) *```", CONTRIBUTING, re.DOTALL)[1])
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


def test_the_endpoint_works():
    source = dedent(re.search(r" *```python\n( *class AcmeEndpoint.*?) *```", CONTRIBUTING, re.DOTALL)[1])
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
