"""What every test folder shares: how threads wait, how hypothesis looks for examples, and a quick model."""

import os
from pathlib import Path

# OpenMP's threads spin while they wait, which on a busy machine starves the thread that they wait for.
# Set before llama.cpp is loaded, and inherited by each `gen` that a test starts.
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # which spin, too

# Workers that share cores wait for each other's threads; each gets one of its own, and so does what it starts.
worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker is not None and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import pytest  # noqa: E402 - after what threads go by
from hypothesis import HealthCheck, settings  # noqa: E402

# No deadline: a busy machine is no failure. The health check would count rows of thousands of logits as slow.
# `make proof` asks for more examples.
settings.register_profile(
    "logitsmith",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", "30")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("logitsmith")


@pytest.fixture(scope="session")
def pruned_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with few of its layers and tokens, for tests in which it does not matter what it says."""
    from .engine.pruned_model import write_pruned_model

    folder = tmp_path_factory.getbasetemp()
    path = (folder if worker is None else folder.parent) / "pruned.gguf"  # one for all workers
    if not path.exists():
        write_pruned_model(path)
    return path
