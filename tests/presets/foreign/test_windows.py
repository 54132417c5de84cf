"""Penalty windows of all tokens: what each tool's number meant and means, and what an export writes."""

import pytest
from logitsmith.presets import export_preset, import_preset

from .conftest import steps

ALL = "read as all tokens, its meaning until August 2026"
PENALTIES = ["penalties", {"repeat": 1.1, "last_n": -1}]
MODELFILE = "FROM x\nPARAMETER temperature 1\nPARAMETER top_k 0\nPARAMETER top_p 1\nPARAMETER repeat_penalty 1.1\n"
LLAMA_OFF = {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1}
SILLYTAVERN = {"temp": 1, "rep_pen": 1.1, "freq_pen": 0, "presence_pen": 0, "top_k": 0}
KOBOLDCPP = {"rep_pen": 1, "top_k": 0, "top_p": 1, "temp": 1, "sampler_order": [6, 0, 1, 3, 4, 2, 5]}
DRY = {"dry_multiplier": 0.8}

IMPORTS = {
    "llama.cpp: a command line": (
        "llama-cli --temp 1 --top-k 0 --top-p 1 --min-p 0 --repeat-penalty 1.1 --repeat-last-n -1",
        None,
        [PENALTIES],
        [f"--repeat-last-n '-1': {ALL}; llama.cpp now rejects it"],
    ),
    "llama.cpp: a body": (
        {**LLAMA_OFF, "repeat_penalty": 1.1, "repeat_last_n": -1},
        "llama.cpp",
        [PENALTIES],
        [f"repeat_last_n -1: {ALL}; llama.cpp now rejects it"],
    ),
    "llama.cpp: what an export writes for all": (
        {**LLAMA_OFF, "repeat_penalty": 1.1, "repeat_last_n": 1_000_000},
        "llama.cpp",
        [PENALTIES],
        [],
    ),
    "Ollama": (
        MODELFILE + "PARAMETER repeat_last_n -1\n",
        "ollama",
        [PENALTIES],
        [f"repeat_last_n '-1': {ALL}; llama-server, which Ollama runs, now rejects it"],
    ),
    "LM Studio 0.2": (
        {"inference_params": {"repeat_penalty": 1.1, "repeat_last_n": -1}},
        "lmstudio",
        [PENALTIES],
        [f"repeat_last_n -1: {ALL}; LM Studio has no such setting since version 0.3"],
    ),
    "TabbyAPI: its number": (
        "repetition_penalty: {override: 1.1}\npenalty_range: {override: -1}\n",
        "tabbyapi",
        [PENALTIES],
        [],
    ),
    "SillyTavern: its number": (
        {**SILLYTAVERN, "rep_pen_range": -1},
        "sillytavern",
        [PENALTIES],
        [
            "rep_pen_range -1: read as all tokens, its meaning to llama.cpp until August 2026;"
            " llama.cpp now rejects it"
        ],
    ),
    "SillyTavern: 0": ({**SILLYTAVERN, "rep_pen_range": 0}, "sillytavern", [PENALTIES], []),
    "webui: 0": ("repetition_penalty: 1.1\nrepetition_penalty_range: 0\n", "webui", [PENALTIES], []),
    "KoboldCpp: DRY is off below 0": (
        {**KOBOLDCPP, **DRY, "dry_penalty_last_n": -1},
        "koboldcpp",
        [],
        [
            "dry_penalty_last_n -1: KoboldCpp reads it as 0, so DRY is off; to llama.cpp it once meant all tokens",
        ],
    ),
    "Hugging Face: always all": (
        {"do_sample": True, "top_k": 0, "repetition_penalty": 1.1},
        "huggingface",
        [PENALTIES],
        [],
    ),
}


@pytest.mark.parametrize(("content", "form", "chain", "sentences"), IMPORTS.values(), ids=IMPORTS)
def test_an_import_says_how_it_reads_a_window_of_all_tokens(load, content, form, chain, sentences):
    imported = load(content, form)
    assert steps(imported) == chain
    assert imported.unsupported_settings == sentences


NOTES = {
    "llama.cpp: DRY's default": (
        "llama-cli --dry-multiplier 0.8",
        None,
        "dry.last_n: 64 is llama.cpp's",
    ),
    "SillyTavern: 0": (
        {**SILLYTAVERN, "rep_pen_range": 0},
        "sillytavern",
        "rep_pen_range 0: all",
    ),
    "webui: 0": (
        "repetition_penalty: 1.1\nrepetition_penalty_range: 0\n",
        "webui",
        "repetition_penalty_range 0: all",
    ),
}


@pytest.mark.parametrize(("content", "form", "note"), NOTES.values(), ids=NOTES)
def test_a_default_that_changed_or_differs_is_noted(load, content, form, note):
    assert any(each.startswith(note) for each in load(content, form).notes)


NO_NOTES = {
    "a window is set": ("llama-cli --dry-multiplier 0.8 --dry-penalty-last-n 64", None),
    "DRY is off": ("llama-cli --temp 1", None),
    "DRY is not listed": ("llama-cli --samplers top_k --dry-multiplier 0.8", None),
    "no penalty": ({**SILLYTAVERN, "rep_pen": 1, "rep_pen_range": 0}, "sillytavern"),
    "a range": ("repetition_penalty: 1.1\nrepetition_penalty_range: 64\n", "webui"),
}


@pytest.mark.parametrize(("content", "form"), NO_NOTES.values(), ids=NO_NOTES)
def test_nothing_is_noted_where_nothing_depends_on_it(load, content, form):
    assert not any("all tokens" in each for each in load(content, form).notes)


def test_llama_cpps_dry_looks_at_64_tokens_if_a_file_leaves_them_out(load):
    chain = load("llama-cli --top-k 0 --top-p 1 --min-p 0 --temp 1 --dry-multiplier 0.8").chain
    assert chain[0][1]["last_n"] == 64


def test_metadata_of_a_model_says_that_a_negative_window_is_off_now():
    from logitsmith.presets.foreign.llama_cpp import convert_metadata

    builder = convert_metadata(
        {"general.sampling.penalty_last_n": -1, "general.sampling.penalty_repeat": 1.1}, "x.gguf"
    )
    assert builder.unsupported_settings == [
        f"general.sampling.penalty_last_n -1: {ALL}; llama.cpp now reads it as 0, off"
    ]


def test_a_negative_window_of_a_penalty_that_is_off_is_not_reported(load):
    assert load("llama-cli --repeat-penalty 1 --repeat-last-n -1").unsupported_settings == []


def test_a_window_of_dry_that_the_tool_ignores_is_reported(load):
    values = {**SILLYTAVERN, **DRY, "rep_pen_range": 128, "dry_penalty_last_n": 512}
    (sentence,) = load(values, "sillytavern").unsupported_settings
    assert sentence.startswith("dry_penalty_last_n 512: text-generation-webui ignores it")
    assert load(values | {"dry_penalty_last_n": 128}, "sillytavern").unsupported_settings == []


EXPORTS = {
    "llama.cpp": ("--repeat-last-n 1000000", "llama.cpp has no number that means all tokens; 1000000 was written"),
    "llama-server": ('"repeat_last_n": 1000000', "llama-server has no number that means all tokens"),
    "ollama": ("repeat_last_n 1000000", "Ollama has no number that means all tokens"),
    "koboldcpp": ('"rep_pen_range": 1000000', "KoboldCpp has no number that means all tokens"),
    "sillytavern": ('"rep_pen_range": 1000000', "some back ends of SillyTavern read 0 as off, and reject -1"),
    "webui": ("repetition_penalty_range: 0", "0 was written, which is all tokens to the transformers loaders"),
    "tabbyapi": ("override: -1", None),
    "huggingface": ('"repetition_penalty": 1.1', None),
    "lmstudio": ("repeatPenalty", "LM Studio always has 64 there"),
}


@pytest.mark.parametrize(("form", "expected"), EXPORTS.items(), ids=EXPORTS)
def test_an_export_writes_what_the_tool_reads_as_all_tokens(form, expected):
    written, reason = expected
    exported = export_preset([PENALTIES], form)
    assert written in exported.text
    assert [sentence.split(": ", 1)[0] for sentence in exported.unsupported_settings] == (
        [] if reason is None else ["penalties.last_n -1"]
    )
    assert reason is None or reason in exported.unsupported_settings[0]


@pytest.mark.parametrize("form", ["llama.cpp", "ollama", "sillytavern", "webui", "tabbyapi"])
def test_the_number_comes_back_as_all_tokens(tmp_path, form):
    path = tmp_path / "theirs"
    path.write_text(export_preset([PENALTIES], form).text)
    assert PENALTIES in import_preset(path).chain
