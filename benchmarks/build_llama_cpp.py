"""Build llama.cpp's programs, which are compared with `gen`, from the source that llama-cpp-python was built from.

python -m benchmarks.build_llama_cpp [--jobs N] [--source FILE] [--gpu | --software-gpu] [-DNAME=VALUE …]

The source distribution of the installed llama-cpp-python is downloaded, unless --source names the file, and its
llama-completion, llama-server, llama-perplexity and llama-quantize are compiled for this processor. In the virtual
environment, llama.cpp/ gets the programs (bin), llama.cpp's example grammars, chat templates and a vocabulary, and
a binding that loads these libraries where its folder (python) is on PYTHONPATH.

With --gpu, llama-completion, llama-server and the libraries are compiled for a GPU, with CMake's options for it,
such as -DGGML_CUDA=ON; gpu/ in the virtual environment gets them.

With --software-gpu, they are compiled with Vulkan, and Mesa's lavapipe computes Vulkan's shaders on the CPU: a
slow GPU for tests, with all that is different on a GPU. software-gpu/ gets them. lavapipe says that it is a CPU,
and llama.cpp passes over such devices unless GGML_VK_VISIBLE_DEVICES names them. On Debian: apt-get install cmake
g++ ninja-build glslc mesa-vulkan-drivers libvulkan-dev spirv-headers. It takes about 20 minutes on two cores.
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
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(sys.prefix) / "llama.cpp"
GPU_FOLDER = Path(sys.prefix) / "gpu"
SOFTWARE_GPU_FOLDER = Path(sys.prefix) / "software-gpu"
PROGRAMS = ("llama-completion", "llama-server", "llama-perplexity", "llama-quantize")
GPU_PROGRAMS = ("llama-completion", "llama-server")
_VOCABULARY = "ggml-vocab-qwen2.gguf"
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
    parser = argparse.ArgumentParser(description="build llama.cpp's programs", allow_abbrev=False)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--source", type=Path)
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--gpu", action="store_true")
    target.add_argument("--software-gpu", action="store_true")
    options, cmake_options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = _unpack(options.source or download_source(folder), folder)
        if options.software_gpu:
            if not _knows_layer_settings():
                _leave_out_layer_settings(source / "ggml" / "src" / "ggml-vulkan" / "ggml-vulkan.cpp")
            cmake_options.append("-DGGML_VULKAN=ON")
        is_for_gpu = options.gpu or options.software_gpu
        programs = GPU_PROGRAMS if is_for_gpu else PROGRAMS
        built = _compile(source, programs, options.jobs, cmake_options)
        target_folder = SOFTWARE_GPU_FOLDER if options.software_gpu else GPU_FOLDER if options.gpu else FOLDER
        _install(source, built, target_folder)
    print(f"{target_folder}: PYTHONPATH={target_folder / 'python'} gen …")


def _compile(source: Path, programs: Sequence[str], jobs: int, options: Sequence[str]) -> Path:
    """Compile programs with their libraries, and return the folder in which they are."""
    build = source.parent / "build"
    subprocess.run(["cmake", "-S", source, "-B", build, *_OPTIONS, *options], check=True)
    subprocess.run(["cmake", "--build", build, "-j", str(jobs), "--target", *programs], check=True)
    return build / "bin"


def _install(source: Path, built: Path, folder: Path) -> None:
    """Write programs, a binding that loads their libraries, and llama.cpp's examples into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, folder / "bin", symlinks=True)
    shutil.copytree(source / "grammars", folder / "grammars")
    shutil.copytree(source / "models" / "templates", folder / "templates")
    shutil.copy(source / "models" / _VOCABULARY, folder)
    distribution = source.parents[1]
    binding = folder / "python" / "llama_cpp"
    shutil.copytree(distribution / "llama_cpp", binding)
    (binding / "lib").mkdir()
    for library in built.glob("lib*.so*"):
        (binding / "lib" / library.name).symlink_to(Path("..", "..", "..", "bin", library.name))
    metadata = binding.with_name(distribution.name + ".dist-info")  # where no other binding is installed
    metadata.mkdir()
    shutil.copy(distribution / "PKG-INFO", metadata / "METADATA")


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
    return _built(_folder() / "bin" / name)


def example_grammar(name: str) -> Path:
    """Return the path of one of llama.cpp's example grammars. Ends the process if it does not exist."""
    return _built(_folder() / "grammars" / f"{name}.gbnf")


def large_vocabulary() -> Path:
    """Return the path of a model of 151,936 tokens without weights. Ends the process if it does not exist."""
    return _built(_folder() / _VOCABULARY)


def _folder() -> Path:
    """Return the folder whose binding is on PYTHONPATH, so that `gen` has the same libraries; or the usual one."""
    binding = find_spec("llama_cpp")
    assert binding is not None
    assert binding.origin is not None
    loaded = Path(binding.origin).parents[2]
    return loaded if loaded in (GPU_FOLDER, SOFTWARE_GPU_FOLDER) else FOLDER


def _built(path: Path) -> Path:
    if not path.is_file():
        raise SystemExit(f"{path.name} is the peer's, and is not here: python -m benchmarks.build_llama_cpp")
    return path


def download_source(folder: Path) -> Path:
    """Download the source distribution of the installed llama-cpp-python, and return its path."""
    name = f"llama-cpp-python=={version('llama-cpp-python')}"
    options = ("--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "download", *options, name], check=True)
    (archive,) = folder.glob("llama_cpp_python-*.tar.gz")
    return archive


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source distribution, and return the folder of llama.cpp in it."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))


if __name__ == "__main__":
    main()
