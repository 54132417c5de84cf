"""`gen doctor`: what is found on this machine, and what is wrong, as a table or as a page of text.

What cannot be read or loaded becomes a problem of the table, with what to do about it; the rest is still shown.
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
from ...common.machine import machine, shorten_home
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
    """How the page is written."""

    text = "text"
    json = "json"


@options_class
class DoctorOptions(Options):
    """What the page shows, and in which format."""

    paths: bool = flag("--paths", help="Show paths whole; without it, your home folder is ~.", default=False)
    format: DoctorFormat = flag("--format", help="text, or json: one object. [text]", default=DoctorFormat.text)


@takes_options(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Show what gen finds here, and what is wrong: a page for a bug report.

    No model is loaded. Exit code 1: something is wrong, and the page says what to do.
    """
    start_collector()
    report = _examine()
    if not options.paths:
        report = shorten_home(report)
    if options.format is DoctorFormat.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        sys.stdout.write(_page(report))
    if report["problems"]:
        raise typer.Exit(FAILED)


def _examine() -> dict[str, Any]:
    """Return the table: versions, the machine, folders, what has a name, the default model, problems.

    No model is loaded. Each problem has a text and an advice.
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
        "machine": machine(),
        "folders": [*_folders(folder), *_model_folders(config)],
        "presets": [_preset_row(problems, entry) for entry in presets],
        "default_preset": _default_preset(problems, config),
        "grammars": [_grammar_row(problems, entry) for entry in grammars],
        "plugins": _plugins(problems),
        "models": _list_found_models(problems, config),
        "model": _default_model(problems, config),
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
"""Packages that may be missing: only downloads need them."""


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
        from ...engine.model import Model  # noqa: F401 - with Model, all that runs use
        from ...engine.native.binding import llama_cpp_build
        from ...engine.native.options import physical_cores
    except LogitsmithError as error:  # it knows what to do
        problems.report(error.problem, error.advice)
        return None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        advice = "install it anew: pip install --force-reinstall --no-cache-dir llama-cpp-python"
        problems.report(f"llama-cpp-python cannot be loaded: {error}", advice)
        return None
    build = asdict(llama_cpp_build())
    return {**build, "devices": list(build["devices"]), "default_threads": physical_cores()}


def _folders(config: Path) -> list[dict[str, Any]]:
    """The folders and files that are searched, in order; those that come with the package are left out."""
    rows = [("config", config / "config.yaml"), ("presets", Path("presets")), ("presets", config / "presets")]
    rows += [("grammars", path) for _, path in grammar_folders()]
    return [
        {"of": of, "path": os.fspath(path) if path.is_absolute() else f"./{path}", "exists": path.exists()}
        for of, path in rows
    ]


def _model_folders(config: UserConfig) -> list[dict[str, Any]]:
    """The folders in which models are looked for: those of other tools that exist, and the user's own."""
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
        advice = "ask its author, or remove the package"
        problems.run_check(advice, lambda name=name: find_sampler(name))  # type: ignore[misc]
    return [{"name": name, "from": place} for name, place in plugins.items()]


_FOLDER_ADVICE = "let the folder be read, or correct model_folders: in config.yaml"


def _list_found_models(problems: _ProblemCollector, config: UserConfig) -> list[dict[str, str]]:
    """Each model with the tool that has it. No header is read."""
    from ...models.listing import list_models

    entries = list_models(config.model_folders, lambda sentence: problems.report(sentence, _FOLDER_ADVICE))
    return [{"name": entry.name, "origin": entry.source} for entry in sorted(entries, key=lambda e: e.source)]


def _default_model(problems: _ProblemCollector, config: UserConfig) -> dict[str, Any] | None:
    """The model that a run without -m takes; None if there is none."""
    try:
        from ...models.folders import locate
        from ...models.gguf import check_gguf
        from ...models.resolve import resolve_model
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None  # reported as a problem of llama.cpp
    located = problems.run_check("one of these", lambda: locate(None, config.model))
    if located is None:
        return None
    path, origin = located
    advice = "name another model: -m MODEL, $GEN_MODEL, or model: in config.yaml"
    if not path.is_file():  # a name, as for -m
        path = problems.run_check(advice, lambda: resolve_model(str(path), config.model_folders)) or path
    if path.exists() or path.suffix == ".gguf":
        problems.run_check(advice, lambda: check_gguf(path))
    size = path.stat().st_size if path.is_file() else None
    return {"path": os.fspath(path), "origin": origin, "size_bytes": size}


class _ProblemCollector:
    """Collects the problems that the checks of the machine find."""

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
            if getattr(error, "exit_code", None) is None:  # a failure that has no name is not one of the machine
                raise
            self.report(error, advice)
        return None


_INDENT = 2
_NAME_COLUMNS = 18
_MAX_WIDTH = 78
_MIN_WIDTH_OF_TWO_COLUMNS = 60
_GIB, _MIB = 2**30, 2**20


def _page(report: Mapping[str, Any]) -> str:
    """Return the page, wrapped so that it can be pasted, and fits a narrow terminal; problems stand last."""
    lines = [*_version_lines(report), *_machine(report), *_folder_lines(report), *_names(report), *_model(report)]
    return terminal_safe("".join(f"{line}\n" for line in (*lines, *_problems(report["problems"]))), sys.stdout)


def _version_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Versions"
    for name, installed in report["versions"].items():
        yield from _row("gen" if name == "logitsmith" else name, installed or "not installed")
    build = report["llama_cpp"]
    yield "llama.cpp"
    if build is None:
        yield from _row("state", "cannot be loaded")
        return
    yield from _row("ggml", build["ggml_version"] or "unknown")
    yield from _row("built for", build["system_info"].replace(" = ", "="))  # a line may end at each space
    yield from _row("devices", "; ".join(build["devices"]) or "unknown")
    yield from _row("GPU", "yes" if build["has_gpu"] else "no")
    yield from _row("threads of a run", str(build["default_threads"]))


def _machine(report: Mapping[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield "Machine"
    yield from _row("system", machine["system"])
    yield from _row("CPU", machine["cpu"])
    yield from _row("hardware threads", f"{machine['hardware_threads']}, {machine['usable_threads']} for gen")
    total, available = machine["memory_bytes"], machine["available_memory_bytes"]
    memory = "unknown" if total is None else f"{total / _GIB:.1f} GiB"
    yield from _row("memory", memory if available is None else f"{memory}, {available / _GIB:.1f} available")


def _folder_lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Searched, in this order"
    for folder in report["folders"]:
        yield from _row(folder["of"], f"{folder['path']}{'' if folder['exists'] else ' (not there)'}")


def _names(report: Mapping[str, Any]) -> Iterator[str]:
    for title in ("presets", "grammars", "models"):
        yield title.capitalize()
        names_by_origin: dict[str, list[str]] = {}
        for entry in report[title]:
            hidden = " (hidden)" if entry.get("is_hidden") else ""
            names_by_origin.setdefault(entry["origin"], []).append(f"{entry['name']}{hidden}")
        for origin, names in names_by_origin.items():
            yield from _row(origin, ", ".join(names))
        if title == "presets":
            yield from _row("without -P", report["default_preset"])
    if report["plugins"]:
        yield "Samplers of plug-ins"
        for plugin in report["plugins"]:
            yield from _row(plugin["name"], plugin["from"])


def _model(report: Mapping[str, Any]) -> Iterator[str]:
    model = report["model"]
    yield "Model of a run without -m"
    if model is None:
        yield from _row("file", "none")
        return
    yield from _row("file", model["path"])
    yield from _row("from", model["origin"])
    if model["size_bytes"] is not None:
        yield from _row("size", f"{model['size_bytes'] / _MIB:,.0f} MiB")


def _problems(problems: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if not problems:
        yield "Nothing is wrong."
        return
    yield "Wrong"
    for number, entry in enumerate(problems, start=1):
        yield from _row(str(number), entry["problem"])
        yield from _row("", f"What to do: {entry['advice']}")


def _row(name: str, value: str) -> Iterator[str]:
    """A name and its value, wrapped behind the name, or below it; long words such as paths are not cut."""
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
