"""llama.cpp as it is loaded: its C functions, its log, its build, and the flag that aborts a computation.

``lib`` and ``libggml`` are llama-cpp-python's declarations of the C functions. The package's Python classes, which
no run needs, are imported only when some code requests one of them. Gain: about 50 of 700 ms for `gen Hello -n 1`.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from ...common.machine import NUMA_STRATEGIES
from ...models.errors import BindingError, ModelError


def _defer_classes(name: str) -> None:
    """Put a package into ``sys.modules`` whose code runs when a missing name of the package is first requested."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, module_from_spec(spec)

    def load_package(missing_name: str) -> Any:
        del package.__dict__["__getattr__"]
        loader.exec_module(package)
        return getattr(package, missing_name)

    package.__dict__["__getattr__"] = load_package
    sys.modules[name] = package


_defer_classes("llama_cpp")

import llama_cpp.llama_cpp as lib  # noqa: E402 - after the package is deferred
from llama_cpp._ggml import libggml  # noqa: E402

__all__ = ["bind_function", "binding_version", "lib", "libggml"]

SUPPORTED_VERSIONS = ">=0.3.36,<0.4"
"""The versions of llama-cpp-python that logitsmith allows, as in pyproject.toml."""

_C_FUNCTION_TYPE: Any = ctypes.CFUNCTYPE(None).__base__
"""The common type of C functions: those of a library, and callbacks."""
_POINTER_TYPES: tuple[Any, ...] = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_int).__base__,
    ctypes.Array,  # an array argument is passed as the address of its first item
    _C_FUNCTION_TYPE,
)
"""The types that C passes as an address."""


def bind_function(library: Any, name: str, prototype: Any) -> Any:
    """Return a C function that is called through ``prototype`` instead of llama-cpp-python's declaration.

    Args:
        library: ``lib`` or ``libggml``.
        name: name of the C function.
        prototype: type of the returned function, made by ``ctypes.CFUNCTYPE`` or ``ctypes.PYFUNCTYPE``.

    Raises ``BindingError`` if the function does not exist, or if llama-cpp-python declares another signature.
    Functions of ``libggml`` without a declaration are not compared.
    """
    function = getattr(library, name, None)
    if not isinstance(function, _C_FUNCTION_TYPE):
        raise _signature_error(name, "does not declare the function", prototype)
    if function.argtypes is not None and _signature(function) != _signature(prototype()):
        raise _signature_error(name, f"declares {_signature_text(function)}", prototype)
    return prototype(ctypes.cast(function, ctypes.c_void_p).value)


def bind_exported_function(name: str, prototype: Any) -> Any:
    """Return a C function of llama.cpp that older versions of llama-cpp-python do not declare.

    A declaration is compared as in `bind_function`. Raises ``BindingError`` as `bind_function` does.

    Args:
        name: name of the C function.
        prototype: type of the returned function, made by ``ctypes.CFUNCTYPE`` or ``ctypes.PYFUNCTYPE``.
    """
    if hasattr(lib, name):
        return bind_function(lib, name, prototype)
    address = _find_symbol(name)
    if address is None:
        raise _signature_error(name, "does not have the function", prototype)
    return prototype(address.value)


def _check_callback(name: str, prototype: Any) -> None:
    """Raise ``BindingError`` if llama-cpp-python declares a callback type with another signature.

    For callbacks that are C functions: llama.cpp calls them without ctypes, which would find a wrong signature.

    Args:
        name: name of the callback type in ``lib``.
        prototype: type that the C function was chosen for.
    """
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
    result, *arguments = (
        "void" if c_type is None else "pointer" if c_type is ctypes.c_void_p else _type_name(c_type)
        for c_type in _signature(function)
    )
    return f"{result} ({', '.join(arguments)})"


def _type_name(c_type: Any) -> str:
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
    """Return the version of llama-cpp-python."""
    from importlib.metadata import version  # noqa: PLC0415 - takes 9 ms, while a model already loads

    return version("llama-cpp-python")


_check_callback("llama_log_callback", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p))
_SetCallback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_set_abort_callback = bind_function(libggml, "ggml_set_abort_callback", _SetCallback)

_DEBUG, _WARNING, _ERROR, _CONTINUED = 1, 3, 4, 5
"""ggml_log_level, see ggml.h. ``_CONTINUED`` continues the message of the previous call."""

_MAX_KEPT_LINES = 5
"""Number of warnings and errors that are kept for an error message, which shows the last two."""

_SOURCE_FOLDER = re.compile(r"\S*/(?=[\w.-]+\.(?:cpp|c|h):\d+)")
"""The folder in which llama.cpp was compiled; messages of failed assertions contain it."""

_log_sink: Callable[[str], object] | None = None
_last_lines: list[str] = []
"""The last warnings and errors. A message of several calls, or of several lines, is one item."""
_was_last_message_kept = False
"""True if the message of the previous log call was kept. Only then is a continuation added to it."""


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


@contextmanager
def silent_log() -> Iterator[None]:
    """Discard llama.cpp's log in the block without Python, so that no message waits for Python's lock.

    llama.cpp calls C's function ``abs`` with each message, which has no effect.
    """
    abs_address = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
    lib.llama_log_set(lib.llama_log_callback(abs_address), ctypes.c_void_p(0))
    try:
        yield
    finally:
        lib.llama_log_set(_on_log, ctypes.c_void_p(0))


def discard_last_messages() -> None:
    """Discard the warnings and errors that llama.cpp has logged so far.

    Called before work whose failure is reported with the last messages. Otherwise a message about an earlier model
    would be read as the reason.
    """
    _last_lines.clear()


def pop_last_error() -> str:
    """Return llama.cpp's last warnings or errors, and clear them; empty if there were none."""
    message = _SOURCE_FOLDER.sub("", "; ".join(" ".join(line.split()) for line in _last_lines[-2:]))
    _last_lines.clear()
    return message


def last_error_suffix() -> str:
    """Return llama.cpp's last warnings or errors after a colon, to end a message; empty if there were none."""
    reason = pop_last_error()
    return f": {reason}" if reason else ""


_ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TERMINATE_HANDLER = ctypes.CFUNCTYPE(None)
_TYPE_NAME_OFFSET = ctypes.sizeof(ctypes.c_void_p)
"""In a std::type_info, the name follows the pointer to the virtual table (Itanium C++ ABI)."""

_set_handlers: list[object] = []
"""The abort callback and the terminate handler that are set. They are kept here, because C has no reference to
them."""


def _find_symbol(*names: str) -> ctypes.c_void_p | None:
    """Return the address of the first of these symbols that llama.cpp or its C++ library has."""
    for name in names:
        function = getattr(lib._lib, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p)
    return None


_throw_runtime_error = _find_symbol(
    "_ZSt21__throw_runtime_errorPKc",  # libstdc++
    "_ZNSt3__121__throw_runtime_errorEPKc",  # libc++
)
"""``std::__throw_runtime_error(const char *)``, which has the type of ggml's abort callback."""


@contextmanager
def failed_assertions_as_errors() -> Iterator[None]:
    """Make failed assertions of llama.cpp throw a C++ exception in the block, instead of ending the process.

    Only for functions of llama.cpp that catch exceptions: loading a model, and making a context. They write the
    reason to the log and return null. Without a known C++ library, this has no effect.
    """
    if _throw_runtime_error is None:
        yield
        return
    _set_abort_callback(_throw_runtime_error)
    try:
        yield
    finally:
        _set_abort_callback(_set_handlers[0] if _set_handlers else None)


def set_abort_handler(handler: Callable[[str], None]) -> None:
    """Call ``handler`` with the reason when llama.cpp is about to end the process. It should not return.

    The reason is a failed assertion, or a C++ exception that is not caught.
    """
    on_abort = _ABORT_CALLBACK(lambda reason: handler(reason.decode("utf-8", "replace")))
    on_terminate = _TERMINATE_HANDLER(lambda: handler(_uncaught_exception()))
    _set_abort_callback(on_abort)
    set_terminate = _find_symbol("_ZSt13set_terminatePFvvE")  # the name is the same in libstdc++ and libc++
    if set_terminate is not None:
        ctypes.CFUNCTYPE(ctypes.c_void_p, _TERMINATE_HANDLER)(set_terminate.value or 0)(on_terminate)
    _set_handlers[:] = [on_abort, on_terminate]


def _uncaught_exception() -> str:
    """Return a description of the C++ exception that is being handled."""
    current_type = _find_symbol("__cxa_current_exception_type")
    address = None if current_type is None else ctypes.CFUNCTYPE(ctypes.c_void_p)(current_type.value or 0)()
    if address is None:
        return "a C++ exception that is not caught"
    name = ctypes.c_char_p.from_address(address + _TYPE_NAME_OFFSET).value or b""
    if name == b"St9bad_alloc":
        return "no memory is left"
    return f"a C++ exception that is not caught, of the type {name.decode('ascii', 'replace')}"


_TextFunction = ctypes.CFUNCTYPE(ctypes.c_char_p)
_DeviceCount = ctypes.CFUNCTYPE(ctypes.c_size_t)
_DeviceByNumber = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_DeviceText = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


@dataclass(frozen=True)
class LlamaCppBuild:
    """The llama.cpp that is loaded.

    Attributes:
        binding_version: version of llama-cpp-python.
        ggml_version: version and commit of ggml, llama.cpp's library of tensors; empty if unknown.
        system_info: the features that llama.cpp was compiled for and finds here, as llama.cpp prints them.
        devices: name and description of each device on which llama.cpp can compute.
        has_gpu: whether llama.cpp can compute on a GPU here.
    """

    binding_version: str
    ggml_version: str
    system_info: str
    devices: tuple[str, ...]
    has_gpu: bool


def llama_cpp_build() -> LlamaCppBuild:
    """Return a description of the loaded llama.cpp."""
    versions = [_call_for_text(name, _TextFunction) for name in ("ggml_version", "ggml_commit")]
    info = lib.llama_print_system_info().decode("utf-8", "replace")
    return LlamaCppBuild(
        binding_version=binding_version(),
        ggml_version=" ".join(version for version in versions if version),
        system_info=" | ".join(part.strip() for part in info.split("|") if part.strip()),
        devices=_list_devices(),
        has_gpu=supports_gpu(),
    )


def _list_devices() -> tuple[str, ...]:
    if not (hasattr(libggml, "ggml_backend_dev_count") and hasattr(libggml, "ggml_backend_dev_get")):
        return ()
    count_devices = bind_function(libggml, "ggml_backend_dev_count", _DeviceCount)
    get_device = bind_function(libggml, "ggml_backend_dev_get", _DeviceByNumber)
    names = ("ggml_backend_dev_name", "ggml_backend_dev_description")
    return tuple(
        ": ".join(filter(None, (_call_for_text(name, _DeviceText, handle) for name in names)))
        for handle in map(get_device, range(count_devices()))
    )


def _call_for_text(name: str, prototype: Any, *arguments: object) -> str:
    """Return the string that a function of ggml returns; empty if ggml has no such function."""
    if not hasattr(libggml, name):
        return ""
    text: bytes | None = bind_function(libggml, name, prototype)(*arguments)
    return (text or b"").decode("utf-8", "replace")


def supports_gpu() -> bool:
    """Return whether llama.cpp was built for a GPU and finds one."""
    return bool(lib.llama_supports_gpu_offload())


_check_callback("ggml_abort_callback", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p))
_STRLEN_ADDRESS = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0


class AbortFlag:
    """One bit of memory. While it is set, llama.cpp aborts what it computes on the CPU or with Metal.

    llama.cpp calls a C function between the nodes of a graph, thousands of times per second. A Python function
    would need Python's lock each time. So the function is C's ``strlen``, and the flag is a C string of zero or
    one characters: its length is false or true.

    Attributes:
        callback: the C function, for llama.cpp.
        address: address of the flag, for llama.cpp, which must not outlive this object.
    """

    def __init__(self) -> None:
        self._flag_bytes = ctypes.create_string_buffer(2)
        self.callback = lib.ggml_abort_callback(_STRLEN_ADDRESS)
        self.address = ctypes.addressof(self._flag_bytes)

    @property
    def is_set(self) -> bool:
        """True while llama.cpp is to abort."""
        return self._flag_bytes.raw[0] != 0

    def set(self) -> None:
        """Abort the current computation, or else the next one. Safe from any thread."""
        self._flag_bytes[0] = b"\1"

    def clear(self) -> None:
        """Allow computations again."""
        self._flag_bytes[0] = b"\0"


_STRATEGY_IDS = dict(zip(NUMA_STRATEGIES, (1, 2, 3), strict=True))
"""ggml_numa_strategy, see ggml-cpu.h."""
_NUMA_NODES = Path("/sys/devices/system/node")


def numa_nodes() -> int:
    """Return the number of NUMA nodes on Linux; 1 on other systems, where llama.cpp does not support nodes."""
    return max(1, len(list(_NUMA_NODES.glob("node[0-9]*"))))


def use_numa(strategy: str) -> bool:
    """Choose the NUMA nodes on which this process computes; return False if there is only one node.

    Must be called before a model is loaded. llama.cpp keeps the first choice. Raises ``ModelError``.

    ``strategy``: ``distribute`` (evenly over all nodes), ``isolate`` (on the current node) or ``numactl`` (on the
    nodes that numactl sets).
    """
    if strategy not in _STRATEGY_IDS:
        raise ModelError(f"numa: {strategy!r} is not one of {', '.join(NUMA_STRATEGIES)}")
    if numa_nodes() < 2:
        return False
    lib.llama_numa_init(_STRATEGY_IDS[strategy])
    return True
