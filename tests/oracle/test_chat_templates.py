"""Prompts are those of llama.cpp's server, for each template; what differs has a name.

The templates of llama.cpp's repository are compared by `make proof` if they are here: `python -m
benchmarks.build_llama_cpp` brings them, and LLAMA_CPP_MODELS may name the folder `models` of llama.cpp's sources.
"""

# ruff: noqa: E501 - a template reads better on one line

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from logitsmith.engine import Model, ModelError, generate, open_chat_template
from logitsmith.engine.jinja_template import JinjaChatTemplate
from logitsmith.requests.asked import ask
from logitsmith.requests.fields import ChatFields, read_body
from logitsmith.requests.resolve import CHAT_TEMPLATE_KEY, RequestDefaults, RequestResolver

from benchmarks.build_llama_cpp import FOLDER as BUILT_LLAMA_CPP

from ..engine.scripted_model import write_scripted_model

ROOT = Path(__file__).parent.parent.parent
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi <b> é\n  x "}
ASSISTANT = {"role": "assistant", "content": "Hello."}
WHY = {"role": "user", "content": "Why?"}
REASONED = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello."}
REASONING_FIELD = {"role": "assistant", "content": "Hello.", "reasoning_content": "Hm."}
BEGUN = {"role": "assistant", "content": "  Well,\n "}
THOUGHT = {"reasoning_content": "Hm.\nSo "}
PARTS = [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}]
CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, ASSISTANT, WHY],
    "turns without a system message": [USER, ASSISTANT, WHY],
    "reasoning in a former answer": [USER, REASONED, WHY],
    "answer last": [SYSTEM, USER, ASSISTANT],
    "reasoning given back": [SYSTEM, USER, REASONING_FIELD, WHY],
    "reasoning given back last": [SYSTEM, USER, REASONING_FIELD],
    "parts": [
        {"role": "system", "content": PARTS},
        {"role": "user", "content": PARTS},
        {**ASSISTANT, "content": PARTS},
        WHY,
    ],
}
CONTINUED = {
    "continued answer": [SYSTEM, USER, BEGUN],
    "continued second answer": [USER, ASSISTANT, WHY, BEGUN],
    "continued answer with its reasoning": [SYSTEM, USER, {**BEGUN, **THOUGHT}],
    "continued reasoning": [SYSTEM, USER, {**BEGUN, **THOUGHT, "content": ""}],
    "continued answer of parts": [SYSTEM, USER, {**BEGUN, "content": PARTS}],
    "continued after reasoning given back": [SYSTEM, USER, REASONING_FIELD, WHY, {**BEGUN, **THOUGHT}],
}
CHATS |= CONTINUED
VARIABLES = [
    {},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"thinking": True},
    {"thinking": False},
    {"reasoning_effort": "low"},
    {"reasoning_effort": "max", "enable_thinking": False},
    {"reasoning_effort": "high", "reasoning_strength": "low"},
    {"preserve_reasoning": False},
    {"preserve_reasoning": False, "preserve_thinking": True},
    {"drop_thinking": True, "clear_thinking": True},
    {"date_string": "1 Jan 2020", "datetime": "Jan 1 2020"},
]


class Case(NamedTuple):
    chat: str
    variables: dict
    add_generation_prompt: bool

    @property
    def is_continued(self):
        return self.chat in CONTINUED


ALL_CASES = [
    case
    for case in map(Case._make, product(CHATS, VARIABLES, (True, False)))
    if not (case.is_continued and case.add_generation_prompt)
]
FEW_CASES = [case for case in ALL_CASES if case.chat == "turns" or not case.variables]

LOOP = "{%- for m in messages %}\n<{{ m['role'] }}>{{ m.content | trim }}</{{ m.role }}>\n{%- endfor %}"
END = "{% if add_generation_prompt %}<assistant>{% endif %}"
SMALL = {
    "plain": LOOP + END,
    "bos and eos": "{{ bos_token }}" + LOOP + "{{ eos_token }}" + END,
    "tools": "{% if tools is defined and tools %}{{ tools|tojson }}{% endif %}{% for t in tools %}x{% endfor %}" + LOOP,
    "undefined text": "{{ 'functions: ' + functions|trim }}{{ 'a' + nope }}" + LOOP,
    "no system role": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}" + LOOP + END,
    "system message left out": "{% for m in messages if m.role in ['user', 'assistant'] %}[{{ m.content }}]{% endfor %}",
    "namespace": "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last ="
    " loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}" + LOOP,
    "JSON": "{% for m in messages %}{{ m.content|tojson }} {{ {'a': [1, 2.5, true, none, 'é<']}|tojson }}{% endfor %}",
    "JSON with an indent": LOOP + "{{ {'a': [1, {'b': 'c'}], 'd': {}}|tojson(indent=2) }}",
    "macro": "{% macro turn(m, mark='#') %}{{ mark }}{{ m.role|upper }}: {{ m.content }}{% endmacro %}{% for m in messages"
    " %}{{ turn(m) }}{{ turn(m, mark='>') }}{% endfor %}",
    "slices": "{{ messages[-1].content }}{{ messages[::-1][0].role }}{% for m in messages[1:] %}{{ m.role }}{% endfor %}" + LOOP,
    "break and continue": "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}{{ m.content }}"
    "{% if loop.last %}{% break %}{% endif %}{% endfor %}",
    "thinking": LOOP + END + "{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}",
    "thinking off": LOOP + END + "{% if enable_thinking is defined and enable_thinking is false %}off{% endif %}",
    "date": "{{ strftime_now('%d %b %Y') }} {{ date_string }} {{ datetime }}" + LOOP,
    "text methods": "{% for m in messages %}{{ m.content.split(' ')[0].upper() ~ m.content.replace('i', 'o') ~ 'x y'.title()"
    " }}{{ m.content.startswith('H') }}{% endfor %}",
    "selecting": "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join('|') }}" + LOOP,
    "dicts": "{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for k, v in {'b': 1, 'a': 2}|dictsort"
    " %}{{ k }}{% endfor %}{{ messages[0].get('x', 'none') }}" + LOOP,
    "whitespace": "{% for m in messages %}\n    {% if true %}\n  {{ m.content }}  \n    {% endif %}\n{% endfor %}\n",
    "deliberation": "{% if enable_thinking is defined and enable_thinking %}enabled{% else %}disabled{% endif %}" + LOOP + END,
    "reasoning in a field": "{% for m in messages %}{% if m.reasoning_content %}<ponder>{{ m.reasoning_content }}</ponder>{% endif %}"
    "{{ m.content }}{% endfor %}{% if enable_thinking %}on{% else %}off{% endif %}",
    "reasoning in a channel": LOOP + END + "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}",
    "reasoning kept": LOOP + "{{ preserve_reasoning }} {{ preserve_thinking }} {{ clear_thinking }} {{ drop_thinking }} {{"
    " truncate_history_thinking }}",
    "reasoning effort": LOOP + "{{ reasoning_effort }} {{ reasoning_strength }}",
    "trimmed messages": "{# You have access to the following functions in JSONSchema format #}{% for m in messages %}"
    "<{{ m.content }}>{% endfor %}",
    "generation prompt unless false": LOOP + "{% if add_generation_prompt is not defined or add_generation_prompt %}<assistant>{% endif %}",
    "return after the last answer": "{% for m in messages %}<|channel|>{{ m.content }}{{ '<|return|>' if loop.last and m.role =="
    " 'assistant' and not add_generation_prompt else '<|end|>' }}{% endfor %}",
    "generation tag": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
}  # fmt: skip

FOLDERS = [Path(os.environ.get("LLAMA_CPP_MODELS", BUILT_LLAMA_CPP)) / "templates"]
REAL = {
    path.stem: path.read_text(encoding="utf-8") for folder in FOLDERS for path in sorted(folder.glob("*.jinja"))
}
NO_TEMPLATES = "llama.cpp's templates are not here: python -m benchmarks.build_llama_cpp, or set LLAMA_CPP_MODELS"


@pytest.fixture(scope="module")
def model(pruned_model):
    with Model.load(pruned_model, n_ctx=128) as loaded:
        yield loaded


def servers_prompts(model, templates, cases):
    """The prompts of llama.cpp's server:

    for each template by its name, one for each case, or its error in a dict.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.oracle.test_chat_templates"],
        input=json.dumps({"model": str(model.path), "templates": templates, "cases": cases}),
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def prompts_of_small_ones(model):
    return servers_prompts(model, SMALL, FEW_CASES)


@pytest.fixture(scope="module")
def prompts_of_real_ones(model):
    return servers_prompts(model, REAL, ALL_CASES)


def main():
    request = json.load(sys.stdin)
    cases = [Case(*values) for values in request["cases"]]
    templates = request["templates"].items()
    answers = {name: answers_of(request["model"], source, cases) for name, source in templates}
    print("\n" + json.dumps(answers), flush=True)


def answers_of(path, template, cases):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.no_extra_bufts = True  # its kernels for AMX crash when some compilers made them
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.port = 128, 1, 0, 0
    params.warmup, params.use_jinja, params.chat_template = False, True, template
    params.cpuparams.n_threads = 1
    params.prefill_assistant = False  # a chat that ends with an answer is rendered as it is
    params.default_template_kwargs = {"preserve_reasoning": "true"}  # as llama-server does when it reads its flags
    server = xllamacpp.Server(params)
    answers = []
    with httpx.Client(base_url=server.listening_address) as client:
        for case in cases:
            body = {
                "messages": CHATS[case.chat],
                "chat_template_kwargs": case.variables,
                "add_generation_prompt": case.add_generation_prompt,
                "continue_final_message": case.is_continued,
            }
            response = client.post("/apply-template", json=body).json()
            answers.append(response.get("prompt", response))
    return answers


def our_prompt(model, source, case):
    template = open_chat_template(model, source, case.variables)
    try:
        if case.is_continued:
            fields = ChatFields(messages=CHATS[case.chat], continue_final_message=True)
            asked = ask(fields)
            return template.render_beginning(asked.messages, asked.beginning, asked.reasoning).text
        return template.render(CHATS[case.chat], add_generation_prompt=case.add_generation_prompt).text
    except ModelError:
        return None


def check(model, name, source, cases, theirs):
    """Each prompt is the server's, and what the server rejects is rejected."""
    is_different = (DIFFERENT | DIFFERENT_SMALL).get(name, never)
    compared = [(case, their) for case, their in zip(cases, theirs, strict=True) if not is_different(case)]
    cases, theirs = zip(*compared, strict=True)
    explain_uncontinued = EXPLAINED.get(name, as_it_is)

    def explain(text, case):
        return text if case.is_continued else explain_uncontinued(text, case)

    expected = [
        explain(text, case) if isinstance(text, str) else None for text, case in zip(theirs, cases, strict=True)
    ]
    ours = [our_prompt(model, source, case) for case in cases]
    differing = [
        (case, their, our) for case, their, our in zip(cases, expected, ours, strict=True) if their != our
    ]
    assert differing == []
    assert any(ours)


@pytest.mark.parametrize("name", SMALL)
def test_prompts_are_those_of_llama_cpp(model, prompts_of_small_ones, name):
    check(model, name, SMALL[name], FEW_CASES, prompts_of_small_ones[name])


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason=NO_TEMPLATES)
@pytest.mark.parametrize("name", REAL or [None])
def test_prompts_of_llama_cpps_own_templates(model, prompts_of_real_ones, name):
    check(model, name, REAL[name], ALL_CASES, prompts_of_real_ones[name])


WITHOUT_REASONING = {
    *(
        "Apertus-8B-Instruct",
        "CohereForAI-c4ai-command-r-plus-tool_use",
        "GigaChat3-10B-A1.8B",
        "GigaChat3.1-10B-A1.8B",
    ),
    *("Kimi-K2-Instruct", "LFM2-8B-A1B", "MiMo-VL", "MiniMax-M1", "Mistral-Small-3.2-24B-Instruct-2506"),
    *("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"),
    *("Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "fireworks-ai-llama-3-firefunction-v2", "google-gemma-2-2b-it"),
    *("ibm-granite-granite-4.0", "ibm-granite-granite-4.1", "meetkai-functionary-medium-v3.1"),
    *("meetkai-functionary-medium-v3.2", "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct"),
    *(
        "meta-llama-Llama-3.3-70B-Instruct",
        "microsoft-Phi-3.5-mini-instruct",
        "mistralai-Mistral-Nemo-Instruct-2407",
    ),
    *("moonshotai-Kimi-K2", "unsloth-Apriel-1.5", "unsloth-mistral-Devstral-Small-2507"),
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "word", "schema": {"const": "yes"}}}
# Each row: the messages, the text of the answer, and the templates after whose prompt there is no reasoning
SCHEMA_CASES = {
    "a new answer": ([USER], '"yes"', WITHOUT_REASONING | {"tencent-Hy3"}),
    "a continued answer": ([USER, {"role": "assistant", "content": '"ye'}], 's"', set(REAL)),
    "a continued reasoning": (
        [USER, {"role": "assistant", "content": "", "reasoning_content": "So "}],
        '"yes"',
        WITHOUT_REASONING,
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason=NO_TEMPLATES)
@pytest.mark.parametrize("name", REAL or [None])
@pytest.mark.parametrize(("messages", "text", "at_once"), SCHEMA_CASES.values(), ids=SCHEMA_CASES)
def test_a_schema_begins_with_the_answer(tmp_path, name, messages, text, at_once):
    """The model would write a thought after each prompt; the schema allows it only where there is a reasoning."""
    source, tags = REAL[name], JinjaChatTemplate(REAL[name]).reasoning_tags
    fields, _ = read_body(ChatFields, {"messages": messages, "response_format": SCHEMA}, is_strict=True)
    asked = ask(fields)
    resolver = RequestResolver(RequestDefaults(), {CHAT_TEMPLATE_KEY: source}, print)
    (request,) = resolver.requests(asked, resolver.settings(asked, []), seed=0)
    template = JinjaChatTemplate(source, eos="<end>")
    is_begun = asked.beginning or asked.reasoning
    begin = template.render_beginning if is_begun else lambda messages, *_: template.render(messages)
    prompt = begin(asked.messages, asked.beginning, asked.reasoning).text
    known = [] if tags is None else [tags.start, tags.end]
    last = next(filter(prompt.endswith, known), prompt[-1])
    is_open = asked.reasoning or prompt.rstrip().endswith(tuple(known))
    script = [last, *([] if is_open else known[:1]), "hm", *known[1:]]
    header = "" if tags is None or tags.answer_prefixes else template.answer_opening.strip()
    scripts = [script, known, [header], ["<|return|>", "<|call|>"]]
    path = write_scripted_model(
        tmp_path / "model.gguf", scripts, source, [header]
    )  # models have it as a control token
    with Model.load(path, n_ctx=8192, gpu_layers=0) as model:
        *_, done = generate(model, replace(request, chain="greedy", max_tokens=60))
    assert (done.text, done.reasoning or "") == (text, "" if name in at_once else "hm")


def as_it_is(text, _case):
    return text


def without(generation_prompt):
    """llama.cpp leaves add_generation_prompt undefined where it is false, and these templates take that for
    true."""

    def explain(text, case):
        return text if case.add_generation_prompt else re.sub(rf"{generation_prompt}\Z", "", text)

    return explain


def with_return(text, case):
    """llama.cpp writes the end of a message after the last answer, where the template writes the end of the
    run."""
    if case.add_generation_prompt or CHATS[case.chat][-1]["role"] != "assistant":
        return text
    before, _, after = text.rpartition("<|end|>")
    return f"{before}<|return|>{after}"


EXPLAINED = {
    "generation prompt unless false": without("<assistant>"),
    "llama-cpp-rwkv-world": without("Assistant: <think>(\n</think>)?"),
    "upstage-Solar-Open-100B": without(r"(<\|begin\|>assistant<\|think\|><\|end\|>)?<\|begin\|>assistant"),
    "return after the last answer": with_return,
    "openai-gpt-oss-120b": with_return,
}
"""By template: what turns llama.cpp's prompt into ours; its docstring says why the two differ."""


def never(_case):
    return False


def is_continued(case):
    return case.is_continued


def is_continued_without_thinking(case):
    return case.is_continued and False in case.variables.values()


def has_reasoning_field(case):
    return case.is_continued or case.chat.startswith("reasoning given back")


DIFFERENT = {
    "microsoft-Phi-3.5-mini-instruct": is_continued,
    "llama-cpp-rwkv-world": is_continued,
    "upstage-Solar-Open-100B": has_reasoning_field,
    "Kimi-K2-Instruct": is_continued,
    "moonshotai-Kimi-K2": is_continued,
    "LFM2-8B-A1B": is_continued,
    "unsloth-mistral-Devstral-Small-2507": has_reasoning_field,
    "GLM-4.7-Flash": is_continued_without_thinking,
    "Spark2.5": is_continued_without_thinking,
    "poolside-Laguna-S-2.1": is_continued_without_thinking,
    "poolside-Laguna-XS-2.1": is_continued_without_thinking,
    "poolside-Laguna-XS.2": is_continued_without_thinking,
    "Kimi-K3": is_continued_without_thinking,
}
"""By template: the cases in which our prompt is better than llama.cpp's; docs/chat-templates.md says why."""


DIFFERENT_SMALL = dict.fromkeys(
    ("thinking", "thinking off", "reasoning in a channel", "return after the last answer"), is_continued
)
"""Likewise, of templates that no model has: llama.cpp takes other parts of them for tags."""


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_manual_names_the_templates_that_differ(name):
    assert name in (ROOT / "docs/chat-templates.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
