"""The bundled model, loaded once for all tests of this room."""

from collections.abc import Iterator

import pytest
from logitsmith.engine import Model, locate

from .quantized_models import QuantizedModels


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    path, _ = locate()
    with Model.load(path, n_ctx=1024) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def small_context() -> Iterator[Model]:
    """The model with a context that is quickly full."""
    path, _ = locate()
    with Model.load(path, n_ctx=256) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def quantized_models(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModels:
    """Models of random weights, each written when a test first asks for it."""
    return QuantizedModels(tmp_path_factory.mktemp("quantized"))
