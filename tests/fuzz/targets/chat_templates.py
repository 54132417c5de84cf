"""Chat templates: programs that somebody else wrote, which a model's file brings along."""

from __future__ import annotations

from logitsmith.engine import ModelError
from logitsmith.engine.jinja_template import JinjaChatTemplate

from ..target import Target

_MOST_BYTES = 3000
_CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello {{ 7 * 7 }}"},
    {"role": "assistant", "content": "<think>\nHm.\n</think>\nHello."},
    {"role": "user", "content": "Tell me of the sea."},
]
_SEEDS = [
    b"{% for m in messages %}<|im_start|>{{ m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    b"{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    b"{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
    b"{% set loop_messages = messages[1:] %}{% else %}{% set s='' %}{% set loop_messages = messages %}{% endif %}"
    b"{%- for m in loop_messages -%}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    b"{{ raise_exception('roles must alternate') }}{% endif %}[INST] {{ m.content }} [/INST]{%- endfor -%}",
    b"{% macro say(m, kind='x') -%}{{ m.content.split('</think>')[-1].lstrip('\\n') | upper }}{%- endmacro %}"
    b"{% set ns = namespace(seen=false, text='') %}{% for m in messages | selectattr('role', 'equalto', 'user') %}"
    b"{% set ns.text = ns.text ~ say(m) %}{% endfor %}{{ ns.text }}{{ messages | tojson(indent=2) }}",
    b"{% generation %}{{ strftime_now('%Y') }}{{ date_string }}{% endgeneration %}"
    b"{{ {'a': [1, 2.5, none]} | items | list }}",
    b"{{ '%s and %d' | format('a', 3) }}{{ range(3) | map('string') | join(', ') }}{{ 2 ** 10 }}{{ 'ab' * 3 }}",
]


def chat_template(data: bytes) -> None:
    """A template that makes a prompt of a chat."""
    source = data[:_MOST_BYTES].decode(errors="replace")
    template = JinjaChatTemplate(source, bos="<s>", eos="</s>", variables={"enable_thinking": False})
    _ = template.reasoning_tags
    template.render(_CHAT).text.encode()


TARGETS = (
    Target(
        "chat template",
        chat_template,
        (ModelError,),
        _SEEDS,
        [
            b"{% for x in ",
            b"{% endfor %}",
            b"{% if ",
            b"{% endif %}",
            b"{% set x = ",
            b"{% macro f() %}",
            b"{% endmacro %}",
            b"{% include '",
            b"{% import '",
            b"{% filter ",
            b"{% call ",
            b"{{ ",
            b" }}",
            b"range(",
            b" ** ",
            b" * ",
            b" ~ ",
            b"999999999",
            b".__class__",
            b"|attr('__mro__')",
            b"| join(",
            b"| replace(",
            b"| format(",
            b"| center(",
            b"| indent(",
            b"| batch(",
            b"| tojson",
            b"| sort",
            b"cycler(",
            b"namespace(",
            b"lipsum(",
            b"raise_exception(",
            b"strftime_now(",
            b".format(",
            b".encode(",
            b"messages",
            b"loop",
        ],
    ),
)
