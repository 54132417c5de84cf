"""Print snippets of seven lines drawn by chance, to be read by someone who sees nothing else.

    python tools/snippets.py SEED                 24 snippets of the product
    python tools/snippets.py SEED engine recover  of these folders only
    python tools/snippets.py SEED --places        the same snippets, with their files and line numbers

For each snippet a reader writes down which package it is from, what it is for, how sure that is from 1 to 5, and
every word or sentence that had to be read twice. Blank lines and imports are not drawn as beginnings of a snippet.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = (
    *(
        "chats",
        "cli",
        "cluster",
        "common",
        "engine",
        "grammars",
        "jobs",
        "logprobs",
        "models",
        "presets",
        "recover",
    ),
    "samplers",
)
LINES = 7


def draw(seed: int, count: int, folders: list[str]) -> list[tuple[Path, int, list[str]]]:
    """Return file, number of the first line, and lines of each snippet. Each line is as likely as any other."""
    places = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            for start in range(len(lines) - LINES + 1):
                first = lines[start].strip()
                if first and not first.startswith(("import ", "from ")):
                    places.append((path.relative_to(ROOT), start + 1, lines[start : start + LINES]))
    return random.Random(seed).sample(places, count)  # noqa: S311 - a reader must be able to repeat the draw


def main() -> None:
    """Print the snippets of the command line's seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--count", type=int, default=24, help="number of snippets [24]")
    parser.add_argument("--places", action="store_true", help="print the file and line of each snippet, too")
    options = parser.parse_args()
    for number, (path, line, lines) in enumerate(draw(options.seed, options.count, list(options.folders)), 1):
        print(f"--- {number}" + (f"  {path}:{line}" if options.places else ""))
        print("\n".join(lines))
        print()


if __name__ == "__main__":
    main()
