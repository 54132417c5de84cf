"""`gen presets import` and `export`, and `-P FILE` with a file of another tool."""

import json

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("with_pruned_model")

MODELFILE = 'FROM llama3\nPARAMETER temperature 0.6\nPARAMETER mirostat 2\nSYSTEM """Be brief."""\n'
SILLYTAVERN = {"temp": 0.7, "top_k": 20, "typical_p": 1, "rep_pen": 1.0, "temperature_last": True, "num_beams": 4}
KOBOLDAI = [
    {"preset": "Calm", "temp": 0.5, "top_p": 0.8, "rep_pen": 1.1, "sampler_order": [6, 0, 1, 2, 3, 4, 5]},
    {"preset": "Wild, wide", "temp": 1.4, "top_p": 1.0, "rep_pen": 1.0, "sampler_order": [6, 0, 1, 2, 3, 4, 5]},
]
HUGGINGFACE = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "penalty_alpha": 0.6, "eos_token_id": 2}
WEBUI = "temperature: 0.7\nmin_p: 0.05\n"
INI = "[*]\ntemp = 0.5\n[small]\ntop-k = 5\n[large]\ntop-k = 90\n"
LMSTUDIO = {"name": "x", "inference_params": {"temp": 0.4, "top_k": 10}}
TABBYAPI = "temperature:\n  override: 0.9\n  force: false\n"


@pytest.fixture
def work(home):
    """The working folder, with a file of each kind."""
    folder = home / "work"
    (folder / "Modelfile").write_text(MODELFILE)
    (folder / "tavern.json").write_text(json.dumps(SILLYTAVERN))
    (folder / "kobold.presets").write_text(json.dumps(KOBOLDAI))
    (folder / "generation_config.json").write_text(json.dumps(HUGGINGFACE))
    (folder / "webui.yaml").write_text(WEBUI)
    (folder / "llama.ini").write_text(INI)
    (folder / "lm.preset.json").write_text(json.dumps(LMSTUDIO))
    (folder / "overrides.yml").write_text(TABBYAPI)
    return folder


def config(gen, preset):
    """The parameters of a run's chain, as texts: ``[0] top_k.k`` is ``20``."""
    lines = gen("x", "-P", preset, "--show-config").out.splitlines()
    return {" ".join(words[:2]): words[2] for line in lines if len(words := line.split()) > 2 and "[" in words[0]}


FILES = {
    "ollama": ("Modelfile", ["top_k", "top_p", "temperature", "dist"]),
    "sillytavern": ("tavern.json", ["top_k", "temperature", "dist"]),
    "koboldai": ("kobold.presets#Calm", ["repetition_penalty", "top_p", "temperature", "dist"]),
    "huggingface": ("generation_config.json", ["temperature", "top_k", "top_p", "dist"]),
    "webui": ("webui.yaml", ["temperature", "min_p", "dist"]),
    "llama.cpp": ("llama.ini#small", ["top_k", "top_p", "min_p", "temperature", "dist"]),
    "tabbyapi": ("overrides.yml", ["temperature", "dist"]),
}


@pytest.mark.parametrize(("name", "steps"), FILES.values(), ids=FILES)
def test_a_file_of_another_tool_is_a_preset(gen, work, name, steps):
    for path in (name, f"./{name}"):
        result = gen("presets", "check", path)
        assert result.out == f"{path}: ok ({' > '.join(steps)})\n"
        assert result.err.startswith(f"gen: note: {path}: read as ")


def test_import_prints_a_preset_of_ours_and_the_report(gen, work):
    result = gen("presets", "import", "Modelfile")
    preset = yaml.safe_load(result.out)
    assert preset["chain"] == [{"top_k": {"k": 40}}, {"top_p": {"p": 0.9}}, {"temperature": {"t": 0.6}}, "dist"]
    assert preset["system"] == "Be brief."
    assert "# Ollama's default: top-k 40" in result.out
    assert "# temperature" in result.out
    assert result.err.startswith("gen: note: mirostat 2: ")


def test_import_reads_stdin(gen, work):
    assert gen("presets", "import", "-", stdin=MODELFILE).out == gen("presets", "import", "Modelfile").out.replace(
        "imported from Modelfile", "imported from stdin"
    )
    assert "stdin: line 1, column " in gen("presets", "import", "-", stdin='{"temp": 1,}', code=2).err
    assert "stdin: line 1: the file is not UTF-8" in gen("presets", "import", "-", stdin=b"\xff", code=2).err


def test_sections_are_listed_and_chosen(gen, work):
    for arguments in (("presets", "import", "kobold.presets"), ("x", "-P", "kobold.presets")):
        result = gen(*arguments, code=2)
        assert result.out == ""
        assert "\n  Calm\n  Wild, wide\n" in result.err
    chosen = yaml.safe_load(gen("presets", "import", "kobold.presets", "--section", "Wild, wide").out)
    assert chosen["chain"][0] == {"temperature": {"t": 1.4}}
    assert "unknown section 'Nope'" in gen("x", "-P", "kobold.presets#Nope", code=2).err
    assert "holds one preset only" in gen("x", "-P", "webui.yaml#Nope", code=2).err


@pytest.mark.parametrize("folder", ["", "./"])
def test_a_section_by_its_mark_in_all_commands(gen, work, folder):
    name = f"{folder}kobold.presets#Wild, wide"
    chosen = gen("presets", "import", "kobold.presets", "--section", "Wild, wide").out
    assert gen("presets", "import", name).out == chosen
    assert gen("presets", "show", name).out == chosen
    assert gen("presets", "check", name).out == f"{name}: ok (temperature > dist)\n"
    assert "temperature: 1.4" in gen("presets", "export", name, "--to", "webui").out
    gen("presets", "import", name, "--save", "wild")
    assert gen("presets", "show", "wild").out == chosen


@pytest.mark.parametrize("name", [name for name, _ in FILES.values()])
def test_show_prints_a_file_of_another_tool_as_import_does(gen, work, name):
    shown, imported = gen("presets", "show", name), gen("presets", "import", name)
    assert shown.out == imported.out
    first, _, rest = shown.err.partition("\n")
    assert first.startswith(f"gen: note: {name}: read as ")
    assert rest == imported.err


SHOWN_AS_IT_IS = {
    "comments": "# mine\nchain: [{top_k: 3}]  # few\n",
    "no YAML": "chain: [\n",
}


@pytest.mark.parametrize("text", SHOWN_AS_IT_IS.values(), ids=SHOWN_AS_IT_IS)
def test_show_prints_a_file_of_ours_as_it_is(gen, work, text):
    (work / "mine.yaml").write_text(text)
    result = gen("presets", "show", "mine.yaml")
    assert (result.out, result.err) == (text, "")


WRONG_SECTIONS = {
    "named twice": ("import", "kobold.presets#Calm", "--section", "Calm"),
    "unknown": ("import", "kobold.presets#Clam"),
    "show unknown": ("show", "kobold.presets#Clam"),
    "show all": ("show", "kobold.presets"),
    "show one of ours": ("show", "mine.yaml#x"),
    "no such file": ("show", "nosuch.presets#x"),
}


@pytest.mark.parametrize("arguments", WRONG_SECTIONS.values(), ids=WRONG_SECTIONS)
def test_a_wrong_section_by_its_mark(gen, work, arguments):
    (work / "mine.yaml").write_text("chain: [greedy]\n")
    assert arguments[1].partition("#")[0] in gen("presets", *arguments, code=2).err


def test_a_file_whose_name_has_the_mark_of_sections(gen, work):
    (work / "a#b.json").write_text(json.dumps(KOBOLDAI))
    assert gen("presets", "check", "a#b.json#Calm").out == gen(
        "presets", "check", "kobold.presets#Calm"
    ).out.replace("kobold.presets", "a#b.json")


def test_saving(gen, work, home):
    result = gen("presets", "import", "Modelfile", "--save", "mario")
    path = home / "config" / "logitsmith" / "presets" / "mario.yaml"
    assert result.out == ""
    assert f"saved as {path}; use it with -P mario" in result.err
    assert gen("presets", "check", "mario").out.startswith("mario: ok (top_k > ")
    path.write_text("chain: [greedy]\n")
    refused = gen("presets", "import", "Modelfile", "--save", "mario", code=2)
    assert "already exists; --force replaces it" in refused.err
    assert path.read_text() == "chain: [greedy]\n"
    gen("presets", "import", "Modelfile", "--save", "mario", "--force")
    assert "temperature" in path.read_text()
    assert [file.name for file in path.parent.iterdir()] == ["mario.yaml"]


def test_a_preset_of_the_folder_goes_before_the_saved_one(gen, work):
    (work / "presets").mkdir()
    (work / "presets" / "mario.yaml").write_text("chain: [greedy]\n")
    result = gen("presets", "import", "Modelfile", "--save", "mario")
    assert "gen: note: here, -P mario finds presets/mario.yaml first\n" in result.err


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a.yaml", "model", ".hidden", "a\nb", " a"])
def test_names_that_cannot_be_saved(gen, work, home, name):
    gen("presets", "import", "Modelfile", "--save", name, code=2)
    assert not (home / "config" / "logitsmith").exists()


def test_run_takes_the_file_and_reports(gen, work):
    result = gen("x", "-P", "tavern.json", "--show-config")
    assert "gen: note: tavern.json: read as a preset of SillyTavern" in result.err
    assert "gen: note: num_beams 4: " in result.err
    assert config(gen, "tavern.json")["[0] top_k.k"] == "20"
    assert gen("1, 2,", "-P", "Modelfile", "-n", "2", "--seed", "1").out


def test_batch_takes_the_file_and_reports_once(gen, work):
    lines = [
        {"id": "a", "prompt": "The", "max_tokens": 2},
        {"id": "b", "prompt": "The", "max_tokens": 2, "preset": "tavern.json"},
        {"id": "c", "prompt": "The", "max_tokens": 2, "preset": "kobold.presets#Calm"},
    ]
    result = gen(
        "batch",
        "-",
        "-P",
        "tavern.json",
        "--format",
        "jsonl",
        stdin="".join(json.dumps(line) + "\n" for line in lines),
    )
    assert sorted(line["id"] for line in result.lines) == ["a", "b", "c"]
    assert result.err.count("num_beams 4: ") == 1
    assert result.err.count("kobold.presets#Calm: read as a preset of KoboldAI") == 1


def test_a_preset_of_ours_stays_one(gen, work):
    (work / "mine").write_text("chain: [top_k: 7, dist]\n")
    assert gen("presets", "check", "./mine").err == ""
    (work / "mine.json").write_text('{"chain": [{"top_k": 7}], "seed": 1}')
    assert config(gen, "mine.json")["[0] top_k.k"] == "7"
    assert "is a preset of logitsmith itself" in gen("presets", "import", "mine", code=2).err


def test_a_name_goes_before_a_file(gen, work):
    (work / "creative").write_text(MODELFILE)
    assert gen("presets", "check", "creative").err == ""
    assert "Ollama" in gen("presets", "check", "./creative").err


def test_from_decides(gen, work):
    (work / "x.json").write_text('{"temp": 0.8, "rep_pen": 1.1}')
    assert "--from FORMAT" in gen("presets", "import", "x.json", code=2).err
    assert "penalties" in gen("presets", "import", "x.json", "--from", "sillytavern").out
    assert "repetition_penalty" in gen("presets", "import", "x.json", "--from", "KoboldAI").out
    assert "did you mean ollama?" in gen("presets", "import", "x.json", "--from", "olama", code=2).err


@pytest.fixture
def author_model(work):
    """The header of a model whose author recommends a temperature."""
    gguf = pytest.importorskip("gguf")
    path = work / "author.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_float32("general.sampling.temp", 0.6)
    writer.add_int32("general.sampling.top_k", 20)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_the_settings_of_a_models_author(gen, author_model):
    chain = [{"top_k": {"k": 20}}, {"top_p": {"p": 0.95}}, {"min_p": {"p": 0.05}}, {"temperature": {"t": 0.6}}]
    result = gen("presets", "import", "author.gguf")
    assert yaml.safe_load(result.out)["chain"] == [*chain, "dist"]
    assert config(gen, "author.gguf")["[3] temperature.t"] == "0.6"
    refusals = {
        "it is a GGUF file": ("presets", "import", "author.gguf", "--from", "ollama"),
        "one preset only": ("x", "-P", "author.gguf#x"),
    }
    for expected, arguments in refusals.items():
        assert expected in gen(*arguments, code=2).err


def test_a_model_that_names_no_settings(gen):
    from logitsmith.engine import locate

    path = str(locate()[0])
    assert "this model names no sampling settings" in gen("presets", "import", path, code=2).err


EXPORTS = {
    "llama.cpp": ("llama-cli --samplers 'temperature;min_p' --temp 0.7 --min-p 0.05", []),
    "ollama": ("PARAMETER min_p 0.05", ["order"]),
    "koboldai": ('"temp": 0.7', ["min_p"]),
}
"""The formats with a line of the file, and the settings that are reported."""


@pytest.mark.parametrize(
    ("form", "line", "reported"), [(form, *row) for form, row in EXPORTS.items()], ids=EXPORTS
)
def test_export(gen, work, form, line, reported):
    result = gen("presets", "export", "webui.yaml", "--to", form)
    assert line in result.out
    assert result.out.endswith("\n")
    notes = [note.split(":")[2].strip() for note in result.err.splitlines()]
    assert [note for note in notes if note != "webui.yaml"] == reported


def test_presets_of_these_names_are_still_shown(gen, work):
    (work / "presets").mkdir()
    for name in ("import", "export"):
        (work / "presets" / f"{name}.yaml").write_text("chain: [top_k: 3]\n")
        assert gen("presets", "show", name).out == "chain: [top_k: 3]\n"
        assert gen("presets", "check", name).out.startswith(f"{name}: ok")


def test_a_saved_import_finds_its_grammar_from_everywhere(gen, work, home):
    (work / "sub").mkdir()
    (work / "sub/yes.gbnf").write_text('root ::= "yes" | "no"\n')
    (work / "sub/llama.ini").write_text("temp = 0.5\ngrammar-file = yes.gbnf\n")
    assert "grammar: {file: yes.gbnf}" in gen("presets", "import", "sub/llama.ini").out
    gen("presets", "import", "sub/llama.ini", "--save", "answer")
    assert f"grammar: {{file: {work}/sub/yes.gbnf}}" in gen("presets", "show", "answer").out
    assert gen("presets", "check", "answer").out.startswith("answer: ok")
