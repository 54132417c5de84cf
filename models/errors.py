"""Errors of models."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class ModelError(LogitsmithError, RuntimeError):
    """A model that cannot be found, loaded or run. The message says what, where and what to do."""


class AdapterError(ModelError):
    """A LoRA adapter that cannot be used with the model. The message begins with the adapter's file."""


class AbortedError(ModelError):
    """`Model.abort` ended what llama.cpp was computing."""

    def __init__(self) -> None:
        super().__init__("the computation was aborted")


class BindingError(LogitsmithError, RuntimeError):
    """An installed llama-cpp-python whose C functions the engine cannot call. No model is at fault."""
