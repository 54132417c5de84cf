"""Install logitsmith into the environment of the Python that runs this script.

Of llama.cpp, only the parts that gen loads are compiled. The first argument names the extras; with ``--lowest``,
each dependency is installed in the lowest version that pyproject.toml allows:

    python tools/install.py model,test
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES_ONLY = ROOT / "tools" / "libraries_only.cmake"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

# Causes of a failed compile, and the patterns that show them in a log. The first match counts: a compiler that is
# killed while CMake tests it also looks like a missing compiler.
CAUSES = {
    "Memory ran out, and the compiler was killed. Compile one file at a time:\n"
    "  CMAKE_BUILD_PARALLEL_LEVEL=1 make demo": (
        r"Killed signal terminated program",
        r"unable to execute command: Killed",
        r"^\s*Killed$",
        r"\bcode[:=] ?(-9|137)\b",
        r"virtual memory exhausted",
        r"out of memory allocating",
        r"std::bad_alloc",
    ),
    "The disk is full. Another folder for the compile: TMPDIR=/path make demo": (r"No space left on device",),
    "CMAKE_ARGS asks for CUDA, but its toolkit (nvcc) was not found.": (
        r"CUDA Toolkit not found",
        r"No CMAKE_CUDA_COMPILER could be found",
        r"CMAKE_CUDA_COMPILER not set",
    ),
    "CMAKE_ARGS asks for Vulkan, but its SDK (headers, glslc) was not found.": (
        r"Could NOT find Vulkan",
        r'package configuration file provided by\s+"SPIRV-Headers"',
    ),
    "No working C and C++ compiler was found. Install one:\n"
    "  Debian, Ubuntu  sudo apt install build-essential\n"
    "  Fedora          sudo dnf install gcc gcc-c++\n"
    "  macOS           xcode-select --install\n"
    "One in another place: CC=/path/cc CXX=/path/c++ make demo": (
        r"No CMAKE_C(XX)?_COMPILER could be found",
        r"CMAKE_C(XX)?_COMPILER not set",
        r"is not a full path to an existing compiler tool",
        r"is not able to compile a simple test program",
    ),
    "CMake 3.21 or newer is missing, and pip could not bring it. Install your system's package cmake.": (
        r"Could not find CMake",
        r"CMake version undetermined",
        r"No matching distribution found for cmake",
    ),
    "pip could not download what the compile needs. Is there a network?": (
        r"No matching distribution found for",
        r"Failed to establish a new connection",
    ),
}


NO_PIP = """\
{prefix} has no pip, which this installation needs (uv creates environments without pip). Add pip:
  uv pip install --python {python} pip
or create the environment with pip from the start:
  uv venv --seed {prefix}
or install with uv alone, which compiles more of llama.cpp:
  uv pip install --python {python} --editable '{root}[{extras}]'"""


def requirement(project: dict[str, Any]) -> str:
    """Return the requirement of llama-cpp-python from the table ``project`` of pyproject.toml."""
    for text in project["dependencies"]:
        if text.startswith("llama-cpp-python"):
            return str(text)
    raise ValueError("pyproject.toml does not name llama-cpp-python")


def lowest_versions(project: dict[str, Any]) -> list[str]:
    """Return pip's constraints for the lowest version of each dependency that ``gen`` imports."""
    extras = [project["optional-dependencies"][name] for name in ("model", "basis", "hub", "ray")]
    texts = [text for group in (project["dependencies"], *extras) for text in group]
    return [re.sub(r"^([\w-]+)>=([\w.]+).*", r"\1==\2", text) for text in texts]


def cmake_args(user_args: str) -> str:
    """Return this script's arguments of CMake, then the user's: CMake uses the last value of a name."""
    ours = ("-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={LIBRARIES_ONLY}")
    return f"{shlex.join(ours)} {user_args}".strip()


def cache_options(user_args: str) -> list[str]:
    """Return pip's options that offer compiled wheels of llama-cpp-python; none if pip's cache is off.

    pip's cache does not distinguish how a wheel was compiled. So each value of CMAKE_ARGS gets a separate cache,
    and other projects never get a wheel without the libraries that they load. Without CMAKE_ARGS, the wheels of
    other projects are used. pip looks for wheels of its own version of Python, although one wheel works with every
    Python, so all wheels are offered.
    """
    cache = ask_pip("cache", "dir")
    if not cache:
        return []
    option = f"--cache-dir={cache}/logitsmith/{hashlib.sha256(user_args.encode()).hexdigest()[:16]}"
    caches = [(option,)] if user_args else [(option,), ()]
    lists = [ask_pip(*options, "cache", "list", "llama_cpp_python", "--format=abspath") for options in caches]
    wheels = [line for text in lists for line in text.splitlines()]
    return [option, *(f"--find-links={Path(wheel).parent}" for wheel in wheels)]


def ask_pip(*arguments: str) -> str:
    """Return what pip prints; an empty string if it fails."""
    done = subprocess.run([*PIP, *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


def diagnose(log: str) -> str:
    """Return a few lines on why a compile failed: a known cause, the first error, or the end of the log."""
    for cause, patterns in CAUSES.items():
        if any(re.search(pattern, log, re.MULTILINE) for pattern in patterns):
            return cause
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = (i for i, line in enumerate(lines) if re.search(r"\berror:|CMake Error", line, re.IGNORECASE))
    return "\n".join(f"  {line[:200]}" for line in lines[next(errors, -8) :][:8])


def install_llama_cpp(requirement_text: str, log: Path) -> int:
    """Install llama-cpp-python; print a line if it is compiled. pip writes to ``log``. Return pip's exit code."""
    user_args = os.environ.get("CMAKE_ARGS", "").strip()
    options = ["--verbose", "--no-deps", "--prefer-binary", *cache_options(user_args)]
    with (
        log.open("w") as log_file,
        subprocess.Popen(
            [*PIP, "install", *options, requirement_text],
            env={**os.environ, "CMAKE_ARGS": cmake_args(user_args)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        is_announced = False
        for line in process.stdout or ():
            log_file.write(line)
            if not is_announced and line.strip().startswith("Building wheel for llama-cpp-python"):
                is_announced = True
                print("Compiling llama.cpp, which takes about three minutes.", flush=True)
        code = process.wait()
        log_file.write(f"exit code: {code}\n")
    return code


def main(extras: str, *, use_lowest: bool = False) -> int:
    """Install llama-cpp-python, unless a suitable one is installed, and then everything else. Return the exit
    code.

    Args:
        extras: names of the extras, separated by commas.
        use_lowest: whether each dependency is installed in the lowest version that pyproject.toml allows.
    """
    if find_spec("pip") is None:
        place = {"prefix": sys.prefix, "python": sys.executable, "root": ROOT, "extras": extras}
        print(NO_PIP.format(**place), file=sys.stderr)
        return 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    log = Path(sys.prefix, "llama-cpp-python.log")
    if install_llama_cpp(requirement(project), log):
        cause = diagnose(log.read_text(errors="replace"))
        print(f"llama-cpp-python could not be installed.\n{cause}\nThe whole log: {log}", file=sys.stderr)
        return 1
    command = [*PIP, "install", "--quiet", "--editable", f".[{extras}]"]
    if use_lowest:
        constraints = Path(sys.prefix, "lowest-versions.txt")
        constraints.write_text("".join(f"{line}\n" for line in lowest_versions(project)))
        command += ["--constraint", str(constraints)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], use_lowest="--lowest" in sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
