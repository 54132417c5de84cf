"""A batch that this process computes."""

from __future__ import annotations

import sys

from ..inputs.model import load_model
from ..interrupt import Interrupt
from ..render.batch import show_progress
from .batch_settings import describe_model
from .parts import BatchParts, stop_of
from .runner import BatchPolicy, BatchRunner


def answer_here(parts: BatchParts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet. Raises ``ModelError``, ``JournalError``."""
    options = parts.options
    with load_model(options.model, interrupt) as model:
        intake = parts.make_intake(describe_model(model))
        runner = BatchRunner(model, intake, parts.writer)
        parallel = options.parallel or model.default_parallel
        policy = BatchPolicy(parallel, options.deterministic, stop_of(interrupt))
        results_on_terminal = options.prints_results and sys.stdout.isatty()
        with parts.lines() as lines, show_progress(parts.progress, results_on_terminal) as display:
            runner.run(lines, policy, display)
        if not interrupt.requested:
            parts.report_unmatched(intake)
