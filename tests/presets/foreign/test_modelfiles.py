"""How Modelfiles are written: their encodings, line ends, quotes and comments."""

import pytest
from logitsmith.presets import import_preset

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


def test_lines_of_a_modelfile_may_end_as_in_windows(load):
    text = '\ufeffPARAMETER seed 3\r\nSYSTEM """a\r\nb"""\r\n\nFROM llama3\nTEMPLATE x\n'
    assert load(text, "ollama").other_settings == {"seed": 3, "system": "a\nb"}
