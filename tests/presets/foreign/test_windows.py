"""Penalty windows of all tokens: what an export writes. `imports/windows.txt` has the imports."""

import pytest
from logitsmith.presets import export_preset, import_preset

PENALTIES = ["penalties", {"repeat": 1.1, "last_n": -1}]
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
