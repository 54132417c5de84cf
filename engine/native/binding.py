"""llama.cpp as it is loaded: its C functions, its log, and the flag that aborts a computation.

``lib`` and ``libggml`` are llama-cpp-python's declarations of the C functions.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
from llama_cpp._ggml import libggml

from ...common.errors import Advice
from ...common.llama_cpp_limits import NUMA_STRATEGIES
from ...models.errors import BindingError, ModelError, NoMemoryError

__all__ = ["bind_function", "binding_version", "lib", "libggml"]

# the versions of llama-cpp-python that logitsmith allows, as in pyproject.toml
SUPPORTED_VERSIONS = ">=0.3.36,<0.4"

# the common type of C functions: those of a library, and callbacks
_C_FUNCTION_TYPE: Any = ctypes.CFUNCTYPE(None).__base__
# the types that C passes as an address
_POINTER_TYPES: tuple[Any, ...] = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_int).__base__,
    ctypes.Array,  # an array argument is passed as the address of its first item
    _C_FUNCTION_TYPE,
)


def bind_function(library: Any, name: str, prototype: Any) -> Any:
    """Return a C function that is called through ``prototype`` instead of llama-cpp-python's declaration."""
    # Raises ``BindingError`` if the function does not exist, or if llama-cpp-python declares another signature.
    # Functions of ``libggml`` without a declaration are not compared. ``prototype``: made by ``ctypes.CFUNCTYPE``
    # or ``ctypes.PYFUNCTYPE``.
    function = getattr(library, name, None)
    if not isinstance(function, _C_FUNCTION_TYPE):
        raise _signature_error(name, "does not declare the function", prototype)
    if function.argtypes is not None and _signature(function) != _signature(prototype()):
        raise _signature_error(name, f"declares {_signature_text(function)}", prototype)
    return prototype(ctypes.cast(function, ctypes.c_void_p).value)


def _check_callback(name: str, prototype: Any) -> None:
    """Raise ``BindingError`` if llama-cpp-python declares a callback type with another signature."""
    # For callbacks that are C functions: llama.cpp calls them without ctypes, which would find a wrong signature.
    callback = getattr(lib, name, None)
    if not isinstance(callback, type) or not issubclass(callback, _C_FUNCTION_TYPE):
        raise _signature_error(name, "does not declare the callback", prototype)
    if _signature(callback()) != _signature(prototype()):
        raise _signature_error(name, f"declares {_signature_text(callback())}", prototype)


def _signature(function: Any) -> list[Any]:
    """Return the types of the result and the arguments as C passes them: all pointers are ``c_void_p``."""
    types = (function.restype, *function.argtypes)
    return [ctypes.c_void_p if _is_pointer(c_type) else c_type for c_type in types]


def _is_pointer(c_type: Any) -> bool:
    return isinstance(c_type, type) and issubclass(c_type, _POINTER_TYPES)


def _signature_text(function: Any) -> str:
    """Return the signature of a function as ``bool (pointer, int)``."""
    result, *arguments = map(_type_name, _signature(function))
    return f"{result} ({', '.join(arguments)})"


def _type_name(c_type: Any) -> str:
    if c_type is None:
        return "void"
    if c_type is ctypes.c_void_p:
        return "pointer"
    return str(getattr(c_type, "__name__", c_type)).removeprefix("c_")


def _signature_error(name: str, finding: str, prototype: Any) -> BindingError:
    oldest = SUPPORTED_VERSIONS.partition(",")[0].removeprefix(">=")
    advice = (
        f"install a supported version ({SUPPORTED_VERSIONS}), such as the oldest one:"
        f" pip install llama-cpp-python=={oldest}"
    )
    return BindingError(
        f"{name}: llama-cpp-python {binding_version()} {finding}, but logitsmith expects"
        f" {_signature_text(prototype())}",
        advice=advice,
    )


def binding_version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - takes 9 ms, and a run needs no version

    return version("llama-cpp-python")


_SetCallback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_set_abort_callback = bind_function(libggml, "ggml_set_abort_callback", _SetCallback)

# ggml_log_level, see ggml.h
_DEBUG = 1
_WARNING = 3
_ERROR = 4
_CONTINUED = 5  # the text continues the message of the previous call

_MAX_KEPT_LINES = 5  # number of warnings and errors that are kept for an error message, which shows the last two

# the folder in which llama.cpp was compiled; messages of failed assertions contain it
_SOURCE_FOLDER = re.compile(r"\S*/(?=[\w.-]+\.(?:cpp|c|h):\d+)")

_log_sink: Callable[[str], object] | None = None
# The last warnings and errors. A message of several calls, or of several lines, is one item.
_last_lines: list[str] = []
# True if the message of the previous log call was kept. Only then is a continuation added to it.
_was_last_message_kept = False


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user: object) -> None:
    global _was_last_message_kept  # noqa: PLW0603 - llama.cpp has one log for the process
    line = text.decode("utf-8", "replace")
    if level != _CONTINUED:
        _was_last_message_kept = level in (_WARNING, _ERROR) and bool(line.strip())
        if _was_last_message_kept:
            _last_lines[:] = [*_last_lines[1 - _MAX_KEPT_LINES :], line]
    elif _was_last_message_kept and _last_lines:
        _last_lines[-1] += line
    if _log_sink is not None and level != _DEBUG:
        _log_sink(line)


lib.llama_log_set(_on_log, ctypes.c_void_p(0))
lib.llama_backend_init()


def set_log_sink(sink: Callable[[str], object] | None) -> None:
    """Send llama.cpp's log lines to ``sink``; None, the default, discards them."""
    global _log_sink  # noqa: PLW0603 - llama.cpp has one log for the process
    _log_sink = sink


def discard_last_messages() -> None:
    """Discard the warnings and errors that llama.cpp has logged so far."""
    # Called before work whose failure is reported with the last messages. Otherwise a message about an earlier
    # model would be read as the reason.
    _last_lines.clear()


def pop_last_error() -> str:
    """Return llama.cpp's last warnings or errors, and clear them; empty if there were none."""
    message = "; ".join(" ".join(line.split()) for line in _last_lines[-2:])
    _last_lines.clear()
    return message


def last_error_suffix() -> str:
    """Return llama.cpp's last warnings or errors after a colon, to end a message; empty if there were none."""
    reason = pop_last_error()
    return f": {reason}" if reason else ""


# the words of llama.cpp's backends about memory that they could not allocate
_MEMORY_PATTERN = re.compile(
    r"alloc|out of (?:device |host )?memory|outof(?:device|host)?memory|insufficient memory", re.IGNORECASE
)


def load_error(problem: str, advice: str | Advice = ()) -> ModelError:
    """Return an error with llama.cpp's reason: a ``NoMemoryError`` if the memory is full."""
    reason = pop_last_error()
    kind = NoMemoryError if _MEMORY_PATTERN.search(reason) else ModelError
    return kind(f"{problem}: {reason}" if reason else problem, advice=advice)


_ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_abort_callback: object = None  # The callback that is set. It is kept here, because C has no reference to it.


def set_abort_handler(handler: Callable[[str], None]) -> None:
    """Call ``handler`` with the reason when an assertion of llama.cpp fails. It should not return."""
    # llama.cpp then ends the process.
    global _abort_callback  # noqa: PLW0603 - llama.cpp has one callback for the process
    _abort_callback = _ABORT_CALLBACK(
        lambda reason: handler(_SOURCE_FOLDER.sub("", reason.decode("utf-8", "replace")))
    )
    _set_abort_callback(_abort_callback)


_check_callback("ggml_abort_callback", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p))
_STRLEN_ADDRESS = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0


class AbortFlag:
    """One bit of memory. While it is set, llama.cpp aborts what it computes on the CPU or with Metal."""

    # llama.cpp calls a C function between the nodes of a graph, thousands of times per second. A Python function
    # would need Python's lock each time. So the function is C's ``strlen``, and the flag is a C string of zero or
    # one characters: its length is false or true.

    def __init__(self) -> None:
        self._flag_bytes = ctypes.create_string_buffer(2)
        self.callback = lib.ggml_abort_callback(_STRLEN_ADDRESS)  # the C function, for llama.cpp
        # address of the flag, for llama.cpp, which must not outlive this object
        self.address = ctypes.addressof(self._flag_bytes)

    @property
    def is_set(self) -> bool:
        """True while llama.cpp is to abort."""
        return self._flag_bytes.raw[0] != 0

    def set(self) -> None:
        """Abort the current computation, or else the next one. Safe from any thread."""
        self._flag_bytes[0] = b"\1"

    def clear(self) -> None:
        self._flag_bytes[0] = b"\0"


_STRATEGY_IDS = dict(zip(NUMA_STRATEGIES, (1, 2, 3), strict=True))  # ggml_numa_strategy, see ggml-cpu.h
_NUMA_NODES = Path("/sys/devices/system/node")


def numa_nodes() -> int:
    """Return the number of NUMA nodes on Linux; 1 on other systems, where llama.cpp does not support nodes."""
    return max(1, len(list(_NUMA_NODES.glob("node[0-9]*"))))


def use_numa(strategy: str) -> bool:
    """Choose the NUMA nodes on which this process computes; return False if there is only one node."""
    # Must be called before a model is loaded. llama.cpp keeps the first choice. Raises ``ModelError``.
    # ``strategy``: ``distribute`` (evenly over all nodes), ``isolate`` (on the current node) or ``numactl`` (on
    # the nodes that numactl sets).
    if strategy not in _STRATEGY_IDS:
        raise ModelError(f"{strategy!r} is not one of {', '.join(NUMA_STRATEGIES)}", origin="numa")
    if numa_nodes() < 2:
        return False
    lib.llama_numa_init(_STRATEGY_IDS[strategy])
    return True
