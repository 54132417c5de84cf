"""The places of presets and of the user's configuration, and their search by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from logitsmith.presets import (
    PresetEntry,
    PresetError,
    config_folder,
    find_preset,
    list_presets,
    load_preset,
    search as search_module,
)
from logitsmith.presets.user_config import user_config

BUILT_IN = [
    "chasm",
    "creative",
    "default",
    "deterministic",
    "koboldai",
    "llama-cpp",
    "min-p",
    "mirostat",
    "precise",
    "xtc-dry",
]
KNOWN = f"known: {', '.join(BUILT_IN)}"
MINE = "description: mine\nchain: [greedy]\n"


def write(path: Path, text: str = MINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_built_in_only() -> None:
    assert [entry.name for entry in list_presets()] == BUILT_IN
    assert {entry.origin for entry in list_presets()} == {"built-in"}


def test_first_one_wins(project: Path, user_folder: Path) -> None:
    write(project / "presets/creative.yaml")
    write(user_folder / "presets/creative.yml")
    write(user_folder / "presets/mine.yml")
    user = str(user_folder / "presets")
    assert [(entry.name, entry.origin, entry.is_shadowed) for entry in list_presets()] == [
        ("creative", "./presets", False),
        ("creative", user, True),
        ("mine", user, False),
        *((name, "built-in", name == "creative") for name in BUILT_IN),
    ]
    assert load_preset("creative").source == str(Path("presets/creative.yaml"))
    assert load_preset("mine").source == str(user_folder / "presets/mine.yml")
    assert load_preset("default").source == "built-in"


def test_yaml_before_yml(project: Path) -> None:
    write(project / "presets/a.yml")
    write(project / "presets/a.yaml")
    assert find_preset("a").path.name == "a.yaml"
    assert [entry.is_shadowed for entry in list_presets() if entry.name == "a"] == [False, True]


def test_other_files_are_not_presets(project: Path) -> None:
    for name in (".hidden.yaml", "notes.txt", "folder.yaml/inside.txt"):
        write(project / "presets" / name)
    assert [entry.name for entry in list_presets()] == BUILT_IN


@pytest.mark.parametrize("link", [False, True], ids=["same_folder", "link"])
def test_built_in_folder_counts_once(project: Path, monkeypatch: pytest.MonkeyPatch, link: bool) -> None:
    if link:
        (project / "presets").symlink_to(search_module.BUILT_IN)
    else:
        write(project / "presets/creative.yaml")
        monkeypatch.setattr(search_module, "BUILT_IN", project / "presets")
    assert {entry.origin for entry in list_presets()} == {"built-in"}
    assert not any(entry.is_shadowed for entry in list_presets())


def test_user_folder_that_is_the_project_s_counts_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project))
    write(project / "logitsmith/presets/a.yaml")
    monkeypatch.chdir(project / "logitsmith")
    assert [entry.origin for entry in list_presets() if entry.name == "a"] == ["./presets"]


PATHS = {
    "separator": "some/where.txt",
    "suffix": "mine.yaml",
    "short_suffix": "mine.yml",
    "upper_case_suffix": "MINE.YAML",
    "here": "./creative",
}


@pytest.mark.parametrize("text", PATHS.values(), ids=PATHS)
def test_path(text: str) -> None:
    assert find_preset(text) == PresetEntry(Path(text).stem, "path", Path(text))


def test_path_is_named_as_given(project: Path) -> None:
    write(project / "sub/mine.yaml", "chain: [{top_p: 1.5}]")
    with pytest.raises(PresetError, match=r"^\./sub/mine\.yaml: chain\[0\]\.top_p\.p: 1\.5 is not within 0\.\.1$"):
        load_preset("./sub/mine.yaml")
    write(project / "sub/mine.yaml")
    assert (load_preset("sub/mine.yaml").name, load_preset("sub/mine.yaml").source) == (
        "mine",
        str(Path("sub/mine.yaml")),
    )


@pytest.mark.parametrize("suffix", [".yaml", ".yml"])
def test_name_is_shown_as_its_file(project: Path, suffix: str) -> None:
    write(project / f"presets/creative{suffix}", "chain: [top_k, temp, {top_p: 1.5}]")
    with pytest.raises(PresetError) as caught:
        load_preset("creative")
    assert str(caught.value) == f"creative{suffix}: chain[2].top_p.p: 1.5 is not within 0..1"


UNKNOWN = {
    "near": ("creativ", "did you mean creative?"),
    "case": ("Creative", "did you mean creative?"),
    "swapped": ("percise", "did you mean precise?"),
    "without its dash": ("MINP", "did you mean min-p?"),
    "far": ("xyz", KNOWN),
    "begins alike only": ("koala", KNOWN),
    "empty": ("", KNOWN),
}


@pytest.mark.parametrize(("name", "hint"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown(name: str, hint: str) -> None:
    with pytest.raises(PresetError) as caught:
        find_preset(name)
    assert str(caught.value) == f"unknown preset {name!r}; {hint}"


def test_the_case_of_a_users_preset_is_ignored(project: Path) -> None:
    write(project / "presets/ABC1.yaml")
    with pytest.raises(PresetError, match=r"did you mean ABC1\?"):
        find_preset("abc1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_without_permission(project: Path) -> None:
    (project / "presets").mkdir(mode=0)
    with pytest.raises(PresetError, match=r"^presets: the folder cannot be read \(Permission denied\)$"):
        list_presets()


HOMES = {
    "xdg": ({"XDG_CONFIG_HOME": "/x"}, "/x"),
    "unset": ({}, "/home/me/.config"),
    "empty": ({"XDG_CONFIG_HOME": ""}, "/home/me/.config"),
    "relative_is_ignored": ({"XDG_CONFIG_HOME": "x"}, "/home/me/.config"),
}


@pytest.mark.parametrize(("environment", "home"), HOMES.values(), ids=HOMES)
def test_config_home(environment: dict[str, str], home: str) -> None:
    assert search_module._config_home(environment, Path("/home/me")) == Path(home)


def test_config_folder(user_folder: Path) -> None:
    assert config_folder() == user_folder


def test_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert [entry.name for entry in list_presets()] == BUILT_IN


def test_no_user_config() -> None:
    assert (user_config().model, user_config().preset) == (None, None)


CONFIGS = {
    "empty": ("", None, None),
    "comment": ("# later\n", None, None),
    "both": ("model: /m.gguf\npreset: creative\n", "/m.gguf", "creative"),
    "space": ("model:\n", None, None),
    "preset_path": ("preset: /p.yaml\n", None, "/p.yaml"),
}


@pytest.mark.parametrize(("text", "model", "preset"), CONFIGS.values(), ids=CONFIGS)
def test_user_config(user_folder: Path, text: str, model: str | None, preset: str | None) -> None:
    write(user_folder / "config.yaml", text)
    assert (user_config().model, user_config().preset) == (model, preset)


def test_user_config_paths(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("USERPROFILE", "/home/me")
    write(user_folder / "config.yaml", "model: ~/m.gguf\npreset: own/p.yaml\n")
    assert user_config().model == str(Path("/home/me/m.gguf"))
    assert user_config().preset == str(user_folder / "own/p.yaml")


BAD_CONFIGS = {
    "unknown": ("modle: x", "unknown key 'modle'; did you mean model?"),
    "number": ("model: 3", "model: 3 is not a path or a model's name"),
    "empty_text": ("preset: ''", "preset: '' is not a name or a path"),
    "list": ("[a]", "the file holds a list; it must hold keys and values, as in key: value"),
    "syntax": (
        "model: [",
        "line 1, column 9: while parsing a flow node, expected the node content, but found '<stream end>'",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_user_config_refused(user_folder: Path, text: str, message: str) -> None:
    path = write(user_folder / "config.yaml", text)
    with pytest.raises(PresetError) as caught:
        user_config()
    assert str(caught.value) == f"{path}: {message}"


def test_a_configuration_that_cannot_be_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is too long fails as a folder without permission does, for root as well."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/" + "a" * 300)
    with pytest.raises(PresetError, match=r"config\.yaml: the file cannot be read \(File name too long\)$"):
        user_config()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_configuration_folder_without_permission_is_refused(user_folder: Path) -> None:
    write(user_folder / "config.yaml", "model: a\n")
    user_folder.chmod(0)
    try:
        with pytest.raises(PresetError, match=r"config\.yaml: the file may not be read \(permission denied\)$"):
            user_config()
    finally:
        user_folder.chmod(0o700)


def test_a_ring_of_links_is_refused(project: Path) -> None:
    (project / "presets").symlink_to(project / "presets")
    with pytest.raises(PresetError, match=r"^presets: the folder cannot be read "):
        list_presets()
