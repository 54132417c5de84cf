"""Finding the file of a model that ``-m`` names, by path, name, part of a name, or tool (``ollama:``, ``hf:``)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..common.text import nearest_name
from . import folders as locations, listing as scanning
from .errors import ModelError
from .folders import ProblemReporter, ResolvedModel
from .listing import (
    ModelEntry,
    current_system,
    find_hugging_face_models,
    find_lm_studio_models,
    find_ollama_models,
    list_models,
)
from .names import choose_file, is_model_file_name, part_paths

_HUB_REFERENCE = re.compile(
    r"""
    (?P<repository>\w[\w.-]*/\w[\w.-]*)
    (?:/(?P<file>.+) | :(?P<tag>[^/:]+))?
    """,
    re.VERBOSE | re.ASCII,
)
_HUB_PREFIXES = ("hf:", "hf.co/", "huggingface.co/")
_HUB_ADDRESSES = (
    *("https://huggingface.co/", "https://hf.co/", "http://huggingface.co/", "http://hf.co/"),
    *("https://www.huggingface.co/", "hf://", "huggingface://", "huggingface.co/", "hf.co/"),
)
_URL_PATTERN = re.compile(r"(?:https?|ftp|file|s3|gs|oci|docker|modelscope|ms|huggingface|hf)://", re.IGNORECASE)
_MAX_CANDIDATES = 12  # maximum number of models that a message names


@dataclass(frozen=True)
class HubReference:
    """A model on Hugging Face's hub. At most one of ``tag`` and ``file`` is given.

    Attributes:
        repository: ``USER/REPO``.
        tag: the quantization; None if it is not given.
        file: path of the file in the repository; None if it is not given.
    """

    repository: str
    tag: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        if self.tag:
            return f"hf:{self.repository}:{self.tag}"
        if self.file:
            return f"hf:{self.repository}/{self.file}"
        return f"hf:{self.repository}"

    def choose(self, paths: Iterable[str]) -> str | None:
        """Return the path of the model among the paths of the repository; None if no file fits.

        Of a split model, the first part is returned.
        """
        if self.file is None:
            return choose_file(paths, self.tag)
        first_part = part_paths(Path(self.file))[0].as_posix()
        wanted_paths = (first_part.lower(), self.file.lower())
        return next((path for path in paths if path.lower() in wanted_paths), None)


class ModelNotHereError(ModelError):
    """A model of the hub is not on this machine, or some of its parts are missing.

    Attributes:
        reference: the model.
    """

    def __init__(self, reference: HubReference, missing_part: Path | None = None) -> None:
        subject = "" if missing_part is None else f"its part {missing_part.name} is "
        super().__init__(f"{reference}: {subject}not on this machine; gen models pull {reference} downloads it")
        self.reference = reference


def parse_hub_reference(text: str) -> HubReference:
    """Return the model that a text names on the hub."""
    # The text is ``USER/REPO``, ``USER/REPO:QUANT`` or ``USER/REPO/FILE.gguf``, with or without ``hf:``, or the
    # URL of a repository's page. Raises ``ModelError`` for a text of another form.
    if text.startswith("ollama:"):
        name = text.removeprefix("ollama:")
        raise ModelError(
            f"{text}: gen downloads from Hugging Face only; run `ollama pull {name}`, then gen finds the model"
        )
    match = _HUB_REFERENCE.fullmatch(_without_hub_address(text.removeprefix("hf:")).strip("/"))
    if match is None:
        raise ModelError(f"{text!r} is not hf:USER/REPO, hf:USER/REPO:QUANT or hf:USER/REPO/FILE.gguf")
    tag, file = match["tag"], match["file"]
    if tag is not None and tag.lower().endswith(".gguf"):  # USER/REPO:FILE.gguf
        file = tag
        tag = None
    if file is not None:
        file = re.sub(r"^(?:resolve|blob)/[^/]+/", "", file.partition("?")[0])  # the path in the URL of a file
        if not file.lower().endswith(".gguf"):
            raise ModelError(f"{text!r}: {file} is not a GGUF file; the form is hf:USER/REPO/FILE.gguf")
    return HubReference(match["repository"], tag, file)


def _without_hub_address(text: str) -> str:
    for address in _HUB_ADDRESSES:
        if text.startswith(address):
            return text.removeprefix(address)
    return text


def resolve_model(text: str | Path, folders: Iterable[str | Path] = ()) -> Path:
    """Return the GGUF file that a text names, as `resolve_files` does, without the adapters."""
    return resolve_files(text, folders).path


def resolve_files(text: str | Path, folders: Iterable[str | Path] = ()) -> ResolvedModel:
    """Return the GGUF file that a text names, and its adapters. Nothing is downloaded.

    The text is one of these:

    - a path, which is returned even if there is no such file,
    - ``ollama:NAME[:TAG]``, ``lmstudio:NAME[@QUANT]``, ``hf:USER/REPO[:QUANT]`` or ``hf:USER/REPO/FILE.gguf``,
    - a name of `list_models`, or a part of only one such name, in upper or lower case.

    Args:
        text: the text, as the user typed it.
        folders: model folders in the user's config.

    Raises ``ModelNotHereError`` for a model of the hub that is not on this machine. Raises ``ModelError`` with the
    candidates for a name that no model has, or that several models have.
    """
    text = str(text)
    path = Path(text).expanduser()
    looks_like_path = text.startswith((".", "/", "~"))
    # A folder in the current folder may have the name of a model.
    may_be_name_of_folder = os.sep not in text and _exists(path) and path.is_dir()
    if looks_like_path or (_exists(path) and not may_be_name_of_folder):
        return ResolvedModel(path)
    if _URL_PATTERN.match(text) and not text.startswith(_HUB_ADDRESSES):
        raise ModelError(
            f"{text}: gen downloads from Hugging Face only; download the file, and give its path, or name a"
            " repository: hf:USER/REPO"
        )
    folder_problems: list[str] = []
    if text.startswith("ollama:"):
        return _resolve_name_of_tool(text, "Ollama", find_ollama_models, folder_problems)
    if text.startswith("lmstudio:"):
        return _resolve_name_of_tool(text, "LM Studio", find_lm_studio_models, folder_problems)
    if text.startswith((*_HUB_PREFIXES, *_HUB_ADDRESSES)):
        return ResolvedModel(_resolve_name_of_hub(text))
    entries = list_models(folders, includes_missing=True)
    entry = _find_under_all_names(text, entries, folders)
    if entry is not None:
        return _files_of(entry)
    if _exists(path) or text.lower().endswith(".gguf"):
        return ResolvedModel(path)
    hint = _nearest_name_hint(text, entries)
    raise ModelError(f"{text}: there is no such file, and no model of this name{hint}; gen models lists them")


def _files_of(entry: ModelEntry) -> ResolvedModel:
    """Return the files of a model. Raises ``ModelError`` for an adapter that is missing."""
    for adapter in entry.adapters:
        if not adapter.is_file():
            raise ModelError(f"{entry.name}: its adapter is missing ({adapter}); {entry.advice_if_missing}")
    return ResolvedModel(entry.path, entry.adapters, entry.has_projector)


def _resolve_name_of_tool(
    text: str,
    tool: str,
    find_models: Callable[[locations.SystemFolders, ProblemReporter], Iterator[ModelEntry]],
    folder_problems: list[str],
) -> ResolvedModel:
    entries = list(find_models(current_system(), folder_problems.append))
    entry = _find_entry(text, entries)
    if entry is not None:
        return _files_of(entry)
    existing_names = [entry.name for entry in entries if not entry.is_missing]
    if existing_names:
        hint = _nearest_name_hint(text, entries)
        names = ", ".join(existing_names[:_MAX_CANDIDATES])
        raise ModelError(f"{text}: {tool} has no model of this name here{hint}; it has {names}")
    reason = f" ({folder_problems[0]})" if folder_problems else ""
    raise ModelError(f"{text}: there is no model of {tool} on this machine{reason}; gen models lists other models")


def _resolve_name_of_hub(text: str) -> Path:
    if "/" not in text:  # a part of a name
        entries = list(find_hugging_face_models(current_system(), lambda _: None))
        entry = _find_entry(text, entries)
        if entry is not None:
            return entry.path
    reference = parse_hub_reference(text)
    files = _local_repository_files(reference.repository)
    chosen_path = reference.choose(files)
    if chosen_path is None:
        raise ModelNotHereError(reference)
    for part in part_paths(files[chosen_path]):
        if not part.is_file():
            raise ModelNotHereError(reference, missing_part=part)
    return files[chosen_path]


def _local_repository_files(repository: str) -> dict[str, Path]:
    """Return the files of a repository that are on this machine, by their paths in the repository."""
    # Hugging Face's cache takes precedence over LM Studio's folders, which have the names of publisher and
    # repository. The folder of older versions of llama.cpp, which joins all names by underscores, is searched
    # last.
    system = current_system()
    files: dict[str, Path] = {}
    for cache in locations.hugging_face_folders(system):
        folder = scanning.repository_folder(cache, repository)
        for relative, file in scanning.repository_files(folder, lambda _: None).items():
            files.setdefault(relative, file.path)
    for models_folder in locations.lm_studio_folders(system):
        for file in scanning.find_in_folder(models_folder / repository, lambda _: None):
            files.setdefault(file.relative, file.path)
    prefix = repository.replace("/", "_") + "_"
    for folder in locations.llama_cpp_folders(system):
        if folder.is_dir():
            for path in sorted(folder.glob(f"{prefix}*.gguf")):
                if is_model_file_name(path.name):
                    files.setdefault(path.name.removeprefix(prefix), path)
    return files


def _find_under_all_names(
    text: str, entries: list[ModelEntry], folders: Iterable[str | Path]
) -> ModelEntry | None:
    """Return the entry with a name as `_find_entry` does, but also search other tools' names of a file."""
    lower_text = text.lower()
    if any(lower_text in _lower_case_names(entry) for entry in entries):
        return _find_entry(text, entries)
    all_entries = list_models(folders, includes_all_names=True, includes_missing=True)
    exact_matches = [entry for entry in all_entries if lower_text in _lower_case_names(entry)]
    return _find_entry(text, exact_matches or entries) or _find_entry(text, all_entries)


def _find_entry(text: str, entries: list[ModelEntry]) -> ModelEntry | None:
    """Return the entry with a name, or the only entry whose name contains the text; None if there is none."""
    # Entries whose file is missing are ignored if another entry fits. Raises ``ModelError`` with the candidates if
    # several entries fit, and with the missing file if the file of the only entry is missing.
    lower_text = text.lower()
    exact_matches = [entry for entry in entries if lower_text in _lower_case_names(entry)]
    words = [word for word in _without_tool_prefix(lower_text).split("@") if word]
    matches = exact_matches or [entry for entry in entries if _contains_all_words(entry, words)]
    if not matches:
        return None
    matches = [entry for entry in matches if not entry.is_missing] or matches
    different_models = {(entry.path, entry.adapters) for entry in matches}
    if len(different_models) > 1:
        names = ", ".join(entry.name for entry in matches[:_MAX_CANDIDATES])
        if len(matches) > _MAX_CANDIDATES:
            names += f" and {len(matches) - _MAX_CANDIDATES} more"
        raise ModelError(f"{text} fits {len(matches)} models: {names}; type more of the name")
    entry = matches[0]
    if entry.is_missing:
        raise ModelError(f"{text}: the file of {entry.name} is missing ({entry.path}); {entry.advice_if_missing}")
    return entry


def _lower_case_names(entry: ModelEntry) -> set[str]:
    """Return all names of an entry in lower case, such as with and without the tool or the tag ``:latest``."""
    name = entry.name.lower()
    name_without_tool = _without_tool_prefix(name)
    names = {name, name_without_tool, name.removesuffix(":latest"), name_without_tool.removesuffix(":latest")}
    if entry.source != "Ollama":
        names |= {entry.path.name.lower(), entry.path.stem.lower()}
    return names


def _without_tool_prefix(name: str) -> str:
    """Return a name without the prefix of the tool."""
    return name.partition(":")[2] if name.startswith(("ollama:", "lmstudio:", "hf:")) else name


def _contains_all_words(entry: ModelEntry, words: list[str]) -> bool:
    """Return True if each word occurs in the name or file name of the entry."""
    names = [_without_tool_prefix(entry.name.lower())]
    if entry.source != "Ollama":
        names.append(entry.path.name.lower())
    return bool(words) and all(any(word in name for name in names) for word in words)


def _nearest_name_hint(text: str, entries: list[ModelEntry]) -> str:
    """Return a hint to the most similar name; empty if there is none."""
    # Names are compared without the prefix of the tool, which would make all names of a tool similar.
    full_names: dict[str, str] = {}
    for entry in entries:
        for name in _lower_case_names(entry):
            full_names[_without_tool_prefix(name)] = entry.name
    nearest = nearest_name(_without_tool_prefix(text.lower()), sorted(full_names))
    return f" (did you mean {full_names[nearest]}?)" if nearest else ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # the name is too long, or contains a NUL
        return False
