"""Gives inputs to a target once more: ``python -m tests.fuzz.replay TARGET FILE…``; prints the findings."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from .target import examine
from .targets import TARGETS

_HANG_SECONDS = 60
"""After so many processor seconds the process is ended."""


def main(name: str, paths: list[str]) -> int:
    """Print what each input does; return 1 if one is a finding."""
    resource.setrlimit(resource.RLIMIT_CPU, (_HANG_SECONDS, _HANG_SECONDS + 5))
    found = 0
    for path in paths:
        finding = examine(TARGETS[name], Path(path).read_bytes())
        print(f"{path}: {finding.key if finding else 'as it should be'}")
        if finding:
            print(finding.detail)
            found = 1
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
