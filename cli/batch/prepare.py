"""From what a line asks for to what the engine is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ...engine import LogprobRequest, Model, Request, format_chat
from ...grammars import Constraint, resolve_grammar
from ...presets import (
    Override,
    Preset,
    PresetError,
    Settings,
    load_preset,
    parse_set,
    preset_from_metadata,
    resolve_settings,
)
from ...samplers import build
from ..inputs.grammar import folders
from .ask import Ask, WrongLineError


@dataclass(frozen=True)
class Defaults:
    """What holds for every line that says nothing else; ``seed`` is what the lines' own seeds come from."""

    preset: str
    chain: str | None
    settings: tuple[Override, ...]
    seed: int
    chat: bool | None
    logprobs: int | None


class Kitchen:
    """Makes requests for a model.

    Raises what the rooms raise for settings that cannot be: ``PresetError``, ``StepError``, ``SamplingError``,
    ``GrammarError``, ``ModelError``, and ``WrongLineError``.
    """

    def __init__(self, model: Model, defaults: Defaults) -> None:
        self._model, self._defaults = model, defaults
        self._presets: dict[str, Preset] = {}
        self._preset(defaults.preset)  # what is wrong with it is wrong with all

    def request(self, ask: Ask) -> Request:
        """What is to be written for a line; its ``key`` is the line's id."""
        settings = self._settle(ask)
        seed = settings.seed.value
        vocabulary = self._model.vocabulary
        constraint = self._constraint(settings)
        limit = settings.max_tokens.value
        return Request(
            prompt=self._prompt(ask, settings),
            chain=build(
                settings.samplers(),
                seed=seed_of(self._defaults.seed, ask.id) if seed is None else seed,
                vocab=vocabulary,
            ),
            constraint=constraint,
            stop=settings.stop.value,
            max_tokens=None if limit == -1 else limit,
            wanted=LogprobRequest(self._defaults.logprobs if ask.logprobs is None else ask.logprobs, ask.source),
            # Our own default length should not break off what is wanted whole.
            close=constraint is not None and settings.max_tokens.origin == "default",
            key=ask.id,
        )

    def _settle(self, ask: Ask) -> Settings:
        own_chain = ask.preset is not None or ask.chain is not None
        try:
            return self._resolved(ask, own_chain)
        except PresetError as error:
            if not (own_chain or ask.sets):
                raise
            # The line has no flags, but names of the same.
            raise WrongLineError(str(error).replace("--chain:", "chain:").replace("--set ", "set ")) from None

    def _resolved(self, ask: Ask, own_chain: bool) -> Settings:
        ours = self._defaults
        return resolve_settings(
            self._preset(ask.preset or ours.preset),
            chain=ask.chain if own_chain else ours.chain,
            flags=(
                *ours.settings,
                *map(parse_set, ask.sets),
                *(Override(origin, target, value) for origin, target, value in ask.settings),
            ),
        )

    def _preset(self, name: str) -> Preset:
        if name not in self._presets:
            found = preset_from_metadata(self._model.metadata) if name == "model" else load_preset(name)
            if found is None:
                raise WrongLineError("preset model: this model names no sampling settings (general.sampling.*)")
            self._presets[name] = found
        return self._presets[name]

    def _constraint(self, settings: Settings) -> Constraint | None:
        value = settings.grammar.value
        if value is None:
            return None
        return resolve_grammar(value, folders(), settings.grammar_base).start(self._model.vocabulary)

    def _prompt(self, ask: Ask, settings: Settings) -> str | Sequence[int]:
        messages = ask.messages
        if messages is None and isinstance(ask.prompt, str) and self._is_chat(settings):
            system = settings.system.value
            messages = [{"role": "system", "content": system}] if system is not None else []
            messages.append({"role": "user", "content": ask.prompt})
        if messages is not None:
            return format_chat(self._model, messages)
        return ask.prompt or ""

    def _is_chat(self, settings: Settings) -> bool:
        chat = self._defaults.chat
        return settings.system.value is not None if chat is None else chat


def seed_of(base: int, name: str) -> int:
    """The seed of a line that names none: always the same for the same name."""
    return int.from_bytes(sha256(f"{base}:{name}".encode()).digest()[:4], "little")
