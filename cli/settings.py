"""From the command line to settings: which preset, which flags override it, and the chain that comes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from .errors import note
from .grammar import grammar_flag
from .options import Format, RunOptions

if TYPE_CHECKING:
    from ..engine import Model
    from ..presets import Arrangement, Override, Settings

# Flag, the field of RunOptions that holds it, and what it sets.
SHORTHANDS = (
    ("--temp", "temp", "temperature.t"),
    ("--top-k", "top_k", "top_k.k"),
    ("--top-p", "top_p", "top_p.p"),
    ("--min-p", "min_p", "min_p.p"),
    ("--repeat-penalty", "repeat_penalty", "penalties.repeat"),
    ("--repeat-last-n", "repeat_last_n", "penalties.last_n"),
    ("--presence-penalty", "presence_penalty", "penalties.presence"),
    ("--frequency-penalty", "frequency_penalty", "penalties.frequency"),
    ("--typical", "typical", "typical.p"),
    ("--top-n-sigma", "top_n_sigma", "top_n_sigma.n"),
    ("--xtc-probability", "xtc_probability", "xtc.probability"),
    ("--xtc-threshold", "xtc_threshold", "xtc.threshold"),
    ("--dynatemp-range", "dynatemp_range", "dynatemp.range"),
    ("--dynatemp-exp", "dynatemp_exp", "dynatemp.exponent"),
    ("--dry-multiplier", "dry_multiplier", "dry.multiplier"),
    ("--dry-base", "dry_base", "dry.base"),
    ("--dry-allowed-length", "dry_allowed_length", "dry.allowed_length"),
    ("--dry-penalty-last-n", "dry_penalty_last_n", "dry.last_n"),
    ("--mirostat-lr", "mirostat_lr", "mirostat.eta"),
    ("--mirostat-ent", "mirostat_ent", "mirostat.tau"),
    ("--adaptive-target", "adaptive_target", "adaptive_p.target"),
    ("--adaptive-decay", "adaptive_decay", "adaptive_p.decay"),
    ("-n", "max_tokens", "max_tokens"),
    ("--stop", "stop", "stop"),
    ("--system", "system", "system"),
)
_BIAS = re.compile(r"(?P<id>\d+)(?P<signed>[+-].+)|(?P<key>.+)=(?P<value>[^=]+)", re.DOTALL)

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def settle(options: RunOptions, metadata: Mapping[str, str] | None) -> Settings:
    """Resolve flags over ``--set`` over the preset over the defaults.

    ``metadata``: the GGUF's, needed for ``--preset model`` only. Raises ``PresetError``.
    """
    from .. import presets

    name = preset_name(options)
    if name == "model":
        preset = presets.from_metadata(metadata or {})
        if preset is None:
            note("this model names no sampling settings (general.sampling.*); the preset default is used")
            preset = presets.load("default")
    else:
        preset = presets.load(name)
    return presets.resolve(
        preset,
        chain=options.chain,
        sets=options.set_ or (),
        flags=tuple(_overrides(options)),
        wishes=tuple(_wishes(options)),
    )


def preset_name(options: RunOptions) -> str:
    """The preset of this run: ``--preset``, else the user's config, else ``default``."""
    from ..presets import user_config

    return options.preset or user_config().preset or "default"


def check(options: RunOptions) -> None:
    """Refuse what needs neither a preset nor a model to be seen as wrong."""
    if options.max_tokens is not None and (options.max_tokens == 0 or options.max_tokens < -1):
        raise typer.BadParameter(f"-n: {options.max_tokens} is not ≥ 1, nor -1 for no limit")
    if options.logprobs is not None:
        if options.format_ is not Format.jsonl:
            raise typer.BadParameter("--logprobs needs --format jsonl, which has room for them")
        if options.logprobs < 0:
            raise typer.BadParameter(f"--logprobs: {options.logprobs} is not ≥ 0")
    for flag, value, least, most in (
        ("-t", options.threads, 1, 512),
        ("-c", options.context_size, 0, 2**31 - 1),
        ("-b", options.batch_size, 1, 2**31 - 1),
        ("-ngl", options.gpu_layers, -1, 2**31 - 1),
    ):
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{flag}: {value} is not within {least}..{most}")
    for field in fields(options):
        check_text(field.name, getattr(options, field.name))
    _check_arrangement(options)
    grammar_flag(options)
    if options.chat is False and options.system is not None:
        raise typer.BadParameter("--system needs the chat template, and --no-chat leaves it out")


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


def seed_of(settings: Settings) -> int:
    """The seed of this run: the one that was set, or a fresh one."""
    import secrets

    seed: int | None = settings.seed.value
    return secrets.randbits(32) if seed is None else seed


def adapters(options: RunOptions) -> list[tuple[str, float]]:
    """Split ``--lora FILE=SCALE`` into file and scale, 1 if none is given."""
    found = []
    for text in options.lora or ():
        path, sign, scale = text.rpartition("=")
        try:
            found.append((path, float(scale)) if sign else (text, 1.0))
        except ValueError:
            found.append((text, 1.0))  # the = belongs to the file's name
    return found


def _overrides(options: RunOptions) -> Iterator[Override]:
    from ..presets import Override

    for flag, field, target in SHORTHANDS:
        value = getattr(options, field)
        if value is not None and not (options.mirostat == 0 and target.startswith("mirostat.")):
            yield Override(flag, target, value)
    grammar = grammar_flag(options)
    if grammar is not None:
        yield Override(grammar[0], "grammar", grammar[1])
    if options.dry_sequence_breaker:
        yield Override("--dry-sequence-breaker", "dry.breakers", _breakers(options.dry_sequence_breaker))
    if options.seed is not None:
        yield Override("--seed", "seed", None if options.seed == -1 else options.seed)
    if options.ignore_eos:
        yield Override("--ignore-eos", "ignore_eos", None)
    for text in options.logit_bias or ():
        yield Override(f"--logit-bias {text}", "logit_bias.bias", _bias(text))


def _wishes(options: RunOptions) -> Iterator[Arrangement]:
    from .. import presets

    if options.adaptive_target is not None:
        yield presets.by_adaptive_p()
    if options.samplers is not None:
        yield presets.by_samplers(options.samplers)
    if options.mirostat is not None:
        yield presets.by_mirostat(options.mirostat)


def _breakers(texts: Iterable[str]) -> list[str]:
    """As in llama.cpp: ``none`` clears what came before it, and escapes stand for what cannot be typed."""
    found: list[str] = []
    for text in texts:
        if text == "none":
            found.clear()
        else:
            found.append(re.sub(r"\\([nrt\\'\"])", lambda escape: _ESCAPES.get(escape[1], escape[1]), text))
    return found


def _bias(text: str) -> dict[int | str, Any]:
    """``15043+1`` and ``15043=-inf`` name a token by id, ``hello=2`` by its text."""
    match = _BIAS.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"--logit-bias: {text!r} is not ID+BIAS, ID-BIAS, ID=BIAS or TEXT=BIAS")
    key, value = (match["id"], match["signed"]) if match["id"] else (match["key"], match["value"])
    try:
        bias = float("-inf") if value == "false" else float(value)
    except ValueError:
        raise typer.BadParameter(f"--logit-bias: {value!r} in {text!r} is not a number") from None
    return {int(key) if key.isdecimal() else key: bias}


def load_model(options: RunOptions, pressed: list[int]) -> Model:
    """Find and load the model that the options, the environment or the user's config name.

    Loading ends with ``KeyboardInterrupt`` once ``pressed`` is filled, by Ctrl-C.
    """
    from ..engine import Model, ModelError, locate
    from ..presets import user_config
    from .render.progress import loading

    path, _ = locate(str(options.model) if options.model else None, user_config().model)

    def go_on(part: float) -> bool:
        show(part)
        return not pressed

    with loading(path.name) as show:
        try:
            model = Model.load(
                path,
                n_ctx=options.context_size,
                threads=options.threads,
                gpu_layers=options.gpu_layers,
                batch=options.batch_size,
                mmap=not options.no_mmap,
                mlock=options.mlock,
                lora=adapters(options),
                progress=go_on,
            )
        except ModelError:
            if pressed:
                raise KeyboardInterrupt from None
            raise
    if pressed:
        model.close()
        raise KeyboardInterrupt
    return model
