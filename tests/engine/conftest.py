"""The models of this room's tests, each loaded once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from logitsmith.engine import Model, locate

from .quantized_models import QuantizedModels
from .small_models import make_metadata, random_tensors, tensor_shapes, write_file


@pytest.fixture(scope="session")
def bundled() -> Iterator[Model]:
    """The bundled model."""
    path, _ = locate()
    with Model.load(path, n_ctx=1024) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def pruned(pruned_model: Path) -> Iterator[Model]:
    """The bundled model with few of its layers and tokens."""
    with Model.load(pruned_model, n_ctx=1024) as loaded:
        yield loaded


@pytest.fixture(scope="session", params=["pruned", pytest.param("bundled", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Model:
    """For tests that hold for any model: the pruned one, and for a proof the bundled one, too."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def small_context(pruned_model: Path) -> Iterator[Model]:
    """The pruned model with a context that is quickly full."""
    with Model.load(pruned_model, n_ctx=256) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def quantized_models(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModels:
    """Models of random weights, each written when a test first asks for it."""
    return QuantizedModels(tmp_path_factory.mktemp("quantized"))


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model of random weights, loaded within milliseconds."""
    path = tmp_path / "m.gguf"
    write_file(path, make_metadata("llama"), random_tensors(tensor_shapes(path, make_metadata("llama"))))
    return path
