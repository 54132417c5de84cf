"""The one exception of this room."""


class ModelError(RuntimeError):
    """A model that cannot be found, loaded or run. The message says what, where and what to do."""
