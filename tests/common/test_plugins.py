"""How plug-ins are found, and what is said of those that cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from logitsmith.common.errors import PluginError
from logitsmith.common.plugins import Plugin, find_plugins

GROUP = "logitsmith.nobody"


def add_package(folder: Path, name: str, *lines: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))


def test_the_plugins_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_plugins(GROUP) == {}
    add_package(tmp_path, "one", "A = os.path:join", "both = os:sep")
    add_package(tmp_path, "two", "both = os:curdir")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_plugins(GROUP, str.lower)
    assert found["a"] == Plugin("a", ("os.path:join",), ("one",))
    assert found["a"].load() is __import__("os").path.join
    assert sorted(found["both"].packages) == ["one", "two"]
    with pytest.raises(PluginError, match=r"^the plug-ins os:\w+ and os:\w+ both offer 'both'$"):
        found["both"].load()


def test_a_package_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        archive.writestr("three-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: three\nVersion: 1.0\n")
        archive.writestr("three-1.0.dist-info/entry_points.txt", f"[{GROUP}]\nc = os:sep\n")
    monkeypatch.syspath_prepend(tmp_path / "packages.zip")
    assert find_plugins(GROUP)["c"].packages == ("three",)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("no_such_module:x", "No module named 'no_such_module'"),
        ("os:no_such_name", "module 'os' has no attribute 'no_such_name'"),
    ],
)
def test_one_that_cannot_be_loaded_is_named(place: str, reason: str) -> None:
    with pytest.raises(PluginError) as caught:
        Plugin("it", (place,), ("package",)).load()
    assert str(caught.value) == f"the plug-in 'it' of package ({place}) failed to load: {reason}"


def test_a_start_without_plugins_reads_no_metadata_of_packages() -> None:
    call = "from logitsmith.cli import main\ntry: main()\nfinally:"
    script = f"import sys\n{call} print('importlib.metadata' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.endswith("False\n")
