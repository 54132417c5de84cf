"""`gen doctor`: check the installation, and report it as a page of text or as JSON.

A part that cannot be read or loaded becomes a problem in the report, with advice; the other parts are still shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...common.errors import LogitsmithError
from ...common.machine import describe_machine, shorten_home
from ...jobs.sources import check_grammar, grammar_folders, open_preset
from ..command_options import takes_options
from ..flags import Options, flag, options_class
from ..messages import FAILED
from ..render.run import terminal_safe
from ..startup import start_collector

if TYPE_CHECKING:
    from ...grammars.search import GrammarEntry
    from ...presets.search import PresetEntry
    from ...presets.user_config import UserConfig


class DoctorFormat(StrEnum):
    """A format of the report."""

    text = "text"
    json = "json"


@options_class
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
        report = shorten_home(report)
    if options.format is DoctorFormat.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(_report_page(report))
    if report["problems"]:
        raise typer.Exit(FAILED)


def _make_report() -> dict[str, Any]:
    """Return the report: versions, the machine, folders, presets, grammars, plug-ins, models, and problems.

    No model is loaded. Each problem has an advice.
    """
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
_EXTRAS = ("huggingface-hub",)
"""Optional packages, which only downloads need."""


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
        from ...engine.native.binding import llama_cpp_build
        from ...engine.native.options import physical_cores
    except LogitsmithError as error:  # the error has an advice
        problems.report(error.problem, error.advice)
        return None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        advice = "reinstall it: pip install --force-reinstall --no-cache-dir llama-cpp-python"
        problems.report(f"llama-cpp-python cannot be loaded: {error}", advice)
        return None
    build = asdict(llama_cpp_build())
    return {**build, "devices": list(build["devices"]), "default_threads": physical_cores()}


def _searched_folders(config: Path) -> list[dict[str, Any]]:
    """Return the folders and files that are searched, in order, except those that are part of the package."""
    rows = [("config", config / "config.yaml"), ("presets", Path("presets")), ("presets", config / "presets")]
    rows += [("grammars", path) for _, path in grammar_folders()]
    return [
        {"of": of, "path": os.fspath(path) if path.is_absolute() else f"./{path}", "exists": path.exists()}
        for of, path in rows
    ]


def _model_folders(config: UserConfig) -> list[dict[str, Any]]:
    """Return the folders that are searched for models: existing folders of other tools, and the user's folders."""
    from ...models.listing import tool_folders

    folders = [path for path in tool_folders() if path.is_dir()] + [Path(text) for text in config.model_folders]
    return [{"of": "models", "path": os.fspath(path), "exists": path.is_dir()} for path in folders]


_BUILT_IN = "built-in"


def _preset_row(problems: _ProblemCollector, entry: PresetEntry) -> dict[str, Any]:
    def check() -> None:
        preset = open_preset(str(entry.path))
        preset.samplers()
        if preset.grammar is not None:
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


def _plugins(problems: _ProblemCollector) -> list[dict[str, str]]:
    from ...samplers.registry import find_sampler, list_plugins

    plugins = list_plugins()
    for name in plugins:
        advice = "report this to the author of the package, or remove the package"
        problems.run_check(advice, lambda name=name: find_sampler(name))  # type: ignore[misc]
    return [{"name": name, "from": place} for name, place in plugins.items()]


_FOLDER_ADVICE = "let the folder be read, or correct model_folders: in config.yaml"


def _list_found_models(problems: _ProblemCollector, config: UserConfig) -> list[dict[str, str]]:
    """Return each model with the tool that stores it. The files are not opened."""
    from ...models.listing import list_models

    entries = list_models(config.model_folders, lambda sentence: problems.report(sentence, _FOLDER_ADVICE))
    return [{"name": entry.name, "origin": entry.source} for entry in sorted(entries, key=lambda e: e.source)]


def _find_default_model(problems: _ProblemCollector, config: UserConfig) -> dict[str, Any] | None:
    """Return the model of a run without -m; None if there is none."""
    try:
        from ...models.folders import locate
        from ...models.gguf import check_gguf
        from ...models.resolve import resolve_model
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None  # already reported as a problem of llama.cpp
    located = problems.run_check("give a model in one of these ways", lambda: locate(None, config.model))
    if located is None:
        return None
    path, origin = located
    advice = "name another model: -m MODEL, $GEN_MODEL, or model: in config.yaml"
    if not path.is_file():  # the config may name a model as -m does
        path = problems.run_check(advice, lambda: resolve_model(str(path), config.model_folders)) or path
    if path.exists() or path.suffix == ".gguf":
        problems.run_check(advice, lambda: check_gguf(path))
    size = path.stat().st_size if path.is_file() else None
    return {"path": os.fspath(path), "origin": origin, "size_bytes": size}


class _ProblemCollector:
    """A collection of the problems that the checks of the machine find."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []

    def report(self, problem: object, advice: str) -> None:
        """Add a problem, and the advice that solves it."""
        self.found.append({"problem": str(problem), "advice": advice})

    def run_check(self, advice: str, check: Callable[[], Any]) -> Any:
        """Return the result of the check. If the check fails, collect its error and return None."""
        try:
            return check()
        except (LogitsmithError, OSError) as error:
            self.report(error, advice)
        except Exception as error:
            if getattr(error, "exit_code", None) is None:  # a bug of this program, not a problem of the machine
                raise
            self.report(error, advice)
        return None


_INDENT = 2
_NAME_COLUMNS = 18
_MAX_WIDTH = 78
_MIN_WIDTH_OF_TWO_COLUMNS = 60
_GIB, _MIB = 2**30, 2**20


def _report_page(report: Mapping[str, Any]) -> str:
    """Return the report as text, wrapped for the terminal and for bug reports, with the problems at the end."""
    lines = [
        *_version_lines(report),
        *_machine_lines(report),
        *_folder_lines(report),
        *_name_lines(report),
        *_model_lines(report),
    ]
    return terminal_safe(
        "".join(f"{line}\n" for line in (*lines, *_problem_lines(report["problems"]))), sys.stdout
    )


def _version_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Versions"
    for name, installed in report["versions"].items():
        yield from _wrapped_row("gen" if name == "logitsmith" else name, installed or "not installed")
    build = report["llama_cpp"]
    yield "llama.cpp"
    if build is None:
        yield from _wrapped_row("state", "cannot be loaded")
        return
    yield from _wrapped_row("ggml", build["ggml_version"] or "unknown")
    yield from _wrapped_row("built for", build["system_info"].replace(" = ", "="))  # a line may end at each space
    yield from _wrapped_row("devices", "; ".join(build["devices"]) or "unknown")
    yield from _wrapped_row("GPU", "yes" if build["has_gpu"] else "no")
    yield from _wrapped_row("threads of a run", str(build["default_threads"]))


def _machine_lines(report: Mapping[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield "Machine"
    yield from _wrapped_row("system", machine["system"])
    yield from _wrapped_row("CPU", machine["cpu"])
    yield from _wrapped_row(
        "hardware threads", f"{machine['hardware_threads']}, {machine['usable_threads']} for gen"
    )
    total, available = machine["memory_bytes"], machine["available_memory_bytes"]
    memory = "unknown" if total is None else f"{total / _GIB:.1f} GiB"
    yield from _wrapped_row(
        "memory", memory if available is None else f"{memory}, {available / _GIB:.1f} available"
    )


def _folder_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Searched, in this order"
    for folder in report["folders"]:
        yield from _wrapped_row(folder["of"], f"{folder['path']}{'' if folder['exists'] else ' (does not exist)'}")


def _name_lines(report: Mapping[str, Any]) -> Iterator[str]:
    for title in ("presets", "grammars", "models"):
        yield title.capitalize()
        names_by_origin: dict[str, list[str]] = {}
        for entry in report[title]:
            hidden = " (hidden)" if entry.get("is_hidden") else ""
            names_by_origin.setdefault(entry["origin"], []).append(f"{entry['name']}{hidden}")
        for origin, names in names_by_origin.items():
            yield from _wrapped_row(origin, ", ".join(names))
        if title == "presets":
            yield from _wrapped_row("without -P", report["default_preset"])
    if report["plugins"]:
        yield "Samplers of plug-ins"
        for plugin in report["plugins"]:
            yield from _wrapped_row(plugin["name"], plugin["from"])


def _model_lines(report: Mapping[str, Any]) -> Iterator[str]:
    model = report["model"]
    yield "Model of a run without -m"
    if model is None:
        yield from _wrapped_row("file", "none")
        return
    yield from _wrapped_row("file", model["path"])
    yield from _wrapped_row("from", model["origin"])
    if model["size_bytes"] is not None:
        yield from _wrapped_row("size", f"{model['size_bytes'] / _MIB:,.0f} MiB")


def _problem_lines(problems: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if not problems:
        yield "Nothing is wrong."
        return
    yield "Wrong"
    for number, entry in enumerate(problems, start=1):
        yield from _wrapped_row(str(number), entry["problem"])
        yield from _wrapped_row("", f"What to do: {entry['advice']}")


def _wrapped_row(name: str, value: str) -> Iterator[str]:
    """Yield the lines of a name and its value, wrapped next to or below the name. Paths are never cut."""
    from shutil import get_terminal_size
    from textwrap import wrap

    width = min(get_terminal_size().columns, _MAX_WIDTH)
    start = f"{' ' * _INDENT}{name:{_NAME_COLUMNS}}"
    is_narrow = width < _MIN_WIDTH_OF_TWO_COLUMNS
    after = " " * (2 * _INDENT if is_narrow else _INDENT + _NAME_COLUMNS)
    if len(name) >= _NAME_COLUMNS or (is_narrow and name and len(start) + len(value) > width):
        yield start.rstrip()
        start = after
    for part, line in enumerate(value.splitlines() or [""]):
        yield from wrap(
            line,
            width,
            initial_indent=after if part else start,
            subsequent_indent=after,
            break_long_words=False,
            break_on_hyphens=False,
        )
