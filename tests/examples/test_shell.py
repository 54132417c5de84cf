"""The pipelines of examples/ run, and print what they promise."""

import re
import shutil

import pytest

from .conftest import EXAMPLES

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

# What follows the name of a script, and the lines that it prints.
EXPECTED = {
    "choose.sh": ([], r" Paris\t\d+ %"),
    "classify.sh": ([], r"(r\d\t(positive|negative)\n){2}r\d\t(positive|negative)"),
    "extract.sh": ([], r".*\S.*"),
    "hesitations.sh": (["The sea was", "10"], r"(\d+\t.+ \|.+\n?)*"),
    "presets.sh": (["The sea was", "4"], r"default:.*\ncreative:.*\nprecise:.*\nxtc-dry:.*"),
    "surprises.sh": (["The sea was", "8"], r"(-[\d.]+\t.*\n){4}-[\d.]+\t.*"),
}

SLOW = {"presets.sh"}  # loads the model four times


def test_each_script_is_run():
    assert {path.name for path in (EXAMPLES / "shell").glob("*.sh")} == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in EXPECTED]
)
def test_script(run, name):
    arguments, lines = EXPECTED[name]
    printed = run("bash", str(EXAMPLES / "shell" / name), *arguments)
    assert re.fullmatch(lines, printed.rstrip("\n")), printed
