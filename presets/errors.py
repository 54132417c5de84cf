"""The one exception of this room."""


class PresetError(ValueError):
    """A preset, a setting or a configuration that cannot be used.

    The message names the file or the flag, the place in it, what is allowed, and what came.
    """
