"""What `gen models show` prints of a model: its metadata in plain words."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..gguf import check_gguf
from ..gguf_header import HeaderReader
from ..gguf_metadata import metadata_text
from .folder_walk import read_text

_SPECIAL = {
    "bos": "begins a text",
    "eos": "ends a text",
    "eot": "ends a turn",
    "eom": "ends a message",
    "unknown": "stands for what is unknown",
    "padding": "fills up",
    "seperator": "separates",  # so spelled in the format
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
"""What the special tokens of ``tokenizer.ggml.NAME_token_id`` are for."""


@dataclass(frozen=True)
class SpecialToken:
    """A special token. ``role``: its name in the format, such as ``eos``; ``purpose``: in plain words."""

    role: str
    purpose: str
    id: int
    text: str


@dataclass(frozen=True)
class ModelFacts:
    """The metadata of a model.

    Attributes:
        metadata: The numbers and texts of the header, as texts; lists are left out.
        vocabulary_size: Tokens; 0 if the file holds no vocabulary.
        special_tokens: Those that the header names, in its order.
        tool_settings: The sampling settings that Ollama keeps beside the file.
    """

    metadata: Mapping[str, str]
    vocabulary_size: int
    special_tokens: tuple[SpecialToken, ...]
    tool_settings: Mapping[str, object]

    def value(self, name: str) -> str:
        """Return the value of a key of ``general.``, or of the architecture's; empty if there is none."""
        architecture = self.metadata.get("general.architecture", "")
        return self.metadata.get(f"general.{name}") or self.metadata.get(f"{architecture}.{name}") or ""

    @property
    def sampling(self) -> dict[str, str]:
        """The settings that the model's author recommends, by name."""
        start = "general.sampling."
        return {key[len(start) :]: value for key, value in self.metadata.items() if key.startswith(start)}

    def as_json(self) -> dict[str, object]:
        """Return an object for JSON."""
        return {
            "vocabulary_size": self.vocabulary_size,
            "special_tokens": [vars(token) for token in self.special_tokens],
            "sampling": self.sampling,
            "ollama_settings": dict(self.tool_settings),
            "metadata": dict(self.metadata),
        }


def read_facts(path: str | Path, settings: str | Path | None = None) -> ModelFacts:
    """Read a model's header.

    Args:
        path: The GGUF file.
        settings: The file of Ollama's sampling settings, from `ModelEntry`.

    Raises ``ModelError`` for a file that `check_gguf` refuses.
    """
    path = Path(path)
    check_gguf(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = HeaderReader(data)
        reader.bytes_needed()
        tokens = list(reader.tokens())
    special = tuple(
        SpecialToken(role, _SPECIAL.get(role, ""), token, tokens[token].decode("utf-8", "replace"))
        for key, token in reader.values.items()
        if (role := _role(key)) and isinstance(token, int) and 0 <= token < len(tokens)
    )
    metadata = {key: metadata_text(value) for key, value in reader.values.items()}
    return ModelFacts(metadata, len(tokens), special, _read_settings(None if settings is None else Path(settings)))


def _role(key: str) -> str:
    start, end = "tokenizer.ggml.", "_token_id"
    return key[len(start) : -len(end)] if key.startswith(start) and key.endswith(end) else ""


def _read_settings(path: Path | None) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        settings = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}
