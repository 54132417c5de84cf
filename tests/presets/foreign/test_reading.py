"""Texts and their faults, and what every import gives. `imports/` has the presets that files become."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from logitsmith.presets import FORMATS, PresetError, import_preset, load_any_preset
from logitsmith.presets.foreign import (
    huggingface,
    kobold as koboldai,
    kobold as koboldcpp,
    sillytavern,
    tabbyapi,
    webui,
)
from logitsmith.presets.foreign.llama_cpp import BODY_KEYS

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


def test_a_name_says_nothing_of_the_tool(load):
    with pytest.raises(PresetError, match="does not know most of its keys"):
        load("name: foo\nversion: 3\nhost: localhost\ntemperature: 0.7\n")


@pytest.mark.parametrize(("form", "content"), CONTENTS.items(), ids=CONTENTS)
def test_recognized_by_the_content(load, form, content):
    assert load(content).format == form
    assert load(content, form).format == form
    assert load(b"\xef\xbb\xbf" + content.replace("\n", "\r\n").encode()).chain == load(content).chain


def test_every_format_is_recognized():
    assert set(CONTENTS) == set(FORMATS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
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


@pytest.mark.parametrize(
    "text", ["host: localhost\nport: 80\ntemperature: 0.5\n", "[a]\ntemp = 0.5\nx = 1\ny = 2\n"]
)
def test_a_preset_by_its_path_is_recognized_as_well(tmp_path, text):
    path = tmp_path / "settings.conf"
    path.write_text("ctx_len: 1\nengine: x\nmax_tokens: 9\n")
    assert load_any_preset(str(path)).preset.max_tokens == 9
    path.write_text(text)
    with pytest.raises(PresetError, match="does not know most of its keys"):
        load_any_preset(str(path))


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
