"""The errors that a client gets."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse


class RequestError(Exception):
    """A request that is not answered.

    Attributes:
        status: the HTTP status.
        kind: the kind of the error, as OpenAI names it.
        code: a word for programs; None for most errors.
        param: the field at fault; None if no field is.
        retry_after: seconds after which the client may try again; None: the same request fails again.
    """

    status = 400
    kind = "invalid_request_error"
    code: str | None = None
    retry_after: int | None = None

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def as_json(self) -> dict[str, Any]:
        """Return the body of the answer, in OpenAI's format."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    def response(self, *, has_detail: bool = False) -> JSONResponse:
        """Return the answer. ``has_detail``: True to repeat the message where KoboldAI's clients read it."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        detail = {"detail": {"msg": str(self), "type": self.kind}} if has_detail else {}
        return JSONResponse({**self.as_json(), **detail}, self.status, headers)


class InvalidRequestError(RequestError):
    """A body that cannot be used."""


class UnauthorizedError(RequestError):
    """A request without the server's key."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class ForbiddenError(RequestError):
    """A request of a page or for a host that the server does not know."""

    status = 403
    kind = "permission_error"


class NotFoundError(RequestError):
    """A path that the server does not have."""

    status = 404
    code = "not_found"


class MethodError(RequestError):
    """A method that a path does not have."""

    status = 405
    code = "method_not_allowed"


class TooLargeError(RequestError):
    """A body that is too large."""

    status = 413
    code = "request_too_large"


class HeadersTooLargeError(RequestError):
    """A request whose headers are too large."""

    status = 431
    code = "headers_too_large"


class UnavailableError(RequestError):
    """A server that loads its model, stops, or has too many requests."""

    status = 503
    kind = "server_error"
    code = "unavailable"
    retry_after = 1


class RequestTimeoutError(RequestError):
    """A request that the client sends too slowly."""

    status = 408
    code = "request_timeout"


class TimedOutError(RequestError):
    """A request that took longer than the server allows."""

    status = 503
    kind = "server_error"
    code = "timeout"


class EngineError(RequestError):
    """A fault of the server."""

    status = 500
    kind = "server_error"


class FaultError(EngineError):
    """An unexpected exception. Its text is only for the person who runs the server, who finds it by its id."""

    code = "internal_error"

    def __init__(self, record_id: str) -> None:
        super().__init__(f"the server failed; its messages have the reason, at request {record_id}")
