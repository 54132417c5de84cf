"""llama.cpp's own notation for an order of samplers: names joined by semicolons, or letters."""

from __future__ import annotations

from ..common.text import one_of, shorten
from .errors import PresetError

_SAMPLERS = (
    ("e", "penalties", "penalties"),
    ("d", "dry", "dry"),
    ("s", "top_n_sigma", "top_n_sigma"),
    ("k", "top_k", "top_k"),
    ("y", "typ_p", "typical"),
    ("p", "top_p", "top_p"),
    ("m", "min_p", "min_p"),
    ("x", "xtc", "xtc"),
    ("t", "temperature", "temperature"),
    ("i", "infill", "infill"),
    ("a", "adaptive_p", "adaptive_p"),
)
"""llama.cpp's letter and name for a sampler (common/sampling.cpp), and the name here."""

LLAMA_CPP_SAMPLERS = tuple(theirs for _, theirs, _ in _SAMPLERS)
"""llama.cpp's names, as its ``--samplers`` takes them."""

_BY_LETTER = {letter: name for letter, _, name in _SAMPLERS}
_BY_NAME = {
    # llama.cpp also takes top-k and topk for top_k, and so on.
    **{theirs.replace("_", mark): name for _, theirs, name in _SAMPLERS for mark in ("_", "-", "")},
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typical",
}

_LETTER_FLAGS = ("--sampler-seq", "--sampling-seq")
"""The flags by which llama.cpp takes letters alone; their names are taken here, too."""


def _refuse_unknown_letters(sequence: str, origin: str) -> None:
    """Raise ``PresetError`` that names the letters of a single word that are no sampler's."""
    word = sequence.strip().lower()
    wrong = [letter for letter in dict.fromkeys(word) if letter not in _BY_LETTER]
    if wrong and word not in _BY_NAME and ";" not in word:
        known = ", ".join(f"{letter} ({theirs})" for letter, theirs, _ in _SAMPLERS)
        raise PresetError(
            f"{origin}: llama.cpp has no sampler with the letter {one_of([shorten(letter) for letter in wrong])};"
            f" there are {known}"
        )


def read_sequence(sequence: str, origin: str) -> list[str]:
    """Return the names here of the samplers in a sequence of llama.cpp's, such as ``top_k;top_p`` or ``kp``.

    Raises ``PresetError`` that begins with the origin, for a name that llama.cpp does not have.
    """
    if origin in _LETTER_FLAGS:
        _refuse_unknown_letters(sequence, origin)
    parts = [part.strip().lower() for part in sequence.split(";") if part.strip()]
    if len(parts) == 1 and parts[0] not in _BY_NAME and all(letter in _BY_LETTER for letter in parts[0]):
        return [_BY_LETTER[letter] for letter in parts[0]]
    for part in parts:
        if part not in _BY_NAME:
            known = ", ".join(LLAMA_CPP_SAMPLERS)
            raise PresetError(f"{origin}: {shorten(part)} is not a sampler of llama.cpp; known: {known}")
    return [_BY_NAME[part] for part in parts]
