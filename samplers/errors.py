"""The exceptions of samplers and chains. They are ``ValueError``s, as programs that build chains expect."""

from __future__ import annotations

from typing import ClassVar

from ..common.errors import LogitsmithError


class SamplingError(LogitsmithError, ValueError):
    """A chain that cannot be built, or a step that cannot process its candidates.

    The message names the step or the parameter, the rejected value and the allowed values.

    Attributes:
        place: the place of the value in the chain, such as ``("chain[2]", "top_p", "p")``; empty for an error that
            is not about a value.
        problem: the message without the place.
        exit_code: the exit code with which `gen` ends.
    """


class StepError(SamplingError):
    """A step that cannot be used with the vocabulary or the seed that the chain was built with.

    The error is found only when a model is loaded. The mistake is in the step, so the message gives the place
    where the step is written.
    """

    exit_code: ClassVar[int] = 2
