"""From the command line to settings: the preset, and the flags that override it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import UsageError
from ..errors import note
from ..jobs.sources import grammar_folders, open_preset, preset_of_model, report_schema
from ..options.flag import Options, walk_flags
from ..options.grammar import ConstraintOptions, given_grammar
from ..options.length import UNTIL_CONTEXT_IS_FULL
from ..options.sampling import FullSamplingOptions
from ..options.signature import given_flags

if TYPE_CHECKING:
    from ...grammars.spec import GrammarSpec
    from ...presets.overrides import Arrangement, Override
    from ...presets.preset import Preset
    from ...presets.settings import Settings

_BIAS = re.compile(r"(?P<id>\d+)(?P<signed>[+-].+)|(?P<key>.+)=(?P<value>[^=]+)", re.DOTALL)


def resolve_run_settings(
    options: Options,
    sampling: FullSamplingOptions,
    metadata: Mapping[str, str] | None,
    preset: Preset | None = None,
) -> Settings:
    """Resolve flags over ``--set`` over the preset over the defaults.

    Args:
        options: the command line.
        sampling: its flags of the chain.
        metadata: the GGUF's, needed for ``--preset model`` only.
        preset: takes the place of the one that the command line names.

    Raises ``PresetError``.
    """
    from ...presets.settings import resolve_settings

    preset = preset or _preset_of(sampling.preset, metadata)
    settings = resolve_settings(
        preset,
        chain=sampling.chain,
        sets=sampling.set or (),
        flags=(*overrides(options), *_sampling_overrides(sampling)),
        arrangements=tuple(_arrangements(options, sampling)),
    )
    for flag, reason in settings.ignored:
        note(f"{flag} has no effect: {reason}")
    return settings


def _preset_of(given: str | None, metadata: Mapping[str, str] | None) -> Preset:
    """The preset that the command line or the user's config names."""
    from ...presets.preset import load_preset

    name = preset_name(given)
    if name != "model":
        return open_chosen_preset(name, given)
    preset = preset_of_model(metadata or {})
    if preset is None:
        note("this model names no sampling settings (general.sampling.*); the preset default is used")
        preset = load_preset("default")
    return preset


def preset_name(given: str | None) -> str:
    """The preset of a command: ``--preset``, else the user's config, else ``default``."""
    from ...presets.user_config import user_config

    return given or user_config().preset or "default"


def open_chosen_preset(name: str, given: str | None) -> Preset:
    """Open the preset of this name; an error of one that the user's config names begins with that file.

    ``given``: the value of ``--preset``. Raises ``PresetError``.
    """
    from ...presets.errors import PresetError
    from ...presets.user_config import config_file, user_config

    try:
        return open_preset(name)
    except PresetError as error:
        if given or user_config().preset is None:
            raise
        raise PresetError(f"{config_file()}: preset: {error}") from None


def seed_of(settings: Settings) -> int:
    """The seed of this run: the one that was set, or a fresh one."""
    seed: int | None = settings.seed.value
    return fresh_seed() if seed is None else seed


def fresh_seed() -> int:
    """A random seed: 32 bits, as llama.cpp's."""
    import secrets

    return secrets.randbits(32)


def overrides(options: Options) -> Iterator[Override]:
    """What the flags of a command set, of those that set one value each."""
    from ...presets.overrides import Override

    given = given_flags(options)
    is_mirostat_off = any(flag.name == "--mirostat" and value == 0 for flag, value in walk_flags(options))
    for flag, value in walk_flags(options):
        if flag.sets is None or value is None:
            continue
        setting = flag.sets.partition(".")[0]
        if setting == "grammar":
            continue
        if flag.sets == "max_tokens":
            yield Override(given.name_of(flag), flag.sets, -1 if value == UNTIL_CONTEXT_IS_FULL else value)
        elif not (is_mirostat_off and setting == "mirostat"):
            yield Override(given.name_of(flag), flag.sets, value)
    grammar = given_grammar(options)
    if grammar is not None:
        yield Override(grammar.flag, "grammar", grammar.value)


def _sampling_overrides(options: FullSamplingOptions) -> Iterator[Override]:
    """What flags set whose value is not taken as it is."""
    from ...presets.overrides import Override

    if options.dry_sequence_breaker:
        yield Override("--dry-sequence-breaker", "dry.breakers", _breakers(options.dry_sequence_breaker))
    if options.seed is not None:
        yield Override("--seed", "seed", None if options.seed == -1 else options.seed)
    if options.ignore_eos:
        yield Override("--ignore-eos", "ignore_eos", None)
    for text in options.logit_bias or ():
        yield Override(f"--logit-bias {text}", "logit_bias.bias", _bias(text))


def _arrangements(command: Options, options: FullSamplingOptions) -> Iterator[Arrangement]:
    """The orders of samplers that flags ask for; ``command``: all options, which know what was typed."""
    from ...presets.overrides import arrange_by_adaptive_p, arrange_by_mirostat, arrange_by_samplers

    if options.adaptive_target is not None:
        yield arrange_by_adaptive_p()
    if options.samplers is not None:
        yield arrange_by_samplers(options.samplers, given_flags(command).typed.get("--samplers", "--samplers"))
    if options.mirostat is not None:
        yield arrange_by_mirostat(options.mirostat)


def _breakers(texts: Iterable[str]) -> list[str]:
    """As in llama.cpp: ``none`` clears what came before it."""
    breakers: list[str] = []
    for text in texts:
        if text == "none":
            breakers.clear()
        else:
            breakers.append(text)
    return breakers


def _bias(text: str) -> dict[int | str, Any]:
    """``15043+1`` and ``15043=-inf`` name a token by id, ``hello=2`` by its text."""
    match = _BIAS.fullmatch(text)
    if match is None:
        raise UsageError(f"--logit-bias: {text!r} is not ID+BIAS, ID-BIAS, ID=BIAS or TEXT=BIAS")
    key, value = (match["id"], match["signed"]) if match["id"] else (match["key"], match["value"])
    try:
        bias = float("-inf") if value == "false" else float(value)
    except ValueError:
        raise UsageError(f"--logit-bias: {value!r} in {text!r} is not a number") from None
    return {int(key) if key.isdecimal() else key: bias}


_WAYS_TO_GIVE_FILES = {
    "--grammar": {"json_schema": "-jf", "lark": "--lark-file", "": "--grammar-file"},
    "/grammar": {
        "json_schema": "/grammar json_schema_file",
        "lark": "/grammar lark_file",
        "": "/grammar file",
    },
}
"""What takes a file, by what was given in its place and by the kind of the file's grammar; "": all others."""


def grammar_spec(options: ConstraintOptions, settings: Settings) -> GrammarSpec | None:
    """The grammar of a run, checked as far as it can be without a model. Raises ``GrammarError``."""
    value = settings.grammar.value
    if value is None:
        _refuse_without_grammar(options)
        return None
    from ...grammars.errors import GrammarError
    from ...grammars.spec import grammar_table, resolve_grammar

    if options.grammar_root is not None:
        value = {**grammar_table(value), "root": options.grammar_root}
    if options.grammar_after is not None:
        value = {**grammar_table(value), "after": options.grammar_after}
    if options.schema_lenient:
        value = {**grammar_table(value), "schema_lenient": True}
    try:
        spec = resolve_grammar(value, grammar_folders(), settings.grammar_base)
        spec.check()
    except GrammarError as error:
        if isinstance(settings.grammar.value, str):
            _refuse_file(settings.grammar.origin, settings.grammar.value)
        raise error.within(settings.grammar.origin) from None
    report_schema(spec)
    return spec


def _refuse_file(origin: str, name: str) -> None:
    """Raise ``GrammarError`` with what takes a file if that is what ``origin`` was given."""
    from ...grammars.errors import GrammarError
    from ...grammars.spec import KIND_OF_SUFFIX

    ways, path = _WAYS_TO_GIVE_FILES.get(origin), Path(name)
    with suppress(OSError, ValueError):  # a grammar's text is no path
        if ways is not None and path.is_file():
            way = ways.get(KIND_OF_SUFFIX.get(path.suffix, ""), ways[""])
            typed = shlex.quote(name) if origin.startswith("--") else name  # a chat takes the line as it is
            raise GrammarError(f"{origin}: {name} is a file; give it by {way} {typed}")


def _refuse_without_grammar(options: ConstraintOptions) -> None:
    for flag, is_given in (
        ("--grammar-root", options.grammar_root is not None),
        ("--grammar-after", options.grammar_after is not None),
        ("--grammar-complete", options.grammar_complete),
        ("--schema-lenient", options.schema_lenient),
    ):
        if is_given:
            raise UsageError(f"{flag} needs a grammar")
