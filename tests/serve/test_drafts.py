"""Drafts in `gen serve`: on by its flags, on or off for each request, and without an effect on the tokens."""

import pytest

from ..engine.small_models import write_model
from .gen_serve import GenServe, parts_of_stream

STORY = {"prompt": "The sea was", "seed": 5, "temperature": 0.5}
MESSAGES = [{"role": "user", "content": "Hello"}]
LIMITS = {"speculative.n_max": 5, "speculative.n_min": 1, "speculative.p_min": 0.05}


@pytest.fixture(scope="module")
def drafting(pruned_model, draft_path):
    """A server with a draft model."""
    with GenServe("--slots", "2", "-md", str(draft_path), model=pruned_model) as server:
        yield server


@pytest.fixture(scope="module")
def looking_up(pruned_model):
    """A server with drafts from the text."""
    with GenServe("--slots", "2", "--lookup", "4", model=pruned_model) as server:
        yield server


def post(server, body, path="/completion"):
    status, answer = server.post(path, body)
    assert status == 200, answer
    return answer


def content(answer):
    """Return what must not depend on drafts."""
    return answer["content"], answer["tokens"], answer["completion_probabilities"], answer["stop_type"]


BODY = STORY | {"n_predict": 24, "n_probs": 3, "return_tokens": True}
FIELDS = {
    "as the server": ({}, True),
    "on": ({"speculative": True}, True),
    "off": ({"speculative": False}, False),
    "null": ({"speculative": None, "speculative.n_max": None}, True),
    "limits": (LIMITS, True),
    "no token": ({"speculative.n_max": 0}, False),
    "no token, of which some": ({"speculative.n_max": 0, "speculative.n_min": 4}, False),
    "longer than any probe": ({"speculative.n_max": 64}, True),
}


@pytest.mark.parametrize(("fields", "drafts"), FIELDS.values(), ids=FIELDS)
def test_the_tokens_and_logprobs_are_those_without(server, drafting, fields, drafts):
    plain, drafted = post(server, BODY), post(drafting, BODY | fields)
    assert content(drafted) == content(plain)
    assert len(drafted["completion_probabilities"]) == 24
    assert all(token["logprob"] < 0 for token in drafted["completion_probabilities"])
    assert drafted["x_gen"]["ignored"] == []
    assert drafted["x_gen"]["exactness"] == "exact"
    assert ("draft_n" in drafted["timings"]) == drafts
    assert "draft_n" not in plain["timings"]
    if drafts:
        assert 0 <= drafted["timings"]["draft_n_accepted"] <= drafted["timings"]["draft_n"] > 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", STORY | {"max_tokens": 12, "logprobs": 2, "n": 3}),
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 12, "seed": 4}),
    ],
    ids=["texts", "chat"],
)
def test_openais_routes_count_drafts(server, drafting, path, body):
    plain, drafted = post(server, body, path), post(drafting, body, path)
    assert drafted["choices"] == plain["choices"]
    usage = drafted["usage"]
    assert 0 <= usage.pop("accepted_tokens") <= usage.pop("draft_tokens")
    assert usage == plain["usage"]
    off = post(drafting, body | {"speculative": False}, path)
    assert (off["choices"], off["usage"]) == (plain["choices"], plain["usage"])


def test_a_stream(server, drafting):
    body = STORY | {"max_tokens": 12, "stream": True, "logprobs": 1}
    plain, drafted = (parts_of_stream(post(each, body, "/v1/completions")) for each in (server, drafting))
    assert [chunk["choices"] for chunk in drafted] == [chunk["choices"] for chunk in plain]


def test_fields_without_effect_are_named(looking_up):
    assert post(looking_up, BODY | {"speculative": True, **LIMITS})["x_gen"]["ignored"] == [*LIMITS]


def test_a_lookup_for_each_request(server, looking_up):
    body = BODY | {"prompt": "one two three one two three one two", "temperature": 0}
    plain, drafted = post(server, body), post(looking_up, body)
    off = post(looking_up, body | {"speculative": False})
    assert content(plain) == content(drafted) == content(off)
    assert drafted["timings"]["draft_n"] > 0
    assert "draft_n" not in off["timings"]


def test_a_limit_above_the_other_is_an_error(drafting):
    for fields in ({"speculative.n_min": 4}, {"speculative.n_min": 4, "speculative.n_max": 2}):
        status, answer = drafting.post("/completion", BODY | fields)
        assert (status, answer["error"]["param"]) == (400, "speculative.n_min")


def test_kobolds_numbers_of_the_last_answer_count_drafts(server, drafting):
    body = {"prompt": "The sea was", "max_length": 24, "sampler_seed": 5, "temperature": 0.5}
    for each, drafts in ((server, False), (drafting, True)):
        post(each, body, "/api/v1/generate")
        perf = each.request("GET", "/api/extra/perf")[2]
        accepted, rejected = perf["last_draft_success"], perf["last_draft_failed"]
        assert (accepted > 0, rejected > 0) == (drafts, drafts)


def test_the_slots_say_whether_there_are_drafts(server, drafting, looking_up):
    for each, drafts in ((server, False), (drafting, True), (looking_up, True)):
        slots = each.request("GET", "/slots")[2]
        assert {slot["speculative"] for slot in slots} == {drafts}


def test_a_draft_model_of_another_family_ends_the_start(pruned_model, tmp_path):
    path = write_model(tmp_path / "other.gguf", "llama", "llama")
    with GenServe("-md", str(path), model=pruned_model, waits=False) as server:
        server.wait_for("other.gguf cannot draft for ")
        assert server.wait() == 1
