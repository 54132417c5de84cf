"""A list of all models on this machine, from the folders of all tools, and the name of a model in outputs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .folders import (
    HUB_CACHE_PREFIX,
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


@dataclass(frozen=True)
class ModelEntry:
    """A model on this machine.

    Attributes:
        name: name for ``-m``, such as ``ollama:llama3.2:1b``; unique in a list.
        source: the tool, such as ``Ollama``; ``bundled``; or a folder in the user's config.
        path: the GGUF file; of a split model, the first part.
        parts: all files of the model that exist; empty if a tool names a file that does not exist.
        ollama_settings_file: JSON file with the sampling settings that Ollama keeps for the model; None if there
            is none.
        adapters: LoRA adapters of Ollama's that belong to the model, which need not exist.
        has_projector: whether Ollama has a part for images, which gen does not use.
    """

    name: str
    source: str
    path: Path
    parts: tuple[Path, ...]
    ollama_settings_file: Path | None = None
    adapters: tuple[Path, ...] = ()
    has_projector: bool = False

    @property
    def is_missing(self) -> bool:
        """True if the tool names a file that does not exist; this happens with Ollama only."""
        return not self.parts

    @property
    def advice_if_missing(self) -> str:
        """Advice for the user if the file is missing."""
        return f"`ollama pull {self.name.removeprefix('ollama:')}` downloads it"


def list_models(
    folders: Iterable[str | Path] = (),
    report: ProblemReporter = lambda sentence: None,
    *,
    includes_all_names: bool = False,
    includes_missing: bool = False,
) -> list[ModelEntry]:
    """Return all models on this machine, sorted by name. No header is read.

    If two tools name one file, the name of the first tool counts, in this order: Hugging Face, Ollama, LM Studio,
    llama.cpp, GPT4All, Jan, the user's folders, the bundled model.

    Args:
        folders: model folders in the user's config.
        report: called with a sentence for each folder that cannot be read.
        includes_all_names: True to list a file under all names that tools and links give it.
        includes_missing: True to list models of Ollama whose file is missing, too; see `ModelEntry.is_missing`.
    """
    entries: list[ModelEntry] = []
    used_names: set[str] = set()
    first_source_by_file: dict[object, str] = {}
    for entry in _find_in_all_folders(current_system(), [Path(folder) for folder in folders], report):
        if entry.is_missing and not includes_missing:
            continue
        identity = _file_identity(entry.path)
        is_file_listed = identity in first_source_by_file  # under another tool's name, or the name of a link
        first_source = first_source_by_file.setdefault(identity, entry.source)
        # Several models of Ollama may have one file, if they have different adapters.
        is_other_model = first_source == entry.source == "Ollama"
        if is_file_listed and not is_other_model and not includes_all_names:
            continue
        is_name_used = entry.name.lower() in used_names
        name = str(entry.path) if is_name_used else entry.name
        if name.lower() in used_names:
            continue
        used_names.add(name.lower())
        entries.append(replace(entry, name=name))
    return sorted(entries, key=lambda entry: entry.name.lower())


def current_system() -> SystemFolders:
    """Return the folders of the current user."""
    try:
        home = Path.home()
    except RuntimeError:  # the user has no home folder
        home = Path("~")  # a folder that does not exist
    return SystemFolders(os.environ, home)


def tool_folders() -> list[Path]:
    """Return the folders of other tools that are searched for models. They need not exist."""
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
    for folder in _without_duplicates(ollama_folders(system)):
        yield from _find_in_ollama_folder(folder, report)


def find_lm_studio_models(system: SystemFolders, report: ProblemReporter) -> Iterator[ModelEntry]:
    for folder in _without_duplicates(lm_studio_folders(system)):
        yield from _find_in_lm_studio_folder(folder, report)


def find_hugging_face_models(system: SystemFolders, report: ProblemReporter) -> Iterator[ModelEntry]:
    for folder in _without_duplicates(hugging_face_folders(system)):
        yield from _find_in_hub_cache(folder, report)


def _find_in_all_folders(
    system: SystemFolders, folders: list[Path], report: ProblemReporter
) -> Iterator[ModelEntry]:
    yield from find_hugging_face_models(system, report)
    yield from find_ollama_models(system, report)
    yield from find_lm_studio_models(system, report)
    for folder in _without_duplicates(llama_cpp_folders(system)):
        yield from _find_in_plain_folder(folder, "llama.cpp", report)
    for folder in _without_duplicates(gpt4all_folders(system)):
        yield from _find_in_plain_folder(folder, "GPT4All", report)
    for folder in _without_duplicates(jan_folders(system)):
        yield from _find_in_jan_folder(folder, report)
    for folder in _without_duplicates(folders):
        if not folder.is_dir():
            report(f"model_folders: {folder}: there is no such folder")
        yield from _find_in_hub_cache(folder, report)
        yield from _find_in_plain_folder(folder, str(folder), report)
    bundled = bundled_model()
    if bundled is not None and bundled.is_file():
        yield ModelEntry(bundled.stem, "bundled", bundled, (bundled,))


def _without_duplicates(folders: Iterable[Path]) -> list[Path]:
    """Return the folders without duplicates, such as a link and its target."""
    by_identity: dict[object, Path] = {}
    for folder in folders:
        by_identity.setdefault(_file_identity(folder), folder)
    return list(by_identity.values())


def _file_identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return status.st_dev, status.st_ino


class FoundModel(NamedTuple):
    """A model that was found in a folder."""

    relative: str  # path relative to the folder, with slashes
    path: Path  # the file; of a split model, the first part that exists
    parts: tuple[Path, ...]  # all files of the model that exist


def find_in_folder(folder: Path, report: ProblemReporter) -> Iterator[FoundModel]:
    """Yield the models in a folder and its subfolders, sorted. The parts of a split model are one model."""
    # A folder that several links lead to is searched once. ``report`` is called with a sentence for each folder
    # that cannot be read.
    listed_parts: set[Path] = set()
    for directory, files in walk_folders(folder, report):
        links_last = sorted(files, key=lambda name: (directory / name).is_symlink())
        for name in links_last:
            path = directory / name
            if path in listed_parts or not is_model_file_name(name) or not path.is_file():
                continue
            parts = tuple(part for part in part_paths(path) if part.is_file())
            listed_parts.update(parts)
            yield FoundModel(parts[0].relative_to(folder).as_posix(), parts[0], parts)


def _find_in_hub_cache(cache: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield the models in a folder with the layout of Hugging Face's cache."""
    for folder in subfolders(cache, report):
        if folder.name.startswith(HUB_CACHE_PREFIX):
            repository = folder.name.removeprefix(HUB_CACHE_PREFIX).replace("--", "/")
            files = repository_files(folder, report)
            for file in files.values():
                name = _name_of_hub_file(repository, file.relative, files)
                yield ModelEntry(name, "Hugging Face", file.path, file.parts)


def repository_folder(cache: Path, repository: str) -> Path:
    """Return the folder of a repository ``USER/REPO`` in Hugging Face's cache."""
    return cache / (HUB_CACHE_PREFIX + repository.replace("/", "--"))


def repository_files(folder: Path, report: ProblemReporter) -> Mapping[str, FoundModel]:
    """Return the models of a repository in Hugging Face's cache, by their paths in the repository."""
    # The snapshot of ``main`` takes precedence. Files that are only in older snapshots are added.
    snapshots = folder / "snapshots"
    current_commit = read_text(folder / "refs" / "main").strip()
    newest_first = sorted(subfolders(snapshots, report), key=modification_time, reverse=True)
    current_first = sorted(newest_first, key=lambda path: path.name != current_commit)
    files: dict[str, FoundModel] = {}
    for snapshot in current_first:
        for file in find_in_folder(snapshot, report):
            known_file = files.get(file.relative)
            if known_file is None or len(known_file.parts) < len(file.parts):
                files[file.relative] = file
    return files


def _find_in_lm_studio_folder(folder: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield LM Studio's models, which are stored as ``PUBLISHER/MODEL/FILE.gguf``."""
    files_by_model: dict[str, list[FoundModel]] = {}
    for file in find_in_folder(folder, report):
        *parent_folders, _ = file.relative.split("/")
        model = "/".join(parent_folders[:2]) or _file_stem(file.relative)
        files_by_model.setdefault(model, []).append(file)
    for model, files in files_by_model.items():
        tags = [quantization_tag(file.path.name) for file in files]
        for file, tag in zip(files, tags, strict=True):
            is_tag_unique = tags.count(tag) == 1
            if len(files) == 1:
                suffix = ""
            elif tag and is_tag_unique:
                suffix = f"@{tag.lower()}"
            else:
                suffix = f"/{_file_stem(file.path.name)}"
            yield ModelEntry(f"lmstudio:{model}{suffix}", "LM Studio", file.path, file.parts)


# the line of Jan's model.yml with the path of the model
_MODEL_PATH_LINE = re.compile(r"^model_path:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)


def _find_in_jan_folder(folder: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield Jan's models. Each is in a folder with the model's name, or model.yml has the path of the file."""
    data_folder = folder.parent.parent
    named_files: set[Path] = set()
    for directory, files in walk_folders(folder, report):
        if "model.yml" not in files:
            continue
        match = _MODEL_PATH_LINE.search(read_text(directory / "model.yml"))
        path = data_folder / match[1] if match else directory / "model.gguf"
        if path.is_file() and is_model_file_name(path.name):
            parts = tuple(part for part in part_paths(path) if part.is_file())
            named_files.update(parts)
            yield ModelEntry(directory.relative_to(folder).as_posix(), "Jan", parts[0], parts)
    for file in find_in_folder(folder, report):
        if file.path in named_files:
            continue
        name = _file_stem(file.path.name)
        parent_folder = file.relative.rpartition("/")[0]
        if name == "model" and parent_folder:
            name = parent_folder
        yield ModelEntry(name, "Jan", file.path, file.parts)


def _find_in_plain_folder(folder: Path, source: str, report: ProblemReporter) -> Iterator[ModelEntry]:
    for file in find_in_folder(folder, report):
        yield ModelEntry(_file_stem(file.path.name), source, file.path, file.parts)


def _file_stem(name: str) -> str:
    return name[: -len(".gguf")] if name.lower().endswith(".gguf") else name


def _name_of_hub_file(repository: str, relative: str, files: Iterable[str]) -> str:
    tag = quantization_tag(relative.rpartition("/")[2])
    is_chosen = bool(tag) and choose_file(files, tag) == relative
    return f"hf:{repository}:{tag}" if is_chosen else f"hf:{repository}/{relative}"


_MANIFEST_FOLDERS = ("manifests", "manifest-v2")
# Starts of full names that Ollama omits when it shows a name
_HIDDEN_PREFIXES = ("registry.ollama.ai/library/", "ollama.com/library/", "registry.ollama.ai/", "ollama.com/")
_MODEL_MEDIA_TYPE = "application/vnd.ollama.image.model"
_ADAPTER_MEDIA_TYPE = "application/vnd.ollama.image.adapter"
_PROJECTOR_MEDIA_TYPE = "application/vnd.ollama.image.projector"
_SETTINGS_MEDIA_TYPE = "application/vnd.ollama.image.params"
# Pattern of a digest in a manifest, and of the name of a file in Ollama's store
_DIGEST_PATTERN = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


def _find_in_ollama_folder(root: Path, report: ProblemReporter) -> Iterator[ModelEntry]:
    """Yield Ollama's models. Each model has a manifest that names its GGUF file, which may be missing."""
    listed_names: set[str] = set()
    for manifest_folder in _MANIFEST_FOLDERS:
        manifests = root / manifest_folder
        for directory, files in walk_folders(manifests, report):
            model = directory.relative_to(manifests).as_posix()
            is_model = model.count("/") == 2  # HOST/NAMESPACE/MODEL, a folder of manifests that are named by tags
            if not is_model:
                continue
            for tag in files:
                entry = _ollama_entry(root, f"{model}:{tag}", read_json(directory / tag))
                if entry is not None and entry.name not in listed_names:
                    listed_names.add(entry.name)
                    yield entry


def _ollama_entry(root: Path, full_name: str, manifest: Any) -> ModelEntry | None:
    layers = _ollama_layers(root, manifest)
    # The first layer of each type counts.
    digests = {layer.get("mediaType"): layer.get("digest") for layer in reversed(layers)}
    path = _find_blob(root, digests.get(_MODEL_MEDIA_TYPE), allows_missing=True)
    if path is None:
        return None
    adapters: list[Path] = []
    for layer in layers:
        if layer.get("mediaType") == _ADAPTER_MEDIA_TYPE:
            adapter = _find_blob(root, layer.get("digest"), allows_missing=True)
            if adapter is not None:
                adapters.append(adapter)
    return ModelEntry(
        name=f"ollama:{_shown_ollama_name(full_name)}",
        source="Ollama",
        path=path,
        parts=(path,) if path.is_file() else (),
        ollama_settings_file=_find_blob(root, digests.get(_SETTINGS_MEDIA_TYPE)),
        adapters=tuple(adapters),
        has_projector=_PROJECTOR_MEDIA_TYPE in digests,
    )


def _shown_ollama_name(full_name: str) -> str:
    """Return the name that Ollama shows for a full name, such as ``registry.ollama.ai/library/llama3.2:1b``."""
    for prefix in _HIDDEN_PREFIXES:
        if full_name.startswith(prefix):
            return full_name.removeprefix(prefix)
    return full_name


def _ollama_layers(root: Path, manifest: Any) -> list[Mapping[str, Any]]:
    """Return the layers of a manifest, or of the first manifest with a GGUF file in a list of manifests."""
    if not isinstance(manifest, dict):
        return []
    child_manifests = manifest.get("manifests")
    if isinstance(child_manifests, list):
        for child_manifest in child_manifests:
            layers = _ollama_layers(root, _complete_manifest(root, child_manifest))
            if any(layer.get("mediaType") == _MODEL_MEDIA_TYPE for layer in layers):
                return layers
        return []
    layers_value = manifest.get("layers")
    if not isinstance(layers_value, list):
        return []
    return [layer for layer in layers_value if isinstance(layer, dict)]


def _complete_manifest(root: Path, manifest: Any) -> Any:
    """Return a manifest of a list. If the list has only its digest, the manifest is read from the store."""
    has_only_digest = isinstance(manifest, dict) and not manifest.get("layers")
    if not has_only_digest:
        return manifest
    blob = _find_blob(root, manifest.get("digest"))
    return None if blob is None else read_json(blob)


def _find_blob(root: Path, digest: object, *, allows_missing: bool = False) -> Path | None:
    """Return the file with a digest in Ollama's store; None if there is no such file."""
    # ``allows_missing``: whether the path of a missing file is returned, too
    match = _DIGEST_PATTERN.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        return None
    names = (f"sha256-{match[1]}", f"sha256:{match[1]}")  # Ollama before 0.1.33 wrote a colon
    paths = [root / "blobs" / name for name in names]
    for path in paths:
        if path.is_file():
            return path
    return paths[0] if allows_missing else None


def model_name(path: Path, adapters: Iterable[Path] = ()) -> str:
    """Return the name of a model for outputs: the file's name without suffix, or ``ollama:NAME:TAG``."""
    # Files in Ollama's store are named by their digests, so the name is searched in the manifests. If several
    # manifests name the file, those with the same adapters are preferred. The shortest name is returned.
    entries = ollama_models_of(path)
    if not entries:
        return path.name if _is_blob(path) else path.stem
    used_adapters = set(adapters)
    with_same_adapters = [
        entry for entry in entries if entry.adapters and used_adapters.issuperset(entry.adapters)
    ]
    without_adapters = [entry for entry in entries if not entry.adapters]
    preferred_entries = with_same_adapters or without_adapters or entries
    return min((entry.name for entry in preferred_entries), key=lambda name: (len(name), name))


def ollama_models_of(path: Path) -> list[ModelEntry]:
    """Return the models of Ollama's that a file in Ollama's store belongs to."""
    if not _is_blob(path):
        return []
    return [entry for entry in _find_in_ollama_folder(path.parents[1], lambda _: None) if entry.path == path]


def _is_blob(path: Path) -> bool:
    return _DIGEST_PATTERN.fullmatch(path.name) is not None and path.parent.name == "blobs"
