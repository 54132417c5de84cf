"""What is wrong with a command line that neither a preset nor a model is needed to see."""

from __future__ import annotations

from dataclasses import fields

import typer

from ..inputs.grammar import grammar_flag
from .flags import Format, Source
from .run_options import ModelOptions, RunOptions


def check(options: RunOptions) -> None:
    """Refuse what needs neither a preset nor a model to be seen as wrong."""
    if options.max_tokens is not None and (options.max_tokens == 0 or options.max_tokens < -1):
        raise typer.BadParameter(f"-n: {options.max_tokens} is not ≥ 1, nor -1 for no limit")
    _check_logprobs(options)
    _check_format(options)
    check_model(options)
    for field in fields(options):
        check_text(field.name, getattr(options, field.name))
    _check_arrangement(options)
    grammar_flag(options)
    if options.chat is False and options.system is not None:
        raise typer.BadParameter("--system needs the chat template, and --no-chat leaves it out")


def check_model(options: ModelOptions) -> None:
    """Refuse numbers that no model is loaded with."""
    for flag, value, least, most in (
        ("-t", options.threads, 1, 512),
        ("-c", options.context_size, 0, 2**31 - 1),
        ("-b", options.batch_size, 1, 2**31 - 1),
        ("-ngl", options.gpu_layers, -1, 2**31 - 1),
    ):
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{flag}: {value} is not within {least}..{most}")


def _check_logprobs(options: RunOptions) -> None:
    """Refuse logprobs that a format has no room for."""
    name = options.format_.value
    wanted = options.logprobs
    if wanted is not None and wanted < -1:
        raise typer.BadParameter(f"--logprobs: {wanted} is not ≥ 0, nor -1 for the whole vocabulary")
    if options.format_ is Format.text:
        for flag, value in (
            ("--logprobs", wanted),
            ("--logprobs-from", options.logprobs_from),
            ("--logprob-of", options.logprob_of),
        ):
            if value is not None:
                raise typer.BadParameter(f"{flag} needs a --format with room for logprobs, such as jsonl")
    elif options.format_ is not Format.jsonl:
        for flag, given in (
            ("--logprobs -1", wanted == -1),
            ("--logprobs-from both", options.logprobs_from is Source.both),
            ("--logprob-of", options.logprob_of is not None),
        ):
            if given:
                raise typer.BadParameter(f"{flag}: --format {name} has no room for it; jsonl has")
        if options.echo and options.logprobs_from is Source.chain:
            raise typer.BadParameter(
                f"--echo: a prompt's logprobs are the model's; --format {name} has one source"
            )
        if options.logprobs_from is not None and wanted is None:
            raise typer.BadParameter("--logprobs-from needs --logprobs")


def _check_format(options: RunOptions) -> None:
    """Refuse what a format cannot do."""
    name = options.format_.value
    if options.echo and options.format_ in (Format.openai_chat, Format.llama_server):
        raise typer.BadParameter(f"--echo: --format {name} has no room for the prompt's tokens")
    if options.stream and options.format_ not in (Format.openai, Format.openai_chat):
        raise typer.BadParameter(f"--stream is for openai and openai-chat; --format {name} {_STREAMS[name]}")


_STREAMS = {
    "text": "streams anyway",
    "jsonl": "streams anyway",
    "together": "is one object",
    "llama-server": "is one object",
}


def _check_arrangement(options: RunOptions) -> None:
    """Refuse two flags that both say which steps there are; llama.cpp ignores one of them."""
    given = [
        flag
        for flag, value in (
            ("--chain", options.chain),
            ("--samplers", options.samplers),
            ("--mirostat", options.mirostat or None),
            ("--adaptive-target", options.adaptive_target if options.mirostat else None),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise typer.BadParameter(f"{given[0]} and {given[1]} both say which samplers there are; give one")


def check_text(name: str, value: object) -> None:
    """Refuse an argument of bytes that are not UTF-8, which Python smuggles in as surrogates; paths may be so."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and name != "lora":
            try:
                text.encode()
            except UnicodeEncodeError:
                where = "the prompt" if name.startswith("prompt") else f"--{name.strip('_').replace('_', '-')}"
                raise typer.BadParameter(f"{where} is not UTF-8") from None
