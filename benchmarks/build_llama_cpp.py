"""Build llama.cpp's programs, which are compared with `gen`, from the source that llama-cpp-python was built from.

python -m benchmarks.build_llama_cpp [--jobs N] [--software-gpu]

The source distribution of the installed llama-cpp-python is downloaded, and its llama-completion, llama-server,
llama-perplexity and llama-quantize are compiled for this processor. In the virtual environment, the programs are
written to llama.cpp/bin, llama.cpp's example grammars to llama.cpp/grammars, and its chat templates to
llama.cpp/templates.

With --software-gpu, llama-completion, llama-server and the libraries are compiled with Vulkan instead, and Mesa's
lavapipe computes Vulkan's shaders on the CPU: a slow GPU for tests, with all that is different on a GPU. In the
virtual environment, the programs are written to software-gpu/bin, and to software-gpu/python a binding that loads
these libraries where the folder is on PYTHONPATH. lavapipe says that it is a CPU, and llama.cpp passes over such
devices unless GGML_VK_VISIBLE_DEVICES names them. On Debian: apt-get install cmake g++ ninja-build glslc
mesa-vulkan-drivers libvulkan-dev spirv-headers. It takes about 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import distribution, version
from pathlib import Path

FOLDER = Path(sys.prefix) / "llama.cpp"
SOFTWARE_GPU_FOLDER = Path(sys.prefix) / "software-gpu"
PROGRAMS = ("llama-completion", "llama-server", "llama-perplexity", "llama-quantize")
GPU_PROGRAMS = ("llama-completion", "llama-server")
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=ON",
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
    """Build the programs."""
    parser = argparse.ArgumentParser(description="build llama.cpp's programs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--software-gpu", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = _download(Path(folder))
        if options.software_gpu:
            _build_for_software_gpu(source, options.jobs)
        else:
            _build_for_cpu(source, options.jobs)


def _build_for_cpu(source: Path, jobs: int) -> None:
    _copy(_compile(source, PROGRAMS, jobs), FOLDER / "bin")
    _copy(source / "grammars", FOLDER / "grammars")
    _copy(source / "models" / "templates", FOLDER / "templates")
    for name in PROGRAMS:
        print(FOLDER / "bin" / name)


def _build_for_software_gpu(source: Path, jobs: int) -> None:
    if not _knows_layer_settings():
        _leave_out_layer_settings(source / "ggml" / "src" / "ggml-vulkan" / "ggml-vulkan.cpp")
    _copy(_compile(source, GPU_PROGRAMS, jobs, "-DGGML_VULKAN=ON"), SOFTWARE_GPU_FOLDER / "bin")
    installed = Path(distribution("llama-cpp-python").locate_file("llama_cpp"))
    binding = SOFTWARE_GPU_FOLDER / "python" / "llama_cpp"
    shutil.rmtree(binding, ignore_errors=True)
    shutil.copytree(installed, binding, ignore=shutil.ignore_patterns("lib", "__pycache__"))
    (binding / "lib").mkdir()
    for library in (SOFTWARE_GPU_FOLDER / "bin").glob("lib*.so*"):
        (binding / "lib" / library.name).symlink_to(library)
    print(f"{SOFTWARE_GPU_FOLDER}: GGML_VK_VISIBLE_DEVICES=0 PYTHONPATH={binding.parent} gen …")


def _compile(source: Path, programs: Sequence[str], jobs: int, *options: str) -> Path:
    """Compile programs with their libraries, and return the folder in which they are."""
    build = source.parent / "build"
    subprocess.run(["cmake", "-S", source, "-B", build, *_OPTIONS, *options], check=True)
    subprocess.run(["cmake", "--build", build, "-j", str(jobs), "--target", *programs], check=True)
    return build / "bin"


_VULKAN_HEADER = Path("/usr/include/vulkan/vulkan_core.h")
_LAYER_SETTINGS = re.compile(
    r"^ *std::vector<vk::LayerSettingEXT> settings = \{.*?\n"
    r"(?P<indent> *)vk::InstanceCreateInfo instance_create_info\([^\n]*\n",
    re.DOTALL | re.MULTILINE,
)


def _knows_layer_settings() -> bool:
    """Return whether Vulkan's headers have the settings of layers, which came in 2023."""
    return "VK_EXT_layer_settings" in _VULKAN_HEADER.read_text()


def _leave_out_layer_settings(file: Path) -> None:
    """Leave out the settings of Vulkan's validation layers, which find faults in llama.cpp's own shaders only."""
    text, count = _LAYER_SETTINGS.subn(
        r"\g<indent>(void) enable_best_practice;\n"
        r"\g<indent>vk::InstanceCreateInfo instance_create_info({}, &app_info, layers, extensions);\n",
        file.read_text(),
    )
    if count != 1:
        raise SystemExit(f"{file.name} has no settings of layers where they are expected")
    file.write_text(text)


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
