"""The arguments of ``-m``: paths, names, parts of names, and names of tools."""

import json
from pathlib import Path

import pytest
from logitsmith.engine import Model, ModelError, ModelNotHereError, resolve_model
from logitsmith.models.listing import list_models, model_name
from logitsmith.models.resolve import parse_hub_reference, resolve_files

from ..engine.pruned_model import TOKENS
from .folders import blob, in_hub_cache, in_ollama, write_manifest, write_tiny

REGISTRY = "registry.ollama.ai/library"


@pytest.fixture
def models(home, monkeypatch):
    """A home with a few models, and a folder to stand in."""
    root = home / ".ollama/models"
    blobs = {
        name: in_ollama(root, f"{REGISTRY}/{name}") for name in ("llama3.2:1b", "llama3.2:3b", "qwen3:latest")
    }
    blobs["hf"] = in_ollama(root, "hf.co/me/Other-GGUF:Q8_0")
    studio = home / ".lmstudio/models"
    files = {
        "one": write_tiny(studio / "maker/One-GGUF/One-Q4_K_M.gguf"),
        "two4": write_tiny(studio / "maker/Two-GGUF/Two-Q4_K_M.gguf"),
        "two8": write_tiny(studio / "maker/Two-GGUF/Two-Q8_0.gguf"),
        "mine": write_tiny(home / "mine/My-Model.gguf"),
    }
    cache = home / ".cache/huggingface/hub"
    snapshot = in_hub_cache(cache, "me/Tiny-GGUF", "Tiny-Q4_K_M.gguf", "Tiny-Q8_0.gguf", "deep/Tiny-Q2_K.gguf")
    files |= {"q4": snapshot / "Tiny-Q4_K_M.gguf", "q8": snapshot / "Tiny-Q8_0.gguf"}
    files["q2"] = snapshot / "deep/Tiny-Q2_K.gguf"
    files["old"] = write_tiny(home / "old/me_Flat-GGUF_flat-Q8_0.gguf")
    monkeypatch.setattr("logitsmith.models.folders.llama_cpp_folders", lambda _: [home / "old"])
    (home / "here").mkdir()
    monkeypatch.chdir(home / "here")
    return {**blobs, **files}


CASES = {
    "ollama with its tag": ("ollama:llama3.2:1b", "llama3.2:1b"),
    "ollama without latest": ("ollama:qwen3", "qwen3:latest"),
    "ollama, a part": ("ollama:qwen", "qwen3:latest"),
    "ollama from the hub": ("ollama:hf.co/me/Other-GGUF:Q8_0", "hf"),
    "a name of ollama alone": ("llama3.2:1b", "llama3.2:1b"),
    "a tag that occurs once": (":3b", "llama3.2:3b"),
    "any case": ("OLLAMA:Qwen3".replace("OLLAMA", "ollama"), "qwen3:latest"),
    "lmstudio by its folder": ("lmstudio:maker/One-GGUF", "one"),
    "lmstudio, a part": ("lmstudio:one", "one"),
    "lmstudio with a quantization": ("lmstudio:two@q8_0", "two8"),
    "lmstudio by its file": ("lmstudio:Two-Q4_K_M", "two4"),
    "hf: the preferred one": ("hf:me/Tiny-GGUF", "q4"),
    "hf with a tag": ("hf:me/Tiny-GGUF:Q8_0", "q8"),
    "hf, any case of the tag": ("hf:me/Tiny-GGUF:q8_0", "q8"),
    "hf with a file": ("hf:me/Tiny-GGUF/deep/Tiny-Q2_K.gguf", "q2"),
    "hf with a file as the tag": ("hf:me/Tiny-GGUF:Tiny-Q8_0.gguf", "q8"),
    "hf as an address": ("hf:https://huggingface.co/me/Tiny-GGUF/blob/main/Tiny-Q8_0.gguf?download=true", "q8"),
    "hf.co": ("hf.co/me/Tiny-GGUF:Q8_0", "q8"),
    "hf that LM Studio has": ("hf:maker/Two-GGUF:Q8_0", "two8"),
    "hf that an older llama.cpp has": ("hf:me/Flat-GGUF:Q8_0", "old"),
    "hf, a part": ("hf:Tiny-GGUF:Q8_0", "q8"),
    "the name of a file": ("My-Model", "mine"),
    "the name of a file with its suffix": ("my-model.gguf", "mine"),
    "a part of a repository": ("Tiny-Q2_K", "q2"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_names(models, home, text, expected):
    assert resolve_model(text, [home / "mine"]).resolve() == models[expected].resolve()


def test_a_path_takes_precedence(models):
    Path("qwen3").write_text("a file here")
    assert resolve_model("qwen3") == Path("qwen3")
    assert resolve_model(str(models["one"])) == models["one"]


def test_a_folder_of_the_name_does_not_hide_the_model(models):
    Path("qwen3").mkdir()
    assert resolve_model("qwen3") == models["qwen3:latest"]


PATHS = ["nowhere.gguf", "../nowhere", "/nowhere/x", "x\0y.gguf", "a" * 5000 + ".gguf"]


@pytest.mark.parametrize("text", PATHS, ids=[repr(text[:20]) for text in PATHS])
def test_what_looks_like_a_path_stays_one(models, text):
    assert str(resolve_model(text)) == text


REFUSALS = {
    "two models": ("llama3.2", "llama3.2 fits 2 models: ollama:llama3.2:1b, ollama:llama3.2:3b; type more"),
    "two of ollama": ("ollama:llama", "ollama:llama fits 2 models"),
    "none": ("mistral", "mistral: there is no such file, and no model of this name"),
    "nearly": ("My-Modle", "(did you mean My-Model?); gen models lists them"),
    "nearly one of ollama's": (
        "ollama:qwen4",
        "no model of this name here (did you mean ollama:qwen3:latest?); it has",
    ),
    "far from ollama's": ("ollama:smollm9", "Ollama has no model of this name here; it has"),
    "none of ollama": ("ollama:mistral", "ollama:mistral: Ollama has no model of this name here"),
    "none of LM Studio": ("lmstudio:mistral", "it has lmstudio:maker/One-GGUF, lmstudio:maker/Two-GGUF@q4_k_m"),
    "no repository": ("hf:x", "'hf:x' is not hf:USER/REPO, hf:USER/REPO:QUANT or hf:USER/REPO/FILE.gguf"),
    "another file": ("hf:me/Tiny-GGUF/README.md", "README.md is not a GGUF file"),
    "a way out": ("hf:../../etc", "is not hf:USER/REPO"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(models, home, text, expected):
    with pytest.raises(ModelError) as caught:
        resolve_model(text, [home / "mine"])
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["hf:me/Absent-GGUF", "hf:me/Tiny-GGUF:Q6_K", "hf:me/Tiny-GGUF/x.gguf"])
def test_a_model_of_the_hub_that_is_not_here(models, text):
    with pytest.raises(ModelNotHereError) as caught:
        resolve_model(text)
    assert str(caught.value.reference) == text
    assert f"gen models pull {text} downloads it" in str(caught.value)


def test_each_name_of_a_file_that_two_tools_have(models, home):
    (home / "mine/llama.gguf").symlink_to(models["llama3.2:1b"])
    assert resolve_model("llama", [home / "mine"]).samefile(models["llama3.2:1b"])
    (home / "mine/penguin.gguf").symlink_to(models["llama3.2:3b"])
    assert resolve_model("penguin", [home / "mine"]).samefile(models["llama3.2:3b"])


def test_no_ollama_at_all(home):
    with pytest.raises(ModelError, match="there is no model of Ollama on this machine"):
        resolve_model("ollama:x")


def test_a_split_model_that_lacks_a_part_is_not_here(home):
    snapshot = in_hub_cache(home / ".cache/huggingface/hub", "me/Big", "Big-Q8_0-00001-of-00002.gguf")
    with pytest.raises(ModelNotHereError, match=r"its part Big-Q8_0-00002-of-00002\.gguf is not on this machine"):
        resolve_model("hf:me/Big")
    (snapshot / "Big-Q8_0-00002-of-00002.gguf").symlink_to(snapshot / "Big-Q8_0-00001-of-00002.gguf")
    assert resolve_model("hf:me/Big").name == "Big-Q8_0-00001-of-00002.gguf"


REFERENCES = {
    "me/x": ("me/x", None, None),
    "hf:me/x:Q8_0": ("me/x", "Q8_0", None),
    "https://huggingface.co/me/x": ("me/x", None, None),
    "https://huggingface.co/me/x/resolve/main/a/b.gguf?download=true": ("me/x", None, "a/b.gguf"),
    "me/x:b.gguf": ("me/x", None, "b.gguf"),
}


@pytest.mark.parametrize(("text", "expected"), REFERENCES.items(), ids=REFERENCES)
def test_references(text, expected):
    reference = parse_hub_reference(text)
    assert (reference.repository, reference.tag, reference.file) == expected


def test_a_model_of_ollama_is_not_downloaded():
    with pytest.raises(ModelError, match="run `ollama pull llama3`, then gen"):
        parse_hub_reference("ollama:llama3")


@pytest.fixture(scope="module")
def parts(tmp_path_factory, pruned_model):
    """A model, split into three files in llama.cpp's own format."""
    from ..engine.split_models import split_model

    return split_model(pruned_model, tmp_path_factory.mktemp("split"), count=3)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_part_of_a_split_model_loads(parts, number):
    with Model.load(parts[number], n_ctx=16) as model:
        assert model.path == parts[0]
        assert model.vocabulary.size == TOKENS


@pytest.mark.parametrize("text", ["ollama:llama3.2:3b", "ollama:3b", "llama3.2:3b", ":3b"])
def test_a_model_of_ollama_whose_file_is_missing(models, text):
    models["llama3.2:3b"].unlink()
    with pytest.raises(ModelError) as caught:
        resolve_model(text)
    assert str(caught.value) == (
        f"{text}: the file of ollama:llama3.2:3b is missing ({models['llama3.2:3b']}); `ollama pull llama3.2:3b`"
        " downloads it"
    )


def test_a_name_that_fits_a_missing_model_too_means_the_one_that_is_here(models):
    models["llama3.2:3b"].unlink()
    assert resolve_model("ollama:llama3.2") == resolve_model("llama3.2") == models["llama3.2:1b"]
    with pytest.raises(ModelError, match=r"ollama:nonsuch: Ollama has no model .*; it has (?!.*llama3.2:3b)"):
        resolve_model("ollama:nonsuch")


def test_a_part_that_is_missing_is_named(parts, tmp_path):
    for path in parts[:2]:
        (tmp_path / path.name).symlink_to(path)
    with pytest.raises(ModelError, match=r"x-00003-of-00003.gguf: this part of the model is missing"):
        Model.load(tmp_path / parts[0].name)


@pytest.mark.parametrize(
    ("third", "found"), [(1, "part 2 of a model"), (0, "part 1 of a model"), (None, "no part")]
)
def test_a_part_under_the_name_of_another_is_named(parts, pruned_model, tmp_path, third, found):
    for path in parts[:2]:
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / parts[2].name).symlink_to(pruned_model if third is None else parts[third])
    with pytest.raises(ModelError, match=rf"x-00003-of-00003.gguf: this is {found}.*, not part 3"):
        Model.load(tmp_path / parts[0].name)


def test_a_part_that_is_cut_off_is_named(parts, tmp_path):
    for path in parts[:2]:
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / parts[2].name).write_bytes(parts[2].read_bytes()[:-64])
    with pytest.raises(ModelError, match=r"x-00003-of-00003.gguf: truncated"):
        Model.load(tmp_path / parts[0].name)


def with_layers(root, name, layers, base):
    """Add a model to Ollama's store that has the layers of another model, and more: (media type, bytes)."""
    manifest = json.loads((root / "manifests" / base.replace(":", "/")).read_text())
    for kind, data in layers:
        manifest["layers"].append(
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": blob(root, data)}
        )
    write_manifest(root / "manifests", name, manifest)


def test_adapters_of_a_model_of_ollama(home):
    root, library = home / ".ollama/models", "registry.ollama.ai/library"
    path = in_ollama(root, f"{library}/base:latest")
    with_layers(
        root, f"{library}/mario:latest", [("adapter", b"one"), ("adapter", b"two")], f"{library}/base:latest"
    )
    with_layers(root, f"{library}/seer:latest", [("projector", b"eye")], f"{library}/base:latest")
    assert resolve_files("ollama:base") == (path, (), False)
    assert resolve_files("ollama:seer") == (path, (), True)
    files = resolve_files("mario")
    assert [adapter.read_bytes() for adapter in files.adapters] == [b"one", b"two"]
    assert files.path == path
    assert model_name(path, files.adapters) == "ollama:mario:latest"
    assert model_name(path) == "ollama:base:latest"
    with pytest.raises(ModelError, match="fits 2 models"):
        resolve_files("ollama:r")
    files.adapters[1].unlink()
    with pytest.raises(ModelError, match="adapter is missing"):
        resolve_files("mario")


ELSEWHERE = (
    *("https://example.com/a.gguf", "http://127.0.0.1:8000/a.gguf", "HTTPS://example.com/a.gguf?x=1"),
    *("s3://bucket/a.gguf", "file:///a.gguf", "oci://x/y"),
)


@pytest.mark.parametrize("text", ELSEWHERE)
def test_addresses_elsewhere(home, text):
    with pytest.raises(ModelError, match="downloads from Hugging Face only"):
        resolve_model(text)


@pytest.mark.parametrize(
    "text", ["https://huggingface.co/me/Tiny/resolve/main/a.gguf?download=true", "hf.co/me/Tiny"]
)
def test_addresses_of_the_hub(home, text):
    with pytest.raises(ModelNotHereError):
        resolve_model(text)


def test_links_list_a_file_once(home):
    folder = home / "mine"
    folder.mkdir()
    write_tiny(folder / "one.gguf")
    (folder / "a-link.gguf").symlink_to(folder / "one.gguf")
    (folder / "again").symlink_to(folder)
    (folder / "deeper").mkdir()
    (folder / "deeper" / "up").symlink_to("..")
    (folder / "deeper" / "two.gguf").symlink_to("../one.gguf")
    assert [entry.name for entry in list_models([folder])] == ["one"]
    assert resolve_model("two", [folder]).samefile(folder / "one.gguf")
    assert [entry.name for entry in list_models([folder, folder / "again", folder / "deeper"])] == ["one"]
