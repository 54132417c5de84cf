"""The completions of a flag's value: names of presets, models, samplers and chats, steps of chains, and files.

The names of samplers are read from a file, because importing the samplers would be too slow. Model files are not
opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...common.errors import LogitsmithError
from ...common.flags import CompletionKind
from ...presets.setting_table import SETTINGS


class CompletionItem(NamedTuple):
    """A completion of the word at the cursor, and a short description."""

    text: str
    help: str = ""


def matching(items: Iterable[CompletionItem], word: str) -> list[CompletionItem]:
    """Return the items that begin with the typed word."""
    return [item for item in items if item.text.startswith(word)]


def completer(kind: CompletionKind | None) -> Callable[[str], list[tuple[str, str]]] | None:
    """Return a function that Typer calls with a typed value; None where shells offer files."""
    if kind is None or kind is CompletionKind.FILE:
        return None

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(item.text, item.help) for item in complete_text(kind, incomplete)]

    return complete


def complete_text(kind: CompletionKind, value: str) -> list[CompletionItem]:
    """Return the completions of a value. Where there are none, shells offer files."""
    if kind in _COMPLETION_FUNCTIONS:
        return _COMPLETION_FUNCTIONS[kind](value)
    return matching(_ITEM_FUNCTIONS[kind](), value)


def _preset_items() -> Iterable[CompletionItem]:
    from ...presets.search import list_presets

    try:
        return [CompletionItem(entry.name, entry.origin) for entry in list_presets() if not entry.is_shadowed]
    except LogitsmithError:  # a folder cannot be read; the command itself reports it
        return []


def _complete_preset_or_chain(value: str) -> list[CompletionItem]:
    return matching(_preset_items(), value) or _complete_chain(value)


def _preset_and_model_items() -> Iterable[CompletionItem]:
    return [*_preset_items(), CompletionItem("model", "the settings of the GGUF's author")]


def _grammar_items() -> Iterable[CompletionItem]:
    from ...grammars.search import list_grammars
    from ...requests.sources import grammar_folders

    try:
        return [CompletionItem(entry.name, entry.description) for entry in list_grammars(grammar_folders())]
    except LogitsmithError:  # a folder cannot be read; the command itself reports it
        return []


def _chat_items() -> Iterable[CompletionItem]:
    """Return the names and the ids of stored chats. The store is not created if it does not exist."""
    from ...chats.database import store_path
    from ...chats.store import ChatStore

    try:
        if not store_path().exists():
            return []
        store = ChatStore.open()
        try:
            chats = store.list_conversations()
        finally:
            store.close()
    except LogitsmithError:  # the command itself reports it
        return []
    names = [CompletionItem(chat.name, chat.title) for chat in chats if chat.name and chat.name.isprintable()]
    ids = [CompletionItem(chat.id, chat.name or chat.title) for chat in chats]
    return [*names, *ids]


def _import_format_items() -> Iterable[CompletionItem]:
    from ...presets.foreign.registry import format_names

    return map(CompletionItem, format_names())


def _export_format_items() -> Iterable[CompletionItem]:
    from ...presets.foreign.registry import format_names

    return map(CompletionItem, format_names(written=True))


_MODEL_SUFFIX = ".gguf"


def _complete_model(value: str) -> list[CompletionItem]:
    return [*matching(_model_items(), value), *_complete_model_file(value)]


def _complete_model_file(value: str) -> list[CompletionItem]:
    # after a tilde, which only an unquoted word has, shells offer files
    return [] if value.startswith("~") else path_items(value, _MODEL_SUFFIX)


def _model_items() -> list[CompletionItem]:
    from ...models.listing import list_models
    from ...presets.user_config import configured_model_folders

    try:
        folders = configured_model_folders()
    except LogitsmithError:  # the config cannot be read; the command itself reports it
        folders = []
    return [CompletionItem(entry.name, entry.source) for entry in list_models(folders)]


def path_items(typed: str, suffix: str = "") -> list[CompletionItem]:
    """Return the folders, and the files with a suffix, that match a typed path; hidden ones only after a dot."""
    folder, slash, name_start = typed.rpartition("/")
    try:
        paths = sorted(Path(folder + slash).expanduser().iterdir())
    except (OSError, RuntimeError):  # the folder cannot be read, or there is no such user
        return []
    items = []
    for path in paths:
        is_hidden = path.name.startswith(".") and not name_start
        if is_hidden or not path.name.startswith(name_start):
            continue
        text = f"{folder}{slash}{path.name}"
        if path.is_dir():
            items.append(CompletionItem(f"{text}/", "folder"))
        elif path.name.lower().endswith(suffix):
            items.append(CompletionItem(text, "file"))
    return items


def _complete_setting(value: str) -> list[CompletionItem]:
    """Return the completions of ``name.parameter=value``: of the name, the parameter, or the value."""
    target, equals_sign, typed_value = value.partition("=")
    if equals_sign:
        values = [CompletionItem(each) for each in _parameter_values(target)]
        return _add_prefix(f"{target}=", matching(values, typed_value))
    name, dot, parameter = target.partition(".")
    if not dot:
        return _setting_names(name)
    sampler = _find_sampler(name)
    if sampler is None:
        return []
    items = [
        CompletionItem(f"{_spelled_like(key, parameter)}=", help_text)
        for key, help_text in sampler.parameters.items()
    ]
    return _add_prefix(f"{name}.", matching(items, parameter))


def _setting_names(typed: str) -> list[CompletionItem]:
    """Return samplers followed by a dot, or by ``=`` if they have no parameters, and the other settings."""
    samplers_without_parameters = {
        name for name, sampler in _built_in_samplers().items() if not sampler.parameters
    }
    items = []
    for name, summary in _sampler_items():
        next_character = "=" if name in samplers_without_parameters else "."
        items.append(CompletionItem(f"{_spelled_like(name, typed)}{next_character}", summary))
    for name in SETTINGS:
        items.append(CompletionItem(f"{_spelled_like(name, typed)}="))
    return matching(items, typed)


def _parameter_values(target: str) -> list[str]:
    """Return the values of a parameter that has a fixed set of values; empty for other parameters."""
    name, _, parameter = target.partition(".")
    sampler = _find_sampler(name)
    if sampler is None:
        return []
    if not sampler.parameters:
        return ["true", "false"]
    return sampler.choices.get(_snake_case(parameter) or sampler.main or "", [])


def _complete_chain(value: str) -> list[CompletionItem]:
    """Return the completions of the last step of a chain: of its name, or of a parameter in its parentheses."""
    step = value.rpartition(">")[2].lstrip()  # the last step, as far as it is typed
    before_step = value.removesuffix(step)
    name, bracket, parameters = step.partition("(")
    if not bracket:
        samplers = [CompletionItem(_spelled_like(text, step), help_text) for text, help_text in _sampler_items()]
        return _add_prefix(before_step, matching(samplers, step))
    sampler = _find_sampler(name)
    if sampler is None:
        return []
    parameter = parameters.rpartition(",")[2].lstrip()  # the last parameter, as far as it is typed
    before_parameter = value.removesuffix(parameter)
    items = [CompletionItem(f"{key}=", help_text) for key, help_text in sampler.parameters.items()]
    return _add_prefix(before_parameter, matching(items, parameter))


def _complete_llama_cpp_samplers(value: str) -> list[CompletionItem]:
    """Return the completions of the last name of ``top_k;top_p``."""
    from ...presets.overrides import LLAMA_CPP_SAMPLERS

    before, semicolon, name = value.rpartition(";")
    names = [CompletionItem(known) for known in LLAMA_CPP_SAMPLERS]
    return _add_prefix(before + semicolon, matching(names, name))


def _spelled_like(name: str, typed: str) -> str:
    """Return a name with dashes if the typed name has a dash, because both forms are valid."""
    return name.replace("_", "-") if "-" in typed else name


# a name, and maybe the number of its occurrence in the chain, such as ``top_k#2``
_OCCURRENCE_PATTERN = re.compile(r"(?P<name>[^#]*)(?P<number>#\d+)?")


def _find_sampler(name: str) -> _SamplerNames | None:
    """Return the sampler of a name; None if there is none. A plug-in is imported, which imports NumPy."""
    match = _OCCURRENCE_PATTERN.fullmatch(name)
    if match is None:
        return None
    key = _snake_case(match["name"])
    built_in_sampler = _built_in_samplers().get(key)
    if built_in_sampler is not None:  # so that plug-ins, which take time, are not searched
        return built_in_sampler
    return _import_plugin_sampler(key) if key in _plugin_samplers() else None


def _add_prefix(prefix: str, items: list[CompletionItem]) -> list[CompletionItem]:
    return [CompletionItem(prefix + text, help_text) for text, help_text in items]


@dataclass(frozen=True)
class _SamplerNames:
    summary: str
    main: str | None = None  # the parameter that ``name=value`` sets; None if there is none
    parameters: Mapping[str, str] = field(default_factory=dict)  # the description of each parameter, by name
    # the allowed values of each parameter with a fixed set of values, by name
    choices: Mapping[str, list[str]] = field(default_factory=dict)


@cache
def _built_in_samplers() -> dict[str, _SamplerNames]:
    """Return the samplers of this package, by name."""
    table: dict[str, Any] = json.loads(_SAMPLERS_FILE.read_text(encoding="utf-8"))
    return {name: _SamplerNames(**facts) for name, facts in table.items()}


@cache
def _plugin_samplers() -> dict[str, str]:
    """Return the samplers of other packages, by name, each with the place that it would be imported from."""
    from ...common.plugins import find_plugins

    plugins = find_plugins("logitsmith.samplers", _snake_case)
    return {name: plugin.place for name, plugin in plugins.items() if name not in _built_in_samplers()}


def _snake_case(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _sampler_items() -> list[CompletionItem]:
    names = [CompletionItem(name, sampler.summary) for name, sampler in _built_in_samplers().items()]
    return [*names, *(CompletionItem(name, f"plug-in {value}") for name, value in _plugin_samplers().items())]


def _setting_items() -> list[CompletionItem]:
    parameters = [
        CompletionItem(f"{name}.{parameter}", help_text)
        for name, sampler in _built_in_samplers().items()
        for parameter, help_text in sampler.parameters.items()
    ]
    return [*map(CompletionItem, SETTINGS), *_sampler_items(), *parameters]


# The names of samplers and parameters. ``python tools/sampler_names.py`` writes the file.
_SAMPLERS_FILE = Path(__file__).with_name("samplers.json")


def _import_plugin_sampler(name: str) -> _SamplerNames | None:
    from ...samplers.errors import SamplingError
    from ...samplers.registry import find_sampler

    try:
        cls = find_sampler(name)
    except SamplingError:  # the plug-in cannot be used; the command itself reports it
        return None
    parameters = {key: info.description or "" for key, info in cls.model_fields.items()}
    return _SamplerNames(cls.about.summary, cls.about.main_parameter, parameters)


# For kinds whose values are names: the function that returns all names.
_ITEM_FUNCTIONS: Mapping[CompletionKind, Callable[[], Iterable[CompletionItem]]] = {
    CompletionKind.CHAT: _chat_items,
    CompletionKind.EXPORT_FORMAT: _export_format_items,
    CompletionKind.GRAMMAR: _grammar_items,
    CompletionKind.GRAMMAR_NAME: _grammar_items,
    CompletionKind.IMPORT_FORMAT: _import_format_items,
    CompletionKind.PRESET: _preset_and_model_items,
    CompletionKind.PRESET_FILE: _preset_items,
    CompletionKind.SAMPLER: _sampler_items,
    CompletionKind.SETTING_NAME: _setting_items,
}
# For kinds whose values have several parts: the function that completes a value.
_COMPLETION_FUNCTIONS: Mapping[CompletionKind, Callable[[str], list[CompletionItem]]] = {
    CompletionKind.CHAIN: _complete_chain,
    CompletionKind.GGUF_FILE: _complete_model_file,
    CompletionKind.LLAMA_CPP_SAMPLERS: _complete_llama_cpp_samplers,
    CompletionKind.MODEL: _complete_model,
    CompletionKind.PRESET_OR_CHAIN: _complete_preset_or_chain,
    CompletionKind.SETTING: _complete_setting,
}
