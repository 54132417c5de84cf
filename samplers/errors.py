"""The one exception of this room."""


class SamplingError(ValueError):
    """A chain that cannot be built, or a step that cannot work on what it was given.

    The message names the step or the parameter, what is allowed, and what came.
    """
