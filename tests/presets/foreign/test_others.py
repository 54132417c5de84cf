"""Hugging Face, Ollama, TabbyAPI and LM Studio."""

import pytest
from logitsmith.presets import PresetError
from logitsmith.presets.foreign.formats import import_preset

from .conftest import steps

WATERMARK = {
    "context_history_size": 512,
    "keys": [1, 2],
    "ngram_len": 5,
    "sampling_table_seed": 3,
    "sampling_table_size": 4096,
    "skip_first_ngram_calls": True,
}
HUGGINGFACE = {
    "greedy if do_sample is absent": ({"temperature": 0.6, "top_p": 0.9}, [["greedy", {}]]),
    "the penalties still act": (
        {"do_sample": False, "repetition_penalty": 1.1},
        [["penalties", {"repeat": 1.1, "last_n": -1}], ["greedy", {}]],
    ),
    "top_k is 50 if absent": ({"do_sample": True}, [["top_k", {"k": 50}]]),
    "top_k is 50 if null": ({"do_sample": True, "top_k": None}, [["top_k", {"k": 50}]]),
    "top_k 0 is off": ({"do_sample": True, "top_k": 0}, []),
    "the order": (
        {
            "do_sample": True,
            "eta_cutoff": 0.002,
            "epsilon_cutoff": 0.001,
            "typical_p": 0.9,
            "min_p": 0.05,
            "top_p": 0.8,
            "top_k": 20,
            "top_h": 0.4,
            "temperature": 0.7,
        },
        [
            ["temperature", {"t": 0.7}],
            ["top_h", {"h": 0.4}],
            ["top_k", {"k": 20}],
            ["top_p", {"p": 0.8}],
            ["min_p", {"p": 0.05}],
            ["typical", {"p": 0.9}],
            ["epsilon_cutoff", {"epsilon": 0.001}],
            ["eta_cutoff", {"epsilon": 0.002}],
        ],
    ),
    "before them": (
        {
            "do_sample": True,
            "top_k": 0,
            "suppress_tokens": [3],
            "min_new_tokens": 5,
            "bad_words_ids": [[7]],
            "no_repeat_ngram_size": 2,
            "repetition_penalty": 1.2,
            "encoder_repetition_penalty": 1.1,
            "sequence_bias": [[[4], -2.5]],
        },
        [
            ["logit_bias", {"bias": {4: -2.5}}],
            ["encoder_repetition_penalty", {"penalty": 1.1}],
            ["penalties", {"repeat": 1.2, "last_n": -1}],
            ["no_repeat_ngram", {"n": 2}],
            ["ban", {"tokens": [7]}],
            ["min_tokens", {"n": 5}],
            ["ban", {"tokens": [3]}],
        ],
    ),
    "sequences": (
        {
            "do_sample": True,
            "top_k": 0,
            "suppress_tokens": [3],
            "exponential_decay_length_penalty": [15, 1.05],
            "bad_words_ids": [[1, 2], [7], [1, 2], [5, 5, 5]],
            "repetition_penalty": 1.2,
            "sequence_bias": [[[1, 2], 9], [[4], -2.5], [[1, 2], 1.0]],
        },
        [
            ["sequence_bias", {"ids": [[[1, 2], 1.0], [[4], -2.5]]}],
            ["penalties", {"repeat": 1.2, "last_n": -1}],
            ["ban", {"tokens": [7]}],
            ["sequence_bias", {"ids": [[[1, 2], False], [[5, 5, 5], False]]}],
            ["length_decay", {"start": 15, "factor": 1.05}],
            ["ban", {"tokens": [3]}],
        ],
    ),
    "numbers as text": (
        {"do_sample": True, "top_k": 0, "exponential_decay_length_penalty": ["15", "1.05"]},
        [["length_decay", {"start": 15, "factor": 1.05}]],
    ),
    "a decay that is off": ({"do_sample": True, "top_k": 0, "exponential_decay_length_penalty": [15, 1.0]}, []),
    "a watermark comes last": (
        {"do_sample": True, "top_k": 0, "top_p": 0.8, "watermarking_config": {"keys": [3, -4], "ngram_len": 4}},
        [["top_p", {"p": 0.8}], ["synthid", {"keys": [3, -4], "ngram_len": 4}]],
    ),
    "a watermark on the most likely token": (
        {"watermarking_config": {**WATERMARK, "debug_mode": False}, "repetition_penalty": 1.2},
        [["penalties", {"repeat": 1.2, "last_n": -1}], ["synthid", WATERMARK], ["greedy", {}]],
    ),
    "a watermark without keys": ({"do_sample": True, "top_k": 0, "watermarking_config": {"keys": []}}, []),
}


@pytest.mark.parametrize(("values", "expected"), HUGGINGFACE.values(), ids=HUGGINGFACE)
def test_huggingface(load, values, expected):
    assert steps(load(values, "huggingface")) == expected


HUGGINGFACE_REPORTS = {
    "greedy": ({"temperature": 0.6, "top_p": 0.9, "top_k": 20}, ["temperature", "top_k", "top_p"]),
    "neutral and greedy": ({"temperature": 1.0, "top_p": 1.0}, []),
    "beams": (
        {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
        ["num_beams", "length_penalty", "early_stopping"],
    ),
    "the prompt counts": ({"min_length": 5, "max_length": 20}, ["min_length"]),
    "unknown": ({"chat_format": "chatml", "nested": {"temperature": 0.1}}, ["chat_format", "nested"]),
    "another watermark": (
        {"watermarking_config": {"greenlist_ratio": 0.25, "bias": 2.0}},
        ["watermarking_config"],
    ),
    "a tested watermark": (
        {"watermarking_config": {**WATERMARK, "debug_mode": True, "depth": 2}},
        ["watermarking_config", "watermarking_config"],
    ),
    "token ids": ({"eos_token_id": [1, 2], "user_token_id": 195, "transformers_version": "4.40"}, []),
}


@pytest.mark.parametrize(("values", "keys"), HUGGINGFACE_REPORTS.values(), ids=HUGGINGFACE_REPORTS)
def test_huggingface_reports(load, values, keys):
    assert [sentence.split()[0] for sentence in load(values, "huggingface").unsupported_settings] == keys


def test_huggingface_extras(load):
    values = {"max_new_tokens": 512, "max_length": 20, "stop_strings": "END"}
    assert load(values, "huggingface").other_settings == {"max_tokens": 512, "stop": ["END"]}


TOP = [["top_k", {"k": 40}], ["top_p", {"p": 0.9}]]
HOT = ["temperature", {"t": 0.8}]
OLLAMA = {
    "defaults": ("", [*TOP, HOT]),
    "temperature 0": ("PARAMETER temperature 0", [*TOP, ["greedy", {}]]),
    "off": ("PARAMETER top_k 0\nPARAMETER top_p 1\nPARAMETER temperature 1", []),
    "penalties": (
        "PARAMETER repeat_penalty 1.1\nPARAMETER presence_penalty 0.5",
        [["penalties", {"repeat": 1.1, "presence": 0.5, "last_n": 64}], *TOP, HOT],
    ),
    "the window": (
        "PARAMETER repeat_penalty 1.1\nPARAMETER repeat_last_n -1",
        [["penalties", {"repeat": 1.1, "last_n": -1}], *TOP, HOT],
    ),
    "the order": (
        "PARAMETER min_p 0.05\nPARAMETER typical_p 0.9",
        [TOP[0], ["typical", {"p": 0.9}], TOP[1], ["min_p", {"p": 0.05}], HOT],
    ),
    "the last value wins": ("parameter top_k 5\nPARAMETER top_k 6", [["top_k", {"k": 6}], TOP[1], HOT]),
    "quoted": ('PARAMETER top_k "5"', [["top_k", {"k": 5}], TOP[1], HOT]),
    "upper case is unknown": ("PARAMETER TEMPERATURE 0.3", [*TOP, HOT]),
}


@pytest.mark.parametrize(("text", "expected"), OLLAMA.values(), ids=OLLAMA)
def test_ollama(load, text, expected):
    assert steps(load(f"FROM llama3\n{text}\n")) == expected


OLLAMA_EXTRAS = {
    "system over lines": ('SYSTEM """\na\n b"""', {"system": "\na\n b"}),
    "system in quotes": ('system "you"', {"system": "you"}),
    "empty system": ('SYSTEM ""', {}),
    "quotes inside": ('SYSTEM """say "a" """', {"system": 'say "a" '}),
    "stops add up": ('PARAMETER stop "a b"\nPARAMETER stop []', {"stop": ["a b", "[]"]}),
    "length and seed": ("PARAMETER num_predict 8\nPARAMETER seed 42", {"max_tokens": 8, "seed": 42}),
    "no limit": ("PARAMETER num_predict -1\nPARAMETER seed -1", {"max_tokens": -1}),
    "a seed of 64 bits": ("PARAMETER seed 1099511627776", {"seed": 2**40}),
    "a seed below -1": ("PARAMETER seed -5", {"seed": -5}),
    "once until the context is full": ("PARAMETER num_predict -2", {"max_tokens": -1}),
    "no tokens are no limit": ("PARAMETER num_predict 0", {"max_tokens": -1}),
    "a comment begins a line only": ("# PARAMETER seed 1\n  # x\nSYSTEM a # b", {"system": "a # b"}),
    "CRLF and a BOM": ('\ufeffPARAMETER seed 3\r\nSYSTEM """a\r\nb"""\r\n', {"seed": 3, "system": "a\nb"}),
}


@pytest.mark.parametrize(("text", "expected"), OLLAMA_EXTRAS.values(), ids=OLLAMA_EXTRAS)
def test_ollama_extras(load, text, expected):
    assert load(text + "\nFROM llama3\nTEMPLATE x\n", "ollama").other_settings == expected


OLLAMA_REPORTS = {
    "dropped": ("PARAMETER mirostat 2\nPARAMETER mirostat_tau 4", ["mirostat", "mirostat_tau"]),
    "no limit": ("PARAMETER num_predict -1", []),
    "another number for no limit": ("PARAMETER num_predict -2", ["num_predict"]),
    "no tokens": ("PARAMETER num_predict 0", ["num_predict"]),
    "neutral": ("PARAMETER mirostat 0\nPARAMETER penalize_newline true\nPARAMETER num_ctx 4096", []),
    "refused": (
        "PARAMETER tfs_z 0.9\nPARAMETER grammar x\nPARAMETER temprature 1\nPARAMETER TEMPERATURE 1",
        ["tfs_z", "grammar", "temprature", "TEMPERATURE"],
    ),
}


@pytest.mark.parametrize(("text", "keys"), OLLAMA_REPORTS.values(), ids=OLLAMA_REPORTS)
def test_ollama_reports(load, text, keys):
    assert [sentence.split()[0] for sentence in load(f"FROM llama3\n{text}\n").unsupported_settings] == keys


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM x\nPARAMETER temperature 0.7 # hot", "line 2: temperature: '0.7 # hot' is not a number"),
        ("FROM x\nPARAMETER top_k many", "line 2: top_k: 'many' is not a number"),
        ('FROM x\nSYSTEM """a\nb', "line 2: the quotes of SYSTEM are not closed"),
        ("FROM x\nTEMPERATURE 1", "line 2: 'TEMPERATURE' is not an instruction"),
        ("FROM x\nPARAMETER stop", "line 2: PARAMETER stop has no value"),
    ],
)
def test_ollama_refuses(load, text, message):
    with pytest.raises(PresetError) as caught:
        load(text)
    assert message in str(caught.value)


def overrides(**values):
    return "\n".join(
        f"{key}:\n  override: {value}\n  force: false\n  additive: true" for key, value in values.items()
    )


TABBY = {
    "null is not set": (overrides(temperature="", top_k="null"), []),
    "off": (
        overrides(
            temperature=1,
            top_k=-1,
            top_p=1,
            min_p=0,
            repetition_penalty=1,
            adaptive_target=1,
            tfs=0,
            min_temp=0.0,
            max_temp=0.0,
            temp_exponent=0,
            dry_range=0,
            mirostat_tau=1.5,
        ),
        [],
    ),
    "the order": (
        overrides(
            adaptive_target=0.5,
            xtc_probability=0.3,
            min_p=0.1,
            top_p=0.9,
            top_k=5,
            temperature=0.8,
            banned_tokens="[3]",
            repetition_penalty=1.1,
            logit_bias="{7: -1.5}",
        ),
        [
            ["logit_bias", {"bias": {7: -1.5}}],
            ["penalties", {"repeat": 1.1, "last_n": -1}],
            ["ban", {"tokens": [3]}],
            ["temperature", {"t": 0.8}],
            ["top_k", {"k": 5}],
            ["top_p", {"p": 0.9, "boundary": "exclude"}],
            ["min_p", {"p": 0.1}],
            ["xtc", {"probability": 0.3, "threshold": 0.1, "keep_special": True}],
            ["adaptive_p", {"target": 0.5, "decay": 0.9}],
        ],
    ),
    "temperature_last": (
        overrides(temperature=0.8, temperature_last="true", min_p=0.1, xtc_probability=0.3),
        [
            ["min_p", {"p": 0.1}],
            ["temperature", {"t": 0.8}],
            ["xtc", {"probability": 0.3, "threshold": 0.1, "keep_special": True}],
        ],
    ),
    "temperature 0": (overrides(temperature=0), [["greedy", {}]]),
    "the window": (
        overrides(rep_pen=1.1, penalty_range=256),
        [["penalties", {"repeat": 1.1, "last_n": 256}]],
    ),
    "bans and ends": (
        overrides(ban_eos_token="true", min_tokens=5, banned_strings='["a b"]'),
        [["ignore_eos", {}], ["min_tokens", {"n": 5}]],
    ),
    "YALS": (overrides(nsigma=1.5), [["top_n_sigma", {"n": 1.5}]]),
}


@pytest.mark.parametrize(("text", "expected"), TABBY.values(), ids=TABBY)
def test_tabbyapi(load, text, expected):
    imported = load(text)
    assert imported.format == "tabbyapi"
    assert steps(imported) == expected


TABBY_REPORTS = {
    "done by exllamav2 only": (
        overrides(smoothing_factor=0.3, top_a=0.2, tfs=0.9, typical_p=0.5, dry_multiplier=0.8, mirostat_mode=2),
        ["smoothing_factor", "top_a", "tfs", "typical_p", "dry_multiplier", "mirostat_mode"],
    ),
    "dynamic temperature": (overrides(min_temp=0.5, max_temp=2), ["min_temp", "max_temp"]),
    "others": (
        overrides(allowed_tokens="[1]", repetition_decay=5),
        ["allowed_tokens", "repetition_decay"],
    ),
    "not sampling": (overrides(token_healing="true", loop_detect_window=9, generate_window=512), []),
    "unknown": (overrides(temprature=0.5), ["temprature"]),
}


@pytest.mark.parametrize(("text", "keys"), TABBY_REPORTS.values(), ids=TABBY_REPORTS)
def test_tabbyapi_reports(load, text, keys):
    assert [sentence.split()[0] for sentence in load(text).unsupported_settings] == keys


def test_tabbyapi_extras(load):
    text = overrides(max_tokens=150, stop='["a", 2]', seed=4, grammar_string="x")
    imported = load(text)
    assert imported.other_settings == {"max_tokens": 150, "stop": ["a"], "seed": 4, "grammar": "x"}
    assert [sentence.split()[0] for sentence in imported.unsupported_settings] == ["stop"]


def fields(**values):
    scoped = [{"key": f"llm.prediction.{key.replace('__', '.')}", "value": value} for key, value in values.items()]
    return {"name": "x", "operation": {"fields": scoped}, "load": {"fields": []}}


LMSTUDIO = {
    "old": (
        {"inference_params": {"temp": 0.2, "top_p": 0.95, "top_k": 40, "repeat_penalty": 1.1, "tfs_z": 0.9}},
        [
            ["penalties", {"repeat": 1.1, "last_n": 64}],
            ["top_k", {"k": 40}],
            ["tfs", {"z": 0.9, "pad": False}],
            ["top_p", {"p": 0.95}],
            ["temperature", {"t": 0.2}],
        ],
    ),
    "old with nothing": ({"inference_params": {"input_prefix": ""}}, []),
    "old mirostat": (
        {"inference_params": {"mirostat": 2, "mirostat_tau": 4, "temp": 0.5}},
        [["temperature", {"t": 0.5}], ["mirostat_v2", {"tau": 4.0, "eta": 0.1}]],
    ),
    "new": (
        fields(
            temperature=0.7,
            topKSampling=20,
            topPSampling={"checked": True, "value": 0.9},
            minPSampling={"checked": False, "value": 0.05},
            repeatPenalty={"checked": True, "value": 1.1},
            llama__presencePenalty={"checked": True, "value": 0.5},
            llama__xtcProbability={"checked": True, "value": 0.3},
        ),
        [
            ["penalties", {"repeat": 1.1, "presence": 0.5, "last_n": 64}],
            ["top_k", {"k": 20}],
            ["top_p", {"p": 0.9}],
            ["xtc", {"probability": 0.3, "threshold": 0.1}],
            ["temperature", {"t": 0.7}],
        ],
    ),
    "new mirostat": (
        fields(llama__mirostatSampling={"version": 1, "targetEntropy": 6, "learningRate": 0.2}),
        [["mirostat", {"tau": 6.0, "eta": 0.2}]],
    ),
}


@pytest.mark.parametrize(("values", "expected"), LMSTUDIO.values(), ids=LMSTUDIO)
def test_lmstudio(load, values, expected):
    imported = load(values)
    assert imported.format == "lmstudio"
    assert steps(imported) == expected


def test_lmstudio_extras(load):
    old = {
        "antiprompt": ["", "[INST]"],
        "pre_prompt": "You are",
        "pre_prompt_prefix": "p",
        "n_predict": -1,
        "seed": 3,
    }
    assert load({"inference_params": old}).other_settings == {
        "max_tokens": -1,
        "stop": ["[INST]"],
        "system": "You are",
        "seed": 3,
    }
    unlimited = fields(maxPredictedTokens={"checked": False, "value": 1000}, seed={"checked": True, "value": 5})
    assert load(unlimited).other_settings == {"max_tokens": -1, "seed": 5}
    assert load(fields(seed={"checked": False, "value": -1})).other_settings == {}
    schema = {"type": "json", "jsonSchema": {"type": "object"}}
    new = fields(
        maxPredictedTokens={"checked": True, "value": 9}, stopStrings=["a"], systemPrompt="", structured=schema
    )
    assert load(new).other_settings == {
        "max_tokens": 9,
        "stop": ["a"],
        "grammar": {"json_schema": {"type": "object"}},
    }


def test_lmstudio_reports(load):
    imported = load(fields(promptTemplate={}, speed=3))
    assert [sentence.split()[0] for sentence in imported.unsupported_settings] == ["llm.prediction.speed"]
    with pytest.raises(PresetError, match=r"operation\.fields"):
        load({"operation": {"fields": 3}})


REASONS = {
    "begin_suppress_tokens": ([220], "banned tokens as the first one only"),
    "forced_bos_token_id": (2, "a prompt has its own tokens there"),
    "penalty_alpha": (0.6, "compares the model's hidden states, which a chain does not see"),
    "dola_layers": ("high", "llama.cpp computes the logits of the last one only"),
}


@pytest.mark.parametrize(("key", "case"), REASONS.items(), ids=REASONS)
def test_a_setting_of_transformers_that_no_chain_can_express_has_a_reason(load, key, case):
    value, reason = case
    (sentence,) = load({"do_sample": True, "top_k": 0, key: value}, "huggingface").unsupported_settings
    assert sentence.startswith(f"{key} ")
    assert reason in sentence


def test_suppressed_tokens_of_transformers_become_a_ban(load):
    imported = load({"do_sample": True, "top_k": 0, "suppress_tokens": [-1, 7, 9]}, "huggingface")
    assert steps(imported) == [["ban", {"tokens": [7, 9]}]]
    assert imported.unsupported_settings == []


MODELFILES = {
    "a message over lines": 'FROM x\nMESSAGE user """Two\nlines"""\nMESSAGE assistant Yes.\nPARAMETER seed 3\n',
    "a message over lines, in single quotes": 'FROM x\nmessage user "Two\nlines"\nPARAMETER seed 3\n',
    "lower case and tabs": "from x\nparameter\tseed\t3\n",
    "a license with words of a Modelfile": 'FROM x\nLICENSE """\nFROM no\nllama-cli -n 3\n"""\nPARAMETER seed 3\n',
    "a template": 'FROM x\nTEMPLATE """{{ .System }}\n{{ .Prompt }}"""\nPARAMETER seed 3\n',
    "comments": "# mine\nFROM x\n\n  # more\nPARAMETER seed 3\n",
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", MODELFILES.values(), ids=MODELFILES)
def test_modelfiles_are_read(tmp_path, text, encoding):
    path = tmp_path / "Modelfile"
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    imported = import_preset(path)
    assert (imported.format, imported.other_settings) == ("ollama", {"seed": 3})
    named = [sentence.split()[0] for sentence in imported.unsupported_settings]
    assert named == ["MESSAGE"] * ("message" in text.lower())


def test_messages_of_a_modelfile_are_named_with_their_lines(tmp_path):
    path = tmp_path / "Modelfile"
    path.write_text('FROM x\nMESSAGE user """Two\nlines"""\nMESSAGE assistant Yes.\n')
    (sentence,) = import_preset(path).unsupported_settings
    assert sentence.startswith("MESSAGE (line 2, 4):")


def test_adapters_of_a_modelfile_are_named(tmp_path):
    path = tmp_path / "Modelfile"
    path.write_text("FROM x\nADAPTER ./a.gguf\nADAPTER my b.gguf\n")
    first, second = import_preset(path).unsupported_settings
    assert first.endswith("--lora ./a.gguf")
    assert second.endswith("--lora 'my b.gguf'")
