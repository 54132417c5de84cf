"""llama.cpp's own samplers, through ctypes: the oracle that ours are compared with.

    with NativeChain([{"top_k": {"k": 40}}, {"dist": {}}], vocabulary=logits.size, seed=1) as native:
        native.accept(7)
        left = native.apply(logits)   # left.ids, left.logits, left.p, left.token

The steps are those of `Chain.config`: every parameter under the name that it has in a preset. A further
sampler needs one function in `MAKERS`.
"""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from llama_cpp import llama_cpp
from numpy.typing import NDArray

ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

# llama.cpp has no "the whole history"; a window this long never fills in a test.
_WHOLE_HISTORY = 1 << 16


class Place(NamedTuple):
    """The arguments of a sampler's constructor beside its parameters."""

    vocabulary: int
    seed: int
    vocab: Any = None
    """llama.cpp's own vocabulary, for the samplers that read texts."""


class Left(NamedTuple):
    """The candidates after a sampler, in llama.cpp's order."""

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    p: NDArray[np.float32]
    token: int | None
    """The token that was selected, or None."""
    sorted: bool
    """Whether llama.cpp holds the rows to be sorted."""


def _greedy(_: Place) -> Any:
    return llama_cpp.llama_sampler_init_greedy()


def _dist(place: Place) -> Any:
    return llama_cpp.llama_sampler_init_dist(place.seed)


def _temperature(_: Place, t: float) -> Any:
    return llama_cpp.llama_sampler_init_temp(t)


def _top_k(_: Place, k: int) -> Any:
    return llama_cpp.llama_sampler_init_top_k(k)


def _top_p(_: Place, p: float, min_keep: int = 1, boundary: str = "include") -> Any:
    _only("boundary", boundary, "include")
    return llama_cpp.llama_sampler_init_top_p(p, min_keep)


def _min_p(_: Place, p: float, min_keep: int = 1) -> Any:
    return llama_cpp.llama_sampler_init_min_p(p, min_keep)


def _penalties(
    place: Place,
    repeat: float = 1.0,
    frequency: float = 0.0,
    presence: float = 0.0,
    last_n: int = 64,
    scope: str = "all",
    penalize_newline: bool = True,
) -> Any:
    _only("scope", scope, "all")
    _only("penalize_newline", penalize_newline, True)
    window = _WHOLE_HISTORY if last_n < 0 else last_n
    return llama_cpp.llama_sampler_init_penalties(place.vocabulary, window, repeat, frequency, presence)


def _logit_bias(place: Place, bias: Mapping[int, float | bool]) -> Any:
    numbers = [(token, -math.inf if value is False else value) for token, value in bias.items()]
    entries = (llama_cpp.llama_logit_bias * len(bias))(*numbers)
    return llama_cpp.llama_sampler_init_logit_bias(place.vocabulary, len(bias), entries)


def _dynatemp(_: Place, temperature: float = 0.8, range: float = 0.0, exponent: float = 1.0) -> Any:  # noqa: A002
    return llama_cpp.llama_sampler_init_temp_ext(temperature, range, exponent)


def _typical(_: Place, p: float, min_keep: int = 1, boundary: str = "include") -> Any:
    _only("boundary", boundary, "include")
    return llama_cpp.llama_sampler_init_typical(p, min_keep)


def _top_n_sigma(_: Place, n: float, dropped: str = "counted") -> Any:
    _only("dropped", dropped, "counted")
    return llama_cpp.llama_sampler_init_top_n_sigma(n)


def _xtc(
    place: Place, probability: float, threshold: float = 0.1, min_keep: int = 1, keep_special: bool = False
) -> Any:
    _only("keep_special", keep_special, False)
    return llama_cpp.llama_sampler_init_xtc(probability, threshold, min_keep, place.seed)


def _dry(
    place: Place,
    multiplier: float,
    base: float = 1.75,
    allowed_length: int = 2,
    last_n: int = -1,
    breakers: Sequence[str] = (),
    match: str = "overlap",
) -> Any:
    _only("match", match, "overlap")
    texts = (ctypes.c_char_p * len(breakers))(*(text.encode() for text in breakers))
    window = _WHOLE_HISTORY if last_n < 0 else last_n
    return llama_cpp.llama_sampler_init_dry(
        place.vocab, multiplier, base, allowed_length, window, texts, len(breakers)
    )


def _infill(place: Place) -> Any:
    return llama_cpp.llama_sampler_init_infill(place.vocab)


def _mirostat(
    place: Place,
    tau: float = 5.0,
    eta: float = 0.1,
    m: int = 100,
    surprise: str = "truncated",
    overflow: str = "one",
) -> Any:
    _only("surprise", surprise, "truncated")
    if platform.machine() in ("x86_64", "AMD64"):
        _only("overflow", overflow, "one")
    return llama_cpp.llama_sampler_init_mirostat(place.vocabulary, place.seed, tau, eta, m)


def _mirostat_v2(place: Place, tau: float = 5.0, eta: float = 0.1, surprise: str = "truncated") -> Any:
    _only("surprise", surprise, "truncated")
    return llama_cpp.llama_sampler_init_mirostat_v2(place.seed, tau, eta)


def _adaptive_p(place: Place, target: float, decay: float = 0.9) -> Any:
    return llama_cpp.llama_sampler_init_adaptive_p(target, decay, place.seed)


MAKERS: dict[str, Callable[..., Any]] = {
    "greedy": _greedy,
    "dist": _dist,
    "temperature": _temperature,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "penalties": _penalties,
    "logit_bias": _logit_bias,
    "dynatemp": _dynatemp,
    "typical": _typical,
    "top_n_sigma": _top_n_sigma,
    "xtc": _xtc,
    "dry": _dry,
    "infill": _infill,
    "mirostat": _mirostat,
    "mirostat_v2": _mirostat_v2,
    "adaptive_p": _adaptive_p,
}
"""Our name of a sampler -> a function of (place, our parameters) that calls llama.cpp's constructor."""


def _only(parameter: str, value: object, known: object) -> None:
    if value != known:
        raise ValueError(f"llama.cpp has no {parameter}: {value}")


def _read(array: Any) -> Left:
    # A sampler may point `data` elsewhere, so the rows are read where it points now.
    place = ctypes.cast(array.data, ctypes.POINTER(ctypes.c_byte * (array.size * ROW.itemsize)))
    left = np.frombuffer(bytes(place.contents), dtype=ROW)
    token = int(left["id"][array.selected]) if array.selected >= 0 else None
    return Left(left["id"].copy(), left["logit"].copy(), left["p"].copy(), token, bool(array.sorted))


class NativeChain:
    """A llama.cpp sampler chain; a context manager, since its memory is llama.cpp's."""

    def __init__(
        self,
        steps: Iterable[Mapping[str, Mapping[str, Any]]],
        *,
        vocabulary: int,
        seed: int = 0,
        vocab: Any = None,
    ) -> None:
        # The chain default parameters time each step; that changes no result.
        self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        place = Place(vocabulary, seed, vocab)
        for step in steps:
            ((name, params),) = step.items()
            llama_cpp.llama_sampler_chain_add(self._chain, MAKERS[name](place, **params))

    def __enter__(self) -> NativeChain:
        return self

    def __exit__(self, *_: object) -> None:
        llama_cpp.llama_sampler_free(self._chain)  # with the samplers in it
        self._chain = None

    def apply(self, logits: NDArray[np.float32]) -> Left:
        """Run the chain on one row of logits, float32 (V,), which is not written to."""
        rows = np.zeros(logits.size, dtype=ROW)
        rows["id"] = np.arange(logits.size)
        rows["logit"] = logits
        array = llama_cpp.llama_token_data_array(
            data=rows.ctypes.data_as(llama_cpp.llama_token_data_p), size=rows.size, selected=-1, sorted=False
        )
        llama_cpp.llama_sampler_apply(self._chain, ctypes.byref(array))
        return _read(array)

    def trace(self, logits: NDArray[np.float32], ids: NDArray[np.int32]) -> list[Left]:
        """Run the chain on rows of these tokens, float32 and int32 (n,); return what each step left."""
        rows = np.zeros(logits.size, dtype=ROW)
        rows["id"], rows["logit"] = ids, logits
        array = llama_cpp.llama_token_data_array(
            data=rows.ctypes.data_as(llama_cpp.llama_token_data_p), size=rows.size, selected=-1, sorted=False
        )
        lefts = []
        for number in range(llama_cpp.llama_sampler_chain_n(self._chain)):
            step = llama_cpp.llama_sampler_chain_get(self._chain, number)
            llama_cpp.llama_sampler_apply(step, ctypes.byref(array))
            lefts.append(_read(array))
        return lefts

    def accept(self, *tokens: int) -> None:
        """Accept the tokens that were emitted, or stood in the prompt."""
        for token in tokens:
            llama_cpp.llama_sampler_accept(self._chain, token)

    def reset(self) -> None:
        """Forget all state."""
        llama_cpp.llama_sampler_reset(self._chain)


class NativeSampler(NativeChain):
    """One llama.cpp sampler, by our name and with our parameters."""

    def __init__(self, name: str, *, vocabulary: int, seed: int = 0, vocab: Any = None, **params: Any) -> None:
        super().__init__([{name: params}], vocabulary=vocabulary, seed=seed, vocab=vocab)
