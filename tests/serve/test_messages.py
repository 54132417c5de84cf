"""What a chat template reads of the messages that clients send, and numbers that clients write as floats."""

import pytest

from .routes import CHAT, PROMPT, QUESTION

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
READING = (
    "{% for m in messages %}{{ m.role }}({{ m.reasoning_content }}|{{ m.content }}|{{ m.name }}|"
    "{{ m.tool_call_id }}|"
    "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}){% endfor %}"
)
HELLO, THOUGHT = {"type": "text", "text": "Hello"}, {"type": "text", "text": "Hm"}
# Each row: a message of the assistant, and what the template shows of it.
ANSWERS = {
    "reasoning_content": ({"content": "Hello", "reasoning_content": "Hm"}, "(Hm|Hello|||)"),
    "reasoning": ({"content": "Hello", "reasoning": "Hm"}, "(Hm|Hello|||)"),
    "both": ({"content": "Hello", "reasoning_content": "Hm", "reasoning": "Hm"}, "(Hm|Hello|||)"),
    "a part of Anthropic's": ({"content": [{"type": "thinking", "thinking": "Hm"}, HELLO]}, "(Hm|Hello|||)"),
    "a part of Mistral's": ({"content": [{"type": "thinking", "thinking": [THOUGHT]}]}, "(Hm||||)"),
    "a call": ({"content": None, "tool_calls": [CALL]}, '(||||f{"a": 1})'),
    "a call without JSON": ({"tool_calls": [{"function": {"name": "f", "arguments": "x"}}]}, '(||||f"x")'),
    "a name": ({"content": "Hello", "name": "Ann"}, "(|Hello|Ann||)"),
}


def apply(server, *messages, **fields):
    """Return the answer to messages under the template."""
    status, answer = server.post("/apply-template", {"messages": messages, "chat_template": READING} | fields)
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(("message", "shown"), ANSWERS.values(), ids=ANSWERS)
def test_a_template_reads_what_clients_send_back(server, message, shown):
    answer = apply(server, QUESTION, {"role": "assistant", **message}, QUESTION)
    assert answer == {"prompt": f"user(|Hi|||)assistant{shown}user(|Hi|||)"}


def test_other_reasoning_and_reasoning_of_a_continued_message_are_named(server):
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "Hm", "reasoning": "So"}
    assert apply(server, QUESTION, message, QUESTION)["x_gen"]["ignored"] == ["messages[1].reasoning"]
    assert apply(server, QUESTION, message | {"reasoning": None}) == {
        "prompt": "user(|Hi|||)Hello",
        "x_gen": {"ignored": ["messages[1].reasoning_content"]},
    }


def test_a_switch_that_the_template_reads_is_not_named(server):
    fields = {
        "chat_template": READING + "{{ enable_thinking }}",
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert apply(server, QUESTION, **fields) == {"prompt": "user(|Hi|||)False"}


SWITCHES = READING + "{{ enable_thinking }} {{ reasoning_effort }} <think></think>"
ONLY_EFFORT = READING + "{{ reasoning_effort }}{# no_think #}"
NO_SWITCHES = READING + "<think></think>"
# Each row: a template, fields, what the template shows of the switches, and the fields without effect.
THINKING = {
    "off": (SWITCHES, {"enable_thinking": False}, "False ", []),
    "off as Anthropic says it": (SWITCHES, {"thinking": {"type": "disabled"}}, "False ", []),
    "off by the effort": (SWITCHES, {"reasoning_effort": "none"}, "False ", []),
    "off by --set": (SWITCHES, {"set": {"enable_thinking": False}}, "False ", []),
    "off as a variable": (SWITCHES, {"chat_template_kwargs": {"enable_thinking": False}}, "False ", []),
    "on": (SWITCHES, {"enable_thinking": True}, "True ", []),
    "an effort": (SWITCHES, {"reasoning_effort": "low"}, "True low", []),
    "an effort in a table": (SWITCHES, {"reasoning": {"effort": "low"}}, "True low", []),
    "off by an effort in a table": (SWITCHES, {"reasoning": {"effort": "none"}}, "False ", []),
    "two efforts": (
        SWITCHES,
        {"reasoning_effort": "high", "reasoning": {"effort": "low", "summary": "auto"}},
        "True high",
        ["reasoning.summary", "reasoning.effort"],
    ),
    "no effort in a table": (SWITCHES, {"reasoning": {"effort": ""}}, "True ", []),
    "an effort in a table, not read": (NO_SWITCHES, {"reasoning": {"effort": "low"}}, "", ["reasoning.effort"]),
    "no effort": (SWITCHES, {"reasoning_effort": "", "reasoning_budget_tokens": ""}, "True ", []),
    "a field before a variable": (
        SWITCHES,
        {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
        "True ",
        ["chat_template_kwargs.enable_thinking"],
    ),
    "a field that agrees with a variable": (
        SWITCHES,
        {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": False}},
        "False ",
        [],
    ),
    "a field beside the variable of another switch": (
        SWITCHES,
        {"enable_thinking": True, "chat_template_kwargs": {"reasoning_effort": "max"}},
        "True max",
        [],
    ),
    "no effort before a variable": (
        SWITCHES,
        {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
        "False ",
        ["chat_template_kwargs.enable_thinking"],
    ),
    "an effort before a variable of another name": (
        READING + "{{ reasoning_strength }}",
        {"reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"}},
        "high",
        ["chat_template_kwargs.reasoning_effort"],
    ),
    "a variable under a name that the template does not read": (
        READING + "{{ thinking }}",
        {"chat_template_kwargs": {"enable_thinking": False}},
        "",
        ["chat_template_kwargs.enable_thinking"],
    ),
    "two fields": (SWITCHES, {"enable_thinking": True, "thinking": {"type": "disabled"}}, "True ", ["thinking"]),
    "a variable of another name": (READING + "{{ thinking }}", {"enable_thinking": False}, "False", []),
    "a mode": (READING + "{{ thinking_mode }}", {"enable_thinking": False}, "disabled", []),
    "a mode that is on": (READING + "{{ thinking_mode }}", {"enable_thinking": True}, "enabled", []),
    "an effort of no thinking": (ONLY_EFFORT, {"enable_thinking": False}, "no_think", []),
    "an effort of no thinking by its name": (ONLY_EFFORT, {"reasoning_effort": "none"}, "no_think", []),
    "any effort": (ONLY_EFFORT, {"enable_thinking": True}, "high", []),
    "any effort, and one": (ONLY_EFFORT, {"enable_thinking": True, "reasoning_effort": "low"}, "low", []),
    "not read": (
        NO_SWITCHES,
        {"enable_thinking": False, "reasoning_effort": "low"},
        "",
        ["enable_thinking", "reasoning_effort"],
    ),
    "not read by a built-in template": ("chatml", {"enable_thinking": False}, None, ["enable_thinking"]),
    "a budget": (SWITCHES, {"thinking": {"type": "enabled", "budget_tokens": 5}}, "True ", []),
    "two budgets": (
        SWITCHES,
        {"reasoning_budget_tokens": 5, "thinking_token_budget": 6},
        "True ",
        ["thinking_token_budget"],
    ),
    "a budget without reasoning": (READING, {"thinking_budget_tokens": 5}, "", ["thinking_budget_tokens"]),
    "a budget and no thinking": (
        SWITCHES,
        {"enable_thinking": False, "reasoning_budget_tokens": 5},
        "False ",
        ["reasoning_budget_tokens"],
    ),
    "a budget with a message, and a variable for no thinking": (
        SWITCHES,
        {
            "chat_template_kwargs": {"enable_thinking": False},
            "reasoning_budget_tokens": 5,
            "reasoning_budget_message": "So:",
        },
        "False ",
        ["reasoning_budget_tokens", "reasoning_budget_message"],
    ),
    "a question that cannot be continued": (
        SWITCHES,
        {"continue_final_message": True},
        "True ",
        ["continue_final_message"],
    ),
    "a question that need not be continued": (SWITCHES, {"continue_final_message": False}, "True ", []),
}


@pytest.mark.parametrize(("template", "fields", "shown", "ignored"), THINKING.values(), ids=THINKING)
def test_switches_of_the_reasoning(server, template, fields, shown, ignored):
    answer = apply(server, QUESTION, **{"chat_template": template, **fields})
    assert answer.get("x_gen", {}).get("ignored", []) == ignored
    if shown is not None:
        assert answer["prompt"].removesuffix("<think></think>").rstrip(" ") == f"user(|Hi|||){shown}".rstrip(" ")


WRONG_SWITCHES = {
    "a text": ({"enable_thinking": "false"}, "enable_thinking: 'false' is not true or false"),
    "an unknown effort": ({"reasoning_effort": "huge"}, "is not none, minimal, low, medium, high or xhigh"),
    "an unknown effort in a table": ({"reasoning": {"effort": "huge"}}, "reasoning.effort: 'huge' is not none"),
    "an unknown type": ({"thinking": {"type": "on"}}, "thinking.type: 'on' is not"),
    "a negative budget": ({"reasoning_budget_tokens": -2}, "reasoning_budget_tokens: -2 is not"),
    "a text as a variable": ({"chat_template_kwargs": {"enable_thinking": "no"}}, "'no' is not true or false"),
    "a text for a default that is true": ({"chat_template_kwargs": {"tidy": "no"}}, "'no' is not true or false"),
    "a number for a default that is a text": ({"chat_template_kwargs": {"tone": 1}}, "1 is not a string"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG_SWITCHES.values(), ids=WRONG_SWITCHES)
def test_wrong_switches(server, fields, message):
    template = SWITCHES + "{{ tidy | default(true) }}{% set tone = tone if tone is defined else 'calm' %}"
    body = {"messages": [QUESTION], "chat_template": template, **fields}
    status, answer = server.post("/apply-template", body)
    assert status == 400
    assert message in answer["error"]["message"]


def test_switches_of_a_prompt_without_a_template_are_named(server):
    fields = {"enable_thinking": False, "reasoning_budget_tokens": 5, "max_tokens": 1}
    status, answer = server.post("/v1/completions", PROMPT | fields)
    assert (status, answer["x_gen"]["ignored"]) == (200, ["enable_thinking", "reasoning_budget_tokens"])


BUDGET = {"reasoning_budget_tokens": 5}
# Each row: the last message, fields, and those without effect.
BEGUN = {
    "a budget of a begun answer": ({"content": "So"}, BUDGET, ["reasoning_budget_tokens"]),
    "a budget of an answer after its reasoning": (
        {"content": "So", "reasoning_content": "Hm"},
        BUDGET,
        ["reasoning_budget_tokens"],
    ),
    "a budget of a complete reasoning": (
        {"reasoning_content": "Hm"},
        BUDGET | {"continue_final_message": "content"},
        ["reasoning_budget_tokens"],
    ),
    "a budget of an answer with tags of its own": (
        {"content": "<think>Hm</think>So"},
        BUDGET,
        ["reasoning_budget_tokens"],
    ),
    "a budget of a begun reasoning": ({"reasoning_content": "Hm"}, BUDGET, []),
    "a budget of a reasoning with a tag of its own": ({"content": "<think>Hm"}, BUDGET, []),
    "a budget of a new answer": ({"content": "So"}, BUDGET | {"continue_final_message": False}, []),
    "a begun answer and a new one": (
        {"content": "So"},
        {"continue_final_message": True, "add_generation_prompt": True},
        ["add_generation_prompt"],
    ),
    "a begun answer and no new one": ({"content": "So"}, {"add_generation_prompt": False}, []),
}


@pytest.mark.parametrize(("message", "fields", "ignored"), BEGUN.values(), ids=BEGUN)
def test_what_has_no_effect_on_a_begun_answer_is_named(server, message, fields, ignored):
    answer = apply(server, QUESTION, {"role": "assistant", **message}, chat_template=THINKS, **fields)
    assert answer.get("x_gen", {}).get("ignored", []) == ignored


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
THINKS = TURNS + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}{# </think> #}"
PARTS = [{"type": "text", "text": "First line."}, {"type": "text", "text": "Second line."}]
ANSWER = {"role": "assistant", "content": "The answer"}
PROMPTS = {
    "parts": (TURNS, [{"role": "user", "content": PARTS}], "[user]First line.\nSecond line."),
    "parts of a system message": (
        TURNS,
        [{"role": "system", "content": PARTS}, QUESTION],
        "[system]First line.\nSecond line.[user]Hi",
    ),
    "parts of a begun answer": (
        THINKS,
        [QUESTION, {"role": "assistant", "content": PARTS}],
        "[user]Hi[assistant]<think></think>First line.\n\nSecond line.",
    ),
    "a begun reasoning": (
        THINKS,
        [QUESTION, {"role": "assistant", "reasoning_content": "Hm"}],
        "[user]Hi[assistant]<think>Hm",
    ),
    "a begun answer with its reasoning": (
        THINKS,
        [QUESTION, {**ANSWER, "reasoning_content": "Hm"}],
        "[user]Hi[assistant]<think>Hm</think>The answer",
    ),
    "a begun answer": (THINKS, [QUESTION, ANSWER], "[user]Hi[assistant]<think></think>The answer"),
    "a template in JSON": ('{"chat_template": "{{ messages[0].content }}!"}', [QUESTION], "Hi!"),
}


@pytest.mark.parametrize(("template", "messages", "prompt"), PROMPTS.values(), ids=PROMPTS)
def test_prompts_of_chats(server, template, messages, prompt):
    body = {"messages": messages, "chat_template": template}
    assert server.post("/apply-template", body) == (200, {"prompt": prompt})
    status, answer = server.post("/v1/chat/completions", CHAT | body | {"echo": True})
    assert (status, answer["prompt"][0]["text"]) == (200, prompt)


def test_the_models_own_template_is_applied(server):
    body = {"messages": [QUESTION], "model": "undefined"}
    prompt = server.post("/apply-template", body)[1]["prompt"]
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    begun = server.post("/apply-template", {"messages": [QUESTION, {"role": "assistant", "content": "Yo"}]})[1]
    assert begun["prompt"] == prompt + "Yo"


# Each row: a body with whole floats, and the same one with integers.
WHOLE = {
    "max_tokens": ({"max_tokens": 2.0}, {"max_tokens": 2}),
    "seed": ({"seed": 5.0}, {"seed": 5}),
    "lists of ids": (
        {"prompt": [4.0, 5.0], "stop_token_ids": [7.0], "logprobs": 1.0, "logprob_token_ids": [3.0]},
        {"prompt": [4, 5], "stop_token_ids": [7], "logprobs": 1, "logprob_token_ids": [3]},
    ),
    "lists of lists": ({"prompt": [[4.0, 5.0]], "n": 2.0}, {"prompt": [[4, 5]], "n": 2}),
    "biases": ({"logit_bias": [[5.0, -1.0], [6, False]]}, {"logit_bias": [[5, -1], [6, False]]}),
    "keys of biases": ({"logit_bias": {"5.0": -1.0}}, {"logit_bias": {"5": -1}}),
    "samplers": (
        {"top_k": 40.0, "rep_pen_range": 64.0, "rep_pen": 1.1, "sampler_order": [6.0, 0.0, 5.0]},
        {"top_k": 40, "rep_pen_range": 64, "rep_pen": 1.1, "sampler_order": [6, 0, 5]},
    ),
    "settings": ({"set": {"top_k.k": 40.0, "max_tokens": 2.0}}, {"set": {"top_k.k": 40, "max_tokens": 2}}),
    "tables": (
        {"loop_guard": {"repeats": 4.0}, "bans": [{"text": "zz"}], "trace": 1.0},
        {"loop_guard": {"repeats": 4}, "bans": [{"text": "zz"}], "trace": 1},
    ),
}


@pytest.mark.parametrize(("floats", "integers"), WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/api/v1/generate"])
def test_whole_floats_are_integers(server, path, floats, integers):
    found, expected = (server.post(path, PROMPT | {"seed": 1} | fields) for fields in (floats, integers))
    assert (found[0], expected[0]) == (200, 200), (found, expected)
    assert written(found[1]) == written(expected[1])


def written(answer):
    """Return the texts of an answer, and what it says about its settings."""
    answers = answer if isinstance(answer, list) else [answer]
    choices = answers[0].get("choices") or answers[0].get("results") or [{"text": a["content"]} for a in answers]
    facts = [{name: a["x_gen"][name] for name in ("seed", "chain", "command")} for a in answers]
    return [choice["text"] for choice in choices], facts
