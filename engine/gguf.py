"""Checks a GGUF file before llama.cpp opens it, since llama.cpp can crash on a damaged one."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

from ..common.files import file_problem
from .errors import AdapterError, ModelError
from .gguf_header import DamagedError, HeaderReader
from .gguf_rules import Values, describe_other_kind
from .model_files.parts import part_paths

_LOOKS_LIKE = {
    b"version https://git-lfs": "a Git LFS pointer; fetch the real file with `git lfs pull`",
    b"PK\x03\x04": "a zip archive",
    b"<!DOCTYPE": "a web page; the download link was not the file's own",
    b"<html": "a web page; the download link was not the file's own",
    b"ggml": "an old GGML file; convert it to GGUF",
    b"ggjt": "an old GGML file; convert it to GGUF",
}


@dataclass(frozen=True)
class GgufHeader:
    """What the header of a GGUF file holds, as far as it is read.

    Attributes: ``values``, the metadata without its lists; ``tensor_count``; ``missing_bytes``, the bytes that the
    vocabulary has no token for, where llama.cpp's tokenizer needs one for each.
    """

    values: Values
    tensor_count: int
    missing_bytes: frozenset[int]


def check_gguf(path: str | Path) -> None:
    """Raise ``ModelError`` unless ``path`` is a GGUF file with all the bytes that its tensors need."""
    read_header(path)


def read_header(path: str | Path) -> GgufHeader:
    """Read the header, and check the file as `check_gguf` does."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(64)  # enough for each beginning in _LOOKS_LIKE
            if not head:
                raise ModelError(f"{path}: the file is empty")
            if not head.startswith(b"GGUF"):
                raise ModelError(f"{path}: not a GGUF file{_describe_format(head)}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                reader = HeaderReader(data)
                needed = reader.bytes_needed()
                size = len(data)
                header = GgufHeader(reader.values, reader.tensor_count, reader.missing_bytes())
    except IsADirectoryError:
        raise ModelError(f"{path}: this is a folder; give the .gguf file in it") from None
    except OSError as error:
        raise ModelError(f"{path}: {file_problem(error, path)}") from None
    except ValueError as error:  # a path with a NUL in it
        raise ModelError(f"{str(path)!r}: no file can have this name: {error}") from None
    except DamagedError as error:
        raise ModelError(f"{path}: damaged GGUF file: {error}") from None
    if size < needed:
        raise ModelError(
            f"{path}: truncated: its tensors need {needed:,} bytes, the file has {size:,}; download it again"
        )
    return header


def check_is_model(path: Path) -> GgufHeader:
    """Read the header, and raise ``ModelError`` unless this is a language model, with all parts of a split one."""
    header = read_header(path)
    kind = describe_other_kind(header.values)
    if kind is None and header.values.get("tokenizer.ggml.model") and not header.tensor_count:
        kind = "a vocabulary without tensors; give a whole model"
    if kind is not None:
        description, _, advice = kind.partition("; ")
        raise ModelError(f"{path}: this is {description}", advice=advice)
    for part in part_paths(path)[1:] if "split.count" in header.values else ():
        if not part.is_file():
            raise ModelError(f"{part}: this part of the model is missing; all parts must lie in one folder")
        check_gguf(part)
    return header


def check_is_adapter(path: Path, architecture: object) -> None:
    """Raise ``AdapterError`` unless the file is a LoRA adapter for models of an architecture.

    ``architecture``: the value of ``general.architecture`` in the model's header.
    """
    try:
        values = read_header(path).values
    except ModelError as error:
        raise AdapterError(str(error)) from None
    for key, expected in (("general.type", b"adapter"), ("adapter.type", b"lora")):
        value = values.get(key)
        if value != expected:
            found = f"its {key} is {_shown(value)!r}, not {_shown(expected)!r}" if value else f"it has no {key}"
            raise AdapterError(f"{path}: this is not a LoRA adapter: {found}; give a LoRA adapter as a GGUF file")
    made_for = values.get("general.architecture")
    if made_for != architecture:
        raise AdapterError(
            f"{path}: this LoRA adapter is made for {_shown(made_for)}, and the model is {_shown(architecture)};"
            " give an adapter made for the model"
        )


def _shown(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def duplicate_token(path: Path) -> str | None:
    """A sentence about the first token that the vocabulary holds twice; None without one.

    llama.cpp refuses such a vocabulary, but does not name the token. This reads all tokens, so it is for the case
    that a model did not load.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = HeaderReader(data)
        reader.bytes_needed()
        ids: dict[bytes, int] = {}
        for token, text in enumerate(reader.tokens()):
            first = ids.setdefault(text, token)
            if text and first != token:
                shown = text.decode("utf-8", "replace")
                return f"its vocabulary holds {shown!r} twice, as tokens {first} and {token}"
    return None


def _describe_format(head: bytes) -> str:
    return next(
        (f"; it looks like {description}" for start, description in _LOOKS_LIKE.items() if head.startswith(start)),
        "",
    )
