"""The result of a recovery, and the files that hold it: ``.npz`` for NumPy, ``.json`` and ``.jsonl`` for others.

Estimates become a result by taking what was asked for, with errors that agree with the sum of probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import file_problem
from ..common.strict_json import encode_json, parse_strict_json
from ..common.text import count_noun
from ..logprobs.records import TokenLogprob, finite_or_none
from .basis import Basis
from .errors import RecoverError
from .files import DAMAGED_NPZ_ERRORS, check_writable, open_npz, write_file
from .numerics import Float64s, logsumexp
from .session import QuerySession
from .task import LogprobEstimates


@dataclass(frozen=True)
class Recovery:
    """Recovered logprobs.

    Args:
        logprobs: float64 (V,), nats, NaN where a token was not asked for or not found.
        errors: the estimated error of each, float64 (V,), nats.
        error: the largest of them.
        queries: calls behind the result, those of a checkpoint included.
        sent: calls of this run.
        method: the method that was used.
        complete: every token that was asked for has a logprob, and nothing contradicts the result.
        normalised: False if values are relative to the likeliest token (bisection of a part of the vocabulary).
        notes: findings about the endpoint and the result.
        pieces: bytes of tokens, as far as known.
        stopped: why the run ended early, if it did: ``max_calls`` or ``interrupted``.
    """

    logprobs: Float64s
    errors: Float64s
    error: float
    queries: int
    sent: int
    method: str
    complete: bool
    normalised: bool = True
    notes: tuple[str, ...] = ()
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    stopped: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """How a run went.

    Args:
        tokens: the requested ids, int (n,); all if ``n`` likeliest are asked for.
        n: number of likeliest tokens; None: not so asked.
        method: the method that was used.
        notes: findings.
        drift: largest change of an answer in the course of the run, nats.
        stopped: why it ended early, None if it did not.
        basis: the basis that the settings name.
    """

    tokens: NDArray[np.intp]
    n: int | None
    method: str
    notes: tuple[str, ...]
    drift: float
    stopped: str | None
    basis: Basis | None


def assemble_recovery(session: QuerySession, estimates: LogprobEstimates, record: RunRecord) -> Recovery:
    """Return what was asked for, and note what is missing or wrong."""
    n = record.n
    tokens = record.tokens if n is None else np.asarray(estimates.ranked()[:n], dtype=np.intp)
    logprobs, errors = np.full_like(estimates.logprobs, np.nan), np.full_like(estimates.errors, np.nan)
    logprobs[tokens], errors[tokens] = estimates.logprobs[tokens], estimates.errors[tokens]
    errors = np.maximum(errors, record.drift)
    missing = tokens[np.isnan(logprobs[tokens])]
    notes = list(record.notes)
    if len(missing) and record.stopped is None:
        notes += _missing_notes(estimates, missing)
    if record.drift:
        notes.append(
            f"the answer to one question changed by up to {record.drift:.1e} nats in the course of the run"
        )
    is_consistent = True
    if record.method != "bisection":  # it normalises, so the sum shows nothing
        is_whole = not len(missing) and estimates.is_normalised and n is None and len(tokens) == len(logprobs)
        is_consistent, errors, sum_notes = _check_sum(logprobs, errors, is_whole)
        notes += sum_notes
    if n is not None:
        note = _unnamed_note(estimates.unnamed, logprobs[tokens])
        is_consistent &= note is None
        notes += [] if note is None else [note]
    known_errors = errors[~np.isnan(errors)]
    is_complete = not len(missing) and record.stopped is None and (n is None or len(tokens) == n)
    return Recovery(
        logprobs=logprobs,
        errors=errors,
        error=float(known_errors.max()) if len(known_errors) else float("nan"),
        queries=session.queries,
        sent=session.sent,
        method=record.method,
        complete=is_complete and is_consistent,
        normalised=estimates.is_normalised,
        notes=tuple(notes),
        pieces=_pieces(session, record.basis),
        stopped=record.stopped,
    )


_ERROR_FACTOR = 5.0
"""The sum may differ from 1 by so many times what the errors allow: estimated errors are not exact."""
_ROUNDING = 1e-9
"""Probability that summing a vocabulary in float64 may miss."""


def _check_sum(logprobs: Float64s, errors: Float64s, is_whole: bool) -> tuple[bool, Float64s, tuple[str, ...]]:
    """Return whether probabilities sum to 1 within their errors, the errors that the sum allows, and notes.

    If the sum differs from 1 by more than the errors allow, the errors grow to the difference.

    |log sum p| <= sum p_i error_i, where the errors are the largest there are. A part of a vocabulary may sum to
    less.
    """
    is_recovered = ~np.isnan(logprobs)
    log_sum = logsumexp(logprobs[is_recovered]) if is_recovered.any() else -np.inf
    allowed = _ERROR_FACTOR * float(np.exp(logprobs[is_recovered]) @ errors[is_recovered]) + _ROUNDING
    is_consistent = log_sum <= allowed and (log_sum >= -allowed or not is_whole)
    notes = (f"the probabilities sum to 1{np.expm1(log_sum):+.1e}",) if is_whole or not is_consistent else ()
    if is_consistent:
        return True, errors, notes
    contradiction = (
        "that is not 1 within the errors: answers contradict one another, or the endpoint cuts off or reshapes "
        "its probabilities (top_p, temperature, penalties)"
    )
    return False, np.maximum(errors, abs(log_sum)), (*notes, contradiction)


def _unnamed_note(unnamed: Sequence[float], logprobs: Float64s) -> str | None:
    """Return a note if tokens without a name are likelier than the last one of the result."""
    least = float(logprobs.min()) if len(logprobs) else -np.inf
    above = [value for value in unnamed if value > least]
    if not above:
        return None
    return (
        f"{len(above):,} or more tokens that belong to the likeliest have no name of their own and are left "
        f"out; the first of them has the logprob {max(above):.4f}"
    )


def _pieces(session: QuerySession, basis: Basis | None) -> dict[int, bytes]:
    """Return the bytes of tokens, from the answers, the endpoint's vocabulary and the basis."""
    pieces = dict(session.pieces)
    for source in (session.endpoint.pieces, basis.pieces if basis else ()):
        pieces |= {token: piece for token, piece in enumerate(source) if piece is not None}
    return pieces


def _missing_notes(estimates: LogprobEstimates, missing: NDArray[np.intp]) -> list[str]:
    """Return why tokens are missing."""
    tokens = set(missing.tolist())
    unnameable, contradicted = len(tokens & estimates.unnameable), len(tokens & estimates.contradicted)
    hidden = len(tokens) - unnameable - contradicted
    notes = []
    if unnameable:
        notes.append(
            f"the endpoint cannot name {count_noun(unnameable, 'token')}: no text stands for one of these alone"
        )
    if contradicted:
        notes.append(
            f"left out: {count_noun(contradicted, 'token')}; answers contradict others, as if a bias were ignored"
        )
    if hidden:
        notes.append(f"not shown with any bias that the endpoint takes: {count_noun(hidden, 'token')}")
    return notes


_FORMATS = (".npz", ".json", ".jsonl")
_NO_RESULT = "the file is not a result of gen recover"


def check_output_path(path: Path) -> None:
    """Raise ``RecoverError`` for a file name whose ending names no format, or that cannot be written."""
    if path.suffix not in _FORMATS:
        raise RecoverError(f"{path}: the name ends in none of {', '.join(_FORMATS)}")
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


def _tokens(recovery: Recovery) -> Iterator[dict[str, Any]]:
    for token in _recovered_ids(recovery).tolist():
        piece = recovery.pieces.get(token)
        record = TokenLogprob(token, piece or b"", float(recovery.logprobs[token])).as_json()
        if piece is None:
            record |= {"token": None, "bytes": None}
        yield {**record, "error": finite_or_none(float(recovery.errors[token]))}


def _recovered_ids(recovery: Recovery) -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.flatnonzero(~np.isnan(recovery.logprobs))


def likeliest_tokens(recovery: Recovery, count: int) -> list[TokenLogprob]:
    """Return the ``count`` likeliest recovered tokens, likeliest first."""
    recovered = _recovered_ids(recovery)
    ordered = recovered[np.argsort(-recovery.logprobs[recovered], kind="stable")][:count]
    return [TokenLogprob(int(i), recovery.pieces.get(int(i), b""), float(recovery.logprobs[i])) for i in ordered]


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
