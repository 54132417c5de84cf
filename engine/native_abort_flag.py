"""A flag that llama.cpp reads while it computes, without Python."""

from __future__ import annotations

import ctypes

from .native_binding import check_callback, lib

check_callback("ggml_abort_callback", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p))
_strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0


class AbortFlag:
    """One bit of memory. While it is set, llama.cpp aborts what it computes on the CPU or with Metal.

    llama.cpp calls a C function between the nodes of a graph, thousands of times per second. A function in Python
    would need Python's lock each time. So the function is C's own ``strlen``, and the flag is a text of no or one
    character: its length is false or true.

    Attributes: ``callback`` and ``address``, for llama.cpp, which must not outlive this object.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        self.callback = lib.ggml_abort_callback(_strlen)
        self.address = ctypes.addressof(self._text)

    @property
    def is_set(self) -> bool:
        """True while llama.cpp is to abort."""
        return self._text.raw[0] != 0

    def set(self) -> None:
        """Abort what is being computed, or what is computed next. Safe from any thread."""
        self._text[0] = b"\1"

    def clear(self) -> None:
        """Let llama.cpp compute again."""
        self._text[0] = b"\0"
