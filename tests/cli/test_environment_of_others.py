"""What other tools leave on a machine: variables, adapters, names that are empty or taken."""

import json
import re
import shutil

import pytest

from ..models.folders import blob, write_manifest
from .test_cluster import write_adapter

LIBRARY = "registry.ollama.ai/library"


@pytest.fixture
def ollama(home, environment, pruned_model):
    """Two models of Ollama with one file; mario has an adapter."""
    root = home / "models"
    environment["OLLAMA_MODELS"] = str(root)
    write_adapter(home / "lora.gguf")
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": blob(root, pruned_model.read_bytes())},
        {
            "mediaType": "application/vnd.ollama.image.adapter",
            "digest": blob(root, (home / "lora.gguf").read_bytes()),
        },
    ]
    write_manifest(root / "manifests", f"{LIBRARY}/base:latest", {"layers": layers[:1]})
    write_manifest(root / "manifests", f"{LIBRARY}/mario:latest", {"layers": layers})
    return root / "blobs" / layers[1]["digest"].replace(":", "-")


def test_an_adapter_of_ollama_is_applied_and_shown(gen, ollama, pruned_model):
    flags = ("The sea", "-n", "12", "--temp", "0", "--format", "jsonl", "-t", "1")
    plain = gen(*flags, "-m", "ollama:base").lines
    by_flag = gen(*flags, "-m", "ollama:base", "--lora", ollama).lines
    by_name = gen(*flags, "-m", "ollama:mario").lines
    assert "adapters" not in plain[0]
    assert by_name[0]["adapters"] == by_flag[0]["adapters"] == [{"file": str(ollama), "scale": 1.0}]
    assert by_name[0]["model"] == by_flag[0]["model"] == "ollama:mario:latest"
    logprobs = [[token.get("logprob") for token in lines[1:]] for lines in (plain, by_flag, by_name)]
    texts = [[token.get("id") for token in lines[1:]] for lines in (plain, by_flag, by_name)]
    assert (logprobs[1], texts[1]) == (logprobs[2], texts[2])
    assert str(ollama) in gen("x", "-m", "ollama:mario", "--show-config").out.replace("\n", "")
    assert json.loads(gen("models", "show", "mario", "--format", "json").out)["adapters"] == [str(ollama)]
    assert re.search("^ *adapter +", gen("models", "show", "mario").out, re.MULTILINE)
    assert not re.search("^ *adapter +", gen("models", "show", "base").out, re.MULTILINE)


def test_the_file_of_a_model_with_an_adapter_says_what_is_missing(gen, ollama, home):
    shutil.rmtree(home / "models/manifests" / LIBRARY / "base")
    (file,) = (path for path in ollama.parent.iterdir() if path != ollama)
    done = gen("The sea", "-n", "1", "-t", "1", "-m", file)
    assert "-m ollama:mario:latest applies it" in done.err


VARIABLES = {
    "LLAMA_ARG_CTX_SIZE": "8192",
    "LLAMA_ARG_TEMP": "0.3",
    "HF_TOKEN": "secret",
    "LLAMA_API_KEY": "secret",
}


def test_doctor_names_the_variables_of_llama_cpp(gen, environment):
    environment.update(VARIABLES)
    page = gen("doctor").out
    assert "secret" not in page
    rows = json.loads(gen("doctor", "--format", "json").out)["environment"]
    found = {row["name"]: row["is_used"] for row in rows}
    assert found == {name: name == "HF_TOKEN" for name in VARIABLES}
    assert all(name in page for name in VARIABLES)


EMPTY = {
    **{
        flag: ("x", flag, "")
        for flag in ("-m", "-md", "-hf", "--preset", "--lora", "--grammar-file", "--ban-file")
    },
    **{flag: ("x", flag, "") for flag in ("--chat-template", "--json-schema-file", "--cfg-negative-prompt-file")},
    "-f": ("-f", ""),
    "REQUESTS": ("batch", ""),
    "-o": ("batch", "x.jsonl", "-o", ""),
    "--html": ("inspect", "x", "--html", ""),
    "--api-key-file": ("serve", "--api-key-file", ""),
}


@pytest.mark.parametrize(("name", "words"), EMPTY.items(), ids=EMPTY)
def test_empty_names_of_files(gen, name, words):
    assert name in gen(*words, code=2).err


@pytest.mark.parametrize("name", ["default", "creative", "Default"])
def test_the_name_of_a_built_in_preset(gen, name):
    done = gen("presets", "import", "-", "--save", name, stdin="llama-cli --temp 0.5", code=2)
    assert "built-in preset" in done.err
    gen("presets", "import", "-", "--save", name, "--force", stdin="llama-cli --temp 0.5")
