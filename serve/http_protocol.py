"""One connection of a client, with limits of time.

uvicorn closes a connection that is idle after a response. But it waits without limit for the rest of a request,
and for a client that does not read a response. The protocol here disconnects such clients. Its limits are long
enough for slow networks.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import (
    HeadersTooLargeError,
    InvalidRequestError,
    RequestError,
    RequestTimeoutError,
    UnavailableError,
)
from .security import MAX_HEADER_BYTES

MAX_CONNECTIONS = 512
# Time for the headers and the body of a request. A long body gets a second more for each 8,192 bytes.
SECONDS_FOR_REQUEST = 20.0
MIN_BYTES_PER_SECOND = 8_192
# A client must read 16,384 bytes of a response per minute, or else all that is left.
SECONDS_WITHOUT_READING = 60.0
_MIN_BYTES_READ = 16_384
# Maximum number of bytes that are read of a body although the request is already answered. Many clients read the
# response only after they have sent their body.
_MAX_DISCARDED_BYTES = 64_000_000
_MAX_PIPELINED_BYTES = 65_536


class LimitedProtocol(H11Protocol):
    """A connection that ends if its client sends or reads too slowly."""

    _receiving: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _began = 0.0
    _received_bytes = 0
    _unsent_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        # A transport without a buffer never waits, when it is closed, for a client that does not read.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > MAX_CONNECTIONS:
            self._reject(UnavailableError("too many connections are open; try again later"))
            return
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        for timer in (self._receiving, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request."""
        self._received_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        is_received = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        if is_received and self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None
        elif not is_received and self._receiving is None:
            self._wait_for_request()
        is_answered = self.conn.our_state not in (h11.SEND_RESPONSE, h11.SEND_BODY)
        is_sending_body = self.conn.their_state is h11.SEND_BODY
        if is_answered and is_sending_body and self._received_bytes > _MAX_DISCARDED_BYTES:
            self.transport.abort()
        # A paused transport does not notice that the client has left.
        if is_received and len(self.conn.trailing_data[0]) <= _MAX_PIPELINED_BYTES:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not a request, in the format of all errors."""
        h11_error = sys.exception()  # uvicorn calls this method while it handles the error
        status = getattr(h11_error, "error_status_hint", HTTPStatus.BAD_REQUEST)
        if status == HeadersTooLargeError.status:
            self._reject(HeadersTooLargeError(f"the headers have more than {MAX_HEADER_BYTES:,} bytes"))
            return
        self._reject(InvalidRequestError(f"this is not a request of HTTP: {msg}"))

    def pause_writing(self) -> None:
        """Limit the time in which the client must read."""
        super().pause_writing()
        self._limit_writing()

    def resume_writing(self) -> None:
        """End the limit: the client has read all bytes."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _wait_for_request(self) -> None:
        self._began = self.loop.time()
        self._received_bytes = 0
        self._receiving = self.loop.call_later(SECONDS_FOR_REQUEST, self._check_request)

    def _check_request(self) -> None:
        allowed_seconds = SECONDS_FOR_REQUEST + self._received_bytes / MIN_BYTES_PER_SECOND
        remaining_seconds = self._began + allowed_seconds - self.loop.time()
        if remaining_seconds > 0:
            self._receiving = self.loop.call_later(remaining_seconds, self._check_request)
            return
        self._receiving = None
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.close()  # the client has not begun a request
        else:
            self._reject(RequestTimeoutError("the request arrives too slowly"))

    def _limit_writing(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(SECONDS_WITHOUT_READING, self._check_writing)

    def _check_writing(self) -> None:
        read_bytes = self._unsent_bytes - self.transport.get_write_buffer_size()
        if read_bytes < _MIN_BYTES_READ:
            self.transport.abort()
        else:
            self._limit_writing()

    def _reject(self, error: RequestError) -> None:
        """Send an error, if no response has begun, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = error.response()
            lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}", "connection: close"]
            lines += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
            head = "\r\n".join(lines) + "\r\n\r\n"
            self.transport.write(head.encode("latin-1") + bytes(response.body))
        self.transport.close()
