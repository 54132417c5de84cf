"""What `gen` finds on this machine, as a table, with what is wrong."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import LogitsmithError
from ...common.machine import machine
from ..jobs.sources import check_grammar, grammar_folders, open_preset
from .doctor_models import default_model, list_found_models, model_folders
from .examination import Examination

if TYPE_CHECKING:
    from ...grammars.search import GrammarEntry
    from ...presets.search import PresetEntry
    from ...presets.user_config import UserConfig

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
_BUILT_IN = "built-in"


def examine() -> dict[str, Any]:
    """Return the table: versions, the machine, folders, what has a name, the default model, problems.

    No model is loaded. Each problem has a text and an advice.
    """
    from ...presets.search import config_folder, list_presets
    from ...presets.user_config import UserConfig, user_config

    examination = Examination()
    folder = config_folder()
    config: UserConfig = examination.attempt(f"correct {folder / 'config.yaml'}", user_config) or UserConfig()
    presets = examination.attempt("let the folder be read", list_presets) or []
    grammars = examination.attempt("let the folder be read", _grammars) or []
    return {
        "versions": _versions(examination),
        "llama_cpp": _llama_cpp(examination),
        "machine": machine(),
        "folders": [*_folders(folder), *model_folders(config)],
        "presets": [_preset_row(examination, entry) for entry in presets],
        "default_preset": _default_preset(examination, config),
        "grammars": [_grammar_row(examination, entry) for entry in grammars],
        "plugins": _plugins(examination),
        "models": list_found_models(examination, config),
        "model": default_model(examination, config),
        "problems": examination.problems,
    }


def _versions(examination: Examination) -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
            examination.report(f"the package {package} is not installed", f"pip install {package}")
    for package in _EXTRAS:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


def _llama_cpp(examination: Examination) -> dict[str, Any] | None:
    try:
        from ...engine.model import Model  # noqa: F401 - with Model, all that runs use
        from ...engine.native.binding import llama_cpp_build
        from ...engine.native.options import physical_cores
    except LogitsmithError as error:  # it knows what to do
        examination.report(error.problem, error.advice)
        return None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        advice = "install it anew: pip install --force-reinstall --no-cache-dir llama-cpp-python"
        examination.report(f"llama-cpp-python cannot be loaded: {error}", advice)
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


def _preset_row(examination: Examination, entry: PresetEntry) -> dict[str, Any]:
    def check() -> None:
        preset = open_preset(str(entry.path), is_quiet=True)
        preset.samplers()
        if preset.grammar is not None:
            check_grammar(preset)

    if entry.origin != _BUILT_IN:
        examination.attempt(f"correct the preset, then: gen presets check {entry.path}", check)
    return {"name": entry.name, "origin": entry.origin, "is_hidden": entry.shadowed}


def _default_preset(examination: Examination, config: UserConfig) -> str:
    name = config.preset or "default"
    if config.preset is not None:
        advice = "name another one as preset: in config.yaml"
        examination.attempt(advice, lambda: open_preset(name, is_quiet=True))
    return name


def _grammars() -> list[GrammarEntry]:
    from ...grammars.search import list_grammars

    return list_grammars(grammar_folders())


def _grammar_row(examination: Examination, entry: GrammarEntry) -> dict[str, Any]:
    from ...grammars.spec import resolve_grammar

    if entry.origin != _BUILT_IN:
        advice = f"correct the grammar, then: gen grammars check {entry.name}"
        examination.attempt(advice, lambda: resolve_grammar(entry.name, grammar_folders()).check())
    return {"name": entry.name, "origin": entry.origin}


def _plugins(examination: Examination) -> list[dict[str, str]]:
    from ...samplers.registry import find_sampler, list_plugins

    plugins = list_plugins()
    for name in plugins:
        advice = "ask its author, or remove the package"
        examination.attempt(advice, lambda name=name: find_sampler(name))  # type: ignore[misc]
    return [{"name": name, "from": place} for name, place in plugins.items()]
