"""OpenAI's route `/v1/responses`, for text."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from ..common.strict_model import Json
from ..logprobs.events import Event
from ..logprobs.openai import server_sent
from ..logprobs.responses import RESPONSE_SHAPE, ResponseAnswer
from ..requests.response_fields import ResponseFields
from .answers import PreparedFormat
from .resolution import PreparedRequest
from .state import EVENTS, JSON, RouteSpec, ServerState, generate


class ResponseFormat(PreparedFormat):
    """A response, whole or as events."""

    without_place = ("echo", "prompt_logprobs", "return_tokens")

    def __init__(self, prepared: PreparedRequest) -> None:
        shape = RESPONSE_SHAPE._replace(
            has_all_requested=True,
            writes_token_ids=bool(prepared.fields.return_tokens_as_token_ids),
            top_count=prepared.asked.top_logprob_count,
        )
        self._answer = ResponseAnswer(secrets.token_hex(12), prepared.asked.repeated_fields or {}, shape=shape)
        self._maker = self._answer.chunk_maker()

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the response."""
        (run,) = runs
        return self._answer.whole(self._answer.chunks(run)) | {"x_gen": facts}

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the events of the stream. ``index``: always 0."""
        for chunk in self._maker.push(event):
            for data in self._answer.stream(chunk, {"x_gen": facts}):
                yield server_sent(data, data["type"])

    def failure(self, error: Json) -> str:
        """Return the event of an error."""
        data = self._answer.failure(error)
        return server_sent(data, data["type"])


async def responses(request: Request, state: ServerState) -> Response:
    """Answer `/v1/responses`."""
    return await generate(request, state, ResponseFields, ResponseFormat)


_KEYS = ("id", "object", "created_at", "status", "model", "output", "usage", "x_gen")

ROUTES = (
    RouteSpec("/v1/responses", responses, "POST", ResponseFields, (JSON, EVENTS), _KEYS),
    RouteSpec("/responses", responses, "POST", ResponseFields, (JSON, EVENTS), _KEYS),
)
