"""Front ends against `gen serve`: SillyTavern's own server, and the requests that pages and curl send."""

import json
import math
import shlex
import shutil
import subprocess
import time

import pytest

from ..engine.scripted_model import write_scripted_model
from .clients import CLASSIC, MIKUPAD, OPEN_WEBUI, SILLYTAVERN_CHAT
from .gen_serve import GenServe, assert_texts_run_together, parts_of_stream
from .sillytavern import PACKAGE, SillyTavern, skip_without
from .sillytavern_bodies import recorded_bodies
from .test_reasoning import QUESTION, SCRIPT, TEMPLATE, message_of_stream

RECORDED = recorded_bodies()
MODEL = "pruned"
TEXT = "The sea was"
IDS = [504, 3426, 436]


@pytest.fixture(scope="module")
def tavern(tmp_path_factory):
    skip_without(PACKAGE.is_dir() and shutil.which("node"), "SillyTavern")
    with SillyTavern(tmp_path_factory.mktemp("sillytavern")) as running:
        yield running


KINDS = ("llamacpp", "ooba", "tabby", "koboldcpp", "generic", "vllm", "aphrodite")
BODIES = {kind: RECORDED[kind, "usual"] | {"api_type": kind, "seed": 11} for kind in KINDS}
"""The bodies that SillyTavern's page sends to SillyTavern's server, by the type of the program."""
IGNORED = {kind: {"include_reasoning", "truncation_length", "num_ctx"} for kind in KINDS}
IGNORED |= {"generic": set(), "vllm": set(), "aphrodite": {"include_reasoning", "truncation_length"}}
"""The fields without effect."""


def test_every_type_finds_the_model(tavern, server):
    for kind in BODIES:
        answer = tavern.post("backends/text-completions/status", api_type=kind, api_server=server.address)
        assert answer.json()["result"] == MODEL, kind
        assert ("x-supports-tokenization" in answer.headers) == (kind == "ooba")


def test_the_chat_template_is_recognized(tavern, server):
    """SillyTavern derives its templates from the hash."""
    facts = tavern.post("backends/text-completions/props", api_type="llamacpp", api_server=server.address).json()
    assert facts["default_generation_settings"]["n_ctx"] == 4096
    assert len(facts["chat_template_hash"]) == 64
    assert "<|im_start|>" in facts["chat_template"]


@pytest.mark.parametrize("kind", [kind for kind in BODIES if kind != "generic"])
def test_tokens_are_counted(tavern, server, kind):
    path = "tokenizers/remote/textgenerationwebui/encode"
    found = tavern.post(path, api_type=kind, url=f"{server.address}/v1", text=TEXT, model="undefined").json()
    assert found == {"count": len(IDS), "ids": IDS}


@pytest.mark.parametrize("kind", BODIES)
def test_sillytavern_continues_a_text(tavern, server, gen, kind):
    body = BODIES[kind] | {"api_server": f"{server.address}/", "temperature": 1.5}
    answer = tavern.post("backends/text-completions/generate", **body).json()
    text = answer["content"] if kind == "llamacpp" else answer["choices"][0]["text"]
    facts = answer["x_gen"]
    assert facts["seed"] == body["seed"]
    assert set(facts["ignored"]) == IGNORED[kind]
    assert "temperature=1.5" in facts["chain"]
    assert gen(*shlex.split(facts["command"])[1:]) == text
    parts = parts_of_stream(tavern.post("backends/text-completions/generate", **(body | {"stream": True})).text)
    if kind == "llamacpp":
        assert "".join(part["content"] for part in parts) == text
        # The page reads the alternatives of each part here.
        entries = [part["completion_probabilities"][0]["top_logprobs"] for part in parts if part.get("content")]
        assert all(len(entry) == 10 and set(entry[0]) >= {"token", "logprob"} for entry in entries)
    else:
        choices = [part["choices"][0] for part in parts]
        assert "".join(choice["text"] for choice in choices) == text
        tables = [choice["logprobs"]["top_logprobs"][0] for choice in choices if choice.get("logprobs")]
        assert len(tables) == answer["usage"]["completion_tokens"]
        assert all(len(table) >= body["logprobs"] for table in tables)


def test_the_page_of_koboldai(tavern, server):
    """SillyTavern's older type of program, with the routes of KoboldAI."""
    address = f"{server.address}/api"
    assert tavern.post("backends/kobold/status", api_server=address).json() == {
        "koboldUnitedVersion": "1.2.5",
        "koboldCppVersion": "KoboldCpp",
        "model": MODEL,
    }
    assert tavern.post("tokenizers/remote/kobold/count", url=address, text=TEXT).json()["ids"][-3:] == IDS
    body = {**CLASSIC, "api_server": address, "gui_settings": False, "sampler_seed": 3, "can_abort": True}
    answer = tavern.post("backends/kobold/generate", **body, streaming=False).json()
    parts = parts_of_stream(tavern.post("backends/kobold/generate", **body, streaming=True).text)
    assert "".join(part["token"] for part in parts) == answer["results"][0]["text"]
    assert answer["x_gen"]["seed"] == 3
    assert answer["x_gen"]["ignored"] == []


def test_sillytavern_chats(tavern, server):
    body = SILLYTAVERN_CHAT | {"custom_url": f"{server.address}/v1"}
    found = tavern.post("backends/chat-completions/status", **body).json()
    assert found["data"][0]["id"] == MODEL
    answer = tavern.post("backends/chat-completions/generate", **body).json()
    choice = answer["choices"][0]
    assert answer["x_gen"]["ignored"] == []
    assert answer["x_gen"]["seed"] == 4
    assert "min_p=0.02" in answer["x_gen"]["chain"]
    assert "present" not in answer["x_gen"]["chain"]
    assert all(len(token["top_logprobs"]) >= 5 for token in choice["logprobs"]["content"])
    parts = parts_of_stream(tavern.post("backends/chat-completions/generate", **(body | {"stream": True})).text)
    deltas = [part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"]]
    assert "".join(deltas) == choice["message"]["content"]


# Each row: what the user adds to the body, the answer, and the reasoning that the page shows
THOUGHTS = {"on": ("", "yes.", "hm"), "off": ("enable_thinking: false", "yes.", None)}


def test_sillytavern_shows_the_reasoning_apart(tavern, tmp_path):
    path = write_scripted_model(tmp_path / "model.gguf", [SCRIPT], TEMPLATE)
    with GenServe(model=path) as thinking:
        fields = {"custom_url": f"{thinking.address}/v1", "messages": QUESTION, "temperature": 0, "max_tokens": 20}
        for added, content, reasoning in THOUGHTS.values():
            body = SILLYTAVERN_CHAT | fields | {"custom_include_body": added}
            whole = tavern.post("backends/chat-completions/generate", **body).json()["choices"][0]["message"]
            assert (whole["content"], whole.get("reasoning_content")) == (content, reasoning)
            stream = tavern.post("backends/chat-completions/generate", **(body | {"stream": True})).text
            deltas = message_of_stream(parts_of_stream(stream))
            assert (deltas["content"], deltas.get("reasoning_content")) == (content, reasoning)


def test_an_error_reaches_the_user(tavern, server):
    body = BODIES["ooba"] | {"api_server": server.address, "temperature": -1}
    answer = tavern.post("backends/text-completions/generate", **body).json()
    assert answer["status"] == 400
    assert json.loads(answer["response"])["error"]["param"] == "temperature"


def test_sillytavern_sends_the_key(tavern, locked):
    body = {"api_type": "llamacpp", "api_server": locked.address}
    path = "/api/backends/text-completions/status"
    assert tavern.http.post(path, json=body).status_code == 400
    secret = tavern.post("secrets/write", key="api_key_llamacpp", value="first-key", label="gen").json()
    try:
        assert tavern.http.post(path, json=body).status_code == 200
    finally:
        tavern.http.post("/api/secrets/delete", json={"key": "api_key_llamacpp", "id": secret["id"]})


def total(http, beginning):
    """Return the sum of the numbers of the server whose lines begin with a text."""
    lines = http.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(beginning))


TOKENS = "gen_completion_tokens_total{"
"""The tokens of requests that have ended."""
ABORTS = 'gen_requests_total{route="/api/extra/abort",status="200"}'


@pytest.mark.parametrize("kind", ["llamacpp", "koboldcpp", "ooba"])
def test_stop_in_sillytavern_ends_the_text(tavern, server, http, kind):
    body = BODIES[kind] | {
        "api_server": server.address,
        **dict.fromkeys(("max_tokens", "max_new_tokens", "n_predict", "num_predict"), 4000),
        **dict.fromkeys(("ban_eos_token", "ignore_eos"), True),
        **{name: [] for name in ("stop", "stopping_strings", "logit_bias")},
        "stream": True,
    }
    before, aborts_before = total(http, TOKENS), total(http, ABORTS)
    path, headers = "/api/backends/text-completions/generate", {"Accept-Encoding": "identity"}
    with tavern.http.stream("POST", path, json=body, headers=headers) as response:
        assert response.status_code == 200
        assert next(response.iter_text())
    while (count := total(http, TOKENS) - before) == 0:
        time.sleep(0.1)
    assert count < 4000
    fields = {"prompt": TEXT, "n": 4, "max_tokens": 20, "ignore_eos": True, "stream": True}
    assert_texts_run_together(http.post("/v1/completions", json=fields).text, 4)
    assert total(http, ABORTS) - aborts_before == (kind == "koboldcpp")


def mikupad_openai(is_chat):
    """Return mikupad's request for its type of program "OpenAI Compatible"."""
    names = {
        "n_predict": "max_tokens",
        "n_probs": "top_logprobs" if is_chat else "logprobs",
        "repeat_penalty": "repetition_penalty",
        "repeat_last_n": "repetition_penalty_range",
        "tfs_z": "tfs",
        "mirostat": "mirostat_mode",
        "ignore_eos": "ban_eos_token",
        "grammar": "grammar_string",
    }
    body = {names.get(name, name): value for name, value in MIKUPAD.items() if name != "cache_prompt"}
    body |= {"model": MODEL, "dynamic_temperature": True, "dynatemp_low": 0.5, "dynatemp_high": 0.9}
    if is_chat:
        body |= {"logprobs": True, "messages": [{"role": "user", "content": body.pop("prompt")}]}
    return body


@pytest.mark.parametrize("is_chat", [False, True], ids=["text", "chat"])
def test_mikupad_reads_each_token(http, is_chat):
    """mikupad makes the text of the tokens, and finds the chosen one among the alternatives by its text.

    In a chat, as with OpenAI, only the requested number is listed; mikupad then shows no probability.
    """
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    body = mikupad_openai(is_chat) | {"top_logprobs" if is_chat else "logprobs": 1, "temperature": 2}
    body |= {"dynatemp_low": 2, "dynatemp_high": 2, "min_p": 0, "top_p": 1}
    answer = http.post(path, json=body | {"stream": False}).json()
    choice = answer["choices"][0]
    assert answer["x_gen"]["ignored"] == []
    if is_chat:
        tokens = [(token["token"], token["top_logprobs"]) for token in choice["logprobs"]["content"]]
        text = choice["message"]["content"]
    else:
        tokens = list(zip(choice["logprobs"]["tokens"], choice["logprobs"]["top_logprobs"], strict=True))
        text = choice["text"]
    assert "".join(token for token, _ in tokens) == text
    if is_chat:
        assert [len(table) for _, table in tokens] == [1] * len(tokens)
    else:
        assert any(len(table) > 1 for _, table in tokens)  # a token that is not the most likely one was chosen
        assert all(token in table for token, table in tokens)
    parts = parts_of_stream(http.post(path, json=body).text)
    shown = [part["choices"][0] for part in parts]
    pieces = [(piece["delta"].get("content") if is_chat else piece["text"]) or "" for piece in shown]
    assert "".join(pieces) == text
    for piece, entry in zip(shown, pieces, strict=True):
        if entry:
            logprobs = piece["logprobs"]
            if is_chat:
                assert len(logprobs["content"][0]["top_logprobs"]) == 1
            else:
                assert entry in logprobs["top_logprobs"][0]


@pytest.mark.parametrize("body", OPEN_WEBUI.values(), ids=OPEN_WEBUI)
def test_open_webui_chats(http, body):
    models = http.get("/v1/models", headers={"Authorization": "Bearer none"}).json()
    assert models["data"][0]["id"] == MODEL
    headers = {"Authorization": "Bearer none", "X-OpenWebUI-User-Name": "Ada", "X-OpenWebUI-Chat-Id": "1"}
    answer = http.post("/v1/chat/completions", json={"model": MODEL, **body}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("x-gen-ignored") is None
    if not body["stream"]:
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["choices"][0]["message"]["content"]
        return
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    parts = parts_of_stream(answer.text)
    assert "".join(part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"])
    if body.get("stream_options"):
        assert parts[-1]["usage"]["completion_tokens"] > 0


THE = 260
"""The id of the token " the"."""
CLIENTS_WITH_BIASES = {
    "mikupad": ("/completion", MIKUPAD | {"logit_bias": [[THE, 100]], "n_predict": 4, "stream": False}),
    "mikupad-openai": ("/v1/completions", mikupad_openai(False) | {"logit_bias": [[THE, 100]], "max_tokens": 4}),
    "mikupad-chat": ("/v1/chat/completions", mikupad_openai(True) | {"logit_bias": [[THE, 100]], "max_tokens": 4}),
    "open-webui": (
        "/v1/chat/completions",
        OPEN_WEBUI["settings"] | {"logit_bias": {str(THE): 100}, "max_tokens": 4},
    ),
}


@pytest.mark.parametrize(("path", "body"), CLIENTS_WITH_BIASES.values(), ids=CLIENTS_WITH_BIASES)
def test_biases_and_stop_strings_are_applied(http, path, body):
    body = {name: value for name, value in body.items() if name != "stream_options"} | {"stream": False}
    texts = []
    for stop in (["\nUser:"], [" the the the"]):
        answer = http.post(path, json=body | {"stop": stop}).json()
        choice = answer["choices"][0] if "choices" in answer else {"text": answer["content"]}
        texts.append(choice["message"]["content"] if "message" in choice else choice["text"])
    assert texts == [" the the the the", ""]


def test_open_webui_continues_an_answer(http, gen):
    body = OPEN_WEBUI["continue"] | {"stream": False}
    answer = http.post("/v1/chat/completions", json=body).json()
    words = shlex.split(answer["x_gen"]["command"])
    assert words[-1].endswith("<|im_start|>assistant\nI like the color")
    assert gen(*words[1:]) == answer["choices"][0]["message"]["content"] != ""
    body = OPEN_WEBUI["continue"] | {"seed": answer["x_gen"]["seed"]}
    parts = parts_of_stream(http.post("/v1/chat/completions", json=body).text)
    deltas = [part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"]]
    assert "".join(deltas) == answer["choices"][0]["message"]["content"]


CURL = """curl -X POST https://api.together.xyz/v1/chat/completions \\
     -H 'Content-Type: application/json' \\
     -H "Authorization: Bearer $TOGETHER_API_KEY"\\
     -d '{
     "model": "codellama/CodeLlama-70b-Instruct-hf",
     "stream": false,
     "max_tokens": 10,
     "messages": [
       {"role": "user", "content": "write an async function in python"}
     ],
     "logprobs": 1ECHO
 }'
"""
"""The lines of Together's documentation of logprobs. The second ones also have `echo`."""


def test_the_curl_lines_of_together(server):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    for echo in ("", ',\n     "echo": true'):
        lines = CURL.replace("ECHO", echo).replace("https://api.together.xyz", server.address)
        done = subprocess.run(["sh", "-c", lines], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        (choice,) = answer["choices"]
        tokens, values = choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]
        assert len(tokens) == len(values) == answer["usage"]["completion_tokens"] == 10
        assert "".join(tokens) == choice["message"]["content"]
        assert choice["finish_reason"] == "length"
        assert bool(answer.get("prompt")) == bool(echo)
    (prompt,) = answer["prompt"]
    assert "write an async function in python" in prompt["text"]
    assert "".join(prompt["logprobs"]["tokens"]) == prompt["text"]
    first, *others = prompt["logprobs"]["token_logprobs"]
    assert first is None
    assert all(value < 0 and math.isfinite(value) for value in others)
    assert answer["usage"]["prompt_tokens"] == len(others) + 1
