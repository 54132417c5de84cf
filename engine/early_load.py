"""Lets llama.cpp load a model, and make its context, while Python does other things."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

from .context_options import ContextOptions, native_context_params
from .load_plan import LoadPlan
from .native_abort_flag import AbortFlag
from .native_binding import lib
from .native_log import failed_assertions_as_errors, silent_log
from .native_model import NativeModelParams

_MAX_CONTEXT_TOKENS = 8192
"""A longer context may need gigabytes, which a wrong command line would fill and clear in vain."""
_TURN_SECONDS = 1e-4
"""How long a callback waits for Python's lock at most. Usual are 5 ms, and there is a callback for each tensor."""


class EarlyLoad:
    """A model that is loaded in a thread of its own, and then its context; `drop` ends that.

    A callback of the thread waits for Python's lock. So a file that is mapped is loaded without any: nothing tells
    how far it is, and it cannot be stopped. A file that is read can be, and the lock changes hands more often
    meanwhile. llama.cpp's log is lost. It is for files that are soon loaded, and a long context is left to the
    caller. When llama.cpp refuses a file, the caller loads it once more to learn why.

    Attributes: ``plan``; ``abort_flag``, the model's.
    """

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.abort_flag = AbortFlag()
        self._params = NativeModelParams(plan.options)
        self._model: Any = None
        self._context: Any = None
        self._context_options: ContextOptions | None = None
        self._has_tried_model = Event()
        self._settings = ExitStack()
        """llama.cpp's settings of this process, until the thread has ended."""
        self._settings.enter_context(silent_log())
        self._settings.enter_context(failed_assertions_as_errors())
        self._progress: Callable[[float], bool] = _go_on
        self._thread = Thread(target=self._load, name="early load")
        try:
            self._thread.start()
        except RuntimeError:  # the system has no room for another thread
            self._settings.close()
            raise

    def _load(self) -> None:
        try:
            if self.plan.options.mmap:
                model = self._load_model()
            else:
                self._params.report_to(self._report)
                with _short_turns():
                    model = self._load_model()
            self._model = model
        finally:
            self._has_tried_model.set()
        if model:
            options = self.plan.context_options(int(lib.llama_model_n_ctx_train(model)))
            if options.length <= _MAX_CONTEXT_TOKENS:
                self._context_options = options
                self._context = lib.llama_init_from_model(model, native_context_params(options, self.abort_flag))

    def _report(self, fraction: float) -> bool:
        return self._progress(fraction)

    def _load_model(self) -> Any:
        return lib.llama_model_load_from_file(os.fsencode(self.plan.path), self._params.native)

    def take_model(self, progress: Callable[[float], bool]) -> Any:
        """Wait for the model, and give it to the caller, who calls `drop` before freeing it; None: refused.

        ``progress``: called with the fraction that is loaded, 0 to 1, in the thread of the load, if the file is
        read. When it returns False, loading stops.
        """
        self._progress = progress
        self._has_tried_model.wait()
        if not self._model:
            self._finish()
        model, self._model = self._model, None
        return model

    def take_context(self, options: ContextOptions) -> Any:
        """Wait for the context, and give it to the caller; None if there is none with these options."""
        self._finish()
        if options != self._context_options:
            return None
        context, self._context = self._context, None
        return context or None

    def drop(self) -> None:
        """Stop loading or wait for its end, and free what nobody took."""
        self._progress = _stop
        self._finish()
        if self._context:
            lib.llama_free(self._context)
            self._context = None
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None

    def _finish(self) -> None:
        self._thread.join()
        self._settings.close()


def _go_on(_fraction: float) -> bool:
    return True


def _stop(_fraction: float) -> bool:
    return False


@contextmanager
def _short_turns() -> Iterator[None]:
    """While inside, Python's lock changes hands more often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
