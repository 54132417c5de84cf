"""`gen batch` on a cluster of hosts: despite failures, each id has one result, the same as on one machine."""

import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hosts.are_possible(), reason="needs root, and the programs ip, unshare and nsenter"),
]

REQUESTS = 300
NODES = 3
POISONED = 150
PLUGIN = Path(__file__).parent / "poison"
GEN = (sys.executable, "-m", "logitsmith.cli")
FLAGS = ("--format", "jsonl", "-c", "256", "-t", "1", "--parallel", "4")
PORT = 6379
_PATIENCE_SECONDS = 600
_OBJECT_STORE_BYTES = 100_000_000


@dataclass
class Cluster:
    """A head node, on which the batch is started, and the nodes that compute it."""

    head: hosts.Host
    nodes: list[hosts.Host]

    @property
    def flags(self):
        return ("--on", f"ray:{self.head.address}:{PORT}", "--cpus-per-worker", "1")


class Batch:
    """A batch that one of the hosts runs."""

    def __init__(self, host, requests, output, flags):
        self._output = output
        self._errors = output.with_suffix(".err")
        command = (*GEN, "batch", str(requests), "-o", str(output), *FLAGS, *flags)
        with self._errors.open("w") as errors:
            self.process = host.start(*command, stderr=errors, stdout=subprocess.DEVNULL)

    @property
    def errors(self):
        """Text that the batch has written to stderr."""
        return self._errors.read_text()

    def wait_for(self, count):
        """Wait until the file has this many results."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while not self._output.exists() or self._output.read_bytes().count(b"\n") < count:
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < end, self.errors
            time.sleep(0.01)

    def ended(self):
        """Wait for the batch to end; return its exit code."""
        code = self.process.wait(_PATIENCE_SECONDS)
        assert "Traceback" not in self.errors, self.errors
        return code


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    lines = [
        {"id": f"r{n}", "prompt": f"Question {n}: what is the sea?", "max_tokens": 120} for n in range(REQUESTS)
    ]
    path = tmp_path_factory.mktemp("requests") / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def expected(requests, pruned_model):
    """Results of one machine."""
    output = requests.with_name("here.jsonl")
    command = (*GEN, "batch", str(requests), "-o", str(output), *FLAGS, "-m", str(pruned_model))
    subprocess.run(command, check=True, capture_output=True)
    return results(output)


def results(path):
    """Return the results by id, without their workers. Each id has one result."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    found = {line["id"]: {**line, "worker": None} for line in lines}
    assert len(found) == len(lines)
    return found


@contextmanager
def cluster(folder, pruned_model, **variables):
    """Start a cluster in which only the head node has the model."""
    models = folder / "models"
    with hosts.network(folder / "hosts", 1 + NODES, [models], **variables) as (head, *nodes):
        head.copy(pruned_model, models / pruned_model.name)
        head.ray("get-auth-token", "--generate")
        common = (f"--object-store-memory={_OBJECT_STORE_BYTES}", "--disable-usage-stats")
        start = ("start", "--head", f"--port={PORT}", "--include-dashboard=false", "--num-cpus=0", *common)
        head.ray(*start, f"--node-ip-address={head.address}")
        for node in nodes:
            token = node.home / ".ray" / "auth_token"
            token.parent.mkdir()
            token.write_bytes((head.home / ".ray" / "auth_token").read_bytes())
            join = ("start", f"--address={head.address}:{PORT}", "--num-cpus=1", *common)
            node.ray(*join, f"--node-ip-address={node.address}")
        yield Cluster(head, nodes)


@pytest.fixture
def joined(ray, tmp_path, pruned_model):
    with cluster(tmp_path, pruned_model) as joined:
        yield joined


@pytest.fixture
def start(joined, requests, tmp_path, pruned_model):
    """Start a batch on the cluster."""

    def start_batch(*flags, host=joined.head, output=tmp_path / "out.jsonl", requests=requests):
        model = tmp_path / "models" / pruned_model.name
        return Batch(host, requests, output, ("-m", str(model), *joined.flags, *flags))

    return start_batch


def kill_workers(joined, batch):
    """Kill workers at 20 random times."""
    chance = random.Random(1)
    killed = 0
    while killed < 20:
        time.sleep(chance.uniform(0.2, 2.0))
        assert batch.process.poll() is None, batch.errors
        killed += chance.choice(joined.nodes).kill("^ray::WorkerActor")


def power_off(joined, _batch):
    joined.nodes[0].end()


def kill_raylet(joined, _batch):
    assert joined.nodes[1].kill("raylet/raylet")


def unplug_for(seconds):
    def unplug(joined, _batch):
        joined.nodes[2].unplug()
        time.sleep(seconds)
        joined.nodes[2].plug_in()

    return unplug


FAULTS = {
    "nothing": lambda *_: None,
    "workers are killed at 20 times": kill_workers,
    "a host loses its power": power_off,
    "a raylet is killed": kill_raylet,
    "a cable is out for 3 s": unplug_for(3),
    "a cable is out for 60 s": unplug_for(60),
}


@pytest.mark.parametrize("happens", FAULTS.values(), ids=FAULTS)
def test_the_results_are_those_of_one_machine(joined, start, expected, tmp_path, happens):
    batch = start()
    batch.wait_for(10)
    happens(joined, batch)
    assert batch.ended() == 0, batch.errors
    assert results(tmp_path / "out.jsonl") == expected
    print(batch.errors)


def test_a_killed_driver_is_resumed(joined, start, expected, tmp_path):
    for count in (20, 120, 200):
        batch = start("--resume")
        batch.wait_for(count)
        joined.head.kill("logitsmith.cli batch")
        batch.process.wait(_PATIENCE_SECONDS)
    assert start("--resume").ended() == 0
    assert results(tmp_path / "out.jsonl") == expected


def test_without_its_head_the_driver_ends_and_one_machine_resumes(
    joined, start, expected, requests, tmp_path, pruned_model
):
    driver, output = joined.nodes[0], tmp_path / "out.jsonl"
    driver.copy(pruned_model, tmp_path / "models" / pruned_model.name)
    batch = start(host=driver)
    batch.wait_for(20)
    joined.head.end()
    assert batch.ended() == 1
    assert "the head of the cluster cannot be reached; all results so far are kept" in batch.errors
    command = (*GEN, "batch", str(requests), "-o", str(output), *FLAGS, "-m", str(pruned_model), "--resume")
    subprocess.run(command, check=True, capture_output=True)
    assert results(output) == expected


def test_a_full_disk_of_the_driver_is_resumed(joined, start, expected, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    joined.head.run("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk))
    batch = start(output=disk / "out.jsonl")
    assert batch.ended() == 1
    assert "No space left on device" in batch.errors
    assert "--resume continues after them" in batch.errors
    joined.head.run("mount", "-o", "remount,size=10m", str(disk))
    assert start("--resume", output=disk / "out.jsonl").ended() == 0
    (tmp_path / "out.jsonl").write_text(joined.head.run("cat", str(disk / "out.jsonl")).stdout)
    assert results(tmp_path / "out.jsonl") == expected


def test_a_request_that_crashes_its_worker_is_found(ray, tmp_path, pruned_model, requests, expected):
    lines = requests.read_text().splitlines(keepends=True)
    poisoned = {**json.loads(lines[POISONED]), "chain": "poison"}
    lines[POISONED] = json.dumps(poisoned) + "\n"
    (tmp_path / "in.jsonl").write_text("".join(lines))
    path = os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH")]))
    with cluster(tmp_path, pruned_model, PYTHONPATH=path) as joined:
        flags = ("-m", str(tmp_path / "models" / pruned_model.name), *joined.flags)
        batch = Batch(joined.head, tmp_path / "in.jsonl", tmp_path / "out.jsonl", flags)
        assert batch.ended() == 1
    found = results(tmp_path / "out.jsonl")
    failure = found.pop(f"r{POISONED}")
    assert failure["error"]["code"] == "worker_died"
    assert found == {name: result for name, result in expected.items() if name != f"r{POISONED}"}
