"""Chat templates: the constructs of well-known models, what is refused, and how a rendering is limited."""

# ruff: noqa: E501 - a template reads better on one line

import json
import re
from datetime import datetime

import pytest
from logitsmith.engine import (
    GenerationRequest,
    ModelError,
    Reasoning,
    ReasoningTags,
    builtin_chat_templates,
    format_chat,
    open_chat_template,
)
from logitsmith.engine.chat_template import BegunReasoning, ChatPrompt
from logitsmith.engine.jinja_template import JinjaChatTemplate
from logitsmith.engine.template_sandbox import MAX_TEXT_CHARACTERS

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi <b>"}
ASSISTANT = {"role": "assistant", "content": "Hello."}
WHY = {"role": "user", "content": "Why?"}
CHAT = [SYSTEM, USER, ASSISTANT, WHY]

TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def render(source, messages=CHAT, *, variables=None, **options):
    template = JinjaChatTemplate(source, bos="<s>", eos="</s>", variables=variables)
    return template.render(messages, **options)


CONSTRUCTS = {
    "plain": (TURNS, "[system]Be brief.[user]Hi <b>[assistant]Hello.[user]Why?"),
    "tokens": ("{{ bos_token }}{{ messages[-1]['content'] }}{{ eos_token }}", "<s>Why?</s>"),
    "generation prompt": (
        "{{ messages|length }}{% if add_generation_prompt %}[assistant]{% endif %}",
        "4[assistant]",
    ),
    "tools are absent": (
        "{% if tools is defined %}{% for t in tools %}{% endfor %}{% else %}none{% endif %}",
        "none",
    ),
    "loop over absent tools": ("{% for t in tools %}{{ t }}{% endfor %}.", "."),
    "functions are absent": ("{{ functions is defined }} {{ documents is defined }}", "False False"),
    "namespace": (
        "{% set ns = namespace(n=0, text='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% set ns.text = ns.text ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.text }}",
        "4suau",
    ),
    "macro": (
        "{% macro turn(m, end='.') %}{{ m.role|upper }}{{ end }}{% endmacro %}{{ turn(messages[0]) }}",
        "SYSTEM.",
    ),
    "call block": ("{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}x{% endcall %}", "<x>"),
    "loop variables": (
        "{% for m in messages %}{{ loop.index0 }}{{ ',' if not loop.last }}{% endfor %} {% for m in messages[1:] if"
        " m.role == 'user' %}{{ loop.length }}{{ loop.first }}{% endfor %}",
        "0,1,2,3 2True2False",
    ),
    "break and continue": (
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
        "user",
    ),
    "generation tag": ("a{% generation %}{{ messages[2].content }}{% endgeneration %}b", "aHello.b"),
    "blocks are trimmed": ("{% if true %}\n  {% set a = 1 %}\n  x\n{% endif %}\n", "  x\n"),
    "no escapes for HTML": ("{{ messages[1].content }} {{ messages[1].content|tojson }}", 'Hi <b> "Hi <b>"'),
    "tojson": (
        "{{ {'b': 'é', 'a': [1, true, none]}|tojson }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':'))"
        " }} {{ [1]|tojson(indent=1) }}",
        '{"b": "é", "a": [1, true, null]} {"a":2,"b":1} [\n 1\n]',
    ),
    "lists and slices": (
        "{{ messages[::-1][0].content }} {{ (messages + [messages[0]])|length }} {{ ['a', 'b'] | join('-') }}"
        " {{ range(3)|list }} {{ [3, 1, 2]|sort|first }} {{ 'b' in ['a', 'b'] }}",
        "Why? 5 a-b [0, 1, 2] 1 True",
    ),
    "selecting": (
        "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|last }}"
        " {{ messages|map(attribute='role')|map('upper')|join }} {{ messages|rejectattr('content')|list }}",
        "Why? SYSTEMUSERASSISTANTUSER []",
    ),
    "dicts": (
        "{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %} {% for k, v in {'b': 1, 'a': 2}|dictsort %}"
        "{{ k }}{% endfor %} {{ messages[0].get('name', 'x') }} {{ dict(a=1) }} {{ messages[0]|items|list|length }}",
        "b1a2 ab x {'a': 1} 2",
    ),
    "texts": (
        "{{ ' a '.strip() ~ ' b '|trim ~ 1 ~ none }} {{ 'a,b'.split(',')[1] }} {{ 'ab'.replace('a', 'c') }} {{ 'ab'"
        ".startswith('a') }} {{ '{} {:>3}'.format('x', 1) }} {{ '%s-%d' % ('a', 2) }} {{ 'ab'[:1] }} {{ 'a\nb'|indent(1) }}"
        " {{ 'a' * 3 }} {{ 'ab'|replace('b', 'd') }} {{ 'a</think>b'.split('</think>')[-1] }}",
        "ab1None b cb True x   1 a-2 a a\n b aaa ad b",
    ),
    "numbers": (
        "{{ 7 // 2 }} {{ 7 % 2 }} {{ 2 ** 3 }} {{ -1 + 0.5 }} {{ '3'|int + 1 }} {{ 5 / 2 }}",
        "3 1 8 -0.5 4 2.5",
    ),
    "tests": (
        "{{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ x is not defined }} {{ none is none }}"
        " {{ 'a' is in 'abc' }} {{ 1 is number }} {{ true is boolean }} {{ 'x' is sequence }}",
        " ".join(["True"] * 9),
    ),
    "default": (
        "{{ x|default('d') }}{{ ''|default('e', true) }}{{ messages[0].reasoning_content or 'f' }}",
        "def",
    ),
    "recursion": (
        "{% macro show(x) %}{% if x is string %}{{ x }}{% else %}{% for y in x %}{{ show(y) }}{% endfor %}{% endif %}"
        "{% endmacro %}{{ show(['a', ['b', ['c']]]) }}{% for x in [[[]]] recursive %}({{ loop(x) }}){% endfor %}",
        "abc(())",
    ),
    "filter block": ("{% filter upper %}{{ messages[2].content }}{% endfilter %}", "HELLO."),
    "set block": ("{% set x %}{{ messages[2].content }}!{% endset %}{{ x }}{{ x }}", "Hello.!Hello.!"),
    "truth of undefined": ("{% if tools and tools|length > 0 %}x{% endif %}{{ tools }}{{ tools|length }}", "0"),
}


@pytest.mark.parametrize(("source", "expected"), CONSTRUCTS.values(), ids=CONSTRUCTS)
def test_constructs(source, expected):
    # Templates that write only some of the messages seem to have no system role; that is not what is tested here.
    template = JinjaChatTemplate(source, bos="<s>", eos="</s>")
    template.__dict__["_has_system_role"] = True
    assert template.render(CHAT) == ChatPrompt(expected)


def test_dates():
    source = "{{ strftime_now('%Y') }} {{ date_string }} {{ datetime }}"
    before, text, after = datetime.now(), render(source, [USER]).text, datetime.now()
    assert text in [f"{now:%Y} {now:%d %b %Y} {now:%b %d %Y}" for now in (before, after)]


THINKING = "{% if enable_thinking is defined and not enable_thinking %}off{% else %}on{% endif %}"
KEPT = "{{ preserve_thinking }} {{ clear_thinking }} {{ truncate_history_thinking }} {{ drop_thinking }}"
EFFORT = "{{ reasoning_effort }} {{ reasoning_strength }}"
VARIABLES = {
    "tokens": ("{{ bos_token }}", {}, "<s>"),
    "a token that is given": ("{{ bos_token }}", {"bos_token": "B"}, "B"),
    "dates that are given": ("{{ date_string }}, {{ datetime }}", {"date_string": "A", "datetime": "B"}, "A, B"),
    "reasoning that nothing marks": (THINKING, {}, "off"),
    "reasoning that is asked for": (THINKING, {"enable_thinking": True}, "on"),
    "reasoning with tags": (THINKING + "{# </think> #}", {}, "on"),
    "reasoning in a field of messages": (THINKING + "{{ messages[-1].reasoning_content }}", {}, "on"),
    "reasoning that ends in the prompt": ("{{ 'x' }}{% if not enable_thinking %}</ponder>{% endif %}", {}, "x"),
    "reasoning that differs before the end": (THINKING + "<assistant>", {}, "off<assistant>"),
    "reasoning that is off": (THINKING + "{# </think> #}", {"enable_thinking": False}, "off"),
    "reasoning kept": (KEPT, {}, "True False False False"),
    "reasoning left out": (KEPT, {"preserve_reasoning": False}, "False True True True"),
    "reasoning left out, by one name": (KEPT, {"drop_thinking": True}, "True False False True"),
    "reasoning kept as a text": (KEPT, {"preserve_reasoning": "some"}, "   "),
    "effort": (EFFORT, {"reasoning_effort": "low"}, "low low"),
    "effort, by both names": (EFFORT, {"reasoning_effort": "low", "reasoning_strength": "max"}, "low max"),
    "effort as a number": (EFFORT, {"reasoning_effort": 0.5}, "0.5 "),
}


@pytest.mark.parametrize(("source", "variables", "expected"), VARIABLES.values(), ids=VARIABLES)
def test_variables(source, variables, expected):
    assert render(source, [USER], variables=variables).text == expected


def test_stepfuns_messages_are_trimmed():
    source = "{# You have access to the following functions in JSONSchema format #}" + TURNS
    padded = [{**USER, "content": "\n Hi\u00a0 \n"}]
    assert render(source, padded).text == "[user]Hi\u00a0"
    assert render(TURNS, padded).text == "[user]\n Hi\u00a0 \n"


@pytest.mark.parametrize("name", ["messages", "add_generation_prompt"])
def test_reserved_variables(name):
    with pytest.raises(ModelError, match=name):
        render(TURNS, variables={name: 1})


def test_without_generation_prompt():
    source = TURNS + "{% if add_generation_prompt %}[assistant]{% endif %}"
    assert render(source, [USER]).text == "[user]Hi <b>[assistant]"
    assert render(source, [USER], add_generation_prompt=False).text == "[user]Hi <b>"


REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TURNS
)
NO_SYSTEM = {
    "refused": REFUSES_SYSTEM,
    "left out": "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    "refused by an error": "{{ {'user': 1, 'assistant': 2}[messages[0].role] + 0 if messages[0].role == 'system' }}"
    + TURNS,
}
MERGED = {
    "one turn": ([SYSTEM, USER], "[user]Be brief.\nHi <b>"),
    "more turns": (CHAT, "[user]Be brief.\nHi <b>[assistant]Hello.[user]Why?"),
    "behind the assistant's": ([SYSTEM, ASSISTANT, WHY], "[assistant]Hello.[user]Be brief.\nWhy?"),
    "alone": ([SYSTEM], "[user]Be brief."),
}


@pytest.mark.parametrize("source", NO_SYSTEM.values(), ids=NO_SYSTEM)
@pytest.mark.parametrize(("messages", "expected"), MERGED.values(), ids=MERGED)
def test_system_message_is_placed_before_the_first_of_the_user(source, messages, expected):
    before = [dict(message) for message in messages]
    prompt = render(source, messages)
    assert prompt.text == expected
    assert "no system role" in prompt.note
    assert messages == before


def test_without_a_system_message_there_is_no_note():
    assert render(REFUSES_SYSTEM, [USER]) == ChatPrompt("[user]Hi <b>")


def test_note_reaches_the_caller(model):
    notes = []
    template = open_chat_template(model, REFUSES_SYSTEM)
    assert format_chat(model, [SYSTEM, USER], template, notes.append) == "[user]Be brief.\nHi <b>"
    assert notes == [
        "the chat template has no system role: the system message is placed before the user's first message"
    ]


PARTS = [{"type": "text", "text": text} for text in ("First.", "Second.")]
WRITTEN_PARTS = {
    "texts only": (TURNS, PARTS, "[user]First.\nSecond."),
    "parts only": (
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}|{% endfor %}{% endfor %}",
        PARTS,
        "First.|Second.|",
    ),
    "texts and parts": (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
        "{{ part.text }}|{% endfor %}{% endif %}{% endfor %}",
        PARTS,
        "First.|Second.|",
    ),
    "lists as JSON": ("{% for m in messages %}{{ m.content|tojson }}{% endfor %}", PARTS, '"First.\\nSecond."'),
    "an empty first part": (TURNS, [{"type": "text", "text": ""}, *PARTS], "[user]First.\nSecond."),
    "an empty part between": (
        TURNS,
        [PARTS[0], {"type": "text", "text": ""}, PARTS[1]],
        "[user]First.\n\nSecond.",
    ),
    "no parts": (TURNS, [], "[user]"),
    "trimmed": (
        "{# You have access to the following functions in JSONSchema format #}" + TURNS,
        [{"type": "text", "text": " a "}, {"type": "text", "text": "b "}],
        "[user]a\nb",
    ),
}


@pytest.mark.parametrize(("source", "parts", "expected"), WRITTEN_PARTS.values(), ids=WRITTEN_PARTS)
def test_parts_of_a_message(source, parts, expected):
    """As in llama-server: lines of one text, unless the template reads parts itself."""
    assert render(source, [{"role": "user", "content": parts}]).text == expected


def test_parts_of_a_system_message_that_is_merged(model):
    template = open_chat_template(model, REFUSES_SYSTEM)
    messages = [{"role": "system", "content": PARTS}, {"role": "user", "content": PARTS}]
    assert template.render(messages).text == "[user]First.\nSecond.\nFirst.\nSecond."


OPENS_THINKING = TURNS + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}{# </think> #}"
CLOSES_THINKING = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]<think>\n{% endif %}"
)
END_OF_PROMPT = "{% if add_generation_prompt %}[assistant]{% endif %}"
BEGINNINGS = {
    "no reasoning": (
        TURNS + "{% if add_generation_prompt %}[assistant]{% endif %}",
        "Yes",
        "[user]Hi <b>[assistant]Yes",
    ),
    "a header of complete answers": (
        "{% for m in messages %}<{{ m.role }}>{{ '<final>' if m.role == 'assistant' }}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        "Yes",
        "<user>Hi <b><assistant><final>Yes",
    ),
    "a prompt that opens reasoning": (OPENS_THINKING, "Yes", "[user]Hi <b>[assistant]<think></think>Yes"),
    "a template that closes it": (CLOSES_THINKING, "Yes", "[user]Hi <b>[assistant]<think></think>Yes"),
    "no beginning of answers": (TURNS, "Yes", "[user]Hi <b>Yes"),
    "reasoning of another kind": (
        TURNS + "{% if add_generation_prompt %}[assistant]My steps:\n{% endif %}",
        "Yes",
        "[user]Hi <b>[assistant]Yes",
    ),
    "an answer with its reasoning": (
        OPENS_THINKING,
        "<think>\nHm.\n</think>\n\nYes",
        "[user]Hi <b>[assistant]<think>\nHm.\n</think>\n\nYes",
    ),
    "an unfinished reasoning": (OPENS_THINKING, "<think>\nHm", "[user]Hi <b>[assistant]<think>\nHm"),
    "the end of a reasoning": (
        OPENS_THINKING,
        "Hm.\n</think>\n\nYes",
        "[user]Hi <b>[assistant]<think>\nHm.\n</think>\n\nYes",
    ),
    "reasoning is off": (
        TURNS + "{% if add_generation_prompt %}[assistant]<think></think>{% endif %}",
        "Yes",
        "[user]Hi <b>[assistant]<think></think>Yes",
    ),
    "an answer may not be last": (
        "{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}" + OPENS_THINKING,
        "Yes",
        "[user]Hi <b>[assistant]<think></think>Yes",
    ),
    "thinking is off by the end tag alone": (
        TURNS + "{% if add_generation_prompt %}[assistant]</think>{% endif %}{# <think> #}",
        "Yes",
        "[user]Hi <b>[assistant]</think>Yes",
    ),
    "channels": (
        "{% for m in messages %}<|start|>{{ m.role }}{{ '<|channel|>final' if m.role == 'assistant' }}<|message|>"
        "{{ m.content }}<|end|>{% endfor %}{{ '' if true else '<|channel|>analysis<|message|>' }}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        "Yes",
        "<|start|>user<|message|>Hi <b><|end|><|start|>assistant<|channel|>final<|message|>Yes",
    ),
}


@pytest.mark.parametrize(("source", "beginning", "expected"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_the_beginning_of_an_answer(source, beginning, expected):
    """It stands where the template writes answers, and never inside a reasoning that the prompt opens."""
    assert JinjaChatTemplate(source).render_beginning([USER], beginning).text == expected


FIELDS = {
    "reasoning_content": "{{ '<think>' ~ m.reasoning_content ~ '</think>' if m.reasoning_content }}{{ m.content }}",
    "thinking": "{{ '<think>' ~ m.thinking ~ '</think>' if m.thinking }}{{ m.content }}",
    "reasoning": "{{ '<think>' ~ m.reasoning ~ '</think>' if m.reasoning }}{{ m.content }}",
    "parts": "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ '<think>' ~ p.thinking ~ '</think>' if p.type == 'thinking' else p.text }}{% endfor %}{% endif %}",
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_reasoning_stands_where_the_template_reads_it(field):
    source = "{% for m in messages %}[{{ m.role }}]" + field + "{% endfor %}" + END_OF_PROMPT
    template = JinjaChatTemplate(source)
    answer = {"role": "assistant", "content": "Yes", "reasoning_content": "Hm"}
    assert template.render([USER, answer, USER]).text == (
        "[user]Hi <b>[assistant]<think>Hm</think>Yes[user]Hi <b>[assistant]"
    )
    begun = template.render_beginning([USER], "", BegunReasoning("Hm", is_complete=False))
    assert begun.text == "[user]Hi <b>[assistant]<think>Hm"
    begun = template.render_beginning([USER], "Yes", BegunReasoning("Hm"))
    assert begun.text == "[user]Hi <b>[assistant]<think>Hm</think>Yes"


def test_builtin_templates_begin_answers(model):
    text = format_chat(model, [USER], open_chat_template(model, "chatml"), beginning="Yes")
    assert text.endswith("<|im_start|>assistant\nYes")


JSON_FILES = {
    "a text": {"chat_template": TURNS, "bos_token": "<other>"},
    "a list": {"chat_template": [{"name": "tool_use", "template": "x{{ 1 }}"}, {"name": "default", "template": TURNS}]},
    "a list of one": {"chat_template": [{"name": "rag", "template": TURNS}]},
    "a table": {"chat_template": {"default": TURNS, "tool_use": "x{{ 1 }}"}},
}  # fmt: skip


@pytest.mark.parametrize("values", JSON_FILES.values(), ids=JSON_FILES)
def test_the_template_of_a_json_text(model, values):
    text = format_chat(model, [USER], open_chat_template(model, json.dumps(values, indent=2)))
    assert text == "[user]Hi <b>"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": "{{ 1 }}"}, "this JSON has no chat_template"),
        ({"chat_template": 1}, "this JSON has no chat_template"),
        (
            {"chat_template": {"rag": "{{ 1 }}", "tool_use": "{{ 1 }}"}},
            "the chat templates rag, tool_use, and none is named default",
        ),
    ],
)
def test_a_json_text_without_a_template(model, values, message):
    with pytest.raises(ModelError, match=message):
        open_chat_template(model, json.dumps(values))


TAGS = {
    "think": ("{{ '<think>' }} </think>", ReasoningTags("<think>", "</think>")),
    "brackets": ("[THINK] [/THINK]", ReasoningTags("[THINK]", "[/THINK]")),
    "channel": ("<|channel>thought\n<channel|>", ReasoningTags("<|channel>thought", "<channel|>")),
    "solar": (
        "<|begin|>assistant<|think|><|end|>",
        ReasoningTags("<|think|>", "<|end|>", ("<|begin|>assistant<|content|>", "<|content|>")),
    ),
    "the end only": ("{{ content.split('</think>') }}", ReasoningTags("<think>", "</think>")),
    "the beginning only": ("<think>{{ messages[0].content }}", None),
    "the end of any message": ("<|user|>{{ content }}<|end|>", None),
    "none": (TURNS, None),
}


def thinking_template(before, after, opening=""):
    """A template that writes reasoning between two texts, and another one after the header of a new answer."""
    return (
        "{% for m in messages %}<|start|>{{ m.role }}"
        f"{{% if m.reasoning_content %}}{before}{{{{ m.reasoning_content }}}}{after}{{% endif %}}{{{{ m.content }}}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}<|start|>assistant{opening}{{% endif %}}"
    )


# Tags that only the templates themselves show: as those of Hy3, muse-glimmer, Kimi-K3 and Apriel-1.6
TAGS |= {
    "shown": (thinking_template("<think:a>", "</think:a>"), ReasoningTags("<think:a>", "</think:a>")),
    "shown, closed in the prompt": (
        thinking_template("<think:a>", "</think:a>", "<think:a></think:a>"),
        ReasoningTags("<think:a>", "</think:a>"),
    ),
    "shown channels": (
        thinking_template(" to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
        ReasoningTags(
            "to=self<|message|>", "<|eom|>", ("<|start|>assistant to=user<|message|>", "to=user<|message|>")
        ),
    ),
    "shown, with a tag before the answer": (
        thinking_template("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>r<|sep|>", "<|open|>think<|sep|>"),
        ReasoningTags("<|open|>think<|sep|>", "<|close|>think<|sep|>", ("<|open|>r<|sep|>",)),
    ),
    "shown, begun by a sentence": (
        thinking_template("<|a|>", "[FINAL]", "<|a|>\nMy steps:\n"),
        ReasoningTags("My steps:", "[FINAL]"),
    ),
    "opened in the prompt, and never closed": (
        thinking_template("", "", "<think>\n"),
        ReasoningTags("<think>", "</think>"),
    ),
    "no tags": (thinking_template("Reasoning: ", " Answer: "), None),
    "no end tag": (thinking_template("<think:a>", " Answer: "), None),
}


@pytest.mark.parametrize(("source", "expected"), TAGS.values(), ids=TAGS)
def test_reasoning_tags(source, expected):
    assert JinjaChatTemplate(source).reasoning_tags == expected


THINK = (
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n\n{% endif %}{{ m.content }}{% endfor %}"
)
PLACES = {  # the prompt, the beginning of the answer, the place, and the part of the beginning that is answer
    "before": ("[user]Hi[assistant]", "", "before", ""),
    "open": ("[user]Hi[assistant]<think>\n", "", "inside", ""),
    "closed": ("[user]Hi[assistant]<think>\n\n</think>\n\n", "", "after", ""),
    "a beginning": ("[assistant]Once", "Once", "after", "Once"),
    "a beginning with blanks only": ("[assistant]\n", "\n", "before", ""),
    "a reasoning that was begun": ("[assistant]<think>so", "<think>so", "inside", ""),
    "a reasoning that was begun in the prompt": ("[assistant]<think>so", "so", "inside", ""),
    "a reasoning that is over": ("[assistant]<think>so</think>\nYes", "<think>so</think>\nYes", "after", "Yes"),
    "a tag of the user": ("[user]<think>[assistant]", "", "before", ""),
    "a beginning that the template changes": ("[assistant]Once", " Once ", "after", " Once "),
}


@pytest.mark.parametrize(("prompt", "beginning", "place", "answer"), PLACES.values(), ids=PLACES)
def test_the_place_after_a_prompt(prompt, beginning, place, answer):
    reasoning = JinjaChatTemplate(THINK).reasoning_after(prompt, beginning)
    is_continued = beginning in ("<think>so", "so")
    assert reasoning == Reasoning(ReasoningTags("<think>", "</think>"), place, "\n\n", is_continued)
    request = GenerationRequest("", "greedy", beginning=beginning).with_chat_text(prompt, reasoning)
    assert request.answer_beginning == answer


ALTERNATE = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}{{ m.content }}{% endfor %}"
)
FAILURES = {
    "roles that do not alternate": (ALTERNATE, [USER, WHY], "rejects these messages: roles must alternate"),
    "undefined": ("{{ nope.x }}", [USER], "failed: 'nope' is undefined"),
    "type": ("{{ 1 + 'a' }}", [USER], "failed: unsupported operand"),
    "surrogate": ("{{ '\\ud800' }}", [USER], "half of a surrogate pair"),
    "system message later": (ALTERNATE, [USER, SYSTEM, USER, WHY], "must alternate"),
}


@pytest.mark.parametrize(("source", "messages", "expected"), FAILURES.values(), ids=FAILURES)
def test_failures(source, messages, expected):
    with pytest.raises(ModelError, match=expected):
        render(source, messages)


INVALID = {
    "unclosed": ("{% for x in y %}", "line 1: Unexpected end of template"),
    "second line": ("x\n{{ }}", "line 2: Expected an expression"),
    "filter": ("{{ 'a'|center(9) }}", "No filter named 'center'"),
    "test": ("{{ 'a' is nope }}", "No test named 'nope'"),
    "nested": ("(" * 5000 + "{{" + "(" * 5000, "cannot be compiled|not valid"),
    "sum of many": ("{{ 1" + " + 1" * 20_000 + " }}", "cannot be compiled"),
    "many loops": ("{% for a in b %}" * 100 + "{% endfor %}" * 100, "cannot be compiled"),
    "long": ("x" * 200_001, "longer than 200,000"),
}


@pytest.mark.parametrize(("source", "expected"), INVALID.values(), ids=INVALID)
def test_invalid_templates(source, expected):
    with pytest.raises(ModelError, match=expected):
        JinjaChatTemplate(source)


FORBIDDEN = {
    "classes": "{{ ''.__class__.__mro__ }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "subclasses": "{{ dict.mro() }}",
    "format": "{{ '{0.__class__}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': ''}) }}",
    "attribute by index": "{{ ''['__class__'] }}x{{ ''['__class__'].x }}",
    "map attribute": "{{ ['']|map(attribute='__class__')|list|first.x }}",
    "context": "{{ self._TemplateReference__context.x }}",
    "change a list": "{{ messages.append(1) }}",
    "change a dict": "{{ messages[0].update({}) }}",
    "pad": "{{ 'a'.ljust(10) }}",
    "bytes": "{{ 'a'.encode() }}",
    "bytes of a number": "{{ (5).to_bytes(9, 'big') }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends 'x' %}",
    "lorem ipsum": "{{ lipsum() }}",
    "attr filter": "{{ ''|attr('x') }}",
    "builtins": "{{ open('x') }}",
}


@pytest.mark.parametrize("source", FORBIDDEN.values(), ids=FORBIDDEN)
def test_sandbox(source):
    try:
        text = render(source, [USER]).text
    except ModelError:
        return
    assert text == ""  # Jinja's sandbox lets what is forbidden be undefined


def doubling(start, step):
    """A template that makes `x` twice as large, ninety-nine times."""
    return (
        f"{{% set ns = namespace(x={start}) %}}{{% for i in range(99) %}}{{% set ns.x = {step} %}}{{% endfor %}}"
    )


NESTED = doubling("[1]", "[ns.x, ns.x]")
LOOP = "{% for a in range(100000) %}"
HOSTILE = {
    "endless loops": LOOP * 3 + "{% endfor %}" * 3,
    "loop of nothing": LOOP + "{% for b in range(100000) if false %}{% endfor %}{% endfor %}",
    "long text": LOOP + "{{ 'x' * 1000 }}{% endfor %}",
    "macro of many": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "macro of itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "block of itself": "{% set ns = namespace(n=0) %}{% block b %}{{ self.b() }}{% endblock %}",
    "recursive loop": "{% for x in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "repeat": "{{ 'x' * 99999999999 }}",
    "repeat, the other way": "{{ 99999999999 * 'x' }}",
    "repeat a list": "{{ ([1] * 99999999999)|length }}",
    "repeat twice": "{{ ('x' * 1000000) * 1000000 }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "powers": doubling("3", "ns.x * ns.x"),
    "double by ~": doubling("'x'", "ns.x ~ ns.x"),
    "double by +": doubling("'x'", "ns.x + ns.x"),
    "double by join": doubling("'x'", "[ns.x, ns.x]|join"),
    "double by a method": doubling("'x'", "''.join([ns.x, ns.x])"),
    "double by replace": doubling("'x'", "ns.x|replace('x', 'xx')"),
    "double by the method replace": doubling("'x'", "ns.x.replace('', 'x')"),
    "double by %": doubling("'x'", "'%s%s' % (ns.x, ns.x)"),
    "double by format": doubling("'x'", "'{0}{0}'.format(ns.x)"),
    "double by the filter format": doubling("'x'", "'%s%s'|format(ns.x, ns.x)"),
    "double a list": doubling("[1]", "ns.x + ns.x"),
    "double by a block": "{% set ns = namespace(x='x') %}" + LOOP + "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = x %}{% endfor %}",
    "nest lists": NESTED + "{{ ns.x }}",
    "nest lists in JSON": NESTED + "{{ ns.x|tojson }}",
    "nest lists in a text": NESTED + "{{ ns.x|string|length }}",
    "nest lists in ~": NESTED + "{{ (ns.x ~ '')|length }}",
    "nest lists in %": NESTED + "{{ '%s' % ns.x }}",
    "nest dicts": doubling("1", "{'a': ns.x, 'b': ns.x}") + "{{ ns.x }}",
    "nest dicts by dict": doubling("1", "dict(a=ns.x, b=ns.x)") + "{{ ns.x.values()|string }}",
    "nest tuples": doubling("1", "(ns.x, ns.x)") + "{{ {ns.x: 1} }}",
    "compare nested lists": NESTED + "{% set a = ns.x %}"
    + NESTED + "{{ a == ns.x }}",
    "nest namespaces": "{% set a = namespace() %}{% set b = namespace() %}{% set a.x = [b, b] %}{% set b.x = [a, a] %}{{ a.x }}",
    "wide field": "{{ '%999999999d' % 1 }}",
    "wide field of a format": "{{ '{:999999999}'.format(1) }}",
    "wide field by an argument": "{{ '{:{}}'.format(1, 999999999) }}",
    "wide field of the filter": "{{ '%*d'|format(999999999, 1) }}",
    "many wide fields": "{{ ('{:9999}' * 100000).format(*range(100000)) }}",
    "indent": "{{ ('\n' * 1000000)|indent(1000000) }}",
    "indent of JSON": "{{ [[[[1]]]]|tojson(indent=999999999) }}",
    "join with a long text": "{{ range(100000)|join('x' * 1000000) }}",
    "replace by a long text": "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
    "sum of lists": "{{ ([[1] * 1000] * 100000)|sum(start=[])|length }}",
    "slices": "{% set x = 'x' * 1000000 %}" + LOOP + "{% if x[1:] == 'y' %}{% endif %}{% endfor %}",
    "searches": "{% set x = 'x' * 1000000 %}" + LOOP + "{% if 'y' in x %}{% endif %}{% endfor %}",
    "searches by a method": "{% set x = 'x' * 1000000 %}" + LOOP + "{{ x.find('y') }}{% endfor %}",
    "searches in a list": "{% set x = range(100000)|list %}" + LOOP + "{% if 'y' in x %}{% endif %}{% endfor %}",
    "searches by a test": "{% set x = range(100000)|list %}" + LOOP + "{% if 'y' is in x %}{% endif %}{% endfor %}",
    "selects": "{% set x = range(100000)|list %}{{ x|select('in', x|map('string')|list)|list }}",
    "sorts": "{% set x = range(100000)|list %}" + LOOP + "{% set y = x|sort %}{% endfor %}",
    "date": "{{ strftime_now('%Y' * 10000000) }}",
}  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_hostile_templates_are_stopped(source):
    with pytest.raises(ModelError) as error:
        render(source, [USER])
    assert re.search(r"was stopped: it |failed: (Range|string|cannot fit)", str(error.value)), error.value


def test_long_messages_may_cost_more():
    text = "word " * (MAX_TEXT_CHARACTERS // 5 + 1)
    assert render(
        "{% for m in messages %}{{ m.content|trim }}{% endfor %}", [{"role": "user", "content": text}]
    ).text == (text.rstrip())


def test_many_messages():
    messages = [SYSTEM, *[USER, ASSISTANT] * 2000]
    source = (
        "{% for m in messages %}{% set last = messages[loop.index0 - 1] %}{{ m.content ~ last.role }}{% endfor %}"
    )
    assert render(source, messages).text.count("Hi <b>") == 2000


BUILTIN = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<start_of_turn>user\nBe brief.\n\nHi <b><end_of_turn>\n<start_of_turn>model\n",
    "vicuna": "Be brief.\n\nUSER: Hi <b>\nASSISTANT:",
}


@pytest.mark.parametrize(("name", "expected"), BUILTIN.items(), ids=BUILTIN)
def test_builtin_templates(model, name, expected):
    assert open_chat_template(model, name).render([SYSTEM, USER]) == ChatPrompt(expected)
    assert name in builtin_chat_templates() == tuple(sorted(builtin_chat_templates()))


@pytest.mark.parametrize("name", builtin_chat_templates())
def test_every_builtin_template_renders(model, name):
    long = {"role": "user", "content": "é" * 5000}
    template = open_chat_template(model, name)
    assert long["content"] in template.render([SYSTEM, USER, ASSISTANT, long]).text
    assert template.render([USER], add_generation_prompt=False).text


def test_what_builtin_templates_refuse(model):
    with pytest.raises(ModelError, match="has no variables"):
        open_chat_template(model, "chatml", {"enable_thinking": False})
    with pytest.raises(ModelError, match=r"U\+0000"):
        open_chat_template(model, "chatml").render([{"role": "user", "content": "a\0b"}])
    with pytest.raises(ModelError, match="neither Jinja"):
        open_chat_template(model, "nope")


def test_beginning_of_sequence_is_not_doubled(model):
    prompt = format_chat(model, [USER], open_chat_template(model, "{{ bos_token }}" + TURNS))
    assert model.vocabulary.tokenize_prompt(prompt.encode()).count(model.vocabulary.bos) == 1
