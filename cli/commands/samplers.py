"""`gen samplers`: list all samplers, including those of plug-ins, or show one."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.flags import CompletionKind
from ..command_options import takes_options
from ..flags import Options, argument
from ..messages import BAD_USAGE, fail


@dataclass(frozen=True, kw_only=True)
class SamplersOptions(Options):
    """The options of `gen samplers`."""

    name: str | None = argument(
        None,
        display_name="the sampler's name",
        help="Name or alias of the sampler to show. [list all samplers]",
        completion_kind=CompletionKind.SAMPLER,
    )


@takes_options(SamplersOptions)
def samplers(options: SamplersOptions) -> None:
    """List the samplers, or show one: formula, parameters, ranges, source."""
    from ...samplers.errors import SamplingError
    from ...samplers.registry import catalogue, find_sampler, list_plugins
    from ..render.samplers import show_sampler, show_samplers

    if options.name is None:
        show_samplers(list(catalogue().values()), list_plugins())
        return
    try:
        sampler = find_sampler(options.name)
    except SamplingError as error:
        fail(str(error), BAD_USAGE)
    show_sampler(sampler)
