"""`gen samplers`: what there is, and what each one does."""

from __future__ import annotations

from ..errors import BAD_USAGE, fail
from ..options.samplers import SamplersOptions
from ..options.signature import takes_options


@takes_options(SamplersOptions)
def samplers(options: SamplersOptions) -> None:
    """List the samplers, or show one: formula, parameters, ranges, source."""
    from ...samplers.errors import SamplingError
    from ...samplers.registry import catalogue, find_sampler, list_plugins
    from ..render.tables import show_sampler, show_samplers

    if options.name is None:
        show_samplers(list(catalogue().values()), list_plugins())
        return
    try:
        sampler = find_sampler(options.name)
    except SamplingError as error:
        fail(str(error), BAD_USAGE)
    show_sampler(sampler)
