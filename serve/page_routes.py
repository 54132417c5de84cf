"""The page of the server: its files, and the routes that it needs besides those of other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from typing import Any, NamedTuple

import yaml
from pydantic import Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ..common.strict_json import encode_json
from ..jobs.bodies import StrictModel
from ..logprobs.events import Event, Start
from ..logprobs.jsonl import RunLines
from ..logprobs.recorded import StreamError, read_stream
from ..logprobs.report import page as report_page
from ..logprobs.report.run_data import RunReader
from ..logprobs.web import SHARED_FOLDER, read_shared, shared_names
from ..presets.errors import PresetError
from ..presets.overrides import SETTING_NAMES
from ..presets.preset import Preset, load_preset
from ..presets.settings import Settings, resolve_settings
from ..presets.yaml_reader import MAX_FILE_BYTES, check_table, parse_yaml
from ..samplers.building import chain_notation, parse_chain
from ..samplers.errors import SamplingError
from ..samplers.methods.dist import Dist
from .answers import AnswerFormat
from .bodies import PromptFields, read_body
from .errors import InvalidRequestError, NotFoundError
from .resolution import Asked, command_of, find_listed_preset
from .sampler_fields import Json
from .state import HTML, JSON, LINES, RouteSpec, ServerState, generate, read_json, read_parts

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class PageFile(NamedTuple):
    """A file of the page.

    Attributes:
        content: its bytes.
        media_type: the media type.
        tag: changes with the content, so that a browser loads a changed file again.
    """

    content: bytes
    media_type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by name. The table is made once: a request can never name another file."""
    folder = files(__package__) / "page"
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    texts |= {SHARED_FOLDER + name: read_shared(name) for name in shared_names()}
    return {name: _page_file(name, text) for name, text in texts.items()}


def _page_file(name: str, text: str) -> PageFile:
    content = text.encode()
    return PageFile(content, _MEDIA_TYPES[name.rpartition(".")[2]], f'"{sha256(content).hexdigest()[:32]}"')


async def home(request: Request, _: ServerState) -> Response:
    """Return the page."""
    return _file_response(request, page_files()["index.html"])


async def page_file(request: Request, _: ServerState) -> Response:
    """Return a file of the page."""
    return _named_file(request, request.path_params["name"])


async def shared_file(request: Request, _: ServerState) -> Response:
    """Return a file that the page shares with reports."""
    return _named_file(request, SHARED_FOLDER + request.path_params["name"])


def _named_file(request: Request, name: str) -> Response:
    file = page_files().get(name)
    if file is None:
        raise NotFoundError("the page has no file of this name", "name")
    return _file_response(request, file)


def _file_response(request: Request, file: PageFile) -> Response:
    headers = {
        "content-security-policy": _POLICY,
        "cache-control": "no-cache",
        "etag": file.tag,
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


class LinesFormat(AnswerFormat):
    """The lines of `gen --format jsonl`."""

    media_type = LINES
    tells_rewinds = True

    def __init__(self, asked: Asked) -> None:
        self._choice, self._lines = asked.choices[0], RunLines()
        if len(asked.choices) > 1:
            raise InvalidRequestError("the lines are those of one text; leave n out, and send one prompt", "n")

    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json:
        """Return the lines as a list."""
        return {"lines": [json.loads(line) for event in runs[0] for line in self.write(0, event, facts)]}

    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Yield the lines that are complete after an event. ``index``: always 0."""
        if isinstance(event, Start):
            return [self._lines.start(event, self._choice.prompt, command_of(self._choice, event))]
        return self._lines.push(event, None if facts is None else {"x_gen": facts})

    def failure(self, error: Json) -> str:
        """Return the line that tells an error."""
        return encode_json({"event": "error", **error}) + "\n"


class LineFields(PromptFields):
    """The fields of `/gen/generate`, whose answer is a stream unless ``stream`` is false."""

    stream: bool | None = True


async def generate_lines(request: Request, state: ServerState) -> Response:
    """Continue a prompt, as the lines of `gen run --format jsonl`."""
    return await generate(request, state, LineFields, LinesFormat)


class ChainFields(StrictModel):
    """A chain: the notation, or the name of a preset; the server's own chain without either."""

    chain: str | None = None
    preset: str | None = None


async def read_chain(request: Request, state: ServerState) -> Response:
    """Return the steps of a chain with all parameters, and the settings that a preset has besides the chain."""
    fields, _ = read_body(ChainFields, await read_json(request, state))
    return JSONResponse(await state.run(lambda: _chain_json(state, fields)))


def _chain_json(state: ServerState, fields: ChainFields) -> Json:
    _, maker = state.loaded()
    if fields.chain is not None:
        settings: Settings | None = None
        try:
            samplers = parse_chain(fields.chain)
        except SamplingError as error:
            raise InvalidRequestError(str(error), "chain") from None
        if not samplers or not samplers[-1].about.is_selector:
            samplers.append(Dist())
    else:
        if fields.preset is None:
            settings = maker.resolver.default_settings()
        else:
            find_listed_preset(fields.preset, "preset")
            settings = resolve_settings(load_preset(fields.preset))
        samplers = settings.samplers()
    steps = [{"name": item.about.name, "parameters": _with_text_keys(item.model_dump())} for item in samplers]
    notation = chain_notation([{item.about.name: item.model_dump()} for item in samplers])
    found = {} if settings is None else {name: getattr(settings, name) for name in SETTING_NAMES}
    values = {name: None if item.origin == "default" else item.value for name, item in found.items()}
    return {"chain": notation, "steps": steps, "settings": values}


def _with_text_keys(value: Any) -> Any:
    """Return a value for JSON. An id as a key becomes its digits; a text as a key is quoted if needed.

    In a table of tokens, 5 is an id, and "5" is a text. JSON has only texts as keys.
    """
    if isinstance(value, Mapping):
        return {
            str(key) if isinstance(key, int) or key.isidentifier() else json.dumps(key): _with_text_keys(item)
            for key, item in value.items()
        }
    return [_with_text_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


class PresetTextFields(StrictModel):
    """The settings of a preset.

    ``base``: the text of the preset whose other keys are kept; ``chain``: the chain in notation; ``settings``: the
    keys of the preset besides its chain that are changed; null removes a key.
    """

    base: str | None = None
    chain: str
    settings: dict[str, Any] = Field(default_factory=dict)


async def write_preset(request: Request, state: ServerState) -> Response:
    """Return the text of a preset file with a chain and settings. Nothing is saved."""
    fields, _ = read_body(PresetTextFields, await read_json(request, state))
    try:
        return JSONResponse({"preset": await state.run(lambda: _preset_text(fields))})
    except (PresetError, SamplingError) as error:
        raise InvalidRequestError(str(error), "chain") from None


def _preset_text(fields: PresetTextFields) -> str:
    if fields.base is not None and len(fields.base.encode("utf-8", "replace")) > MAX_FILE_BYTES:
        raise InvalidRequestError(f"base: it has more than {MAX_FILE_BYTES:,} bytes", "base")
    table: Json = {} if fields.base is None else dict(check_table(parse_yaml(fields.base, "base"), "base"))
    chain = [_changed_step(item) for item in parse_chain(fields.chain)]
    for name, value in fields.settings.items():
        table.pop(name, None)
        if value is not None:
            table[name] = value
    if table.get("phases"):  # the chain is that of the last phase
        table["phases"] = [*table["phases"][:-1], {"chain": chain}]
    else:
        table["chain"] = chain
    Preset.from_table(table)
    lines = []
    for key, value in table.items():
        if key == "chain":
            lines += ["chain:", *(f"  - {_flow(step)}" for step in value)]
        else:
            lines.append(_flow({key: value}, is_block=True))
    return "\n".join(lines) + "\n"


def _changed_step(sampler: Any) -> str | Json:
    """Return a step as presets write it, without the parameters that have their default values."""
    values = _plain(sampler.model_dump(exclude_defaults=True))
    return {sampler.about.name: values} if values else str(sampler.about.name)


def _plain(value: Any) -> Any:
    """Return a value as YAML writes it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _flow(value: Any, *, is_block: bool = False) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=not is_block, sort_keys=False, allow_unicode=True, width=10**6
    )
    text = text.removesuffix("...\n").rstrip("\n")
    is_braced = not is_block and isinstance(value, Mapping)
    return text.removeprefix("{").removesuffix("}") if is_braced else text


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
    RouteSpec("/", home, "GET", media_types=(HTML,)),
    RouteSpec("/page/{name}", page_file, "GET", media_types=tuple(_MEDIA_TYPES.values())),
    RouteSpec("/page/web/{name}", shared_file, "GET", media_types=tuple(_MEDIA_TYPES.values())),
    RouteSpec("/gen/generate", generate_lines, body=LineFields, media_types=(LINES, JSON)),
    RouteSpec("/gen/chain", read_chain, body=ChainFields, keys=("chain", "steps", "settings")),
    RouteSpec("/gen/presets/text", write_preset, body=PresetTextFields, keys=("preset",)),
    RouteSpec("/gen/report", report, takes_lines=True, media_types=(HTML,)),
)
