"""The exceptions of this room."""


class SamplingError(ValueError):
    """A chain that cannot be built, or a step that cannot work on what it was given.

    The message names the step or the parameter, what is allowed, and what came.
    """


class StepError(SamplingError):
    """A step that does not fit the vocabulary or the seed that the chain was built with.

    It shows only once there is a model; what was written is wrong all the same, and the message says where.
    """
