"""`/v1/decisions` with OpenAI's client, beside other requests, and with bad and hostile input."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from logitsmith.decide import Decider, DecideSettings, Wording, decide, read_questions
from logitsmith.engine.model import Model
from logitsmith.requests.decision_fields import DecisionFields
from openai.types.decision import Decision

from ..engine.scripted_model import write_scripted_model
from .gen_serve import SECONDS_TO_WAIT, GenServe, parts_of_stream, post_bytes, run_async
from .test_reasoning import SCRIPT, TEMPLATE

TEXT = "I was charged twice this month, and nobody answers my mails!"
PREDICATE = {"type": "predicate", "name": "angry", "instructions": "The customer is angry."}
CHOICE = {
    "type": "choice",
    "instructions": "What is the message about?",
    "choices": [
        {"value": "billing"},
        {"value": "No", "description": "nothing"},
        {"value": "None"},
        {"value": True},
    ],
}
SCORE = {"type": "score", "instructions": "How urgent is it?", "levels": [{"label": "low"}, {"label": "high"}]}
QUESTIONS = [PREDICATE, CHOICE, SCORE]
MANY = [{"type": "predicate", "instructions": f"The message has more than {n} words."} for n in range(20)]
BODY = {"input": TEXT, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def model(pruned_model):
    with Model.load(pruned_model, n_ctx=4096, threads=1) as model:
        yield model


def check_answers(answers, expected):
    """Check that answers have the same numbers."""
    assert len(answers) == len(expected)
    for answer, other in zip(answers, expected, strict=True):
        assert {name: type(value) for name, value in answer.items()} == {
            name: type(value) for name, value in other.items()
        }
        for name in ("spellings", "orders", "name", "type"):
            assert answer.get(name) == other.get(name)
        assert answer["logprobs"] == pytest.approx(other["logprobs"], abs=1e-4)
        shares = [[each["probability"] for each in one.get("probabilities", [one])] for one in (answer, other)]
        assert shares[0] == pytest.approx(shares[1], abs=1e-4)


SETTINGS = {
    "plain": {},
    "orders and a prior": {"permutations": 3, "prior": "", "min_confidence": 0.9},
    "a grammar": {"method": "grammar"},
    "a template": {
        "prompt_template": "{{ input }}\n{{ question }} {{ options | map(attribute='label') | join(', ') }}"
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_numbers_are_those_of_decide(client, model, settings):
    decision = client.decisions.create(model="pruned", input=TEXT, questions=QUESTIONS, extra_body=settings)
    record = decision.model_dump()
    Decision.model_validate(record, strict=True)
    options = {name: value for name, value in settings.items() if name != "prompt_template"}
    template = {"template": settings["prompt_template"]} if "prompt_template" in settings else {}
    decider = Decider(
        model, read_questions(QUESTIONS), DecideSettings(Wording.for_model(model, **template), **options)
    )
    (outcome,) = decide(decider, [TEXT], 4)
    check_answers(record["answers"], [answer.as_json() for answer in outcome.decision.answers])
    usage, expected = record["usage"], outcome.decision.usage
    assert (usage["input_tokens"], usage["option_tokens"]) == (expected.input_tokens, expected.option_tokens)
    assert usage["input_tokens_details"]["cached_tokens"] >= expected.cached_tokens - 32
    assert record["model"] == "pruned"
    assert record["x_gen"] == {"ignored": [], "exactness": str(outcome.decision.exactness)}


def test_many_clients_at_the_same_time(server, client):
    alone = client.decisions.create(model="", **BODY).model_dump()["answers"]

    async def ask_all():
        async with openai.AsyncOpenAI(
            base_url=f"{server.address}/v1", api_key="-", timeout=SECONDS_TO_WAIT, max_retries=0
        ) as clients:
            return await asyncio.gather(*(clients.decisions.create(model="", **BODY) for _ in range(6)))

    for decision in run_async(ask_all()):
        check_answers(decision.model_dump()["answers"], alone)


CALL = {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city": "Oslo"}'}
INPUTS = {
    "a text": ("Hi", "Hi"),
    "one message": ([{"role": "user", "content": "Hi"}], "Hi"),
    "parts": (
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Hi"},
                    {"type": "input_json", "data": {"é": [1, None]}},
                ],
            }
        ],
        'Hi\n\n{"é": [1, null]}',
    ),
    "one system message": ([{"role": "system", "content": "Hi"}], "system: Hi"),
    "a chat": (
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Yes?"}], "phase": "final_answer"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ],
        "developer: Be brief.\n\nuser: Hi\n\nassistant: Yes?\n\nassistant: No.",
    ),
    "a function": (
        [
            CALL,
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "rain"}]},
        ],
        'assistant calls weather: {"city": "Oslo"}\n\nresult of weather: rain',
    ),
    "a tool of one's own": (
        [
            {"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": ""},
        ],
        "assistant calls sh: ls\n\nresult of sh: ",
    ),
}


@pytest.mark.parametrize(("given", "text"), INPUTS.values(), ids=INPUTS)
def test_an_input_becomes_one_text(given, text):
    assert DecisionFields.model_validate({"input": given, "questions": []}).input_text() == text


def test_parts_of_a_question_become_its_text(server):
    parts = [{"type": "input_text", "text": "Is it so?"}, {"type": "input_json", "data": [{"a": 1}]}]
    texts = ["Is it so?\n\n" + '[{"a": 1}]', parts]
    answers = [
        server.post("/v1/decisions", {"input": "Hi", "questions": [{"type": "predicate", "instructions": text}]})
        for text in texts
    ]
    assert [status for status, _ in answers] == [200, 200]
    check_answers(*(answer["answers"] for _, answer in answers))


def choice(*values, **fields):
    return {"type": "choice", "instructions": "Which?", "choices": list(values), **fields}


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}"
IMAGE = {"type": "input_image", "image_url": "https://example.org/a.png"}
BAD = {
    "no input": ({"input": None}, "input", "the field is missing"),
    "no items": ({"input": []}, "input", "there are 0 items; the minimum is 1"),
    "no questions": ({"questions": []}, "questions", "1 to 400"),
    "too many questions": ({"questions": [PREDICATE] * 401}, "questions", "1 to 400"),
    "a text as question": ({"questions": ["Is it?"]}, "questions[0]", "not a table"),
    "a wrong type": ({"questions": [{"type": "rank", "instructions": "a"}]}, "questions[0].type", "'rank'"),
    "no instructions": ({"questions": [{"type": "predicate"}]}, "questions[0]", "instructions"),
    "one option": ({"questions": [PREDICATE, choice("a")]}, "questions[1].choices", "2 to 255"),
    "equal options": (
        {"questions": [choice({"value": "x"}, {"value": "'X '"})]},
        "questions[0].choices[1].value",
        "equal",
    ),
    "an option without value": ({"questions": [choice("a", {"label": "b"})]}, "questions[0].choices[1]", "value"),
    "a level that is no text": (
        {"questions": [{"type": "score", "instructions": "a", "levels": [{"label": 1}, {"label": "b"}]}]},
        "questions[0].levels[0].label",
        "not a text",
    ),
    "two questions of one name": ({"questions": [PREDICATE, PREDICATE]}, "questions[1].name", "'angry'"),
    "an image": ({"input": [{"role": "user", "content": [IMAGE]}]}, "input", "read text only"),
    "an image in a question": (
        {"questions": [{"type": "predicate", "instructions": [IMAGE]}]},
        "questions[0].instructions[0]",
        "read text only",
    ),
    "a result without a call": (
        {"input": [{"type": "function_call_output", "call_id": "1", "output": "a"}]},
        "input[0].call_id",
        "no earlier call",
    ),
    "a call without arguments": ({"input": [{**CALL, "arguments": None}]}, "input", "arguments"),
    "another item": ({"input": [{"type": "reasoning"}]}, "input", "not one of"),
    "a role that is none": ({"input": [{"role": "nobody", "content": "a"}]}, "input", "input[0].role: 'nobody'"),
    "a long input": ({"input": "sea " * 9000}, "input", "4,096"),
    "a long option": ({"questions": [choice("a", "sea " * 5000)], "prompt_template": "a"}, "input", "4,096"),
    "a wrong method": ({"method": "guess"}, "method", "sequence"),
    "no order": ({"permutations": 0}, "permutations", "1"),
    "too many orders": ({"questions": [choice(*"abcdefgh")] * 5, "permutations": 1000}, "permutations", "4,096"),
    "a confidence of 2": ({"min_confidence": 2}, "min_confidence", "1"),
    "a negative budget": ({"reasoning_budget": -1}, "reasoning_budget", "0"),
    "a template that is not valid": ({"prompt_template": "{% if %}"}, "prompt_template", "template"),
    "a template that loops": ({"prompt_template": LOOP}, "prompt_template", "stopped"),
    "a template that grows": ({"prompt_template": "{{ 'a' * 999999999 }}"}, "prompt_template", "template"),
    "a template that looks around": (
        {"prompt_template": "{{ input.__class__.__mro__ }}"},
        "prompt_template",
        "template",
    ),
    "a template without text": ({"prompt_template": "{{ raise_exception('no') }}"}, "prompt_template", "no"),
    "a slip": ({"permutation": 2}, "permutation", "did you mean permutations?"),
    "a slip in a question": (
        {"questions": [{"type": "predicate", "instruction": "a"}]},
        "questions[0].instruction",
        "did you mean instructions?",
    ),
    "a slip in an option": (
        {"questions": [choice({"value": "a", "descripton": "b"}, "c")]},
        "questions[0].choices[0].descripton",
        "did you mean description?",
    ),
}


@pytest.mark.parametrize(("fields", "param", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_an_error_soon(server, fields, param, words):
    start = time.monotonic()
    status, answer = server.post("/v1/decisions", BODY | fields)
    assert (status, answer["error"]["param"]) == (400, param), answer
    assert words in answer["error"]["message"]
    is_too_long = param == "input" and "4,096" in words
    assert answer["error"]["code"] == ("context_length_exceeded" if is_too_long else None)
    assert time.monotonic() - start < 30


def test_fields_without_effect_are_named_and_counted(server):
    start = len(server.lines)
    fields = {
        "model": "pruned:default",
        "temperature": 1,
        "prompt_cache_options": {"ttl": "30m"},
        "prompt_cache_key": "a label, which no route names",
        "reasoning_budget": 5,  # the model does not think
        "input": [{"role": "user", "content": "Hi", "detail": "low"}],
        "questions": [PREDICATE | {"choices": [], "x": 1}, choice({"value": "a", "label": "b", "y": 1}, "c")],
    }
    names = [
        *("temperature", "prompt_cache_options", "input[0].detail", "questions[0].x"),
        *("questions[1].choices[0].y", "model", "questions[0].choices", "questions[1].choices[0].label"),
        "reasoning_budget",
    ]
    status, headers, answer = server.request("POST", "/v1/decisions", fields)
    assert status == 200, answer
    assert answer["x_gen"]["ignored"] == names
    assert headers["x-gen-ignored"] == ", ".join(names)
    tokens = answer["usage"]["input_tokens"]
    server.wait_for(rf"POST /v1/decisions 200 {tokens}\+0 tokens .*ignored: temperature", start)
    metrics = server.request("GET", "/metrics")[2]
    assert 'gen_requests_total{route="/v1/decisions",status="200"}' in metrics
    assert 'gen_prompt_tokens_total{route="/v1/decisions"}' in metrics


def test_an_unknown_preset_of_the_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="unknown preset 'nothing'"):
        client.decisions.create(model="pruned:nothing", **BODY)
    assert client.decisions.create(model="another-pruned:nothing", **BODY).answers


def test_a_stream_beside_a_decision_has_its_own_tokens(server):
    stream = {"prompt": "The sea was", "max_tokens": 60, "seed": 3, "ignore_eos": True, "stream": True}

    def text():
        status, content = server.post("/v1/completions", stream)
        assert status == 200
        return "".join(part["choices"][0]["text"] for part in parts_of_stream(content))

    alone = text()
    with ThreadPoolExecutor(2) as pool:
        decision = pool.submit(server.post, "/v1/decisions", {"input": TEXT, "questions": MANY})
        texts = [pool.submit(text) for _ in range(3)]
        assert [each.result() for each in texts] == [alone] * 3
        status, answer = decision.result()
    assert (status, len(answer["answers"])) == (200, 20)


def options(count):
    return [{"value": f"option number {n}", "description": "d" * 40} for n in range(count)]


LARGEST = [choice(*options(255), name=f"q{n}") for n in range(400)]
LARGEST_BODY = {"input": TEXT, "questions": LARGEST, "prompt_template": "{{ input }} {{ question }}"}


def test_a_client_that_leaves_frees_its_slots(server):
    """The largest questions of all begin soon, too, and other clients need not wait for them."""
    server.wait_until_no_text_runs()
    start = len(server.lines)
    with server.connect() as client:
        client.sendall(post_bytes(json.dumps(LARGEST_BODY).encode(), "/v1/decisions"))
        server.wait_until(lambda: server.counts_of_texts()[0] > 0)
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
    server.wait_for("POST /v1/decisions 499", start)
    server.assert_all_slots_are_free(4)


@pytest.fixture(scope="module")
def small(pruned_model):
    """A server on which no request can wait."""
    with GenServe("--slots", "1", "--queue", "0", "--strict-fields", model=pruned_model) as server:
        yield server


def test_a_full_queue_refuses_a_decision_and_lets_one_end_that_has_begun(small):
    with small.start_stream():
        status, answer = small.post("/v1/decisions", BODY)
        assert (status, answer["error"]["code"]) == (503, "unavailable")
    small.wait_until_no_text_runs()
    with ThreadPoolExecutor(1) as pool:
        decision = pool.submit(small.post, "/v1/decisions", {"input": TEXT, "questions": MANY})
        small.wait_until(lambda: small.counts_of_texts() != (0, 0))  # or the queue could refuse the decision
        statuses = set()
        while not decision.done():
            statuses.add(small.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0])
        assert decision.result()[0] == 200
    assert 503 in statuses


def test_another_request_stops_a_decision(small):
    small.wait_until_no_text_runs()
    with ThreadPoolExecutor(1) as pool:
        decision = pool.submit(small.post, "/v1/decisions", LARGEST_BODY)
        while not decision.done():
            small.post("/v1/internal/stop-generation", {})
        status, answer = decision.result()
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    assert "stopped" in answer["error"]["message"]


def test_a_strict_server_takes_no_field_of_another_question(small):
    status, answer = small.post("/v1/decisions", BODY | {"questions": [PREDICATE | {"levels": []}]})
    assert (status, answer["error"]["param"]) == (400, "questions[0].levels")


@pytest.mark.slow
def test_the_limit_of_time_and_the_end_of_the_server(pruned_model):
    with GenServe("--slots", "2", "--timeout", "3", "--grace", "0", model=pruned_model) as server:
        status, answer = server.post("/v1/decisions", LARGEST_BODY)
        assert (status, answer["error"]["code"]) == (503, "timeout")
        server.wait_until_no_text_runs()
        with ThreadPoolExecutor(1) as pool:
            decision = pool.submit(server.post, "/v1/decisions", LARGEST_BODY)
            server.wait_until(lambda: server.counts_of_texts()[0] > 0)
            server.stop()
            status, answer = decision.result()
    assert (status, answer["error"]["message"]) == (503, "the server is stopping")


def test_a_model_thinks_before_it_decides(tmp_path):
    path = write_scripted_model(tmp_path / "model.gguf", [SCRIPT], TEMPLATE)
    with GenServe("--slots", "2", model=path) as server:
        body = {"input": "Hi", "questions": [choice("yes.", "hm"), choice("hm", "yes.")], "reasoning_budget": 9}
        status, answer = server.post("/v1/decisions", body)
        assert status == 200, answer
        assert [one["reasoning"] for one in answer["answers"]] == [["hm"], ["hm"]]
        assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        assert answer["x_gen"]["ignored"] == []
        _, plain = server.post("/v1/decisions", body | {"reasoning_budget": 0})
        assert "reasoning" not in plain["answers"][0]
