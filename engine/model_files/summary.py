"""What a list of models shows of each file, read from its header."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...common.files import file_problem
from ..gguf_header import DamagedError
from ..gguf_rules import Values, describe_other_kind
from .entry import ModelEntry
from .parts import parse_part_name, part_paths
from .quantization import quantization_name
from .quick_header import QuickHeaderReader


@dataclass(frozen=True)
class ModelSummary:
    """What the headers of a model's files say.

    Attributes:
        entry: Which model it is.
        size_bytes: Of all files together.
        architecture: llama.cpp's name of it; empty if the file does not say.
        quantization: Such as ``Q4_K_M``.
        parameters: The number of weights.
        trained_context: Tokens; None if the file does not say.
        has_chat_template: True if the file holds one.
        problem: Why the model cannot be loaded; None if nothing speaks against it.
        is_model: False for a projector, an adapter and other files that are no model by themselves.
    """

    entry: ModelEntry
    size_bytes: int
    architecture: str = ""
    quantization: str = "unknown"
    parameters: int = 0
    trained_context: int | None = None
    has_chat_template: bool = False
    problem: str | None = None
    is_model: bool = True

    def as_json(self) -> dict[str, object]:
        """Return an object for JSON: what `gen models --format json` prints of each model."""
        return {
            "name": self.entry.name,
            "source": self.entry.source,
            "path": str(self.entry.path),
            "size_bytes": self.size_bytes,
            "architecture": self.architecture,
            "quantization": self.quantization,
            "parameters": self.parameters,
            "trained_context": self.trained_context,
            "has_chat_template": self.has_chat_template,
            "problem": self.problem,
        }


@dataclass(frozen=True)
class _Header:
    """What the header of one file says. ``problem``: why the file is of no use; the rest is then empty."""

    values: Values
    elements_by_type: Counter[int]
    problem: str | None = None


def read_summaries(entries: Iterable[ModelEntry]) -> Iterator[ModelSummary]:
    """Yield the summary of each model. A file that several names share is read once."""
    headers: dict[tuple[int, int], _Header] = {}
    for entry in entries:
        yield _summarise(entry, headers)


def _summarise(entry: ModelEntry, headers: dict[tuple[int, int], _Header]) -> ModelSummary:
    if entry.is_missing:
        return ModelSummary(entry, 0, problem=f"missing; {entry.advice_if_missing}")
    size, elements, problem = 0, Counter[int](), _missing_part(entry)
    values: Values = {}
    for number, path in enumerate(entry.parts):
        try:
            status = path.stat()
            identity = status.st_dev, status.st_ino
            if identity not in headers:
                headers[identity] = _read_header(path)
            header = headers[identity]
        except OSError as error:
            return ModelSummary(entry, size, problem=file_problem(error, path))
        size += status.st_size
        elements += header.elements_by_type
        problem = problem or header.problem
        if number == 0:
            values = header.values
    kind = describe_other_kind(values) if entry.path == entry.parts[0] and not problem else None
    if kind is None and values.get("tokenizer.ggml.model") and not elements and not problem:
        kind = "a vocabulary without tensors"
    architecture = _text(values.get("general.architecture"))
    context = values.get(f"{architecture}.context_length")
    return ModelSummary(
        entry,
        size,
        architecture,
        quantization_name(values.get("general.file_type"), elements),
        sum(elements.values()),
        context if isinstance(context, int) else None,
        bool(values.get("tokenizer.chat_template")),
        kind or problem,
        is_model=kind is None,
    )


def _missing_part(entry: ModelEntry) -> str | None:
    """A sentence if parts of a split model are missing."""
    part = parse_part_name(entry.path.name)
    if part is None or len(entry.parts) == part.total:
        return None
    missing = [path for path in part_paths(entry.path) if path not in entry.parts]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{missing[0].name}{more} of its {part.total} parts missing"


def _read_header(path: Path) -> _Header:
    """Read one header; a file that is of no use gets a problem. Raises ``OSError``."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                return _Header({}, Counter(), "not a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                reader = QuickHeaderReader(data)
                needed, size = reader.bytes_needed(), len(data)
    except DamagedError as error:
        return _Header({}, Counter(), f"damaged: {error}")
    problem = None
    if size < needed:
        problem = f"truncated: {size:,} of {needed:,} bytes"
    return _Header(reader.values, reader.elements_by_type, problem)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
