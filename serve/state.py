"""The state that all routes share, and the reading of requests."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from json import JSONDecodeError
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.cache import LimitedCache
from ..common.strict_json import encode_json, parse_strict_json, placed_json_problem
from ..common.strict_model import Json, StrictModel
from ..engine.model import Model
from ..grammars.compile_guard import CompileGuard
from ..requests.asked import preset_of_model
from ..requests.fields import MessageFields, PromptFields, fields_without_place, read_body
from ..requests.resolve import RequestDefaults
from ..requests.unknown_fields import limited
from ..samplers.kernels import Floats
from .answers import PreparedFormat, answer, until_client_leaves
from .engine_thread import EngineThread
from .errors import (
    InvalidRequestError,
    RequestError,
    TimedOutError,
    TooLargeError,
    UnavailableError,
    client_message,
)
from .limits import MAX_JSON_VALUES, brings_program, check_fields
from .metrics import Metrics
from .request_log import RequestLog, record_of
from .requested_names import check_preset_of_model
from .resolution import SETTING_ERRORS, RequestMaker
from .security import Access
from .story_folder import StoryFolder
from .tracked_answers import AnswerTracker

# The beginning of the paths that only this server has.
OWN_PATHS = "/gen/"
_SECONDS_TO_PREPARE = 60.0
_SECONDS_TO_WRITE_LOG = 1.0
# Longer bodies are parsed in another thread, so that other requests do not wait.
_MAX_BYTES_PARSED_AT_ONCE = 100_000
_MAX_BYTES_OF_ROWS = 32_000_000

_Fields = TypeVar("_Fields", bound=StrictModel)
_Result = TypeVar("_Result")


_BYTES_PER_PROMPT_TOKEN = 36  # a slot of a tuple, and an integer


def _size_of_row(prompt: tuple[int, ...], row: Floats) -> int:
    return row.nbytes + _BYTES_PER_PROMPT_TOKEN * len(prompt)


@dataclass
class ServerState:
    """The state that all routes share."""

    engine: EngineThread
    defaults: RequestDefaults
    # Gets sentences for the person who runs the server.
    note: Callable[[str], object]
    # The model; None while it is being loaded.
    model: Model | None = None
    # When the model was loaded, seconds since 1970.
    loaded_at: int = 0
    # Makes requests for the model; None while it is being loaded.
    maker: RequestMaker | None = None
    # Whether a prompt may reuse generated tokens if the request does not say so; None: no prompt ever may.
    reuses_answers: bool | None = False
    # Whether unknown fields are errors on all routes.
    has_strict_fields: bool = False
    # Whether the server takes no more requests.
    is_stopping: bool = False
    # The answers that other requests can find by a key.
    answers: AnswerTracker = field(default_factory=AnswerTracker)
    # The logits after recent prompts, float32 (V,). Another chain for the same prompt needs no decode.
    rows: LimitedCache[tuple[int, ...], Floats] = field(
        default_factory=lambda: LimitedCache(_MAX_BYTES_OF_ROWS, _size_of_row)
    )
    access: Access = field(default_factory=Access)
    # The folder of the page's stories; None: they stay in the browser.
    stories: StoryFolder | None = None
    log: RequestLog = field(default_factory=RequestLog)
    metrics: Metrics = field(init=False)
    # Threads in which requests are prepared.
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="requests")
    )
    # Threads for requests with a grammar or a template, which may take longer.
    program_workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="programs")
    )

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.engine)

    def set_model(self, model: Model) -> None:
        """Take requests from now on."""
        guard = CompileGuard(model.vocabulary, unavailable=UnavailableError)
        self.maker = RequestMaker(self.defaults, model, self.note, guard, self.reuses_answers)
        self.loaded_at = int(time.time())
        self.model = model

    def loaded(self) -> tuple[Model, RequestMaker]:
        """Return the model and its maker of requests. Raises ``UnavailableError`` while the model is loaded."""
        if self.model is None or self.maker is None:
            raise UnavailableError("the model is being loaded; try again soon")
        if self.is_stopping:
            raise UnavailableError("the server is stopping")
        return self.model, self.maker

    async def run(self, work: Callable[[], _Result], *, is_program: bool = False) -> _Result:
        """Return the result of a function that takes long, in another thread."""
        # ``is_program``: whether it compiles a grammar or runs a template. Raises ``InvalidRequestError`` for a
        # setting that cannot be used.
        workers = self.program_workers if is_program else self.workers
        try:
            return await asyncio.get_running_loop().run_in_executor(workers, work)
        except SETTING_ERRORS as error:
            raise InvalidRequestError(client_message(error)) from None

    async def prepare(
        self, request: Request, fields: PromptFields | MessageFields, work: Callable[[], _Result]
    ) -> _Result:
        """Return the result of a function that prepares the texts of a request, in another thread."""
        # Raises as `run_in_time` does.
        self.loaded()
        self.log_prompts(request, fields.logged)
        check_fields(fields)
        return await self.run_in_time(request, work, is_program=brings_program(fields))

    def log_prompts(self, request: Request, prompts: Callable[[], Sequence[Any]]) -> None:
        """Add the prompts of a request to its line of the log, if prompts are logged."""
        if self.log.has_prompts:
            record_of(request.scope).prompts = prompts()

    async def run_in_time(self, request: Request, work: Callable[[], _Result], *, is_program: bool) -> _Result:
        """Return the result of a function that prepares a request, see `run`."""
        # Raises ``RequestError``, and ``ClientLeftError`` if the client leaves.
        try:
            async with asyncio.timeout(_SECONDS_TO_PREPARE):
                return await until_client_leaves(request.receive, self.run(work, is_program=is_program))
        except TimeoutError:
            raise TimedOutError(
                f"the request could not be prepared within {_SECONDS_TO_PREPARE:.0f} s; try again later"
            ) from None

    def is_strict(self, request: Request) -> bool:
        """Return whether unknown fields are errors. On our own routes they always are."""
        return self.has_strict_fields or request.url.path.startswith(OWN_PATHS)

    def check_queue(self) -> None:
        """Raise ``UnavailableError`` if no request can wait for a slot, before the request is prepared."""
        if self.engine.is_full:
            raise UnavailableError("too many requests are waiting; try again later")

    def close(self) -> None:
        for workers in (self.workers, self.program_workers):
            workers.shutdown(wait=False, cancel_futures=True)
        if self.maker is not None:
            self.maker.guard.close()
        self.log.flush(_SECONDS_TO_WRITE_LOG)


# The media types of answers.
JSON = "application/json"
YAML = "application/yaml"
HTML = "text/html"
TEXT = "text/plain"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
FILE = "application/octet-stream"

Handler = Callable[[Request, ServerState], Awaitable[Response]]


class RouteSpec(NamedTuple):
    """A path of the server."""

    # The path in Starlette's notation, in which `{name:path}` is a parameter that may contain slashes.
    path: str
    handler: Handler
    method: str = "POST"
    # The fields of the body, for the page of the API.
    body: type[StrictModel] | None = None
    media_types: Sequence[str] = (JSON,)
    # The keys that every answer has, if the answer is a JSON object.
    keys: Sequence[str] = ()
    # Whether the body has lines, each a JSON object.
    takes_lines: bool = False
    # Errors that routes of this kind do not always have.
    errors: Sequence[type[RequestError]] = ()
    # Whether the body is a file.
    takes_file: bool = False

    @property
    def documented_path(self) -> str:
        """The path in OpenAPI's notation, in which each parameter is ``{name}``."""
        return self.path.replace(":path}", "}")


async def read_parts(request: Request, max_bytes: int) -> list[bytes]:
    """Return the parts of a request's body. Raises ``TooLargeError``."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > max_bytes:  # before the body is read
        raise TooLargeError(f"the body has {int(length):,} bytes; the limit is {max_bytes:,}")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise TooLargeError(f"the body has more than {max_bytes:,} bytes")
        parts.append(part)
    return parts


async def read_json(request: Request, state: ServerState) -> object:
    """Return the JSON of a request's body."""
    # Raises ``InvalidRequestError``, ``TooLargeError``, and ``ModelNotFoundError`` for a preset in the name of the
    # model that the server does not have.
    body = b"".join(await read_parts(request, state.access.max_body_bytes))
    if body.count(b",") > MAX_JSON_VALUES:
        raise InvalidRequestError(f"the body has more than {MAX_JSON_VALUES:,} values")
    try:
        if len(body) < _MAX_BYTES_PARSED_AT_ONCE:
            value = _parse(body)
        else:
            value = await state.run(lambda: _parse(body))
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: byte {error.start} is not UTF-8") from None
    except JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {placed_json_problem(error)}") from None
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    requested_model = value.get("model") if isinstance(value, dict) else None
    if state.model is None or not isinstance(requested_model, str):
        return value
    preset = preset_of_model(requested_model, state.model.name)
    if preset is not None:
        await state.run(partial(check_preset_of_model, preset))
    return value


# An escape such as \ud83d, which is half of a character.
_SURROGATE = re.compile(rb"\\ud[89a-f]", re.IGNORECASE)


def _parse(body: bytes) -> object:
    """Return the value of a body. Half of a surrogate pair is an error, because no answer could repeat it."""
    value = parse_strict_json(body.decode())
    if _SURROGATE.search(body):
        try:
            encode_json(value).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is not UTF-8") from None
    return value


async def generate(
    request: Request,
    state: ServerState,
    fields_type: type[PromptFields] | type[MessageFields],
    format_type: type[PreparedFormat],
) -> Response:
    """Answer a request for text."""
    # Raises ``RequestError``, and ``ClientLeftError`` if the client leaves first.
    _, maker = state.loaded()
    state.check_queue()
    fields, ignored = await read_fields(request, state, fields_type)
    unused = fields_without_place(
        fields,
        format_type.without_place,
        has_both_sources=True,
        has_usage=True,
        has_running_usage=format_type.has_running_usage,
    )
    ignored += unused
    fields = fields.without(unused)
    prepared = await state.prepare(request, fields, lambda: maker.make(fields, ignored))
    return await answer(request, state.engine, prepared, format_type(prepared))


async def read_fields(
    request: Request, state: ServerState, fields_type: type[_Fields]
) -> tuple[_Fields, list[str]]:
    """Return the fields of a request, and the paths of those without effect. Raises ``RequestError``."""
    return read_body(fields_type, await read_json(request, state), is_strict=state.is_strict(request))


def json_answer(request: Request, body: Json, ignored: list[str]) -> JSONResponse:
    """Return an answer that is not a text. It has ``x_gen`` only if fields of the request are ignored."""
    ignored_names = limited(ignored)
    record_of(request.scope).ignored = ignored_names
    if ignored_names:
        body = body | {"x_gen": {"ignored": ignored_names}}
    return JSONResponse(body)
