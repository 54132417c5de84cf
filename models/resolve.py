"""From what ``-m`` takes to a file: a path, a name or a part of it, ``ollama:``, ``lmstudio:`` or ``hf:``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..common.text import nearest_name
from . import folders as locations
from . import listing as scanning
from .errors import ModelError
from .folders import ProblemReporter
from .listing import (
    ModelEntry,
    current_system,
    find_hugging_face_models,
    find_lm_studio_models,
    find_ollama_models,
    list_models,
)
from .names import choose_file, is_model_file_name, part_paths

_REPOSITORY = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:/(?P<file>.+)|:(?P<tag>[^/:]+))?", re.ASCII)
_HUB_PREFIXES = ("hf:", "hf.co/", "huggingface.co/")
_HUB_ADDRESSES = ("https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/")
_MAX_CANDIDATES = 12
"""Names in a message."""


@dataclass(frozen=True)
class HubReference:
    """A model on Hugging Face's hub.

    Attributes: ``repository``, ``USER/REPO``; ``tag``, a quantisation, and ``file``, a path in the repository: at
    most one of them is not None.
    """

    repository: str
    tag: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        suffix = f":{self.tag}" if self.tag else f"/{self.file}" if self.file else ""
        return f"hf:{self.repository}{suffix}"

    def choose(self, paths: Iterable[str]) -> str | None:
        """Return the file of the repository that is meant, the first part of a split model; None if none fits."""
        if self.file is None:
            return choose_file(paths, self.tag)
        first = part_paths(Path(self.file))[0].as_posix()
        return next((path for path in paths if path.lower() in (first.lower(), self.file.lower())), None)


class ModelNotHereError(ModelError):
    """A model of the hub that is not on this machine, or not whole. Attributes: ``reference``."""

    def __init__(self, reference: HubReference, missing: Path | None = None) -> None:
        what = "not on this machine" if missing is None else f"its part {missing.name} is not on this machine"
        super().__init__(f"{reference}: {what}; gen models pull {reference} downloads it")
        self.reference = reference


def parse_hub_reference(text: str) -> HubReference:
    """Return what ``USER/REPO``, ``USER/REPO:QUANT`` or ``USER/REPO/FILE.gguf`` names, with ``hf:`` or without.

    The address of a repository's page is taken, too. Raises ``ModelError`` for another text.
    """
    if text.startswith("ollama:"):
        name = text.removeprefix("ollama:")
        raise ModelError(
            f"{text}: gen downloads from Hugging Face only; `ollama pull {name}` gets it, and gen reads it"
        )
    rest = text.removeprefix("hf:")
    rest = next((rest[len(start) :] for start in _HUB_ADDRESSES if rest.startswith(start)), rest)
    match = _REPOSITORY.fullmatch(rest.strip("/"))
    if match is None:
        raise ModelError(f"{text!r} is not hf:USER/REPO, hf:USER/REPO:QUANT or hf:USER/REPO/FILE.gguf")
    tag, file = match["tag"], match["file"]
    if tag is not None and tag.lower().endswith(".gguf"):
        tag, file = None, tag
    if file is not None:
        file = re.sub(r"^(?:resolve|blob)/[^/]+/", "", file.partition("?")[0])
        if not file.lower().endswith(".gguf"):
            raise ModelError(f"{text!r}: {file} is no GGUF file; the form is hf:USER/REPO/FILE.gguf")
    return HubReference(match["repository"], tag, file)


def resolve_model(text: str | Path, folders: Iterable[str | Path] = ()) -> Path:
    """Return the GGUF file that a text names.

    The text is a path; ``ollama:NAME[:TAG]``, ``lmstudio:NAME[@QUANT]``, ``hf:USER/REPO[:QUANT]`` or
    ``hf:USER/REPO/FILE.gguf``; a name of `list_models`; or a part of one that occurs once, in any case. What looks
    like a path and names nothing is returned as it is. Nothing is downloaded.

    Args:
        text: What the user wrote.
        folders: The user's own model folders.

    Raises ``ModelNotHereError`` for a model of the hub that is not on this machine, and ``ModelError`` for a name
    that no model has, or several, with the candidates.
    """
    text = str(text)
    path = Path(text).expanduser()
    looks_like_path = text.startswith((".", "/", "~"))
    if looks_like_path or (_exists(path) and not (path.is_dir() and os.sep not in text)):
        return path
    unreadable: list[str] = []
    if text.startswith("ollama:"):
        return _resolve_of_tool(text, "Ollama", find_ollama_models, unreadable)
    if text.startswith("lmstudio:"):
        return _resolve_of_tool(text, "LM Studio", find_lm_studio_models, unreadable)
    if text.startswith(_HUB_PREFIXES):
        return _resolve_of_hub(text)
    entries = list_models(folders, includes_missing=True)
    entry = _find_under_all_names(text, entries, folders)
    if entry is not None:
        return entry.path
    if _exists(path) or text.lower().endswith(".gguf"):
        return path
    hint = _nearest_name_hint(text, entries)
    raise ModelError(f"{text}: there is no such file, and no model of this name{hint}; gen models lists them")


def _resolve_of_tool(
    text: str,
    tool: str,
    find: Callable[[locations.SystemFolders, ProblemReporter], Iterator[ModelEntry]],
    unreadable: list[str],
) -> Path:
    entries = list(find(current_system(), unreadable.append))
    entry = _find_entry(text, entries)
    if entry is not None:
        return entry.path
    names = ", ".join([entry.name for entry in entries if not entry.is_missing][:_MAX_CANDIDATES])
    if names:
        raise ModelError(
            f"{text}: {tool} has no model of this name here{_nearest_name_hint(text, entries)}; it has {names}"
        )
    why = f" ({unreadable[0]})" if unreadable else ""
    raise ModelError(f"{text}: no model of {tool} is found on this machine{why}; gen models lists the others")


def _resolve_of_hub(text: str) -> Path:
    if "/" not in text:  # a part of a name
        entries = list(find_hugging_face_models(current_system(), lambda _: None))
        entry = _find_entry(text, entries)
        if entry is not None:
            return entry.path
    reference = parse_hub_reference(text)
    files = _local_repository_files(reference.repository)
    chosen = reference.choose(files)
    if chosen is None:
        raise ModelNotHereError(reference)
    missing = next((part for part in part_paths(files[chosen]) if not part.is_file()), None)
    if missing is not None:
        raise ModelNotHereError(reference, missing)
    return files[chosen]


def _local_repository_files(repository: str) -> dict[str, Path]:
    """The files of a repository that are on this machine, by their paths in it.

    They are looked for in Hugging Face's cache, then in LM Studio's folders, which keep the names of publisher and
    repository, then in that of older versions of llama.cpp, which joins all names by underscores.
    """
    system = current_system()
    files: dict[str, Path] = {}
    for cache in locations.hugging_face_folders(system):
        folder = scanning.repository_folder(cache, repository)
        for relative, file in scanning.repository_files(folder, lambda _: None).items():
            files.setdefault(relative, file.path)
    for models in locations.lm_studio_folders(system):
        for file in scanning.find_in_folder(models / repository, lambda _: None):
            files.setdefault(file.relative, file.path)
    start = repository.replace("/", "_") + "_"
    for folder in locations.llama_cpp_folders(system):
        for path in sorted(folder.glob(f"{start}*.gguf")) if folder.is_dir() else ():
            if is_model_file_name(path.name):
                files.setdefault(path.name[len(start) :], path)
    return files


def _find_under_all_names(
    text: str, entries: list[ModelEntry], folders: Iterable[str | Path]
) -> ModelEntry | None:
    """Return the entry of a name as `_find` does; the name may be what another tool calls a file of the list."""
    sought = text.lower()
    if any(sought in _lower_case_names(entry) for entry in entries):
        return _find_entry(text, entries)
    everything = list_models(folders, includes_all_names=True, includes_missing=True)
    named = [entry for entry in everything if sought in _lower_case_names(entry)]
    return _find_entry(text, named or entries) or _find_entry(text, everything)


def _find_entry(text: str, entries: list[ModelEntry]) -> ModelEntry | None:
    """Return the entry of a name, or of a part that one entry only has; None if no entry has it.

    Entries whose file is missing count only if no other entry fits. Raises ``ModelError`` that names the
    candidates, or the missing file.
    """
    sought = text.lower()
    exact = [entry for entry in entries if sought in _lower_case_names(entry)]
    words = [word for word in _without_tool_prefix(sought).split("@") if word]
    matches = exact or [entry for entry in entries if _contains_all_words(entry, words)]
    matches = [entry for entry in matches if not entry.is_missing] or matches
    if len({entry.path for entry in matches}) <= 1:
        entry = matches[0] if matches else None
        if entry is not None and entry.is_missing:
            raise ModelError(
                f"{text}: the file of {entry.name} is missing ({entry.path}); {entry.advice_if_missing}"
            )
        return entry
    names = ", ".join(entry.name for entry in matches[:_MAX_CANDIDATES])
    more = f" and {len(matches) - _MAX_CANDIDATES} more" if len(matches) > _MAX_CANDIDATES else ""
    raise ModelError(f"{text} fits {len(matches)} models: {names}{more}; give more of the name")


def _lower_case_names(entry: ModelEntry) -> set[str]:
    """All names of an entry in lower case: with and without the tool, the file's, Ollama's without ``:latest``."""
    name = entry.name.lower()
    bare = _without_tool_prefix(name)
    names = {name, bare, name.removesuffix(":latest"), bare.removesuffix(":latest")}
    if entry.source != "Ollama":
        names |= {entry.path.name.lower(), entry.path.stem.lower()}
    return names


def _without_tool_prefix(name: str) -> str:
    """A name without the tool before it."""
    return name.partition(":")[2] if name.startswith(("ollama:", "lmstudio:", "hf:")) else name


def _contains_all_words(entry: ModelEntry, words: list[str]) -> bool:
    """True if each word is a part of a name of the entry."""
    names = [_without_tool_prefix(entry.name.lower())]
    if entry.source != "Ollama":
        names.append(entry.path.name.lower())
    return bool(words) and all(any(word in name for name in names) for word in words)


def _nearest_name_hint(text: str, entries: list[ModelEntry]) -> str:
    """Words on the nearest name. The tool before it does not count: all names of a tool would be near."""
    shown = {_without_tool_prefix(name): entry.name for entry in entries for name in _lower_case_names(entry)}
    near = nearest_name(_without_tool_prefix(text.lower()), sorted(shown))
    return f" (did you mean {shown[near]}?)" if near else ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than a name may be, or with a NUL in it
        return False
