"""llama.cpp's log, the reason of its last error, and a handler for the end of the process."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import llama_cpp.llama_cpp as lib
from llama_cpp._ggml import libggml

BINDING_VERSION: str = sys.modules["llama_cpp"].__version__

_DEBUG, _WARNING, _ERROR = 1, 3, 4
"""ggml_log_level, see ggml.h."""

_MAX_KEPT_LINES = 5
"""Warnings and errors that are kept for a message, which shows the last two."""

_log_sink: Callable[[str], object] | None = None
_last_lines: list[str] = []


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user: object) -> None:
    line = text.decode("utf-8", "replace")
    if level in (_WARNING, _ERROR) and line.strip():
        _last_lines[:] = [*_last_lines[1 - _MAX_KEPT_LINES :], line.strip()]
    if _log_sink is not None and level != _DEBUG:
        _log_sink(line)


lib.llama_log_set(_on_log, ctypes.c_void_p(0))
lib.llama_backend_init()


def set_log_sink(sink: Callable[[str], object] | None) -> None:
    """Send llama.cpp's log lines to ``sink``; None, the default, discards them."""
    global _log_sink  # noqa: PLW0603 - llama.cpp has one log for the process
    _log_sink = sink


_ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_abort_callbacks: list[object] = []
"""Keeps the callback alive: C holds no reference to it."""


def set_abort_handler(handler: Callable[[str], None]) -> None:
    """Call ``handler`` with the reason when llama.cpp is about to end the process. It should not return."""
    callback = _ABORT_CALLBACK(lambda reason: handler(reason.decode("utf-8", "replace")))
    libggml.ggml_set_abort_callback(callback)
    _abort_callbacks[:] = [callback]


def last_complaint() -> str:
    """Return llama.cpp's last warnings or errors, and clear them; empty if there were none."""
    complaint = "; ".join(_last_lines[-2:])
    _last_lines.clear()
    return complaint


def reason_suffix() -> str:
    """Return llama.cpp's last complaint as the end of a message: a colon and the complaint, or nothing."""
    complaint = last_complaint()
    return f": {complaint}" if complaint else ""
