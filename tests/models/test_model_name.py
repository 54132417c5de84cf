"""The name of a model in outputs."""

from pathlib import Path

from logitsmith.models.listing import model_name

from .folders import in_ollama, write_tiny


def test_a_file_is_called_by_its_name_without_the_suffix():
    assert model_name(Path("/models/Tiny-1.5B.Q4_K_M.gguf")) == "Tiny-1.5B.Q4_K_M"


def test_a_blob_of_ollama_is_called_as_ollama_calls_it(tmp_path):
    path = in_ollama(tmp_path / "ollama", "registry.ollama.ai/library/smol:135m")
    in_ollama(tmp_path / "ollama", "registry.ollama.ai/library/other:1b")
    assert model_name(path) == "ollama:smol:135m"


def test_of_several_names_the_shortest_is_taken(tmp_path):
    root = tmp_path / "ollama"
    path = in_ollama(root, "registry.ollama.ai/library/smol:135m")
    manifest = root / "manifests" / "registry.ollama.ai" / "library" / "smol" / "135m"
    (manifest.parent / "latest").write_bytes(manifest.read_bytes())
    assert model_name(path) == "ollama:smol:135m"


def test_a_blob_without_a_manifest_keeps_its_digest(tmp_path):
    path = tmp_path / "blobs" / f"sha256-{'a' * 64}"
    write_tiny(path)
    assert model_name(path) == path.name
