"""Names of model files, which may have the number of a part (``NAME-00001-of-00003.gguf``) or a quantization."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

# llama.cpp's SPLIT_PREFIX format, in which the numbers have five digits
_PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.IGNORECASE | re.DOTALL)


class PartName(NamedTuple):
    """The components of the file name of a part of a split model."""

    stem: str  # the common start of the names of all parts
    number: int  # number of the part, counted from 1
    total: int  # number of all parts


def parse_part_name(name: str) -> PartName | None:
    """Return the components of a part's file name; None if the file is not a part of a split model."""
    match = _PART_NAME.fullmatch(name)
    if match is None:
        return None
    part_name = PartName(match["stem"], number=int(match["number"]), total=int(match["total"]))
    return part_name if 1 <= part_name.number <= part_name.total else None


def part_paths(path: Path) -> list[Path]:
    """Return the paths of all parts of a file's model, in order. The files need not exist."""
    # If the model is not split, ``path`` is the only part.
    part_name = parse_part_name(path.name)
    if part_name is None:
        return [path]
    suffix = path.name[-len(".gguf") :]  # may have capitals
    paths: list[Path] = []
    for number in range(1, part_name.total + 1):
        paths.append(path.with_name(f"{part_name.stem}-{number:05}-of-{part_name.total:05}{suffix}"))
    return paths


def model_bytes(path: Path) -> int:
    """Return the size of the model that a file belongs to, in bytes; parts that do not exist count as 0."""
    return sum(part.stat().st_size for part in part_paths(path) if part.is_file())


def first_part(path: Path) -> Path:
    """Return the first part of the model that a file belongs to; ``path`` if that part does not exist."""
    part_name = parse_part_name(path.name)
    if part_name is None or part_name.number == 1:
        return path
    first_path = part_paths(path)[0]
    return first_path if first_path.is_file() else path


# Names of the values of enum llama_ftype in llama.h.
_FILE_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0",
    37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip
_GUESSED_FLAG = 1024  # LLAMA_FTYPE_GUESSED: added to a file type that the writer guessed
# Names of the values of enum ggml_type in ggml.h.
_TENSOR_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
# The quantizations that llama.cpp prefers if none is named, in this order. Without them, it takes the first file.
_PREFERRED_TAGS = ("Q4_K_M", "Q8_0")
_LAST_WORD = re.compile(r"[-.]([A-Za-z0-9_]+)$")
# words in the names of files that belong to a model but are not models, by llama.cpp's rules
_NON_MODEL_WORDS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")


def quantization_name(file_type: object, weight_counts_by_type: Mapping[int, int]) -> str:
    """Return the name of a quantization: by ``general.file_type``, or else by the most frequent ggml type."""
    if isinstance(file_type, int) and (name := _FILE_TYPE_NAMES.get(file_type & ~_GUESSED_FLAG)):
        return name
    if not weight_counts_by_type:
        return "unknown"
    most_frequent_type = max(weight_counts_by_type, key=weight_counts_by_type.__getitem__)
    return _TENSOR_TYPE_NAMES.get(most_frequent_type, f"type {most_frequent_type}")


def quantization_tag(file_name: str) -> str:
    """Return the last word of a file's name in capitals, which llama.cpp takes as the quantization; or ``""``."""
    part_name = parse_part_name(file_name)
    stem = part_name.stem if part_name else file_name[: -len(".gguf")]
    match = _LAST_WORD.search(stem)
    return match[1].upper() if match else ""


def is_model_file_name(path: str) -> bool:
    """Return True if a path ends in the name of a GGUF file that is a model, or a part of a split model."""
    name = path.rpartition("/")[2]
    return name.lower().endswith(".gguf") and not any(word in name for word in _NON_MODEL_WORDS)


def choose_file(paths: Iterable[str], tag: str | None) -> str | None:
    """Return the file of a repository that llama.cpp's ``-hf USER/REPO[:TAG]`` chooses; None if no file fits."""
    # A file fits if the tag occurs in its path before a ``.`` or a ``-``, in upper or lower case. Without a tag,
    # `_PREFERRED_TAGS` are tried, then the first file is taken. Of a split model, the first part is returned.
    candidates = [path for path in paths if is_model_file_name(path) and _is_first_part(path)]
    for wanted_tag in (tag,) if tag else _PREFERRED_TAGS:
        pattern = re.compile(re.escape(wanted_tag) + "[.-]", re.IGNORECASE)
        for path in candidates:
            if pattern.search(path):
                return path
    return None if tag else next(iter(candidates), None)


def _is_first_part(path: str) -> bool:
    part_name = parse_part_name(path.rpartition("/")[2])
    return part_name is None or part_name.number == 1
