"""Recoveries as files: ``.npz`` for NumPy, ``.json`` and ``.jsonl`` for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...common.files import file_problem
from ...common.strict_json import encode_json, parse_strict_json
from ...logprobs.records import TokenLogprob, finite_or_none
from ..errors import RecoverError
from ..file_writing import check_writable, write_file
from ..npz_reading import DAMAGED_NPZ_ERRORS, open_npz
from ..numerics import Float64s
from .recovery_result import Recovery

FORMATS = (".npz", ".json", ".jsonl")
_NO_RESULT = "the file is not a result of gen recover"


def check_output_path(path: Path) -> None:
    """Raise ``RecoverError`` for a file name whose ending names no format, or that cannot be written."""
    if path.suffix not in FORMATS:
        raise RecoverError(f"{path}: the name ends in none of {', '.join(FORMATS)}")
    check_writable(path)


def save_recovery(recovery: Recovery, path: Path, about: Mapping[str, Any]) -> None:
    """Write a recovery, and ``about`` (endpoint, prompt) with it; the ending of ``path`` names the format.

    ``.npz``: ``ids`` int32, ``logprobs`` and ``errors`` float64, ``bytes`` uint8 with ``offsets`` int64 (token i
    has bytes[offsets[i]:offsets[i+1]]), ``head``: JSON of everything else. The others: see `recovery_lines`.
    Only recovered tokens are listed. Raises ``RecoverError``.
    """
    check_output_path(path)
    if path.suffix == ".npz":
        write_file(path, lambda file: _write_npz(recovery, file, about))
    elif path.suffix == ".json":
        document = {**head(recovery, about), "tokens": list(_tokens(recovery))}
        write_file(path, lambda file: file.write(encode_json(document).encode() + b"\n"))
    else:
        write_file(path, lambda file: file.writelines(line.encode() for line in recovery_lines(recovery, about)))


def recovery_lines(recovery: Recovery, about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of ``.jsonl``: a head, then each token by id: ``id, token, bytes, logprob, error``."""
    yield encode_json({"event": "recovery", **head(recovery, about)}) + "\n"
    for token in _tokens(recovery):
        yield encode_json({"event": "token", **token}) + "\n"


def head(recovery: Recovery, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what describes the recovery as a whole, as a JSON object."""
    return {
        **about,
        "method": recovery.method,
        "calls": recovery.queries,
        "complete": recovery.complete,
        "stopped": recovery.stopped,
        "normalised": recovery.normalised,
        "error": finite_or_none(recovery.error),
        "unit": "nats",
        "notes": list(recovery.notes),
    }


def read_head(path: Path) -> dict[str, Any]:
    """Return what `head` wrote into a file of `save_recovery`; the ending of ``path`` names the format.

    Raises ``RecoverError`` for a file that holds no recovery.
    """
    try:
        if path.suffix == ".npz":
            with open_npz(path) as data:
                text = str(data["head"])
        elif path.suffix == ".json":
            text = path.read_text(encoding="utf-8")
        else:
            with path.open(encoding="utf-8") as file:
                text = file.readline()
        found = parse_strict_json(text)
    except OSError as error:
        raise RecoverError(f"{path}: {file_problem(error, path) if error.strerror else _NO_RESULT}") from None
    except DAMAGED_NPZ_ERRORS:  # a ValueError of a file that is not UTF-8 or not JSON, too
        raise RecoverError(f"{path}: {_NO_RESULT}") from None
    if not isinstance(found, dict) or "method" not in found or "complete" not in found:
        raise RecoverError(f"{path}: {_NO_RESULT}")
    return found


def likeliest_tokens(recovery: Recovery, count: int) -> list[TokenLogprob]:
    """Return the ``count`` likeliest recovered tokens, likeliest first."""
    recovered = _recovered_ids(recovery)
    ordered = recovered[np.argsort(-recovery.logprobs[recovered], kind="stable")][:count]
    return [TokenLogprob(int(i), recovery.pieces.get(int(i), b""), float(recovery.logprobs[i])) for i in ordered]


def read_rows(paths: Sequence[Path]) -> list[Float64s]:
    """Return the logprobs of several complete recoveries of one model. Raises ``RecoverError``."""
    if len(paths) < 2:
        raise RecoverError(
            f"{len(paths)} recovery is too few for a basis: more than the model has dimensions are needed"
        )
    rows = [read_row(path) for path in paths]
    for path, row in zip(paths, rows, strict=True):
        if len(row) != len(rows[0]):
            raise RecoverError(f"{path}: it has {len(row):,} tokens, and {paths[0]} has {len(rows[0]):,}")
    return rows


def read_row(path: Path) -> Float64s:
    """Return the logprobs of a complete recovery saved as ``.npz``, float64 (V,). Raises ``RecoverError``."""
    try:
        with open_npz(path) as data:
            ids, logprobs = data["ids"], np.asarray(data["logprobs"], dtype=np.float64)
    except OSError as error:
        problem = file_problem(error, path) if error.strerror else "not a recovery"
        raise RecoverError(f"{path}: {problem}") from None
    except DAMAGED_NPZ_ERRORS:
        raise RecoverError(f"{path}: not a recovery that gen recover wrote as .npz") from None
    if ids.ndim != 1 or logprobs.shape != ids.shape:
        raise RecoverError(f"{path}: not a recovery that gen recover wrote as .npz")
    if len(ids) == 0 or not np.array_equal(ids, np.arange(len(ids))):
        raise RecoverError(f"{path}: it lacks tokens; a basis needs whole rows")
    return logprobs


def _recovered_ids(recovery: Recovery) -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.flatnonzero(~np.isnan(recovery.logprobs))


def _tokens(recovery: Recovery) -> Iterator[dict[str, Any]]:
    for token in _recovered_ids(recovery).tolist():
        piece = recovery.pieces.get(token)
        record = TokenLogprob(token, piece or b"", float(recovery.logprobs[token])).as_json()
        if piece is None:
            record |= {"token": None, "bytes": None}
        yield {**record, "error": finite_or_none(float(recovery.errors[token]))}


def _write_npz(recovery: Recovery, file: IO[bytes], about: Mapping[str, Any]) -> None:
    recovered = _recovered_ids(recovery)
    pieces = [recovery.pieces.get(token, b"") for token in recovered.tolist()]
    np.savez_compressed(
        file,
        ids=recovered.astype(np.int32),
        logprobs=recovery.logprobs[recovered],
        errors=recovery.errors[recovered],
        bytes=np.frombuffer(b"".join(pieces), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, pieces)], dtype=np.int64),
        head=np.array(encode_json(head(recovery, about))),
    )
