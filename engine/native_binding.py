"""llama-cpp-python's declarations of llama.cpp's C functions: ``lib`` and ``libggml``.

Its Python classes, which no run needs, are imported when somebody asks the package for one of them.
Gain: some 50 of 700 ms for `gen Hello -n 1`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any


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

__all__ = ["binding_version", "lib", "libggml"]


def binding_version() -> str:
    """Return the version of llama-cpp-python."""
    from importlib.metadata import version  # noqa: PLC0415 - a model is loaded before, and its import takes 9 ms

    return version("llama-cpp-python")
