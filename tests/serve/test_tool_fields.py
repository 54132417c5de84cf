"""A body means what its tool means: its chain is the chain that an import of the same settings gives."""

import json
import shutil

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from logitsmith.common.errors import InvalidFieldError
from logitsmith.presets.errors import PresetError
from logitsmith.presets.foreign.formats import import_text
from logitsmith.presets.foreign.requests import REQUEST_TOOLS
from logitsmith.presets.preset import load_preset
from logitsmith.presets.settings import resolve_settings
from logitsmith.requests.fields import PromptFields, read_body
from logitsmith.requests.sampler_fields import CHAIN_FIELDS, read_chain_changes
from logitsmith.requests.tool_fields import find_tool, read_tool_chain
from logitsmith.samplers.building import chain_notation, make_sampler
from logitsmith.serve.kobold import KoboldFields
from logitsmith.serve.llama_server import CompletionFields

from .sillytavern import PACKAGE, skip_without
from .sillytavern_bodies import TYPES, make_all, recorded_bodies

RECORDED = recorded_bodies()
FORMAT_OF_TYPE = {"ooba": "webui", "koboldcpp": "koboldcpp", "tabby": "tabbyapi"}
DEFAULT = "top_k > top_p > min_p > temperature > dist"


def of_server(body, fields_type=PromptFields, chain=None, keeps_order=False):
    """Return the chain that a server without settings of its own runs, the tool, and the fields without effect."""
    fields, _ = read_body(fields_type, {"prompt": "", **body}, is_strict=False)
    tool = find_tool(fields)
    before = resolve_settings(load_preset("default"), chain=chain)
    if tool is None:
        changes = read_chain_changes(fields, [step.name for step in before.steps])
        found = resolve_settings(
            load_preset("default"), chain=chain, flags=changes.overrides, rearrangements=changes.rearrangements
        )
        steps, unused = found.steps, changes.unused_names
    else:
        steps, unused = read_tool_chain(tool, fields, before.steps, keeps_order=keeps_order)
    notation = chain_notation([{step.name: step.sampler.model_dump()} for step in steps if not step.is_off])
    return notation, None if tool is None else tool.name, unused


def of_import(body, name):
    """Return the chain of the same settings in a file of the tool."""
    tool = REQUEST_TOOLS[name]
    names = {spelling for key in tool.parameters_by_key for spelling in (key, *tool.spellings.get(key, ()))}
    values = {key: value for key, value in body.items() if key in names}
    if name == "koboldcpp":
        text = json.dumps(values)
    else:
        text = yaml.safe_dump(values if name == "webui" else {k: {"override": v} for k, v in values.items()})
    chain = import_text(text, "file", name).chain
    samplers = [make_sampler({step: params}, origin="") for step, params in chain]
    return chain_notation([{sampler.about.name: sampler.model_dump()} for sampler in samplers])


LOCAL = {key: body for key, body in RECORDED.items() if key[0] in FORMAT_OF_TYPE}


@pytest.mark.parametrize(("kind", "slider"), LOCAL)
def test_a_slider_of_sillytavern(kind, slider):
    body = LOCAL[kind, slider]
    chain, tool, _ = of_server(body)
    assert tool == FORMAT_OF_TYPE[kind]
    assert chain == of_import(body, tool)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_sillytavern_is_read(kind):
    """Also the types of programs on the web, whose bodies a proxy may send here: no value is refused."""
    for (other, slider), body in RECORDED.items():
        if other == kind:
            assert of_server({name: body[name] for name in CHAIN_FIELDS & body.keys()})[0], slider


@pytest.mark.skipif(not PACKAGE.is_dir(), reason="make clients")
def test_the_bodies_are_those_of_the_page():
    skip_without(shutil.which("node"), "Node.js")
    recorded = {}
    for kind, entry in make_all().items():
        recorded[kind, "usual"] = entry["usual"]
        for slider, change in entry["moved"].items():
            body = {**entry["usual"], **change}
            recorded[kind, slider] = {name: value for name, value in body.items() if value is not None}
    assert recorded == RECORDED


OF_ALL_TOOLS = {
    "temperature": [0, 0.5, 1],
    "top_k": [0, 7],
    "top_p": [0.5, 1],
    "min_p": [0, 0.1],
    "presence_penalty": [0, 0.3],
    "xtc_probability": [0, 0.5],
    "xtc_threshold": [0.1, 0.2],
}
OF_MOST_TOOLS = OF_ALL_TOOLS | {
    "dynatemp_exponent": [1, 2],
    "dry_multiplier": [0, 0.8],
    "mirostat_tau": [3, 5],
    "dry_sequence_breakers": [["\n"], ["a", "b"]],
}
SLIDERS = {
    "webui": OF_MOST_TOOLS
    | {
        "temperature": [0, 0.5, 1, 1.5],
        "dynamic_temperature": [False, True],
        "dynatemp_low": [0.1, 0.5],
        "dynatemp_high": [0.5, 2],
        "smoothing_factor": [0, 0.3],
        "smoothing_curve": [1, 2],
        "top_k": [0, 7, -1],
        "typical_p": [0.8, 1],
        "tfs": [0.9, 1],
        "top_a": [0, 0.2],
        "top_n_sigma": [0, 1.5],
        "epsilon_cutoff": [0, 3],
        "eta_cutoff": [0, 6],
        "repetition_penalty": [1, 1.2],
        "repetition_penalty_range": [0, 600],
        "frequency_penalty": [0, 0.2],
        "encoder_repetition_penalty": [1, 1.1],
        "no_repeat_ngram_size": [0, 3],
        "dry_base": [1.75, 2],
        "dry_sequence_breakers": ['"\\n", ":"', '["a"]', '"\\"", "*"'],
        "mirostat_mode": [0, 1, 2],
        "adaptive_target": [-0.01, 0.4],
        "do_sample": [False, True],
        "temperature_last": [False, True],
    },
    "koboldcpp": OF_MOST_TOOLS
    | {
        "dynatemp_range": [0, 0.3],
        "smoothing_factor": [0, 0.3],
        "top_a": [0, 0.2],
        "tfs": [0.9, 1],
        "typical": [0.8, 1],
        "nsigma": [0, 1.5],
        "rep_pen": [1, 1.2],
        "rep_pen_range": [0, 1, 600],
        "rep_pen_slope": [0, 0.7, 1],
        "dry_penalty_last_n": [0, 512],
        "mirostat": [0, 1, 2],
        "adaptive_target": [-0.01, 0, 0.4],
    },
    "tabbyapi": OF_ALL_TOOLS
    | {
        "temperature_last": [False, True],
        "nsigma": [0, 1.5],
        "repetition_penalty": [1, 1.2],
        "penalty_range": [-1, 0, 600],
        "frequency_penalty": [0, 0.2],
        "adaptive_target": [-0.01, 0.4, 1],
    },
    "llama.cpp": OF_MOST_TOOLS
    | {
        "temperature": [0.5, 1],
        "dynatemp_range": [0, 0.3],
        "top_k": [0, 7, -1],
        "typical_p": [0.8, 1],
        "top_n_sigma": [-1, 1.5],
        "repeat_penalty": [1, 1.2],
        "repeat_last_n": [0, 64, 600],
        "frequency_penalty": [0, 0.2],
        "dry_penalty_last_n": [0, 512],
        "xtc_threshold": [0.1, 0.2, 0.6],
        "mirostat": [0, 1, 2],
    },
}
"""The values of each tool's fields from which bodies are made."""
ORDERS = {
    "webui": ("sampler_priority", ["temperature", "dynamic_temperature", "top_k", "min_p", "dry", "xtc"]),
    "koboldcpp": ("sampler_order", range(7)),
    "llama.cpp": ("samplers", ["penalties", "dry", "top_k", "top_p", "min_p", "xtc", "temperature"]),
}
OFF = {
    "webui": {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty_range": 1024},
    "koboldcpp": {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "rep_pen_range": 320},
    "tabbyapi": {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "penalty_range": -1},
}
"""The values that turn off the steps of a server without settings of its own."""


@st.composite
def bodies(draw, name):
    """Draw some fields of a tool."""
    fields = draw(st.sets(st.sampled_from(sorted(SLIDERS[name])), max_size=8))
    fields |= {"dynatemp_low", "dynatemp_high"} if "dynamic_temperature" in fields else set()
    body = {field: draw(st.sampled_from(SLIDERS[name][field])) for field in sorted(fields)}
    if name in ORDERS and draw(st.booleans()):
        field, steps = ORDERS[name]
        body[field] = draw(st.permutations(steps))
    return body


@pytest.mark.parametrize("name", OFF)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_settings_of_a_tool(name, data):
    body = OFF[name] | data.draw(bodies(name))
    chain, tool, _ = of_server(body)
    assert tool == name
    assert chain == of_import(body, name)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=bodies("llama.cpp"))
def test_any_settings_of_llama_server(body):
    chain, _, _ = of_server(body, CompletionFields)
    imported = import_text(json.dumps(body | {"cache_prompt": True}), "file", "llama.cpp").chain
    samplers = [make_sampler({step: params}, origin="") for step, params in imported]
    expected = [{s.about.name: s.model_dump()} for s in samplers if not s.is_neutral or s.about.is_selector]
    assert chain == chain_notation(expected)


MEANINGS = {
    "KoboldCpp's window": (
        KoboldFields,
        {"rep_pen": 1.1, "rep_pen_range": 0},
        f"penalties(repeat=1.1, last_n=1) > {DEFAULT}",
    ),
    "webui's window": (
        PromptFields,
        {"repetition_penalty": 1.2, "repetition_penalty_range": 0, "temperature_last": True},
        "penalties(repeat=1.2, last_n=-1) > top_k > top_p > min_p > temperature > dist",
    ),
    "webui's two temperatures": (
        PromptFields,
        {
            "temperature": 0.7,
            "dynamic_temperature": True,
            "dynatemp_low": 0.5,
            "dynatemp_high": 1.5,
            "sampler_priority": ["temperature", "dynamic_temperature", "top_k"],
        },
        "top_p > min_p > temperature=0.7 > dynatemp(temperature=1.0, range=0.5) > top_k > dist",
    ),
    "TabbyAPI's window": (
        PromptFields,
        {"repetition_penalty": 1.2, "penalty_range": 0},
        "temperature > top_k > top_p > min_p > dist",
    ),
    "nothing of a tool's": (KoboldFields, {}, DEFAULT),
    "no telltale": (
        PromptFields,
        {"temperature": 0.5, "repetition_penalty": 1.2},
        "penalties=1.2 > top_k > top_p > min_p > temperature=0.5 > dist",
    ),
    "names of two tools": (
        PromptFields,
        {"rep_pen": 1.1, "epsilon_cutoff": 3},
        "penalties=1.1 > top_k > top_p > min_p > epsilon_cutoff=0.0003 > temperature > dist",
    ),
    "a few of KoboldCpp's numbers": (
        PromptFields,
        {"sampler_order": [5, 0], "top_a": 0.1},
        "top_p > min_p > top_a=0.1 > temperature > top_k > dist",
    ),
    "Aphrodite's order": (
        PromptFields,
        {"sampler_priority": ["top_p_top_k", "temperature"], "temperature": 0.5},
        "min_p > top_p > top_k > temperature=0.5 > dist",
    ),
}


@pytest.mark.parametrize(("fields_type", "body", "chain"), MEANINGS.values(), ids=MEANINGS)
def test_what_a_body_means(fields_type, body, chain):
    assert of_server(body, fields_type)[0] == chain


KEPT = {
    "an order that somebody chose": (
        {"rep_pen": 1.1, "temperature": 0.5},
        "temperature > min_p=0.1 > dist",
        "penalties(repeat=1.1, last_n=320) > temperature=0.5 > min_p=0.1 > dist",
    ),
    "unless the body has one": (
        {"sampler_order": [6, 0, 1, 3, 4, 2, 5], "temperature": 0.5},
        "temperature > min_p=0.1 > dist",
        "min_p=0.1 > temperature=0.5 > dist",
    ),
    "steps that the tool does not have": (
        {"rep_pen": 1.1, "top_k": 7},
        "top_k > top_h=0.4 > temperature > dist",
        "penalties(repeat=1.1, last_n=320) > top_k=7 > top_h=0.4 > temperature > dist",
    ),
    "biases": (
        {"rep_pen": 1.1},
        "logit_bias(5=1.0) > top_k > dist",
        "logit_bias(5=1.0) > penalties(repeat=1.1, last_n=320) > top_k > dist",
    ),
    "a watermark": (
        {"rep_pen": 1.1, "xtc_probability": 0.5, "xtc_threshold": 0.1},
        "top_k > synthid(keys=[1, 2]) > dist",
        "penalties(repeat=1.1, last_n=320) > top_k > xtc=0.5 > synthid(keys=[1, 2]) > dist",
    ),
    "parameters that the tool does not have": (
        {"rep_pen": 1.1, "top_p": 0.5},
        "top_p(p=0.9, min_keep=3) > dist",
        "penalties(repeat=1.1, last_n=320) > top_p(p=0.5, min_keep=3) > dist",
    ),
}


@pytest.mark.parametrize(("body", "chain", "expected"), KEPT.values(), ids=KEPT)
def test_what_a_body_keeps_of_the_servers_chain(body, chain, expected):
    assert of_server(body, chain=chain, keeps_order=True)[0] == expected


IGNORED = {
    "steps that mirostat replaces": (
        KoboldFields,
        {"mirostat": 2, "top_p": 0.5, "tfs": 1, "sampler_order": [6, 0]},
        ["top_p", "sampler_order"],
    ),
    "steps that KoboldCpp does not have": (
        KoboldFields,
        {"frequency_penalty": 0.1, "skew": 0, "top_h": 0.4},
        ["top_h", "frequency_penalty"],
    ),
    "a version of mirostat that webui does not have": (
        PromptFields,
        {"api_type": "ooba", "mirostat_mode": 1},
        ["mirostat_mode"],
    ),
    "a range that webui does not have": (
        PromptFields,
        {"api_type": "ooba", "dry_multiplier": 1, "dry_penalty_last_n": 9},
        ["dry_penalty_last_n"],
    ),
    "what TabbyAPI no longer does": (
        PromptFields,
        {"api_type": "tabby", "dry_multiplier": 1, "tfs": 0.9, "repetition_decay": 5},
        ["tfs", "dry_multiplier", "repetition_decay"],
    ),
    "a dynamic temperature of TabbyAPI": (
        PromptFields,
        {"api_type": "tabby", "dynamic_temperature": True, "dynatemp_range": 0.5},
        ["dynatemp_range", "dynamic_temperature"],
    ),
    "two values of one setting": (
        KoboldFields,
        {"rep_pen": 1.1, "repetition_penalty": 1.2},
        ["repetition_penalty"],
    ),
    "one range under two names": (
        PromptFields,
        {
            "api_type": "ooba",
            "dynamic_temperature": True,
            "dynatemp_low": 0.5,
            "dynatemp_high": 1.5,
            "dynatemp_range": 0.5,
        },
        [],
    ),
    "a switch that KoboldCpp does not need": (
        PromptFields,
        {"api_type": "koboldcpp", "dynamic_temperature": True, "dynatemp_range": 0.5, "temperature": 1},
        [],
    ),
    "a switch without a range": (
        PromptFields,
        {"api_type": "koboldcpp", "dynamic_temperature": True, "dynatemp_range": 0},
        ["dynamic_temperature"],
    ),
    "another tool's order": (KoboldFields, {"temperature": 0.5, "samplers": ["top_k"]}, ["samplers"]),
    "no repetition decay": (PromptFields, {"api_type": "tabby", "repetition_decay": 0}, []),
}


@pytest.mark.parametrize(("fields_type", "body", "names"), IGNORED.values(), ids=IGNORED)
def test_fields_that_mean_nothing_to_a_tool(fields_type, body, names):
    assert sorted(of_server(body, fields_type)[2]) == sorted(names)


def test_the_usual_body_of_tabbyapi_ignores_nothing():
    assert of_server(RECORDED["tabby", "usual"])[2] == []


WRONG = {
    "a temperature below 0": (KoboldFields, "temperature", {"temperature": -1}),
    "a cutoff in units": (PromptFields, "epsilon_cutoff", {"epsilon_cutoff": -1}),
    "another cutoff in units": (PromptFields, "eta_cutoff", {"eta_cutoff": 20000}),
    "half a version of mirostat": (KoboldFields, "mirostat", {"mirostat": 1.5}),
    "half a version, webui": (PromptFields, "mirostat_mode", {"mirostat_mode": 1.5}),
    "a version that nobody has": (KoboldFields, "mirostat", {"mirostat": 3}),
    "a version below 0": (PromptFields, "mirostat_mode", {"api_type": "ooba", "mirostat_mode": -1}),
    "a range upside down": (
        PromptFields,
        "dynatemp_low",
        {"dynamic_temperature": True, "dynatemp_low": 2, "dynatemp_high": 1},
    ),
    "a negative temperature of a range": (
        PromptFields,
        "dynatemp_low",
        {"dynamic_temperature": True, "dynatemp_low": -1, "dynatemp_high": 0.5},
    ),
    "a negative temperature of a range, elsewhere": (
        CompletionFields,
        "dynatemp_low",
        {"dynatemp_low": -1, "dynatemp_high": 0.5},
    ),
    "an unknown number": (KoboldFields, "sampler_order", {"sampler_order": [9]}),
    "a detail": (KoboldFields, "xtc_threshold", {"xtc_probability": 0.5, "xtc_threshold": 7}),
}


@pytest.mark.parametrize(("fields_type", "field", "body"), WRONG.values(), ids=WRONG)
def test_errors_name_the_field_and_the_number_that_was_written(fields_type, field, body):
    with pytest.raises((PresetError, InvalidFieldError)) as caught:
        of_server(body, fields_type)
    (number,) = body[field] if isinstance(body[field], list) else [body[field]]
    assert str(caught.value).startswith(f"{field}: {number} is not ")
