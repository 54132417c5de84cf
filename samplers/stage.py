"""The places of llama.cpp's default order, by which a sampler says where it belongs in a chain."""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """The steps of llama.cpp's default chain, in its order (common/common.h, ``common_params_sampling``).

    The numbers are ten apart. A sampler that llama.cpp lacks stands between two of them, such as
    ``Stage.TOP_K + 1``: behind top_k, and before typical.
    """

    IGNORE_EOS = 0
    LOGIT_BIAS = 10
    PENALTIES = 20
    DRY = 30
    TOP_N_SIGMA = 40
    TOP_K = 50
    TYPICAL = 60
    TOP_P = 70
    MIN_P = 80
    XTC = 90
    TEMPERATURE = 100
