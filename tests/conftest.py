"""Settings and fixtures of all tests: waiting threads, examples of hypothesis, and a fast model."""

import os
from pathlib import Path

# Threads of OpenMP spin while they wait. On a busy machine they starve the thread that they wait for.
# The variable must be set before llama.cpp is loaded. Every `gen` that a test starts inherits it.
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin, too

# Workers that share cores would wait for each other's threads. So each worker and its children get one core.
worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker is not None and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import pytest  # noqa: E402 - after the variables for threads are set
from hypothesis import HealthCheck, settings  # noqa: E402

# No deadline, because tests must not fail on a busy machine. The health check would
# report rows of thousands of logits as slow. `make proof` asks for more examples.
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


@pytest.fixture(scope="session")
def draft_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layer of the pruned model, which drafts for the pruned model: about a third of it is right."""
    from .engine.pruned_model import write_pruned_model

    folder = tmp_path_factory.getbasetemp()
    path = (folder if worker is None else folder.parent) / "draft.gguf"
    if not path.exists():
        write_pruned_model(path, layers=[0])
    return path


@pytest.fixture(scope="session")
def gen_server():
    """A process that runs commands."""
    from .gen_server import GenServer

    with GenServer({**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}) as server:
        yield server


@pytest.fixture(scope="session")
def browser():
    """Chromium. There is one for all tests of a process, because Playwright starts only once in a thread."""
    from .browser import open_browser

    with open_browser() as browser:
        yield browser
