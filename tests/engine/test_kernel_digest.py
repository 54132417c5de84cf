"""The digest of a model's logits: the same for what computes alike, another for what does not."""

import pytest
from logitsmith.engine import Model

CHANGES = {
    "another type of the cache": {"cache_type_k": "q8_0"},
    "another frequency of RoPE": {"rope_freq_base": 20_000.0},
}


def digest(path, **options):
    with Model.load(path, n_ctx=256, threads=1, **options) as model:
        return model.kernel_digest()


def test_two_loads_have_one_digest_and_the_length_of_the_context_is_left_out(pruned_model):
    assert digest(pruned_model) == digest(pruned_model)
    with Model.load(pruned_model, n_ctx=512, threads=1) as model:
        assert model.kernel_digest() == digest(pruned_model)


@pytest.mark.parametrize("options", CHANGES.values(), ids=CHANGES)
def test_other_logits_have_another_digest(pruned_model, options):
    assert digest(pruned_model, **options) != digest(pruned_model)


def test_it_leaves_the_models_own_context_as_it_was(pruned_model):
    with Model.load(pruned_model, n_ctx=256, threads=1) as model:
        model.context.read([1, 2, 3])
        before = model.context.logits().copy()
        model.kernel_digest()
        assert (model.context.logits() == before).all()
