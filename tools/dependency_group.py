"""Print the requirements of a dependency group of pyproject.toml, separated by spaces.

python tools/dependency_group.py transformers
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(name: str) -> list[str]:
    """Return the requirements of a group. pip before 25.1 cannot install groups itself."""
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())
    group: list[str] = project["dependency-groups"][name]
    return group


if __name__ == "__main__":
    print(*requirements(sys.argv[1]))
