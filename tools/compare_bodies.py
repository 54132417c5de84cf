"""Compare the definitions in two checkouts, to prove that moving modules has changed nothing else.

    python tools/compare_bodies.py BEFORE AFTER

Each function, class and assignment at the top level of a module is compared as a syntax tree without imports, so
that its place and the layout of its lines do not matter. A definition that only one checkout has is printed with
its module, and the exit code is 1.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

TESTED = {"benchmarks", "docs", "examples", "tests", "tools"}


class _WithoutImports(ast.NodeTransformer):
    """Removes imports, and statements that only keep a block from being empty where an import was."""

    def visit_Import(self, _node: ast.Import) -> None:
        """Remove the node."""

    def visit_ImportFrom(self, _node: ast.ImportFrom) -> None:
        """Remove the node."""


def definitions(root: Path) -> dict[str, list[str]]:
    """Return the modules of each definition, by its syntax tree as text."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.glob("*/**/*.py")):
        module = path.relative_to(root)
        if module.parts[0] in TESTED or module.parts[0].startswith("."):
            continue
        for node in _WithoutImports().visit(ast.parse(path.read_text())).body:
            if not isinstance(node, ast.Expr | ast.If):  # skip docstrings, and imports for type checkers
                found.setdefault(ast.unparse(node), []).append(str(module))
    return found


def main(before: Path, after: Path) -> int:
    """Print the definitions that only one of two checkouts has. Return the exit code."""
    old, new = definitions(before), definitions(after)
    old_counts, new_counts = (Counter({text: len(places) for text, places in each.items()}) for each in (old, new))
    for sign, difference, places in (("-", old_counts - new_counts, old), ("+", new_counts - old_counts, new)):
        for text in difference:
            print(f"{sign} {places[text][0]}: {text.partition(chr(10))[0][:100]}")
    print(f"{old_counts.total():,} definitions before, {new_counts.total():,} after")
    return 0 if old_counts == new_counts else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
