"""From a request of a batch to all that it asks for: its line, the flags and the presets, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ...engine.token_records import LogprobRequest
from ...grammars.spec import GrammarSpec, grammar_table, resolve_grammar
from ...presets.errors import PresetError
from ...presets.overrides import Override, parse_set
from ...presets.preset import Preset
from ...presets.settings import Settings, resolve_settings
from ...samplers.chain import StepSpec
from ..inputs.chains import chat_template_source
from ..inputs.grammar import grammar_folders, report_left_out
from ..inputs.json_lines import InvalidLineError
from ..inputs.preset import open_preset, preset_of_model
from .request import BatchRequest


@dataclass(frozen=True)
class BatchDefaults:
    """What the flags set for every line that does not set it itself.

    ``base_seed``: combined with a line's id, the seed of a line without one. ``chat``: whether prompts go through
    the chat template; None: if there is a system message. ``schema_lenient``: what is not supported in a JSON
    Schema is left out; ``left_out``: what that is in the flags' own schema, which was reported. ``chat_template``:
    see `open_chat_template`; ``chat_template_kwargs``: its variables.
    """

    preset: str
    chain: str | None
    overrides: tuple[Override, ...]
    base_seed: int
    chat: bool | None
    logprobs: int | None
    trace: int | None = None
    schema_lenient: bool = False
    left_out: tuple[str, ...] = ()
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TemplateChoice:
    """A chat template that a line or the flags choose; see `open_chat_template`."""

    source: str | None
    variables: Mapping[str, Any] | None


@dataclass(frozen=True)
class ResolvedRequest:
    """A request with all that it asks for. Nothing in it belongs to a model or a process.

    Attributes:
        id: the request's id.
        prompt: text or token ids; None if there are ``messages``.
        messages: a chat.
        system: the system message that goes before a text.
        chat: whether a text goes through the chat template; None: if there is a system message.
        template: the chat template; None: the model's.
        steps: the chain.
        seed: of the chain.
        grammar: what the text must match.
        stop: the stop strings.
        max_tokens: the length; None: no limit.
        completes_sentence: a sentence of the grammar is completed beyond ``max_tokens``.
        logprobs: which logprobs are reported.
        trace: how many candidates are traced; None: no trace.
    """

    id: str
    prompt: str | list[int] | None
    messages: list[dict[str, str]] | None
    system: str | None
    chat: bool | None
    template: TemplateChoice | None
    steps: tuple[StepSpec, ...]
    seed: int
    grammar: GrammarSpec | None
    stop: Sequence[str]
    max_tokens: int | None
    completes_sentence: bool
    logprobs: LogprobRequest
    trace: int | None


class RequestResolver:
    """Resolves the requests of a batch.

    Raises ``PresetError``, ``GrammarError``, ``ModelError`` or ``InvalidLineError`` for settings that cannot be
    used.

    Args:
        defaults: what the flags set.
        metadata: the model's, for the preset ``model``.
    """

    def __init__(self, defaults: BatchDefaults, metadata: Mapping[str, str]) -> None:
        self._defaults, self._metadata = defaults, metadata
        self._presets: dict[str, Preset] = {}
        self._reported = {defaults.left_out, ()}
        self._load_preset(defaults.preset)  # a fault in it ends the batch before the first line

    def resolve(self, request: BatchRequest) -> ResolvedRequest:
        """Return the request with all that it asks for."""
        defaults = self._defaults
        settings = self._settings(request)
        seed = settings.seed.value
        grammar = self.grammar(settings)
        if grammar is not None and grammar.left_out not in self._reported:
            self._reported.add(grammar.left_out)
            report_left_out(grammar)
        top_logprobs = defaults.logprobs if request.logprobs is None else request.logprobs
        return ResolvedRequest(
            id=request.id,
            prompt=request.prompt,
            messages=request.messages,
            system=settings.system.value,
            chat=defaults.chat,
            template=self._chat_template(request),
            steps=settings.steps,
            seed=derive_seed(defaults.base_seed, request.id) if seed is None else seed,
            grammar=grammar,
            stop=settings.stop.value,
            max_tokens=settings.token_limit,
            completes_sentence=grammar is not None and settings.has_default_length,
            logprobs=LogprobRequest(top_logprobs, request.logprobs_from),
            trace=defaults.trace if request.trace is None else request.trace,
        )

    def default_settings(self) -> Settings:
        """Return the settings of a line that sets nothing itself."""
        defaults = self._defaults
        return resolve_settings(self._load_preset(defaults.preset), chain=defaults.chain, flags=defaults.overrides)

    def grammar(self, settings: Settings) -> GrammarSpec | None:
        """Return the grammar of these settings; None without one."""
        value = settings.grammar.value
        if value is None:
            return None
        value = batch_grammar(value, is_lenient=self._defaults.schema_lenient)
        return resolve_grammar(value, grammar_folders(), settings.grammar_base)

    def _settings(self, request: BatchRequest) -> Settings:
        has_own_chain = request.preset is not None or request.chain is not None
        try:
            return resolve_settings(
                self._load_preset(request.preset or self._defaults.preset),
                chain=request.chain if has_own_chain else self._defaults.chain,
                flags=(*self._defaults.overrides, *map(parse_set, request.sets), *request.overrides),
            )
        except PresetError as error:
            # The message names flags; a line has fields of the same names.
            message = str(error).replace("give a --chain", "give a chain").replace("as in --set ", "as in set ")
            if has_own_chain or request.sets:
                message = message.replace("--chain:", "chain:").replace("--set ", "set ")
            raise InvalidLineError(message) from None

    def _load_preset(self, name: str) -> Preset:
        if name not in self._presets:
            if name == "model":
                preset = preset_of_model(self._metadata)
            else:  # what the flag's preset could not carry over was reported when the flags were checked
                preset = open_preset(name, is_quiet=name == self._defaults.preset)
            if preset is None:
                raise InvalidLineError("preset model: this model names no sampling settings (general.sampling.*)")
            self._presets[name] = preset
        return self._presets[name]

    def _chat_template(self, request: BatchRequest) -> TemplateChoice | None:
        """The template of a line, by its fields and the flags; None: nothing says one."""
        defaults = self._defaults
        source, variables = request.chat_template, request.chat_template_kwargs
        if defaults.chat is False and request.messages is None and (source is not None or variables is not None):
            raise InvalidLineError("chat_template: a prompt goes through no chat template here; write messages")
        source = defaults.chat_template if source is None else chat_template_source(source)
        if variables is not None or defaults.chat_template_kwargs is not None:
            variables = {**(defaults.chat_template_kwargs or {}), **(variables or {})}
        return None if source is None and variables is None else TemplateChoice(source, variables)


def batch_grammar(value: str | Mapping[str, Any], *, is_lenient: bool) -> str | Mapping[str, Any]:
    """Return the grammar of a line or of the flags; a JSON Schema becomes lenient with ``--schema-lenient``."""
    table = grammar_table(value)
    is_schema = "json_schema" in table or "json_schema_file" in table
    return {"schema_lenient": True, **table} if is_lenient and is_schema else value


def derive_seed(base_seed: int, request_id: str) -> int:
    """Return the seed of a line without one: 32 bits of a hash, so that an id always gets the same seed."""
    return int.from_bytes(sha256(f"{base_seed}:{request_id}".encode()).digest()[:4], "little")
