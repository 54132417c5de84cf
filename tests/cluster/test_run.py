"""Tasks on this machine's Ray: each has one result, even if workers crash, hang or are rejected."""

import os
import random
import signal
from contextlib import suppress

import pytest
from logitsmith.cluster.connection import connect
from logitsmith.cluster.tasks import ClusterError

from .driver import Driver
from .services import HANG, POISON, EchoFactory


@pytest.fixture(scope="module")
def head_monitor(ray, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # which the workers inherit
        with connect(None) as head_monitor:
            yield head_monitor


def test_each_task_gets_its_result(head_monitor):
    driver = Driver(head_monitor, EchoFactory())
    driver.wait()
    assert driver.results(list(range(50))) == list(range(50))
    assert driver.reports == []
    assert driver.run.unit_count == 50


def test_a_task_that_crashes_its_worker_is_found_and_the_others_are_answered(head_monitor):
    driver = Driver(head_monitor, EchoFactory())
    contents = [*range(9), POISON, *range(10, 20)]
    assert driver.results(contents) == [None if content == POISON else content for content in contents]
    assert any("was lost (its process ended)" in report for report in driver.reports)


@pytest.mark.slow
def test_workers_that_are_killed_at_random_lose_nothing(head_monitor):
    driver = Driver(head_monitor, EchoFactory(0.002), size=2)
    chance = random.Random(3)
    driver.wait()

    def kill_sometimes(count):
        pids = sorted(worker.facts["pid"] for worker in driver.run._pool if worker.facts is not None)
        if count % 40 == 0 and pids:
            with suppress(ProcessLookupError):  # it was already killed
                os.kill(chance.choice(pids), signal.SIGKILL)

    assert driver.results(list(range(200)), kill_sometimes) == list(range(200))
    assert sum("was lost" in report for report in driver.reports) >= 3


CRASHES = "3 workers in a row crashed while they started: "
NO_START = {
    "the service raises": ({"fails": True}, {}, ValueError, "there is no model"),
    "it crashes": ({"dies": True}, {}, ClusterError, CRASHES + "its process ended"),
    "it hangs": ({"hangs": True}, {"stall": 0.5}, ClusterError, CRASHES + "it made no progress"),
    "it may not join": (
        {},
        {"reject": lambda facts: "another version"},
        ClusterError,
        r"worker 1 on .* cannot join, and no other worker is left: another",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("service", "options", "error", "message"), NO_START.values(), ids=NO_START)
def test_without_a_worker_that_starts_the_run_ends(head_monitor, service, options, error, message):
    driver = Driver(head_monitor, EchoFactory(**service), workers=1, **options)
    with pytest.raises(error, match=message):
        driver.wait()
    driver.run.close()


@pytest.mark.slow
def test_a_worker_that_cannot_start_leaves_the_work_to_others(head_monitor, tmp_path):
    driver = Driver(head_monitor, EchoFactory(0.01, only_first=tmp_path / "first"))
    assert driver.results(list(range(60))) == list(range(60))
    (report,) = driver.reports
    assert report.endswith("cannot join: there is no model")


@pytest.mark.slow
def test_if_every_task_crashes_its_worker_the_run_ends(head_monitor, monkeypatch):
    monkeypatch.setattr("logitsmith.cluster.run._MAX_CRASHES_WITHOUT_RESULT", 2)
    driver = Driver(head_monitor, EchoFactory(), workers=1, size=8)
    with pytest.raises(ClusterError, match="2 workers in a row crashed without a result: its process ended"):
        driver.results([POISON] * 100)
    driver.run.close()


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced_and_its_task_alone_fails(head_monitor):
    driver = Driver(head_monitor, EchoFactory(), workers=1, stall=0.5, size=8)
    arrived = []
    assert driver.results([0, 1, 2, HANG], arrived.append) == [0, 1, 2, None]
    assert arrived == [1, 2, 3, 4]
    # The other tasks were answered before, so only the task that hangs was repeated.
    assert ["it made no progress for 0.5 s" in report for report in driver.reports] == [True] * 3


@pytest.mark.slow
def test_each_worker_gets_a_part(head_monitor):
    driver = Driver(head_monitor, EchoFactory(0.2), size=4)
    while not all(worker.is_ready for worker in driver.run.worker_statuses):
        driver.wait()
    answered = []
    driver.results(
        list(range(8)), lambda _: answered.append([status.answered_count for status in driver.run.worker_statuses])
    )
    assert answered[-1] == [4, 4]


def test_the_note_of_a_worker_is_reported_with_its_name(head_monitor):
    driver = Driver(head_monitor, EchoFactory(note="its GPU is full"), workers=1)
    assert driver.results([1, 2]) == [1, 2]
    assert [report.partition(": ")[2] for report in driver.reports] == ["its GPU is full"]


@pytest.mark.slow
def test_a_worker_may_be_rejected(head_monitor):
    seen = []

    def reject(facts):
        seen.append(facts["pid"])
        return "another processor" if len(seen) == 2 else None

    driver = Driver(head_monitor, EchoFactory(0.01), reject=reject)
    assert driver.results(list(range(60))) == list(range(60))
    assert [report for report in driver.reports if "cannot join: another processor" in report]


@pytest.mark.slow
def test_workers_that_do_not_fit_wait(head_monitor):
    driver = Driver(head_monitor, EchoFactory(), workers=50)
    assert driver.results(list(range(5))) == list(range(5))
    assert "workers fit on the cluster; the others wait" in driver.reports[0]


@pytest.mark.slow
def test_nodes_without_a_file_get_it(head_monitor, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text(f"written by {os.getpid()}")
    driver = Driver(head_monitor, EchoFactory(file=path), files=[path])
    assert driver.results([1, 2, 3]) == [path.read_text()] * 3
    assert driver.reports == ["the model is sent to the nodes that do not have it"]
