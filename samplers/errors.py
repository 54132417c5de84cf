"""The exceptions of samplers and chains.

Their base class is ``ValueError``, as programs that build chains expect. Like other errors of the project, they
have an ``exit_code``.
"""

from __future__ import annotations

from typing import ClassVar


class SamplingError(ValueError):
    """A chain that cannot be built, or a step that cannot process its candidates.

    The message names the step or the parameter, the rejected value and the allowed values.

    Attributes:
        exit_code: the exit code with which `gen` ends.
    """

    exit_code: ClassVar[int] = 1


class StepError(SamplingError):
    """A step that cannot be used with the vocabulary or the seed that the chain was built with.

    The error is found only when a model is loaded. The mistake is in the step, so the message gives the place
    where the step is written.
    """

    exit_code: ClassVar[int] = 2
