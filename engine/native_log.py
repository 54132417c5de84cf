"""llama.cpp's log, the reason of its last error, and what happens when it is about to end the process."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .native_binding import bind_function, check_callback, lib, libggml

check_callback("llama_log_callback", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p))
_SetCallback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_set_abort_callback = bind_function(libggml, "ggml_set_abort_callback", _SetCallback)

_DEBUG, _WARNING, _ERROR, _CONTINUED = 1, 3, 4, 5
"""ggml_log_level, see ggml.h. What is continued is the text of the call before it."""

_MAX_KEPT_LINES = 5
"""Warnings and errors that are kept for a message, which shows the last two."""

_SOURCE_FOLDER = re.compile(r"\S*/(?=[\w.-]+\.(?:cpp|c|h):\d+)")
"""The folder in which llama.cpp was compiled; assertions name it."""

_log_sink: Callable[[str], object] | None = None
_last_lines: list[str] = []
"""The last warnings and errors. A text of several calls, or of several lines, is one line."""
_is_kept = False
"""True if the text of the call before is the last one that is kept."""


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user: object) -> None:
    global _is_kept  # noqa: PLW0603 - llama.cpp has one log for the process
    line = text.decode("utf-8", "replace")
    if level != _CONTINUED:
        _is_kept = level in (_WARNING, _ERROR) and bool(line.strip())
        if _is_kept:
            _last_lines[:] = [*_last_lines[1 - _MAX_KEPT_LINES :], line]
    elif _is_kept and _last_lines:
        _last_lines[-1] += line
    if _log_sink is not None and level != _DEBUG:
        _log_sink(line)


lib.llama_log_set(_on_log, ctypes.c_void_p(0))
lib.llama_backend_init()


def set_log_sink(sink: Callable[[str], object] | None) -> None:
    """Send llama.cpp's log lines to ``sink``; None, the default, discards them."""
    global _log_sink  # noqa: PLW0603 - llama.cpp has one log for the process
    _log_sink = sink


@contextmanager
def silent_log() -> Iterator[None]:
    """While inside, llama.cpp's log is lost: C's own ``abs`` takes it, and no line waits for Python's lock."""
    absolute = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
    lib.llama_log_set(lib.llama_log_callback(absolute), ctypes.c_void_p(0))
    try:
        yield
    finally:
        lib.llama_log_set(_on_log, ctypes.c_void_p(0))


def discard_last_messages() -> None:
    """Discard the warnings and errors that llama.cpp has logged so far.

    Called before work whose failure is reported with the last messages: a message about an earlier model would be
    read as the reason.
    """
    _last_lines.clear()


def last_complaint() -> str:
    """Return llama.cpp's last warnings or errors, and clear them; empty if there were none."""
    lines = _SOURCE_FOLDER.sub("", "; ".join(" ".join(line.split()) for line in _last_lines[-2:]))
    _last_lines.clear()
    return lines


def reason_suffix() -> str:
    """Return llama.cpp's last warnings or errors after a colon, to end a message; empty without any."""
    reason = last_complaint()
    return f": {reason}" if reason else ""


_ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TERMINATE_HANDLER = ctypes.CFUNCTYPE(None)
_TYPE_NAME_OFFSET = ctypes.sizeof(ctypes.c_void_p)
"""In a std::type_info, the name stands behind the pointer to the virtual table (Itanium C++ ABI)."""

_handlers: list[object] = []
"""The abort callback and the terminate handler that are set. C holds no reference to them."""


def _find(*names: str) -> ctypes.c_void_p | None:
    """The address of the first of these C++ symbols that llama.cpp or its C++ library has."""
    for name in names:
        function = getattr(lib._lib, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p)
    return None


_throw_runtime_error = _find(
    "_ZSt21__throw_runtime_errorPKc",  # libstdc++
    "_ZNSt3__121__throw_runtime_errorEPKc",  # libc++
)
"""``std::__throw_runtime_error(const char *)``, which has the type of ggml's abort callback."""


@contextmanager
def failed_assertions_as_errors() -> Iterator[None]:
    """While inside, a failed assertion of llama.cpp throws a C++ exception instead of ending the process.

    Only for functions of llama.cpp that catch exceptions: those that load a model and make a context. They write
    the reason to the log and return null. Without a known C++ library, nothing changes.
    """
    if _throw_runtime_error is None:
        yield
        return
    _set_abort_callback(_throw_runtime_error)
    try:
        yield
    finally:
        _set_abort_callback(_handlers[0] if _handlers else None)


def set_abort_handler(handler: Callable[[str], None]) -> None:
    """Call ``handler`` with the reason when llama.cpp is about to end the process. It should not return.

    The reason is a failed assertion, or a C++ exception that nothing catches.
    """
    on_abort = _ABORT_CALLBACK(lambda reason: handler(reason.decode("utf-8", "replace")))
    on_terminate = _TERMINATE_HANDLER(lambda: handler(_uncaught_exception()))
    _set_abort_callback(on_abort)
    set_terminate = _find("_ZSt13set_terminatePFvvE")  # the name is the same in libstdc++ and libc++
    if set_terminate is not None:
        ctypes.CFUNCTYPE(ctypes.c_void_p, _TERMINATE_HANDLER)(set_terminate.value or 0)(on_terminate)
    _handlers[:] = [on_abort, on_terminate]


def _uncaught_exception() -> str:
    """Name the C++ exception that is being handled."""
    current_type = _find("__cxa_current_exception_type")
    address = None if current_type is None else ctypes.CFUNCTYPE(ctypes.c_void_p)(current_type.value or 0)()
    if address is None:
        return "a C++ exception that nothing catches"
    name = ctypes.c_char_p.from_address(address + _TYPE_NAME_OFFSET).value or b""
    if name == b"St9bad_alloc":
        return "no memory is left"
    return f"a C++ exception that nothing catches, of the type {name.decode('ascii', 'replace')}"
