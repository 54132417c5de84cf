"""The models that other tests are run on: every quantization loads and makes finite logits."""

import numpy as np
import pytest
from logitsmith.engine import Model

from .quantized_models import QUANTIZATIONS, VOCABULARY


@pytest.mark.parametrize(
    "quantization",
    [pytest.param(name, marks=() if name in ("Q4_K_M", "F16") else pytest.mark.slow) for name in QUANTIZATIONS],
)
def test_every_quantization_makes_logits(quantized_models, quantization):
    with Model.load(quantized_models.path(quantization), n_ctx=64) as model:
        model.context.read([5, 6, 7])
        logits = model.context.logits()
        assert logits.shape == (VOCABULARY,)
        assert np.isfinite(logits).all()
        assert logits.std() > 0.1
