"""A cluster of Ray's: joined by its address, or started here for as long as the run takes."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from .tasks import ClusterError

_HEAD_PORT = 6379
"""Where `ray start --head` listens."""
_SETTINGS_FRAME = 4
"""The number of this kind of frame, RFC 9113."""
_CHECK_SECONDS, _CONNECT_SECONDS, _MAX_FAILED_CHECKS = 2.0, 3.0, 4
"""How often the head is looked at, how long it may take to answer, and after how many failures it is gone."""
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Ray reports nothing to anybody, and prints nothing on stdout, where results may go."""

_SHORT_FOLDER = Path("/tmp")  # noqa: S108 - for a folder that only this user enters
"""Ray's sockets need a short path."""

_AUTH_MODE = "RAY_AUTH_MODE"
"""The variable without which Ray sends no token to an address that somebody typed."""


class HeadMonitor:
    """Looks at the head of a cluster in a thread. Ray itself ends the process, without a word, when it is gone.

    Args:
        address: the head's, as HOST:PORT.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self._unreachable, self._closed = Event(), Event()
        Thread(target=self._watch, daemon=True).start()

    @property
    def is_unreachable(self) -> bool:
        """True once the head did not answer several times in a row."""
        return self._unreachable.is_set()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _watch(self) -> None:
        failures = 0
        while not self._closed.wait(_CHECK_SECONDS):
            failures = 0 if self._answers() else failures + 1
            if failures >= _MAX_FAILED_CHECKS:
                self._unreachable.set()
                return

    def _answers(self) -> bool:
        try:
            with closing(socket.create_connection(self._place, _CONNECT_SECONDS)):
                return True
        except OSError:
            return False


@contextmanager
def connect(address: str | None) -> Iterator[HeadMonitor]:
    """Join the cluster at HOST[:PORT], or start one on this machine; leave it or end it behind the block.

    Raises ``ClusterError``.
    """
    ray = import_ray()
    place = None if address is None else address if ":" in address else f"{address}:{_HEAD_PORT}"
    if place is not None:
        _check_reachable(place)
    with _session_folder() if place is None else nullcontext() as folder:
        _join(ray, place, folder)
        head_monitor = HeadMonitor(ray.get_runtime_context().gcs_address)
        try:
            yield head_monitor
        finally:
            head_monitor.close()
            if not head_monitor.is_unreachable:  # else it waits for the head
                with suppress(Exception):
                    ray.shutdown()


@contextmanager
def _session_folder() -> Iterator[str]:
    """Yield a folder for the files of a Ray on this machine; they are removed behind the block."""
    folder = tempfile.mkdtemp(prefix="gen-ray-", dir=_SHORT_FOLDER if _SHORT_FOLDER.is_dir() else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _join(ray: Any, place: str | None, folder: str | None) -> None:
    """Join the cluster at a place, or start one with its files in a folder. Raises ``ClusterError``."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(
            address=place or "local",
            include_dashboard=None if place else False,
            logging_level=logging.CRITICAL,
            log_to_driver=False,
            _temp_dir=folder,
        )
    except Exception as error:
        raise ClusterError(_connection_failure_message(error, place)) from None
    except SystemExit:  # Ray's own handler of SIGTERM
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        for number, handler in handlers.items():  # Ray puts in its own
            signal.signal(number, handler)


def import_ray() -> Any:
    """Return the module ray. Raises ``ClusterError`` if it is not installed."""
    os.environ.update({name: value for name, value in _QUIET_ENVIRONMENT.items() if name not in os.environ})
    try:
        import ray  # noqa: PLC0415 - a large package, which few runs need
    except ModuleNotFoundError:
        raise ClusterError(
            "--on needs the Python package ray, which is not installed; pip install 'ray>=2.40,<3'"
        ) from None
    return ray


def _check_reachable(place: str) -> None:
    """Raise ``ClusterError`` at once if no head can be there: Ray tries for minutes, and ends the process then."""
    host, _, port = place.rpartition(":")
    try:
        with closing(socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS)) as connection:
            is_head = os.environ.get("RAY_USE_TLS") == "1" or _speaks_http2(connection)
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterError(
            f"no head of a Ray cluster answers at {place} ({reason}); start one there: ray start --head"
        ) from None
    if not is_head:
        raise ClusterError(f"what answers at {place} is no head of a Ray cluster; its port is 6379 by default")


def _speaks_http2(connection: socket.socket) -> bool:
    """True for a server of gRPC, as Ray's head is: it answers HTTP/2's greeting with a frame of settings."""
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + bytes([_SETTINGS_FRAME]) + bytes(5))
    answer = b""
    while len(answer) < 4 and (data := connection.recv(4 - len(answer))):
        answer += data
    return answer[3:] == bytes([_SETTINGS_FRAME])


def _connection_failure_message(error: Exception, place: str | None) -> str:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        return f"{place}: the cluster runs another version of Ray or Python: {text}"
    if place is None:
        return f"Ray cannot be started on this machine: {text}"
    hint = "; a head that asks for a token needs RAY_AUTH_MODE=token and its file ~/.ray/auth_token here"
    return f"the Ray cluster at {place} cannot be joined: {text}" + ("" if _AUTH_MODE in os.environ else hint)
