"""Which prompts become the message of a chat: those of short lines, never those of a route for completions."""

import pytest
from logitsmith.common.errors import InvalidFieldError
from logitsmith.engine import ChatMessages
from logitsmith.requests.asked import ask
from logitsmith.requests.errors import InvalidLineError
from logitsmith.requests.fields import ChatFields, PromptFields, read_body
from logitsmith.requests.forced import read_forced
from logitsmith.requests.lines import read_request_line
from logitsmith.requests.resolve import CHAT_TEMPLATE_KEY, RequestDefaults, RequestResolver

SYSTEM = {"system": "Be brief."}
TURN = {"role": "user", "content": "Hi"}
PROMPT, MESSAGES = {"prompt": "Hi"}, {"messages": [TURN]}
KIND, GUIDED = {"preset": "./kind.yaml"}, {"preset": "./guided.yaml"}


@pytest.fixture(autouse=True)
def presets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kind.yaml").write_text("chain: greedy\nsystem: Be kind.\n")
    (tmp_path / "quick.yaml").write_text("chain: greedy\nreasoning_effort: none\n")
    (tmp_path / "guided.yaml").write_text("chain: greedy\nguidance: {negative_prompt: Be rude.}\n")


def ask_server(body):
    fields, ignored = read_body(ChatFields if "messages" in body else PromptFields, body, is_strict=False)
    return ask(fields, ignored)


def ask_line(body):
    url = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    return read_request_line({"custom_id": "a", "method": "POST", "url": url, "body": body}, 1).asked


def ask_short_line(body):
    return read_request_line(body, 1).asked


def resolve(asked, defaults):
    """Return the prompt of the request, and the fields without effect."""
    resolver, unused = RequestResolver(defaults, {}, print), list(asked.ignored)
    (request,) = resolver.requests(asked, resolver.settings(asked, unused), 0)
    return request.prompt, unused


DOORS = pytest.mark.parametrize(("door", "place"), [(ask_server, ""), (ask_line, "body.")], ids=["serve", "batch"])


@DOORS
@pytest.mark.parametrize("field", [{"chat_template": "chatml"}, {"chat_template_kwargs": {"mood": 1}}], ids=str)
def test_a_completion_has_no_template(door, place, field):
    with pytest.raises((InvalidFieldError, InvalidLineError)) as caught:
        door(PROMPT | field)
    problem = "a prompt gets no chat template; send messages to /v1/chat/completions"
    assert str(caught.value) == f"{place}{next(iter(field))}: {problem}"


@DOORS
@pytest.mark.parametrize("settings", [SYSTEM, ["system=Be brief."]], ids=str)
def test_a_system_message_among_settings_has_no_effect(door, place, settings):
    unused = [f"{place}set.system"]
    assert resolve(door({**PROMPT, "set": settings}), RequestDefaults()) == ("Hi", unused)
    assert resolve(door({**MESSAGES, "set": settings}), RequestDefaults()) == (ChatMessages([TURN]), unused)


@DOORS
def test_a_completion_is_never_a_chat(door, place):
    for defaults in (RequestDefaults(), RequestDefaults(uses_chat_template=True)):
        assert resolve(door(PROMPT | KIND), defaults) == ("Hi", [])


def test_flags_without_effect_on_a_completion_are_named():
    defaults = RequestDefaults(uses_chat_template=True)
    assert defaults.flags_without_effect(ask_line(PROMPT)) == ["--chat for a prompt of /v1/completions"]
    assert (
        defaults.flags_without_effect(ask_line(MESSAGES))
        == defaults.flags_without_effect(ask_short_line(PROMPT))
        == []
    )


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        (PROMPT | SYSTEM, [{"role": "system", "content": "Be brief."}, TURN]),
        (PROMPT | {"set": SYSTEM}, [{"role": "system", "content": "Be brief."}, TURN]),
        (PROMPT | KIND, [{"role": "system", "content": "Be kind."}, TURN]),
        (PROMPT | {"chat_template_kwargs": {}}, [TURN]),
        (MESSAGES | KIND, [TURN]),
    ],
    ids=str,
)
def test_a_prompt_of_a_short_line_is_a_chat(line, messages):
    prompt, unused = resolve(ask_short_line(line), RequestDefaults())
    assert (prompt.messages, unused) == (messages, [])


@pytest.mark.parametrize("system", [SYSTEM, {"set": SYSTEM}, {"set": ["system=Be brief."]}], ids=str)
def test_a_system_message_of_a_short_line_needs_a_prompt_of_text(system):
    with pytest.raises(InvalidLineError, match="system and messages exclude each other"):
        ask_short_line(MESSAGES | system)
    with pytest.raises(InvalidLineError, match="system: not used with a prompt of token ids"):
        ask_short_line({"prompt": [1]} | system)


@DOORS
def test_a_negative_prompt_without_effect_leaves_that_of_the_preset(door, place):
    resolver, unused = RequestResolver(RequestDefaults(), {}, print), []
    settings = resolver.settings(door(PROMPT | GUIDED | {"negative_prompt": "Be slow."}), unused)
    assert unused == [f"{place}negative_prompt"]
    assert settings["guidance"] == resolver.settings(door(PROMPT | GUIDED), [])["guidance"]
    assert settings["guidance"].value == {"negative_prompt": "Be rude."}


@DOORS
def test_a_budget_without_a_reasoning_is_named_with_its_message(door, place):
    fields = {"reasoning_budget_tokens": 5, "reasoning_budget_message": "So:"}
    assert resolve(door(MESSAGES | fields), RequestDefaults())[1] == [f"{place}{name}" for name in fields]


SWITCHES = "{{ enable_thinking }}{{ reasoning_effort }}"
FORCED = RequestDefaults(forced=read_forced(["enable_thinking=false"]))
ON = {"chat_template_kwargs": {"enable_thinking": True}}
OVERRULED = ["chat_template_kwargs.enable_thinking"]
# Each row: fields of a request with a preset for no thinking, the variables of the template, and what is ignored
VARIABLES = {
    "the preset": ({}, RequestDefaults(), {"enable_thinking": False}, []),
    "a variable before the preset": (ON, RequestDefaults(), {"enable_thinking": True}, []),
    "another switch before the preset": (
        {"enable_thinking": True},
        RequestDefaults(),
        {"enable_thinking": True},
        [],
    ),
    "a variable beside a switch": (
        ON | {"reasoning_effort": "low"},
        RequestDefaults(),
        {"enable_thinking": True, "reasoning_effort": "low"},
        [],
    ),
    "a forced switch before a variable": (ON, FORCED, {"enable_thinking": False}, OVERRULED),
}


@pytest.mark.parametrize(("fields", "defaults", "variables", "ignored"), VARIABLES.values(), ids=VARIABLES)
def test_what_switches_the_reasoning(fields, defaults, variables, ignored):
    resolver, unused = RequestResolver(defaults, {CHAT_TEMPLATE_KEY: SWITCHES}, print), []
    asked = ask_server(MESSAGES | {"preset": "./quick.yaml"} | fields)
    (request,) = resolver.requests(asked, resolver.settings(asked, unused), 0)
    assert (request.prompt.variables, unused) == (variables, ignored)
