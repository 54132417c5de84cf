"""The slots of a worker: as many as its GPU has memory for, unless they are given."""

import pytest
from logitsmith.engine.load_options import LoadOptions, ModelSpec
from logitsmith.jobs import workers
from logitsmith.jobs.workers import BatchServiceSpec
from logitsmith.models.folders import locate

from ..engine.gpus import gpu, put_gpus

SLOTS = {"as many as fit": (None, 4, "4 slots instead of 8"), "given": (2, 2, None)}


@pytest.mark.parametrize(("given", "used", "note"), SLOTS.values(), ids=SLOTS)
def test_default_slots_come_down_and_given_ones_do_not(monkeypatch, given, used, note):
    put_gpus(monkeypatch, gpu(mib=300))
    asked = []
    monkeypatch.setattr(workers, "answer_lines", lambda _model, _lines, slots, **_: asked.append(slots) or ())
    model = ModelSpec(locate()[0], "", LoadOptions(slots=given, threads=2, n_ctx=1024))
    service = BatchServiceSpec(model, given, deterministic=False, is_openai=False)(lambda path: path)
    service.serve([], print, print)
    assert asked == [used]
    assert (note or "") in (service.facts()["note"] or "")
    assert (service.facts()["note"] is None) is (note is None)
