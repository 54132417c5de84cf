"""The base class of endpoints that are called over HTTP."""

from __future__ import annotations

import httpx

from ..transport.api_client import ApiClient, HttpOptions
from .base import Endpoint


class HttpEndpoint(Endpoint):
    """An endpoint with an `ApiClient`, which has the time-outs, the retries and the redaction of keys.

    Args:
        url: the API's address.
        options: how the API is called.
        transport: replaces httpx's own, for tests.
    """

    def __init__(self, url: str, options: HttpOptions, transport: httpx.BaseTransport | None = None) -> None:
        self._http = ApiClient(url, options, transport)

    def allow_retries(self) -> None:
        """Try failed requests again."""
        self._http.allow_retries()

    def stop_retries(self) -> None:
        """Fail at once from now on."""
        self._http.stop_retries()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
