"""A model that is loaded in a thread: the same model, the same failures, and nothing left behind."""

import sys
import time

import pytest
from logitsmith.engine import ComputeOptions, Model, ModelError
from logitsmith.engine.native.model import BackgroundLoad
from logitsmith.engine.native.options import plan_load

from .small_models import make_metadata, random_tensors, tensor_shapes, write_file

SWITCH_SECONDS = sys.getswitchinterval()


def early(path, **arguments):
    plan = plan_load(path, **arguments)
    return plan, BackgroundLoad(plan)


@pytest.mark.parametrize(
    "arguments", [{}, {"mmap": False}, {"n_ctx": 0}, {"n_ctx": 300, "threads": 1, "batch": 7}], ids=str
)
def test_it_is_the_same_model(small_model, arguments):
    plan, load = early(small_model, **arguments)
    with Model.from_plan(plan, background_load=load) as found, Model.load(small_model, **arguments) as expected:
        assert found.metadata == expected.metadata
        assert found.context.length == expected.context.length
        rows = []
        for model in (found, expected):
            model.context.read([1, 2, 3])
            rows.append(model.context.logits().copy())
    assert (rows[0] == rows[1]).all()


def test_it_is_loaded_once(small_model, monkeypatch):
    plan, load = early(small_model)
    load._thread.join()
    monkeypatch.setattr("logitsmith.engine.native.model.lib.llama_model_load_from_file", None)
    monkeypatch.setattr("logitsmith.engine.native.context.lib.llama_init_from_model", None)
    with Model.from_plan(plan, background_load=load) as model:
        assert model.context.length == 512


def test_what_no_caller_takes_is_freed(small_model):
    _, load = early(small_model)
    load.cancel()
    assert not load._thread.is_alive()
    assert load._model is None
    assert load._context is None
    load.cancel()


def test_the_model_may_be_closed_before_its_context_is_taken(small_model):
    plan, load = early(small_model)
    with Model.from_plan(plan, background_load=load):
        pass
    assert load._context is None
    with Model.load(small_model) as model:
        assert model.context.length == 512


def test_reading_stops_when_no_caller_wants_it(small_model):
    _, load = early(small_model, mmap=False)
    load._thread.join()
    assert load._model
    load.cancel()
    load._load()
    assert load._model is None
    assert sys.getswitchinterval() == SWITCH_SECONDS


def test_who_waits_can_stop_reading(small_model, monkeypatch):
    monkeypatch.setattr(BackgroundLoad, "_load", lambda load, of=BackgroundLoad._load: (time.sleep(0.1), of(load)))
    _, load = early(small_model, mmap=False)
    assert load.wait_for_model(lambda _fraction: False) is None
    load.cancel()


def test_a_context_with_other_options_is_not_taken(small_model):
    _, load = early(small_model)
    options = plan_load(small_model, n_ctx=100).context_options(512)
    assert load.wait_for_context(options) is None
    load.cancel()


REFUSED = {
    "an unknown architecture": {"general.architecture": "new"},
    "no merges": {"tokenizer.ggml.merges": None},
    "a failed assertion": {"llama.expert_count": 4},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_refused_file_has_the_same_message(tmp_path, changes):
    path = tmp_path / "m.gguf"
    metadata = make_metadata("llama")
    write_file(path, metadata | changes, random_tensors(tensor_shapes(path, metadata)))
    plan, load = early(path)
    with pytest.raises(ModelError) as found:
        Model.from_plan(plan, background_load=load)
    load.cancel()
    with pytest.raises(ModelError) as expected:
        Model.load(path)
    assert str(found.value) == str(expected.value)


def test_a_context_that_cannot_be_made_has_the_same_message(tmp_path):
    path = tmp_path / "m.gguf"
    heads = {"llama.attention.head_count": 8, "llama.attention.head_count_kv": 8, "llama.rope.dimension_count": 16}
    metadata = make_metadata("llama") | heads
    write_file(path, metadata, random_tensors(tensor_shapes(path, metadata)))
    messages = []
    compute = ComputeOptions(cache_type_k="q8_0")  # its blocks of 32 values are longer than these heads
    plan, load = early(path, compute=compute)
    for model in (Model.from_plan(plan, background_load=load), Model.load(path, compute=compute)):
        with model, pytest.raises(ModelError) as caught:
            model.context  # noqa: B018
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_long_context_is_not_made_early(small_model):
    plan, load = early(small_model, n_ctx=10_000)
    load._thread.join()
    assert not load._context
    with Model.from_plan(plan, background_load=load) as model:
        assert model.context.length == 10_000
