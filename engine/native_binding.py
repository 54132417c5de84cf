"""llama-cpp-python's declarations of llama.cpp's C functions: ``lib`` and ``libggml``.

Its Python classes, which no run needs, are imported when somebody asks the package for one of them.
Gain: some 50 of 700 ms for `gen Hello -n 1`.

Some functions are called through prototypes of the engine, which are faster. `bind_function` compares each of them
with llama-cpp-python's declaration: a call with a wrong signature would end the process or give wrong numbers.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

from ..models.errors import BindingError


def _defer_classes(name: str) -> None:
    """Put a package into ``sys.modules`` whose own code runs at the first look for a name that it lacks."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, module_from_spec(spec)

    def load(missing: str) -> Any:
        del package.__dict__["__getattr__"]
        loader.exec_module(package)
        return getattr(package, missing)

    package.__dict__["__getattr__"] = load
    sys.modules[name] = package


_defer_classes("llama_cpp")

import llama_cpp.llama_cpp as lib  # noqa: E402 - after the package is deferred
from llama_cpp._ggml import libggml  # noqa: E402

__all__ = ["bind_function", "binding_version", "check_callback", "lib", "libggml"]

SUPPORTED_VERSIONS = ">=0.3.36,<0.4"
"""The versions of llama-cpp-python that logitsmith allows, as in pyproject.toml."""

_FUNCTION: Any = ctypes.CFUNCTYPE(None).__base__
"""The common type of C functions: those of a library, and callbacks."""
_POINTERS: tuple[Any, ...] = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_int).__base__,
    ctypes.Array,  # as an argument, C passes the address of the first item
    _FUNCTION,
)
"""The types that C passes as an address, whatever is at the address."""


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
    if not isinstance(function, _FUNCTION):
        raise _signature_error(name, "does not declare the function", prototype)
    if function.argtypes is not None and _signature(function) != _signature(prototype()):
        raise _signature_error(name, f"declares {_signature_text(function)}", prototype)
    return prototype(ctypes.cast(function, ctypes.c_void_p).value)


def check_callback(name: str, prototype: Any) -> None:
    """Raise ``BindingError`` if llama-cpp-python declares a callback type with another signature.

    For callbacks that are C functions: llama.cpp calls them without ctypes, which would find a wrong signature.

    Args:
        name: name of the callback type in ``lib``.
        prototype: type that the C function was chosen for.
    """
    callback = getattr(lib, name, None)
    if not isinstance(callback, type) or not issubclass(callback, _FUNCTION):
        raise _signature_error(name, "does not declare the callback", prototype)
    if _signature(callback()) != _signature(prototype()):
        raise _signature_error(name, f"declares {_signature_text(callback())}", prototype)


def _signature(function: Any) -> list[Any]:
    """Return the types of the result and the arguments as C passes them: all pointers are ``c_void_p``."""
    types = (function.restype, *function.argtypes)
    return [ctypes.c_void_p if _is_pointer(c_type) else c_type for c_type in types]


def _is_pointer(c_type: Any) -> bool:
    return isinstance(c_type, type) and issubclass(c_type, _POINTERS)


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
    from importlib.metadata import version  # noqa: PLC0415 - a model is loaded before, and its import takes 9 ms

    return version("llama-cpp-python")
