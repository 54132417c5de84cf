"""Clusters that cannot be joined: the error is one sentence, and is raised immediately."""

import socket
import subprocess
import sys
from threading import Thread

import pytest
from logitsmith.cluster.connection import HeadMonitor, connect
from logitsmith.cluster.tasks import ClusterError


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9", "127.0.0.1:no", "no-such-host.invalid:6379", "127.0.0.1:99999"]
)
def test_no_server_at_the_address(ray, address):
    with pytest.raises(ClusterError, match=f"no head of a Ray cluster answers at {address} .*ray start --head"):
        connect(address).__enter__()


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b""])
def test_another_server_at_the_address(ray, greeting):
    def answer(server):
        connection, _ = server.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(greeting)

    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=answer, args=(server,), daemon=True).start()
        with pytest.raises(ClusterError, match=r"the server at .* is not the head of a Ray cluster"):
            connect(f"127.0.0.1:{server.getsockname()[1]}").__enter__()


def test_without_ray_the_error_names_the_package():
    program = (
        "import sys; sys.modules['ray'] = None\n"
        "from logitsmith.cluster.tasks import ClusterError\nfrom logitsmith.cluster.connection import connect\n"
        "try:\n    connect(None).__enter__()\n"
        "except ClusterError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert "extra ray" in done.stdout
    assert "[ray]" in done.stdout


def test_an_unreachable_head_is_noticed(monkeypatch):
    monkeypatch.setattr("logitsmith.cluster.connection._SECONDS_BETWEEN_CHECKS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        head_monitor = HeadMonitor(f"127.0.0.1:{server.getsockname()[1]}")
        assert not head_monitor._unreachable.wait(0.2)
    assert head_monitor._unreachable.wait(60)
    assert head_monitor.is_unreachable
