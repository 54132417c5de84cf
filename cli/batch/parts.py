"""What a batch is made of, wherever it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...common.files import open_input
from ...common.text import count_noun
from ..errors import note
from ..interrupt import Interrupt
from ..options.batch import BatchOptions
from ..render.batch import BatchProgress
from .batch_settings import ModelDescription, batch_settings
from .input_lines import BackgroundItems, InputLine, read_input_lines
from .journal import ResultSink
from .request_intake import RequestIntake
from .request_resolver import BatchDefaults, RequestResolver
from .result_format import ResultFormat
from .result_writer import ResultWriter
from .settings_file import keep_settings, settings_digest
from .template import PromptTemplate


@dataclass(frozen=True)
class BatchParts:
    """What a batch is made of before its model is known; ``template``: None for JSON lines."""

    options: BatchOptions
    defaults: BatchDefaults
    template: PromptTemplate | None
    results: ResultSink
    progress: BatchProgress

    @property
    def writer(self) -> ResultWriter:
        """What writes the results."""
        return ResultWriter(ResultFormat(self.options.format.value), self.results, self.progress)

    @contextmanager
    def lines(self) -> Iterator[Iterator[InputLine] | BackgroundItems[InputLine]]:
        """Open the input while inside.

        Lines of a pipe may come slowly, and the requests that are being answered should not wait for them.
        """
        with open_input(self.options.requests) as file:
            lines = read_input_lines(file, self.template)
            yield lines if self.options.reads_file else BackgroundItems(lines)

    def make_intake(self, model: ModelDescription) -> RequestIntake:
        """Return what lets requests through. Raises ``JournalError`` if the results are of others."""
        options, existing = self.options, self.results.existing
        resolver = RequestResolver(self.defaults, model.metadata)
        settings = batch_settings(model, self.defaults, resolver, options.answer_form)
        digest = settings_digest(settings)
        intake = RequestIntake(resolver, self.writer, existing, self.progress, digest, keeps_others=options.force)
        if self.results.is_file:
            keep_settings(options.output, settings, has_results=bool(existing), is_forced=options.force)
        untold = sum(isinstance(key, str) and request_id is None for key, request_id in existing.items())
        if untold:
            results = count_noun(untold, "result")
            note(f"{options.output} has {results} without a request_id: what made them cannot be checked")
        if existing and options.reads_file and not options.force:
            with open_input(options.requests) as file:
                intake.check_results(read_input_lines(file, self.template))
        return intake

    def report_unmatched(self, intake: RequestIntake) -> None:
        """Print a note on results that belong to no request of the input."""
        if intake.unmatched_results:
            results = count_noun(intake.unmatched_results, "result")
            note(f"{self.options.output} also holds {results} for requests that are not in this file")


def stop_of(interrupt: Interrupt) -> Callable[[], bool]:
    """Return what tells a batch to begin no further request; the first time that it does, it prints a note."""
    is_announced = False

    def should_stop() -> bool:
        nonlocal is_announced
        if interrupt.requested and not is_announced:
            is_announced = True
            note("what is begun is being finished; Ctrl-C again stops at once")
        return interrupt.requested

    return should_stop
