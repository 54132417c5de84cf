"""The reasoning in answers of chats and of `/v1/responses`, from a model that is known to think."""

import os
from pathlib import Path

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from ..browser import expect
from ..engine.scripted_model import write_scripted_model
from .gen_serve import GenServe, parts_of_stream
from .page_driver import PageDriver

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n\n{% endif %}{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}<A>{% if enable_thinking is false %}<think></think>\n\n{% endif %}"
    "{% endif %}"
)
CONTINUED = ["so", " it", "</think>", "\n\n", "yes"]
SCRIPT = ["<A>", "<think>", "\n", "hm", "</think>", "\n\n", "yes", ".", "<end>"]
WHOLE = "<think>\nhm</think>\n\nyes."
QUESTION = [{"role": "user", "content": "Hi"}]
BODY = {"messages": QUESTION, "temperature": 0, "max_tokens": 20, "logprobs": True}
THOUGHT = {"content": "yes.", "reasoning_content": "hm"}
MESSAGES = {
    "auto": ({}, THOUGHT),
    "auto, given": ({"reasoning_format": "auto"}, THOUGHT),
    "deepseek": ({"reasoning_format": "deepseek"}, THOUGHT),
    "none": ({"reasoning_format": "none"}, {"content": WHOLE}),
    "in both": ({"reasoning_format": "deepseek-legacy"}, {"content": WHOLE, "reasoning_content": "hm"}),
    "cut in the reasoning": ({"max_tokens": 3}, {"content": "", "reasoning_content": "hm"}),
    "a budget": ({"reasoning_budget_tokens": 1}, {"content": "yes."}),
    "a grammar": ({"grammar": 'root ::= "yes"'}, {"content": "yes", "reasoning_content": "hm"}),
    "a regex": ({"guided_regex": "yes[.]"}, THOUGHT),
}


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    path = write_scripted_model(tmp_path_factory.mktemp("thinking") / "model.gguf", [SCRIPT, CONTINUED], TEMPLATE)
    with GenServe(model=path) as server:
        yield server


def message_of_stream(chunks):
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    message = {"content": "".join(delta.get("content") or "" for delta in deltas)}
    reasoning = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    return message | ({"reasoning_content": reasoning} if reasoning else {})


@pytest.mark.parametrize(("fields", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_has_its_reasoning_whole_and_streamed(thinking, fields, expected):
    status, answer = thinking.post("/v1/chat/completions", BODY | fields)
    assert status == 200, answer
    choice = answer["choices"][0]
    message = {
        name: choice["message"][name] for name in ("content", "reasoning_content") if name in choice["message"]
    }
    assert message == expected
    parts = [entry["part"] for entry in choice["logprobs"]["content"]]
    assert parts == sorted(parts, reverse=True)  # the reasoning first
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": parts.count("reasoning")}
    _, _, stream = thinking.request("POST", "/v1/chat/completions", BODY | fields | {"stream": True})
    assert message_of_stream(chunk for chunk in parts_of_stream(stream) if isinstance(chunk, dict)) == expected


def test_a_continued_reasoning_goes_on_with_its_blanks(thinking):
    messages = [*QUESTION, {"role": "assistant", "content": "", "reasoning_content": "so"}]
    _, answer = thinking.post("/v1/chat/completions", BODY | {"messages": messages})
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (" it", "yes.")


def test_another_format_is_refused(thinking):
    status, answer = thinking.post("/v1/chat/completions", BODY | {"reasoning_format": "tags"})
    assert (status, answer["error"]["param"]) == (400, "reasoning_format")


def test_completions_stay_one_text(thinking):
    _, answer = thinking.post("/v1/completions", {"prompt": "<A>", "max_tokens": 20, "temperature": 0})
    assert answer["choices"][0]["text"] == WHOLE


# Each row: the maximum number of tokens, the items of the reasoning and of the message
ITEMS = {
    "complete": (20, ("hm", "completed"), ("yes.", "completed")),
    "cut in the answer": (6, ("hm", "completed"), ("yes", "incomplete")),
    "cut before the text of the answer": (5, ("hm", "incomplete"), ("", "incomplete")),
    "cut after the reasoning": (4, ("hm", "incomplete"), ("", "incomplete")),
    "cut in the reasoning": (3, ("hm", "incomplete"), ("", "incomplete")),
    "cut before the reasoning": (1, ("", "incomplete")),
}


@pytest.mark.parametrize(("max_tokens", "expected"), [(row[0], row[1:]) for row in ITEMS.values()], ids=ITEMS)
def test_a_response_has_an_item_of_reasoning_before_the_message(thinking, max_tokens, expected):
    body = {"input": "Hi", "temperature": 0, "max_output_tokens": max_tokens}
    status, whole = thinking.post("/v1/responses", body)
    assert status == 200, whole
    TypeAdapter(Response).validate_python(whole)
    items = whole["output"]
    assert [item["type"] for item in items] == ["reasoning", "message"][-len(items) :]
    assert tuple((item["content"][0]["text"], item["status"]) for item in items) == expected
    assert whole["status"] == items[-1]["status"]
    _, _, stream = thinking.request("POST", "/v1/responses", body | {"stream": True})
    events = parts_of_stream(stream)
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    ended = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert ended == events[-1]["response"]["output"]
    assert [(item["content"], item["status"]) for item in ended] == [
        (item["content"], item["status"]) for item in items
    ]
    for item, name in zip(items, ["reasoning_text", "output_text"][-len(items) :], strict=True):
        deltas = (event["delta"] for event in events if event["type"] == f"response.{name}.delta")
        assert "".join(deltas) == item["content"][0]["text"]


def test_without_thinking_the_answer_has_no_reasoning(thinking):
    _, answer = thinking.post("/v1/chat/completions", BODY | {"enable_thinking": False, "max_tokens": 1})
    assert "reasoning_content" not in answer["choices"][0]["message"]
    assert answer["choices"][0]["logprobs"]["content"][0]["part"] == "answer"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"reasoning_effort": "none", "enable_thinking": True}, ["enable_thinking"], id="the effort wins"
        ),
        pytest.param({"reasoning_effort": "none", "enable_thinking": False}, [], id="both agree"),
    ],
)
def test_a_switch_that_another_one_overrules_is_listed(thinking, fields, expected):
    _, answer = thinking.post("/v1/chat/completions", BODY | fields | {"max_tokens": 1})
    assert answer["x_gen"]["ignored"] == expected


@pytest.mark.parametrize("fields", [{}, {"reasoning_budget_tokens": 1}], ids=["plain", "a budget"])
def test_a_budget_before_the_reasoning_has_no_command(thinking, fields):
    """Without a template, the budget would count from the first token."""
    _, answer = thinking.post("/v1/chat/completions", BODY | fields)
    assert (answer["x_gen"]["command"] is None) == bool(fields)


@pytest.mark.parametrize("fields", [{"max_tokens": 3}, {"grammar": 'root ::= "yes"'}])
def test_a_prompt_of_tokens_says_where_the_answer_begins(thinking, fields):
    _, prompt = thinking.post("/tokenize", {"content": "user:Hi<A><think>\nhm"})
    body = {"prompt": prompt["tokens"], "answer_start": len("user:Hi") + 1, "temperature": 0, "stream": False}
    _, answer = thinking.post("/gen/generate", body | fields)
    lines = answer["lines"]
    assert (lines[-1]["text"], lines[-1]["reasoning"]) == ("yes", "")
    assert (lines[1]["part"], lines[-2]["part"]) == ("reasoning", "answer")
    assert (lines[0]["command"] is None) == ("grammar" in fields)


def test_the_page_folds_the_reasoning_of_an_answer(thinking, shared_context):
    page = PageDriver(shared_context, thinking.address)
    page.get_by_role("checkbox", name="Chat template").check()
    page.get_by_role("textbox", name="Message 1").fill("Hi")
    page.settle()
    page.set("Tokens", 3)
    page.generate()
    page.set("Tokens", 20)
    page.grammar.fill('root ::= "yes"')
    page.settle()
    page.generate()
    assert page.value() == "user:Hi<A><think>\nhm</think>\n\nyes"
    fold = page.get_by_role("button", name="Thought, 5 tokens")
    expect(fold).to_have_attribute("aria-expanded", "false")
    assert page.names()[-3:] == ["i", "<A>", "yes"]
    page.items.last.get_by_role("button").press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "<A>"
    fold.click()
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / "thought.png")
    assert page.names()[-6:] == ["<think>", "newline", "hm", "</think>", "newline newline", "yes"]
    page.press("Keep answer")
    expect(page.get_by_role("textbox", name="Message 2", exact=True)).to_have_value("yes")
    page.get_by_text("Thought, 5 tokens").first.click()
    expect(page.get_by_role("textbox", name="Thought of message 2")).to_have_value("hm")
    page.settle()
    assert page.value().endswith("<think>hm</think>\n\nyes")
    assert page.errors == []
    page.close()
