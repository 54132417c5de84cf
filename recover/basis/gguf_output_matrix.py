"""The output matrix of a GGUF file, for a basis."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...models.gguf import check_gguf
from ..errors import RecoverError


def output_matrix(path: Path) -> NDArray[np.float32]:
    """Return a GGUF file's output matrix, float32 (V, d): ``output.weight``, or the embedding if that is shared.

    Needs the package gguf, which knows every kind of quantisation. Raises ``RecoverError``.
    """
    try:
        from gguf import GGUFReader, dequantize  # noqa: PLC0415 - an extra, which only this needs
    except ImportError:
        raise RecoverError(
            "reading a GGUF's output matrix needs the package gguf: pip install 'gguf>=0.17,<1'",
            advice="or make the basis of rows of logprobs, with basis_from_rows",
        ) from None
    check_gguf(path)
    try:
        tensors = {tensor.name: tensor for tensor in GGUFReader(os.fspath(path)).tensors}
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:  # a text that is not UTF-8, for one
        raise RecoverError(f"{path}: the package gguf cannot read it: {error}") from None
    tensor = tensors.get("output.weight") or tensors.get("token_embd.weight")
    if tensor is None:
        raise RecoverError(f"{path}: it has neither output.weight nor token_embd.weight")
    try:
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    except NotImplementedError:
        raise RecoverError(
            f"{path}: {tensor.name} has the type {tensor.tensor_type.name}, which gguf cannot read"
        ) from None
