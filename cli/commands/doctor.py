"""`gen doctor`: what is found on this machine, and what is wrong."""

from __future__ import annotations

import json
import sys

import typer

from ...common.machine import shorten_home
from ..errors import FAILED
from ..options.doctor import DoctorFormat, DoctorOptions
from ..options.signature import takes_options
from ..startup import start_collector


@takes_options(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Show what gen finds here, and what is wrong: a page for a bug report.

    No model is loaded. Exit code 1: something is wrong, and the page says what to do.
    """
    from ..inputs.doctor import examine
    from ..render.doctor import page

    start_collector()
    report = examine()
    if not options.paths:
        report = shorten_home(report)
    if options.format is DoctorFormat.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(page(report))
    if report["problems"]:
        raise typer.Exit(FAILED)
