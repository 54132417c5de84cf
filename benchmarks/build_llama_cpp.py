"""Build llama.cpp's programs, which are compared with `gen`, from the source that llama-cpp-python was built from.

python -m benchmarks.build_llama_cpp [--jobs N]

The source distribution of the installed llama-cpp-python is downloaded, and its llama-completion, llama-server,
llama-perplexity and llama-quantize are compiled for this processor. In the virtual environment, the programs are
written to llama.cpp/bin, llama.cpp's example grammars to llama.cpp/grammars, and its chat templates to
llama.cpp/templates.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(sys.prefix) / "llama.cpp"
PROGRAMS = ("llama-completion", "llama-server", "llama-perplexity", "llama-quantize")
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_CURL=OFF",
)


def main() -> None:
    """Build the programs that do not exist yet."""
    parser = argparse.ArgumentParser(description="build llama.cpp's programs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = _download(Path(folder))
        build = Path(folder, "build")
        subprocess.run(
            ["cmake", "-S", source, "-B", build, f"-DCMAKE_INSTALL_PREFIX={FOLDER}", *_OPTIONS], check=True
        )
        jobs = ("-j", str(options.jobs))
        subprocess.run(["cmake", "--build", build, *jobs, "--target", *PROGRAMS], check=True)
        _copy(build / "bin", FOLDER / "bin")
        _copy(source / "grammars", FOLDER / "grammars")
        _copy(source / "models" / "templates", FOLDER / "templates")
    for name in PROGRAMS:
        print(FOLDER / "bin" / name)


def program(name: str) -> Path:
    """Return the path of a program. Ends the process with a message if it was not built."""
    return _built(FOLDER / "bin" / name)


def example_grammar(name: str) -> Path:
    """Return the path of one of llama.cpp's example grammars. Ends the process if it does not exist."""
    return _built(FOLDER / "grammars" / f"{name}.gbnf")


def _built(path: Path) -> Path:
    if not path.is_file():
        raise SystemExit(f"{path.name} is the peer's, and is not here: python -m benchmarks.build_llama_cpp")
    return path


def _download(folder: Path) -> Path:
    """Download the source distribution, and return the folder of llama.cpp in it."""
    name = f"llama-cpp-python=={version('llama-cpp-python')}"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
        name,
    )
    subprocess.run(pip, check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))


def _copy(source: Path, target: Path) -> None:
    """Copy the content of a folder; links stay links."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


if __name__ == "__main__":
    main()
