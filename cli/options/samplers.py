"""The options of `gen samplers`."""

from __future__ import annotations

from .completes import Completes
from .flag import Options, argument, options_class


@options_class
class SamplersOptions(Options):
    """Which sampler."""

    name: str | None = argument(
        None,
        called="the sampler's name",
        help="A sampler's name or alias; none lists them all.",
        completes=Completes.SAMPLER,
    )
