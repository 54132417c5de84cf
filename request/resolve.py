"""Resolution of requests: a line's fields, the flags and the presets become one `GenerationRequest`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..engine.guidance import Guidance
from ..engine.request import BeamSearch, ChatMessages, GenerationRequest
from ..engine.text_rules import TextRules
from ..engine.token_records import LogprobRequest
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..presets.overrides import ChainRearrangement, Override, parse_set
from ..presets.setting_table import RULE_NAMES
from ..presets.settings import Settings, last_phase_chain, resolve_settings
from .errors import InvalidLineError
from .sources import (
    chat_template_source,
    grammar_folders,
    open_preset,
    preset_of_model,
    report_ignored_schema_paths,
)

if TYPE_CHECKING:
    from ..engine.drafts import DraftOptions
    from ..engine.model import Model
    from ..grammars.spec import GrammarSpec
    from ..presets.preset import Preset
    from ..samplers.chain import StepSpec
    from .lines import ParsedRequest


CHAT_TEMPLATE_KEY = "tokenizer.chat_template"
_MAX_NOTED_FIELDS = 1_000


def make_request(
    settings: Settings,
    prompt: str | Sequence[int] | ChatMessages,
    grammar: GrammarSpec | None,
    seed: int,
) -> GenerationRequest:
    """Return the request for resolved settings; callers replace other fields, such as logprobs."""
    # If no length is set, a sentence of the grammar is completed even beyond the default length.
    return GenerationRequest(
        prompt,
        settings.steps,
        grammar,
        stop=settings["stop"].value,
        max_tokens=settings.token_limit,
        complete_sentence=grammar is not None and settings.has_default_length,
        seed=seed,
        rules=text_rules(settings),
    )


def text_rules(settings: Settings) -> TextRules:
    """Return the rules of a request for resolved settings."""
    # Raises ``PresetError``, ``ModelError``.
    values = {name: settings[name].value for name in RULE_NAMES}
    return TextRules.of(values | {"phases": settings.earlier_phases, "guidance": _guidance(settings)})


def _guidance(settings: Settings) -> Guidance | None:
    table, origin = settings["guidance"].value, settings["guidance"].origin
    if table is None:
        return None
    if "scale" not in table:
        advice = "add --cfg-scale 1.5" if origin.startswith("--") else "set its scale, such as 1.5"
        raise PresetError(f"{origin}: guidance has no scale; {advice}")
    model = table.get("model")
    try:
        path = None if model is None else _path_of_model(model)
    except ModelError as error:
        raise ModelError(f"{origin}, model of guidance: {error}") from None
    return Guidance(float(table["scale"]), table.get("negative_prompt"), path)


@cache
def _path_of_model(name: str) -> str:
    """Return the path of a model, which is searched for only once, because a batch has many requests."""
    from ..models.resolve import resolve_files
    from ..presets.user_config import user_config

    files = resolve_files(name, user_config().model_folders)
    if files.adapters:
        raise ModelError(
            f"{name}: the model of a negative prompt is read without adapters, and this one has"
            f" {files.adapters[0]}; name its file {files.path} to leave the adapter out"
        )
    return str(files.path)


@dataclass(frozen=True)
class BatchDefaults:
    """The values of the flags, which apply to every line that does not set the field itself."""

    preset: str
    chain: str | None  # a chain, as ``--chain`` accepts it; None uses the preset's
    overrides: tuple[Override, ...]  # settings that take precedence over the preset's
    base_seed: int  # number from which the seed of a line is computed, together with the line's id
    # whether prompts are inserted into the chat template; None if only prompts with a system message or template
    # options are
    uses_chat_template: bool | None
    # number of most likely tokens whose logprobs are reported; -1 reports all tokens, None reports no logprobs
    top_logprob_count: int | None
    # number of candidates that are traced through the chain; None records no trace
    trace_top_count: int | None = None
    # whether unsupported parts of a JSON Schema are ignored; otherwise they are errors
    is_schema_lenient: bool = False
    # the ignored parts of the flags' JSON Schema, which have already been reported
    ignored_schema_paths: tuple[str, ...] = ()
    # name or source of a chat template, see `open_chat_template`; None uses the model's template
    chat_template: str | None = None
    # variables of the chat template; None if no flag sets any
    chat_template_kwargs: Mapping[str, Any] | None = None
    # changes of the order of the steps and of the selecting step. They apply to chains of lines, too.
    rearrangements: tuple[ChainRearrangement, ...] = ()
    lookup: int = 0  # maximum number of tokens in a draft from the text so far; 0: no such drafts
    draft: DraftOptions | None = None  # the draft model, and the limits of its drafts; None without a draft model
    beams: BeamSearch | None = None  # the beam search by which lines are answered; None: tokens are drawn


class RequestResolver:
    # Raises ``PresetError``, ``GrammarError``, ``ModelError`` or ``InvalidLineError`` for invalid settings.
    # ``note`` is called once with each message. With ``notes_requests`` False it is not called about schemas and
    # fields of requests: a server reports them to the client, and must not remember those of all requests.

    def __init__(
        self,
        defaults: BatchDefaults,
        metadata: Mapping[str, str],
        note: Callable[[str], object],
        *,
        notes_requests: bool = True,
    ) -> None:
        self._defaults = defaults
        self._metadata = metadata
        self._note = note
        self._notes_requests = notes_requests
        self._noted_fields: set[str] = set()
        self._presets: dict[str, Preset] = {}
        self._reported_schema_paths = {defaults.ignored_schema_paths, ()}
        self._load_preset(defaults.preset)  # so that an error in the preset ends the batch before the first line

    def resolve(self, parsed: ParsedRequest, settings: Settings | None = None) -> GenerationRequest:
        """Return the request of a line, with the values of the flags where the line sets nothing."""
        defaults = self._defaults
        settings = settings or self.settings(parsed)
        seed = settings["seed"].value
        grammar = self.grammar(settings)
        if self._notes_requests:
            self._note_ignored_fields(parsed)
            if grammar is not None:
                self._note_ignored_schema_paths(grammar)
        seed = _derive_seed(defaults.base_seed, parsed.id) if seed is None else seed
        beams = self._beams(parsed)
        return replace(
            make_request(settings, self._make_prompt(parsed, settings["system"].value), grammar, seed),
            id=parsed.id,
            logprobs=self._logprobs(parsed),
            trace=defaults.trace_top_count if parsed.trace_top_count is None else parsed.trace_top_count,
            lookup=0 if beams is not None else defaults.lookup,  # drafts are for a text that is drawn
            draft=None if beams is not None else defaults.draft,
            beams=beams,
        )

    def _logprobs(self, parsed: ParsedRequest) -> LogprobRequest:
        top_count, label = parsed.top_logprob_count, parsed.logprobs_field
        if top_count is None:
            top_count, label = self._defaults.top_logprob_count, "--logprobs"
        lowest = 0 if label.startswith("body.") else -1
        return LogprobRequest(top_count, parsed.logprobs_from, label=label, lowest=lowest)

    def _beams(self, parsed: ParsedRequest) -> BeamSearch | None:
        """Return the beam search of a line; None if tokens are drawn."""
        beams, fields = self._defaults.beams, parsed.beam_settings
        if beams is None and not fields:
            return None
        if beams is None and "beam_count" not in fields:
            raise InvalidLineError(f"{next(iter(fields))} needs beams, the number of texts of a beam search")
        if parsed.choice_count > 1:
            raise InvalidLineError("body.n: the answer of a beam search is its best text; leave n out")
        beams = BeamSearch(**fields) if beams is None else replace(beams, **fields)
        beams.check()
        return beams

    def _note_ignored_schema_paths(self, grammar: GrammarSpec) -> None:
        if grammar.ignored_schema_paths not in self._reported_schema_paths:
            self._reported_schema_paths.add(grammar.ignored_schema_paths)
            report_ignored_schema_paths(grammar, self._note)

    def _note_ignored_fields(self, parsed: ParsedRequest) -> None:
        """Tell the fields of a line that have no effect, each once, wherever it is in its list."""
        for path in (*parsed.ignored, *self.unread_fields(parsed)):
            name = re.sub(r"\[\d+\]", "", path)
            if name not in self._noted_fields and len(self._noted_fields) < _MAX_NOTED_FIELDS:
                self._noted_fields.add(name)
                self._note(f"line {parsed.line_number}: {path} has no effect, nor has it in other lines")

    def unread_fields(self, parsed: ParsedRequest) -> list[str]:
        """Return the paths of the fields that the chat template of a request does not read."""
        if not parsed.template_fields:
            return []
        from ..engine.jinja_template import template_reads

        source, _ = self._choose_chat_template(parsed)
        source = self._metadata.get(CHAT_TEMPLATE_KEY, "") if source is None else source
        return [path for path, name in parsed.template_fields.items() if not template_reads(source, name)]

    def default_settings(self) -> Settings:
        defaults = self._defaults
        return resolve_settings(self._load_preset(defaults.preset), chain=defaults.chain, flags=defaults.overrides)

    def grammar(self, settings: Settings) -> GrammarSpec | None:
        from ..grammars.spec import resolve_grammar

        grammar_value = settings["grammar"].value
        if grammar_value is None:
            return None
        grammar_value = batch_grammar(grammar_value, is_lenient=self._defaults.is_schema_lenient)
        return resolve_grammar(grammar_value, grammar_folders(), settings.grammar_folder)

    def settings(self, parsed: ParsedRequest) -> Settings:
        """Return the settings of a line. Raises ``InvalidLineError`` and ``PresetError``."""
        sets_chain = parsed.preset is not None or parsed.chain is not None
        try:
            own = (*map(parse_set, parsed.set_arguments), *parsed.overrides)
            is_own_chain = sets_chain or last_phase_chain(own) is not None
            return resolve_settings(
                self._load_preset(parsed.preset or self._defaults.preset),
                chain=parsed.chain if is_own_chain else self._defaults.chain,
                flags=(*self._defaults.overrides, *own),
                rearrangements=(*self._defaults.rearrangements, *parsed.rearrangements),
            )
        except PresetError as error:
            # The message mentions flags, but the line has fields of the same names.
            message = str(error).replace("give a --chain", "give a chain").replace("as in --set ", "as in set ")
            if sets_chain or parsed.set_arguments:
                message = message.replace("--chain:", "chain:").replace("--set ", "set ")
            raise InvalidLineError(message) from None

    def _load_preset(self, name: str) -> Preset:
        if name not in self._presets:
            if name == "model":
                preset = preset_of_model(self._metadata, self._note)
            else:  # what cannot be imported from the flags' preset was reported when the flags were checked
                preset = open_preset(name, None if name == self._defaults.preset else self._note)
            if preset is None:
                raise InvalidLineError("preset model: this model names no sampling settings (general.sampling.*)")
            self._presets[name] = preset
        return self._presets[name]

    def _make_prompt(self, parsed: ParsedRequest, system: str | None) -> str | list[int] | ChatMessages:
        """Return the prompt, as the message of a chat if the chat template is used."""
        template, variables = self._choose_chat_template(parsed)
        if parsed.messages is not None:
            return ChatMessages(parsed.messages, template, variables)
        prompt = parsed.prompt or ""
        is_chat = self._defaults.uses_chat_template
        if is_chat is None:
            is_chat = system is not None or template is not None or variables is not None
        if not is_chat and parsed.messages is None and "system" in (each.target for each in parsed.overrides):
            raise InvalidLineError("system: not used, because --no-chat applies to prompts; write messages")
        if not is_chat or not isinstance(prompt, str):
            return prompt
        messages = [] if system is None else [{"role": "system", "content": system}]
        return ChatMessages([*messages, {"role": "user", "content": prompt}], template, variables)

    def _choose_chat_template(self, parsed: ParsedRequest) -> tuple[str | None, Mapping[str, Any] | None]:
        """Return the chat template of a line and its variables, from the line's fields or the flags."""
        defaults = self._defaults
        source, variables = parsed.chat_template, parsed.chat_template_kwargs
        if (
            defaults.uses_chat_template is False
            and parsed.messages is None
            and (source is not None or variables is not None)
        ):
            raise InvalidLineError("chat_template: not used, because --no-chat applies to prompts; write messages")
        source = defaults.chat_template if source is None else chat_template_source(source)
        if variables is not None or defaults.chat_template_kwargs is not None:
            variables = {**(defaults.chat_template_kwargs or {}), **(variables or {})}
        return source, variables


def batch_grammar(grammar_value: str | Mapping[str, Any], *, is_lenient: bool) -> str | Mapping[str, Any]:
    """Return the grammar of a line or of the flags; ``is_lenient``: ignore unsupported parts of a JSON Schema."""
    from ..grammars.spec import grammar_table

    grammar_fields = grammar_table(grammar_value)
    is_schema = "json_schema" in grammar_fields or "json_schema_file" in grammar_fields
    return {"schema_lenient": True, **grammar_fields} if is_lenient and is_schema else grammar_value


def _derive_seed(base_seed: int, request_id: str) -> int:
    """Return the seed of a line that sets none: 32 bits of a hash, so that an id always gets the same seed."""
    from hashlib import sha256

    return int.from_bytes(sha256(f"{base_seed}:{request_id}".encode()).digest()[:4], "little")


@dataclass(frozen=True)
class ModelDescription:
    """The facts about a model that are needed before its requests are read."""

    name: str
    identity: Mapping[str, Any]  # the facts that the model's logits depend on, see `Model.identity`
    metadata: Mapping[str, str]  # metadata of the GGUF file


def describe_model(model: Model) -> ModelDescription:
    """Return the facts about a loaded model. Raises ``ModelError``."""
    return ModelDescription(model.name, model.identity(), model.metadata)


# keys of a model's identity that settings do not copy: the fingerprint has another key there, and the number of
# threads may differ between runs
_UNCOPIED_IDENTITY_KEYS = frozenset({"fingerprint", "threads"})


def batch_settings(
    model: ModelDescription, defaults: BatchDefaults, resolver: RequestResolver, other_flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that answers depend on, as JSON, under the names by which users set them."""
    settings = resolver.default_settings()
    grammar = resolver.grammar(settings)
    return {
        "name": model.name,
        "model": model.identity["fingerprint"],
        **{name: value for name, value in model.identity.items() if name not in _UNCOPIED_IDENTITY_KEYS},
        **_chain_settings(settings.steps),
        "seed": defaults.base_seed if settings["seed"].value is None else settings["seed"].value,
        **{name: settings[name].value for name in ("max_tokens", "stop", "system")},
        "grammar": None if grammar is None else grammar.description,
        **{name: value for name in RULE_NAMES if (value := settings[name].value) not in (None, [])},
        "chat": defaults.uses_chat_template,
        "chat_template": defaults.chat_template,
        "chat_template_kwargs": defaults.chat_template_kwargs,
        "logprobs": defaults.top_logprob_count,
        "trace": defaults.trace_top_count,
        **_beam_settings(defaults.beams),
        **other_flags,
    }


def _beam_settings(beams: BeamSearch | None) -> dict[str, Any]:
    """Return the settings of a beam search that flags set; empty without one."""
    settings = {} if beams is None else beams.as_setting()
    settings.pop("n_best", None)
    return settings


def _chain_settings(steps: Iterable[StepSpec]) -> dict[str, Any]:
    """Return the names of the steps that are not off, and their parameters as ``name.parameter``."""
    active_steps = [step for step in steps if not step.is_off]
    step_counts: Counter[str] = Counter()
    parameters = {}
    for step in active_steps:
        step_counts[step.name] += 1
        numbered_name = step.name if step_counts[step.name] == 1 else f"{step.name}#{step_counts[step.name]}"
        values = step.sampler.model_dump(mode="json")
        parameters.update({f"{numbered_name}.{key}": value for key, value in values.items()})
    return {"chain": [step.name for step in active_steps], **parameters}
