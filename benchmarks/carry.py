"""Collect what a machine without a network needs to build llama.cpp, and to run `gen` and `benchmarks.gpu`.

python -m benchmarks.carry FOLDER [--python 3.12]

FOLDER gets the source of llama.cpp, without what its build does not read, and wheels for this version of Python on
Linux (x86_64).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from importlib.metadata import requires
from pathlib import Path

from .build_llama_cpp import download_source

_PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
_EXTRAS = ("serve", "basis")
_NOT_READ = ("/.git/", "/docs/", "/benches/", "/media/", "/models/ggml-vocab-")
_VOCABULARY = "/models/ggml-vocab-qwen2.gguf"
_NEWEST_GLIBC = 39


def main() -> None:
    """Download everything."""
    parser = argparse.ArgumentParser(description="collect what a machine without a network needs")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        archive = download_source(Path(name))
        _copy_what_is_read(archive, options.folder / archive.name)
    _download_wheels(options.folder, options.python)


def _copy_what_is_read(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as source, tarfile.open(target, "w:gz") as copy:
        for member in source:
            if member.name.endswith(_VOCABULARY) or not any(part in member.name for part in _NOT_READ):
                copy.addfile(member, source.extractfile(member) if member.isreg() else None)


def _download_wheels(folder: Path, python: str) -> None:
    project = tomllib.loads(_PROJECT.read_text())["project"]
    extras = (text for extra in _EXTRAS for text in project["optional-dependencies"][extra])
    own = [text for text in (*project["dependencies"], *extras) if not text.startswith("llama-cpp-python")]
    of_binding = [text for text in requires("llama-cpp-python") or () if "extra ==" not in text]
    # pip takes a wheel only for the platforms that are named, not for older ones.
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(5, _NEWEST_GLIBC + 1)]
    options = [f"--platform={platform}" for platform in (*platforms, "manylinux2014_x86_64")]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--only-binary=:all:",
        f"--python-version={python}",
        *options,
    ]
    subprocess.run([*command, "--dest", str(folder), *own, *of_binding], check=True)


if __name__ == "__main__":
    main()
