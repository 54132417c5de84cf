"""`gen doctor`: check the installation, and report it as a page of text or as JSON.

A part that cannot be read or loaded becomes a problem in the report, with advice; the other parts are still shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...common.errors import LogitsmithError
from ...common.machine import describe_machine, physical_cores
from ...requests.sources import check_grammar, grammar_folders, open_preset
from ..command_options import takes_options
from ..flags import Options, flag
from ..messages import FAILED
from ..startup import start_collector
from ..text import terminal_safe

if TYPE_CHECKING:
    from ...grammars.search import GrammarEntry
    from ...presets.search import PresetEntry
    from ...presets.user_config import UserConfig


class DoctorFormat(StrEnum):
    """A format of the report."""

    text = "text"
    json = "json"


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Options):
    """The options of `gen doctor`."""

    paths: bool = flag("--paths", help="Show full paths. [your home folder is shown as ~]", default=False)
    format: DoctorFormat = flag(
        "--format", help="Format of the page; json = one object. [text]", default=DoctorFormat.text
    )


@takes_options(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Check the installation, and print a page for a bug report.

    No model is loaded. Exit code 1: there is a problem, and the page says what to do.
    """
    start_collector()
    report = _make_report()
    if not options.paths:
        report = _shorten_home(report)
    if options.format is DoctorFormat.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(_report_page(report))
    if report["problems"]:
        raise typer.Exit(FAILED)


def _make_report() -> dict[str, Any]:
    """Return the report: versions, the machine, folders, presets, grammars, plug-ins, models, and problems."""
    # No model is loaded. Each problem has an advice.
    from ...grammars.search import list_grammars
    from ...presets.search import config_folder, list_presets
    from ...presets.user_config import UserConfig, user_config

    problems = _ProblemCollector()
    folder = config_folder()
    config: UserConfig = problems.run_check(f"correct {folder / 'config.yaml'}", user_config) or UserConfig()
    presets = problems.run_check("let the folder be read", list_presets) or []
    grammars = problems.run_check("let the folder be read", lambda: list_grammars(grammar_folders())) or []
    return {
        "versions": _versions(problems),
        "llama_cpp": _llama_cpp(problems),
        "machine": describe_machine(),
        "environment": _environment(os.environ),
        "folders": [*_searched_folders(folder), *_model_folders(config)],
        "presets": [_preset_row(problems, entry) for entry in presets],
        "default_preset": _default_preset(problems, config),
        "grammars": [_grammar_row(problems, entry) for entry in grammars],
        "plugins": _plugins(problems),
        "models": _list_found_models(problems, config),
        "model": _find_default_model(problems, config),
        "problems": problems.found,
    }


_PACKAGES = (
    "logitsmith",
    "llama-cpp-python",
    "numpy",
    "llguidance",
    "pydantic",
    "pyyaml",
    "typer",
    "rich",
    "httpx",
    "array-api-compat",
)
_EXTRAS = ("huggingface-hub",)  # optional packages, which only downloads need


def _versions(problems: _ProblemCollector) -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": sys.version.split()[0]}
    for package in (*_PACKAGES, *_EXTRAS):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
            if package not in _EXTRAS:
                problems.report(f"the package {package} is not installed", f"pip install {package}")
    return versions


def _llama_cpp(problems: _ProblemCollector) -> dict[str, Any] | None:
    try:
        from ...engine.model import Model  # noqa: F401 - imports all modules that runs use
        from ...engine.native.devices import llama_cpp_build
    except LogitsmithError as error:  # the error has an advice
        problems.report(error.statement, "".join(error.advice))
        return None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        advice = "reinstall it: pip install --force-reinstall --no-cache-dir llama-cpp-python"
        problems.report(f"llama-cpp-python cannot be loaded: {error}", advice)
        return None
    build = asdict(llama_cpp_build())
    lists = {name: list(build[name]) for name in ("devices", "gpus", "gpu_backends")}
    return {**build, **lists, "default_threads": physical_cores()}


_USED_VARIABLES = (
    *("GEN_MODEL", "LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT"),
    *("HF_HUB_OFFLINE", "HF_TOKEN_PATH", "OLLAMA_MODELS", "JAN_DATA_FOLDER"),
)
_PREFIXES_OF_LLAMA_CPP = ("LLAMA_ARG_", "LLAMA_API_KEY", "LLAMA_LOG_", "LLAMA_OFFLINE", "LLAMA_SERVER_")


def _environment(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the set variables that gen reads, and those of llama.cpp's programs, which have no effect here."""
    # The values are left out, since some are secret.
    names = sorted(
        name for name in variables if name in _USED_VARIABLES or name.startswith(_PREFIXES_OF_LLAMA_CPP)
    )
    return [{"name": name, "is_used": name in _USED_VARIABLES} for name in names if variables[name]]


def _searched_folders(config: Path) -> list[dict[str, Any]]:
    """Return the folders and files that are searched, in order, except those that are part of the package."""
    searched = [("config", config / "config.yaml"), ("presets", Path("presets")), ("presets", config / "presets")]
    searched += [("grammars", path) for _, path in grammar_folders()]
    rows = []
    for content, path in searched:
        shown_path = os.fspath(path) if path.is_absolute() else f"./{path}"
        rows.append({"of": content, "path": shown_path, "exists": path.exists()})
    return rows


def _model_folders(config: UserConfig) -> list[dict[str, Any]]:
    """Return the folders that are searched for models: existing folders of other tools, and the user's folders."""
    from ...models.listing import tool_folders

    folders = [path for path in tool_folders() if path.is_dir()]
    folders += [Path(text) for text in config.model_folders]
    return [{"of": "models", "path": os.fspath(path), "exists": path.is_dir()} for path in folders]


_BUILT_IN = "built-in"


def _preset_row(problems: _ProblemCollector, entry: PresetEntry) -> dict[str, Any]:
    def check() -> None:
        preset = open_preset(str(entry.path))
        preset.samplers()
        if "grammar" in preset.settings:
            check_grammar(preset)

    if entry.origin != _BUILT_IN:
        problems.run_check(f"correct the preset, then: gen presets check {entry.path}", check)
    return {"name": entry.name, "origin": entry.origin, "is_hidden": entry.is_shadowed}


def _default_preset(problems: _ProblemCollector, config: UserConfig) -> str:
    name = config.preset or "default"
    if config.preset is not None:
        advice = "name another one as preset: in config.yaml"
        problems.run_check(advice, lambda: open_preset(name))
    return name


def _grammar_row(problems: _ProblemCollector, entry: GrammarEntry) -> dict[str, Any]:
    from ...grammars.spec import resolve_grammar

    if entry.origin != _BUILT_IN:
        advice = f"correct the grammar, then: gen grammars check {entry.name}"
        problems.run_check(advice, lambda: resolve_grammar(entry.name, grammar_folders()).check())
    return {"name": entry.name, "origin": entry.origin}


_PLUGIN_ADVICE = "report this to the author of the package, or remove the package"


def _plugins(problems: _ProblemCollector) -> list[dict[str, str]]:
    """Return each plug-in with its state. All of them are imported."""
    from ...presets.foreign import registry as formats
    from ...samplers import registry as samplers
    from .. import command_table as commands

    rows = []
    for kind, registry in (("sampler", samplers), ("command", commands), ("preset format", formats)):
        for name, plugin in registry.plugins().items():
            state = registry.reason_against(name)
            if state is None:
                loaded = problems.run_check(_PLUGIN_ADVICE, partial(registry.load_plugin, plugin))
                state = "works" if loaded is not None else "cannot be used"
            row = {"name": name, "kind": kind, "package": plugin.package, "from": plugin.place, "state": state}
            rows.append(row)
    return rows


_FOLDER_ADVICE = "let the folder be read, or correct model_folders: in config.yaml"


def _list_found_models(problems: _ProblemCollector, config: UserConfig) -> list[dict[str, str]]:
    """Return each model with the tool that stores it. The files are not opened."""
    from ...models.listing import list_models

    entries = list_models(config.model_folders, lambda sentence: problems.report(sentence, _FOLDER_ADVICE))
    entries_by_source = sorted(entries, key=lambda entry: entry.source)
    return [{"name": entry.name, "origin": entry.source} for entry in entries_by_source]


def _find_default_model(problems: _ProblemCollector, config: UserConfig) -> dict[str, Any] | None:
    """Return the model of a run without -m; None if there is none."""
    try:
        from ...models.folders import ResolvedModel, locate
        from ...models.gguf import check_gguf
        from ...models.resolve import resolve_files
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None  # already reported as a problem of llama.cpp
    located = problems.run_check("give a model in one of these ways", lambda: locate(None, config.model))
    if located is None:
        return None
    path, origin = located
    files = ResolvedModel(path)
    advice = "name another model: -m MODEL, $GEN_MODEL, or model: in config.yaml"
    if not path.is_file():  # the config may name a model as -m does
        files = problems.run_check(advice, lambda: resolve_files(str(path), config.model_folders)) or files
        path = files.path
    if path.exists() or path.suffix == ".gguf":
        problems.run_check(advice, lambda: check_gguf(path))
    size = path.stat().st_size if path.is_file() else None
    adapters = [os.fspath(adapter) for adapter in files.adapters]
    return {"path": os.fspath(path), "adapters": adapters, "origin": origin, "size_bytes": size}


class _ProblemCollector:
    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []

    def report(self, problem: object, advice: str) -> None:
        self.found.append({"problem": str(problem), "advice": advice})

    def run_check(self, advice: str, check: Callable[[], Any]) -> Any:
        """Return the result of the check. If the check fails, collect its error and return None."""
        try:
            return check()
        except (LogitsmithError, OSError) as error:
            self.report(error, advice)
        return None


_Fact = tuple[str, str]  # name and value of a row of the report
_NAME_COLUMNS = 17
_MAX_WIDTH = 78
_MIN_VALUE_COLUMNS = 40
_GIB = 2**30
_MIB = 2**20


def _report_page(report: Mapping[str, Any]) -> str:
    """Return the report as text, wrapped for the terminal and for bug reports, with the problems at the end."""
    from shutil import get_terminal_size

    from ..render.table import Column, Table

    sections: dict[str, Iterable[_Fact]] = {
        "Versions": _version_facts(report),
        "llama.cpp": _llama_cpp_facts(report),
        "Machine": _machine_facts(report["machine"]),
        "Environment variables": _environment_facts(report["environment"]),
        "Searched, in this order": _folder_facts(report["folders"]),
        "Presets": [*_names_by_origin(report["presets"]), ("without -P", report["default_preset"])],
        "Grammars": _names_by_origin(report["grammars"]),
        "Models": list(_names_by_origin(report["models"])) or [("", "none")],
        "Plug-ins": _plugin_facts(report["plugins"]),
        "Model of a run without -m": _model_facts(report["model"]),
        "Wrong": _problem_facts(report["problems"]),
    }
    columns = [Column(width=_NAME_COLUMNS), Column(is_text=True, min_width=_MIN_VALUE_COLUMNS)]
    width = min(get_terminal_size().columns, _MAX_WIDTH)
    lines = []
    for title, facts in sections.items():
        rows = list(facts)
        if rows:
            lines += [title, *Table(columns, rows, gap=1, indent=2).render(width)]
    if not report["problems"]:
        lines.append("Nothing is wrong.")
    return terminal_safe("".join(f"{line}\n" for line in lines), sys.stdout)


def _version_facts(report: Mapping[str, Any]) -> Iterator[_Fact]:
    for name, installed in report["versions"].items():
        yield ("gen" if name == "logitsmith" else name, installed or "not installed")


def _llama_cpp_facts(report: Mapping[str, Any]) -> Iterator[_Fact]:
    build = report["llama_cpp"]
    if build is None:
        yield ("state", "cannot be loaded")
        return
    yield ("ggml", build["ggml_version"] or "unknown")
    yield ("built for", build["system_info"].replace(" = ", "="))  # a line may end at each space
    yield ("devices", "; ".join(build["devices"]) or "unknown")
    yield ("GPU", _gpu_sentence(build, report["machine"]["gpu"]))
    yield ("threads of a run", str(build["default_threads"]))


# The build flag of llama.cpp for a GPU, by its maker.
_CMAKE_FLAGS = {"NVIDIA": "-DGGML_CUDA=on", "AMD": "-DGGML_HIP=on", "Apple": "-DGGML_METAL=on"}
_CMAKE_FLAG_OF_OTHER_GPUS = "-DGGML_VULKAN=on"


def _gpu_sentence(build: Mapping[str, Any], maker: str | None) -> str:
    """Return the GPUs that llama.cpp finds and the flag that uses them, or how to build it for the GPU here."""
    # ``build``: the report's part about llama.cpp. ``maker``: of this machine's GPU; None if there seems to be
    # none.
    if build["has_gpu"]:
        names = "; ".join(build["gpus"]) or "yes"
        return f"{names}; they get as many layers as fit; -ngl 0 leaves them unused"
    if build["gpu_backends"]:
        return f"none found, although llama.cpp is built for {', '.join(build['gpu_backends'])}; check the driver"
    if maker is None:
        return "no"
    flag_of_maker = _CMAKE_FLAGS.get(maker, _CMAKE_FLAG_OF_OTHER_GPUS)
    owner = "a GPU" if maker == "unknown" else f"a GPU of {maker}"
    return (
        f"not used: this machine has {owner}, but llama.cpp is built without it. Build it again: "
        f'CMAKE_ARGS="{flag_of_maker}" pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python '
        f"--no-deps llama-cpp-python=={build['binding_version']}"
    )


def _machine_facts(machine: Mapping[str, Any]) -> Iterator[_Fact]:
    yield ("system", machine["system"])
    yield ("CPU", machine["cpu"])
    yield ("hardware threads", f"{machine['hardware_threads']}, {machine['usable_threads']} for gen")
    total, available = machine["memory_bytes"], machine["available_memory_bytes"]
    memory = "unknown" if total is None else f"{total / _GIB:.1f} GiB"
    yield ("memory", memory if available is None else f"{memory}, {available / _GIB:.1f} available")


def _environment_facts(variables: Sequence[Mapping[str, Any]]) -> Iterator[_Fact]:
    """Yield the environment variables; nothing if none of them is set."""
    used = [row["name"] for row in variables if row["is_used"]]
    ignored = [row["name"] for row in variables if not row["is_used"]]
    if used:
        yield ("used", ", ".join(used))
    if ignored:
        yield ("not used", f"{', '.join(ignored)}: for llama.cpp's programs; type gen's flags")


def _folder_facts(folders: Sequence[Mapping[str, Any]]) -> Iterator[_Fact]:
    for folder in folders:
        yield (folder["of"], f"{folder['path']}{'' if folder['exists'] else ' (does not exist)'}")


def _names_by_origin(entries: Sequence[Mapping[str, Any]]) -> Iterator[_Fact]:
    names_by_origin: dict[str, list[str]] = {}
    for entry in entries:
        hidden = " (hidden)" if entry.get("is_hidden") else ""
        names_by_origin.setdefault(entry["origin"], []).append(f"{entry['name']}{hidden}")
    for origin, names in names_by_origin.items():
        yield (origin, ", ".join(names))


def _plugin_facts(plugins: Sequence[Mapping[str, str]]) -> Iterator[_Fact]:
    for plugin in plugins:
        state = "" if plugin["state"] == "works" else f": {plugin['state']}"
        yield (plugin["name"], f"{plugin['kind']} of {plugin['package']} ({plugin['from']}){state}")


def _model_facts(model: Mapping[str, Any] | None) -> Iterator[_Fact]:
    if model is None:
        yield ("file", "none")
        return
    yield ("file", model["path"])
    for adapter in model["adapters"]:
        yield ("adapter", adapter)
    yield ("from", model["origin"])
    if model["size_bytes"] is not None:
        yield ("size", f"{model['size_bytes'] / _MIB:,.0f} MiB")


def _problem_facts(problems: Sequence[Mapping[str, str]]) -> Iterator[_Fact]:
    for number, entry in enumerate(problems, start=1):
        yield (str(number), entry["problem"])
        yield ("", f"What to do: {entry['advice']}")


def _shorten_home(value: Any) -> Any:
    """Return a value of JSON in which each string has ``~`` for the user's home folder."""
    home = str(Path.home())
    if isinstance(value, dict):
        return {key: _shorten_home(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shorten_home(item) for item in value]
    return value.replace(home, "~") if isinstance(value, str) and home != os.sep else value
