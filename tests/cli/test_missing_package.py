"""A package that is not installed: one sentence from any command that needs it."""

import subprocess
import sys

import pytest

MISSING = "import sys; sys.modules[{module!r}] = None; from logitsmith.cli import main; main({arguments!r})"


@pytest.mark.parametrize(
    ("module", "package", "arguments"),
    [
        ("numpy", "numpy", ["doctor"]),
        ("numpy", "numpy", ["samplers"]),
        ("yaml", "pyyaml", ["presets", "check", "creative"]),
    ],
)
def test_one_sentence_names_the_package(environment, home, module, package, arguments):
    code = MISSING.format(module=module, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=home / "work",
        env=environment,
        check=False,
    )
    assert done.stderr == f"gen: the Python package {package} is not installed here; pip install {package}\n"
    assert (done.returncode, done.stdout) == (1, "")


def test_a_missing_module_of_our_own_is_a_fault(environment, home):
    code = MISSING.format(module="logitsmith.samplers", arguments=["samplers"])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=home / "work",
        env=environment,
        check=False,
    )
    assert "Traceback" in done.stderr
    assert done.returncode == 1
