"""The requests that lines of a batch ask for."""

import pytest
from logitsmith.requests.errors import InvalidLineError
from logitsmith.requests.lines import read_request_line
from logitsmith.requests.resolve import RequestDefaults, RequestResolver

from .setting_values import VALUES

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def line(url):
    body = {"input": "Hi"} if "responses" in url else CHAT if "chat" in url else {"prompt": "Hi"}
    return {"custom_id": "a", "method": "POST", "url": url, "body": body}


URLS = (
    *("/v1/chat/completions", "/v1/completions", "/chat/completions", "/completions", "chat/completions"),
    *("/v1/chat/completions/", "https://api.openai.com/v1/chat/completions", "http://127.0.0.1:8080/completions"),
    "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
    "https://x.openai.azure.com/openai/deployments/gpt/completions?api-version=2024-10-21",
    *("/v1/responses", "/responses", "https://api.openai.com/v1/responses"),
)


@pytest.mark.parametrize("url", URLS)
def test_urls_of_openai_and_azure(url):
    asked = read_request_line(line(url), 1).asked
    is_chat = "chat" in url or "responses" in url
    assert (asked.messages is not None, asked.prompts) == (is_chat, () if is_chat else ("Hi",))
    assert (asked.repeated_fields is not None) == ("responses" in url)


REFUSED = (
    *("/v1/embeddings", "/v1/moderations", "/v1/responses/compact"),
    *("/v1/chat/completions/x", "/v1/xcompletions", ""),
)


@pytest.mark.parametrize("url", REFUSED)
def test_urls_that_are_not_answered(url):
    with pytest.raises(InvalidLineError) as caught:
        read_request_line(line(url), 1)
    message = str(caught.value)
    assert message.startswith("url: ")
    assert repr(url) in message
    assert "/v1/chat/completions, /v1/completions and /v1/responses" in message


def test_a_body_sets_the_minimum_of_tokens():
    body = {"prompt": "The sea", "max_tokens": 40, "min_tokens": 20.0}
    record = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    resolver = RequestResolver(RequestDefaults(), {}, print)
    settings = resolver.settings(read_request_line(record, 1).asked, [])
    assert settings["max_tokens"].value == 40
    assert [step.sampler.n for step in settings.steps if step.name == "min_tokens"] == [20]


def test_a_short_line_takes_every_setting():
    floats = {"ban_retries": 3.0, "loop_guard": {"action": "stop", "repeats": 4.0}, "guidance": {"scale": 2.0}}
    asked = read_request_line({"prompt": "a", **VALUES, **floats}, 1).asked
    integers = {"ban_retries": 3, "loop_guard": {"action": "stop", "repeats": 4}, "guidance": {"scale": 2}}
    assert {override.target: override.value for override in asked.overrides} == VALUES | integers
    asked = read_request_line({"prompt": "a", "set": floats}, 1).asked
    assert repr({override.target: override.value for override in asked.overrides}) == repr(integers)


@pytest.mark.parametrize("name", ["grammar", "set"])
def test_numbers_of_a_schema_are_as_written(name):
    grammar = {"json_schema": {"maximum": 1.0}}
    record = {"prompt": "a", name: grammar if name == "grammar" else {"grammar": grammar}}
    (override,) = read_request_line(record, 1).asked.overrides
    assert repr(override.value) == "{'json_schema': {'maximum': 1.0}}"
