"""`gen detect`: whether texts have the watermark of the sampler synthid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...common.errors import UsageError
from ...common.files import input_name, read_input
from ...common.flags import CompletionKind, at_least, within
from ..command_options import takes_options
from ..flags import Options, argument, flag
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.prompt import input_path
from ..inputs.settings import open_chosen_preset
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, print_message
from ..options.model import LogOptions, ModelOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...jobs.token_texts import TokenText
    from ...samplers.methods.synthid import Synthid

_watermark = partial(flag, panel="Watermark")
_MAX_FILE_BYTES = 1 << 30


class InputKind(StrEnum):
    """The content of the files."""

    text = "text"
    ids = "ids"
    jsonl = "jsonl"


class DetectFormat(StrEnum):
    """A format of the scores."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


@dataclass(frozen=True, kw_only=True)
class DetectOptions(Options):
    """The options of `gen detect`."""

    files: list[Path] | None = argument(
        "FILE...",
        display_name="the text",
        help="Texts, token ids, or JSON of gen run or gen batch; - reads stdin. [stdin]",
    )
    input: InputKind | None = flag("--input", help="Content of the files. [recognized]")
    format: DetectFormat = flag("--format", help="Format of the scores. [table]", default=DetectFormat.table)
    model: str | None = flag(
        "-m",
        "--model",
        panel="Model",
        metavar="MODEL",
        help="Model whose tokens the texts are made of. [$GEN_MODEL, the config, or the bundled model]",
        is_path=True,
        completion_kind=CompletionKind.MODEL,
    )
    keys: str | None = _watermark(
        "--keys", metavar="N,N,…", help="Keys of the watermark, in the order of the layers."
    )
    preset: str | None = _watermark(
        "-P",
        "--preset",
        help="Read the watermark from the step synthid of this preset.",
        display_name="--preset",
        completion_kind=CompletionKind.PRESET,
    )
    ngram_len: int | None = _watermark(
        "--ngram-len", help="Length of the n-grams, in tokens. [5]", limit=within(2, 1000)
    )
    context_history_size: int | None = _watermark(
        "--context-history-size",
        help="Number of past contexts that are not marked again. [1024]",
        limit=at_least(0),
    )
    sampling_table_size: int | None = _watermark(
        "--sampling-table-size",
        help="Number of entries of the table of g values. [65536]",
        limit=within(1, 1 << 24),
    )
    sampling_table_seed: int | None = _watermark(
        "--sampling-table-seed", help="Seed of the table of g values. [0]", limit=at_least(0)
    )
    log: LogOptions

    def check(self) -> None:
        """Raise ``UsageError`` if the keys are missing or given twice, or if stdin is read twice."""
        if self.keys is None and self.preset is None:
            raise UsageError(
                "--keys is missing: give the keys of the watermark, or a preset with the step synthid"
            )
        if self.keys is not None and self.preset is not None:
            raise UsageError("--keys and --preset both define the watermark; give only one")
        if (self.files or []).count(Path("-")) > 1:
            raise UsageError("stdin (-) is given twice")
        if self.keys is not None:
            self.parse_keys(self.keys)

    @staticmethod
    def parse_keys(text: str) -> list[int]:
        """Return the keys, typed with commas or spaces between them, or as a JSON list."""
        words = re.findall(r"[^\s,]+", text.strip().removeprefix("[").removesuffix("]"))
        are_integers = all(_INTEGER.fullmatch(word) for word in words)
        if not words or not are_integers:
            raise UsageError(f"--keys: {text!r} is not a list of integers, such as 654,400,836")
        keys = [int(word) for word in words]
        for key in keys:
            if not _MIN_INT64 <= key <= _MAX_INT64:
                raise UsageError(f"--keys: {key} is not within ±2^63; a key is an integer of 64 bits with sign")
        return keys


_INTEGER = re.compile(r"[+-]?\d{1,1000}", re.ASCII)  # Python's `int` rejects numbers that are much longer
_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1


@takes_options(DetectOptions)
def detect(options: DetectOptions) -> None:
    """Find the watermark of the sampler synthid in texts.

    The p value is the probability that a text without this watermark scores at least as high. A text must not
    contain its prompt. In jsonl, only generated tokens count.

      gen detect answer.txt --keys 654,400,836 -m model.gguf
      gen detect runs.jsonl --preset watermarked --format json
    """
    from ...jobs.detection import WatermarkDetector
    from ..render.detection import print_scores

    show_llama_cpp_messages(options.log)
    files: Sequence[Path | None] = options.files or [None]  # None stands for stdin, if stdin is a pipe
    paths = [_readable_path(path) for path in files]
    detector = WatermarkDetector(_watermark_of(options))
    scores = []
    with interruptible() as interrupt, ExitStack() as stack:
        reader = _TextReader(options, lambda: stack.enter_context(_load_tokenizer(options, interrupt)))
        for path in paths:
            for text in reader.read(path):
                name = text.name or input_name(path)
                if text.name and len(paths) > 1:
                    name = f"{input_name(path)}: {text.name}"
                if text.problem is None:
                    end_tokens = text.end_tokens | reader.end_tokens
                    scores.append((name, detector.score(text.tokens, end_tokens)))
                else:
                    reader.has_failures = True
                    print_message(f"gen: {name}: {text.problem}")
                interrupt.raise_if_requested()
    if scores or options.format is not DetectFormat.table:
        print_scores(scores, detector, options.format.value)
    if reader.has_failures:
        raise typer.Exit(FAILED)


def _readable_path(path: Path | None) -> Path:
    readable_path = input_path(path)
    if readable_path is None:
        raise UsageError("there is no text: name a file, or pipe a text into this command")
    return readable_path


def _watermark_of(options: DetectOptions) -> Synthid:
    """Return the sampler with the keys."""
    from ...presets.preset import make_step
    from ...samplers.methods.synthid import Synthid

    params: dict[str, Any] = {}
    if options.preset is not None:
        preset = open_chosen_preset(options.preset, options.preset)
        steps = [step for step in preset.samplers() if isinstance(step, Synthid) and step.keys]
        if len(steps) != 1:
            step_count = f"{len(steps)} steps synthid" if steps else "no step synthid with keys"
            raise UsageError(f"--preset: {options.preset} has {step_count}; give the keys with --keys")
        params = steps[0].model_dump()
    elif options.keys is not None:
        params["keys"] = options.parse_keys(options.keys)
        make_step("synthid", params, "--keys", "keys")  # raises an error for keys that are not allowed
    for name in ("ngram_len", "context_history_size", "sampling_table_size", "sampling_table_seed"):
        value = getattr(options, name)
        if value is not None:
            params[name] = value
    return Synthid(**params)


def _load_tokenizer(options: DetectOptions, interrupt: Interrupt) -> Model:
    return load_model(ModelOptions(model=options.model), interrupt)


class _TextReader:
    """A reader of files as token ids. The model is loaded when a text must be tokenized, or if ``-m`` names it."""

    def __init__(self, options: DetectOptions, load: Callable[[], Model]) -> None:
        self._input = options.input
        self._load = load
        self._model = None if options.model is None else load()
        self.has_failures = False  # whether a text could not be scored

    @property
    def end_tokens(self) -> frozenset[int]:
        """The end-of-generation tokens of the model; empty if the model was not loaded."""
        return frozenset() if self._model is None else self._model.vocabulary.eog

    def read(self, path: Path) -> Iterator[TokenText]:
        from ...jobs.token_texts import TextKind, guess_kind, read_token_texts
        from ...requests.errors import InvalidLineError

        data = read_input(path, _MAX_FILE_BYTES)
        try:
            kind = guess_kind(data) if self._input is None else TextKind(self._input.value)
            yield from read_token_texts(data, kind, self._tokenize)
        except InvalidLineError as error:
            raise InvalidLineError(f"{input_name(path)}: {error}") from None

    def _tokenize(self, text: str) -> list[int]:
        if self._model is None:
            self._model = self._load()
        return self._model.vocabulary.tokenize(text.encode(errors="replace"))
