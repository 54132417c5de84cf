"""`gen samplers`: what there is, and what each one does."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import BAD_USAGE, fail, report_failures

Name = Annotated[str | None, typer.Argument(help="A sampler's name or alias; none lists them all.")]


def samplers(name: Name = None) -> None:
    """List the samplers, or show one: formula, parameters, ranges, source."""
    with report_failures():
        from ...samplers import SamplingError, catalogue, find_sampler, list_plugins
        from ..render.tables import show_sampler, show_samplers

        if name is None:
            show_samplers(list(catalogue().values()), list_plugins())
            return
        try:
            sampler = find_sampler(name)
        except SamplingError as error:
            fail(str(error), BAD_USAGE)
        show_sampler(sampler)
