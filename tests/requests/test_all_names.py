"""A setting means the same under each of its names, on each route for text and in each line of OpenAI's format."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
from logitsmith.presets.parameter_names import PARAMETERS, request_names
from logitsmith.presets.setting_table import SETTINGS

from ..engine.small_models import write_model
from ..serve.gen_serve import SECONDS_TO_WAIT

pytestmark = pytest.mark.slow  # hundreds of requests at seven doors

TEMPLATE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
USUAL = {"max_tokens": 2, "seed": 5, "api_type": "llamacpp"}
"""The type of the client says that fields have their usual meaning, also on the routes of one tool."""
PROMPT = {"prompt": "hello"}
MESSAGES = {"messages": [{"role": "user", "content": "hello"}]}
ROUTES = {
    "/v1/completions": PROMPT,
    "/v1/chat/completions": MESSAGES,
    "/v1/responses": {"input": "hello"},
    "/completion": PROMPT,
    "/api/v1/generate": PROMPT,
    "/api/extra/generate/stream": PROMPT,
}
"""The routes for text; others are further paths of these."""
URLS = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
DOORS = (*(f"gen serve {route}" for route in ROUTES), *(f"gen batch {url}" for url in URLS))

DYNATEMP, XTC = {"dynatemp_range": 0.3}, {"xtc_probability": 0.5}
WINDOW = {"dry_penalty_last_n": 48}  # llama-server's routes have another default
DRY = {"dry_multiplier": 0.8, **WINDOW}
PENALTY, SLOPE = {"repeat_penalty": 1.2}, {"rep_pen": 1.2, "rep_pen_slope": 0.7, "rep_pen_range": 32}
VALUES = {
    "temperature.t": (0.6, {}),
    "dynatemp.temperature": (0.6, DYNATEMP),
    "dynatemp.range": (0.4, {}),
    "dynatemp.exponent": (1.5, DYNATEMP),
    "quadratic.factor": (0.3, {}),
    "quadratic.curve": (1.5, {"smoothing_factor": 0.3}),
    "top_k.k": (7, {}),
    "top_p.p": (0.8, {}),
    "min_p.p": (0.1, {}),
    "top_a.a": (0.2, {}),
    "top_h.h": (0.4, {}),
    "typical.p": (0.7, {}),
    "tfs.z": (0.9, {}),
    "top_n_sigma.n": (1.5, {}),
    "epsilon_cutoff.epsilon": (3, {}),
    "eta_cutoff.epsilon": (6, {}),
    "xtc.probability": (0.4, {}),
    "xtc.threshold": (0.2, XTC),
    "skew.skew": (0.5, {}),
    "penalties.repeat": (1.2, {}),
    "penalties.presence": (0.3, {}),
    "penalties.frequency": (0.4, {}),
    "penalties.last_n": (16, PENALTY),
    "penalties.penalize_newline": (False, PENALTY),
    "repetition_penalty.penalty": (1.3, SLOPE),
    "repetition_penalty.range": (16, SLOPE),
    "repetition_penalty.slope": (0.9, SLOPE),
    "encoder_repetition_penalty.penalty": (1.1, {}),
    "no_repeat_ngram.n": (3, {}),
    "dry.multiplier": (0.7, WINDOW),
    "dry.base": (2.0, DRY),
    "dry.allowed_length": (4, DRY),
    "dry.last_n": (32, {"dry_multiplier": 0.8}),
    "dry.breakers": (["\n", "x"], DRY),
    "mirostat.tau": (4.0, {"mirostat": 1}),
    "mirostat.eta": (0.2, {"mirostat": 1}),
    "mirostat_v2.tau": (4.0, {"mirostat": 2}),
    "mirostat_v2.eta": (0.2, {"mirostat": 2}),
    "adaptive_p.target": (0.4, {}),
    "adaptive_p.decay": (0.8, {"adaptive_target": 0.4}),
    "min_tokens.n": (1, {}),
    "ban.tokens": ([5, 6], {}),
    "logit_bias.bias": ({"5": 1.5}, {}),
    "seed": (6, {}),
    "max_tokens": (3, {}),
    "stop": (["x", "yz"], {}),
    "ban_retries": (3, {"bans": ["x"]}),
}
"""A value for each parameter and setting, and the other fields without which it has no effect."""

SCHEMA = {"type": "string", "maxLength": 3}
FORMS = {
    "a grammar": [
        *({name: 'root ::= "a"'} for name in ("grammar", "grammar_string", "guided_grammar", "ebnf")),
        {"structured_outputs": {"grammar": 'root ::= "a"'}},
    ],
    "a schema": [
        *({name: SCHEMA} for name in ("json_schema", "guided_json")),
        {"structured_outputs": {"json": SCHEMA}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"text": {"format": {"type": "json_schema", "name": "short", "schema": SCHEMA}}},
    ],
    "a regex": [{"regex": "a+"}, {"guided_regex": "a+"}, {"structured_outputs": {"regex": "a+"}}],
    "choices": [{"guided_choice": ["a", "b"]}, {"structured_outputs": {"choice": ["a", "b"]}}],
    "banned phrases": [{"bans": ["x"]}, {"banned_strings": ["x"]}],
    "banned patterns": [{"bans": [{"regex": "x+"}]}, {"banned_regex": ["x+"]}],
    "guidance": [{"guidance": {"scale": 1.5}}, {"guidance_scale": 1.5}, {"cfg_scale": 1.5}],
    "a negative prompt": [
        {"guidance": {"scale": 1.5, "negative_prompt": "no"}},
        {"guidance": {"scale": 1.5}, "negative_prompt": "no"},
        {"guidance_scale": 1.5, "negative_prompt": "no"},
        {"cfg_scale": 1.5, "negative_prompt": "no"},
    ],
}
"""Settings whose names hold values of different forms."""
SLOPED = {"rep_pen": 1.2, "rep_pen_slope": 0.7}
RANGE_NAMES = {name for row in PARAMETERS if row.target == "penalties.last_n" for name in row.request_names}
FORMS |= {
    f"a slope over {length}": [SLOPED | {name: length} for name in sorted(RANGE_NAMES)] for length in (48, 0)
}
OF_ANY_TOOL = {"api_type": None}  # the meaning that each route has for clients of its tool
FORMS |= {
    f"{label} for any tool": [form | OF_ANY_TOOL for form in forms]
    for label, forms in FORMS.items()
    if label.startswith("a slope")
}
DIFFERS_BY_DOOR = {"a negative prompt"}
"""Chats write it with the chat template, and KoboldCpp before the prompt."""

NAMES = {row.target: row.request_names for row in PARAMETERS if row.request_names}
NAMES |= {name: request_names(setting.names) for name, setting in SETTINGS.items() if request_names(setting.names)}
SPELLINGS = {label: [(form, {}) for form in forms] for label, forms in FORMS.items()} | {
    target: [(context | {name: value}, context) for name in NAMES[target]]
    for target, (value, context) in VALUES.items()
}
"""For each setting: the fields of requests that set it, each with those that they need beside them."""


OF_CHATS = {
    *("enable_thinking", "reasoning_effort", "reasoning_budget_tokens", "thinking_budget_tokens"),
    *("thinking_token_budget", "reasoning_budget_message"),
}
"""Names that have a meaning for chats alone: tests/serve/test_messages.py."""


def test_no_name_is_forgotten():
    tested = {name for spellings in SPELLINGS.values() for fields, _ in spellings for name in fields}
    assert {name for names in NAMES.values() for name in names} <= tested | OF_CHATS


def body(opening, fields):
    """Return a body. A field that says the same as one of the usual ones takes its place."""
    same = {
        name
        for setting in ("max_tokens", "seed")
        if not fields.keys().isdisjoint(NAMES[setting])
        for name in NAMES[setting]
    }
    return opening | {name: value for name, value in USUAL.items() if name not in same} | fields


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The requests that reach the engine, or the errors: by door and fields."""
    folder = tmp_path_factory.mktemp("names")
    model = write_model(folder / "model.gguf", "llama", changes={"tokenizer.chat_template": TEMPLATE})
    asked = list(
        {
            key_of(fields): fields for spellings in SPELLINGS.values() for pair in spellings for fields in pair
        }.values()
    )
    return ask_server(model, folder, asked) | ask_batch(model, folder, asked)


def key_of(fields):
    return json.dumps(fields)


def ask_server(model, folder, asked):
    """Send each request to each route."""
    record = folder / "serve.jsonl"
    record.touch()
    arguments = ["serve", "--port", "0", "--slots", "1", "--log-format", "none"]
    with running(arguments, model, record) as process, record.open() as lines:
        port = next(
            int(match[1]) for line in process.stderr if (match := re.search(r"served at http\S+:(\d+)", line))
        )
        connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS_TO_WAIT)
        found = {}
        for route, opening in ROUTES.items():
            for fields in asked:
                connection.request("POST", route, json.dumps(body(opening, fields)))
                answer = connection.getresponse()
                text = answer.read().decode()
                found[f"gen serve {route}", key_of(fields)] = (
                    json.loads(lines.readline())[1] if answer.status == 200 else text
                )
        connection.close()
    return found


def ask_batch(model, folder, asked):
    """Answer a line of each URL for each request."""
    requests, record, results = (folder / name for name in ("requests.jsonl", "batch.jsonl", "results.jsonl"))
    places = [(url, fields) for url in URLS for fields in asked]
    requests.write_text(
        "".join(
            json.dumps({"custom_id": str(number), "method": "POST", "url": url, "body": body(ROUTES[url], fields)})
            + "\n"
            for number, (url, fields) in enumerate(places)
        )
    )
    with running(["batch", str(requests), "-o", str(results)], model, record) as process:
        process.stderr.read()
    outcome = {line["custom_id"]: line["error"] for line in map(json.loads, results.read_text().splitlines())}
    outcome |= {
        request_id: request for (request_id, _), request in map(json.loads, record.read_text().splitlines())
    }
    return {
        (f"gen batch {url}", key_of(fields)): outcome[str(number)] for number, (url, fields) in enumerate(places)
    }


@contextmanager
def running(arguments, model, record):
    """Run `gen` with a record of its requests while inside."""
    words = [sys.executable, "-m", "tests.requests.recorder", record, *arguments, "-m", model, "-t", "1"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS_TO_WAIT)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("setting", SPELLINGS)
def test_all_names_mean_the_same(recorded, setting, door):
    first_door = door if setting in DIFFERS_BY_DOOR else DOORS[0]
    expected = recorded[first_door, key_of(SPELLINGS[setting][0][0])]
    assert isinstance(expected, dict), expected
    for fields, _ in SPELLINGS[setting]:
        assert recorded[door, key_of(fields)] == expected, fields


@pytest.mark.parametrize("setting", SPELLINGS)
def test_the_value_counts(recorded, setting):
    for fields, needed in SPELLINGS[setting]:
        assert recorded[DOORS[0], key_of(fields)] != recorded[DOORS[0], key_of(needed)], fields
