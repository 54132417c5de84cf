"""Texts that name tokens: the token with exactly these bytes, in BPE and in SentencePiece."""

import numpy as np
import pytest
from logitsmith.cli.inputs.settings import _parse_tokens
from logitsmith.engine import Model, ModelError
from logitsmith.samplers import SamplingError, build
from logitsmith.serve.llama_server import _read_biases

from .small_models import make_metadata, random_tensors, tensor_shapes, write_file

WORDS = ["\u2581r", "\u2581re", "\u2581blue", "blue", "\u2581red", "\u2581\u2581", "\u2581blue\u2581sky"]


def write_sentencepiece_model(path):
    """Write a model whose tokenizer puts a space before a text, with words with and without one."""
    metadata = make_metadata("llama", "llama")
    metadata["tokenizer.ggml.tokens"] += WORDS
    metadata["tokenizer.ggml.token_type"] += [1] * len(WORDS)
    metadata["tokenizer.ggml.scores"] += [float(len(word)) for word in WORDS]
    write_file(path, metadata, random_tensors(tensor_shapes(path, metadata)))
    return path


@pytest.fixture(scope="module")
def spm(tmp_path_factory):
    with Model.load(write_sentencepiece_model(tmp_path_factory.mktemp("spm") / "spm.gguf"), threads=1) as model:
        yield model


def spelled(model, token):
    return model.vocabulary.texts[token].decode()


NAMES = {
    "a word after a space": (" blue", "\u2581blue"),
    "a word without a space": ("blue", "blue"),
    "a word that there is with a space only": ("red", "\u2581red"),
    "the same with its space": (" red", "\u2581red"),
    "two words in one token": (" blue sky", "\u2581blue\u2581sky"),
    "a letter, of which there is a byte, too": ("b", "b"),
    "a byte": ("\n", "<0x0A>"),
    "a space": (" ", "\u2581"),
    "two spaces": ("  ", "\u2581\u2581"),
    "a control token": ("</s>", "</s>"),
}


@pytest.mark.parametrize(("text", "spelling"), NAMES.values(), ids=NAMES)
def test_a_text_names_the_token_with_its_bytes(spm, text, spelling):
    vocabulary = spm.vocabulary
    token = vocabulary.single(text)
    assert spelled(spm, token) == spelling
    for step in ({"logit_bias": {"bias": {text: 100.0}}}, {"allow": [text]}):
        candidates = build([step, "greedy"], vocab=vocabulary).apply(np.zeros(vocabulary.size, np.float32))
        assert candidates.ids[candidates.logits.argmax()] == token
    candidates = build([{"ban": [text]}, "greedy"], vocab=vocabulary).apply(np.zeros(vocabulary.size, np.float32))
    assert set(range(vocabulary.size)) - set(candidates.ids.tolist()) == {token}


def test_flags_and_bodies_name_tokens_in_the_same_way(spm):
    vocabulary = spm.vocabulary
    token, other = vocabulary.single(" blue"), vocabulary.single("blue")
    assert _parse_tokens('" blue", blue', vocabulary) == [token, other]
    assert _read_biases([[" blue", 1.0], ["blue", False]], vocabulary) == [[token, 1.0], [other, False]]


def test_every_text_that_is_shown_names_a_token_that_is_shown_so(spm, model):
    for vocabulary in (spm.vocabulary, model.vocabulary):
        texts = [piece.decode(errors="replace") for piece in vocabulary.pieces]
        shown = [text for text in texts if text and "\ufffd" not in text][::61]
        assert len(shown) >= 4
        assert [vocabulary.piece(vocabulary.single(text)).decode() for text in shown] == shown


def test_other_texts_are_refused_with_their_tokens(spm):
    with pytest.raises(ModelError, match="'hello there' is"):
        spm.vocabulary.single("hello there")
    with pytest.raises(SamplingError, match="'hello there' is"):
        build([{"logit_bias": {"bias": {"hello there": 1}}}], vocab=spm.vocabulary)
