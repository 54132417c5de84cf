"""One loaded model for all tests of this room."""

from collections.abc import Iterator

import pytest
from logitsmith.engine import Model, locate


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    path, _ = locate()
    with Model.load(path, n_ctx=1024) as loaded:
        yield loaded
