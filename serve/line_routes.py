"""The routes of jsonl below `/gen/`: the lines of `gen run --format jsonl`, and their report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ..common.strict_json import json_line
from ..common.strict_model import Json
from ..logprobs.events import Event, Reading, Start
from ..logprobs.jsonl import RunLines
from ..logprobs.recorded import StreamError, read_stream
from ..logprobs.report import page as report_page
from ..logprobs.report.run_data import RunReader
from ..requests.fields import TokenPromptFields
from .answers import PreparedFormat
from .errors import InvalidRequestError
from .resolution import PreparedRequest
from .state import HTML, JSON, LINES, RouteSpec, ServerState, generate, read_parts
from .x_gen import command_of


class LinesFormat(PreparedFormat):
    """The lines of `gen --format jsonl`."""

    media_type = LINES
    without_place = ("return_tokens_as_token_ids",)
    tells_rewinds = True

    def __init__(self, prepared: PreparedRequest) -> None:
        self._choice = prepared.choices[0]
        self._lines = RunLines()
        fields = prepared.fields
        self.tells_reading = isinstance(fields, LineFields) and bool(fields.return_progress)
        if len(prepared.choices) > 1:
            raise InvalidRequestError("the lines are those of one text; leave n out, and send one prompt", "n")

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the lines as a list."""
        lines: list[Json] = []
        for event in runs[0]:
            lines += self._push(event, facts)
        return {"lines": lines}

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the lines that are complete after an event. ``index``: always 0."""
        return map(json_line, self._push(event, facts))

    def reading(self, event: Reading) -> Iterable[str]:
        """Yield a line before the first one."""
        yield json_line(self._lines.reading(event))

    def _push(self, event: Event, facts: Json | None) -> Iterable[Json]:
        if isinstance(event, Start):
            return [self._lines.start(event, self._choice.prompt, command_of(self._choice, event))]
        more_facts = None if facts is None else {"x_gen": facts}
        return self._lines.push(event, more_facts)

    def failure(self, error: Json) -> str:
        """Return the line that tells an error."""
        return json_line({"event": "error", **error})


class LineFields(TokenPromptFields):
    """The fields of `/gen/generate`, whose answer is a stream unless ``stream`` is false.

    ``return_progress``: whether lines before the first one tell how far the prompt is read.
    """

    stream: bool | None = True
    return_progress: bool | None = None
    every_stream_tells_confidence: ClassVar[bool] = True


async def generate_lines(request: Request, state: ServerState) -> Response:
    """Continue a prompt, as the lines of `gen run --format jsonl`."""
    return await generate(request, state, LineFields, LinesFormat)


async def report(request: Request, state: ServerState) -> Response:
    """Return the HTML report of the lines of `gen run --format jsonl`, as `gen inspect --html` writes it."""
    parts = await read_parts(request, state.access.max_lines_bytes)
    try:
        html = await state.run(lambda: _report(parts))
    except StreamError as error:
        raise InvalidRequestError(str(error)) from None
    return HTMLResponse(html, headers={"content-disposition": 'attachment; filename="report.html"'})


def _report(parts: Sequence[bytes]) -> str:
    # The lines are read one by one, so that the objects of a long text are never all in memory.
    data = RunReader("gen serve", None).read(read_stream(BytesIO(b"".join(parts))))
    if data is None:
        raise InvalidRequestError("the body has no lines")
    return report_page([data])


ROUTES = (
    RouteSpec("/gen/generate", generate_lines, body=LineFields, media_types=(LINES, JSON)),
    RouteSpec("/gen/report", report, takes_lines=True, media_types=(HTML,)),
)
