"""What is wrong with the command lines of `gen recover` and `gen recover-basis`, before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import typer

from .checks import check_model, check_text
from .recover_flags import Api, Method
from .recover_options import BasisOptions, RecoverOptions

_MODEL = ("context_size", "threads", "gpu_layers", "batch_size", "lora", "no_mmap", "mlock")
_OPENAI = ("api_model", "api_chat", "tokenizer")
_LLAMA_SERVER = ("pre_sampling", "slot", "vocab_size")
_REMOTE = ("api", *_OPENAI, "key_env", *_LLAMA_SERVER, "rate", "timeout", "retries")


def given(context: typer.Context) -> dict[str, str]:
    """The options that the command line names, each with its flag; a default is not given."""
    found = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name and source is not None and source.name == "COMMANDLINE":
            found[parameter.name] = parameter.opts[0]
    return found


def check_recover(options: RecoverOptions, flags: Mapping[str, str]) -> None:
    """Refuse what is wrong whatever the endpoint is; ``flags`` are those that were `given`."""
    check_model(options)
    _check_endpoint(options, flags)
    _check_numbers(options)
    for name in ("prompt", "prompt_option", "endpoint", "api_model", "ids"):
        check_text(name, getattr(options, name))
    if options.top is not None and options.ids is not None:
        raise typer.BadParameter("--top and --ids both say which tokens; give one")
    if options.method is Method.top_n and options.top is None:
        raise typer.BadParameter("--method top_n needs --top N")
    if options.method is Method.basis and options.basis is None:
        raise typer.BadParameter("--method basis needs --basis FILE, which gen recover-basis makes")
    if options.basis is None and "tolerance" in flags:
        raise typer.BadParameter("--tolerance is for a --basis")
    if options.resume and options.kept_in is None:
        raise typer.BadParameter("--resume needs the checkpoint: -o FILE or --checkpoint FILE")
    _ = options.tokens, options.prices  # each refuses what it cannot read
    if options.price is not None and not options.dry_run:
        raise typer.BadParameter("--price is for --dry-run, which prints what a run costs")
    to = None if str(options.output) == "-" else options.output
    source = None if str(options.file) == "-" else options.file
    read = [("--basis", options.basis), ("--tokenizer", options.tokenizer), ("-f", source), ("-m", options.model)]
    _check_paths([("-o", to), ("--checkpoint", options.kept_in)], read)


def check_basis(options: BasisOptions, flags: Mapping[str, str]) -> None:
    """Refuse what is wrong whatever the model is."""
    check_model(options)
    if options.rows is not None and options.vectors:
        raise typer.BadParameter("--rows and --vectors both say what the basis is made of; give one")
    if options.rows is not None and options.rows < 0:
        raise typer.BadParameter(f"--rows: {options.rows} is not ≥ 0")
    if options.output.suffix != ".npz":
        raise typer.BadParameter(f"-o: {options.output} does not end in .npz")
    if options.vectors:
        _refuse(("model", *_MODEL, "verbose"), flags, "is for a model, and --vectors needs none")
    read = [("-m", options.model), *(("--vectors", path) for path in options.vectors or ())]
    _check_paths([("-o", options.output)], read)


def _check_endpoint(options: RecoverOptions, flags: Mapping[str, str]) -> None:
    """Refuse flags that mean nothing to what is asked."""
    if options.endpoint is None:
        _refuse(_REMOTE, flags, "is for an --endpoint")
        return
    if options.api is None:
        raise typer.BadParameter("--endpoint needs --api llama-server or --api openai")
    if options.model is not None:
        raise typer.BadParameter("-m and --endpoint both name what is asked; give one")
    _refuse(_MODEL, flags, "is for a model here, not for an --endpoint")
    if options.api is Api.llama_server:
        _refuse(_OPENAI, flags, "is for --api openai")
        _refuse(("verbose",), flags, "is for a model here, not for an --endpoint")
        return
    _refuse(_LLAMA_SERVER, flags, "is for --api llama-server")
    if not options.api_model:
        raise typer.BadParameter("--api openai needs --api-model NAME")
    if options.tokenizer is None:
        raise typer.BadParameter("--api openai needs --tokenizer: that API names tokens by their text only")


def _refuse(names: Iterable[str], flags: Mapping[str, str], why: str) -> None:
    for name in names:
        if name in flags:
            raise typer.BadParameter(f"{flags[name]} {why}")


def _check_numbers(options: RecoverOptions) -> None:
    for flag, size, least in (
        ("--window", options.window, 0),
        ("--slot", options.slot, -1),
        ("--vocab-size", options.vocab_size, 1),
        ("--top", options.top, 1),
        ("--repeats", options.repeats, 1),
        ("--in-flight", options.in_flight, 1),
        ("--max-calls", options.max_calls, 1),
        ("--retries", options.retries, 0),
        ("--verify", options.verify, 1),
    ):
        if size is not None and size < least:
            raise typer.BadParameter(f"{flag}: {size} is not ≥ {least}")
    for flag, value in (
        ("--eps", options.eps),
        ("--tolerance", options.tolerance),
        ("--rate", options.rate),
        ("--timeout", options.timeout),
    ):
        if value is not None and not 0 < value < float("inf"):
            raise typer.BadParameter(f"{flag}: {value:g} is not a number > 0")


def _check_paths(written: Sequence[tuple[str, Path | None]], read: Sequence[tuple[str, Path | None]]) -> None:
    """Refuse to write a file over one that is read, or written otherwise."""
    for place, (flag, path) in enumerate(written):
        for other, at in (*written[place + 1 :], *read):
            if path is not None and at is not None and _same(path, at):
                raise typer.BadParameter(f"{flag} and {other} are one file, {at}; name another one")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return os.path.realpath(one) == os.path.realpath(other)
