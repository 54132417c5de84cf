"""`gen serve`: answer requests of other programs over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.extras import extra_of, install_command
from ...common.flags import at_least, within
from ...common.llama_cpp_limits import MAX_SLOTS
from ..command_options import takes_options
from ..flags import Options, flag
from ..inputs.model import find_draft_model, load_model, open_draft_model, show_llama_cpp_messages
from ..inputs.overrides import chain_rearrangements, flag_overrides
from ..inputs.settings import (
    ChatTemplateFlags,
    open_chosen_preset,
    preset_name,
)
from ..interrupt import Interrupt, interruptible
from ..messages import print_message
from ..options.drafts import DraftingOptions
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import EscapeOptions, LengthOptions, TemplateOptions
from ..options.sampling import ConstraintOptions, FullSamplingOptions
from ..options.text_rules import MeasuredTextOptions

if TYPE_CHECKING:
    from ...requests.resolve import RequestDefaults
    from ...serve.engine_thread import EngineThread
    from ...serve.server import HttpServer
    from ...serve.state import ServerState

_serve = partial(flag, panel="Server")


class LogFormat(StrEnum):
    """Format of the lines about requests."""

    TEXT = "text"
    JSON = "json"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Options):
    """The options of `gen serve`."""

    force: list[str] | None = _serve(
        "--force",
        metavar="NAME=VALUE",
        help="Setting that wins over what clients send, by the name of any client; repeatable.",
    )
    host: str = _serve("--host", metavar="ADDRESS", help="Address to listen on. [127.0.0.1]", default="127.0.0.1")
    port: int = _serve(
        "--port",
        metavar="N",
        help="Port to listen on; 0 = any free port. [8080]",
        default=8080,
        limit=within(0, 65535),
    )
    prefix: str = _serve(
        "--prefix",
        "--api-prefix",
        metavar="PATH",
        help="Beginning of all paths, also of the page's, such as /llm. [none]",
        default="",
    )
    slots: int | None = _serve(
        "--slots",
        "--parallel",
        "-np",
        metavar="N",
        help="Number of requests computed at a time. [by cores and memory, at most 8]",
        limit=within(1, MAX_SLOTS),
    )
    queue: int = _serve(
        "--queue",
        metavar="N",
        help="Number of requests that may wait for a slot. [64]",
        default=64,
        limit=at_least(0),
    )
    cache_tokens: int = _serve(
        "--cache-tokens",
        metavar="N",
        help="Number of tokens that free slots keep for later requests; 0 = none, -1 = all that fit. [-1]",
        default=-1,
        limit=at_least(-1),
    )
    api_key: list[str] | None = _serve(
        "--api-key",
        metavar="KEY",
        help="Key that clients must send; repeatable. Other users of this machine see it.",
    )
    api_key_file: Path | None = _serve(
        "--api-key-file", metavar="FILE", help="File with the keys that clients may send, one key per line."
    )
    no_auth: bool = _serve(
        "--no-auth", help="Answer every program that reaches --host, without a key.", default=False
    )
    cors: list[str] | None = _serve(
        "--cors",
        metavar="ORIGIN",
        help="Web page that may send requests, such as http://localhost:3000; null = a file; repeatable.",
    )
    allow_host: list[str] | None = _serve(
        "--allow-host",
        metavar="NAME",
        help="Name by which clients call this machine, such as server.example.org; repeatable.",
    )
    grace: float = _serve(
        "--grace",
        metavar="SECONDS",
        help="Time for running requests to end after Ctrl-C. [30]",
        default=30.0,
        limit=at_least(0),
    )
    timeout: float = _serve(
        "--timeout",
        "-to",
        metavar="SECONDS",
        help="Maximum time of a request, including the time in the queue; 0 = no limit. [3600]",
        default=3600.0,
        limit=at_least(0),
    )
    log_format: LogFormat = _serve(
        "--log-format",
        help="Format of the line on stderr for each request: text, json or none. [text]",
        default=LogFormat.TEXT,
    )
    log_prompts: bool = _serve("--log-prompts", help="Log the prompts of requests, too.", default=False)
    strict_fields: bool = _serve(
        "--strict-fields",
        help="Reject requests with an unknown field, instead of naming the field in the answer.",
        default=False,
    )
    open_page: bool = _serve("--open", help="Open the server's page in the browser.", default=False)
    stories: Path | None = _serve(
        "--stories",
        metavar="FOLDER",
        help="Folder in which the page keeps its stories, too, as text and JSON. [only in the browser]",
    )
    cache_prompt: bool = _serve(
        "--cache-prompt",
        help="Continue conversations without reading their answers again: quicker, exact to rounding only.",
        default=False,
    )
    deterministic: bool = _serve(
        "--deterministic",
        help="Compute each request exactly as gen run does, to the last bit; slower.",
        default=False,
    )
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    length: LengthOptions
    rules: MeasuredTextOptions
    escapes: EscapeOptions
    template: TemplateOptions
    drafts: DraftingOptions
    model: ModelOptions
    log: LogOptions


@takes_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve a model to other programs over HTTP: OpenAI's API and others, several requests at a time.

    The flags of gen run are the defaults of requests that do not set the value themselves.
    """
    try:
        from ...serve.engine_thread import EngineThread
        from ...serve.request_log import RequestLog
        from ...serve.security import read_access
        from ...serve.server import HttpServer, open_socket
        from ...serve.state import ServerState
        from ...serve.story_folder import StoryFolder
    except ModuleNotFoundError as error:
        if extra_of(error.name) != "serve":
            raise
        advice = install_command("serve")
        raise UsageError(f"gen serve needs the extra serve, which is not installed: {advice}") from None

    if options.cache_prompt and options.deterministic:
        raise UsageError(
            "--cache-prompt and --deterministic exclude each other: reused answers are exact to rounding"
        )
    access = read_access(
        options.host,
        api_keys=options.api_key or (),
        api_key_file=options.api_key_file,
        has_no_auth=options.no_auth,
        origins=options.cors or (),
        host_names=options.allow_host or (),
        prefix=options.prefix,
    )
    show_llama_cpp_messages(options.log)
    defaults = _defaults(options)
    log = RequestLog(options.log_format, options.log_prompts, write=print_message)
    engine = EngineThread(
        options.slots,
        max_waiting=options.queue,
        deterministic=options.deterministic,
        max_idle_tokens=None if options.cache_tokens == -1 else options.cache_tokens,
        max_seconds=options.timeout or None,
        note=log.note,
    )
    reuses_answers = None if options.deterministic else options.cache_prompt
    state = ServerState(
        engine,
        defaults,
        log.note,
        reuses_answers=reuses_answers,
        has_strict_fields=options.strict_fields,
        access=access,
        stories=None if options.stories is None else StoryFolder(options.stories),
        log=log,
    )
    server = HttpServer(state, open_socket(options.host, options.port))
    address = _address(options.host, server.port) + access.prefix
    with interruptible() as interrupt, _closed_at_end(server, state):
        loop = server.start()
        print_message(f"gen: loading the model; {address}/health answers 503 until then")
        draft = find_draft_model(options.drafts, interrupt)
        state.defaults = replace(defaults, draft=draft)
        with load_model(options.model, interrupt, slots=options.slots, draft=draft) as model:
            open_draft_model(draft, model)
            try:
                engine.start(model, loop)
                state.set_model(model)
                print_message(f"gen: {model.name} is served at {address}; Ctrl-C stops it")
                if options.open_page:
                    import webbrowser

                    webbrowser.open(f"{address}/")
                _wait(interrupt, engine, server)
                if not engine.is_idle:
                    print_message(
                        f"gen: running requests get {options.grace:g} s to end; Ctrl-C again ends them now"
                    )
                server.finish_requests(options.grace)
            finally:
                engine.stop()  # before the model is closed, which the thread may be using
    raise typer.Exit(0)


def _address(host: str, port: int) -> str:
    """Return the address of the server for this machine's programs."""
    names = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - a name that is replaced
    name = names.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


@contextmanager
def _closed_at_end(server: HttpServer, state: ServerState) -> Iterator[None]:
    try:
        yield
    finally:
        server.stop()
        state.close()


def _wait(interrupt: Interrupt, engine: EngineThread, server: HttpServer) -> None:
    """Wait for a signal. Raises the error of the engine or of the server if it has failed."""
    import time

    while not interrupt.requested:
        failure = engine.failure or server.failure
        if failure is not None:
            raise failure
        time.sleep(0.1)


def _defaults(options: ServeOptions) -> RequestDefaults:
    """Return the settings of requests that do not set them, checked as far as possible without the model."""
    from ...presets.overrides import parse_set
    from ...presets.settings import resolve_settings
    from ...requests.forced import read_forced
    from ...requests.resolve import RequestDefaults, RequestResolver

    sampling = options.sampling
    sets = [parse_set(text) for text in sampling.set or ()]
    overrides = (*sets, *flag_overrides(options))
    rearrangements = tuple(chain_rearrangements(options))
    name = preset_name(sampling.preset)
    resolve_settings(
        None if name == "model" else open_chosen_preset(name, sampling.preset),
        chain=sampling.chain,
        flags=overrides,
        rearrangements=rearrangements,
    )
    template = ChatTemplateFlags(options.template)
    forced = read_forced(options.force) if options.force else None
    if forced is not None:
        RequestResolver(RequestDefaults(forced=forced), {}, print_message).default_settings()  # checks the values
    return RequestDefaults(
        name,
        sampling.chain,
        overrides,
        rearrangements,
        chat_template=template.source,
        chat_template_kwargs=template.variables,
        lookup=options.drafts.lookup,
        forced=forced,
    )
