"""The parts that web pages share: the panel of a token, its charts and tables, the tints of tokens.

The parts are ES modules and a style sheet. The server's page loads them as files. The report is one file, and
contains the modules joined into one script, by `join_modules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files

SHARED_FOLDER = "web/"
"""The path under which modules of a page import the shared modules, as in ``./web/format.js``."""
_IMPORT = re.compile(r'^import \{ [\w, ]+ \} from "\./([\w/.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)


def shared_names() -> list[str]:
    """Return the names of the shared files, sorted."""
    return sorted(file.name for file in files(__package__).iterdir() if file.name.endswith((".js", ".css")))


def read_shared(name: str) -> str:
    """Return the text of a shared file."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def join_modules(main: str, read: Callable[[str], str]) -> str:
    """Return a module and all modules that it imports as one script, each after those that it imports.

    The modules may only use imports and exports of one line, of functions, classes and constants by their own
    names. No two modules may declare the same name. Then the script is the modules without these lines.

    Args:
        main: name of the module that is executed last.
        read: returns the text of a module of the page.
    """
    return '"use strict";\n' + "".join(_join(main, read, set()))


def _join(name: str, read: Callable[[str], str], seen: set[str]) -> Iterator[str]:
    if name in seen:
        return
    seen.add(name)
    is_shared = name.startswith(SHARED_FOLDER)
    text = read_shared(name.removeprefix(SHARED_FOLDER)) if is_shared else read(name)
    for imported in _IMPORT.findall(text):
        yield from _join(SHARED_FOLDER + imported if is_shared else imported, read, seen)
    yield _EXPORT.sub("", _IMPORT.sub("", text))
