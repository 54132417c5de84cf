"""Models with three kinds of vocabularies, each with its reference."""

from pathlib import Path

import pytest
from logitsmith.engine import Model, locate

from ..engine.big_model import write_model
from ..engine.small_models import BYTE_CHARACTERS, write_model as write_small_model
from .reference import Reference

LARGE_VOCABULARY = 151_936


def write_large_model(path: Path) -> Path:
    """A model whose tokens are bytes, some words of two and more bytes, and tens of thousands of others."""
    words = ["Ye", "Yes", "No", "ne", "None", "Ġ", "ĠYes", "ĠNo"]
    characters = [*BYTE_CHARACTERS, *(chr(0x100 + number) for number in range(256 - len(BYTE_CHARACTERS)))]
    tokens = list(dict.fromkeys([*characters, *words]))
    tokens += [f"<filler {number}>" for number in range(LARGE_VOCABULARY - len(tokens) - 1)] + ["<end>"]

    def add_tokenizer(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([1] * (len(tokens) - 1) + [3])
        writer.add_token_merges(["Y e", "Ye s", "N o", "Ġ Yes", "Ġ No", "n e", "No ne"])
        writer.add_eos_token_id(len(tokens) - 1)
        writer.add_add_bos_token(False)

    write_model(path, len(tokens), width=32, scale=0.1, add_tokenizer=add_tokenizer)
    return path


@pytest.fixture(scope="session")
def model_paths(pruned_model: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("decide")
    return {
        "BPE": lambda: pruned_model,
        "SPM": lambda: write_small_model(folder / "spm.gguf", "llama", "llama"),
        "151,936": lambda: write_large_model(folder / "large.gguf"),
    }


@pytest.fixture(scope="session", params=["BPE", "SPM", pytest.param("151,936", marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest, model_paths):
    """A model and its reference."""
    path = model_paths[request.param]()
    reference = Reference(path, 512)
    with Model.load(path, n_ctx=512, gpu_layers=0) as model:
        yield model, reference
    reference.close()


@pytest.fixture(scope="session", params=["small", pytest.param("bundled", marks=pytest.mark.slow)])
def chat_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A model with a chat template, and its reference."""
    if request.param == "small":
        template = "{% for message in messages %}<{{ message.content }}>{% endfor %}\n"
        path = tmp_path_factory.mktemp("chat") / "chat.gguf"
        write_small_model(path, "llama", changes={"tokenizer.chat_template": template})
    else:
        path = locate()[0]
    reference = Reference(path, 1024)
    with Model.load(path, n_ctx=1024, gpu_layers=0) as model:
        yield model, reference
    reference.close()


@pytest.fixture(scope="session")
def pruned(pruned_model: Path):
    with Model.load(pruned_model, n_ctx=1024, gpu_layers=0) as model:
        yield model
