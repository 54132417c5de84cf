"""The facts in the headers of model files: all facts of one model, and summaries of many models for lists."""

from __future__ import annotations

import mmap
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.files import file_problem
from .errors import ModelError
from .folders import read_json
from .gguf import (
    DamagedError,
    HeaderReader,
    QuickHeaderReader,
    Values,
    check_gguf,
    describe_other_kind,
    metadata_text,
)
from .listing import ModelEntry
from .names import parse_part_name, part_paths, quantization_name

# the purpose of each special token, by the ROLE in the metadata key ``tokenizer.ggml.ROLE_token_id``
_PURPOSE_BY_ROLE = {
    "bos": "begins a text",
    "eos": "ends a text",
    "eot": "ends a turn",
    "eom": "ends a message",
    "unknown": "replaces unknown text",
    "padding": "fills up",
    "seperator": "separates",  # the format's spelling
    "separator": "separates",
    "mask": "masks",
    "cls": "begins a text to classify",
    "prefix": "before what precedes a gap",
    "suffix": "before what follows a gap",
    "middle": "before what fills a gap",
    "fim_pre": "before what precedes a gap",
    "fim_suf": "before what follows a gap",
    "fim_mid": "before what fills a gap",
    "fim_pad": "fills up around a gap",
    "fim_rep": "names a repository",
    "fim_sep": "separates files",
}


@dataclass(frozen=True)
class SpecialToken:
    """A special token of a vocabulary."""

    role: str  # name of the role in the GGUF format, such as ``eos``
    purpose: str  # the purpose as a phrase, such as ``ends a text``; empty if unknown
    id: int
    text: str


@dataclass(frozen=True)
class ModelFacts:
    """The facts in the header of a model.

    Attributes:
        metadata: the numbers and strings of the header by key, as strings. Lists are left out.
        vocabulary_size: number of tokens; 0 if the file holds no vocabulary.
        special_tokens: the special tokens that the header names, in the order of the header.
        ollama_settings: the sampling settings that Ollama keeps for the model, by name; empty if there are none.
        suppressed_tokens: the tokens that no run draws, because the header forbids them; usually none.
    """

    metadata: Mapping[str, str]
    vocabulary_size: int
    special_tokens: tuple[SpecialToken, ...]
    ollama_settings: Mapping[str, object]
    suppressed_tokens: tuple[SpecialToken, ...] = ()

    def value(self, name: str) -> str:
        """Return the value of ``general.NAME`` or ``ARCHITECTURE.NAME``; an empty string if there is none."""
        architecture = self.metadata.get("general.architecture", "")
        return self.metadata.get(f"general.{name}") or self.metadata.get(f"{architecture}.{name}") or ""

    @property
    def sampling(self) -> dict[str, str]:
        """The settings that the model's author recommends, by name."""
        prefix = "general.sampling."
        return {key.removeprefix(prefix): value for key, value in self.metadata.items() if key.startswith(prefix)}

    def as_json(self) -> dict[str, object]:
        """Return an object for JSON."""
        return {
            "vocabulary_size": self.vocabulary_size,
            "special_tokens": [vars(token) for token in self.special_tokens],
            "suppressed_tokens": [vars(token) for token in self.suppressed_tokens],
            "sampling": self.sampling,
            "ollama_settings": dict(self.ollama_settings),
            "metadata": dict(self.metadata),
        }


def read_facts(path: str | Path, ollama_settings_file: str | Path | None = None) -> ModelFacts:
    """Read the facts in a model's header.

    Args:
        path: the GGUF file.
        ollama_settings_file: the JSON file of Ollama's sampling settings, see `ModelEntry`; None if there is none.

    Raises ``ModelError`` for a file that `check_gguf` rejects.
    """
    path = Path(path)
    check_gguf(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = HeaderReader(data)
        reader.read_min_file_bytes()
        tokens = [token.decode("utf-8", "replace") for token in reader.tokens]
    special_tokens: list[SpecialToken] = []
    for key, token_id in reader.values.items():
        role = _special_token_role(key)
        if role and isinstance(token_id, int) and 0 <= token_id < len(tokens):
            special_tokens.append(SpecialToken(role, _PURPOSE_BY_ROLE.get(role, ""), token_id, tokens[token_id]))
    suppressed_tokens: list[SpecialToken] = []
    for token_id in sorted(set(reader.suppressed_ids)):
        if 0 <= token_id < len(tokens):
            suppressed_tokens.append(SpecialToken("suppressed", "never drawn", token_id, tokens[token_id]))
    return ModelFacts(
        metadata={key: metadata_text(value) for key, value in reader.values.items()},
        vocabulary_size=len(tokens),
        special_tokens=tuple(special_tokens),
        ollama_settings=_read_ollama_settings(ollama_settings_file),
        suppressed_tokens=tuple(suppressed_tokens),
    )


_SPECIAL_TOKEN_KEY = re.compile(r"tokenizer\.ggml\.(?P<role>.*)_token_id")


def _special_token_role(key: str) -> str:
    """Return the role of the special token that a key of the metadata names; empty for another key."""
    match = _SPECIAL_TOKEN_KEY.fullmatch(key)
    return "" if match is None else match["role"]


def _read_ollama_settings(path: str | Path | None) -> Mapping[str, object]:
    settings = None if path is None else read_json(Path(path))
    return settings if isinstance(settings, dict) else {}


@dataclass(frozen=True)
class ModelSummary:
    """A summary of the headers of a model's files.

    Attributes:
        entry: the model.
        size_bytes: size of all files together.
        architecture: llama.cpp's name of the architecture; empty if the header does not have it.
        quantization: the quantization, such as ``Q4_K_M``; ``unknown`` if the header does not show it.
        parameters: number of weights.
        trained_context: context length of the training, in tokens; None if the header does not have it.
        has_chat_template: True if the header has a chat template.
        problem: the reason why the model cannot be loaded; None if the header shows no such reason.
        other_kind: the kind of a projector, an adapter or another file that belongs to a model, as an error; None
            for a model.
    """

    entry: ModelEntry
    size_bytes: int
    architecture: str = ""
    quantization: str = "unknown"
    parameters: int = 0
    trained_context: int | None = None
    has_chat_template: bool = False
    problem: str | None = None
    other_kind: ModelError | None = None

    @property
    def is_model(self) -> bool:
        """False for projectors, adapters and other files that belong to a model."""
        return self.other_kind is None

    def as_json(self) -> dict[str, object]:
        """Return the JSON object that `gen models --format json` prints for the model."""
        return {
            "name": self.entry.name,
            "source": self.entry.source,
            "path": str(self.entry.path),
            "adapters": [str(adapter) for adapter in self.entry.adapters],
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
    """The header of one file."""

    values: Values  # the metadata by key, without lists; empty if there is a problem
    weight_counts_by_type: Counter[int]  # number of weights of each ggml type
    problem: str | None = None  # the reason why the file cannot be used; None if there is none


def read_summaries(entries: Iterable[ModelEntry]) -> Iterator[ModelSummary]:
    """Yield the summary of each model. The header of a file with several names is read only once."""
    headers: dict[tuple[int, int], _Header] = {}
    for entry in entries:
        yield _summarize(entry, headers)


def _summarize(entry: ModelEntry, headers: dict[tuple[int, int], _Header]) -> ModelSummary:
    if entry.is_missing:
        return ModelSummary(entry, 0, problem=f"missing; {entry.advice_if_missing}")
    size_bytes = 0
    weight_counts: Counter[int] = Counter()
    values: Values = {}
    problem = _missing_parts_problem(entry)
    for part_index, path in enumerate(entry.parts):
        try:
            status = path.stat()
            file_identity = (status.st_dev, status.st_ino)
            if file_identity not in headers:
                headers[file_identity] = _read_header(path)
            header = headers[file_identity]
        except OSError as error:
            return ModelSummary(entry, size_bytes, problem=file_problem(error, path))
        size_bytes += status.st_size
        weight_counts += header.weight_counts_by_type
        problem = problem or header.problem
        if part_index == 0:
            values = header.values
    other_kind: ModelError | None = None
    if not problem:
        if entry.path == entry.parts[0]:
            other_kind = describe_other_kind(values)
        has_only_vocabulary = values.get("tokenizer.ggml.model") and not weight_counts
        if other_kind is None and has_only_vocabulary:
            other_kind = ModelError("a vocabulary without tensors")
    architecture = _decode_text(values.get("general.architecture"))
    trained_context = values.get(f"{architecture}.context_length")
    return ModelSummary(
        entry=entry,
        size_bytes=size_bytes,
        architecture=architecture,
        quantization=quantization_name(values.get("general.file_type"), weight_counts),
        parameters=sum(weight_counts.values()),
        trained_context=trained_context if isinstance(trained_context, int) else None,
        has_chat_template=bool(values.get("tokenizer.chat_template")),
        problem=problem if other_kind is None else str(other_kind),
        other_kind=other_kind,
    )


def _missing_parts_problem(entry: ModelEntry) -> str | None:
    """Return the problem of a split model without all of its parts; None if no part is missing."""
    part_name = parse_part_name(entry.path.name)
    if part_name is None or len(entry.parts) == part_name.total:
        return None
    missing_paths = [path for path in part_paths(entry.path) if path not in entry.parts]
    more_missing = f" and {len(missing_paths) - 1} more" if len(missing_paths) > 1 else ""
    return f"{len(missing_paths)} of its {part_name.total} parts missing: {missing_paths[0].name}{more_missing}"


def _read_header(path: Path) -> _Header:
    """Read one header. A file that cannot be used gets a `problem`. Raises ``OSError`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                return _Header({}, Counter(), "not a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                reader = QuickHeaderReader(data)
                min_file_bytes = reader.read_min_file_bytes()
                file_bytes = len(data)
    except DamagedError as error:
        return _Header({}, Counter(), f"damaged: {error}")
    problem = None
    if file_bytes < min_file_bytes:
        problem = f"truncated: {file_bytes:,} of {min_file_bytes:,} bytes"
    return _Header(reader.values, reader.weight_counts_by_type, problem)


def _decode_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
