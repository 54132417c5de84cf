"""The HTTP server, in a separate thread: the main thread handles signals and loads the model."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import uvicorn

from ..common.errors import UsageError
from .app import make_app
from .http_protocol import LimitedProtocol
from .state import ServerState

_BACKLOG = 1024
# Time for idle connections to be closed, once no request runs any more.
_SECONDS_TO_CLOSE = 5
# Long, so that a client closes an idle connection first. Otherwise its next request may meet a closed connection.
_SECONDS_KEPT_ALIVE = 75
_POLL_SECONDS = 0.05
_Result = TypeVar("_Result")


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises ``UsageError`` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind((host, port))
        server_socket.listen(_BACKLOG)
    except OSError as error:
        server_socket.close()
        reason = error.strerror or str(error)
        wrong_flag = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise UsageError(f"--host {host} --port {port}: {reason}; choose another {wrong_flag}") from None
    return server_socket


class HttpServer:
    """A server of the application on a listening socket, which runs until it is stopped."""

    def __init__(self, state: ServerState, server_socket: socket.socket) -> None:
        self._app = make_app(state)
        config = uvicorn.Config(
            self._app,
            http=LimitedProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=_SECONDS_KEPT_ALIVE,
            timeout_graceful_shutdown=_SECONDS_TO_CLOSE,
            h11_max_incomplete_event_size=65_536,
        )
        # uvicorn warns of each malformed request. The client gets the error, and the log would grow without limit.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        self._state = state
        self._socket = server_socket
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        # The error that ended the thread.
        self.failure: RuntimeError | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> asyncio.AbstractEventLoop:
        """Serve from now on; return the event loop."""
        self._thread.start()
        return self._loop.result()

    def _run(self) -> None:
        async def serve() -> None:
            self._loop.set_result(asyncio.get_running_loop())
            await self._server.serve(sockets=[self._socket])

        try:
            asyncio.run(serve())
        except BaseException as error:  # uvicorn calls sys.exit, too
            if self._server.should_exit:
                raise
            self.failure = RuntimeError("the HTTP server has ended")
            self.failure.__cause__ = error

    def finish_requests(self, max_seconds: float) -> None:
        """Take no more connections and requests, and wait until the running requests have ended."""
        # After ``max_seconds``, an error ends the requests that still run.
        self._state.is_stopping = True
        self._call(self._stop_listening)
        self._wait_until_idle(max_seconds)
        self._call(self._state.engine.end_requests)
        self._wait_until_idle(_SECONDS_TO_CLOSE)

    def _wait_until_idle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._app.open_count and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def _stop_listening(self) -> None:
        for server in self._server.servers:
            server.close()

    def _call(self, work: Callable[[], _Result]) -> _Result:
        async def call() -> _Result:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop.result()).result()

    def stop(self) -> None:
        """Close all connections, and wait for the end of the thread."""
        self._server.should_exit = True
        self._thread.join(_SECONDS_TO_CLOSE + 1)
        self._socket.close()  # uvicorn does so only if the thread ended gracefully
