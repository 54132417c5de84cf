"""Prompts are those of llama.cpp's server, for each template; what differs has a name.

With LLAMA_CPP_MODELS set to the folder `models` of llama.cpp's sources, also for the templates that lie there.
"""

# ruff: noqa: E501 - a template reads better on one line

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from logitsmith.engine import Model, open_chat_template

ROOT = Path(__file__).parent.parent.parent
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi <b> é\n  x "}
ASSISTANT = {"role": "assistant", "content": "Hello."}
WHY = {"role": "user", "content": "Why?"}
CHATS = {"user": [USER], "system": [SYSTEM, USER], "turns": [SYSTEM, USER, ASSISTANT, WHY]}

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
    "generation tag": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
}  # fmt: skip

FOLDER = Path(os.environ.get("LLAMA_CPP_MODELS", "/nowhere")) / "templates"
REAL = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))}
TEMPLATES = SMALL | REAL


@pytest.fixture(scope="module")
def model(pruned_model):
    with Model.load(pruned_model, n_ctx=128) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def servers_prompts(model):
    """What llama.cpp's server makes of the chats, by template: a text for each, or its error in a dict."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.oracle.test_chat_templates"],
        input=json.dumps({"model": str(model.path), "templates": TEMPLATES, "chats": list(CHATS.values())}),
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    request = json.load(sys.stdin)
    templates = request["templates"].items()
    answers = {name: answers_of(request["model"], source, request["chats"]) for name, source in templates}
    print("\n" + json.dumps(answers), flush=True)


def answers_of(path, template, chats):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.no_extra_bufts = True  # its kernels for AMX crash when some compilers made them
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.port = 128, 1, 0, 0
    params.warmup, params.use_jinja, params.chat_template = False, True, template
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    answers = []
    for chat in chats:
        response = httpx.post(f"{server.listening_address}/apply-template", json={"messages": chat}).json()
        answers.append(response.get("prompt", response))
    return answers


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_are_those_of_llama_cpp(model, servers_prompts, name):
    template = open_chat_template(model, TEMPLATES[name])
    ours = [template.render(messages).text for messages in CHATS.values()]
    assert [EXPLAINED.get(name, as_it_is)(text) for text in servers_prompts[name]] == ours


def as_it_is(text):
    return text


def thinking_is_on(text):
    """llama.cpp's server finds no tags of reasoning in this template, and sets enable_thinking to false."""
    return text.replace("Deliberation: disabled", "Deliberation: enabled")


def untrimmed(text):
    """llama.cpp cuts blanks around the messages of this one model, which reasons without end otherwise."""
    return text.replace("Hi <b> é\n  x<", "Hi <b> é\n  x <")


EXPLAINED = {"Apertus-8B-Instruct": thinking_is_on, "StepFun3.5-Flash": untrimmed}
"""By template: what turns llama.cpp's prompt into ours; its docstring says why the two differ."""

if __name__ == "__main__":
    main()
