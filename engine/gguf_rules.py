"""What a GGUF file must not hold, since llama.cpp would end the process or never return."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping

Values = Mapping[str, int | float | bytes]
"""The metadata of a GGUF file by key, without its lists. Texts are bytes."""

_MAX_LAYERS = 512
"""LLAMA_MAX_LAYERS in llama.cpp."""
_MAX_EXPERTS = 1024
"""LLAMA_MAX_EXPERTS in llama.cpp."""
_ROPE_SCALING_TYPES = (b"none", b"linear", b"yarn", b"longrope")
"""LLAMA_ROPE_SCALING_TYPES in llama.cpp."""
_BYTE_TOKENS = [b"<0x%02X>" % byte for byte in range(256)]
"""How SentencePiece writes a token of one byte."""
_BYTE_TOKENS_IN_A_ROW = b"".join(struct.pack("<Q", len(token)) + token for token in _BYTE_TOKENS)
"""All of them one after the other, as nearly every SentencePiece vocabulary holds them."""
_RWKV_ESCAPES = {b"\\t": b"\t", b"\\n": b"\n", b"\\r": b"\r", b"\\\\": b"\\", b"\\'": b"'", b'\\"': b'"'}
"""How RWKV writes some bytes; others that are not printable are ``\\xHH``."""


def faults(values: Values) -> Iterator[str]:
    """Yield a sentence for each value on which llama.cpp would end the process."""
    for key, value in values.items():
        if key.endswith(".block_count") and not (isinstance(value, int) and 1 <= value <= _MAX_LAYERS):
            yield f"{key} is {value!r}, not within 1..{_MAX_LAYERS}"
        if key.endswith("epsilon") and not (isinstance(value, float) and 0 <= value < float("inf")):
            yield f"{key} is {value!r}, not a finite number ≥ 0"
        if key == "general.alignment" and not (isinstance(value, int) and value.bit_count() == 1):
            yield f"general.alignment is {value!r}, not a power of two"
        if key.endswith(".rope.scaling.type") and value not in _ROPE_SCALING_TYPES:
            allowed = ", ".join(name.decode() for name in _ROPE_SCALING_TYPES)
            yield f"{key} is {_readable(value)!r}, not one of {allowed}"
    yield from _faults_of_counts(values)
    if describe_other_kind(values) is None and values.get("tokenizer.ggml.model") in (None, b"none", b"no_vocab"):
        yield "it holds no tokenizer (tokenizer.ggml.model), so it can neither read nor write"


def describe_other_kind(values: Values) -> str | None:
    """Return what the file is and, after a semicolon, advice; None for a language model.

    The sentence holds no text of the file.
    """
    part, parts = values.get("split.no"), values.get("split.count")
    if isinstance(part, int) and isinstance(parts, int) and part > 0:
        return (
            f"part {part + 1} of {parts} of a model; give the first part, which ends in -00001-of-{parts:05}.gguf"
        )
    kind, architecture = values.get("general.type"), values.get("general.architecture")
    if kind == b"mmproj" or architecture == b"clip":
        return "a projector for images or sound; give the model that it belongs to"
    if kind == b"adapter":
        return "an adapter; give it with lora=…, and the model that it was made for with path=…"
    if kind == b"imatrix":
        return "an importance matrix, which is used to quantise a model; give a model"
    return None


def _faults_of_counts(values: Values) -> Iterator[str]:
    """Counts that must be at most another one: used experts, layers that predict the next token."""
    architecture = _readable(values.get("general.architecture", b""))
    experts, used, layers, predicting = (
        values.get(f"{architecture}.{key}")
        for key in ("expert_count", "expert_used_count", "block_count", "nextn_predict_layers")
    )
    if isinstance(experts, int) and not 0 <= experts <= _MAX_EXPERTS:
        yield f"{architecture}.expert_count is {experts}, not within 0..{_MAX_EXPERTS}"
    most = experts if isinstance(experts, int) else 0
    if isinstance(used, int) and used > most:
        yield f"{architecture}.expert_used_count is {used}, and {architecture}.expert_count only {most}"
    if isinstance(predicting, int) and isinstance(layers, int) and predicting > layers:
        yield f"{architecture}.nextn_predict_layers is {predicting}, and {architecture}.block_count only {layers}"


def _readable(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def missing_bytes(
    tokenizer: object, holds: Callable[[bytes], bool], tokens: Callable[[], Iterable[bytes]]
) -> frozenset[int]:
    """The bytes that a vocabulary has no token for; empty for tokenizers that need none.

    Args:
        tokenizer: The value of ``tokenizer.ggml.model``.
        holds: Whether some bytes stand in the file's list of tokens. It is called first, since it is fast.
        tokens: The texts of all tokens.
    """
    if tokenizer == b"llama" and not holds(_BYTE_TOKENS_IN_A_ROW):
        # llama.cpp also takes a token that is the byte itself.
        single = {token for token in tokens() if len(token) in (1, len(_BYTE_TOKENS[0]))}
        return frozenset(i for i, token in enumerate(_BYTE_TOKENS) if not single & {token, bytes([i])})
    if tokenizer == b"rwkv":
        texts = {_unescape_rwkv(token) for token in tokens()}
        return frozenset(byte for byte in range(256) if bytes([byte]) not in texts)
    return frozenset()


def _unescape_rwkv(token: bytes) -> bytes:
    """The byte that a token of RWKV's vocabulary stands for; a longer token as it is."""
    if token.startswith(b"\\x") and len(token) == len(b"\\x00"):
        try:
            return bytes.fromhex(token[2:].decode("ascii"))
        except ValueError:
            return token
    return _RWKV_ESCAPES.get(token, token)
