"""Workers may join only if they compute the same as the first worker."""

from dataclasses import replace

import pytest
from logitsmith.engine import versions
from logitsmith.jobs.workers import Admission
from logitsmith.requests.recorded_settings import ModelDescription

MODEL = ModelDescription("m", {"fingerprint": "a", "n_ctx": 256}, {})
FIRST = {"versions": versions(), "model": MODEL, "kernels": "k", "worker": {"cpu": "EPYC"}}
OTHERS = {
    "the same": ({}, None),
    "another version": (
        {"versions": {**versions(), "llama-cpp-python": "0.1"}},
        "it has llama-cpp-python 0.1, but this machine has",
    ),
    "no version": ({"versions": {}}, "it has logitsmith None"),
    "another file": (
        {"model": replace(MODEL, identity={"fingerprint": "b", "n_ctx": 256})},
        "its model file or its settings differ",
    ),
    "other settings": (
        {"model": replace(MODEL, identity={"fingerprint": "a", "n_ctx": 9})},
        "its model file or its settings differ",
    ),
    "other kernels": (
        {"kernels": "l", "worker": {"cpu": "Xeon"}},
        "its processor (Xeon) computes other logits than the first worker's (EPYC)",
    ),
}


@pytest.mark.parametrize(("changes", "reason"), OTHERS.values(), ids=OTHERS)
def test_a_worker_after_the_first(changes, reason):
    admission = Admission(needs_same_kernels=True)
    assert admission(FIRST) is None
    answer = admission({**FIRST, **changes})
    assert answer == reason if reason is None else reason in answer


def test_different_kernels_are_recorded_if_they_are_allowed():
    admission = Admission(needs_same_kernels=False)
    assert admission(FIRST) is None
    assert not admission.has_different_kernels
    assert admission({**FIRST, "kernels": "l"}) is None
    assert admission.has_different_kernels


def test_a_first_worker_of_another_version_may_not_join():
    assert "install the same version there" in Admission(True)(
        {**FIRST, "versions": {**versions(), "logitsmith": "9"}}
    )
