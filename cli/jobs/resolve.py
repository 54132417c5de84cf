"""From a line of a batch to the request that is generated.

The line, the flags and the presets say all that a request asks for, without a model; a model then builds the
engine's request. On a cluster the driver does the first, and a worker the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ...engine.generation import GenerationRequest
from ...engine.model import Model
from ...engine.templates import ChatTemplate, build_prompt, format_chat, open_chat_template
from ...engine.token_records import LogprobRequest
from ...grammars.spec import GrammarSpec, grammar_table, resolve_grammar
from ...presets.errors import PresetError
from ...presets.overrides import Override, parse_set
from ...presets.preset import Preset
from ...presets.settings import Settings, resolve_settings
from ...samplers.building import build
from ...samplers.chain import StepSpec
from ..messages import note
from .bodies import BatchRequest
from .lines import InvalidLineError
from .sources import chat_template_source, grammar_folders, open_preset, preset_of_model, report_left_out


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


@dataclass(frozen=True)
class TemplateChoice:
    """A chat template that a line or the flags choose; see `open_chat_template`."""

    source: str | None
    variables: Mapping[str, Any] | None


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
            seed=_derive_seed(defaults.base_seed, request.id) if seed is None else seed,
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


def _derive_seed(base_seed: int, request_id: str) -> int:
    """Return the seed of a line without one: 32 bits of a hash, so that an id always gets the same seed."""
    return int.from_bytes(sha256(f"{base_seed}:{request_id}".encode()).digest()[:4], "little")


class RequestBuilder:
    """Builds the engine's requests for a model.

    Raises ``SamplingError``, ``GrammarError`` or ``ModelError`` for requests that this model cannot answer.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._reported_notes: set[str] = set()

    def build(self, request: ResolvedRequest) -> GenerationRequest:
        """Return the engine's request; its ``key`` is the request's id."""
        vocabulary = self._model.vocabulary
        return GenerationRequest(
            prompt=self._prompt(request),
            chain=build(request.steps, seed=request.seed, vocab=vocabulary),
            constraint=None if request.grammar is None else request.grammar.start(vocabulary),
            stop=request.stop,
            max_tokens=request.max_tokens,
            logprobs=request.logprobs,
            complete_sentence=request.completes_sentence,
            trace=request.trace,
            key=request.id,
        )

    def _prompt(self, request: ResolvedRequest) -> str | Sequence[int]:
        if request.messages is not None:
            return format_chat(self._model, request.messages, self._chat_template(request), self._report)
        if isinstance(request.prompt, str):
            return build_prompt(
                self._model,
                request.prompt,
                system=request.system,
                chat=request.chat,
                template=self._chat_template(request),
                report=self._report,
            )
        return request.prompt or ""

    def _chat_template(self, request: ResolvedRequest) -> ChatTemplate | None:
        chosen = request.template
        return None if chosen is None else open_chat_template(self._model, chosen.source, chosen.variables)

    def _report(self, sentence: str) -> None:
        """Print a note, once in a batch."""
        if sentence not in self._reported_notes:
            self._reported_notes.add(sentence)
            note(sentence)


@dataclass(frozen=True)
class ModelDescription:
    """What has to be known of a model before its requests are read.

    Attributes: ``name``; ``identity``: what its logits depend on; ``metadata``: of its file.
    """

    name: str
    identity: Mapping[str, Any]
    metadata: Mapping[str, str]


def describe_model(model: Model) -> ModelDescription:
    """Return what has to be known of a loaded model. Raises ``ModelError``."""
    return ModelDescription(model.name, model.identity(), model.metadata)


_LEFT_OUT = frozenset({"fingerprint", "threads"})
"""Of a model's identity: what stands under another name, and what is left to each machine."""


def batch_settings(
    model: ModelDescription, defaults: BatchDefaults, resolver: RequestResolver, form: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings as JSON, under the names by which a user sets them.

    Args:
        model: the model.
        defaults: what the flags set.
        resolver: resolves requests with them.
        form: the further flags that change results, such as their format.
    """
    settings = resolver.default_settings()
    grammar = resolver.grammar(settings)
    return {
        "name": model.name,
        "model": model.identity["fingerprint"],
        **{name: value for name, value in model.identity.items() if name not in _LEFT_OUT},
        **_chain(settings.steps),
        "seed": defaults.base_seed if settings.seed.value is None else settings.seed.value,
        **{name: getattr(settings, name).value for name in ("max_tokens", "stop", "system")},
        "grammar": None if grammar is None else grammar.description,
        "chat": defaults.chat,
        "chat_template": defaults.chat_template,
        "chat_template_kwargs": defaults.chat_template_kwargs,
        "logprobs": defaults.logprobs,
        "trace": defaults.trace,
        **form,
    }


def _chain(steps: Iterable[StepSpec]) -> dict[str, Any]:
    """The names of the steps that do something, and their parameters as ``name.parameter``."""
    acting = [step for step in steps if not step.is_off]
    counts: Counter[str] = Counter()
    parameters = {}
    for step in acting:
        counts[step.name] += 1
        name = step.name if counts[step.name] == 1 else f"{step.name}#{counts[step.name]}"
        parameters.update({f"{name}.{key}": value for key, value in step.sampler.model_dump(mode="json").items()})
    return {"chain": [step.name for step in acting], **parameters}
