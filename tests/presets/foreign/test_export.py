"""Exports: an import of the text gives the same chain, save for what is reported."""

import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logitsmith.presets import EXPORT_FORMATS, Preset, PresetError, export_preset, import_preset
from logitsmith.samplers import parse_chain

IMPORT_FORMATS = {name: "llama.cpp" if name.startswith("llama") else name for name in EXPORT_FORMATS}


def number(low, high, digits=3):
    return st.integers(round(low * 10**digits), round(high * 10**digits)).map(lambda value: value / 10**digits)


PENALTY = {"repeat": number(0.5, 2), "presence": number(0, 2), "frequency": number(0, 2)}
DRY = {
    "multiplier": number(0.1, 5),
    "base": number(1, 4),
    "allowed_length": st.integers(0, 9),
    "breakers": st.lists(st.sampled_from(["\n", ":", '"', "*", "a\\b", "é ", "[", "'"]), unique=True, min_size=1),
}
WINDOW = st.sampled_from([1, 64, 1024])
BIASES = st.dictionaries(st.integers(0, 99), number(-9, 9), min_size=1, max_size=3)
TEMPERATURE = {"t": number(0.05, 3)}
DYNATEMP = {"temperature": number(1, 2), "range": number(0.1, 0.9), "exponent": number(0.5, 2)}
K, P, SIGMA = {"k": st.integers(1, 99)}, {"p": number(0.1, 0.99)}, {"n": number(0.1, 3)}
XTC = {"probability": number(0.1, 1), "threshold": number(0, 0.5)}
TAU = {"tau": number(1, 9), "eta": number(0.01, 1)}
TARGET = {"target": number(0.01, 0.9), "decay": number(0.1, 0.99)}
CUTOFF = {"epsilon": number(0.001, 0.5)}

# The steps that each format can say, the order if it is fixed, and what can end a chain.
LLAMA = {
    "penalties": {**PENALTY, "last_n": WINDOW},
    "dry": {**DRY, "last_n": WINDOW},
    "top_n_sigma": SIGMA,
    "top_k": K,
    "typical": P,
    "top_p": P,
    "min_p": P,
    "xtc": XTC,
    "infill": {},
    "temperature": TEMPERATURE,
}
SILLYTAVERN_FRONT = {
    "ignore_eos": {},
    "min_tokens": {"n": st.integers(1, 9)},
    "ban": {
        "tokens": st.lists(st.sampled_from([1, 2, "word"]), min_size=1, unique=True).map(
            lambda tokens: sorted(tokens, key=str)
        ),
        "strings": st.lists(st.sampled_from(["a b", " c"]), unique=True),
    },
    "logit_bias": {
        "bias": st.dictionaries(st.sampled_from([3, " hi", "x", "[7]", "{y}"]), number(-9, 9), min_size=1)
    },
}
LLAMA_FRONT = {"ignore_eos": {}, "logit_bias": {"bias": BIASES}}
HIJACK = {
    "penalties": {**PENALTY, "last_n": st.just(-1)},
    "dry": {**DRY, "last_n": st.just(-1), "match": st.just("last_token")},
    "temperature": TEMPERATURE,
    "quadratic": {"factor": number(0.1, 3), "curve": number(1, 3)},
    "xtc": {**XTC, "keep_special": st.just("cancel")},
    "top_k": K,
    "top_p": P,
    "typical": P,
    "min_p": P,
    "top_a": {"a": number(0.1, 1)},
    "tfs": {"z": number(0, 0.9)},
    "top_n_sigma": SIGMA,
    "epsilon_cutoff": CUTOFF,
    "eta_cutoff": CUTOFF,
    "encoder_repetition_penalty": {"penalty": number(1.01, 2)},
    "no_repeat_ngram": {"n": st.integers(1, 9)},
}
OLLAMA = {
    "penalties": {**PENALTY, "last_n": WINDOW},
    "top_k": K,
    "typical": P,
    "top_p": P,
    "min_p": P,
    "temperature": TEMPERATURE,
}
HUGGINGFACE = {
    "logit_bias": {"bias": BIASES},
    "encoder_repetition_penalty": {"penalty": number(1.01, 2)},
    "penalties": {"repeat": number(0.5, 2), "last_n": st.just(-1)},
    "no_repeat_ngram": {"n": st.integers(1, 9)},
    "ban": {"tokens": st.lists(st.integers(0, 99), min_size=1, unique=True)},
    "min_tokens": {"n": st.integers(1, 99)},
    "temperature": TEMPERATURE,
    "top_h": {"h": number(0.1, 1)},
    "top_k": K,
    "top_p": P,
    "min_p": P,
    "typical": P,
    "epsilon_cutoff": CUTOFF,
    "eta_cutoff": CUTOFF,
}
BEFORE_GREEDY = ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")


def some(draw, sayable, is_fixed):
    names = draw(st.lists(st.sampled_from(sorted(sayable)), unique=True))
    names = [name for name in sayable if name in names] if is_fixed else names
    return [[name, {key: draw(value) for key, value in sayable[name].items()}] for name in names]


@st.composite
def sayable_chains(draw):
    """A format and a chain that it can say."""
    form = draw(st.sampled_from(EXPORT_FORMATS))
    front, end = [], draw(st.sampled_from(["dist", "dist", "selector", "greedy"]))
    if form in ("llama.cpp", "llama-server"):
        front = some(draw, LLAMA_FRONT, is_fixed=True)
        steps = some(draw, {**LLAMA, **({"dynatemp": DYNATEMP} if draw(st.booleans()) else {})}, is_fixed=False)
        names = [name for name, _ in steps]
        if "dynatemp" in names or end == "greedy":
            steps = [step for step in steps if step[0] != "temperature"]
        if end == "greedy":
            steps = [step for step in steps if step[0] != "dynatemp"]
        name = draw(st.sampled_from(["mirostat", "mirostat_v2", "adaptive_p"]))
        if end == "selector" and name != "adaptive_p":
            steps = [step for step in steps if step[0] == "temperature"]
    elif form in ("webui", "sillytavern"):
        front = some(draw, SILLYTAVERN_FRONT, is_fixed=True) if form == "sillytavern" else []
        chosen = {name: HIJACK[name] for name in HIJACK}
        if end == "greedy":
            chosen = {
                name: HIJACK[name]
                for name in ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")
            }
        elif form == "webui":
            chosen["dynatemp"] = DYNATEMP
        steps = some(draw, chosen, is_fixed=False)
        name = draw(st.sampled_from(["mirostat_v2", "adaptive_p"]))
    else:
        sayable = OLLAMA if form == "ollama" else HUGGINGFACE
        steps = some(draw, sayable, is_fixed=True)
        sampling = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical", "epsilon_cutoff", "eta_cutoff")
        if end == "greedy":
            dropped = ("temperature",) if form == "ollama" else sampling
            steps = [step for step in steps if step[0] not in dropped]
        end = "dist" if end == "selector" else end
        name = "dist"
    ends = {
        "dist": ["dist", {}],
        "greedy": ["greedy", {}],
        "selector": [name, {key: draw(value) for key, value in (TARGET if name == "adaptive_p" else TAU).items()}],
    }
    return form, [*front, *steps, ends[end]]


def acting(chain):
    samplers = parse_chain([{name: params} for name, params in chain])
    return [sampler for sampler in samplers if sampler.about.selects or not sampler.is_neutral]


def imported(folder, form, text):
    path = folder / "theirs"
    path.write_text(text)
    return import_preset(path, IMPORT_FORMATS[form])


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(pair=sayable_chains())
def test_an_import_of_an_export_gives_the_same_chain(tmp_path_factory, pair):
    form, chain = pair
    exported = export_preset(chain, form)
    assert exported.reported == []
    back = imported(tmp_path_factory.mktemp("export"), form, exported.text)
    assert acting(back.chain) == acting(chain)
    assert back.reported == []


ANY = {
    **LLAMA,
    **SILLYTAVERN_FRONT,
    **LLAMA_FRONT,
    **HIJACK,
    **HUGGINGFACE,
    "dynatemp": DYNATEMP,
    "penalties": {**PENALTY, "last_n": st.sampled_from([-1, 64]), "scope": st.sampled_from(["all", "output"])},
    "top_p": {**P, "min_keep": st.integers(1, 3), "boundary": st.sampled_from(["include", "exclude"])},
    "xtc": {**XTC, "keep_special": st.sampled_from([False, "cancel"])},
    "repetition_penalty": {"penalty": number(1.01, 2)},
    "skew": {"skew": number(0.1, 2)},
    "ban": {"tokens": st.just([1]), "strings": st.lists(st.sampled_from(["a", "b\nc"]), unique=True)},
}
ANY_END = {"dist": {}, "greedy": {}, "mirostat": TAU, "mirostat_v2": TAU, "adaptive_p": TARGET}


@st.composite
def any_chains(draw):
    names = draw(st.lists(st.sampled_from(sorted(ANY)), max_size=6))
    end = draw(st.sampled_from(sorted(ANY_END)))
    steps = [[name, {key: draw(value) for key, value in ANY[name].items()}] for name in names]
    return [*steps, [end, {key: draw(value) for key, value in ANY_END[end].items()}]]


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(form=st.sampled_from(EXPORT_FORMATS), chain=any_chains())
def test_what_does_not_come_back_is_reported(tmp_path_factory, form, chain):
    exported = export_preset(chain, form)
    back = imported(tmp_path_factory.mktemp("export"), form, exported.text)
    assert exported.reported or acting(back.chain) == acting(chain)


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_a_temperature_of_0_is_a_greedy_end(form):
    exported = export_preset("temp0 > top-p0.5", form)
    assert exported == export_preset("greedy", form)


UNSAID = {
    "webui: adaptive-p at 0": ("webui", [["adaptive_p", {"target": 0}]], ["adaptive_p.target"]),
    "ollama: a step": ("ollama", "tfs0.9 > temp0.8", ["tfs"]),
    "ollama: the order": ("ollama", "temp0.8 > top_k5", ["order"]),
    "ollama: a selector": ("ollama", "mirostat_v2", ["mirostat_v2"]),
    "huggingface: presence": (
        "huggingface",
        [{"penalties": {"presence": 1.0, "last_n": -1}}],
        ["penalties.presence"],
    ),
    "huggingface: a window": ("huggingface", [{"penalties": {"repeat": 1.1}}], ["penalties.last_n"]),
    "llama.cpp: twice": ("llama.cpp", "top_k5 > temp2 > top_k3", ["top_k"]),
    "llama.cpp: a window of all": (
        "llama.cpp",
        [{"penalties": {"repeat": 1.1, "last_n": -1}}],
        ["penalties.last_n"],
    ),
    "llama.cpp: before mirostat": ("llama.cpp", "top_k5 > temp2 > mirostat_v2", ["top_k"]),
    "llama.cpp: parameters": ("llama.cpp", [{"top_p": {"p": 0.9, "min_keep": 2}}], ["top_p.min_keep"]),
    "llama.cpp: text biases": ("llama.cpp", [{"logit_bias": {"hi": 1.0}}], ["logit_bias.bias"]),
    "webui: two windows": (
        "webui",
        [{"penalties": {"repeat": 1.1, "last_n": 5}}, {"dry": {"multiplier": 1.0, "match": "last_token"}}],
        ["dry.last_n"],
    ),
    "webui: greedy": ("webui", "typical0.5 > greedy", ["typical"]),
    "sillytavern: a ban": ("sillytavern", [{"ban": {"strings": ["a\nb"]}}], ["ban"]),
}


@pytest.mark.parametrize(("form", "chain", "subjects"), UNSAID.values(), ids=UNSAID)
def test_reported(form, chain, subjects):
    reported = export_preset(chain, form).reported
    assert [sentence.split()[0].rstrip(":") for sentence in reported] == subjects


SETTINGS = {
    "chain": ["dist"],
    "seed": 7,
    "max_tokens": 99,
    "stop": ["a b", "\n", '"q'],
    "system": 'You "are"\n',
    "grammar": 'root ::= "a"',
}
SAID = {
    "llama.cpp": ("seed", "max_tokens", "stop", "system", "grammar"),
    "llama-server": ("seed", "max_tokens", "stop", "grammar"),
    "webui": (),
    "sillytavern": ("seed", "max_tokens", "grammar"),
    "ollama": ("seed", "max_tokens", "stop", "system"),
    "huggingface": ("max_tokens", "stop"),
}


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_the_settings_beside_the_chain(tmp_path, form):
    exported = export_preset(Preset.from_table(SETTINGS), form)
    back = imported(tmp_path, form, exported.text)
    assert back.extras == {key: SETTINGS[key] for key in SAID[form]}
    unsaid = {"seed", "max_tokens", "stop", "system", "grammar"} - set(SAID[form])
    assert {sentence.split(":")[0] for sentence in exported.reported} == unsaid


def test_a_schema(tmp_path):
    preset = Preset.from_table({"grammar": {"json_schema": {"type": "object"}}, "chain": ["dist"]})
    assert "--json-schema" in export_preset(preset, "llama.cpp").text
    for form in ("llama-server", "sillytavern"):
        back = imported(tmp_path, form, export_preset(preset, form).text)
        assert back.extras == {"grammar": {"json_schema": {"type": "object"}}}


def test_a_command_line_and_a_body():
    chain = "top_k40 > temp0.8"
    words = shlex.split(export_preset(chain, "llama.cpp").text)
    assert words == ["llama-cli", "--samplers", "top_k;temperature", "--top-k", "40", "--temp", "0.8"]
    body = json.loads(export_preset(chain, "llama-server").text)
    assert body == {"samplers": ["top_k", "temperature"], "top_k": 40, "temperature": 0.8}


@pytest.mark.parametrize("form", ["llama.cpp", "llama-server"])
def test_both_are_recognised(tmp_path, form):
    path = tmp_path / "theirs"
    path.write_text(export_preset("typical0.5", form).text)
    assert import_preset(path).format == "llama.cpp"


def test_refused():
    with pytest.raises(PresetError, match="did you mean ollama"):
        export_preset("top_k5", "olama")
    with pytest.raises(PresetError, match="unknown sampler"):
        export_preset([["topk9", {}], ["x", {}]], "ollama")
