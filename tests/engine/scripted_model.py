"""A model whose next token is known: it only looks at the last token, and each token has its successors."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np

from .small_models import BYTE_CHARACTERS, make_metadata, tensor_shapes, write_file

WIDTH = 512  # at least the size of the vocabulary
LOGIT = 40.0  # of the first successor; each further one has less, and all other tokens have 0


def write_scripted_model(
    path: Path, scripts: Sequence[Sequence[str]], template: str, control: Sequence[str] = ()
) -> Path:
    """Write a model, and return its path.

    Args:
        path: The GGUF file.
        scripts: Texts as lists of tokens. After a token, the model writes the token that follows it in the first
            script with it; with less probability, those of the later ones. Other tokens are single bytes.
        template: The chat template.
        control: The tokens that are control tokens. ``<end>`` ends a text.
    """
    others = iter(range(256, 512))
    bytes_ = [chr(byte) if chr(byte) in BYTE_CHARACTERS else chr(next(others)) for byte in range(256)]
    words = list(dict.fromkeys(word for script in scripts for word in script if word != "<end>" and len(word) > 1))
    tokens = [*bytes_, *words, "<end>"]
    kinds = [gguf.TokenType.CONTROL if word in control else gguf.TokenType.USER_DEFINED for word in words]
    ids = {word: 256 + number for number, word in enumerate([*words, "<end>"])}
    ids |= {chr(byte): byte for byte in range(128)}
    metadata = make_metadata("llama") | {
        "llama.block_count": 1,
        "llama.embedding_length": WIDTH,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*[1] * 256, *map(int, kinds), int(gguf.TokenType.CONTROL)],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": None,
        "tokenizer.ggml.eos_token_id": ids["<end>"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": template,
    }
    shapes = tensor_shapes(path, metadata)
    tensors: dict[str, object] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        if name.endswith(("norm.weight", "rope_freqs.weight")):
            tensors[name] = np.ones(shape, np.float32)
    tensors["token_embd.weight"] = np.eye(len(tokens), WIDTH, dtype=np.float32)
    tensors["output.weight"] = _successors(scripts, ids, len(tokens))
    write_file(path, metadata, tensors)
    return path


def _successors(scripts: Sequence[Sequence[str]], ids: Mapping[str, int], size: int) -> np.ndarray:
    output = np.zeros((size, WIDTH), np.float32)
    norm = WIDTH**0.5  # what the norm makes of an embedding with a single one
    for script in scripts:
        for token, successor in pairwise(script):
            weights = output[:, ids[token]]
            if not weights[ids[successor]]:
                weights[ids[successor]] = (LOGIT - 10 * np.count_nonzero(weights)) / norm
    return output
