"""Install logitsmith into the environment of the Python that runs this.

It compiles only the parts of llama.cpp that gen loads. The argument names the extras:

    python tools/install.py model,test
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES_ONLY = ROOT / "tools" / "libraries_only.cmake"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

# What is missing, and the patterns by which a log shows it. The first match counts: a compiler that is killed
# while CMake tries it also looks like a missing compiler.
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


def requirement(pyproject: str) -> str:
    """Return the requirement of llama-cpp-python, as pyproject.toml writes it."""
    match = re.search(r'"(llama-cpp-python\b[^"]*)"', pyproject)
    if match is None:
        raise ValueError("pyproject.toml does not name llama-cpp-python")
    return match[1]


def cmake_args(user_args: str) -> str:
    """Return our arguments, then the user's: of two values for one name, CMake takes the last."""
    ours = ("-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={LIBRARIES_ONLY}")
    return f"{shlex.join(ours)} {user_args}".strip()


def cache_options(user_args: str) -> list[str]:
    """Return pip's options for where a compiled llama-cpp-python may be found; none if pip's cache is off.

    pip's cache does not tell apart how a wheel was compiled. So each value of CMAKE_ARGS gets a cache of its own:
    other projects never get a wheel that lacks what they load. A wheel of theirs is used if there are no
    CMAKE_ARGS.
    """
    cache = ask_pip("cache", "dir")
    if not cache:
        return []
    options = [f"--cache-dir={cache}/logitsmith/{hashlib.sha256(user_args.encode()).hexdigest()[:16]}"]
    if not user_args:
        wheels = ask_pip("cache", "list", "llama_cpp_python", "--format=abspath").splitlines()
        options += [f"--find-links={Path(wheel).parent}" for wheel in wheels]
    return options


def ask_pip(*arguments: str) -> str:
    """Return what pip prints; an empty text if it fails."""
    done = subprocess.run([*PIP, *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


def diagnose(log: str) -> str:
    """Say in a few lines what a failed compile lacks: a known cause, else the first error, else the log's end."""
    for cause, patterns in CAUSES.items():
        if any(re.search(pattern, log, re.MULTILINE) for pattern in patterns):
            return cause
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = (i for i, line in enumerate(lines) if re.search(r"\berror:|CMake Error", line, re.IGNORECASE))
    return "\n".join(f"  {line[:200]}" for line in lines[next(errors, -8) :][:8])


def main(extras: str) -> int:
    """Install llama-cpp-python, unless a suitable one is there, then the rest. Returns the exit code."""
    user_args = os.environ.get("CMAKE_ARGS", "").strip()
    requirement_text = requirement((ROOT / "pyproject.toml").read_text())
    log = Path(sys.prefix, "llama-cpp-python.log")
    with log.open("w") as log_file:
        code = subprocess.run(
            [
                *PIP,
                "install",
                "--verbose",
                "--no-deps",
                "--prefer-binary",
                *cache_options(user_args),
                requirement_text,
            ],
            env={**os.environ, "CMAKE_ARGS": cmake_args(user_args)},
            stdout=log_file,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        print(f"exit code: {code}", file=log_file)
    if code:
        cause = diagnose(log.read_text(errors="replace"))
        print(f"llama-cpp-python could not be installed.\n{cause}\nThe whole log: {log}", file=sys.stderr)
        return 1
    command = [*PIP, "install", "--quiet", "--editable", f".[{extras}]"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
