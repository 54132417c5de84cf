"""Prompt caches: what a later process loads gives the same logits; what does not fit is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from logitsmith.engine import Model, PromptCacheError, load_prompt_cache, save_prompt_cache

from .small_models import write_model
from .test_exact_reuse import cold_logits, some_tokens

OPTIONS = {"n_ctx": 512, "batch": 128, "threads": 1}
PROMPT = some_tokens(300)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("cache") / "llama.gguf", "llama")


@pytest.fixture(scope="module")
def model(path) -> Iterator[Model]:
    with Model.load(path, **OPTIONS) as loaded:
        yield loaded


@pytest.fixture
def cache(model, tmp_path):
    model.context.read(PROMPT, exact=True)
    model.context.append(3)
    assert save_prompt_cache(model, tmp_path / "cache") == 300
    return tmp_path / "cache"


def test_a_later_process_continues_from_there(path, model, cache):
    longer = [*PROMPT[:290], *some_tokens(100, 7)]
    expected = cold_logits(model, longer)
    with Model.load(path, **OPTIONS) as other:
        assert load_prompt_cache(other, cache) == 300
        assert other.context.read(longer, exact=True) == 256
        assert np.array_equal(other.context.logits(), expected)
        for token in some_tokens(5):
            other.context.append(token)
        assert load_prompt_cache(other, cache) == 300
        assert other.context.read(longer, exact=True) == 256
        assert np.array_equal(other.context.logits(), expected)


def test_only_what_can_be_reused_is_written(model, cache):
    assert model.context.tokens == PROMPT
    model.context.read(PROMPT[:50], small_batches=True)
    model.context.read_each(PROMPT[:50])
    assert save_prompt_cache(model, cache) <= 50
    list(model.context.read_each(PROMPT[:50]))
    assert save_prompt_cache(model, cache) == 0
    assert load_prompt_cache(model, cache) == 0


def test_it_is_private(cache):
    assert cache.stat().st_mode & 0o777 == 0o600
    assert list(cache.parent.iterdir()) == [cache]


WRONG_BYTES = {
    "empty": (lambda data: b"", "the file is not a prompt cache of gen"),
    "another file": (lambda data: b"GGUF" + data, "the file is not a prompt cache of gen"),
    "no header": (lambda data: data[:19] + b"[]\n", "the prompt cache is damaged"),
    "half a header": (lambda data: data[:60], "the prompt cache is damaged"),
    "cut off": (lambda data: data[:-1], "the prompt cache is damaged"),
    "too long": (lambda data: data + b"x", "the prompt cache is damaged"),
    "a changed byte": (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "the prompt cache is damaged"),
    "another version": (lambda data: data.replace(b'"llama_cpp": ["', b'"llama_cpp": ["9'), "another llama.cpp"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_BYTES.values(), ids=WRONG_BYTES)
def test_wrong_files(model, cache, change, message):
    cache.write_bytes(change(cache.read_bytes()))
    with pytest.raises(PromptCacheError, match=message) as caught:
        load_prompt_cache(model, cache)
    assert str(caught.value).startswith(f"{cache}: ")


OTHER_SETTINGS = {
    "the batch": {"batch": 64},
    "the cache's type": {"cache_type_k": "q8_0"},
    "an override": {"overrides": {"llama.rope.freq_base": 9000.0}},
}


@pytest.mark.parametrize("options", OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
def test_other_settings(path, cache, options):
    with (
        Model.load(path, **{**OPTIONS, **options}) as other,
        pytest.raises(
            PromptCacheError, match="the prompt cache was made with another model or other settings of the model"
        ),
    ):
        load_prompt_cache(other, cache)


def test_a_smaller_context(path, cache):
    with (
        Model.load(path, **{**OPTIONS, "n_ctx": 256}) as other,
        pytest.raises(PromptCacheError, match="the prompt cache has more tokens than the context can hold"),
    ):
        load_prompt_cache(other, cache)


def test_another_model_and_a_copy_of_the_same(path, model, cache, tmp_path):
    copy = shutil.copyfile(path, tmp_path / "copy.gguf")
    with Model.load(copy, **OPTIONS) as same:
        assert same.identity() == model.identity()
        assert load_prompt_cache(same, cache) == 300
    with copy.open("r+b") as file:
        file.seek(-20, 2)
        file.write(b"xy")
    with (
        Model.load(copy, **OPTIONS) as other,
        pytest.raises(PromptCacheError, match="another model or other settings"),
    ):
        load_prompt_cache(other, cache)


NO_NAME = "{!r}: no file can have this name; give another path"
UNUSABLE = {
    "no folder": ("no/cache", "{}: there is no folder {folder}/no", "{}: there is no such file"),
    "a folder": ("", "{}: it is a folder, not a file", "{}: it is a folder, not a file"),
    "a name with a NUL": ("a\0b", NO_NAME, NO_NAME),
}
"""What is wrong with a path for writing, and for reading."""


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize(("name", "unwritable", "unreadable"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_error_names_the_path(model, tmp_path, kind, name, unwritable, unreadable):
    path = str(tmp_path / name)
    with pytest.raises(PromptCacheError) as caught:
        save_prompt_cache(model, kind(path))
    assert str(caught.value) == unwritable.format(path, folder=tmp_path)
    with pytest.raises(PromptCacheError) as caught:
        load_prompt_cache(model, kind(path))
    assert str(caught.value) == unreadable.format(path)
    assert isinstance(caught.value.__cause__, FileNotFoundError) == (name == "no/cache")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_a_path_or_its_name(model, cache, tmp_path, kind):
    written = tmp_path / "again"
    assert save_prompt_cache(model, kind(written)) == load_prompt_cache(model, kind(written)) > 0


def test_a_recurrent_model_keeps_nothing(tmp_path):
    with Model.load(write_model(tmp_path / "mamba.gguf", "mamba"), **OPTIONS) as model:
        model.context.read(PROMPT, exact=True)
        assert save_prompt_cache(model, tmp_path / "cache") == 0
        assert load_prompt_cache(model, tmp_path / "cache") == 0
