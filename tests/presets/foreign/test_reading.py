"""Recognition, texts and their faults, and what every import gives."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from logitsmith.presets import FORMATS, PresetError, import_preset, load_preset
from logitsmith.presets.foreign import (
    huggingface,
    kobold as koboldai,
    kobold as koboldcpp,
    sillytavern,
    tabbyapi,
    webui,
)
from logitsmith.presets.foreign.llama_cpp import BODY_KEYS
from logitsmith.samplers import parse_chain

# Each line stands for ten times the one before.
ALIASES = "a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [{','.join([f'*a{n}'] * 10)}]\n" for n in range(6))

WEBUI = "# mine\ntemperature: 0.7\n"
CONTENTS = {
    "webui": WEBUI,
    "sillytavern": '{"temp": 0.7, "typical_p": 1, "nsigma": 0, "rep_pen_slope": 1, "sampler_order": [6]}',
    "koboldai": '{"temp": 0.7, "rep_pen": 1.1, "typical": 1, "sampler_order": [6, 0, 1, 2, 3, 4, 5]}',
    "koboldcpp": '{"preset": "x", "temp": 0.7, "nsigma": 1, "dynatemp_range": 0.1, "sampler_order": [6]}',
    "huggingface": '{"temperature": 0.7, "do_sample": true, "eos_token_id": 2}',
    "ollama": "# x\nfrom llama3\nPARAMETER top_k 3\n",
    "tabbyapi": "temperature:\n  override: 0.7\n",
    "llama.cpp": "; x\n[*]\ntemp = 0.7\n",
    "lmstudio": '{"inference_params": {"temp": 0.7}}',
}


@pytest.mark.parametrize(("form", "content"), CONTENTS.items(), ids=CONTENTS)
def test_recognized_by_the_content(load, form, content):
    assert load(content).format == form
    assert load(content, form).format == form
    assert load(b"\xef\xbb\xbf" + content.replace("\n", "\r\n").encode()).chain == load(content).chain


def test_every_format_is_recognized():
    assert set(CONTENTS) == set(FORMATS)


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ('{"dynatemp": true, "typical_p": 0.9}', "sillytavern"),
        ('{"top_p": 0.9, "sampler_priority": ["top_p"]}', "sillytavern"),
        ('{"temp": 0.7, "top_p": 0.9, "andepth": 3}', "koboldai"),
        ('{"temperature": 0.7, "sampler_order": [6, 0, 1, 3, 4, 2, 5], "presence_penalty": 0.5}', "koboldcpp"),
        ('{"temperature": 0.7, "messages": []}', "llama.cpp"),
        ('{"temperature": 0.7, "mirostat": 2, "mirostat_tau": 4}', "llama.cpp"),
        ('{"temperature": 0.7, "top_p": 0.9, "frequency_penalty": 0.5}', "llama.cpp"),
    ],
)
def test_recognized_by_a_key_that_one_tool_has(load, content, form):
    assert load(content).format == form


def test_a_list_of_lites_presets_is_koboldcpp(load):
    assert load('[{"preset": "x", "temp": 0.7, "dynatemp_range": 0.1}]').format == "koboldcpp"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"temp": 1, "rep_pen": 1.1}', ("sillytavern", "koboldai")),
        (
            '{"temp": 1, "typical_p": 1, "dynatemp_range": 1}',
            ("sillytavern", "llama.cpp"),
        ),
    ],
)
def test_two_formats_that_fit(load, content, words):
    with pytest.raises(PresetError, match="name the format") as caught:
        load(content)
    assert all(word in str(caught.value) for word in words)
    assert load(content, "sillytavern").format == "sillytavern"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ('{"temp": 1,\n "top_k": }', "line 2, column 11: broken JSON"),
        ('{"temp": NaN}', "broken JSON: NaN is not a number in JSON"),
        ("a: b: c", "line 1, column 5"),
        ("just words", "no known format"),
        ("[1, 2]", "no known format"),
        ('{"a": 1}', "no known format"),
        ('{"architectures": ["x"], "eos_token_id": 2}', "are in generation_config.json"),
        ('{"temp": "1_0", "typical_p": 1}', "temp: '1_0' is not a number"),
        ("chain: top_k5\nseed: 1\n", "a preset of logitsmith itself"),
        (b"temperature: \xff", "line 1: the file is not UTF-8"),
        ("[" * 5000, "nested too deeply"),
        (ALIASES, "more than 100000 values"),
    ],
)
def test_refused(load, content, message):
    with pytest.raises(PresetError) as caught:
        load(content)
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PresetError, match="there is no such file"):
        import_preset(tmp_path / "none")
    with pytest.raises(PresetError, match="it is a folder"):
        import_preset(tmp_path)


def test_formats_have_aliases_and_near_names(load):
    assert load(WEBUI, "Text-Generation-WebUI").format == "webui"
    with pytest.raises(PresetError, match="did you mean ollama"):
        load(WEBUI, "olama")


def test_one_preset_has_no_sections(load):
    with pytest.raises(PresetError, match="one preset only"):
        load(WEBUI, section="a")


def test_the_preset_is_ready(load):
    imported = load('FROM x\nSYSTEM "You"\nPARAMETER seed 4\nPARAMETER stop a\n')
    assert [sampler.about.name for sampler in imported.preset.samplers()] == [name for name, _ in imported.chain]
    assert (imported.preset.seed, imported.preset.stop, imported.preset.system) == (4, ["a"], "You")


EVERYTHING = {
    "webui": "temperature: 1.3\ndry_multiplier: 0.8\nxtc_probability: 0.2\nnum_beams: 3\nepsilon_cutoff: 0.1\n",
    "sillytavern": {
        "temp": 0.7,
        "typical_p": 1,
        "genamt": 5,
        "banned_tokens": '[1]\n"\u2028 \x7f"\nno\n0o7\n1e3\n-inf\nnull',
        "logit_bias": [{"text": "yes", "value": -100}, {"text": "[5]", "value": 1e-5}],
        "json_schema": {"type": "object", "properties": {"a: b": {"enum": [None, True, 1.5, "x # y", "{"]}}},
    },
    "koboldai": {
        "temp": 0,
        "rep_pen": 1.1,
        "typical": 0.5,
        "mirostat": 0,
        "min_p": 0.2,
        "odd\nkey": "a\nb\u0085c",
    },
    "ollama": 'FROM x\nSYSTEM """a: "b"\n\n  # c\n\t"""\nPARAMETER stop "\\n"\nPARAMETER foo bar\n',
    "llama.cpp": "temp = 0.5\nlogit-bias = 7-inf\nreverse-prompt = \\n\n",
}


@pytest.mark.parametrize("content", EVERYTHING.values(), ids=EVERYTHING)
def test_the_yaml_text_loads_to_the_same_preset(load, tmp_path, content):
    imported = load(content)
    path = tmp_path / "mine.yaml"
    path.write_text(imported.yaml_text())
    preset = load_preset(str(path))
    assert preset.samplers() == imported.preset.samplers()
    assert preset.samplers() == parse_chain([{name: params} for name, params in imported.chain])
    for key in ("description", "seed", "max_tokens", "stop", "system", "grammar"):
        assert getattr(preset, key) == getattr(imported.preset, key)


def test_the_yaml_text_says_where_values_come_from(load):
    text = load("xtc_probability: 0.5\nnum_beams: 4\n").yaml_text()
    assert "# xtc_probability; text-generation-webui's default: xtc_threshold 0.1" in text
    assert "# order: text-generation-webui's default" in text
    assert "# - num_beams 4: beam search" in text


KEYS = {
    "sillytavern": (*sillytavern.KNOWN_KEYS, "temp", "rep_pen", "dynatemp", "min_temp"),
    "koboldai": koboldai.KOBOLDAI_KEYS,
    "koboldcpp": (*koboldcpp.KOBOLDCPP_KEYS, "temp", "tfs", "mirostat"),
    "huggingface": (
        *huggingface.SAMPLING_SLOTS,
        *huggingface.SLOTS_BEFORE_SAMPLING,
        "sequence_bias",
        "stop_strings",
        "watermarking_config",
    ),
    "webui": webui.KNOWN_KEYS,
    "tabbyapi": (*tabbyapi.KEY_SPELLINGS, "temperature", "top_k", "banned_strings", "logit_bias"),
    "llama.cpp": tuple(BODY_KEYS.values()),
    "lmstudio": ("inference_params", "operation"),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(data=st.data(), form=st.sampled_from(sorted(KEYS)))
def test_any_values_are_imported_or_refused(tmp_path_factory, data, form):
    path = tmp_path_factory.getbasetemp() / "theirs"
    values = data.draw(st.dictionaries(st.sampled_from(KEYS[form]), JSON, min_size=1, max_size=3))
    path.write_text(json.dumps(values))
    try:
        imported = import_preset(path, form)
    except PresetError as error:
        assert str(error).startswith(str(path))  # noqa: PT017
    else:
        assert imported.preset.samplers()


FOLDER = os.environ.get("FOREIGN_PRESETS", "")


@pytest.mark.skipif(not FOLDER, reason="FOREIGN_PRESETS names no folder of real files")
def test_real_files_import_or_are_refused_with_a_reason():
    messages = {}
    paths = [path for path in Path(FOLDER).rglob("*") if path.is_file() and path.name != "README.md"]
    for path in paths:
        try:
            import_preset(path)
        except PresetError as error:
            messages[path] = str(error)
    assert paths
    assert all(message.startswith(f"{path}: ") for path, message in messages.items())


def comments(imported):
    """The sentences of a YAML preset by their heading."""
    sections, heading = {}, None
    for line in imported.yaml_text().splitlines():
        if line.startswith("# - "):
            sections[heading].append(line[4:].split()[0])
        elif line.startswith("# ") and line.endswith(":"):
            sections[heading := line[2:-1]] = []
    return sections


HEADINGS = {
    "a step in another place": (
        {"temp": 0.7, "min_p": 0.1, "typical": 1, "top_q": 3},
        "koboldai",
        {"Carried over with a change": ["min_p"], "Left out": ["top_q"]},
    ),
    "another order": (
        {"temp": 0.7, "typical_p": 1, "sampler_priority": "x", "num_beams": 4},
        "sillytavern",
        {"Carried over with a change": ["sampler_priority"], "Left out": ["num_beams"]},
    ),
    "another name": (
        "samplers = top_p;top_k\ntop_p = 0.5\nmirostatt = 1\n",
        "llama.cpp",
        {"Carried over with a change": ["samplers", "top_p"], "Left out": ["mirostatt"]},
    ),
    "left out only": ({"do_sample": True, "penalty_alpha": 0.6}, "huggingface", {"Left out": ["penalty_alpha"]}),
    "a change only": (
        {"do_sample": True, "temperature": 0},
        "huggingface",
        {"Carried over with a change": ["temperature"]},
    ),
    "neither": ({"do_sample": True}, "huggingface", {}),
}


@pytest.mark.parametrize(("content", "form", "expected"), HEADINGS.values(), ids=HEADINGS)
def test_what_was_changed_and_what_was_left_out(load, content, form, expected):
    imported = load(content, form)
    assert comments(imported) == expected
    assert [sentence.split()[0] for sentence in imported.changed_settings] == expected.get(
        "Carried over with a change", []
    )
    assert set(imported.changed_settings) <= set(imported.unsupported_settings)
