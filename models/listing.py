"""Every model on this machine, from all the folders where tools keep them, and what outputs call a model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..common.renamed import supports_old_names
from .folders import (
    REPOSITORY_PREFIX,
    ProblemReporter,
    SystemFolders,
    bundled_model,
    gpt4all_folders,
    hugging_face_folders,
    jan_folders,
    llama_cpp_folders,
    lm_studio_folders,
    modification_time,
    ollama_folders,
    read_json,
    read_text,
    subfolders,
    walk_folders,
)
from .names import choose_file, is_model_file_name, part_paths, quantization_tag


@supports_old_names
@dataclass(frozen=True)
class ModelEntry:
    """A model in one of the folders where tools keep them.

    Attributes:
        name: What ``-m`` takes, such as ``ollama:llama3.2:1b``; no two entries of a list share one.
        source: The tool, such as ``Ollama``; ``bundled``; or the folder of the user's config.
        path: The GGUF file; of a split model, the first part.
        parts: All its files that exist; none if the file is missing that a tool names.
        ollama_settings_file: JSON file with the sampling settings that Ollama keeps for the model; None if there
            is none.
    """

    name: str
    source: str
    path: Path
    parts: tuple[Path, ...]
    ollama_settings_file: Path | None = None

    @property
    def is_missing(self) -> bool:
        """True if the tool names a file that does not exist."""
        return not self.parts

    @property
    def advice_if_missing(self) -> str:
        """Advice for a missing file; only Ollama's models are listed without one."""
        return f"`ollama pull {self.name.removeprefix('ollama:')}` downloads it"


@supports_old_names
def list_models(
    folders: Iterable[str | Path] = (),
    report: ProblemReporter = lambda sentence: None,
    *,
    includes_all_names: bool = False,
    includes_missing: bool = False,
) -> list[ModelEntry]:
    """Return every model on this machine, by its name; no header is read.

    A file that two tools name counts once, for the first of: Hugging Face, Ollama, LM Studio, llama.cpp, GPT4All,
    Jan, the user's folders, the bundled one.

    Args:
        folders: The user's own model folders.
        report: Called with a sentence for each folder that cannot be read.
        includes_all_names: True: a file that two tools name is listed under each of the names.
        includes_missing: True: models of Ollama whose file is missing are listed, too; see
            `ModelEntry.is_missing`.
    """
    entries: list[ModelEntry] = []
    names: set[str] = set()
    sources: dict[object, str] = {}
    for entry in _find_in_all_folders(current_system(), [Path(folder) for folder in folders], report):
        if entry.is_missing and not includes_missing:
            continue
        first_source = sources.setdefault(_identity(entry.path), entry.source)
        if first_source != entry.source and not includes_all_names:
            continue  # another tool has it, too
        name = entry.name if entry.name.lower() not in names else str(entry.path)
        if name.lower() in names:
            continue
        names.add(name.lower())
        entries.append(replace(entry, name=name))
    return sorted(entries, key=lambda entry: entry.name.lower())


def current_system() -> SystemFolders:
    """Return the folders of this user."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("~")  # a user without a home folder: none of them exists
    return SystemFolders(os.environ, home)


def tool_folders() -> list[Path]:
    """Return the folders of other tools in which models are looked for; they need not exist."""
    system = current_system()
    return [
        *hugging_face_folders(system),
        *ollama_folders(system),
        *lm_studio_folders(system),
        *llama_cpp_folders(system),
        *gpt4all_folders(system),
        *jan_folders(system),
    ]


def find_ollama_models(system: SystemFolders, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield the models of Ollama."""
    for folder in _unique(ollama_folders(system)):
        yield from _find_in_ollama_folder(folder, report)


def find_lm_studio_models(system: SystemFolders, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield the models of LM Studio."""
    for folder in _unique(lm_studio_folders(system)):
        yield from _find_in_lm_studio_folder(folder, report)


def find_hugging_face_models(system: SystemFolders, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield the models in Hugging Face's cache."""
    for folder in _unique(hugging_face_folders(system)):
        yield from _find_in_hub_cache(folder, report)


def _find_in_all_folders(
    system: SystemFolders, folders: list[Path], report: ProblemReporter
) -> Iterator[ModelEntry]:
    yield from find_hugging_face_models(system, report)
    yield from find_ollama_models(system, report)
    yield from find_lm_studio_models(system, report)
    for folder in _unique(llama_cpp_folders(system)):
        yield from _find_in_plain_folder(folder, "llama.cpp", report)
    for folder in _unique(gpt4all_folders(system)):
        yield from _find_in_plain_folder(folder, "GPT4All", report)
    for folder in _unique(jan_folders(system)):
        yield from _find_in_jan_folder(folder, report)
    for folder in _unique(folders):
        if not folder.is_dir():
            report(f"model_folders: {folder}: there is no such folder")
        yield from _find_in_hub_cache(folder, report)
        yield from _find_in_plain_folder(folder, str(folder), report)
    bundled = bundled_model()
    if bundled is not None and bundled.is_file():
        yield ModelEntry(bundled.stem, "bundled", bundled, (bundled,))


def _unique(folders: Iterable[Path]) -> list[Path]:
    """The folders without those that are reached twice, as by a link."""
    by_identity: dict[object, Path] = {}
    for folder in folders:
        by_identity.setdefault(_identity(folder), folder)
    return list(by_identity.values())


def _identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return status.st_dev, status.st_ino


class FoundModel(NamedTuple):
    """A model below a folder. ``relative``: its path from there, with slashes; ``parts``: all files that exist."""

    relative: str
    path: Path
    parts: tuple[Path, ...]


def find_in_folder(folder: Path, report: ProblemReporter) -> Iterator[FoundModel]:
    """Yield the models below a folder, sorted; all parts of one model are one. Links are followed once."""
    seen: set[Path] = set()
    for directory, files in walk_folders(folder, report):
        for name in files:
            path = directory / name
            if path in seen or not is_model_file_name(name) or not path.is_file():
                continue
            parts = tuple(part for part in part_paths(path) if part.is_file())
            seen.update(parts)
            yield FoundModel(parts[0].relative_to(folder).as_posix(), parts[0], parts)


def _find_in_hub_cache(cache: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield the models in a folder with the layout of Hugging Face's cache."""
    for folder in subfolders(cache, report):
        if folder.name.startswith(REPOSITORY_PREFIX):
            repository = folder.name[len(REPOSITORY_PREFIX) :].replace("--", "/")
            files = repository_files(folder, report)
            for file in files.values():
                yield ModelEntry(
                    _hub_name(repository, file.relative, files), "Hugging Face", file.path, file.parts
                )


def repository_folder(cache: Path, repository: str) -> Path:
    """Return the folder of a repository ``USER/REPO`` in Hugging Face's cache."""
    return cache / (REPOSITORY_PREFIX + repository.replace("/", "--"))


def repository_files(folder: Path, report: ProblemReporter) -> Mapping[str, FoundModel]:
    """Return the models of a repository in Hugging Face's cache by their paths in it.

    The snapshot of ``main`` counts first. Files that only an older one has are added.
    """
    snapshots = folder / "snapshots"
    current = read_text(folder / "refs" / "main").strip()
    newest_first = sorted(subfolders(snapshots, report), key=modification_time, reverse=True)
    files: dict[str, FoundModel] = {}
    for snapshot in sorted(newest_first, key=lambda path: path.name != current):
        for file in find_in_folder(snapshot, report):
            known = files.get(file.relative)
            if known is None or len(known.parts) < len(file.parts):
                files[file.relative] = file
    return files


def _find_in_lm_studio_folder(folder: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield LM Studio's models, which lie in ``PUBLISHER/MODEL/FILE.gguf``."""
    by_model: dict[str, list[FoundModel]] = {}
    for file in find_in_folder(folder, report):
        model = "/".join(file.relative.split("/")[:-1][:2])
        by_model.setdefault(model or _stem(file.relative), []).append(file)
    for model, files in by_model.items():
        tags = [quantization_tag(file.path.name) for file in files]
        for file, tag in zip(files, tags, strict=True):
            is_known_by_tag = bool(tag) and tags.count(tag) == 1
            suffix = (
                "" if len(files) == 1 else f"@{tag.lower()}" if is_known_by_tag else f"/{_stem(file.path.name)}"
            )
            yield ModelEntry(f"lmstudio:{model}{suffix}", "LM Studio", file.path, file.parts)


_MODEL_PATH = re.compile(r"^model_path:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
"""In the model.yml of a model of Jan."""


def _find_in_jan_folder(folder: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield Jan's models: each lies in a folder that has its name, or its model.yml says where it is."""
    data = folder.parent.parent
    named: set[Path] = set()
    for directory, files in walk_folders(folder, report):
        if "model.yml" not in files:
            continue
        match = _MODEL_PATH.search(read_text(directory / "model.yml"))
        path = data / match[1] if match else directory / "model.gguf"
        if path.is_file() and is_model_file_name(path.name):
            parts = tuple(part for part in part_paths(path) if part.is_file())
            named.update(parts)
            yield ModelEntry(directory.relative_to(folder).as_posix(), "Jan", parts[0], parts)
    for file in find_in_folder(folder, report):
        if file.path in named:
            continue
        name = file.relative.rpartition("/")[0] if _stem(file.path.name) == "model" else _stem(file.path.name)
        yield ModelEntry(name or _stem(file.path.name), "Jan", file.path, file.parts)


def _find_in_plain_folder(folder: Path, source: str, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield the models of a folder by the names of their files."""
    for file in find_in_folder(folder, report):
        yield ModelEntry(_stem(file.path.name), source, file.path, file.parts)


def _stem(name: str) -> str:
    return name[: -len(".gguf")] if name.lower().endswith(".gguf") else name


def _hub_name(repository: str, relative: str, files: Iterable[str]) -> str:
    tag = quantization_tag(relative.rpartition("/")[2])
    is_chosen = bool(tag) and choose_file(files, tag) == relative
    return f"hf:{repository}:{tag}" if is_chosen else f"hf:{repository}/{relative}"


_ROOTS = ("manifests", "manifest-v2")
_DEFAULTS = ("registry.ollama.ai/library/", "ollama.com/library/", "registry.ollama.ai/", "ollama.com/")
"""What Ollama leaves out when it shows a name."""
_MODEL = "application/vnd.ollama.image.model"
_SETTINGS = "application/vnd.ollama.image.params"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
"""A digest in a manifest, and the name of a file in Ollama's store."""


def _find_in_ollama_folder(root: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield Ollama's models: each manifest names the blob of its GGUF file, which may be missing."""
    names: set[str] = set()
    for manifests in (root / name for name in _ROOTS):
        for directory, files in walk_folders(manifests, report):
            parent = directory.relative_to(manifests).as_posix()
            if parent.count("/") != 2:  # host/namespace/model, and the tags as files in it
                continue
            for tag in files:
                entry = _ollama_entry(root, f"{parent}:{tag}", read_json(directory / tag))
                if entry is not None and entry.name not in names:
                    names.add(entry.name)
                    yield entry


def _ollama_entry(root: Path, full_name: str, manifest: Any) -> ModelEntry | None:
    layers = _ollama_layers(root, manifest)
    digests = {layer.get("mediaType"): layer.get("digest") for layer in reversed(layers)}
    path = _blob(root, digests.get(_MODEL), is_needed=True)
    if path is None:
        return None
    name = next((full_name[len(start) :] for start in _DEFAULTS if full_name.startswith(start)), full_name)
    parts = (path,) if path.is_file() else ()
    return ModelEntry(f"ollama:{name}", "Ollama", path, parts, _blob(root, digests.get(_SETTINGS)))


def _ollama_layers(root: Path, manifest: Any) -> list[Mapping[str, Any]]:
    """The layers of a manifest; of a list of manifests, those of the first one with a GGUF file."""
    if not isinstance(manifest, dict):
        return []
    children = manifest.get("manifests")
    if isinstance(children, list):
        for child in children:
            if isinstance(child, dict) and not child.get("layers"):
                blob = _blob(root, child.get("digest"))
                child = None if blob is None else read_json(blob)  # noqa: PLW2901 - the manifest that it names
            layers = _ollama_layers(root, child)
            if any(layer.get("mediaType") == _MODEL for layer in layers):
                return layers
        return []
    listed = manifest.get("layers")
    return [layer for layer in listed if isinstance(layer, dict)] if isinstance(listed, list) else []


def _blob(root: Path, digest: object, *, is_needed: bool = False) -> Path | None:
    """The file of a digest; None if there is none. ``is_needed``: where it should lie, if it is missing."""
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        return None
    names = (f"sha256-{match[1]}", f"sha256:{match[1]}")  # versions before 0.1.33 wrote the colon
    paths = [root / "blobs" / name for name in names]
    return next((path for path in paths if path.is_file()), paths[0] if is_needed else None)


def model_name(path: Path) -> str:
    """Return the file's name without its suffix; for a file of Ollama's store ``ollama:NAME:TAG``.

    Ollama names files by their digests, and in its manifests. Of several names, this is the shortest.
    """
    if _DIGEST.fullmatch(path.name) and path.parent.name == "blobs":
        names = [
            entry.name for entry in _find_in_ollama_folder(path.parents[1], lambda _: None) if entry.path == path
        ]
        return min(names, key=lambda name: (len(name), name), default=path.name)
    return path.stem
