"""The bundled model, loaded once for all tests of this room."""

from collections.abc import Iterator

import pytest
from logitsmith.engine import Model, locate


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
