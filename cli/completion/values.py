"""The values that a flag or an argument may have: names of presets, models, samplers and chats, steps, files.

Samplers are known by a file, since importing them would take too long; of models, no header is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...common.errors import LogitsmithError
from ..flags import CompletionKind, DeclaredFlag


class CompletionItem(NamedTuple):
    """A text that the word may become, and a few words on it."""

    text: str
    help: str = ""

    @property
    def is_partial(self) -> bool:
        """True if more has to be typed behind it, so that no space follows."""
        return self.text.endswith((".", "=", "(", "/"))


class CompletionResult(NamedTuple):
    """What kind a word.

    Attributes:
        items: texts of the whole word.
        file_suffix: files complete the word too if their names end so; None: no files do; empty: all of them do.
        file_start: where the path begins in the word, such as behind ``--file=``.
        adds_space: False if the word goes on although a item is complete.
    """

    items: list[CompletionItem]
    file_suffix: str | None = None
    file_start: int = 0
    adds_space: bool = True


def matching(items: Iterable[CompletionItem], word: str) -> list[CompletionItem]:
    """The items that begin with what is typed."""
    return [item for item in items if item.text.startswith(word)]


def complete_value(flag: DeclaredFlag, word: str, start: int = 0) -> CompletionResult:
    """Return what kind the value of a flag.

    Args:
        flag: the flag, or an argument.
        word: the word at the cursor.
        start: where the value begins in it, such as behind ``--format=``.
    """
    prefix, value = word[:start], word[start:]
    result = _complete(flag, value)
    items = [CompletionItem(prefix + text, summary) for text, summary in result.items]
    return result._replace(items=items, file_start=start)


def _complete(flag: DeclaredFlag, value: str) -> CompletionResult:
    if flag.choices:
        return CompletionResult(matching(map(CompletionItem, flag.choices), value))
    kind = flag.flag.completion_kind
    if kind is None and (flag.value_type is Path or flag.flag.is_path):
        kind = CompletionKind.FILE
    return CompletionResult([]) if kind is None else complete_text(kind, value)


_ANY_FILE = ""
_FILES: Mapping[CompletionKind, str] = {CompletionKind.FILE: _ANY_FILE, CompletionKind.GGUF_FILE: ".gguf"}


def complete_text(kind: CompletionKind, value: str) -> CompletionResult:
    """Return what kind a text that stands for something of this kind."""
    if kind in _PARTS:
        return _PARTS[kind](value)
    if kind in _FILES:
        return CompletionResult([], file_suffix=_FILES[kind])
    items = matching(_NAMES[kind](), value)
    # A name, or a file where no name begins so.
    is_file_possible = kind in _NAMES_OR_FILES and not items
    return CompletionResult(items, file_suffix=_ANY_FILE if is_file_possible else None)


def _presets() -> Iterable[CompletionItem]:
    from ...presets.search import list_presets

    try:
        return [CompletionItem(entry.name, entry.origin) for entry in list_presets() if not entry.is_shadowed]
    except LogitsmithError:  # a folder that may not be read: the command says so
        return []


def _preset_or_chain(value: str) -> CompletionResult:
    items = matching(_presets(), value)
    return CompletionResult(items) if items else _complete_chain(value)


def _presets_and_model() -> Iterable[CompletionItem]:
    return [*_presets(), CompletionItem("model", "the settings of the GGUF's author")]


def _grammars() -> Iterable[CompletionItem]:
    from ...grammars.search import list_grammars
    from ...jobs.sources import grammar_folders

    try:
        return [CompletionItem(entry.name, entry.description) for entry in list_grammars(grammar_folders())]
    except LogitsmithError:  # as above
        return []


def _chats() -> Iterable[CompletionItem]:
    """The names of stored chats, and the ids of all. A store is not made for a completion."""
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
    except LogitsmithError:  # the command says so
        return []
    named = [CompletionItem(each.name, each.title) for each in chats if each.name and each.name.isprintable()]
    return [*named, *(CompletionItem(each.id, each.name or each.title) for each in chats)]


def _import_formats() -> Iterable[CompletionItem]:
    from ...presets.foreign import FORMATS

    return map(CompletionItem, FORMATS)


def _export_formats() -> Iterable[CompletionItem]:
    from ...presets.foreign import EXPORT_FORMATS

    return map(CompletionItem, EXPORT_FORMATS)


_SUFFIX = ".gguf"


def _complete_model(value: str) -> CompletionResult:
    """Return names and paths that begin with the value; behind a tilde, which shells replace, files only."""
    if value.startswith("~"):
        return CompletionResult([], file_suffix=_SUFFIX)
    return CompletionResult(matching([*_names(), *_paths(value)], value))


def _names() -> list[CompletionItem]:
    from ...models.listing import list_models
    from ...presets.user_config import configured_model_folders

    try:
        folders = configured_model_folders()
    except LogitsmithError:  # a config that cannot be read: the command says so
        folders = []
    return [CompletionItem(entry.name, entry.source) for entry in list_models(folders)]


def _paths(value: str) -> Iterator[CompletionItem]:
    """The folders and GGUF files beside what is typed; those that are hidden only behind a dot."""
    typed_folder, slash, start = value.rpartition("/")
    try:
        paths = sorted(Path(typed_folder + slash).iterdir())
    except OSError:  # there is no such folder, or it may not be read
        return
    for path in paths:
        if path.name.startswith(".") and not start.startswith("."):
            continue
        if path.is_dir():
            yield CompletionItem(f"{typed_folder}{slash}{path.name}/", "folder")
        elif path.name.lower().endswith(_SUFFIX):
            yield CompletionItem(f"{typed_folder}{slash}{path.name}", "file")


def _complete_setting(value: str) -> CompletionResult:
    """Complete ``name.parameter=value``, first the name, then the parameter, then the value."""
    target, sign, typed = value.partition("=")
    if sign:
        return CompletionResult(_prefixed(f"{target}=", matching(map(CompletionItem, _choices(target)), typed)))
    name, dot, parameter = target.partition(".")
    if not dot:
        return CompletionResult(_setting_names(name))
    sampler = _find(name)
    names = {} if sampler is None else sampler.parameters
    items = [CompletionItem(f"{_as_typed(key, parameter)}=", about) for key, about in names.items()]
    return CompletionResult(_prefixed(f"{name}.", matching(items, parameter)))


def _setting_names(typed: str) -> list[CompletionItem]:
    """Samplers with a dot behind them if they have parameters, and the other settings."""
    switches = {name for name, sampler in _built_in_samplers().items() if not sampler.parameters}
    found = [
        CompletionItem(f"{_as_typed(name, typed)}{'=' if name in switches else '.'}", summary)
        for name, summary in _sampler_items()
    ]
    found.extend(CompletionItem(f"{_as_typed(name, typed)}=") for name in _table()["settings"])
    return matching(found, typed)


def _choices(target: str) -> list[str]:
    """The values of a parameter if they are a fixed few."""
    name, _, parameter = target.partition(".")
    sampler = _find(name)
    if sampler is None:
        return []
    if not sampler.parameters:
        return ["true", "false"]
    return sampler.choices.get(_normal(parameter) or sampler.main or "", [])


def _complete_chain(value: str) -> CompletionResult:
    """Complete the last step of ``top_k=40 > top_p(p=0.9)``: its name, or a parameter in its brackets."""
    before, arrow, step = value.rpartition(">")
    blanks = step[: len(step) - len(step.lstrip())]
    start, step = f"{before}{arrow}{blanks}", step.lstrip()
    name, bracket, inside = step.partition("(")
    if not bracket:
        names = [CompletionItem(_as_typed(text, step), about) for text, about in _sampler_items()]
        return CompletionResult(_prefixed(start, matching(names, step)), adds_space=False)
    done, comma, typed = inside.rpartition(",")
    typed_blanks = typed[: len(typed) - len(typed.lstrip())]
    sampler = _find(name)
    names = (
        [] if sampler is None else [CompletionItem(f"{key}=", about) for key, about in sampler.parameters.items()]
    )
    prefix = f"{start}{name}({done}{comma}{typed_blanks}"
    return CompletionResult(_prefixed(prefix, matching(names, typed.lstrip())), adds_space=False)


def _complete_sequence(value: str) -> CompletionResult:
    """Complete the last name of ``top_k;top_p``."""
    from ...presets.overrides import LLAMA_CPP_SAMPLERS

    before, semicolon, name = value.rpartition(";")
    names = [CompletionItem(known) for known in LLAMA_CPP_SAMPLERS]
    return CompletionResult(_prefixed(before + semicolon, matching(names, name)), adds_space=False)


def _as_typed(name: str, typed: str) -> str:
    """The name with dashes if what is typed has one: both forms are taken."""
    return name.replace("_", "-") if "-" in typed else name


_OCCURRENCE = re.compile(r"(?P<name>[^#]*)(?P<number>#\d+)?")


def _find(name: str) -> _SamplerName | None:
    """The sampler of a name; None if there is none. A plug-in is imported, and NumPy with it."""
    match = _OCCURRENCE.fullmatch(name)
    if match is None:
        return None
    key = _normal(match["name"])
    # Built-in ones first: to look for plug-ins takes 15 ms.
    return _built_in_samplers().get(key) or (_plugin(key) if key in _plugins() else None)


def _prefixed(prefix: str, items: list[CompletionItem]) -> list[CompletionItem]:
    return [CompletionItem(prefix + text, about) for text, about in items]


@dataclass(frozen=True)
class _SamplerName:
    """A sampler's names.

    Attributes:
        summary: what it does.
        main: the parameter that ``name=value`` sets; None: there is none.
        parameters: each with its description.
        choices: the values of the parameters that have a fixed few.
    """

    summary: str
    main: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, list[str]] = field(default_factory=dict)


@cache
def _built_in_samplers() -> dict[str, _SamplerName]:
    """The samplers of this package, by name."""
    return {name: _SamplerName(**facts) for name, facts in _table()["samplers"].items()}


@cache
def _plugins() -> dict[str, str]:
    """The samplers of other packages, by name, each with where it would be imported from."""
    from importlib.metadata import entry_points

    points = {_normal(point.name): point.value for point in entry_points(group="logitsmith.samplers")}
    return {name: value for name, value in points.items() if name not in _built_in_samplers()}


def _normal(name: str) -> str:
    """The snake_case form of a name."""
    return name.strip().lower().replace("-", "_")


def _sampler_items() -> list[CompletionItem]:
    """The samplers' names."""
    names = [CompletionItem(name, sampler.summary) for name, sampler in _built_in_samplers().items()]
    return [*names, *(CompletionItem(name, f"plug-in {value}") for name, value in _plugins().items())]


_FILE = Path(__file__).with_name("samplers.json")
"""Made from the samplers by ``python tools/sampler_names.py``."""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def _plugin(name: str) -> _SamplerName | None:
    from ...samplers.errors import SamplingError
    from ...samplers.registry import find_sampler

    try:
        cls = find_sampler(name)
    except SamplingError:  # a plug-in that cannot be used: the command says so
        return None
    parameters = {key: info.description or "" for key, info in cls.model_fields.items()}
    return _SamplerName(cls.about.summary, cls.about.main_parameter, parameters)


_NAMES: Mapping[CompletionKind, Callable[[], Iterable[CompletionItem]]] = {
    CompletionKind.CHAT: _chats,
    CompletionKind.EXPORT_FORMAT: _export_formats,
    CompletionKind.GRAMMAR: _grammars,
    CompletionKind.GRAMMAR_NAME: _grammars,
    CompletionKind.IMPORT_FORMAT: _import_formats,
    CompletionKind.PRESET: _presets_and_model,
    CompletionKind.PRESET_FILE: _presets,
    CompletionKind.SAMPLER: _sampler_items,
}
_NAMES_OR_FILES = (CompletionKind.GRAMMAR, CompletionKind.PRESET, CompletionKind.PRESET_FILE)
_PARTS: Mapping[CompletionKind, Callable[[str], CompletionResult]] = {
    CompletionKind.CHAIN: _complete_chain,
    CompletionKind.LLAMA_CPP_SAMPLERS: _complete_sequence,
    CompletionKind.MODEL: _complete_model,
    CompletionKind.PRESET_OR_CHAIN: _preset_or_chain,
    CompletionKind.SETTING: _complete_setting,
}
