"""Texts that people have written, found on every machine with Python."""

import ast
import random
import re
import sysconfig
from functools import cache
from pathlib import Path


def human_texts(count):
    """Return ``count`` texts, chosen by chance: paragraphs of prose and functions of code.

    They are docstrings and functions of Python's library, and paragraphs of documentation. A part without 40
    letters, such as a table of numbers, is neither prose nor code.
    """
    return random.Random(1).sample(_all_texts(), count)


@cache
def _all_texts():
    return list(dict.fromkeys(text for text in _parts() if len(re.findall("[^\\W\\d_]", text)) >= 40))


def _parts():
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield "".join(lines[node.lineno - 1 : node.end_lineno])
                yield from re.split(r"\n\s*\n", ast.get_docstring(node) or "")
    packages = Path(sysconfig.get_paths()["purelib"])
    for folder, patterns in ((packages, ("*.md", "*.rst")), (Path("/usr/share/common-licenses"), ("*",))):
        for path in sorted(path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()):
            yield from re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace"))
