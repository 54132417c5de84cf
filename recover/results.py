"""The result of a recovery, and its files: ``.npz`` for NumPy, ``.json`` and ``.jsonl`` for other programs.

A result contains the requested tokens only. Its errors agree with the sum of the probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import check_writable, file_problem
from ..common.strict_json import encode_json, json_line, parse_strict_json
from ..common.text import count_noun
from ..logprobs.records import TokenLogprob, finite_or_none
from .errors import RecoverError
from .files import pack_bytes, read_npz, write_file, write_npz
from .numerics import Float64s, logsumexp
from .task import LogprobEstimates, RecoveryTask


@dataclass(frozen=True)
class Recovery:
    """Recovered logprobs.

    Args:
        logprobs: float64 (V,), nats; NaN where a token was not requested or not recovered.
        errors: estimated error of each logprob, float64 (V,), nats; NaN where the logprob is.
        max_error_nats: the largest error, nats; NaN if no token was recovered.
        total_calls: number of calls behind the result, including the calls that a checkpoint holds.
        new_calls: number of calls of this run.
        method: the method that was used.
        is_complete: whether every requested token has a logprob and nothing contradicts the result.
        is_normalized: whether the values are true logprobs; False: they are relative to the most likely
            token (`bisection` of a part of the vocabulary).
        notes: findings about the endpoint and the result.
        token_bytes: token id -> bytes of the token, where known.
        stop_reason: ``max_calls`` or ``interrupted`` if the run ended early; None otherwise.
    """

    logprobs: Float64s
    errors: Float64s
    max_error_nats: float
    total_calls: int
    new_calls: int
    method: str
    is_complete: bool
    is_normalized: bool = True
    notes: tuple[str, ...] = ()
    token_bytes: Mapping[int, bytes] = field(default_factory=dict)
    stop_reason: str | None = None

    @property
    def ids(self) -> NDArray[np.intp]:
        """The ids of the recovered tokens, int (n,)."""
        return np.flatnonzero(~np.isnan(self.logprobs))

    def top_tokens(self, count: int) -> list[TokenLogprob]:
        """Return the ``count`` most likely recovered tokens, most likely first."""
        top_ids = self.ids[np.argsort(-self.logprobs[self.ids], kind="stable")][:count].tolist()
        return [TokenLogprob(i, self.token_bytes.get(i, b""), float(self.logprobs[i])) for i in top_ids]


def assemble_recovery(task: RecoveryTask) -> Recovery:
    """Return the requested logprobs, with a note for each missing or inconsistent part."""
    estimates, top_count = task.estimates, task.top_count
    tokens = (
        task.tokens if top_count is None else np.asarray(estimates.known_by_logprob()[:top_count], dtype=np.intp)
    )
    logprobs, errors = np.full_like(estimates.logprobs, np.nan), np.full_like(estimates.errors, np.nan)
    logprobs[tokens] = estimates.logprobs[tokens]
    errors[tokens] = np.maximum(estimates.errors[tokens], task.max_drift_nats)
    missing_tokens = set(tokens[np.isnan(logprobs[tokens])].tolist())
    has_all_tokens = not missing_tokens and (top_count is None or len(tokens) == top_count)
    notes = list(task.notes)
    if task.stop_reason is None:
        notes += _missing_tokens_notes(estimates, missing_tokens)
    if task.max_drift_nats:
        notes.append(
            f"the response to a repeated query changed by up to {task.max_drift_nats:.1e} nats during the run"
        )
    is_consistent = True
    if task.method != "bisection":  # bisection scales its values to a sum of 1, so their sum proves nothing
        covers_vocabulary = estimates.is_normalized and not np.isnan(logprobs).any() and top_count is None
        is_consistent, errors, sum_notes = _check_probability_sum(logprobs, errors, covers_vocabulary)
        notes += sum_notes
    if top_count is not None and (note := _unmatched_tokens_note(estimates.unmatched_logprobs, logprobs[tokens])):
        is_consistent = False
        notes.append(note)
    return Recovery(
        logprobs=logprobs,
        errors=errors,
        max_error_nats=float("nan") if np.isnan(errors).all() else float(np.nanmax(errors)),
        total_calls=task.session.total_call_count,
        new_calls=task.session.new_call_count,
        method=task.method,
        is_complete=has_all_tokens and is_consistent and task.stop_reason is None,
        is_normalized=estimates.is_normalized,
        notes=tuple(notes),
        token_bytes=_known_token_bytes(task),
        stop_reason=task.stop_reason,
    )


# Estimated errors are not exact, so the sum may differ from 1 by this many times what the errors allow
_ERROR_FACTOR = 5.0
_SUM_ROUNDING = 1e-9  # Probability that may be lost when the probabilities of a vocabulary are summed in float64


def _check_probability_sum(
    logprobs: Float64s, errors: Float64s, covers_vocabulary: bool
) -> tuple[bool, Float64s, tuple[str, ...]]:
    """Return whether the probabilities sum to 1 within their errors, the errors, and notes."""
    # The test is |log sum p| <= sum p_i error_i. If the sum differs from 1 by more than the errors allow, all
    # errors grow to that difference. The tokens of a part of a vocabulary may sum to less than 1.
    is_recovered = ~np.isnan(logprobs)
    log_sum = logsumexp(logprobs[is_recovered]) if is_recovered.any() else -np.inf
    max_log_sum = _ERROR_FACTOR * float(np.exp(logprobs[is_recovered]) @ errors[is_recovered]) + _SUM_ROUNDING
    is_consistent = log_sum <= max_log_sum and (log_sum >= -max_log_sum or not covers_vocabulary)
    notes = (
        (f"the probabilities sum to 1{np.expm1(log_sum):+.1e}",) if covers_vocabulary or not is_consistent else ()
    )
    if is_consistent:
        return True, errors, notes
    contradiction = (
        "that is not 1 within the errors: responses contradict each other, or the endpoint truncates or reshapes "
        "its probabilities (top_p, temperature, penalties)"
    )
    return False, np.maximum(errors, abs(log_sum)), (*notes, contradiction)


def _unmatched_tokens_note(unmatched_logprobs: Sequence[float], logprobs: Float64s) -> str | None:
    """Return a note if unmatched texts are more likely than some token of the result; None otherwise."""
    min_logprob = float(logprobs.min()) if len(logprobs) else -np.inf
    more_likely_logprobs = [value for value in unmatched_logprobs if value > min_logprob]
    if not more_likely_logprobs:
        return None
    return (
        f"missing: {len(more_likely_logprobs):,} or more of the most likely tokens, which the endpoint cannot "
        f"name; the first of them has the logprob {max(more_likely_logprobs):.4f}"
    )


def _known_token_bytes(task: RecoveryTask) -> dict[int, bytes]:
    """Return the bytes of tokens by id, from the responses, the endpoint and the basis."""
    token_bytes, basis = dict(task.session.token_bytes), task.settings.basis
    for source in (task.endpoint.token_bytes, basis.token_bytes if basis else ()):
        token_bytes |= {token: data for token, data in enumerate(source) if data is not None}
    return token_bytes


def _missing_tokens_notes(estimates: LogprobEstimates, missing_tokens: set[int]) -> list[str]:
    """Return notes with the reasons why tokens are missing."""
    unnameable, contradicted = (
        missing_tokens & estimates.unnameable_ids,
        missing_tokens & estimates.contradicted_ids,
    )
    counts_by_reason = {
        " that the endpoint cannot name; other tokens have the same text, or the text is empty": len(unnameable),
        "; responses contradict others, as if a bias were ignored": len(contradicted),
        "; not shown with any bias that the endpoint accepts": len(missing_tokens - unnameable - contradicted),
    }
    return [
        f"missing: {count_noun(count, 'token')}{reason}" for reason, count in counts_by_reason.items() if count
    ]


_FILE_SUFFIXES = (".npz", ".json", ".jsonl")


def check_output_path(path: Path) -> None:
    """Raise ``RecoverError`` if the file name does not end in a known format, or the file cannot be written."""
    if path.suffix not in _FILE_SUFFIXES:
        raise RecoverError(f"{path}: the file name must end in one of {', '.join(_FILE_SUFFIXES)}")
    try:
        check_writable(path)
    except OSError as error:
        raise RecoverError(f"{path}: {error.strerror}") from None


def save_recovery(recovery: Recovery, path: Path, run_info: Mapping[str, Any]) -> None:
    """Write a recovery to a file. The ending of the file name determines the format. Raises ``RecoverError``.

    All formats list only recovered tokens. ``.npz`` holds the arrays ``ids`` (int32), ``logprobs`` and
    ``errors`` (float64), ``bytes`` (uint8) and ``offsets`` (int64); token i has
    bytes[offsets[i]:offsets[i+1]]. Its ``head`` holds `run_header` as JSON. ``.jsonl`` holds
    `recovery_lines`, and ``.json`` one object with the same fields.

    Args:
        recovery: the result to write.
        path: the file; it ends in ``.npz``, ``.json`` or ``.jsonl``.
        run_info: more fields of the header that identify the run: endpoint, prompt and request.
    """
    check_output_path(path)
    if path.suffix == ".npz":
        write_npz(path, _npz_arrays(recovery, run_info), np.savez_compressed)
        return
    lines = recovery_lines(recovery, run_info)
    if path.suffix == ".json":
        lines = iter([json_line({**run_header(recovery, run_info), "tokens": list(_token_records(recovery))})])
    write_file(path, lambda file: file.writelines(line.encode() for line in lines))


def _npz_arrays(recovery: Recovery, run_info: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    ids = recovery.ids
    return {
        "ids": ids.astype(np.int32),
        "logprobs": recovery.logprobs[ids],
        "errors": recovery.errors[ids],
        **pack_bytes(recovery.token_bytes.get(token, b"") for token in ids.tolist()),
        "head": np.array(encode_json(run_header(recovery, run_info))),
    }


def recovery_lines(recovery: Recovery, run_info: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of ``.jsonl``: first `run_header`, then one line for each token."""
    # A token has the fields ``id``, ``token``, ``bytes``, ``logprob`` and ``error``.
    yield json_line({"event": "recovery", **run_header(recovery, run_info)})
    for token in _token_records(recovery):
        yield json_line({"event": "token", **token})


def run_header(recovery: Recovery, run_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the recovery as a whole, as a JSON object."""
    return {
        **run_info,
        "method": recovery.method,
        "calls": recovery.total_calls,
        "complete": recovery.is_complete,
        "stopped": recovery.stop_reason,
        "normalised": recovery.is_normalized,
        "error": finite_or_none(recovery.max_error_nats),
        "unit": "nats",
        "notes": list(recovery.notes),
    }


def _token_records(recovery: Recovery) -> Iterator[dict[str, Any]]:
    for token in recovery.ids.tolist():
        data = recovery.token_bytes.get(token)
        record = TokenLogprob(token, data or b"", float(recovery.logprobs[token])).as_json()
        if data is None:
            record |= {"token": None, "bytes": None}
        yield {**record, "error": finite_or_none(float(recovery.errors[token]))}


def read_run_header(path: Path) -> dict[str, Any]:
    """Return the `run_header` of a file that `save_recovery` wrote, by its suffix. Raises ``RecoverError``."""
    problem = "the file is not a result of gen recover"
    if path.suffix == ".npz":
        text = str(read_npz(path, ("head",), problem)[0])
    else:
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read() if path.suffix == ".json" else file.readline()
        except OSError as error:
            raise RecoverError(f"{path}: {file_problem(error, path)}") from None
        except UnicodeDecodeError:
            text = ""
    try:
        header = parse_strict_json(text)
    except ValueError:
        header = None
    if not isinstance(header, dict) or "method" not in header or "complete" not in header:
        raise RecoverError(f"{path}: {problem}")
    return header


def read_rows(paths: Sequence[Path]) -> list[Float64s]:
    """Return the logprobs of several complete recoveries of one model, float64 (V,) each.

    Raises ``RecoverError``.
    """
    if len(paths) < 2:
        raise RecoverError(
            f"{len(paths)} recovery is too few for a basis; give more recoveries than the model has dimensions"
        )
    rows = [read_row(path) for path in paths]
    for path, row in zip(paths, rows, strict=True):
        if len(row) != len(rows[0]):
            raise RecoverError(
                f"{path}: the recovery has {len(row):,} tokens, but {paths[0]} has {len(rows[0]):,}"
            )
    return rows


def read_row(path: Path) -> Float64s:
    """Return the logprobs of a complete recovery saved as ``.npz``, float64 (V,). Raises ``RecoverError``."""
    damage = "not a recovery that gen recover wrote as .npz"
    ids, logprobs = read_npz(path, ("ids", "logprobs"), damage)
    if ids.ndim != 1 or logprobs.shape != ids.shape or logprobs.dtype.kind != "f":
        raise RecoverError(f"{path}: {damage}")
    if len(ids) == 0 or not np.array_equal(ids, np.arange(len(ids))):
        raise RecoverError(f"{path}: tokens are missing; a basis needs complete recoveries")
    return logprobs.astype(np.float64)
