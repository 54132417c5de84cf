"""Which tool a file is from, and what is said of files that no tool here wrote."""

import json

import pytest
from logitsmith.presets.errors import PresetError
from logitsmith.presets.foreign.formats import import_text, load_any_preset
from logitsmith.presets.foreign.recognition import AmbiguousFormatError

JAN = """name: Llama 3
model: llama3:8b
version: 1
top_p: 0.9
top_k: 30
temperature: 0.6
frequency_penalty: 0
presence_penalty: 0
max_tokens: 4096
stream: true
stop:
  - <|eot_id|>
prompt_template: "{prompt}"
ctx_len: 4096
ngl: 33
engine: llama-cpp
"""
JAN_JSON = {
    "id": "x",
    "object": "model",
    "settings": {"ctx_len": 4096, "prompt_template": "x"},
    "parameters": {"temperature": 0.6, "top_p": 0.9, "top_k": 30, "stop": ["<|eot_id|>"], "max_tokens": 4096},
    "engine": "nitro",
}
CHAT_PRESET = {
    "chat_completion_source": "openai",
    "openai_model": "gpt-4",
    "temperature": 0.9,
    "frequency_penalty": 0.1,
    "presence_penalty": 0,
    "top_p": 0.95,
    "top_k": 0,
    "repetition_penalty": 1,
    "openai_max_context": 4095,
    "openai_max_tokens": 300,
    "prompts": [{"identifier": "nsfw", "content": "no"}, {"identifier": "main", "content": "Write."}],
    "prompt_order": [],
    "seed": -1,
}


@pytest.mark.parametrize("text", [JAN, json.dumps(JAN_JSON)], ids=["yml", "json"])
def test_models_of_jan(tmp_path, text):
    path = tmp_path / ("model.json" if text.startswith("{") else "model.yml")
    path.write_text(text)
    imported = import_text(text, path.name)
    assert imported.format == "llama.cpp"
    assert (["top_k", {"k": 30}] in imported.chain, ["temperature", {"t": 0.6}] in imported.chain) == (True, True)
    assert imported.other_settings == {"max_tokens": 4096, "stop": ["<|eot_id|>"]}
    assert imported.unsupported_settings == []
    assert load_any_preset(str(path)).preset.max_tokens == 4096


def test_chat_presets_of_sillytavern():
    imported = import_text(json.dumps(CHAT_PRESET), "x.json")
    assert imported.format == "sillytavern"
    assert imported.chain == [
        ["penalties", {"frequency": 0.1, "last_n": -1}],
        ["temperature", {"t": 0.9}],
        ["top_p", {"p": 0.95}],
        ["dist", {}],
    ]
    assert imported.other_settings == {"max_tokens": 300, "system": "Write."}


NOVELAI = {
    "temperature": 1.3,
    "tail_free_sampling": 0.9,
    "phrase_rep_pen": "off",
    "top_k": 0,
    "repetition_penalty": 2,
}
CHAT = {"model": "x", "messages": [{"role": "user", "content": "a"}], "temperature": 0.7, "top_p": 0.9}
NAMED = {
    "NovelAI by SillyTavern": (NOVELAI, "NovelAI"),
    "NovelAI": ({"presetVersion": 3, "name": "x", "parameters": NOVELAI}, "NovelAI"),
    "vLLM, chat": (CHAT | {"repetition_penalty": 1.1}, "vLLM"),
    "vLLM, completion": ({"model": "x", "prompt": "a", "temperature": 0.7, "guided_json": {}}, "vLLM"),
}


@pytest.mark.parametrize(("body", "tool"), NAMED.values(), ids=NAMED)
def test_files_that_are_named_for_what_they_are(body, tool):
    with pytest.raises(PresetError, match=tool):
        import_text(json.dumps(body), "x.json")


UNKNOWN = {
    "a flat YAML": ("host: localhost\nport: 80\ntemperature: 0.5\nuser: x\n", ["host", "port", "user"]),
    "JSON with one known key": ('{"temperature": 0.5, "x": 1, "y": 2}', ["x", "y"]),
    "JSON with two known keys": ('{"do_sample": true, "top_k": 3, "x": 1, "y": 2, "z": 3}', ["x", "y", "z"]),
    "an INI file": ("[a]\ntemp = 0.5\nx = 1\ny = 2\n", ["x", "y"]),
}


@pytest.mark.parametrize(("text", "keys"), UNKNOWN.values(), ids=UNKNOWN)
def test_files_whose_keys_are_mostly_unknown(tmp_path, text, keys):
    with pytest.raises(AmbiguousFormatError) as caught:
        import_text(text, "x")
    assert f"({', '.join(keys)})" in str(caught.value)
    path = tmp_path / "settings.conf"
    path.write_text(text)
    with pytest.raises(PresetError):
        load_any_preset(str(path))


def test_a_named_format_is_read_whatever_the_keys_are():
    imported = import_text("host: localhost\nport: 80\ntemperature: 0.5\n", "x", "webui")
    assert ["temperature", {"t": 0.5}] in imported.chain
    assert len(imported.unsupported_settings) == 2


KEYS_OF_TRANSFORMERS = ("epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "max_new_tokens", "num_beams")
FITTING = {
    "the one that knows most keys": ({"messages": [], **dict.fromkeys(KEYS_OF_TRANSFORMERS, 0)}, "huggingface"),
    "KoboldAI before KoboldCpp": ({"temp": 1, "typical": 1, "tfs": 1}, "koboldai"),
    "llama.cpp before KoboldCpp": ({"temperature": 1, "mirostat": 2, "mirostat_tau": 5}, "llama.cpp"),
    "transformers before SillyTavern": ({"do_sample": True, "top_k": 5}, "huggingface"),
}


@pytest.mark.parametrize(("values", "form"), FITTING.values(), ids=FITTING)
def test_the_tool_that_knows_most_of_a_file(values, form):
    assert import_text(json.dumps(values), "x.json").format == form


@pytest.mark.parametrize("values", [{"temperature": 0.7}, {"temp": 1, "rep_pen": 1.1}, {"min_p": 0.1}])
def test_a_file_that_several_tools_know_is_asked_for(values):
    with pytest.raises(AmbiguousFormatError, match=r"^x.json: the content fits .+ or .+; name the format$"):
        import_text(json.dumps(values), "x.json")


LM_STUDIO = {
    "temperature": 0.6,
    "llama.logitBias": [[12, -5], [13, "-inf"]],
    "llama.cpuThreads": 4,
    "reasoning.parsing": {"enabled": True, "startString": "<think>", "endString": "</think>"},
    "reasoning.effort": "low",
    "speculativeDecoding.draftModel": "a/b",
    "speculativeDecoding.maxTokensToDraft": 9,
    "speculativeDecoding.numReuseTokens": 256,
    "contextOverflowPolicy": "stopAtLimit",
}


def test_fields_of_lm_studio():
    fields = [{"key": f"llm.prediction.{key}", "value": value} for key, value in LM_STUDIO.items()]
    imported = import_text(json.dumps({"operation": {"fields": fields}}), "x.preset.json")
    assert imported.chain == [
        ["logit_bias", {"bias": {12: -5.0, 13: float("-inf")}}],
        ["temperature", {"t": 0.6}],
        ["dist", {}],
    ]
    assert not any("does not know" in sentence for sentence in imported.unsupported_settings)
    named = [sentence.split()[0].removeprefix("llm.prediction.") for sentence in imported.unsupported_settings]
    assert named == [key for key in LM_STUDIO if key.startswith(("reasoning.e", "speculative"))]
