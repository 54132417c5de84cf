"""The errors that a client gets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from ..common.errors import LogitsmithError, Word
from ..models.errors import ModelError


class RequestError(Exception):
    """A request that is not answered."""

    status = 400
    # The kind of the error, as OpenAI names it.
    kind = "invalid_request_error"
    # A word for programs.
    code: str | None = None
    # Seconds after which the client may try again; None: the same request fails again.
    retry_after: int | None = None

    def __init_subclass__(cls, **facts: int | str) -> None:
        """Set attributes of a kind of error, which its definition gives as keywords."""
        for name, value in facts.items():
            setattr(cls, name, value)

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        # The field at fault.
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


# What a client can write for each `Word` that the advice of an error may name.
_WORDS: Mapping[str, str] = {
    Word.SCHEMA_LENIENT: '"x-guidance": {"lenient": true} in the schema',
    Word.CHAIN: "chain",
    Word.SET: "set",
}


_FOLDERS = re.compile(r"(?<![\w.…/:#~])/(?:[^\s/:;,'\"][^/:;,'\"\n]*/)+(?=[^\s/])")  # those of an absolute path


def client_message(error: Exception) -> str:
    """Return the message of an error for a client: what the client can do, without the folders of this machine."""
    # The problem of another error than one about a model quotes the client's own text, which stays.
    if not isinstance(error, LogitsmithError) or isinstance(error, ModelError):
        message = error.sentence(_WORDS) if isinstance(error, LogitsmithError) else str(error)
        return _FOLDERS.sub("…/", message)
    return error.at(_FOLDERS.sub("…/", error.origin), error.place).sentence(_WORDS)


class ContextLengthError(InvalidRequestError, code="context_length_exceeded"):
    """A prompt that does not fit into the context.

    Clients shorten it by the numbers, which llama-server has, too.
    """

    def __init__(self, message: str, param: str, prompt_tokens: int | None, context_tokens: int) -> None:
        super().__init__(message, param)
        self._counts = {"n_prompt_tokens": prompt_tokens, "n_ctx": context_tokens}

    def as_json(self) -> dict[str, Any]:
        """Return the body of the answer, with OpenAI's code and llama-server's numbers."""
        return {"error": super().as_json()["error"] | self._counts}


class ModelNotFoundError(RequestError, status=404, code="model_not_found"):
    """A model that the server does not have."""


class UnauthorizedError(RequestError, status=401, kind="authentication_error", code="invalid_api_key"):
    """A request without the server's key."""


class ForbiddenError(RequestError, status=403, kind="permission_error"):
    """A request of a page or for a host that the server does not know."""


class NotFoundError(RequestError, status=404, code="not_found"):
    """A path that the server does not have."""


class MethodError(RequestError, status=405, code="method_not_allowed"):
    """A method that a path does not have."""


class TooLargeError(RequestError, status=413, code="request_too_large"):
    """A body that is too large."""


class HeadersTooLargeError(RequestError, status=431, code="headers_too_large"):
    """A request whose headers are too large."""


class UnavailableError(RequestError, status=503, kind="server_error", code="unavailable", retry_after=1):
    """A server that loads its model, stops, or has too many requests."""


class RequestTimeoutError(RequestError, status=408, code="request_timeout"):
    """A request that the client sends too slowly."""


class TimedOutError(RequestError, status=503, kind="server_error", code="timeout"):
    """A request that took longer than the server allows."""


class EngineError(RequestError, status=500, kind="server_error"):
    """A fault of the server."""


class FaultError(EngineError, code="internal_error"):
    """An unexpected exception. Its text is only for the person who runs the server, who finds it by its id."""

    def __init__(self, record_id: str) -> None:
        super().__init__(f"the server failed; its messages have the reason, at request {record_id}")
