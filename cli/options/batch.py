"""The options of `gen batch`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from ...common.errors import UsageError
from ...common.machine import MAX_SLOTS, SEED_MAX
from ..command_options import GivenFlags
from ..flags import REQUIRED, Options, argument, flag, options_class, within
from .model import ClusterOptions, LogOptions, ModelOptions
from .output import output_flag, trace_flag
from .prompt import ChatOptions, EscapeOptions, LengthOptions
from .sampling import GrammarOptions, SamplingOptions

_batch = partial(flag, panel="Batch")


class BatchFormat(StrEnum):
    """How the results of a batch are written."""

    openai = "openai"
    jsonl = "jsonl"


@options_class
class BatchSamplingOptions(SamplingOptions):
    """How the tokens of the lines are drawn."""

    seed: int = flag(
        "-s",
        "--seed",
        panel="Sampling",
        help="Base seed for lines without one; combined with the line's id. [0]",
        default=0,
        called="--seed",
        limit=within(0, SEED_MAX, minus_one="a fresh one"),
    )


@options_class
class BatchOptions(Options):
    """The options of `gen batch`."""

    given: GivenFlags
    requests: Path = argument(
        "REQUESTS",
        called="the file of requests",
        help="A file of requests, one a line, or CSV; - is stdin.",
        default=REQUIRED,
    )
    output: Path = _batch(
        "-o", "--output", help="Where results go, as they are made; - is stdout. [-]", default=Path("-")
    )
    template: str | None = _batch(
        "--template", metavar="TEXT", help="The prompt of a CSV's row: 'Summarise: {text}'.", has_escapes=True
    )
    format: BatchFormat = _batch(
        "--format", help="openai: its batch output; jsonl: ours, shorter. [openai]", default=BatchFormat.openai
    )
    resume: bool = _batch(
        "--resume", help="Continue a file of results; no request is answered twice.", default=False
    )
    force: bool = _batch(
        "--force", help="With --resume: go on although the model, flags or texts are others.", default=False
    )
    parallel: int | None = _batch(
        "--parallel",
        "-np",
        metavar="N",
        help="Requests at a time. [by cores and memory, up to 8]",
        limit=within(1, MAX_SLOTS),
    )
    deterministic: bool = _batch(
        "--deterministic", help="Compute each exactly as gen does alone, to the last bit; slower.", default=False
    )
    sampling: BatchSamplingOptions
    grammar: GrammarOptions
    logprobs: int | None = output_flag(
        "--logprobs", metavar="N", help="Logprobs, with the N likeliest tokens; -1 = all, in jsonl."
    )
    trace: int | None = trace_flag()
    length: LengthOptions
    escapes: EscapeOptions
    chat: ChatOptions
    model: ModelOptions
    cluster: ClusterOptions
    log: LogOptions

    @property
    def needs_stdout(self) -> bool:
        """True if the results go to stdout."""
        return self.prints_results

    @property
    def prints_results(self) -> bool:
        """True if the results go to stdout."""
        return str(self.output) == "-"

    @property
    def answer_form(self) -> dict[str, Any]:
        """The flags of this command alone that change results, by name, and the length of the context."""
        return {
            "context": self.model.context_size,
            "deterministic": self.deterministic,
            "template": self.template,
            "format": self.format.value,
        }

    @property
    def reads_file(self) -> bool:
        """True if the requests are in a file that can be read twice, and not in a pipe."""
        return str(self.requests) != "-" and self.requests.is_file()

    def check(self) -> None:
        """Refuse what cannot stand together."""
        least_logprobs = -1 if self.format is BatchFormat.jsonl else 0
        if self.logprobs is not None and self.logprobs < least_logprobs:
            raise UsageError(f"--logprobs: {self.logprobs} is not ≥ 0, nor, in jsonl, -1 for all")
        if self.trace is not None and self.format is not BatchFormat.jsonl:
            raise UsageError(f"--trace: --format {self.format.value} has no room for it; --format jsonl has")
        if self.resume and self.prints_results:
            raise UsageError("--resume goes on with a file; name it with -o")
        if self.force and not self.resume:
            raise UsageError("--force goes with --resume")
        if self.template is None and self.requests.suffix.lower() == ".csv":
            raise UsageError("--template says what is asked of a row, such as --template 'Summarise: {text}'")
        both_exist = self.requests.exists() and self.output.exists()
        if not self.prints_results and both_exist and self.requests.samefile(self.output):
            raise UsageError(f"-o: {self.output} is the file of the requests")
