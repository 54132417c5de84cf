"""Headers and metadata of GGUF files, and checks that llama.cpp can load the files.

A file is checked before llama.cpp opens it, because llama.cpp can crash on a damaged file. Some values in the
metadata make llama.cpp end the process, or never return. The package ``gguf`` would need seconds, because it
builds an object for every token of the vocabulary. This module reads a whole header in a few hundredths of a
second, and the facts for a list of models in about a millisecond. ggml's docs/gguf.md describes the format.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import Word
from ..common.files import file_problem
from ..common.text import count_noun
from .errors import AdapterError, ModelError
from .names import parse_part_name, part_paths

Values = Mapping[str, int | float | bytes]  # The metadata of a GGUF file by key, without lists. Strings are bytes.

# a description of some other formats, by the first bytes of their files
_FORMAT_BY_MAGIC = {
    b"version https://git-lfs": "a Git LFS pointer; fetch the real file with `git lfs pull`",
    b"PK\x03\x04": "a zip archive, or weights of PyTorch; a model must be converted to GGUF",
    b"\x1f\x8b": "a file that gzip compressed; decompress it with gunzip",
    b"\x80\x02": "weights of PyTorch; a model must be converted to GGUF",
    b"<!": "a web page; the download link was not the file's own",
    b"<html": "a web page; the download link was not the file's own",
    b"<HTML": "a web page; the download link was not the file's own",
    b"<?xml": "an error page of a server; the download link was not the file's own",
    b"{": "JSON, such as the answer of a server; the download link was not the file's own",
    b"Entry not found": "the answer of a server that has no such file; check the link",
    b"Repository not found": "the answer of a server that has no such file; check the link",
    b"ggml": "an old GGML file; convert it to GGUF",
    b"ggjt": "an old GGML file; convert it to GGUF",
}


class DamagedError(Exception):
    """The file is not a GGUF file that llama.cpp can read. The message is the reason."""


@dataclass(frozen=True)
class GgufTensor:
    """The description of a tensor in a GGUF file."""

    name: str
    shape: tuple[int, ...]  # the extents in ggml's order: of a matrix, the inputs first, then the outputs
    byte_count: int  # size of its data; 0 if the type is unknown
    end: int  # end of its data, in bytes from the start of all tensor data


@dataclass(frozen=True)
class GgufHeader:
    """The parts of a GGUF file's header that the engine needs."""

    values: Values  # the metadata by key, without lists
    tensor_count: int  # number of tensors
    # the bytes that have no token in the vocabulary, if llama.cpp's tokenizer needs a token for each byte;
    # otherwise empty
    bytes_without_token: frozenset[int]
    duplicate_token: str | None  # a description of the first token that the vocabulary has twice
    list_keys: frozenset[str]  # the keys of the metadata whose values are lists
    tensors: tuple[GgufTensor, ...] = ()


def check_gguf(path: str | Path) -> None:
    """Raise ``ModelError`` unless ``path`` is a GGUF file with all the bytes that its tensors need."""
    read_header(path)


def read_header(path: str | Path) -> GgufHeader:
    """Read the header, and check the file as `check_gguf` does."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            first_bytes = file.read(64)  # enough for the longest key of _FORMAT_BY_MAGIC
            if not first_bytes:
                raise ModelError("the file is empty", origin=str(path))
            if not first_bytes.startswith(b"GGUF"):
                raise ModelError(f"not a GGUF file{_describe_format(first_bytes)}", origin=str(path))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                reader = HeaderReader(data)
                min_file_bytes = reader.read_min_file_bytes()
                file_bytes = len(data)
                header = GgufHeader(
                    values=reader.values,
                    tensor_count=reader.tensor_count,
                    bytes_without_token=reader.find_bytes_without_token(),
                    duplicate_token=reader.describe_duplicate_token(),
                    list_keys=frozenset(reader.list_keys),
                    tensors=reader.tensors,
                )
    except IsADirectoryError:
        raise ModelError("this is a folder; give the .gguf file in it", origin=str(path)) from None
    except OSError as error:
        raise ModelError(file_problem(error, path), origin=str(path)) from None
    except ValueError as error:  # the path contains a NUL
        raise ModelError(f"no file can have this name: {error}", origin=repr(str(path))) from None
    except DamagedError as error:
        raise ModelError(f"damaged GGUF file: {error}", origin=str(path)) from None
    if file_bytes < min_file_bytes:
        raise ModelError(
            f"truncated: its tensors need {min_file_bytes:,} bytes, the file has {file_bytes:,}",
            origin=str(path),
            advice="download it again",
        )
    return header


def read_tensors(path: Path, header: GgufHeader) -> list[GgufTensor]:
    """Return the tensors of all parts of a model. Raises ``ModelError``."""
    # ``header``: that of the first part, whose vocabulary takes long to read again
    other_headers = map(read_header, part_paths(path)[1:])
    return [tensor for each in (header, *other_headers) for tensor in each.tensors]


def check_is_model(path: Path) -> GgufHeader:
    """Read the header, and raise ``ModelError`` unless the file is a language model with all of its parts."""
    header = read_header(path)
    other_kind = describe_other_kind(header.values)
    if other_kind is None and header.values.get("tokenizer.ggml.model") and not header.tensor_count:
        other_kind = ModelError("a vocabulary without tensors", advice="give a whole model")
    if other_kind is not None:
        raise ModelError(f"this is {other_kind.problem}", origin=str(path), advice=other_kind.advice)
    if header.duplicate_token is not None:  # with which an assertion of llama.cpp would fail
        raise ModelError(f"{path}: {header.duplicate_token}; convert the model again")
    if "split.count" in header.values:
        _check_part_name(path, header.values["split.count"])
        for index, part in enumerate(part_paths(path)):
            if index > 0:
                _check_part(part, index)
    return header


def _check_part(path: Path, index: int) -> None:
    """Raise ``ModelError`` unless a file is the part of a split model with this index, counted from 0."""
    if not path.is_file():
        raise ModelError(f"{path}: this part of the model is missing; all parts must be in one folder")
    found_index = read_header(path).values.get("split.no")
    if found_index != index:
        found = f"part {found_index + 1} of a model" if isinstance(found_index, int) else "no part of a model"
        raise ModelError(f"{path}: this is {found}, not part {index + 1}; the name of each part has its number")


def _check_part_name(path: Path, part_count: object) -> None:
    """Raise ``ModelError`` if the name of the first part of a split model does not lead to the other parts."""
    if not isinstance(part_count, int) or part_count <= 1:
        return
    part_name = parse_part_name(path.name)
    if part_name is None or (part_name.number, part_name.total) != (1, part_count):
        raise ModelError(
            f"{path}: this is part 1 of {part_count} of a model, whose other parts are found by its name;"
            f" rename it to end in -00001-of-{part_count:05}.gguf, with the other parts beside it"
        )


def check_is_adapter(path: Path, architecture: object) -> None:
    """Raise ``AdapterError`` unless the file is a LoRA adapter for models of this ``general.architecture``."""
    try:
        values = read_header(path).values
    except ModelError as error:
        raise AdapterError.of(error) from None
    for key, expected in (("general.type", b"adapter"), ("adapter.type", b"lora")):
        value = values.get(key)
        if value != expected:
            reason = f"it has no {key}"
            if value:
                reason = f"its {key} is {_as_text(value)!r}, not {_as_text(expected)!r}"
            problem = f"this is not a LoRA adapter: {reason}"
            raise AdapterError(problem, origin=str(path), advice="give a LoRA adapter as a GGUF file")
    adapter_architecture = values.get("general.architecture")
    if adapter_architecture != architecture:
        raise AdapterError(
            f"this LoRA adapter is made for {_as_text(adapter_architecture)}, and the model is"
            f" {_as_text(architecture)}",
            origin=str(path),
            advice="give an adapter made for the model",
        )


def _describe_format(first_bytes: bytes) -> str:
    """Return the likely format of a file, as the end of an error message; empty if the format is unknown."""
    bytes_after_header_length = first_bytes[8:10]
    if bytes_after_header_length in (b'{"', b"{ "):
        return "; it looks like safetensors, which must be converted to GGUF; look for a GGUF file of the model"
    start = first_bytes.lstrip()
    for magic, description in _FORMAT_BY_MAGIC.items():
        if start.startswith(magic):
            return f"; it looks like {description}"
    return ""


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a GGUF file by key, without lists. Numbers are formatted as llama.cpp formats them.

    Raises ``ModelError`` for a file that `check_gguf` rejects.
    """
    return {key: metadata_text(value) for key, value in read_header(path).values.items()}


def metadata_text(value: int | float | bytes) -> str:
    """Return a value of the metadata as a string, formatted as llama.cpp formats it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, float) else str(value)


# Numbers of types of metadata values
_INT32_TYPE = 5
_STRING_TYPE = 8
_ARRAY_TYPE = 9
# For each ggml tensor type of ggml.c: elements per block, bytes per block. llama.cpp rejects unknown types itself.
TENSOR_TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
    42: (64, 18),
}  # fmt: skip
# The struct format of each scalar type, by its number.
_SCALAR_FORMATS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_MAX_NAME_BYTES = 256  # maximum length of a tensor name, which has at most 64 bytes (GGML_MAX_NAME), or of a key
_MAX_STRING_BYTES = 1 << 30  # Maximum length of a string. A longer string means that the file is damaged.
_MAX_DIMENSIONS = 4  # GGML_MAX_DIMS in ggml
_LENGTH_BYTES = 8  # size of the length that precedes a string
_U64 = struct.Struct("<Q").unpack_from
_U32 = struct.Struct("<I").unpack_from
_DEFAULT_ALIGNMENT_BYTES = 32  # the value of general.alignment if the metadata does not have it


class HeaderReader:
    """A reader of the header from the start: magic, version, counts, metadata, tensor descriptions."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 4
        # the metadata that was read so far, by key, without lists
        self.values: dict[str, int | float | bytes] = {}
        self.list_keys: set[str] = set()  # the keys whose values are lists, of those that were read so far
        self.tensor_count = 0  # number of tensors
        self.tensors: tuple[GgufTensor, ...] = ()  # those that were read
        # ids of the tokens that the file forbids to draw, as it lists them
        self.suppressed_ids: tuple[int, ...] = ()
        self.tokens: list[bytes] = []  # the text of each token as it is in the file
        self._token_list_place = (0, 0)  # offsets of the start and the end of the list of tokens in the file

    def read_min_file_bytes(self) -> int:
        """Read the header, and return the minimum size of the file in bytes. Raises ``DamagedError``."""
        self._read_counts_and_metadata()
        first_problem = next(iterate_fatal_values(self.values, self.list_keys), None)
        if self.tensor_count and first_problem is not None:
            raise DamagedError(first_problem)
        self.tensors = tuple(self._read_tensor() for _ in range(self.tensor_count))
        return self._min_file_bytes(max((tensor.end for tensor in self.tensors), default=0))

    def _min_file_bytes(self, tensor_bytes: int) -> int:
        """Return the size of a file with the header that was read, padding, and this many bytes of tensor data."""
        if not self.tensor_count:
            return self._offset
        return _round_up(self._offset, self._alignment_bytes()) + tensor_bytes

    def _alignment_bytes(self) -> int:
        value = self.values.get("general.alignment")
        return value if isinstance(value, int) and value > 0 else _DEFAULT_ALIGNMENT_BYTES

    def _read_counts_and_metadata(self) -> None:
        version = self._read_number("<I")
        if version not in (2, 3):
            if version and version & 0xFFFF == 0:
                raise DamagedError("it is big-endian; convert it with `gguf-convert-endian FILE little`")
            advice = "convert the model again" if version < 2 else "another version of llama.cpp wrote it"
            raise DamagedError(f"version {version} is not 2 or 3; {advice}")
        self.tensor_count = self._read_number("<Q")
        entry_count = self._read_number("<Q")
        for _ in range(entry_count):
            self._read_metadata_entry()

    def _read_number(self, format_: str) -> int:
        start = self._offset
        self._skip(struct.calcsize(format_), "the header")
        (value,) = struct.unpack_from(format_, self._data, start)
        return int(value)

    def _skip(self, byte_count: int, item_name: str) -> None:
        if byte_count > len(self._data) - self._offset:
            raise DamagedError(
                f"{item_name} runs past the end of the file, which has {count_noun(len(self._data), 'byte')}"
            )
        self._offset += byte_count

    def _read_string(self, item_name: str, max_bytes: int = _MAX_STRING_BYTES) -> bytes:
        length = self._read_number("<Q")
        if length > max_bytes:
            raise DamagedError(f"{item_name} is {count_noun(length, 'byte')} long")
        start = self._offset
        self._skip(length, item_name)
        return self._data[start : self._offset]

    def _read_metadata_entry(self) -> None:
        key = self._read_string("a metadata key", _MAX_NAME_BYTES).decode("utf-8", "replace")
        value_type = self._read_number("<I")
        start = self._offset
        if value_type == _STRING_TYPE:
            self.values[key] = self._read_string(f"the value of {key!r}")
        elif value_type == _ARRAY_TYPE:
            self._read_array(key)
        else:
            self._skip(self._bytes_of_scalar(value_type, key), f"the value of {key!r}")
            (self.values[key],) = struct.unpack_from(_SCALAR_FORMATS[value_type], self._data, start)

    def find_bytes_without_token(self) -> frozenset[int]:
        """Return the bytes for which llama.cpp's tokenizer needs a token, but has none."""
        # Raises ``DamagedError``.
        start, end = self._token_list_place
        tokenizer = self.values.get("tokenizer.ggml.model")
        missing = find_bytes_without_token(
            tokenizer, lambda run: self._data.find(run, start, end) >= 0, self.tokens
        )
        if missing and tokenizer == b"rwkv":
            raise DamagedError(
                "tokenizer.ggml.model is 'rwkv', but the vocabulary is not RWKV's: "
                f"it has no token for the byte 0x{min(missing):02X}"
            )
        return missing

    def describe_duplicate_token(self) -> str | None:
        """Describe the first token that occurs twice in the vocabulary; return None if there is none."""
        # llama.cpp gives tokens without text different texts.
        if len(set(self.tokens)) == len(self.tokens):
            return None
        ids: dict[bytes, int] = {}
        for token_id, text in enumerate(self.tokens):
            first_id = ids.setdefault(text, token_id)
            if text and first_id != token_id:
                shown_text = text.decode("utf-8", "replace")
                return f"its vocabulary holds {shown_text!r} twice, as tokens {first_id} and {token_id}"
        return None

    def _read_array(self, key: str) -> None:
        value_type = self._read_number("<I")
        count = self._read_number("<Q")
        start = self._offset
        self.list_keys.add(key)
        if value_type != _STRING_TYPE:
            self._skip(self._bytes_of_scalar(value_type, key) * count, f"the list {key!r}")
            if key == "tokenizer.ggml.suppress_tokens" and value_type == _INT32_TYPE:
                self.suppressed_ids = struct.unpack_from(f"<{count}i", self._data, start)
            return
        if key == "tokenizer.ggml.tokens":
            self._read_tokens(key, count)
            self._token_list_place = (start, self._offset)
        else:
            self._skip_strings(key, count)

    # The next two loops take most of the time, because a vocabulary has a hundred thousand strings.

    def _read_tokens(self, key: str, count: int) -> None:
        data = self._data
        end = self._offset
        last_offset = len(data) - _LENGTH_BYTES
        tokens: list[bytes] = []
        for _ in range(count):
            if end > last_offset:
                raise DamagedError(f"the list {key!r} runs past the end of the file")
            start = end + _LENGTH_BYTES
            end = start + _U64(data, end)[0]
            tokens.append(data[start:end])
        self.tokens = tokens
        self._set_offset_after_list(end, key)

    def _skip_strings(self, key: str, string_count: int) -> None:
        data = self._data
        offset = self._offset
        last_offset = len(data) - _LENGTH_BYTES
        for _ in range(string_count):
            if offset > last_offset:
                raise DamagedError(f"the list {key!r} runs past the end of the file")
            offset += _LENGTH_BYTES + _U64(data, offset)[0]
        self._set_offset_after_list(offset, key)

    def _set_offset_after_list(self, offset: int, key: str) -> None:
        """Move to the end of a list. Raises ``DamagedError`` if its last string runs past the end of the file."""
        self._offset = offset
        self._skip(0, f"the list {key!r}")

    def _bytes_of_scalar(self, value_type: int, key: str) -> int:
        if value_type not in _SCALAR_FORMATS:
            raise DamagedError(f"{key!r} has the unknown type {value_type}")
        return struct.calcsize(_SCALAR_FORMATS[value_type])

    def _read_tensor(self) -> GgufTensor:
        name = self._read_string("a tensor's name", _MAX_NAME_BYTES).decode("utf-8", "replace")
        dimension_count = self._read_number("<I")
        if not 1 <= dimension_count <= _MAX_DIMENSIONS:
            raise DamagedError(f"the tensor {name!r} has {dimension_count} dimensions")
        shape = tuple(self._read_number("<Q") for _ in range(dimension_count))
        type_number = self._read_number("<I")
        data_offset = self._read_number("<Q")
        # llama.cpp adds and multiplies norms and biases in F32 only. For other types, it ends the process.
        if type_number != 0 and dimension_count == 1 and name.endswith(("norm.weight", ".bias")):
            raise DamagedError(
                f"the tensor {name!r} has the type {type_number}, not 0 (F32); convert the model again"
            )
        byte_count = _tensor_bytes(math.prod(shape), type_number)
        return GgufTensor(name, shape, byte_count, data_offset + byte_count)


def _tensor_bytes(weight_count: int, type_number: int) -> int:
    """Return the size of a tensor's data; 0 for an unknown type."""
    block_elements, block_bytes = TENSOR_TYPES.get(type_number, (1, 0))
    return weight_count // block_elements * block_bytes


def _round_up(offset: int, alignment: int) -> int:
    """Return the least multiple of the alignment that is not below an offset."""
    return offset + -offset % alignment


# Start of the key after a long list of strings. All long lists are lists of the tokenizer.
_KEY_START = b"tokenizer."
_KEY_PATTERN = re.compile(rb"[a-z0-9_.]+")
# minimum number of strings in a list that is skipped; the strings of a shorter list are read one by one
_MIN_SKIPPED_STRINGS = 2000
_MAX_VALUE_TYPE = 12
# Maximum size of a vocabulary's list, so that the tensors are not searched. The largest lists have ten megabytes.
_MAX_LIST_BYTES = 1 << 26
# the format of a tensor's extents, type and offset, by the number of its dimensions
_SHAPE_FORMATS = [struct.Struct(f"<{dimensions}QIQ") for dimensions in range(5)]


class QuickHeaderReader(HeaderReader):
    """A header reader that skips long lists of strings by searching for the key after the list."""

    # A list of strings has no length in bytes. So reading it takes a step for each of about a hundred thousand
    # strings.

    def __init__(self, data: mmap.mmap) -> None:
        super().__init__(data)
        self.weight_counts_by_type: Counter[int] = Counter()  # number of weights of each ggml type
        self._skips_long_lists = True

    @property
    def has_chat_template(self) -> bool:
        """True if the file has a chat template."""
        return bool(self.values.get("tokenizer.chat_template"))

    def read_min_file_bytes(self) -> int:
        """Read the header, and return the minimum size of the file in bytes. Raises ``DamagedError``."""
        try:
            return self._read_to_file_bytes()
        except DamagedError:  # the file is damaged, or a string of the vocabulary looked like a key
            self._skips_long_lists = False
            self._offset = 4
            self.values.clear()
            self.weight_counts_by_type.clear()
            return self._read_to_file_bytes()

    def _read_to_file_bytes(self) -> int:
        self._read_counts_and_metadata()
        min_file_bytes = self._min_file_bytes(self._read_tensors())
        if self._skips_long_lists and min_file_bytes > len(self._data):
            raise DamagedError("it is incomplete")
        return min_file_bytes

    def _read_tokens(self, key: str, count: int) -> None:
        self._skip_strings(key, count)

    def _skip_strings(self, key: str, count: int) -> None:
        is_long = count >= _MIN_SKIPPED_STRINGS
        if self._skips_long_lists and is_long:
            min_list_end = self._offset + count * _LENGTH_BYTES
            if self._skip_to_next_key(min_list_end):
                return
        super()._skip_strings(key, count)

    def _skip_to_next_key(self, start: int) -> bool:
        """Move to the first key at or after ``start``. If there is none, do not move, and return False."""
        data = self._data
        end = min(len(data), start + _MAX_LIST_BYTES)
        key_start = data.find(_KEY_START, start, end)
        while key_start >= 0:
            (key_length,) = _U64(data, key_start - _LENGTH_BYTES)
            key_end = key_start + key_length
            is_possible_length = len(_KEY_START) < key_length <= _MAX_NAME_BYTES
            value_start = key_end + struct.calcsize("<I")  # the type precedes the value
            if is_possible_length and value_start <= end and _KEY_PATTERN.fullmatch(data, key_start, key_end):
                (value_type,) = _U32(data, key_end)
                if value_type <= _MAX_VALUE_TYPE:
                    self._offset = key_start - _LENGTH_BYTES
                    return True
            key_start = data.find(_KEY_START, key_start + 1, end)
        return False

    def _read_tensors(self) -> int:
        """Read all tensor descriptions. Return the size of all tensor data in bytes."""
        # If long lists are skipped, and the tensors do not follow each other, the search has found a wrong place.
        data = self._data
        offset = self._offset
        alignment = self._alignment_bytes()
        weight_counts_by_type = self.weight_counts_by_type
        data_end = 0
        try:
            for _ in range(self.tensor_count):
                offset += _LENGTH_BYTES + _U64(data, offset)[0]
                shape_format = _SHAPE_FORMATS[_U32(data, offset)[0]]
                *extents, type_number, data_start = shape_format.unpack_from(data, offset + 4)
                if self._skips_long_lists and data_start != _round_up(data_end, alignment):
                    raise DamagedError("its tensors do not follow each other")
                offset += 4 + shape_format.size
                weight_count = math.prod(extents)
                weight_counts_by_type[type_number] += weight_count
                data_end = max(data_end, data_start + _tensor_bytes(weight_count, type_number))
        except (struct.error, IndexError, OverflowError):
            raise DamagedError("the descriptions of its tensors are broken") from None
        self._offset = offset
        return data_end


_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS in llama.cpp
_MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS in llama.cpp
_ROPE_SCALING_TYPES = (b"none", b"linear", b"yarn", b"longrope")  # LLAMA_ROPE_SCALING_TYPES in llama.cpp
_BYTE_TOKENS = [b"<0x%02X>" % byte for byte in range(256)]  # SentencePiece's token for each byte
# All byte tokens in order, as nearly every file with a SentencePiece vocabulary contains them
_CONSECUTIVE_BYTE_TOKENS = b"".join(struct.pack("<Q", len(token)) + token for token in _BYTE_TOKENS)
# RWKV's escapes for some bytes; other bytes that are not printable are written as ``\xHH``
_RWKV_ESCAPES = {b"\\t": b"\t", b"\\n": b"\n", b"\\r": b"\r", b"\\\\": b"\\", b"\\'": b"'", b'\\"': b'"'}


def iterate_fatal_values(values: Values, list_keys: Container[str]) -> Iterator[str]:
    """Yield a sentence for each value of the metadata that would make llama.cpp end the process."""
    # ``list_keys``: the keys of the metadata whose values are lists.
    for key, value in values.items():
        is_layer_count = isinstance(value, int) and 1 <= value <= _MAX_LAYERS
        if key.endswith(".block_count") and not is_layer_count:
            yield f"{key} is {value!r}, not within 1..{_MAX_LAYERS}"
        is_small_number = isinstance(value, float) and 0 <= value < math.inf
        if key.endswith("epsilon") and not is_small_number:
            yield f"{key} is {value!r}, not a finite number ≥ 0"
        is_power_of_two = isinstance(value, int) and value.bit_count() == 1
        if key == "general.alignment" and not is_power_of_two:
            yield f"general.alignment is {value!r}, not a power of two"
        if key.endswith(".rope.scaling.type") and value not in _ROPE_SCALING_TYPES:
            allowed_types = ", ".join(name.decode() for name in _ROPE_SCALING_TYPES)
            yield f"{key} is {_as_text(value)!r}, not one of {allowed_types}"
    yield from _iterate_fatal_counts(values, list_keys)
    has_no_tokenizer = values.get("tokenizer.ggml.model") in (None, b"none", b"no_vocab")
    if has_no_tokenizer and describe_other_kind(values) is None:
        yield "it has no tokenizer (tokenizer.ggml.model), so it can neither read nor write text"


def describe_other_kind(values: Values) -> ModelError | None:
    """Return the kind of a file that is not a language model, as an error; otherwise None."""
    part_index = values.get("split.no")
    part_count = values.get("split.count")
    if isinstance(part_index, int) and isinstance(part_count, int) and part_index > 0:
        return ModelError(
            f"part {part_index + 1} of {part_count} of a model",
            advice=f"give the first part, which ends in -00001-of-{part_count:05}.gguf",
        )
    file_kind = values.get("general.type")
    architecture = values.get("general.architecture")
    if file_kind == b"mmproj" or architecture == b"clip":
        return ModelError("a projector for images or sound", advice="give the model that it belongs to")
    if file_kind == b"adapter":
        advice = ("give it with ", Word.LORA, ", and the model that it was made for with ", Word.MODEL)
        return ModelError("an adapter", advice=advice)
    if file_kind == b"imatrix":
        return ModelError("an importance matrix, which is used to quantize a model", advice="give a model")
    return None


# Architectures without experts whose files may name one. llama.cpp reads it as none.
_ARCHITECTURES_WITH_UNUSED_EXPERT = ("hunyuan-dense", "hunyuan_vl")


def _iterate_fatal_counts(values: Values, list_keys: Container[str]) -> Iterator[str]:
    """Yield a sentence for each count of layers, of experts or of their groups that exceeds its limit."""
    architecture = _as_text(values.get("general.architecture", b""))

    def count(key: str) -> int:
        value = values.get(key)
        return value if isinstance(value, int) else 0

    layer_key = f"{architecture}.block_count"
    nextn_key = f"{architecture}.nextn_predict_layers"
    layers = count(layer_key)
    nextn_layers = count(nextn_key)
    if 0 < layers < nextn_layers:
        yield f"{nextn_key} is {nextn_layers}, and {layer_key} only {layers}"

    expert_key = f"{architecture}.expert_count"
    used_key = f"{architecture}.expert_used_count"
    experts = count(expert_key)
    used = count(used_key)
    if architecture in _ARCHITECTURES_WITH_UNUSED_EXPERT and experts <= 1:
        experts = 0
        used = 0
    if not 0 <= experts <= _MAX_EXPERTS:
        yield f"{expert_key} is {experts}, not within 0..{_MAX_EXPERTS}"
    if used > experts:
        yield f"{used_key} is {used}, and {expert_key} only {experts}"
    has_used_list = used_key in list_keys  # with a number for each layer
    if experts > 0 and used == 0 and not has_used_list:
        yield f"{expert_key} is {experts}, and {used_key} is 0 or missing"

    group_key = f"{architecture}.expert_group_count"
    used_group_key = f"{architecture}.expert_group_used_count"
    groups = count(group_key)
    used_groups = count(used_group_key)
    if groups > 0 and groups >= experts:
        yield f"{group_key} is {groups}, and {expert_key} only {experts}"
    if 1 < groups < experts and experts % groups != 0:
        yield f"{group_key} is {groups}, which does not divide {expert_key}, {experts}"
    if groups > 1 and not 0 < used_groups < groups:
        yield f"{used_group_key} is {used_groups}, not within 1..{groups - 1}"


def _as_text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def find_bytes_without_token(
    tokenizer: object, contains: Callable[[bytes], bool], tokens: Iterable[bytes]
) -> frozenset[int]:
    """Return the bytes that have no token; empty if the tokenizer needs no byte tokens."""
    # ``contains``: tells whether the file's list of tokens contains some bytes, which takes much less time than
    # searching ``tokens``.
    if tokenizer == b"llama" and not contains(_CONSECUTIVE_BYTE_TOKENS):
        # llama.cpp also accepts a token that is the byte itself.
        byte_tokens = {token for token in tokens if len(token) in (1, len(_BYTE_TOKENS[0]))}
        return frozenset(
            byte
            for byte, token in enumerate(_BYTE_TOKENS)
            if token not in byte_tokens and bytes([byte]) not in byte_tokens
        )
    if tokenizer == b"rwkv":
        texts = {_unescape_rwkv(token) for token in tokens}
        return frozenset(byte for byte in range(256) if bytes([byte]) not in texts)
    return frozenset()


def _unescape_rwkv(token: bytes) -> bytes:
    """Return the byte of a token in RWKV's vocabulary; a token without an escape is returned unchanged."""
    if token.startswith(b"\\x") and len(token) == len(b"\\x00"):
        try:
            return bytes.fromhex(token[2:].decode("ascii"))
        except ValueError:
            return token
    return _RWKV_ESCAPES.get(token, token)
