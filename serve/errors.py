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
    # OpenAI's type of the error.
    kind = "invalid_request_error"
    # OpenAI's code of the error, by which programs can distinguish it.
    code: str | None = None
    # Seconds after which the client may try again; None: a new try would fail, too.
    retry_after: int | None = None

    def __init_subclass__(cls, **facts: int | str) -> None:
        """Set the class attributes that a subclass gives as keywords, such as ``status=404``."""
        for name, value in facts.items():
            setattr(cls, name, value)

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        # The field that is wrong; None: no single field is.
        self.param = param

    def as_json(self) -> dict[str, Any]:
        """Return the body of the answer, in OpenAI's format."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    def response(self, *, has_detail: bool = False) -> JSONResponse:
        """Return the answer. ``has_detail``: True to repeat the message where KoboldAI's clients read it."""
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        body = self.as_json()
        if has_detail:
            body["detail"] = {"msg": str(self), "type": self.kind}
        return JSONResponse(body, self.status, headers)


class InvalidRequestError(RequestError):
    """A body that cannot be used."""


# What a client can write for each `Word` that the advice of an error may name.
_WORDS: Mapping[str, str] = {
    Word.SCHEMA_LENIENT: '"x-guidance": {"lenient": true} in the schema',
    Word.CHAIN: "chain",
    Word.SET: "set",
}


# The folders of an absolute path, such as "/home/me/" of "/home/me/model.gguf".
_FOLDERS = re.compile(
    r"""
    (?<![\w.…/:#~])/  # the beginning of a path, not a slash inside a word, a relative path or an address
    (?:[^\s/:;,'"][^/:;,'"\n]*/)+  # names of folders, which may have spaces inside
    (?=[^\s/])  # the name of the file
    """,
    re.VERBOSE,
)


def client_message(error: Exception) -> str:
    """Return the message of an error for a client: what the client can do, without the folders of this machine."""
    if not isinstance(error, LogitsmithError):
        return _FOLDERS.sub("…/", str(error))
    if isinstance(error, ModelError):
        return _FOLDERS.sub("…/", error.sentence(_WORDS))
    # Other errors quote the client's own text, which stays as it is. Only their origin can be a file.
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


class ConflictError(RequestError, status=409, code="conflict"):
    """A change of something that has changed since it was read."""


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
