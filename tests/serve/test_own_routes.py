"""Logitsmith's own routes: the next token, samplers, presets and grammars."""

import asyncio
import json

import pytest
from logitsmith.engine.model import Model
from logitsmith.engine.native.context import NativeContext
from logitsmith.presets import load_preset
from logitsmith.presets.search import BUILT_IN
from logitsmith.presets.settings_list import list_settings
from logitsmith.requests.resolve import RequestDefaults
from logitsmith.serve.app import make_app
from logitsmith.serve.engine_thread import EngineThread
from logitsmith.serve.state import ServerState
from starlette.testclient import TestClient


def next_token(http, **fields):
    response = http.post("/gen/next", json=fields)
    assert response.status_code == 200, response.text
    return response.json()


YES_NO = 'root ::= "yes" | "no"'
# Each row: what a request says, and the same as flags.
NEXT = {
    "prompt": ({"prompt": "The sea was"}, ["--no-chat", "The sea was"]),
    "against": (
        {"prompt": "The sea was", "chain": "top-k5 > temp0.7", "top": 4, "against": ["creative", "min-p0.2"]},
        [
            *("--no-chat", "--chain", "top-k5 > temp0.7", "--top", "4", "The sea was"),
            *("--against", "creative", "--against", "min-p0.2"),
        ],
    ),
    "messages": (
        {"messages": [{"role": "user", "content": "Is it wet?"}], "grammar": YES_NO, "min_p": 0},
        ["--chat", "Is it wet?", "--grammar", YES_NO, "--min-p", "0"],
    ),
    "preset": (
        {"prompt": "Yes or", "preset": "min-p", "set": {"min_p": 0.3}, "grammar": 'root ::= " no"'},
        ["--no-chat", "-P", "min-p", "--set", "min_p=0.3", "--grammar", 'root ::= " no"', "Yes or"],
    ),
}


@pytest.mark.parametrize(("fields", "flags"), NEXT.values(), ids=NEXT)
def test_the_next_token_is_that_of_the_command(http, gen, fields, flags):
    expected = json.loads(gen("next", "--format", "json", "-s", "3", *flags))
    found = next_token(http, seed=3, **fields)
    facts = found.pop("x_gen")
    assert found == expected
    assert facts["ignored"] == []


class Counted:
    """An application in this process, with a model that counts its decodes."""

    def __init__(self, client, counts):
        self.client, self.counts = client, counts

    def next(self, **fields):
        """Return the answer and the number of tokens that llama.cpp has decoded for it."""
        before = sum(self.counts)
        answer = next_token(self.client, **fields)
        return answer, sum(self.counts) - before


@pytest.fixture(scope="module")
def counted(pruned_model):
    counts = []
    with pytest.MonkeyPatch.context() as patch, Model.load(pruned_model, n_ctx=128, threads=1) as model:
        run = NativeContext._decode_batch

        def count_and_run(context, count):
            counts.append(count)
            run(context, count)

        patch.setattr(NativeContext, "_decode_batch", count_and_run)
        defaults = RequestDefaults()
        engine = EngineThread(2, max_waiting=2)
        state = ServerState(engine, defaults, print)
        with TestClient(make_app(state), base_url="http://127.0.0.1") as client:
            engine.start(model, client.portal.call(_running_loop))
            state.set_model(model)
            yield Counted(client, counts)
            engine.stop()
            state.close()


async def _running_loop():
    return asyncio.get_running_loop()


def test_another_chain_decodes_nothing(counted):
    prompt = "An old man and the sea"
    first, count = counted.next(prompt=prompt)
    assert count >= first["prompt_tokens"]
    assert first["x_gen"]["decoded_tokens"] == first["prompt_tokens"]
    for fields in (
        {},
        {"chain": "top-k3"},
        {"preset": "creative", "against": ["min-p0.1", "precise"]},
        {"temperature": 1.7, "top": 30},
        {"grammar": "root ::= [a-z]+"},
        {"set": ["min_p=0.4"], "sampler_order": [0, 6, 1, 2, 3, 4, 5]},
    ):
        found, count = counted.next(prompt=prompt, **fields)
        assert count == 0
        assert found["x_gen"]["decoded_tokens"] == 0
    longer, count = counted.next(prompt=f"{prompt} was")
    assert longer["x_gen"]["decoded_tokens"] > 0
    assert count > 0


def test_samplers_have_their_parameters(http):
    samplers = {entry["name"]: entry for entry in http.get("/gen/samplers").json()["samplers"]}
    top_p = samplers["top_p"]
    assert top_p["main_parameter"] == "p"
    assert [parameter["name"] for parameter in top_p["parameters"]] == ["p", "min_keep", "boundary"]
    assert top_p["parameters"][0]["maximum"] == 1
    assert top_p["off_values"] == {"p": 1.0}
    assert samplers["dist"]["is_selector"]


def test_settings_are_those_of_the_command(http):
    assert http.get("/gen/settings").json()["settings"] == [each.as_json() for each in list_settings()]


def test_presets_can_be_read(http):
    presets = {entry["name"]: entry for entry in http.get("/gen/presets").json()["presets"]}
    assert {path.stem for path in BUILT_IN.glob("*.yaml")} <= presets.keys()
    assert presets["min-p"]["chain"] == "min_p=0.1 > temperature=1.0 > dist"
    assert presets["min-p"]["description"] == load_preset("min-p").description
    response = http.get("/gen/presets/min-p")
    assert response.headers["content-type"].startswith("application/yaml")
    assert response.text == (BUILT_IN / "min-p.yaml").read_text()


@pytest.mark.parametrize("name", ["none", "LICENSE", "..%2F..%2FLICENSE", "min-p.yaml", "model"])
def test_presets_without_a_name_are_not_found(http, name):
    response = http.get(f"/gen/presets/{name}")
    assert response.status_code == 404
    assert "Apache" not in response.text


KOBOLD = {
    "temp": 0.7,
    "top_p": 0.9,
    "rep_pen": 1.1,
    "typical": 1,
    "sampler_order": [6, 0, 1, 3, 4, 2, 5],
    "genamt": 90,
}


OWN = "chain:\n- top_k: 3\n"
IMPORTED = {
    "koboldai": ({"text": json.dumps(KOBOLD), "name": "My.settings"}, {"name": "My"}),
    "webui": ({"text": "temperature: 0.7\ntop_p: 0.8\n", "format": "oobabooga"}, {"name": "preset"}),
    "llama.cpp": ({"text": "llama-cli --top-k 5 --temp 0.6"}, {}),
    "ollama": ({"text": "FROM /etc/hostname\nPARAMETER top_k 7\n"}, {}),
    "logitsmith": (
        {"text": OWN, "name": "/home/a/mine.yaml"},
        {"name": "mine", "chain": "top_k=3", "preset": OWN},
    ),
}


@pytest.mark.parametrize("form", IMPORTED)
def test_presets_are_imported(http, form):
    fields, expected = IMPORTED[form]
    response = http.post("/gen/presets/import", json=fields)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found.items() >= (expected | {"format": form}).items()
    again = http.post("/gen/presets/import", json={"text": found["preset"]}).json()
    assert again["format"] == "logitsmith"
    assert again["chain"] == found["chain"]


def test_settings_that_are_not_carried_over_are_reported(http):
    text = json.dumps({**KOBOLD, "wibble": 3})
    found = http.post("/gen/presets/import", json={"text": text, "format": "koboldai"}).json()
    assert any("wibble" in sentence for sentence in found["unsupported"])


def test_one_of_several_presets_is_chosen(http):
    text = json.dumps([{"preset": name, **KOBOLD} for name in ("One", "Two")])
    response = http.post("/gen/presets/import", json={"text": text})
    assert response.status_code == 400
    assert response.json()["sections"] == ["One", "Two"]
    assert response.json()["error"]["param"] == "section"
    found = http.post("/gen/presets/import", json={"text": text, "section": "Two"}).json()
    assert found["sections"] == ["One", "Two"]


def test_grammars_are_listed(http):
    grammars = {entry["name"]: entry for entry in http.get("/gen/grammars").json()["grammars"]}
    assert grammars["json"]["origin"] == "built-in"
    assert grammars["json"]["description"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"grammar": 'root ::= "a" | b\n'}, {"ok": False, "line": 1, "column": 16}),
        ({"grammar": 'root ::= "a"\nb ::= ("c"\n'}, {"ok": False, "line": 2, "column": 7}),
        ({"grammar": "json"}, {"ok": True, "kind": "gbnf"}),
        ({"grammar": "jsom"}, {"ok": False, "line": None}),
        ({"grammar": {"regex": "[a-c]+"}, "text": "abc"}, {"ok": True, "matches": True, "mismatch": None}),
        ({"grammar": {"type": "array"}, "text": "[1]"}, {"ok": True, "kind": "json_schema", "matches": True}),
        ({"grammar": 'root ::= "a" <|im_start|>'}, {"ok": True}),
        ({"grammar": 'root ::= "a" <no-token>'}, {"ok": False}),
        ({"grammar": {"regex": "("}}, {"ok": False, "line": 1}),
        ({"grammar": '{"type": "oops"}'}, {"ok": False}),
    ],
)
def test_grammars_are_checked(http, fields, expected):
    response = http.post("/gen/grammars/check", json=fields)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found.items() >= expected.items(), found
    assert found["ok"] or found["message"]


def test_a_mismatch_has_its_place(http):
    for text, line, column in (("a\nax", 2, 2), ("a", 1, 2), ("", 1, 1)):
        body = {"grammar": 'root ::= "a\\nab"', "text": text}
        found = http.post("/gen/grammars/check", json=body).json()
        assert found["matches"] is False
        assert (found["mismatch"]["line"], found["mismatch"]["column"]) == (line, column)


@pytest.mark.parametrize("field", [{}, {"return_progress": True}])
def test_lines_tell_how_far_the_prompt_is_read(http, field):
    prompt = f"{field} " + "the sea was old " * 300
    body = {"prompt": prompt, "max_tokens": 1, **field}
    lines = [json.loads(line) for line in http.post("/gen/generate", json=body).text.splitlines()]
    count = next(index for index, line in enumerate(lines) if line["event"] == "start")
    total = lines[count]["prompt_tokens"]
    read = [line["read_tokens"] for line in lines[:count]]
    assert all(line["event"] == "reading" and line["prompt_tokens"] == total for line in lines[:count])
    assert read == sorted(read)
    assert len(read) >= 2 if field else not read
