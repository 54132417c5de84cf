"""The page of the samplers, from what each sampler says of itself."""

from __future__ import annotations

import inspect
import json
from typing import Any

from logitsmith.samplers import Sampler, allowed_values, catalogue

from .markdown import block, code, plain, prose, table

_HEAD = """# Samplers

To choose the samplers of a run, write them as a chain: `gen "The sea was" --chain "top-k40 > temp0.8"`. A chain
may use any of these samplers, in any order and several times; see [Chains](../chains.md). `gen samplers NAME`
shows the same facts in the terminal. The *main parameter* of a sampler is the one that a single value sets:
`top_k: 40` in a preset, or `top-k40` in a chain.

Where systems compute a sampler differently, a parameter selects the variant: `top_p.boundary`, `tfs.pad`,
`dry.match` and others. The default is llama.cpp's variant; where llama.cpp lacks the sampler, it is the paper's.

DoLa and contrastive search are missing, because llama.cpp hands out neither the logits of inner layers nor hidden
states; see [What a chain cannot do](../chains.md#what-a-chain-cannot-do).

"""


def samplers_page() -> str:
    """Markdown of the table of samplers, and of a section for each."""
    samplers = catalogue()
    return _HEAD + samplers_table() + "\n" + "\n".join(_section(cls) for cls in samplers.values())


def samplers_table() -> str:
    """One row a sampler: name, main parameter, what it does, source."""
    rows = [
        (
            f"[`{name}`](#{name})",
            code(cls.about.main_parameter or ""),
            plain(cls.about.summary),
            prose(cls.about.reference),
        )
        for name, cls in catalogue().items()
    ]
    return table(("sampler", "main parameter", "what it does", "source"), rows)


def _section(cls: type[Sampler]) -> str:
    about = cls.about
    first, _, details = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")
    off_values = ", ".join(f"{name} {_plain(value)}" for name, value in about.off_values.items())
    facts = [
        ("formula", code(about.formula)),
        ("off at", code(off_values) or "never"),
        ("source", prose(about.reference)),
        ("llama.cpp", prose(about.llama_cpp)),
    ]
    if about.aliases:
        facts.append(("also named", ", ".join(map(code, about.aliases))))
    if about.is_selector:
        facts.append(("place", "the last step: it draws the token"))
    parts = [f"## {about.name} {{ #{about.name} }}\n", prose(first) + "\n", table(("", ""), facts)]
    if cls.model_fields:
        rows = [
            (code(name), code(_default(cls, name)), code(allowed_values(field)), plain(field.description or ""))
            for name, field in cls.model_fields.items()
        ]
        parts.append(table(("parameter", "default", "allowed", "meaning"), rows))
    if about.main_parameter:
        example = _default(cls, about.main_parameter) if about.example is None else _plain(about.example)
        parts.append(block(f"chain:\n  - {about.name}: {example}", "yaml"))
    if details:
        parts.append(prose(details) + "\n")
    return "\n".join(parts)


def _default(cls: type[Sampler], parameter: str) -> str:
    return _plain(cls.model_fields[parameter].get_default(call_default_factory=True))


def _plain(value: Any) -> str:
    """A value as YAML takes it: JSON, in which the keys of a table need no quotes."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_plain(item)}' for key, item in value.items())}}}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
