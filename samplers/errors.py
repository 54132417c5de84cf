"""The exceptions of this room.

Their base is ``ValueError``, as programs that build chains expect; `gen` reads ``exit_code`` all the same.
"""

from __future__ import annotations

from typing import ClassVar


class SamplingError(ValueError):
    """A chain that cannot be built, or a step that cannot work on what it was given.

    The message names the step or the parameter, what is allowed, and what came.

    Attributes: ``exit_code``, with which `gen` ends.
    """

    exit_code: ClassVar[int] = 1


class StepError(SamplingError):
    """A step that does not fit the vocabulary or the seed that the chain was built with.

    It shows only once there is a model; what was written is wrong all the same, and the message says where.
    """

    exit_code: ClassVar[int] = 2
