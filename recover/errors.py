"""The one exception of this room."""


class RecoverError(RuntimeError):
    """An endpoint that cannot be asked, or whose answers cannot be used.

    The message says what, where and what to do; it holds no secrets.
    """
