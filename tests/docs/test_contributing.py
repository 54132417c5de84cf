"""The code of CONTRIBUTING.md works, and the files that the Markdown files name are there."""

import re
from textwrap import dedent
from typing import ClassVar

import numpy as np
import pytest
from logitsmith.samplers import About, Candidates, Sampler, Stage, build
from pydantic import Field

from .markdown import FILES, ROOT, name_of, without_blocks

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FILE = re.compile(
    r"`((?:cli|common|engine|grammars|logprobs|presets|recover|samplers|tests|docs|examples)/[^`\s]*)`"
)
EXAMPLE_NAMES = {"samplers/methods/top_m.py", "tests/samplers/test_top_m.py", "presets/NAME.yaml"}


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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_that_are_named_exist(path):
    for name in FILE.findall(without_blocks(path.read_text())):
        if name not in EXAMPLE_NAMES and not set(name) & set("*<{ "):
            known = (ROOT / name).exists() or (ROOT / "cli" / name).exists() or (path.parent / name).exists()
            assert known, name
