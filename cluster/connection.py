"""Connection to a Ray cluster, which either exists at an address or is started on this machine for one run."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from ..common.extras import install_command
from .tasks import ClusterError

_HEAD_PORT = 6379  # Default port of `ray start --head`

# Parts of HTTP/2, RFC 9113
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS_FRAME_TYPE = bytes([4])
_FRAME_LENGTH_BYTES = 3  # The length of a frame precedes its type

_SECONDS_BETWEEN_CHECKS = 2.0  # time between two checks of the head node
_MAX_CONNECT_SECONDS = 3.0  # maximum time that the head node may take to accept a connection
_MAX_FAILED_CHECKS = 4  # After this many failed checks in a row, the head node counts as unreachable
# With these variables, Ray sends no usage statistics, and prints nothing on stdout, where results may go
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}

# Parent of the folder of Ray's sockets, whose paths must be short
_SOCKETS_PARENT_FOLDER = Path("/tmp")  # noqa: S108 - for a folder that only this user enters

# Environment variable without which Ray sends no token to an address that was typed
_AUTH_MODE_VARIABLE = "RAY_AUTH_MODE"


class HeadMonitor:
    """A thread that checks whether the head node of a cluster, HOST:PORT, can be reached."""

    # Without this check, the process would end without a message: Ray exits when the head node is unreachable.

    def __init__(self, address: str) -> None:
        self._host_and_port = _host_and_port(address)
        self._unreachable = Event()
        self._closed = Event()
        Thread(target=self._watch, daemon=True).start()

    @property
    def is_unreachable(self) -> bool:
        """True after the head node has failed several checks in a row."""
        return self._unreachable.is_set()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        failure_count = 0
        while not self._closed.wait(_SECONDS_BETWEEN_CHECKS):
            if self._accepts_connection():
                failure_count = 0
            else:
                failure_count += 1
            if failure_count >= _MAX_FAILED_CHECKS:
                self._unreachable.set()
                return

    def _accepts_connection(self) -> bool:
        try:
            with closing(socket.create_connection(self._host_and_port, _MAX_CONNECT_SECONDS)):
                return True
        except OSError:
            return False


@contextmanager
def connect(address: str | None) -> Iterator[HeadMonitor]:
    """Connect to a cluster inside the block, and yield the monitor of its head node. Raises ``ClusterError``."""
    # Without an address, a cluster is started on this machine. It ends with the block.
    ray = import_ray()
    if address is None:
        with _session_folder() as folder:
            _init_ray(ray, None, folder)
            with _head_monitor(ray) as monitor:
                yield monitor
        return
    full_address = address if ":" in address else f"{address}:{_HEAD_PORT}"
    _check_reachable(full_address)
    _init_ray(ray, full_address, None)
    with _head_monitor(ray) as monitor:
        yield monitor


@contextmanager
def _head_monitor(ray: Any) -> Iterator[HeadMonitor]:
    """Yield the monitor of the connected cluster's head node, and disconnect from the cluster after the block."""
    monitor = HeadMonitor(ray.get_runtime_context().gcs_address)
    try:
        yield monitor
    finally:
        monitor.close()
        if not monitor.is_unreachable:  # `ray.shutdown` would wait for an unreachable head
            with suppress(Exception):
                ray.shutdown()


@contextmanager
def _session_folder() -> Iterator[str]:
    """Yield a folder for the files of a cluster on this machine, and remove the folder after the block."""
    parent = _SOCKETS_PARENT_FOLDER if _SOCKETS_PARENT_FOLDER.is_dir() else None
    folder = tempfile.mkdtemp(prefix="gen-ray-", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _init_ray(ray: Any, address: str | None, folder: str | None) -> None:
    """Connect Ray to a cluster, or start a cluster with files in ``folder``. Raises ``ClusterError``."""
    signal_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            logging_level=logging.CRITICAL,
            log_to_driver=False,
            _temp_dir=folder,
        )
    except Exception as error:
        raise ClusterError(_connection_failure_message(error, address)) from None
    except SystemExit:  # raised by the SIGTERM handler that Ray installs
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        for signal_number, handler in signal_handlers.items():  # `ray.init` replaces the handlers
            signal.signal(signal_number, handler)


def import_ray() -> Any:
    """Import Ray and return the module. Raises ``ClusterError`` if Ray is not installed."""
    for name, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # noqa: PLC0415 - a large package, which most runs do not need
    except ModuleNotFoundError:
        raise ClusterError(f"--on needs the extra ray, which is not installed: {install_command('ray')}") from None
    return ray


def _check_reachable(address: str) -> None:
    """Raise ``ClusterError`` immediately if no head node listens at HOST:PORT."""
    # Without this check, Ray would retry for minutes and then end the process.
    try:
        with closing(socket.create_connection(_host_and_port(address), _MAX_CONNECT_SECONDS)) as connection:
            is_head = os.environ.get("RAY_USE_TLS") == "1" or _speaks_http2(connection)
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterError(
            f"no head of a Ray cluster answers at {address} ({reason}); start one there: ray start --head"
        ) from None
    if not is_head:
        raise ClusterError(
            f"the server at {address} is not the head of a Ray cluster, whose port is 6379 by default"
        )


def _host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT or [IPv6 address]:PORT. Raises ``ValueError`` if the port is not a number."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _speaks_http2(connection: socket.socket) -> bool:
    """Return whether a server replies to HTTP/2's preface with a SETTINGS frame, as Ray's head (gRPC) does."""
    flags_and_stream = bytes(5)
    empty_settings_frame = bytes(_FRAME_LENGTH_BYTES) + _SETTINGS_FRAME_TYPE + flags_and_stream
    connection.sendall(_HTTP2_PREFACE + empty_settings_frame)
    length_and_type = b""
    while len(length_and_type) <= _FRAME_LENGTH_BYTES:
        data = connection.recv(_FRAME_LENGTH_BYTES + 1 - len(length_and_type))
        if not data:  # the server has closed the connection
            return False
        length_and_type += data
    return length_and_type[_FRAME_LENGTH_BYTES:] == _SETTINGS_FRAME_TYPE


def _connection_failure_message(error: Exception, address: str | None) -> str:
    """Return the message for an error of `ray.init`; ``address``: HOST:PORT of the head node."""
    ray_message = " ".join(str(error).split())
    if "ersion mismatch" in ray_message:  # Ray writes both "Version" and "version"
        return f"{address}: the cluster runs another version of Ray or Python: {ray_message}"
    if address is None:
        return f"Ray cannot be started on this machine: {ray_message}"
    hint = ""
    if _AUTH_MODE_VARIABLE not in os.environ:
        hint = "; a head that requires a token needs RAY_AUTH_MODE=token and its file ~/.ray/auth_token here"
    return f"cannot join the Ray cluster at {address}: {ray_message}{hint}"
