"""Errors of models."""

from __future__ import annotations

from ..common.errors import LogitsmithError


class ModelError(LogitsmithError, RuntimeError):
    """A model that cannot be found, loaded or run. The message names the file, the problem and the way out."""


class AdapterError(ModelError):
    """A LoRA adapter that cannot be used with the model. The message begins with the adapter's file."""


class PromptTooLongError(ModelError):
    """A prompt that does not fit into the context."""

    # The numbers have defaults because pickle makes errors without keywords, and sets the attributes afterwards.
    def __init__(self, problem: str, *, advice: str = "", prompt_tokens: int = 0, context_tokens: int = 0) -> None:
        super().__init__(problem, advice=advice)
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class AbortedError(ModelError):
    """`Model.abort` ended a computation of llama.cpp."""

    def __init__(self) -> None:
        super().__init__("the computation was aborted")


class BindingError(LogitsmithError, RuntimeError):
    """The installed llama-cpp-python has C functions that the engine cannot call, whatever the model."""
