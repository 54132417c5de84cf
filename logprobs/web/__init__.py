"""The parts that web pages share: the panel of a token, its charts and tables, the tints of tokens.

The parts are ES modules and a style sheet. The server's page loads them as files. A report is one file, made by
`single_file`, and contains the modules joined into one script.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

# The path under which modules of a page import the shared modules, as in `./web/format.js`.
SHARED_FOLDER = "web/"
_IMPORT = re.compile(r'^import \{ [\w, ]+ \} from "\./([\w/.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)


def shared_names() -> list[str]:
    """Return the names of the shared files, sorted."""
    return sorted(file.name for file in files(__package__).iterdir() if file.name.endswith((".js", ".css")))


def read_shared(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def single_file(read: Callable[[str], str], name: str, data: Mapping[str, str]) -> str:
    """Return the HTML of a page that is one file: its template, style, scripts and data."""
    # ``read``: returns a file of the page; ``data``: by the ids of the elements that hold it, as `pack` returns
    # it.
    # No part of the data can be markup, because it is compressed and base64-encoded. The content security policy
    # of the page allows the script and the style by their hashes, and no requests.
    script = join_modules("main.js", read)
    style = read_shared("base.css") + read(f"{name}.css")
    elements = (
        f'<script type="application/octet-stream" id="{element_id}">{packed}</script>'
        for element_id, packed in data.items()
    )
    return Template(read(f"{name}.html")).substitute(
        script=script,
        style=style,
        script_hash=_policy_hash(script),
        style_hash=_policy_hash(style),
        data="\n".join(elements),
    )


def pack(value: Any) -> str:
    """Return a value as JSON, compressed by zlib and base64-encoded."""
    data = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return b64encode(zlib.compress(data, 9)).decode()


def _policy_hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def join_modules(main: str, read: Callable[[str], str]) -> str:
    """Return a module and all modules that it imports as one script, each after those that it imports."""
    # The modules may only use imports and exports of one line, of functions, classes and constants by their own
    # names. No two modules may declare the same name. Then the script is the modules without these lines.
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
