"""Presets, ``--set``, chains in the compact notation, and presets of other tools."""

from __future__ import annotations

from logitsmith.grammars import GrammarError, resolve_grammar
from logitsmith.presets import PresetError, import_preset, load_preset, resolve_settings
from logitsmith.presets.overrides import parse_set
from logitsmith.samplers import SamplingError, build, catalogue

from ...presets.foreign.cases import FILES, read_cases
from ...samplers.test_compact_notation import READ
from ..target import Target
from .files import contents, file

NAMES = [name.encode() for name in catalogue()]
PARAMETERS = sorted({name.encode() for sampler in catalogue().values() for name in sampler.model_fields})


def preset(data: bytes) -> None:
    """A preset file, its chain and its grammar."""
    found = load_preset(str(file("p.yaml", data)))
    settings = resolve_settings(found)
    build(settings.steps, seed=1)
    if isinstance(settings["grammar"].value, str) and len(settings["grammar"].value) < 200:
        resolve_grammar(settings["grammar"].value)


def sets(data: bytes) -> None:
    """Each line is a ``--set``."""
    lines = data.decode(errors="replace").split("\n")[:50]
    for line in lines:
        parse_set(line)
    build(resolve_settings(None, sets=lines).steps, seed=1)


def notation(data: bytes) -> None:
    """A chain."""
    build(data.decode(errors="replace"), seed=1)


def foreign(data: bytes) -> None:
    """A file of any of the tools, by its content."""
    import_preset(file("foreign.json", data))


TARGETS = (
    Target(
        "presets",
        preset,
        (PresetError, SamplingError, GrammarError),
        [*contents("presets/builtin/*.yaml", "examples/**/*.yaml", "tests/recorded/inputs/*.yaml")],
        [
            *NAMES,
            *PARAMETERS,
            b"chain: ",
            b"stop: ",
            b"grammar: ",
            b"- ",
            b"\n",
            b"\n  ",
            b": ",
            b"&a ",
            b"*a",
            b"|",
            b">",
        ],
    ),
    Target(
        "sets",
        sets,
        (PresetError, SamplingError),
        [
            b"top_k=20",
            b"top_p#1.p=0.5\nseed=7",
            b"temp=0.3\nstop=[a, b]",
            b'logit_bias={1: -inf, " a": 2}',
            b"dry.breakers=[a]",
        ],
        [
            *NAMES,
            *PARAMETERS,
            b"=",
            b".",
            b"#1",
            b"#2",
            b"-",
            b"seed",
            b"max_tokens",
            b"grammar",
            b"[",
            b"]",
            b"{",
            b": ",
        ],
    ),
    Target(
        "chains",
        notation,
        (SamplingError,),
        [text.encode() for text in READ],
        [*NAMES, *PARAMETERS, b">", b"(", b")", b"=", b",", b'"', b"\\", b"[", b"]", b" "],
    ),
    Target(
        "foreign presets",
        foreign,
        (PresetError,),
        [case.content.encode() for path in FILES for case in read_cases(path)],
        [
            *PARAMETERS,
            b"temp",
            b"rep_pen",
            b"sampler_order",
            b"PARAMETER ",
            b"FROM ",
            b'"""',
            b"override: ",
            b"force: ",
        ],
    ),
)
