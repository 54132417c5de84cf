"""`gen models`, and `-m` and `-hf` with names."""

import json
from pathlib import Path

import pytest
from logitsmith.engine import locate

from ..hub_server import HubServer, serve_folder
from ..models.conftest import VARIABLES
from ..models.folders import in_ollama, write_tiny

SEA = ("The sea was", "-n", "4", "--seed", "1", "-t", "1")


@pytest.fixture
def user(home, environment):
    """A home with models of Ollama and LM Studio, in `gen`'s environment."""
    for name in VARIABLES:
        environment.pop(name, None)
    environment["XDG_CONFIG_HOME"] = str(home / "config")
    environment["HOME"] = str(home)
    environment["OLLAMA_MODELS"] = str(home / "ollama")
    bundled, _ = locate()
    path = in_ollama(home / "ollama", "registry.ollama.ai/library/smol:135m", settings={"temperature": 0.3})
    path.unlink()
    path.symlink_to(bundled)
    studio = home / ".lmstudio/models"
    write_tiny(studio / "maker/Tiny-GGUF/Tiny-Q8_0.gguf", general__sampling__temp=0.6, general__license="mit")
    write_tiny(studio / "maker/Broken-GGUF/Broken-Q8_0.gguf").write_bytes(b"GGUF\3\0\0\0")
    write_tiny(studio / "maker/Adapter-GGUF/Adapter.gguf", general__type="adapter")
    return home


def test_the_list(gen, user):
    result = gen("models")
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["model", "size", "type", "weights", "context", "chat", "from"]
    rows = {line[0]: line[1:] for line in lines[2:]}
    assert rows["lmstudio:maker/Tiny-GGUF"][2:] == ["Q4_K_M", "64", "2,048", "yes", "LM", "Studio"]
    assert rows["ollama:smol:135m"] == ["98.4", "MB", "Q4_1", "135M", "8,192", "yes", "Ollama"]
    assert rows["lmstudio:maker/Broken-GGUF"][2] == "damaged:"
    # The bundled model is here a link in Ollama's folder, and a file counts once.
    assert set(rows) == {"lmstudio:maker/Tiny-GGUF", "lmstudio:maker/Broken-GGUF", "ollama:smol:135m"}
    assert result.err == ("gen: note: 1 file not listed: projectors, adapters, or files without a model\n")


@pytest.mark.parametrize("command", [["models"], ["models", "list"]], ids=" ".join)
def test_a_missing_file_of_ollama(gen, user, command):
    path = in_ollama(user / "ollama", "registry.ollama.ai/library/gone:latest")
    path.unlink()
    note = "gen: note: 1 model not listed: file missing; shown with --all\n"
    result = gen(*command)
    assert "gone" not in result.out
    assert note in result.err
    assert "gone" not in gen(*command, "--format", "json").out
    result = gen(*command, "--all")
    (row,) = (line for line in result.out.splitlines() if line.startswith("ollama:gone:latest "))
    assert "missing; `ollama pull gone:latest` downloads it" in row
    assert note not in result.err
    listed = json.loads(gen(*command, "--all", "--format", "json").out)
    (model,) = (model for model in listed if model["name"] == "ollama:gone:latest")
    assert (model["path"], model["problem"]) == (str(path), "missing; `ollama pull gone:latest` downloads it")


def test_running_a_missing_file_of_ollama(gen, user):
    path = in_ollama(user / "ollama", "registry.ollama.ai/library/gone:latest")
    path.unlink()
    for words in (["x", "-m", "ollama:gone"], ["x", "-m", "gone"], ["models", "show", "gone"]):
        error = gen(*words, code=1).err
        assert error.startswith(f"gen: {words[2]}: ")
        assert str(path) in error
        assert "`ollama pull gone:latest`" in error
    assert gen("x", GEN_MODEL="ollama:gone", code=1).err.startswith("gen: $GEN_MODEL: ollama:gone: ")


def test_only_models_without_a_file(gen, user):
    for path in (user / "ollama").rglob("sha256-*"):
        path.unlink()
    result = gen("models", "list", "smol:135m")
    assert result.err == "gen: note: 1 model not listed: file missing; shown with --all\n"
    result = gen("x", "-m", "ollama:bar", code=1)
    assert "there is no model of Ollama on this machine" in result.err


def test_the_list_as_json(gen, user):
    models = json.loads(gen("models", "--format", "json").out)
    assert models == json.loads(gen("models", "list", "--format", "json").out)
    (model,) = (model for model in models if model["name"] == "ollama:smol:135m")
    assert model | {"path": ""} == {
        "name": "ollama:smol:135m",
        "source": "Ollama",
        "path": "",
        "adapters": [],
        "size_bytes": 98362432,
        "architecture": "llama",
        "quantization": "Q4_1",
        "parameters": 134515008,
        "trained_context": 8192,
        "has_chat_template": True,
        "problem": None,
    }
    assert json.loads(gen("models", "list", "no-such", "--format", "json").out) == []


def test_a_part_of_the_list(gen, user):
    assert [line.split()[0] for line in gen("models", "list", "TINY").out.splitlines()[2:]] == [
        "lmstudio:maker/Tiny-GGUF"
    ]
    result = gen("models", "list", "no-such")
    assert result.out == ""
    assert "no model has 'no-such' in its name; download one with gen models pull hf:USER/REPO" in result.err


def test_show(gen, user):
    shown = gen("models", "show", "tiny").out
    assert shown.startswith("lmstudio:maker/Tiny-GGUF\n")
    for expected in ("license        mit", "trained with 2,048 tokens", "use them with -P model", "temp 0.6"):
        assert expected in shown
    shown = gen("models", "show", "ollama:smol").out
    assert "Ollama's settings for it: temperature 0.3" in shown
    assert "'<|im_start|>'" in shown
    facts = json.loads(gen("models", "show", "tiny", "--format", "json").out)
    assert facts["metadata"]["general.license"] == "mit"
    assert facts["special_tokens"][0] == {"role": "bos", "purpose": "begins a text", "id": 2, "text": "<s>"}


@pytest.fixture
def small_user(user, pruned_model):
    """A home in which Ollama's model is the pruned one."""
    (path,) = (path for path in (user / "ollama").rglob("sha256-*") if path.is_symlink())
    path.unlink()
    path.symlink_to(pruned_model)
    return user


def test_a_name_in_place_of_a_file(gen, small_user, pruned_model):
    expected = gen(*SEA, "-m", pruned_model).out
    for name in ("ollama:smol:135m", "ollama:smol", "smol:135"):
        assert gen(*SEA, "-m", name).out == expected
    assert gen(*SEA, GEN_MODEL="smol:135").out == expected
    (small_user / "config/logitsmith").mkdir()
    (small_user / "config/logitsmith/config.yaml").write_text("model: ollama:smol\n")
    assert gen(*SEA).out == expected


def test_every_command_with_a_model_takes_names(gen, small_user):
    chosen = ("-m", "ollama:smol", "-t", "1")
    assert gen("score", "The sea", *chosen, "--format", "json").out
    assert gen("recover", "The sea", *chosen, "--dry-run").out
    (answer,) = gen("batch", "-", *chosen, "--format", "jsonl", stdin='{"prompt": "Hi", "max_tokens": 1}').lines
    (next_token,) = gen("next", "The sea", *chosen, "--format", "json").lines
    run = gen("The sea", *chosen, "-n", "1", "--format", "jsonl", "--stats")
    names = {answer["model"], next_token["model"], run.lines[0]["model"], run.lines[-1]["model"]}
    assert names == {"ollama:smol:135m"} == {run.err.split()[1]}
    assert " ollama:smol:135m " in gen("x", "-m", "smol:135", "--show-config").out.splitlines()[0]


def test_own_folders(gen, user):
    write_tiny(user / "config/logitsmith/mine/Own.gguf")
    (user / "config/logitsmith/config.yaml").write_text("model_folders: [mine, absent]\n")
    result = gen("models", "list", "own")
    assert result.out.splitlines()[2].split()[0] == "Own"
    assert result.err == f"gen: note: model_folders: {user}/config/logitsmith/absent: there is no such folder\n"
    (user / "config/logitsmith/config.yaml").write_text("model_folders: mine\n")
    assert "model_folders" in gen("models", code=2).err


REFUSALS = {
    "no such name": (["-m", "mistral"], 1, "mistral: there is no such file, and no model of this name"),
    "two models": (["-m", "maker"], 1, "gen: maker fits 3 models: lmstudio:maker/Adapter-GGUF, lmst"),
    "a broken one": (["-m", "broken"], 1, "Broken-Q8_0.gguf: damaged GGUF file"),
    "-m and -hf": (["-m", "x", "-hf", "a/b"], 2, "-m and -hf both name a model; give only one"),
    "-hff alone": (
        ["-hff", "x.gguf"],
        2,
        "-hff names a file in a repository; name the repository with -hf USER/REPO",
    ),
    "no repository": (["-hf", "x"], 1, "'hf:x' is not hf:USER/REPO"),
}


@pytest.mark.parametrize(("flags", "code", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(gen, user, flags, code, expected):
    assert expected in gen("x", *flags, code=code).err


def test_format_before_a_command(gen, user):
    assert (
        gen("models", "--format", "json", "show", "tiny", code=2).err
        == "gen: --format must follow the command: gen models show --format\n"
    )


@pytest.fixture(scope="module")
def hub():
    server = HubServer()
    yield server
    server.close()


@pytest.fixture
def online(user, hub, environment, pruned_model):
    """`gen`'s environment with our hub, which has the pruned model."""
    pytest.importorskip("huggingface_hub")
    environment["HF_HOME"] = str(user / "hf")
    environment["GEN_MODEL"] = str(pruned_model)
    (user / "Small.Q4_1.gguf").symlink_to(pruned_model)
    hub.repositories.clear()
    repository = serve_folder(hub, "me/SmolLM2-GGUF", user / "Small.Q4_1.gguf")
    return repository, {"HF_ENDPOINT": hub.address}


def test_pull_and_run(gen, online, user):
    repository, variables = online
    repository.cut_after, repository.cuts = 2_000_000, 1
    result = gen("models", "pull", "hf:me/SmolLM2-GGUF", **variables)
    assert result.out.rstrip().endswith("Small.Q4_1.gguf")
    assert Path(result.out.strip()).samefile(next((user / "hf").rglob("*.gguf")))
    assert "hf:me/SmolLM2-GGUF is downloaded" in result.err
    expected = gen(*SEA).out
    repository.requests.clear()
    names = {"-m": "hf:me/SmolLM2-GGUF:Q4_1", "-hf": "me/SmolLM2-GGUF", "--hf-repo": "me/SmolLM2-GGUF:q4_1"}
    for flag, name in names.items():
        assert gen(*SEA, flag, name, **variables).out == expected
    assert repository.requests == []


def test_show_downloads_nothing(gen, user):
    result = gen("models", "show", "hf:me/SmolLM2-GGUF", code=1)
    assert result.err.endswith("not on this machine; gen models pull hf:me/SmolLM2-GGUF downloads it\n")


def test_hf_downloads_at_once(gen, online):
    _, variables = online
    result = gen(*SEA, "-hf", "me/SmolLM2-GGUF", "-hff", "Small.Q4_1.gguf", **variables)
    assert result.out == gen(*SEA).out
    assert "downloading Small.Q4_1.gguf" in result.err


def test_pull_refusals(gen, online):
    _, variables = online
    assert "me/Absent" in gen("models", "pull", "me/Absent", code=1, **variables).err
    assert "127.0.0.1:9" in gen("models", "pull", "me/X", code=1, HF_ENDPOINT="http://127.0.0.1:9").err
    assert "HF_HUB_OFFLINE" in gen("x", "-hf", "me/Absent", code=1, HF_HUB_OFFLINE="1", **variables).err
