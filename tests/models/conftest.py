"""An empty home folder, so that the tests find no real models."""

import pytest

VARIABLES = (
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS", "JAN_DATA_FOLDER"),
    *("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "GEN_MODEL"),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder; Ollama's service and the bundled model are not there."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("logitsmith.models.folders._OLLAMA_SERVICES", ())
    monkeypatch.setattr("logitsmith.models.listing.bundled_model", lambda: None)
    return tmp_path
