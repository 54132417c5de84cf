"""Addresses as clients write them, and the small questions that they ask when they connect."""

import pytest

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
