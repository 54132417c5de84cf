"""Plug-ins that were written for release 0.1 work, and warn with the new names."""

import importlib
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from logitsmith.common.renamed import RENAMED
from logitsmith.samplers import Candidates, ChainRecorder, SamplerInfo, build, registry
from logitsmith.samplers.candidates import CandidateRows

from .rows import FakeVocabulary

MODULE = "tests.samplers.old_plugins"
FIELDS = RENAMED["logitsmith.samplers.base.SamplerInfo"]
LOGITS = np.array([0, 4, 3.5, 1, -1], np.float32)


@pytest.fixture(scope="module")
def plugins():
    """The module of old plug-ins, imported afresh: the old names warn while it is imported."""
    sys.modules.pop(MODULE, None)
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        module = importlib.import_module(MODULE)
    messages = {str(warning.message) for warning in caught}
    assert any("samplers: About is now called SamplerInfo;" in message for message in messages)
    for old_name, new_name in FIELDS.items():
        assert any(f": {old_name} is now called {new_name};" in message for message in messages)
    assert {warning.filename for warning in caught if "SamplerInfo:" in str(warning.message)} == {module.__file__}
    return module


def test_the_example_plugin_in_a_chain(plugins):
    chain = build([plugins.Lipogram(letters="b"), "greedy"], vocab=FakeVocabulary(128))
    logits = np.zeros(128, np.float32)
    logits[[ord("a"), ord("b")]] = 1, 2
    with pytest.warns(DeprecationWarning, match="Candidates: keep is now called filter_rows") as caught:
        assert chain.sample(logits) == ord("a")
    assert {warning.filename for warning in caught} == {plugins.__file__}
    assert plugins.Lipogram().is_neutral


def test_the_sampler_of_the_manual_in_a_traced_chain(plugins):
    chain = build([plugins.TopM(m=1.0), "dist"], seed=3)
    with pytest.warns(DeprecationWarning, match="keep is now called filter_rows"):
        record = ChainRecorder(chain).sample(LOGITS)
    assert record.token in (1, 2)
    assert record.stages[1].note == "p >= 0.2 = 1 / 5"


def test_every_old_name_of_the_candidates(plugins):
    chain = build([plugins.EveryOldName(count=3)])
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        # Even ids gain 1: 2 has 4.5 before 1 with 4.
        assert chain.sample(LOGITS) == 1
    seen = {str(warning.message) for warning in caught}
    expected = RENAMED["logitsmith.samplers.candidates.Candidates"]
    assert seen == {
        f"Candidates: {old_name} is now called {new_name}; the old name works until the next release"
        for old_name, new_name in expected.items()
    }


def test_the_old_fields_of_a_description(plugins):
    about = plugins.EveryOldName.about
    assert isinstance(about, SamplerInfo)
    for old_name, new_name in FIELDS.items():
        with pytest.warns(DeprecationWarning, match=f"{old_name} is now called {new_name}"):
            assert getattr(about, old_name) == getattr(about, new_name)


def test_the_old_argument_of_the_candidates():
    with pytest.warns(DeprecationWarning, match="Candidates: vocabulary is now called vocab_size") as caught:
        candidates = Candidates(LOGITS[:2], np.array([3, 4], np.int32), vocabulary=5)
    assert candidates.vocab_size == 5
    assert caught[0].filename == __file__


def test_both_names_of_an_argument_of_the_candidates():
    with pytest.raises(TypeError, match="vocabulary and vocab_size are one argument"):
        Candidates(LOGITS, vocab_size=5, vocabulary=5)


def test_a_subclass_calls_the_candidates_by_the_old_name():
    with pytest.warns(DeprecationWarning, match="keep is now called filter_rows"):  # noqa: PT031 - the class, too

        class MyCandidates(Candidates):
            def keep(self, mask):
                super().keep(mask)

        candidates = MyCandidates(LOGITS)
        candidates.filter_rows(LOGITS > 0)
    assert candidates.ids.tolist() == [1, 2, 3]


def test_the_old_name_in_the_module():
    with pytest.warns(DeprecationWarning, match="About is now called SamplerInfo"):
        from logitsmith.samplers.base import About
    assert About is SamplerInfo


def test_an_old_plugin_is_found_by_its_entry_point(plugins, monkeypatch):
    points = {"top_m": (EntryPoint("top_m", f"{MODULE}:TopM", registry.GROUP),)}
    monkeypatch.setattr(registry, "_plugin_entry_points", lambda: points)
    registry._load_plugin.cache_clear()
    try:
        assert build("top_m0.5 > greedy").steps[0] == plugins.TopM(m=0.5)
    finally:
        registry._load_plugin.cache_clear()


def test_new_names_cost_nothing():
    assert Candidates.__init__ is CandidateRows.__init__  # no wrapper that would run at each token
