"""The Python scripts of examples/ run, and print what they promise."""

import sys

import pytest

from .conftest import EXAMPLES

EXPECTED = {
    "generate.py": ["most likely: ' a'"],
    "chat.py": ["0 of ", "64 of "],
    "batch.py": ["'The capital of France is': ' Paris", "'The sea was'", "'Once upon a time'"],
    "batch_engine.py": ["sea ended: length", "salt ended: length"],
    "score.py": ["perplexity ", "' Paris': 9", "' London': "],
    "recover.py": ["calls by top_n", "' Paris'"],
    "own_endpoint.py": ["617 calls by bisection, largest difference 0.00"],
    "chain.py": ["candidates left"],
    "batch_sampler.py": ["["],
}


def test_each_script_is_run():
    assert {path.name for path in (EXAMPLES / "python").glob("*.py")} == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_script(run, name):
    printed = run(sys.executable, str(EXAMPLES / "python" / name))
    for text in EXPECTED[name]:
        assert text in printed
