"""The code of the page about the openai package: all of it runs, and prints what the page says."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO

import pytest

from docs.tools.tour import LOGPROBS, measure_logprobs

from ..serve.gen_serve import GenServe
from .markdown import ROOT

PAGE = (ROOT / "docs" / "serve" / "openai.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
_CODE = re.compile(r"```python\n(.*?)```(?:\s+```text\n(.*?)```)?", re.DOTALL)
_COMMENT = re.compile(r"print\([^\n]*\)  # ([^\n]*)")
CASES = _CODE.findall(PAGE)


def expected_outputs():
    """Return a pattern for what each block prints: the block after it, or the comments of its lines."""
    for code, output in CASES:
        printed = output or "".join(f"{comment}\n" for comment in _COMMENT.findall(code))
        yield re.escape(printed).replace("…", ".*")


def test_the_code_was_found():
    assert len(CASES) == PAGE.count("```python") >= 7
    assert sum(map(bool, expected_outputs())) >= 5


@pytest.mark.slow
def test_the_code_prints_what_the_page_says(tmp_path):
    command = re.search(r"^\$ gen serve (.*)$", PAGE, re.MULTILINE)[1]
    with GenServe(*command.split()) as server:
        names, outputs = {}, []
        for code, _ in CASES:
            assert code.count(ADDRESS) == ("base_url" in code)
            outputs.append(StringIO())
            with redirect_stdout(outputs[-1]):
                exec(code.replace(ADDRESS, server.address), names)
        names["client"].close()
    is_the_readmes_machine = measure_logprobs(tmp_path) == json.loads(LOGPROBS.read_text())
    for (code, _), output, expected in zip(CASES, outputs, expected_outputs(), strict=True):
        printed = output.getvalue().rstrip("\n")
        if expected and is_the_readmes_machine:
            pattern = expected.removesuffix("\\\n")
            assert re.fullmatch(pattern, printed, re.DOTALL), (code, printed)
        assert bool(printed) == ("print" in code), code
