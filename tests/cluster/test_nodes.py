"""Tasks on a cluster of several nodes: no task is lost if nodes fail or are added."""

import re
from itertools import count as count_up, takewhile

import pytest
from logitsmith.cluster.connection import connect

from .driver import Driver
from .services import EchoFactory

pytestmark = pytest.mark.slow

NODES = 2


@pytest.fixture(scope="module")
def cluster(ray):
    """A cluster whose head computes nothing."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def nodes(cluster, monkeypatch):
    """The cluster, and its nodes: those that an earlier test has removed are replaced."""
    monkeypatch.setattr("logitsmith.cluster.run._SECONDS_BETWEEN_CAPACITY_CHECKS", 1.0)
    for member in [*cluster.worker_nodes][NODES:]:
        cluster.remove_node(member)
    while len(cluster.worker_nodes) < NODES:
        cluster.add_node(num_cpus=1)
    return cluster, [*cluster.worker_nodes]


@pytest.mark.slow
def test_a_node_that_fails_and_one_that_is_added(nodes):
    cluster, members = nodes
    with connect(cluster.address) as head_monitor:
        driver = Driver(head_monitor, EchoFactory(0.005), workers=NODES)
        answered_by = set()

        def change(count):
            answered_by.update(worker.name for worker in driver.run.worker_statuses if worker.answered_count)
            if count == 100:
                cluster.remove_node(members[0], allow_graceful=False)
            if count == 200:
                cluster.add_node(num_cpus=1)

        tasks = takewhile(lambda number: number < 300 or len(answered_by) <= NODES, count_up())
        found = driver.results(tasks, change)
    assert found == list(range(len(found)))
    assert len(answered_by) == NODES + 1
    assert any("was lost (its node " in report for report in driver.reports)


# Ray may still list a node that an earlier test has removed, so that the run wants one worker more.
NO_WORKER_FITS = re.compile(r"\b0 of \d+ workers fit on the cluster")


@pytest.mark.slow
def test_without_any_node_the_run_waits_for_one(nodes):
    cluster, members = nodes
    with connect(cluster.address) as head_monitor:
        driver = Driver(head_monitor, EchoFactory(0.005), workers=None)

        def change(count):
            if count == 50:
                for member in members:
                    cluster.remove_node(member, allow_graceful=False)

        def report(sentence):
            driver.reports.append(sentence)
            if NO_WORKER_FITS.search(sentence):
                cluster.add_node(num_cpus=1)

        driver.run._pool._report = report
        assert driver.results(list(range(200)), change) == list(range(200))
    assert any(map(NO_WORKER_FITS.search, driver.reports))
