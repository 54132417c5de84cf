"""Exports: an import of the text gives the same chain, except for what is reported."""

import json
import re

import pytest
from hypothesis import given, settings, strategies as st
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
SEQUENCES = st.dictionaries(
    st.lists(st.integers(0, 99), min_size=2, max_size=4).map(tuple), number(-5, 5), min_size=1, max_size=3
).map(lambda biases: [[list(ids), value] for ids, value in biases.items()])
HUGGINGFACE = {
    "logit_bias": {"bias": BIASES},
    "sequence_bias": {"ids": SEQUENCES},
    "encoder_repetition_penalty": {"penalty": number(1.01, 2)},
    "penalties": {"repeat": number(0.5, 2), "last_n": st.just(-1)},
    "no_repeat_ngram": {"n": st.integers(1, 9)},
    "ban": {"tokens": st.lists(st.integers(0, 99), min_size=1, unique=True)},
    "min_tokens": {"n": st.integers(1, 99)},
    "length_decay": {"factor": number(1.01, 2), "start": st.integers(0, 99)},
    "temperature": TEMPERATURE,
    "top_h": {"h": number(0.1, 1)},
    "top_k": K,
    "top_p": P,
    "min_p": P,
    "typical": P,
    "epsilon_cutoff": CUTOFF,
    "eta_cutoff": CUTOFF,
}
KOBOLDAI = {
    "repetition_penalty": {
        "penalty": number(1.01, 2),
        "range": st.sampled_from([0, 1, 64, 1024]),
        "slope": st.sampled_from([0.0, 0.7, 3.4]),
    },
    "temperature": TEMPERATURE,
    "top_k": K,
    "top_a": {"a": number(0.1, 1)},
    "top_p": P,
    "tfs": {"z": number(0, 0.9)},
    "typical": P,
}
KOBOLDCPP_FRONT = {
    "ignore_eos": {},
    "logit_bias": {"bias": BIASES},
    "dry": {**DRY, "last_n": WINDOW},
}
KOBOLDCPP_GROUPS = [
    {"top_k": K},
    {"top_a": {"a": number(0.1, 1)}},
    {"top_p": P, "min_p": P},
    {"tfs": {"z": number(0, 0.9), "pad": st.just(False)}},
    {"typical": P},
    {
        "temperature": TEMPERATURE,
        "quadratic": {"factor": number(0.1, 3), "curve": number(1, 3)},
        "top_n_sigma": SIGMA,
    },
    {"penalties": {"repeat": number(0.5, 2), "presence": number(0, 2), "last_n": WINDOW}},
]
DYNATEMP_GROUP = {
    "dynatemp": DYNATEMP,
    **{name: KOBOLDCPP_GROUPS[5][name] for name in ("quadratic", "top_n_sigma")},
}
HALVES = {"penalty": number(1.01, 2), "slope": number(0.1, 0.9), "shape": st.just("halves")}
TABBYAPI = {
    "logit_bias": {"bias": BIASES},
    "penalties": {**PENALTY, "last_n": st.sampled_from([-1, 64])},
    "ignore_eos": {},
    "min_tokens": {"n": st.integers(1, 9)},
    "ban": {
        "tokens": st.lists(st.integers(0, 99), min_size=1, unique=True),
    },
    "temperature": TEMPERATURE,
    "top_k": K,
    "top_p": {**P, "boundary": st.just("exclude")},
    "min_p": P,
    "xtc": {**XTC, "keep_special": st.just(True)},
}
LMSTUDIO = {
    "penalties": {**PENALTY, "last_n": st.just(64)},
    "top_k": K,
    "tfs": {"z": number(0, 0.9), "pad": st.just(False)},
    "typical": P,
    "top_p": P,
    "min_p": P,
    "xtc": XTC,
    "temperature": TEMPERATURE,
}
BEFORE_GREEDY = ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")


def some(draw, sayable, is_fixed):
    """Some of these steps; ``is_fixed``: in their order."""
    if not sayable:
        return []
    names = draw(st.lists(st.sampled_from(sorted(sayable)), unique=True))
    names = [name for name in sayable if name in names] if is_fixed else names
    return [[name, {key: draw(value) for key, value in sayable[name].items()}] for name in names]


def without(steps, *names):
    return [step for step in steps if step[0] not in names]


def llama_cpp_steps(draw, end):
    front = some(draw, LLAMA_FRONT, is_fixed=True)
    if end.startswith("mirostat"):
        return front + some(draw, {"temperature": TEMPERATURE}, is_fixed=True)
    steps = some(draw, {**LLAMA, **({"dynatemp": DYNATEMP} if draw(st.booleans()) else {})}, is_fixed=False)
    if end == "greedy":
        return front + without(steps, "temperature", "dynatemp")
    has_dynatemp = any(name == "dynatemp" for name, _ in steps)
    return front + (without(steps, "temperature") if has_dynatemp else steps)


def webui_steps(draw, end):
    chosen = {name: HIJACK[name] for name in (BEFORE_GREEDY if end == "greedy" else HIJACK)}
    return some(draw, chosen if end == "greedy" else {**chosen, "dynatemp": DYNATEMP}, is_fixed=False)


def sillytavern_steps(draw, end):
    chosen = {name: HIJACK[name] for name in (BEFORE_GREEDY if end == "greedy" else HIJACK)}
    return some(draw, SILLYTAVERN_FRONT, is_fixed=True) + some(draw, chosen, is_fixed=False)


def koboldai_steps(draw, _end):
    return some(draw, KOBOLDAI, is_fixed=False)


def koboldcpp_steps(draw, end):
    """The steps of each number of sampler_order together, the numbers in any order."""
    groups = [dict(group) for group in draw(st.permutations(KOBOLDCPP_GROUPS))]
    if draw(st.booleans()):
        groups = [DYNATEMP_GROUP if "temperature" in group else group for group in groups]
    if end == "greedy":
        groups = [group for group in groups if "top_n_sigma" not in group]
    if end.startswith("mirostat"):
        groups = [KOBOLDCPP_GROUPS[6], {"temperature": TEMPERATURE, "quadratic": HIJACK["quadratic"]}]
    steps = []
    for group in groups:
        if "penalties" in group and draw(st.booleans()):
            window = draw(st.sampled_from([64, 1023]))
            halves = {key: draw(value) for key, value in HALVES.items()}
            steps.append(["repetition_penalty", {**halves, "range": window}])
            if draw(st.booleans()):
                steps.append(["penalties", {"presence": draw(number(0.1, 2)), "last_n": window}])
        else:
            steps += some(draw, group, is_fixed=True)
    xtc = {"xtc": XTC} if end in ("dist", "adaptive_p") else {}
    return [*some(draw, KOBOLDCPP_FRONT, is_fixed=True), *steps, *some(draw, xtc, is_fixed=True)]


def ollama_steps(draw, end):
    steps = some(draw, OLLAMA, is_fixed=True)
    return without(steps, "temperature") if end == "greedy" else steps


def huggingface_steps(draw, end):
    steps = some(draw, HUGGINGFACE, is_fixed=True)
    if any(name == "sequence_bias" for name, _ in steps):  # both have one key in the file
        steps = without(steps, "logit_bias")
    sampling = ("temperature", "top_h", "top_k", "top_p", "min_p", "typical", "epsilon_cutoff", "eta_cutoff")
    return without(steps, *sampling) if end == "greedy" else steps


def tabbyapi_steps(draw, end):
    """The temperature is before the truncation, or between it and xtc."""
    steps = some(draw, TABBYAPI, is_fixed=True)
    if end == "greedy":
        return without(steps, "temperature", "xtc")
    heat = [step for step in steps if step[0] == "temperature"]
    if draw(st.booleans()):
        steps = without(steps, "temperature")
        place = len(without(steps, "xtc"))
        steps[place:place] = heat
    return steps


def lmstudio_steps(draw, end):
    if end.startswith("mirostat"):
        return some(draw, {"temperature": TEMPERATURE}, is_fixed=True)
    steps = some(draw, LMSTUDIO, is_fixed=True)
    return without(steps, "temperature") if end == "greedy" else steps


MIROSTATS = ("mirostat", "mirostat_v2")
# The steps that a format can say, and the steps that can end the chain beside a plain draw.
SAYABLE = {
    "llama.cpp": (llama_cpp_steps, ("greedy", "adaptive_p", *MIROSTATS)),
    "llama-server": (llama_cpp_steps, ("greedy", "adaptive_p", *MIROSTATS)),
    "webui": (webui_steps, ("greedy", "adaptive_p", "mirostat_v2")),
    "sillytavern": (sillytavern_steps, ("greedy", "adaptive_p", "mirostat_v2")),
    "koboldai": (koboldai_steps, ("dist",)),
    "koboldcpp": (koboldcpp_steps, ("greedy", "adaptive_p", *MIROSTATS)),
    "ollama": (ollama_steps, ("greedy",)),
    "huggingface": (huggingface_steps, ("greedy",)),
    "tabbyapi": (tabbyapi_steps, ("greedy", "adaptive_p")),
    "lmstudio": (lmstudio_steps, ("greedy", *MIROSTATS)),
}
ENDS = {"dist": {}, "greedy": {}, "adaptive_p": TARGET, "mirostat": TAU, "mirostat_v2": TAU}


@st.composite
def sayable_chains(draw):
    """A format and a chain that it can say."""
    form = draw(st.sampled_from(EXPORT_FORMATS))
    make_steps, ends = SAYABLE[form]
    end = draw(st.sampled_from(["dist", *ends]))
    return form, [*make_steps(draw, end), [end, {key: draw(value) for key, value in ENDS[end].items()}]]


def acting(chain):
    samplers = parse_chain([{name: params} for name, params in chain])
    return [sampler for sampler in samplers if sampler.about.is_selector or not sampler.is_neutral]


def is_flat(penalty, range, slope, shape):  # noqa: A002 - the parameters' names
    """True if the slope has no effect."""
    return range < 2 or not slope or (shape == "halves" and (penalty <= 1 or slope >= 1))


def effects(chain):
    """Return the active steps; a repeat penalty without a slope becomes a separate step."""
    steps = []
    for sampler in acting(chain):
        name, values = sampler.about.name, sampler.model_dump()
        if name == "repetition_penalty" and is_flat(**values):
            steps.append(["penalties", {"repeat": values["penalty"], "last_n": values["range"] or -1}])
        elif name == "penalties" and sampler.repeat != 1:
            kept = {key: values[key] for key in ("repeat", "last_n", "penalize_newline")}
            steps += [["penalties", kept], ["penalties", {**values, "repeat": 1.0}]]
        else:
            steps.append([name, values])
    return acting(steps)


WINDOW_SENTENCE = re.compile(r"(penalties|dry)\.last_n -1: .* was written")


def without_windows(sentences):
    """Leave out that a tool has no number for all tokens: the number that was written comes back as -1."""
    return [sentence for sentence in sentences if not WINDOW_SENTENCE.match(sentence)]


def imported(folder, form, text):
    path = folder / "theirs"
    path.write_text(text)
    return import_preset(path, IMPORT_FORMATS[form])


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(pair=sayable_chains())
def test_an_import_of_an_export_gives_the_same_chain(tmp_path_factory, pair):
    form, chain = pair
    exported = export_preset(chain, form)
    assert without_windows(exported.unsupported_settings) == []
    back = imported(tmp_path_factory.mktemp("export"), form, exported.text)
    assert acting(back.chain) == acting(chain)
    assert back.unsupported_settings == []


ANY = {
    **LLAMA,
    **SILLYTAVERN_FRONT,
    **LLAMA_FRONT,
    **HIJACK,
    **HUGGINGFACE,
    "synthid": {
        "keys": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
        "ngram_len": st.integers(2, 9),
    },
    "dynatemp": DYNATEMP,
    "penalties": {**PENALTY, "last_n": st.sampled_from([-1, 64]), "scope": st.sampled_from(["all", "output"])},
    "top_p": {**P, "min_keep": st.integers(1, 3), "boundary": st.sampled_from(["include", "exclude"])},
    "xtc": {**XTC, "keep_special": st.sampled_from([False, "cancel"])},
    "repetition_penalty": {
        "penalty": number(0.5, 2),
        "range": st.sampled_from([0, 1, 64]),
        "slope": st.sampled_from([0.0, 0.7, 3.4]),
        "shape": st.sampled_from(["sigmoid", "halves"]),
    },
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
    assert exported.unsupported_settings or effects(back.chain) == effects(chain)


# A chain that leaves its marks where the format has no value for what is off.
WILD = {
    "llama-server": "dynatemp(temperature=1, range=0.5) > mirostat_v2",
    "sillytavern": "penalties(repeat=1.3, last_n=-1) > dry2 > top_k3 > typical0.5 > xtc0.5 > mirostat_v2",
    "koboldai": "rep_pen(penalty=1.3, range=9, slope=2) > temp2 > top_k3 > top_a.5 > top_p.5 > min_p.5 > tfs.5",
    "koboldcpp": "dry2 > rep_pen1.3 > min_p0.5 > dynatemp(temperature=1, range=0.5) > xtc0.5 > adaptive_p0.5",
    "ollama": "penalties1.3 > top_k3 > typical0.5 > top_p0.5 > min_p0.5 > temp2",
    "lmstudio": "penalties1.3 > top_k3 > tfs0.5 > typical0.5 > top_p0.5 > min_p0.5 > xtc0.5 > temp2",
}
CALM = {"nothing": "dist", "temperature": "temp0.7", "greedy": "greedy"}


def laid_over(form, below, above):
    """Return the values that hold in a tool that keeps what a preset does not say."""
    if form == "ollama":
        return below + above.replace("FROM model\n", "")
    below, above = json.loads(below), json.loads(above)
    if form == "lmstudio":
        fields = {field["key"]: field for file in (below, above) for field in file["operation"]["fields"]}
        return json.dumps({**above, "operation": {"fields": list(fields.values())}})
    if form == "koboldai":
        return json.dumps([{**below[0], **above[0]}])
    return json.dumps({**below, **above})


@pytest.mark.parametrize("calm", CALM.values(), ids=CALM)
@pytest.mark.parametrize("form", WILD)
def test_nothing_of_an_earlier_preset_is_left(tmp_path, form, calm):
    wild, text = export_preset(WILD[form], form).text, export_preset(calm, form).text
    assert acting(imported(tmp_path, form, wild).chain) != acting(imported(tmp_path, form, text).chain)
    both = imported(tmp_path, form, laid_over(form, wild, text))
    assert acting(both.chain) == acting(imported(tmp_path, form, text).chain)


# SillyTavern's presets for KoboldAI: values of its Universal-Creative and Miro Silver, and of others.
SILLYTAVERNS_KOBOLD = {
    "min_p": ({"temp": 1.5, "min_p": 0.1, "sampler_order": [5, 6, 0, 1, 2, 3, 4]}, ["min_p"]),
    "min_p with top_p": (
        {"top_p": 0.9, "min_p": 0.1, "temp": 0.7, "sampler_order": [6, 2, 5, 0, 1, 3, 4]},
        ["min_p"],
    ),
    "mirostat 2": ({"temp": 1.17, "mirostat": 2, "mirostat_tau": 9.62, "mirostat_eta": 1}, ["mirostat_v2"]),
    "mirostat 1": ({"rep_pen": 1.1, "mirostat": 1, "mirostat_tau": 4, "mirostat_eta": 0.2}, ["mirostat"]),
    "a grammar": ({"temp": 0.7, "grammar": 'root ::= "yes"'}, ["grammar"]),
    "none of it": ({"temp": 0.7, "top_p": 0.9, "mirostat": 0, "min_p": 0, "grammar": ""}, []),
}


@pytest.mark.parametrize(("changes", "named"), SILLYTAVERNS_KOBOLD.values(), ids=SILLYTAVERNS_KOBOLD)
def test_sillytaverns_kobold_preset_comes_back(tmp_path, changes, named):
    theirs = {"temp": 1, "rep_pen": 1, "rep_pen_range": 600, "rep_pen_slope": 0, "top_a": 0, **changes}
    preset = imported(tmp_path, "koboldai", json.dumps(theirs))
    exported = export_preset(preset.preset, "koboldai")
    reason = "KoboldAI does not read it; it was written for SillyTavern, which sends it to KoboldCpp"
    assert exported.unsupported_settings == [f"{name}: {reason}" for name in named]
    written = json.loads(exported.text)[0]
    assert {key: written[key] for key in changes if key != "sampler_order"} == {
        key: value for key, value in changes.items() if key != "sampler_order"
    }
    back = imported(tmp_path, "koboldai", exported.text)
    assert (acting(back.chain), back.other_settings) == (acting(preset.chain), preset.other_settings)


SILLYTAVERNS_KEYS = """
temp temperature_last top_p top_k top_a tfs epsilon_cutoff eta_cutoff typical_p min_p rep_pen rep_pen_range
rep_pen_decay rep_pen_slope no_repeat_ngram_size penalty_alpha num_beams length_penalty min_length encoder_rep_pen
freq_pen presence_pen skew do_sample early_stopping dynatemp min_temp max_temp dynatemp_exponent smoothing_factor
smoothing_curve dry_allowed_length dry_multiplier dry_base dry_sequence_breakers dry_penalty_last_n ban_eos_token
mirostat_mode mirostat_tau mirostat_eta guidance_scale grammar_string json_schema banned_tokens sampler_priority
samplers samplers_priorities ignore_eos_token sampler_order logit_bias xtc_threshold xtc_probability nsigma
min_keep adaptive_target adaptive_decay seed rep_pen_size add_bos_token skip_special_tokens negative_prompt
spaces_between_special_tokens speculative_ngram json_schema_allow_empty extensions send_banned_tokens
"""
"""`setting_names` of SillyTavern's textgen-settings.js (2026) without what preset-manager.js keeps out of a saved
preset (`filteredKeys`: servers, models, streaming), and ``rep_pen_size``, which its preset files have too."""


def test_sillytavern_gets_every_key():
    for chain in ("dist", WILD["sillytavern"]):
        values = json.loads(export_preset(chain, "sillytavern").text)
        assert set(SILLYTAVERNS_KEYS.split()) <= set(values)


# What SillyTavern begins with (`textgenerationwebui_settings`); another value would stay from an earlier preset.
SILLYTAVERNS_TEXT_SETTINGS = {
    "rep_pen_size": 0,
    "add_bos_token": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "speculative_ngram": False,
    "negative_prompt": "",
    "json_schema_allow_empty": False,
    "extensions": {},
}


@pytest.mark.parametrize(("key", "value"), SILLYTAVERNS_TEXT_SETTINGS.items())
def test_sillytaverns_settings_beside_the_chain_are_reset(key, value):
    written = json.loads(export_preset(WILD["sillytavern"], "sillytavern").text)[key]
    assert (type(written), written) == (type(value), value)


@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_a_temperature_of_0_is_a_greedy_end(form):
    exported = export_preset("temp0 > top-p0.5", form)
    assert exported == export_preset("greedy", form)


@pytest.mark.parametrize("chain", ["typical0.5", "dist", "top_k5 > temp0.7 > greedy", "mirostat_v2"])
@pytest.mark.parametrize("form", sorted(set(EXPORT_FORMATS) - {"webui"}))
def test_each_is_recognized(tmp_path, form, chain):
    path = tmp_path / "theirs"
    path.write_text(export_preset(chain, form).text)
    if path.read_text() != "{}\n":  # TabbyAPI needs no file for a plain draw
        assert import_preset(path).format == IMPORT_FORMATS[form]


def test_refused():
    with pytest.raises(PresetError, match="did you mean ollama"):
        export_preset("top_k5", "olama")
    with pytest.raises(PresetError, match="unknown sampler"):
        export_preset([["topk9", {}], ["x", {}]], "ollama")


@pytest.mark.parametrize("form", ["llama.cpp", "ollama", "sillytavern", "webui", "tabbyapi"])
def test_a_penalty_on_all_tokens_comes_back(tmp_path, form):
    chain = [["penalties", {"repeat": 1.1, "last_n": -1}]]
    assert chain[0] in imported(tmp_path, form, export_preset(chain, form).text).chain


SETTINGS = {
    "seed": 7,
    "max_tokens": 99,
    "stop": ["a b", "\n", '"q'],
    "system": 'You "are"\n',
    "bans": ["a b", "c"],
}
SETTINGS_OF = {
    "llama.cpp": ("seed", "max_tokens", "stop", "system"),
    "llama-server": ("seed", "max_tokens", "stop"),
    "webui": (),
    "sillytavern": ("seed", "max_tokens", "bans"),
    "koboldai": ("max_tokens",),
    "koboldcpp": ("seed", "max_tokens", "stop", "bans"),
    "tabbyapi": ("seed", "max_tokens", "stop", "bans"),
    "lmstudio": ("seed", "max_tokens", "stop", "system"),
    "ollama": ("seed", "max_tokens", "stop", "system"),
    "huggingface": ("max_tokens", "stop"),
}


@pytest.mark.parametrize("grammar", ['root ::= "a"', {"regex": "a+"}, {"json_schema": {"type": "object"}}])
@pytest.mark.parametrize("form", EXPORT_FORMATS)
def test_the_settings_beside_the_chain_come_back_or_are_reported(tmp_path, form, grammar):
    exported = export_preset(Preset.from_table({"chain": ["dist"], "grammar": grammar, **SETTINGS}), form)
    back = imported(tmp_path, form, exported.text).other_settings
    found = back.pop("grammar", None)
    if form == "llama.cpp" and isinstance(found, dict):  # a command line holds a schema as text
        found = {"json_schema": json.loads(found["json_schema"])}
    assert back == {key: SETTINGS[key] for key in SETTINGS_OF[form]}
    assert found in (None, grammar)
    reported = {sentence.split(":")[0].split()[0] for sentence in exported.unsupported_settings}
    assert {*reported} - {"grammar"} == SETTINGS.keys() - back.keys()
    assert found is not None or "grammar" in reported
