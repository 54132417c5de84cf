"""Requests that schemathesis makes of the page of the API: each answer is one that the page declares."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from logitsmith.requests.resolve import RequestDefaults
from logitsmith.requests.unknown_fields import UNREPORTED_VALUES
from logitsmith.serve import app
from logitsmith.serve.app import ROUTES
from logitsmith.serve.docs import openapi
from logitsmith.serve.engine_thread import EngineThread
from logitsmith.serve.state import ServerState

from .gen_serve import SECONDS_TO_WAIT, GenServe
from .sillytavern import skip_without

EXAMPLES, SLOW_EXAMPLES = 3, 100
CONFIG = {
    "checks": {
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", 503]},
        "positive_data_acceptance": {"enabled": False},  # values are checked together, and schemas describe each
    }
}
OPERATIONS = [(spec.documented_path, spec.method) for spec in ROUTES]


@pytest.fixture(scope="module")
def limited_server(pruned_model):
    """A server with a short context and a limit of time: requests ask for many texts."""
    with GenServe("--slots", "4", "-c", "64", "--timeout", "2", model=pruned_model) as server:
        yield server


@pytest.fixture(scope="module")
def schema(limited_server):
    """The page of the API, as schemathesis reads it."""
    skip_without(find_spec("schemathesis"), "schemathesis")
    import schemathesis
    from schemathesis.config import SchemathesisConfig

    @schemathesis.serializer("application/x-ndjson")
    def lines(_context, value):
        return value if isinstance(value, bytes) else str(value).encode()

    _, _, description = limited_server.request("GET", "/openapi.json")
    return schemathesis.openapi.from_dict(description, config=SchemathesisConfig.from_dict(CONFIG))


def send(schema, server, path, method, count):
    """Send requests to an operation, valid ones and others, and check the answers."""
    from schemathesis import GenerationMode

    operation = schema[path][method]
    for mode in GenerationMode if operation.body else [GenerationMode.POSITIVE]:  # every name of a path is valid

        @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            case.call_and_validate(base_url=server.address, timeout=SECONDS_TO_WAIT)

        check()


@pytest.mark.slow
def test_answers_are_those_that_the_page_declares(schema, limited_server):
    """One test, because schemathesis takes seconds to start."""
    for path, method in OPERATIONS:
        send(schema, limited_server, path, method, EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{method} {path}" for path, method in OPERATIONS])
def test_many_answers_are_those_that_the_page_declares(schema, limited_server, path, method):
    send(schema, limited_server, path, method, SLOW_EXAMPLES)


def test_the_page_says_where_a_key_is_needed():
    without_key = {path: "security" not in op for path, op in operations(needs_key=True)}
    assert {path for path, is_open in without_key.items() if is_open} == {
        *("/", "/page/{name}", "/page/web/{name}", "/health", "/v1/health")
    }
    assert not any("security" in operation for _, operation in operations(needs_key=False))


def operations(needs_key):
    """Return the paths of the page, each with one of its operations."""
    paths = openapi(ROUTES, (), needs_key=needs_key)["paths"]
    return [(path, operation) for path, by_method in paths.items() for operation in by_method.values()]


def test_a_null_is_an_absent_field():
    components = openapi(ROUTES, ())["components"]
    bodies = {name: schema for name, schema in components["schemas"].items() if name != "Error"}
    optional_fields = [
        (name, field, schema)
        for name, body in bodies.items()
        for field, schema in body["properties"].items()
        if field not in body.get("required", ())
    ]
    assert {("ChatMessage", "content"), ("ChatMessage", "name")} <= {field[:2] for field in optional_fields}
    for name, field, schema in optional_fields:
        assert Draft202012Validator({"components": components, **schema}).is_valid(None), (name, field)


def test_only_bodies_of_our_own_routes_are_closed():
    description = openapi(ROUTES, ())
    closed_paths, paths = set(), set()
    for path, by_method in description["paths"].items():
        for operation in by_method.values():
            content = operation.get("requestBody", {"content": {}})["content"]
            if "application/json" in content:
                paths.add(path)
                reference = content["application/json"]["schema"]["$ref"]
                schema = description["components"]["schemas"][reference.rpartition("/")[2]]
                if schema["additionalProperties"] is not True:
                    closed_paths.add(path)
    assert closed_paths == {path for path in paths if path.startswith("/gen/")}


def test_the_pages_are_made_once(monkeypatch):
    made = []
    monkeypatch.setattr(app, "describe", lambda *args, **kwargs: made.append(kwargs) or openapi(*args, **kwargs))
    state = ServerState(EngineThread(1, max_waiting=1), RequestDefaults(), print)
    for cached in (app._docs_body, app._openapi_body):
        cached.cache_clear()
    with ThreadPoolExecutor(1) as pool:  # in the main thread, a browser of other tests may have a running loop
        answers = [pool.submit(asyncio.run, show(None, state)) for show in (app.show_openapi, app.show_docs) * 2]
        bodies = [answer.result().body for answer in answers]
    state.close()
    assert made == [{"needs_key": False, "prefix": ""}]
    assert bodies[:2] == bodies[2:]
    assert json.loads(bodies[0]) == openapi(ROUTES, UNREPORTED_VALUES)
