"""A plug-in whose sampler ends its process, as a request does for which memory does not suffice."""

import os
import signal
from typing import ClassVar

from logitsmith.samplers import Candidates, Sampler, SamplerInfo, Stage


class Poison(Sampler):
    """End the process.

    Formula: none. Never neutral. Source: this test.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="poison",
        summary="end the process",
        formula="none",
        reference="this test",
        llama_cpp="not in llama.cpp",
        stage=Stage.LOGIT_BIAS,
    )

    def apply(self, candidates: Candidates) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
