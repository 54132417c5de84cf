"""From the command line to settings: which preset, which flags override it, and the chain that comes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from ..errors import note
from ..options.run_options import Options, RunOptions
from .grammar import grammar_flag

if TYPE_CHECKING:
    from ...presets import Arrangement, Override, Settings

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
    from ... import presets

    name = preset_name(options)
    if name == "model":
        preset = presets.preset_from_metadata(metadata or {})
        if preset is None:
            note("this model names no sampling settings (general.sampling.*); the preset default is used")
            preset = presets.load_preset("default")
    else:
        preset = presets.load_preset(name)
    return presets.resolve_settings(
        preset,
        chain=options.chain,
        sets=options.set_ or (),
        flags=tuple(overrides(options)),
        wishes=tuple(_wishes(options)),
    )


def preset_name(options: RunOptions) -> str:
    """The preset of this run: ``--preset``, else the user's config, else ``default``."""
    from ...presets import user_config

    return options.preset or user_config().preset or "default"


def seed_of(settings: Settings) -> int:
    """The seed of this run: the one that was set, or a fresh one."""
    import secrets

    seed: int | None = settings.seed.value
    return secrets.randbits(32) if seed is None else seed


def overrides(options: Options) -> Iterator[Override]:
    """What the flags set, of those that the command has."""
    from ...presets import Override

    for flag, field, target in SHORTHANDS:
        value = getattr(options, field, None)
        off = target.startswith("mirostat.") and getattr(options, "mirostat", None) == 0
        if value is not None and not off:
            yield Override(flag, target, value)
    grammar = grammar_flag(options)
    if grammar is not None:
        yield Override(grammar[0], "grammar", grammar[1])
    if isinstance(options, RunOptions):
        yield from _more_overrides(options)


def _more_overrides(options: RunOptions) -> Iterator[Override]:
    from ...presets import Override

    if options.dry_sequence_breaker:
        yield Override("--dry-sequence-breaker", "dry.breakers", _breakers(options.dry_sequence_breaker))
    if options.seed is not None:
        yield Override("--seed", "seed", None if options.seed == -1 else options.seed)
    if options.ignore_eos:
        yield Override("--ignore-eos", "ignore_eos", None)
    for text in options.logit_bias or ():
        yield Override(f"--logit-bias {text}", "logit_bias.bias", _bias(text))


def _wishes(options: RunOptions) -> Iterator[Arrangement]:
    from ... import presets

    if options.adaptive_target is not None:
        yield presets.arrange_by_adaptive_p()
    if options.samplers is not None:
        yield presets.arrange_by_samplers(options.samplers)
    if options.mirostat is not None:
        yield presets.arrange_by_mirostat(options.mirostat)


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
