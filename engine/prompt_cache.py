"""Prompt caches: files with the state of a context after a prompt, from which a later process continues."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from pathlib import Path
from typing import IO, Any

from ..common.files import file_problem, write_file_atomically, write_problem
from ..common.strict_json import parse_strict_json
from ..models.errors import ModelError
from .model import Model
from .native.devices import llama_cpp_build

_MAGIC_LINE = b"gen prompt cache 1\n"
_MAX_HEADER_BYTES = 1_000_000
_ID_BYTES = array("i").itemsize


class PromptCacheError(ModelError):
    """A prompt cache that does not match the model, or cannot be read or written.

    The message begins with the path.
    """


def save_prompt_cache(model: Model, path: str | Path) -> int:
    """Write the tokens and the state of the model's context that `generate` with ``exact_reuse`` can reuse.

    Returns the number of these tokens. The file is private to its owner, and is written atomically. Afterwards the
    context has no other tokens. Raises ``PromptCacheError`` for a file that cannot be written, and ``ModelError``.
    """
    path = Path(path)
    tokens, state = model.context.exact_state()
    token_bytes = array("i", tokens).tobytes()
    digest = hashlib.sha256(token_bytes)
    digest.update(state)
    header = {
        **_facts_that_must_match(model),
        "tokens": len(tokens),
        "bytes": len(state),
        "sha256": digest.hexdigest(),
    }

    def write_cache(file: IO[bytes]) -> None:
        file.write(_MAGIC_LINE + json.dumps(header).encode() + b"\n" + token_bytes)
        file.write(state)

    try:
        write_file_atomically(path, write_cache, is_private=True)
    except OSError as error:
        raise PromptCacheError(f"{path}: {write_problem(error, path)}") from error
    except ValueError as error:
        raise _file_name_error(path) from error
    return len(tokens)


def load_prompt_cache(model: Model, path: str | Path) -> int:
    """Load a prompt cache into the model's context; return the number of tokens that the context then has.

    Raises ``PromptCacheError`` for a file that cannot be read, is not a prompt cache, is damaged, or was made with
    another model, other settings or another llama.cpp. The context is then empty. If the system could not read the
    file, the ``OSError`` is the ``__cause__`` of the error.
    """
    path = Path(path)
    try:
        tokens, state = _read_cache(model, path)
    except OSError as error:
        raise PromptCacheError(f"{path}: {file_problem(error, path)}") from error
    except ValueError as error:
        raise _file_name_error(path) from error
    except PromptCacheError as error:
        raise PromptCacheError(f"{path}: {error}") from None
    if tokens and not model.context.restore_exact_state(tokens, state):
        raise PromptCacheError(f"{path}: llama.cpp does not accept it")
    return len(tokens)


def _file_name_error(path: Path) -> PromptCacheError:
    """Return the error for a path with a NUL, or with a character that the system cannot encode."""
    return PromptCacheError(f"{str(path)!r}: no file can have this name; give another path")


def _read_cache(model: Model, path: Path) -> tuple[list[int], bytes]:
    """Return the token ids and the state in a file."""
    # Raises ``OSError``, ``ValueError``, ``PromptCacheError`` without path.
    with path.open("rb") as file:
        header = _read_header(file)
        token_count = header["tokens"]
        for name, value in _facts_that_must_match(model).items():
            if header.get(name) != json.loads(json.dumps(value)):
                raise PromptCacheError(f"the prompt cache was made with another {_MATCHED_FACTS[name]}")
        if token_count > model.context.length:
            raise PromptCacheError("the prompt cache has more tokens than the context can hold")
        token_bytes = file.read(_ID_BYTES * token_count)
        state = file.read()
    digest = hashlib.sha256(token_bytes)
    digest.update(state)
    if digest.hexdigest() != header.get("sha256"):
        raise PromptCacheError("the prompt cache is damaged")
    tokens = array("i")
    tokens.frombytes(token_bytes)
    return tokens.tolist(), state


_MATCHED_FACTS = {"model": "model or other settings of the model", "llama_cpp": "llama.cpp"}


def _facts_that_must_match(model: Model) -> dict[str, Any]:
    # Not the number of threads, because the state after a prompt does not depend on it.
    identity = {name: value for name, value in model.identity().items() if name != "threads"}
    build = llama_cpp_build()
    return {"model": identity, "llama_cpp": [build.binding_version, build.ggml_version, build.system_info]}


def _read_header(file: IO[bytes]) -> dict[str, Any]:
    """Return the header. Its ``tokens`` and ``bytes`` are checked against the length of the file."""
    if file.read(len(_MAGIC_LINE)) != _MAGIC_LINE:
        raise PromptCacheError("the file is not a prompt cache of gen")
    try:
        header = parse_strict_json(file.readline(_MAX_HEADER_BYTES))
        token_count = header["tokens"]
        state_bytes = header["bytes"]
    except (ValueError, TypeError, KeyError):
        raise PromptCacheError("the prompt cache is damaged") from None
    remaining_bytes = os.fstat(file.fileno()).st_size - file.tell()
    is_valid = type(token_count) is int and type(state_bytes) is int and min(token_count, state_bytes) >= 0
    if not is_valid or token_count * _ID_BYTES + state_bytes != remaining_bytes:
        raise PromptCacheError("the prompt cache is damaged")
    return dict(header)
