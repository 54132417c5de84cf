"""Errors of models."""

from __future__ import annotations

from ..common.errors import Advice, LogitsmithError


class ModelError(LogitsmithError, RuntimeError):
    """A model that cannot be found, loaded or run. The message names the file, the problem and the way out."""


class AdapterError(ModelError):
    """A LoRA adapter that cannot be used with the model. The message begins with the adapter's file."""


class PromptTooLongError(ModelError):
    """A prompt that does not fit into the context."""

    def __init__(self, problem: str, *, advice: str | Advice, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(problem, advice=advice)
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class NoMemoryError(ModelError):
    """The memory of the CPU or of a GPU is too small for a model or a context."""


class AbortedError(ModelError):
    """`Model.abort` ended a computation of llama.cpp."""

    def __init__(self) -> None:
        super().__init__("the computation was aborted")


class BindingError(LogitsmithError, RuntimeError):
    """The installed llama-cpp-python has C functions that the engine cannot call, whatever the model."""
