"""What `make fuzz` found once. Each file in ``regressions/TARGET/`` is an input of that target."""

from pathlib import Path

import pytest

from .target import examine
from .targets import TARGETS

FOLDER = Path(__file__).parent / "regressions"
CASES = {str(path.relative_to(FOLDER)): path for path in sorted(FOLDER.glob("*/*"))}


@pytest.mark.parametrize("path", CASES.values(), ids=CASES)
def test_found_once(path):
    finding = examine(TARGETS[path.parent.name], path.read_bytes())
    assert finding is None, f"{finding.key}\n{finding.detail}"


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_seeds_are_no_findings(target):
    assert target.seeds
    for data in target.seeds:
        finding = examine(target, data)
        assert finding is None, f"{data[:200]}\n{finding.key}\n{finding.detail}"
