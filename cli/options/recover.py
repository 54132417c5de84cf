"""The options of `gen recover`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from .endpoint import ENDPOINT, Api, CallOptions, EndpointOptions
from .flag import Options, argument, flag, options_class
from .given import GivenFlags
from .limits import POSITIVE, at_least
from .model import LogOptions, ModelOptions
from .paths import refuse_same_file
from .prompt import EscapeOptions, PromptOptions

_method = partial(flag, panel="What to recover, and how")
_output = partial(flag, panel="Output")
BASIS = "a --basis"


class Method(StrEnum):
    """How logprobs are recovered."""

    auto = "auto"
    single = "single"
    parallel = "parallel"
    top_n = "top_n"
    bisection = "bisection"
    forced = "forced"
    basis = "basis"


@options_class
class RecoverPromptOptions(PromptOptions):
    """Where the prompt comes from: one of these, or stdin."""

    prompt: str | None = argument(
        "PROMPT", help="The text whose next token is asked about.", called="the prompt", has_escapes=True
    )


@options_class
class MethodOptions(Options):
    """What is recovered, and how."""

    method: Method = _method(
        "--method",
        metavar="METHOD",
        help="auto finds out what works, and takes the cheapest. [auto]",
        default=Method.auto,
    )
    top: int | None = _method("--top", metavar="N", help="Only the N likeliest tokens.", limit=at_least(1))
    ids: str | None = _method("--ids", metavar="ID,ID,…", help="Only these tokens.")
    basis: Path | None = _method("--basis", metavar="FILE", help="What gen recover-basis made of the same model.")
    eps: float = _method("--eps", help="Where bisection stops, nats. [0.001]", default=1e-3, limit=POSITIVE)
    tolerance: float = _method(
        "--tolerance",
        help="Largest error on held-out tokens with which a basis is used. [0.01]",
        default=0.01,
        limit=POSITIVE,
        only_for=BASIS,
    )
    repeats: int | None = _method(
        "--repeats", help="Ask this often, and average. [1; 4 if answers differ]", limit=at_least(1)
    )

    @property
    def token_ids(self) -> list[int] | None:
        """The ids that ``--ids`` names. Raises ``UsageError``."""
        if self.ids is None:
            return None
        try:
            return [int(text) for text in self.ids.split(",")]
        except ValueError:
            raise UsageError(f"--ids: {self.ids!r} is not a list of token ids, such as 5,17") from None

    def check(self) -> None:
        """Refuse what cannot stand together."""
        if self.top is not None and self.token_ids is not None:
            raise UsageError("--top and --ids both say which tokens; give one")
        if self.method is Method.top_n and self.top is None:
            raise UsageError("--method top_n needs --top N")
        if self.method is Method.basis and self.basis is None:
            raise UsageError("--method basis needs --basis FILE, which gen recover-basis makes")


@options_class
class RecoverOutputOptions(Options):
    """Where results and answers are kept."""

    output: Path | None = _output(
        "-o", "--output", metavar="FILE", help=".npz, .json or .jsonl; - prints JSONL. [a table]"
    )
    checkpoint: Path | None = _output("--checkpoint", metavar="FILE", help="Keeps each answer. [FILE.checkpoint]")
    resume: bool = _output("--resume", help="Go on with the checkpoint, and repeat no call.", default=False)
    verify: int | None = _output(
        "--verify", metavar="N", help="Ask for N random tokens again, one by one.", limit=at_least(1)
    )

    @property
    def prints_lines(self) -> bool:
        """True if the result goes to stdout as JSONL."""
        return str(self.output) == "-"

    @property
    def file(self) -> Path | None:
        """The file of the result; None: it is printed."""
        return None if self.prints_lines else self.output

    @property
    def checkpoint_file(self) -> Path | None:
        """Where answers are kept while the run lasts."""
        if self.checkpoint is not None or self.file is None:
            return self.checkpoint
        return self.file.with_name(self.file.name + ".checkpoint")

    def check(self) -> None:
        """Refuse to go on with nothing."""
        if self.resume and self.checkpoint_file is None:
            raise UsageError("--resume needs the checkpoint: -o FILE or --checkpoint FILE")


@options_class
class RecoverOptions(Options):
    """The options of `gen recover`."""

    given: GivenFlags
    prompt: RecoverPromptOptions
    escapes: EscapeOptions
    endpoint: EndpointOptions
    method: MethodOptions
    calls: CallOptions
    output: RecoverOutputOptions
    model: ModelOptions
    log: LogOptions

    @property
    def needs_stdout(self) -> bool:
        """True unless the result goes to a file; the plan is printed."""
        return self.output.file is None or self.calls.dry_run

    def check(self) -> None:
        """Refuse flags that do not fit the endpoint, and a file that would be written over one that is read."""
        if self.endpoint.endpoint is None:
            only_for = [ENDPOINT, *(api.as_flag for api in Api)]
            self.given.refuse(EndpointOptions, CallOptions, only_for=only_for, why=f"is for {ENDPOINT}")
        else:
            self._check_endpoint()
        if self.method.basis is None:
            self.given.refuse(MethodOptions, only_for=[BASIS], why=f"is for {BASIS}")
        prompt_file = None if str(self.prompt.file) == "-" else self.prompt.file
        refuse_same_file(
            written=[("-o", self.output.file), ("--checkpoint", self.output.checkpoint_file)],
            read=[
                ("--basis", self.method.basis),
                ("--tokenizer", self.endpoint.tokenizer),
                ("-f", prompt_file),
                ("-m", self.model.model_path),
            ],
        )

    def _check_endpoint(self) -> None:
        from ..inputs.endpoint import APIS

        endpoint, given = self.endpoint, self.given
        if endpoint.api is None:
            raise UsageError(f"--endpoint needs {' or '.join(api.as_flag for api in Api)}")
        if self.model.model_text is not None:
            raise UsageError("-m and --endpoint both name what is asked; give one")
        given.refuse(ModelOptions, why="is for a model here, not for an --endpoint")
        given.refuse_unavailable(EndpointOptions, available=[ENDPOINT, endpoint.api.as_flag])
        command_line = APIS[endpoint.api]
        if not command_line.may_load_model:
            given.refuse(LogOptions, why="is for a model here, not for an --endpoint")
        for name, needed in command_line.required.items():
            if getattr(endpoint, name) in (None, ""):
                raise UsageError(f"{endpoint.api.as_flag} needs {needed}")
