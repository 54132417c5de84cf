"""How `make` installs: CMAKE_ARGS, caches, and what it says when a compile fails. Nothing is compiled here."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def install():
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pip(install, monkeypatch):
    """Answers for pip: a table of its arguments, joined, to what it prints."""
    answers = {}
    monkeypatch.setattr(install, "ask_pip", lambda *arguments: answers.get(" ".join(arguments), ""))
    return answers


OURS = ["-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={ROOT}/tools/libraries_only.cmake"]


@pytest.mark.parametrize(
    ("own", "split"),
    [
        pytest.param("", [], id="none"),
        pytest.param("-DGGML_CUDA=on", ["-DGGML_CUDA=on"], id="cuda"),
        pytest.param("-DGGML_VULKAN=on  -G Ninja", ["-DGGML_VULKAN=on", "-G", "Ninja"], id="several"),
        pytest.param('-DCMAKE_C_FLAGS="-O2 -g"', ["-DCMAKE_C_FLAGS=-O2 -g"], id="quoted"),
        pytest.param("-DLLAVA_BUILD=ON", ["-DLLAVA_BUILD=ON"], id="the user's comes last, and counts"),
    ],
)
def test_the_users_cmake_args_stand_behind_ours(install, own, split):
    assert shlex.split(install.cmake_args(own)) == [*OURS, *split]


def test_a_path_with_blanks_is_one_argument(install, monkeypatch):
    monkeypatch.setattr(install, "LIBRARIES_ONLY", Path("/my models/it's.cmake"))
    assert shlex.split(install.cmake_args(""))[1:] == ["-DCMAKE_PROJECT_llama.cpp_INCLUDE=/my models/it's.cmake"]


def test_the_cmake_file_switches_the_common_library_off(install):
    assert "\nset(LLAMA_BUILD_COMMON OFF)\n" in install.LIBRARIES_ONLY.read_text()


def test_the_range_is_that_of_pyproject(install):
    found = install.requirement((ROOT / "pyproject.toml").read_text())
    assert re.fullmatch(r"llama-cpp-python>=[\d.]+,<[\d.]+", found)


def test_a_pyproject_without_llama_cpp_python_is_refused(install):
    with pytest.raises(ValueError, match="does not name llama-cpp-python"):
        install.requirement('dependencies = ["numpy>=2"]')


def test_each_cmake_args_has_a_cache(install, pip):
    pip["cache dir"] = "/a cache/pip"
    options = [install.cache_options(own) for own in ("", "-DGGML_CUDA=on", "-DGGML_VULKAN=on")]
    assert len({option for (option,) in options}) == 3
    assert all(option.startswith("--cache-dir=/a cache/pip/logitsmith/") for (option,) in options)


@pytest.mark.parametrize(
    ("own", "links"),
    [
        pytest.param("", ["--find-links=/pip/wheels/a", "--find-links=/pip/wheels/b"], id="used as they are"),
        pytest.param("-DGGML_CUDA=on", [], id="not if another compile is asked for"),
    ],
)
def test_wheels_in_pips_cache(install, pip, own, links):
    pip["cache dir"] = "/pip"
    pip["cache list llama_cpp_python --format=abspath"] = "/pip/wheels/a/l-1.whl\n/pip/wheels/b/l-2.whl"
    assert install.cache_options(own)[1:] == links


def test_no_cache_where_pip_has_none(install, monkeypatch):
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    assert install.cache_options("") == []


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        pytest.param(
            "  g++: fatal error: Killed signal terminated program cc1plus",
            "CMAKE_BUILD_PARALLEL_LEVEL=1",
            id="gcc killed",
        ),
        pytest.param(
            "clang++: error: unable to execute command: Killed", "CMAKE_BUILD_PARALLEL_LEVEL=1", id="clang killed"
        ),
        pytest.param(
            "  FAILED: [code=137] llama.cpp.o", "CMAKE_BUILD_PARALLEL_LEVEL=1", id="ninja sees it killed"
        ),
        pytest.param("exit code: -9", "CMAKE_BUILD_PARALLEL_LEVEL=1", id="pip killed"),
        pytest.param(
            "  cc1plus: out of memory allocating 65536 bytes", "CMAKE_BUILD_PARALLEL_LEVEL=1", id="refused memory"
        ),
        pytest.param(
            "The C compiler is not able to compile a simple test program.\nKilled signal terminated program cc1",
            "CMAKE_BUILD_PARALLEL_LEVEL=1",
            id="killed while CMake tries it",
        ),
        pytest.param("write: No space left on device", "TMPDIR=", id="disk full"),
        pytest.param("CMake Error: CUDA Toolkit not found", "nvcc", id="no CUDA"),
        pytest.param("Could NOT find Vulkan (missing: glslc)", "glslc", id="no Vulkan"),
        pytest.param("No CMAKE_C_COMPILER could be found.", "build-essential", id="no C compiler"),
        pytest.param("No CMAKE_CXX_COMPILER could be found.", "build-essential", id="no C++ compiler"),
        pytest.param(
            "CMake Error: CMAKE_CXX_COMPILER not set, after", "build-essential", id="CC and CXX are not there"
        ),
        pytest.param("is not a full path to an existing compiler tool.", "CXX=", id="CXX names none"),
        pytest.param("Could not find CMake with version >=3.21", "CMake 3.21", id="no CMake"),
        pytest.param(
            "ERROR: No matching distribution found for cmake>=3.21", "CMake 3.21", id="no CMake to download"
        ),
        pytest.param("ERROR: No matching distribution found for llama-cpp-python", "network", id="no network"),
    ],
)
def test_a_failed_compile_says_what_is_missing(install, log, cause):
    said = install.diagnose(f"Building wheel\n{log}\nERROR: Failed building wheel for llama-cpp-python")
    assert cause in said
    assert len(said.splitlines()) <= 5


@pytest.mark.parametrize(
    ("log", "said"),
    [
        pytest.param("one\n\na.cpp:1: error: x\nlast\n", "  a.cpp:1: error: x\n  last", id="from the first error"),
        pytest.param("\n".join("abcdefghij"), "\n".join(f"  {c}" for c in "cdefghij"), id="else the end"),
        pytest.param(f"error: {'x' * 900}", f"  error: {'x' * 193}", id="long lines are cut"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_cause_that_is_not_known_shows_the_log(install, log, said):
    assert install.diagnose(log) == said


def test_a_compile_without_trouble_gives_no_cause(install):
    # Lines of llama.cpp's own output that come near to one of the signs.
    log = "[1/9] g++ alloc.c\nwarning: failed to allocate, out of memory\n-- Could NOT find NCCL\nexit code: 1"
    assert not any(re.search(sign, log, re.MULTILINE) for signs in install.CAUSES.values() for sign in signs)


@pytest.mark.parametrize("code", [0, 1])
def test_it_stops_where_llama_cpp_python_fails(install, pip, monkeypatch, tmp_path, capsys, code):
    ran = []

    def run(command, *, stdout=None, env=None, **_):
        ran.append(command[4:])
        if stdout is not None:
            assert shlex.split(env["CMAKE_ARGS"]) == [*OURS, "-DGGML_CUDA=on"]
            stdout.write("x.cpp: error: no such thing\n")
            stdout.flush()
        return type("Done", (), {"returncode": code})

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(install.sys, "prefix", str(tmp_path))
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert install.main("model,test") == code
    assert ran[0][-1].startswith("llama-cpp-python>=")
    assert ran[1:] == ([] if code else [["install", "--quiet", "--editable", ".[model,test]"]])
    told = capsys.readouterr().err
    assert ("x.cpp: error: no such thing" in told) is bool(code)
    assert (f"{tmp_path}/llama-cpp-python.log" in told) is bool(code)
