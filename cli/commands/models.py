"""`gen models`: list the models on this machine, show a model, or download a model."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.flags import CompletionKind
from ...common.text import count_noun
from ..command_line import GenCommand
from ..command_options import takes_group_options, takes_options
from ..flags import REQUIRED, Options, argument, flag
from ..inputs.model import find_model_files, pull
from ..messages import print_note
from ..startup import start_collector

if TYPE_CHECKING:
    from ...models.facts import ModelSummary
    from ...models.folders import ResolvedModel
    from ...models.listing import ModelEntry


class ModelsFormat(StrEnum):
    """A format of the printed models."""

    text = "text"
    json = "json"


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(Options):
    """The options of `gen models` without a command, which lists models."""

    format: ModelsFormat = flag(
        "--format",
        help="Format of the list: a table, or JSON with all facts and paths. [text]",
        default=ModelsFormat.text,
    )
    has_missing: bool = flag("--all", help="Also list models of Ollama whose file is missing.", default=False)


@dataclass(frozen=True, kw_only=True)
class ModelListOptions(ModelsOptions):
    """The options of `gen models list`."""

    part: str | None = argument("PART", display_name="PART", help="List only models whose names contain this.")


@dataclass(frozen=True, kw_only=True)
class ModelShowOptions(Options):
    """The options of `gen models show`."""

    name: str = argument(
        "NAME",
        display_name="NAME",
        help="Name of a model, a part of the name, or a file.",
        default=REQUIRED,
        completion_kind=CompletionKind.MODEL,
    )
    format: ModelsFormat = flag(
        "--format", help="Format of the facts; json = the complete metadata. [text]", default=ModelsFormat.text
    )


@dataclass(frozen=True, kw_only=True)
class ModelPullOptions(Options):
    """The options of `gen models pull`."""

    reference: str = argument(
        "hf:USER/REPO[:QUANT]",
        display_name="the model",
        help="Repository on Hugging Face and quantization, or hf:USER/REPO/FILE.gguf. [Q4_K_M, or else Q8_0]",
        default=REQUIRED,
    )


app = typer.Typer(help="List the models on this machine, show one, or download one.", add_completion=False)


@app.callback(invoke_without_command=True)
@takes_group_options(ModelsOptions)
def models(options: ModelsOptions, command: str | None) -> None:
    """List the models on this machine, show one, or download one. Without a command, list them."""
    if command is None:
        _list(ModelListOptions(format=options.format, has_missing=options.has_missing))
        return
    for name, is_given in (("--format", options.format is not ModelsFormat.text), ("--all", options.has_missing)):
        if is_given:
            raise UsageError(f"{name} must follow the command: gen models {command} {name}")


@app.command("list", cls=GenCommand)
@takes_options(ModelListOptions)
def list_(options: ModelListOptions) -> None:
    """List the models of Hugging Face, Ollama, LM Studio, llama.cpp, GPT4All and Jan, and in your folders."""
    _list(options)


@app.command(cls=GenCommand)
@takes_options(ModelShowOptions)
def show(options: ModelShowOptions) -> None:
    """Show the metadata of a model, its special tokens, and the sampling settings of its author."""
    from ...models.facts import read_facts, read_summaries
    from ..render.models import show_facts

    start_collector()
    files, _ = find_model_files(options.name)
    entry = _entry_of(files, options.name)
    summary = next(iter(read_summaries([entry])))
    facts = read_facts(files.path, entry.ollama_settings_file)
    if options.format is ModelsFormat.json:
        print(json.dumps({**summary.as_json(), **facts.as_json()}, indent=2, ensure_ascii=False))
    else:
        show_facts(summary, facts)


@app.command("pull", cls=GenCommand)
@takes_options(ModelPullOptions)
def pull_(options: ModelPullOptions) -> None:
    """Download a model from Hugging Face into the cache, continuing an earlier download.

    Private repositories need an access token in HF_TOKEN or from `hf auth login`.
    """
    from ...models.resolve import parse_hub_reference

    start_collector()
    reference = parse_hub_reference(options.reference)
    path = pull(reference)
    print_note(f"{reference} is downloaded; use it with gen -m {reference}")
    print(path)


def _list(options: ModelListOptions) -> None:
    from ...models.facts import read_summaries
    from ...models.listing import list_models
    from ...presets.user_config import user_config
    from ..render.models import show_models

    start_collector()
    part = (options.part or "").lower()
    found = list_models(user_config().model_folders, print_note, includes_missing=True)
    entries = [entry for entry in found if part in entry.name.lower()]
    listed = [entry for entry in entries if options.has_missing or not entry.is_missing]
    summaries = list(read_summaries(listed))
    usable = [summary for summary in summaries if summary.is_model]
    if options.format is ModelsFormat.json:
        json.dump([summary.as_json() for summary in usable], sys.stdout, indent=2, ensure_ascii=False)
        print()
    elif usable:
        show_models(usable)
    hidden = len(entries) - len(listed)
    _report_rest(summaries, usable, options.part, has_hidden=hidden > 0)
    if hidden:
        print_note(f"{count_noun(hidden, 'model')} not listed: file missing; shown with --all")


def _report_rest(
    summaries: list[ModelSummary], usable: list[ModelSummary], part: str | None, *, has_hidden: bool
) -> None:
    """Print notes about files that are not listed, except hidden models, and advice if no model is found."""
    unusable_count = len(summaries) - len(usable)
    if unusable_count:
        print_note(
            f"{count_noun(unusable_count, 'file')} not listed: projectors, adapters, or files without a model"
        )
    if not usable and not has_hidden:
        problem = f"no model has {part!r} in its name" if part else "no model was found"
        print_note(
            f"{problem}; download one with gen models pull hf:USER/REPO, or add folders as model_folders: in the"
            " config"
        )


def _entry_of(files: ResolvedModel, name: str) -> ModelEntry:
    """Return the entry of a file in the list of models; a new entry if the file is in none of the folders."""
    from ...models.listing import ModelEntry, list_models
    from ...models.names import first_part, part_paths
    from ...presets.user_config import user_config

    path = first_part(files.path)
    same = [entry for entry in list_models(user_config().model_folders) if entry.path == path]
    same = [entry for entry in same if entry.adapters == files.adapters] or same
    bare = name.lower().removeprefix("ollama:")
    named = [entry for entry in same if bare in entry.name.lower()]
    return next(iter(named or same), None) or ModelEntry(
        path.stem, "a file", path, tuple(part for part in part_paths(path) if part.is_file()) or (path,)
    )
