"""The folders in which tools keep models, and the names of the models in them."""

import json
import os
import sys

import pytest
from logitsmith.engine import list_models, read_summaries

from .folders import OLLAMA_MODEL, blob, in_hub_cache, in_ollama, write_manifest, write_tiny

REGISTRY = "registry.ollama.ai/library"
DATA = "Library/Application Support" if sys.platform == "darwin" else ".local/share"


HUB, STUDIO = ".cache/huggingface/hub", ".lmstudio/models/maker"
CACHES = "Library/Caches" if sys.platform == "darwin" else ".cache"


def ollama(home):
    root = home / ".ollama/models"
    in_ollama(root, f"{REGISTRY}/llama3.2:1b")
    in_ollama(root, "registry.ollama.ai/someone/mine:latest")
    in_ollama(root, "hf.co/me/Tiny-GGUF:Q8_0")
    in_ollama(root, "ollama.com/library/newer:latest", manifests="manifest-v2")


def ollama_with_aliases(home):
    root = home / ".ollama/models"
    in_ollama(root, f"{REGISTRY}/one:latest")
    manifest = json.loads((root / "manifests" / REGISTRY / "one/latest").read_text())
    write_manifest(root / "manifests", f"{REGISTRY}/alias:latest", manifest)


def ollama_with_a_list(home):
    root = home / ".ollama/models"
    in_ollama(root, f"{REGISTRY}/plain:latest")
    plain = (root / "manifests" / REGISTRY / "plain/latest").read_text()
    (root / "manifests" / REGISTRY / "plain/latest").unlink()
    children = [
        {
            "runner": "mlx",
            "format": "safetensors",
            "layers": [{"mediaType": "tensor", "digest": "sha256:" + "0" * 64}],
        },
        {"mediaType": "m", "digest": blob(root, plain.encode()), "runner": "ollama", "format": "gguf"},
    ]
    manifest = {"mediaType": "application/vnd.ollama.manifest.list.v2+json", "manifests": children}
    write_manifest(root / "manifests", f"{REGISTRY}/listed:latest", manifest)


def ollama_broken(home):
    folder = home / ".ollama/models/manifests"
    write_manifest(
        folder,
        f"{REGISTRY}/no-blob:latest",
        {"layers": [{"mediaType": OLLAMA_MODEL, "digest": "../../etc/passwd"}]},
    )
    write_manifest(folder, f"{REGISTRY}/list:latest", [1, 2])
    write_manifest(folder, f"{REGISTRY}/nested:latest", {"manifests": [{"digest": 3}, None]})
    (folder / REGISTRY / "nested/truncated").write_text("{")
    (folder / "stray").write_text("x")


def lm_studio_elsewhere(home):
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio/settings.json").write_text(json.dumps({"downloadsFolder": str(home / "big")}))
    write_tiny(home / "big/maker/One-GGUF/One-Q4_K_M.gguf")


def lm_studio_by_its_pointer(home):
    (home / ".lmstudio-home-pointer").write_text(f"{home}/studio\n")
    write_tiny(home / "studio/models/maker/One-GGUF/One-Q4_K_M.gguf")


def jan(home):
    data = home / DATA / "Jan/data"
    write_tiny(data / "llamacpp/models/maker/Tiny_Q8_0/model.gguf")
    (data / "llamacpp/models/maker/Tiny_Q8_0/model.yml").write_text(
        "model_path: llamacpp/models/maker/Tiny_Q8_0/model.gguf\nname: Tiny\n"
    )
    imported = write_tiny(home / "elsewhere/imported.gguf")
    (data / "llamacpp/models/imported").mkdir()
    (data / "llamacpp/models/imported/model.yml").write_text(f"model_path: {imported}\n")


TINY = ("me/Tiny-GGUF", "Tiny-Q8_0.gguf")
STUDIO_FILES = ("One-GGUF/One-Q4_K_M.gguf", "Two-GGUF/Two-Q4_K_M.gguf", "Two-GGUF/Two-Q8_0.gguf")
SPLIT = [f"{STUDIO}/Big/Big-Q8_0-{number:05}-of-00003.gguf" for number in (1, 2, 3)]


def hub(folder, repository, *names, **options):
    return lambda home: in_hub_cache(home / folder, repository, *names, **options)


def files(*paths):
    return lambda home: [write_tiny(home / path) for path in paths]


def in_order(*writers):
    return lambda home: [write(home) for write in writers]


def of_ollama(folder, name):
    return lambda home: in_ollama(home / folder, name)


# Each row: what is written, the environment, in which ~ is the home folder, and the names of each tool's models.
CASES = {
    "Hugging Face": (hub(HUB, *TINY, "Tiny-Q4_K_M.gguf"), {}, {
        "Hugging Face": ["hf:me/Tiny-GGUF:Q4_K_M", "hf:me/Tiny-GGUF:Q8_0"],
    }),
    "HF_HOME": (hub("hf/hub", *TINY), {"HF_HOME": "{home}/hf"}, {"Hugging Face": ["hf:me/Tiny-GGUF:Q8_0"]}),
    "HF_HUB_CACHE": (hub("hub", *TINY), {"HF_HUB_CACHE": "~/hub"}, {"Hugging Face": ["hf:me/Tiny-GGUF:Q8_0"]}),
    "two files of one quantization": (hub(HUB, "me/Two", "a/x-Q8_0.gguf", "b/x-Q8_0.gguf"), {}, {
        "Hugging Face": ["hf:me/Two:Q8_0", "hf:me/Two/b/x-Q8_0.gguf"],
    }),
    "an older snapshot": (
        in_order(hub(HUB, "me/Old", "Old-Q8_0.gguf", commit="b" * 40), hub(HUB, "me/Old", "Old-Q4_0.gguf")),
        {},
        {"Hugging Face": ["hf:me/Old:Q8_0", "hf:me/Old:Q4_0"]},
    ),
    "LLAMA_CACHE": (
        in_order(hub("llama", *TINY), files("llama/me_Other-GGUF_other-q4_0.gguf")),
        {"LLAMA_CACHE": "{home}/llama"},
        {"Hugging Face": ["hf:me/Tiny-GGUF:Q8_0"], "llama.cpp": ["me_Other-GGUF_other-q4_0"]},
    ),
    "Ollama": (ollama, {}, {
        "Ollama": [
            "ollama:llama3.2:1b", "ollama:someone/mine:latest", "ollama:hf.co/me/Tiny-GGUF:Q8_0",
            "ollama:newer:latest",
        ],
    }),
    "OLLAMA_MODELS": (
        in_order(
            of_ollama("store", f"{REGISTRY}/llama3.2:1b"),
            of_ollama(".ollama/models", f"{REGISTRY}/not-there:latest"),
        ),
        {"OLLAMA_MODELS": "{home}/store"},
        {"Ollama": ["ollama:llama3.2:1b"]},
    ),
    "two names of one blob": (ollama_with_aliases, {}, {"Ollama": ["ollama:one:latest", "ollama:alias:latest"]}),
    "a list of manifests": (ollama_with_a_list, {}, {"Ollama": ["ollama:listed:latest"]}),
    "broken manifests": (ollama_broken, {}, {}),
    "LM Studio": (
        files(*(f"{STUDIO}/{name}" for name in (*STUDIO_FILES, "Two-GGUF/mmproj-Two-F16.gguf"))),
        {},
        {
            "LM Studio": [
                "lmstudio:maker/One-GGUF", "lmstudio:maker/Two-GGUF@q4_k_m", "lmstudio:maker/Two-GGUF@q8_0",
            ],
        },
    ),
    "LM Studio before 0.3": (files(f".cache/lm-studio/models/maker/{STUDIO_FILES[0]}"), {}, {
        "LM Studio": ["lmstudio:maker/One-GGUF"],
    }),
    "LM Studio's chosen folder": (lm_studio_elsewhere, {}, {"LM Studio": ["lmstudio:maker/One-GGUF"]}),
    "LM Studio's pointer": (lm_studio_by_its_pointer, {}, {"LM Studio": ["lmstudio:maker/One-GGUF"]}),
    "llama.cpp": (files(f"{CACHES}/llama.cpp/me_Tiny-GGUF_tiny-q4_0.gguf"), {}, {
        "llama.cpp": ["me_Tiny-GGUF_tiny-q4_0"],
    }),
    "GPT4All": (files(f"{DATA}/nomic.ai/GPT4All/Tiny.Q4_0.gguf", ".cache/gpt4all/Older.Q4_0.gguf"), {}, {
        "GPT4All": ["Tiny.Q4_0", "Older.Q4_0"],
    }),
    "Jan": (jan, {}, {"Jan": ["maker/Tiny_Q8_0", "imported"]}),
    "JAN_DATA_FOLDER": (files("j/llamacpp/models/tiny/model.gguf"), {"JAN_DATA_FOLDER": "{home}/j"}, {
        "Jan": ["tiny"],
    }),
    "a split model": (files(*SPLIT), {}, {"LM Studio": ["lmstudio:maker/Big"]}),
}  # fmt: skip


@pytest.mark.parametrize(("write", "environment", "expected"), CASES.values(), ids=CASES)
def test_names_and_sources(home, monkeypatch, write, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(home=home))
    write(home)
    found = list_models()
    assert {entry.name: entry.source for entry in found} == {
        name: source for source, names in expected.items() for name in names
    }
    assert [entry.name.lower() for entry in found] == sorted(entry.name.lower() for entry in found)
    assert all(part.is_file() for entry in found for part in entry.parts)


def test_a_file_of_the_snapshot_of_main_takes_precedence(home):
    snapshot = in_hub_cache(home / HUB, *TINY)
    in_hub_cache(home / HUB, *TINY, commit="b" * 40, is_main=False)
    (entry,) = list_models()
    assert entry.path.parent == snapshot


def test_all_parts_of_a_split_model(home):
    files(*SPLIT)(home)
    (entry,) = list_models()
    assert [path.name[-19:] for path in entry.parts] == [f"-{n:05}-of-00003.gguf"[-19:] for n in (1, 2, 3)]
    assert entry.path == entry.parts[0]


def test_settings_of_ollama(home):
    in_ollama(home / ".ollama/models", f"{REGISTRY}/tuned:latest", settings={"temperature": 0.6})
    (entry,) = list_models()
    assert json.loads(entry.ollama_settings_file.read_text()) == {"temperature": 0.6}


def test_own_folders(home):
    write_tiny(home / "mine/sub/One.gguf")
    write_tiny(home / "mine/other/One.gguf")
    in_hub_cache(home / "mine", "me/Tiny-GGUF", "Tiny-Q8_0.gguf")
    reports = []
    found = list_models([home / "mine", home / "absent"], reports.append)
    assert {entry.name for entry in found} == {"One", str(home / "mine/sub/One.gguf"), "hf:me/Tiny-GGUF:Q8_0"}
    assert reports == [f"model_folders: {home}/absent: there is no such folder"]


def test_a_model_of_ollama_whose_file_is_missing_is_listed_on_request(home):
    path = in_ollama(home / ".ollama/models", f"{REGISTRY}/gone:1b")
    path.unlink()
    in_ollama(home / ".ollama/models", f"{REGISTRY}/here:1b")
    assert [entry.name for entry in list_models()] == ["ollama:here:1b"]
    summaries = {summary.entry.name: summary for summary in read_summaries(list_models(includes_missing=True))}
    assert list(summaries) == ["ollama:gone:1b", "ollama:here:1b"]
    gone, here = summaries.values()
    assert (gone.entry.is_missing, here.entry.is_missing) == (True, False)
    assert (gone.entry.path, gone.entry.parts, gone.size_bytes, gone.is_model) == (path, (), 0, True)
    assert gone.problem == "missing; `ollama pull gone:1b` downloads it"
    assert here.problem is None


def test_a_file_of_two_tools_counts_once(home):
    files(f"{STUDIO}/{STUDIO_FILES[0]}")(home)
    assert {entry.source for entry in list_models([home / ".lmstudio/models"])} == {"LM Studio"}


def test_links_are_followed_and_rings_are_not(home):
    write_tiny(home / "elsewhere/maker/One-GGUF/One-Q4_0.gguf")
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio/models").symlink_to(home / "elsewhere")
    (home / "elsewhere/maker/ring").symlink_to(home / "elsewhere")
    (home / "elsewhere/maker/One-GGUF/broken.gguf").symlink_to(home / "nowhere")
    assert [entry.name for entry in list_models()] == ["lmstudio:maker/One-GGUF"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_reported(home):
    folder = home / ".ollama/models/manifests"
    folder.mkdir(parents=True)
    folder.chmod(0)
    reports = []
    try:
        assert list_models(report=reports.append) == []
    finally:
        folder.chmod(0o755)
    assert reports == [f"{folder}: the folder cannot be read (Permission denied)"]
