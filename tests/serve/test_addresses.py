"""Addresses as clients write them, and the small questions that they ask when they connect."""

import json

import httpx
import pytest
from logitsmith.presets.search import list_presets

from .gen_serve import SECONDS_TO_WAIT, GenServe
from .page_driver import PageDriver
from .routes import OTHER_ROUTES, TEXT_ROUTES

MODEL = "pruned"
GETS = {
    "/v1/models": ["data", 0, "id"],
    "/models": ["data", 0, "id"],
    f"/v1/models/{MODEL}": ["id"],
    f"/models/{MODEL}": ["id"],
    "/v1/model": ["id"],
    "/v1/internal/model/info": ["model_name"],
    "/api/v1/model": ["result"],
}
"""The paths that name the model, and the place of its name in the answer."""


@pytest.mark.parametrize("path", GETS)
def test_slashes_that_a_client_adds(server, path):
    """No redirect: behind a proxy its address would lack the scheme and the prefix."""
    for address in (path, f"{path}/", f"{path}//", f"/{path}", f"/{path}/"):
        status, headers, answer = server.request("GET", address)
        assert (status, headers.get("location")) == (200, None), address
        for name in GETS[path]:
            answer = answer[name]
        assert answer == MODEL


def test_slashes_of_other_paths(server):
    for path in ("/v1/completions/", "//completion", "/v1//completions", "/api/v1/generate/"):
        assert server.post(path, {"prompt": "Once", "max_tokens": 1})[0] == 200, path
    for path in ("/", "//", "/docs/", "/health/", "/metrics/"):
        assert server.request("GET", path)[0] == 200, path


@pytest.mark.parametrize("name", ["other", "user/other", "user%2Fother", f"{MODEL}/x"])
@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_models_that_the_server_does_not_have(server, path, name):
    status, _, answer = server.request("GET", f"{path}/{name}")
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert MODEL in error["message"]


@pytest.mark.parametrize("version", ["v1", "latest"])
@pytest.mark.parametrize(
    ("path", "answer"),
    [("config/soft_prompts_list", {"values": []}), ("config/soft_prompt", {"value": ""})],
)
def test_soft_prompts_of_koboldai(server, version, path, answer):
    assert server.request("GET", f"/api/{version}/{path}")[::2] == (200, answer)


def test_the_story_of_koboldcpp(server):
    assert server.request("GET", "/api/extra/preloadstory")[::2] == (200, {})


def test_a_soft_prompt_cannot_be_chosen(http):
    for value, status in (("", 200), ("tale", 400)):
        assert http.put("/api/v1/config/soft_prompt", json={"value": value}).status_code == status


def test_the_list_has_each_preset(http):
    entries = http.get("/v1/models").json()["data"]
    presets = {entry.name for entry in list_presets()}
    assert {entry["id"] for entry in entries} == {MODEL} | {f"{MODEL}:{preset}" for preset in presets}
    for entry in entries:
        assert http.get(f"/v1/models/{entry['id']}").json() == entry
        assert entry["meta"]["n_ctx"] == 4096
        assert entry["created"] > 1_600_000_000


# Each row: fields of a request; the preset that applies, and what is ignored. None: the preset of the server.
CHOSEN = {
    "a preset": ({"model": f"{MODEL}:deterministic"}, "deterministic", []),
    "two presets": ({"model": f"{MODEL}:creative", "preset": "deterministic"}, "deterministic", ["model"]),
    "one preset twice": ({"model": f"{MODEL}:deterministic", "preset": "deterministic"}, "deterministic", []),
    "the model": ({"model": MODEL}, None, []),
    "a tag of another model": ({"model": "llama3:creative"}, None, []),
}


@pytest.mark.parametrize(("fields", "preset", "ignored"), CHOSEN.values(), ids=CHOSEN)
@pytest.mark.parametrize("path", TEXT_ROUTES)
def test_the_model_chooses_a_preset(server, path, fields, preset, ignored):
    usual = {"seed": 1, "api_type": "llamacpp"}
    status, answer = server.post(path, TEXT_ROUTES[path] | usual | fields)
    assert status == 200, answer
    _, expected = server.post(path, TEXT_ROUTES[path] | usual | ({} if preset is None else {"preset": preset}))
    assert answer["x_gen"] == expected["x_gen"] | {"ignored": ignored}


@pytest.mark.parametrize("path", TEXT_ROUTES | OTHER_ROUTES)
def test_an_unknown_preset_of_the_model_is_not_found(server, path):
    body = (TEXT_ROUTES | OTHER_ROUTES)[path]
    status, answer = server.post(path, body | {"model": f"{MODEL}:min-q"})
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (404, "model_not_found", "model")
    assert "did you mean min-p?" in answer["error"]["message"]


def test_a_batch_reads_the_preset_in_the_name(gen):
    bodies = [{"model": f"{MODEL}:deterministic"}, {"preset": "deterministic"}]
    asked = {"method": "POST", "url": "/v1/completions"}
    lines = [
        json.dumps(asked | {"custom_id": str(number), "body": {"prompt": "Once", **body}})
        for number, body in enumerate(bodies)
    ]
    results = [json.loads(line) for line in gen("batch", "-", "-n", 6, stdin="\n".join(lines)).splitlines()]
    first, second = (result["response"]["body"]["choices"] for result in results)
    assert first == second


PREFIX = "/a/llm"


@pytest.fixture(scope="module")
def prefixed(pruned_model):
    """A server below a prefix, with a key and a forced setting."""
    flags = ("--prefix", f"{PREFIX}/", "--api-key", "k", "--force", "n_predict=3")
    with GenServe("--slots", "1", *flags, model=pruned_model) as server:
        yield server


# Each row: a path, and the status without a key.
PATHS = {
    f"{PREFIX}/": 200,
    f"{PREFIX}//": 401,
    f"{PREFIX}/health": 200,
    f"{PREFIX}/page/main.js": 200,
    f"{PREFIX}/v1/models": 401,
    f"{PREFIX}/nothing": 401,
    "/": 404,
    "/health": 404,
    "/v1/models": 401,
    f"{PREFIX}x/health": 401,
}


@pytest.mark.parametrize("path", PATHS)
def test_all_paths_begin_with_the_prefix(prefixed, path):
    assert prefixed.request("GET", path)[0] == PATHS[path]
    is_below = path.startswith(f"{PREFIX}/") and "nothing" not in path
    assert prefixed.request("GET", path, authorization="Bearer k")[0] == (200 if is_below else 404)


def test_the_page_below_a_prefix(prefixed, context):
    with httpx.Client(timeout=SECONDS_TO_WAIT) as client:
        moved = client.get(prefixed.address + PREFIX)
        assert (moved.status_code, moved.headers["location"]) == (307, "llm/")
    page = PageDriver(context, prefixed.address + PREFIX, is_ready=False)
    page.get_by_label("API key").fill("k")
    page.get_by_label("API key").press("Enter")
    page.wait_until_ready()
    assert page.errors == []
    page.tab.close()


def test_a_forced_setting_of_a_server(prefixed):
    body = {"prompt": "Once", "max_tokens": 9}
    _, _, answer = prefixed.request("POST", f"{PREFIX}/v1/completions", body, authorization="Bearer k")
    assert (answer["usage"]["completion_tokens"], answer["x_gen"]["ignored"]) == (3, ["max_tokens"])
    _, _, description = prefixed.request("GET", f"{PREFIX}/openapi.json", authorization="Bearer k")
    assert description["servers"] == [{"url": f"{PREFIX}/"}]
    _, _, props = prefixed.request("GET", f"{PREFIX}/props", authorization="Bearer k")
    assert props["default_generation_settings"]["params"]["n_predict"] == 3
