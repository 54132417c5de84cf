"""The number of workers that fit on a cluster."""

import pytest
from logitsmith.cluster.worker import WorkerNeeds, no_capacity_error, workers_that_fit

NEEDS = WorkerNeeds(cpus=2, gpus=0.5, memory_bytes=3 * 10**9)
NODE = {"CPU": 8.0, "GPU": 1.0, "memory": 16e9}
CASES = {
    "the GPU is the limit": ([NODE], 2),
    "memory is the limit": ([{**NODE, "memory": 4e9}], 1),
    "processors are the limit": ([{**NODE, "CPU": 3.0}], 1),
    "nothing fits": ([{**NODE, "memory": 1e9}], 0),
    "nodes add up, and one does not fit": ([NODE, {"CPU": 64.0, "memory": 1e12}, NODE], 4),
}


@pytest.mark.parametrize(("nodes", "count"), CASES.values(), ids=CASES)
def test_workers_that_fit(nodes, count):
    assert workers_that_fit(nodes, NEEDS) == count


def test_the_error_names_needs_and_resources():
    sentence = str(no_capacity_error([{"CPU": 1.0, "memory": 2e9}], WorkerNeeds(2, 0, 3 * 10**9)))
    assert "a worker needs 2 CPU and 3.0 GB" in sentence
    assert "the largest has 1 CPU and 2.0 GB" in sentence
