"""From what is asked to the requests of the engine. It takes precedence over the flags, these over the preset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..engine.request import BeamSearch, ChatMessages, GenerationRequest
from ..engine.token_records import LogprobRequest
from ..grammars.errors import GrammarError
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..presets.overrides import WATERMARK, ChainRearrangement, Override
from ..presets.settings import Settings, change_chain, last_phase_chain, resolve_settings
from ..samplers.registry import find_sampler
from .asked import AskedRequest
from .engine_request import make_request
from .errors import InvalidLineError
from .sampler_fields import ChainChanges, SamplerFields, read_bias_changes, read_chain_changes
from .sources import chat_template_source, grammar_folders, open_preset, preset_of_model
from .tool_fields import find_tool, read_tool_chain

if TYPE_CHECKING:
    from ..engine.drafts import DraftOptions
    from ..grammars.spec import GrammarSpec
    from ..presets.preset import Preset


CHAT_TEMPLATE_KEY = "tokenizer.chat_template"
# the preset that is used if nobody chooses one. Nobody chose the order of its chain.
DEFAULT_PRESET = "default"


@dataclass(frozen=True)
class RequestDefaults:
    """The values of the flags, which apply to every request that does not set them itself."""

    preset: str = DEFAULT_PRESET
    chain: str | None = None  # a chain, as ``--chain`` accepts it; None uses the preset's
    overrides: tuple[Override, ...] = ()  # settings that take precedence over the preset's
    # changes of the order of the steps and of the selecting step. They apply to chains of requests, too.
    rearrangements: tuple[ChainRearrangement, ...] = ()
    # whether prompts are inserted into the chat template; None if only prompts with a system message or template
    # options are
    uses_chat_template: bool | None = None
    # name or source of a chat template, see `open_chat_template`; None uses the model's template
    chat_template: str | None = None
    # variables of the chat template; None if no flag sets any
    chat_template_kwargs: Mapping[str, Any] | None = None
    # number of most likely tokens whose logprobs are reported; -1 reports all tokens, None reports no logprobs
    top_logprob_count: int | None = None
    # number of candidates that are traced through the chain; None records no trace
    trace_top_count: int | None = None
    # whether unsupported parts of a JSON Schema are ignored; otherwise they are errors
    is_schema_lenient: bool = False
    # the ignored parts of the flags' JSON Schema, which have already been reported
    ignored_schema_paths: tuple[str, ...] = ()
    lookup: int = 0  # maximum number of tokens in a draft from the text so far; 0: no such drafts
    draft: DraftOptions | None = None  # the draft model, and the limits of its drafts; None without a draft model
    beams: BeamSearch | None = None  # the beam search by which requests are answered; None: tokens are drawn

    @property
    def has_own_order(self) -> bool:
        """True if somebody chose the order of the chain: a preset, a chain or an order of its steps."""
        return (
            self.preset != DEFAULT_PRESET
            or self.chain is not None
            or any(rearrangement.step_names is not None for rearrangement in self.rearrangements)
        )

    def flags_without_effect(self, asked: AskedRequest) -> list[str]:
        """Return the flags for chats if the request has a prompt that never is one, each in words."""
        if not asked.is_plain:
            return []
        flags = {
            "--chat": self.uses_chat_template,
            "--chat-template": self.chat_template,
            "--chat-template-kwargs": self.chat_template_kwargs,
        }
        names = [name for name, value in flags.items() if value]
        names += [override.origin for override in self.overrides if override.target == "system"]
        return [f"{name} for a prompt of /v1/completions" for name in names]


class RequestResolver:
    """Makes the requests of the engine. What is asked takes precedence over the defaults."""

    # ``note`` gets a sentence for each setting of a preset that cannot be imported. Raises ``PresetError``,
    # ``GrammarError``, ``ModelError`` or ``InvalidLineError`` for invalid settings.

    def __init__(
        self, defaults: RequestDefaults, metadata: Mapping[str, str], note: Callable[[str], object]
    ) -> None:
        self.defaults = defaults
        self._metadata = metadata
        self._note = note
        self._presets: dict[str, Preset] = {}
        self._load_preset(defaults.preset)  # so that an error in the preset ends the batch before the first line

    def default_settings(self) -> Settings:
        return self._resolve(AskedRequest())

    def settings(self, asked: AskedRequest, unused: list[str]) -> Settings:
        """Return the settings of a request. Names of fields without effect are appended to ``unused``."""
        settings = self._resolve(asked)
        negative_prompts = [override for override in asked.overrides if _is_negative_prompt(override)]
        has_scale = (settings["guidance"].value or {}).get("scale", 1) != 1
        if negative_prompts and not has_scale:  # the negative prompt of a preset stays
            unused += (override.origin for override in negative_prompts)
            others = tuple(override for override in asked.overrides if override not in negative_prompts)
            settings = self._resolve(replace(asked, overrides=others))
        if asked.sampler_fields is None:
            return settings
        return self._with_sampler_fields(settings, asked, asked.sampler_fields, unused)

    def _resolve(self, asked: AskedRequest) -> Settings:
        """Return the settings of a request without the fields that change the chain."""
        defaults = self.defaults
        is_own_chain = asked.sets_chain or last_phase_chain(asked.overrides) is not None
        return resolve_settings(
            self._preset_of(asked),
            chain=asked.chain if is_own_chain else defaults.chain,
            chain_origin=asked.chain_origin,
            flags=(*defaults.overrides, *asked.overrides),
            rearrangements=defaults.rearrangements,
        )

    def _with_sampler_fields(
        self, settings: Settings, asked: AskedRequest, fields: SamplerFields, unused: list[str]
    ) -> Settings:
        """Return the settings with the chain that the fields mean to the tool of their client."""
        tool = find_tool(fields)
        has_usual_meaning = tool is None or settings.steps[-1].name != "dist"  # the usual one is llama-server's
        steps, keeps_order = settings.steps, self.defaults.has_own_order or asked.sets_chain
        unused_names: list[str] = []
        try:
            if tool is None or has_usual_meaning:
                changes = read_chain_changes(fields, [step.name for step in steps])
            else:
                steps, unused_names = read_tool_chain(tool, fields, steps, keeps_order=keeps_order)
                changes = read_bias_changes(fields)
        except PresetError as error:
            raise error.at(asked.place + error.origin, error.place) from None
        changes.place_names(asked.place)
        if has_usual_meaning:
            return _with_chain_changes(settings, changes, self.defaults.rearrangements, asked.chain_origin, unused)
        unused += (asked.place + name for name in unused_names)
        unused += {WATERMARK} & ({step.name for step in settings.steps} - {step.name for step in steps})
        return change_chain(replace(settings, steps=steps), changes.overrides)

    def requests(
        self, asked: AskedRequest, settings: Settings, seed: int, request_id: object = None
    ) -> Iterator[GenerationRequest]:
        """Yield the request of each prompt, or that of the messages; ``seed``: if the settings have none."""
        defaults = self.defaults
        beams = self._beams(asked)
        own_seed = settings["seed"].value
        request = replace(
            make_request(settings, "", self.grammar(settings), seed if own_seed is None else own_seed),
            id=request_id,
            beginning=asked.beginning,
            echo=asked.has_echo,
            logprobs=asked.logprobs or LogprobRequest(defaults.top_logprob_count, label="--logprobs"),
            trace=defaults.trace_top_count if asked.trace_top_count is None else asked.trace_top_count,
            stop_token_ids=asked.stop_token_ids,
            ends_at_eog=asked.ends_at_eog,
            lookup=0 if beams is not None else defaults.lookup,  # drafts are for a text that is drawn
            draft=None if beams is not None else defaults.draft,
            beams=beams,
        )
        for prompt in self._prompts(asked, settings["system"].value):
            yield replace(request, prompt=prompt)

    def _beams(self, asked: AskedRequest) -> BeamSearch | None:
        """Return the beam search of a request; None if tokens are drawn."""
        beams, fields = self.defaults.beams, asked.beam_settings
        if beams is None and not fields:
            return None
        if beams is None and "beam_count" not in fields:
            raise InvalidLineError(f"{next(iter(fields))} needs beams, the number of texts of a beam search")
        if asked.choice_count > 1:
            raise InvalidLineError(
                "the answer of a beam search is its best text; leave n out", origin=f"{asked.place}n"
            )
        beams = BeamSearch(**fields) if beams is None else replace(beams, **fields)
        beams.check()
        return beams

    def unread_fields(self, asked: AskedRequest) -> list[str]:
        """Return the paths of the fields that the chat template of a request does not read."""
        if not asked.template_fields:
            return []
        from ..engine.jinja_template import template_reads

        source, _ = self._choose_chat_template(asked)
        source = self._metadata.get(CHAT_TEMPLATE_KEY, "") if source is None else source
        return [path for path, name in asked.template_fields.items() if not template_reads(source, name)]

    def grammar(self, settings: Settings) -> GrammarSpec | None:
        return grammar_of(settings, is_lenient=self.defaults.is_schema_lenient)

    def _preset_of(self, asked: AskedRequest) -> Preset:
        if asked.preset is None:
            return self._load_preset(self.defaults.preset)
        try:
            return self._load_preset(asked.preset)
        except PresetError as error:
            raise error.within(f"{asked.place}preset") from None
        except InvalidLineError as error:
            raise error.at(asked.place + error.origin) from None

    def _load_preset(self, name: str) -> Preset:
        if name not in self._presets:
            if name == "model":
                preset = preset_of_model(self._metadata, self._note)
            else:  # what cannot be imported from the flags' preset was reported when the flags were checked
                preset = open_preset(name, None if name == self.defaults.preset else self._note)
            if preset is None:
                problem = "this model names no sampling settings (general.sampling.*)"
                raise InvalidLineError(problem, origin="preset model")
            self._presets[name] = preset
        return self._presets[name]

    def _prompts(self, asked: AskedRequest, system: str | None) -> Sequence[str | list[int] | ChatMessages]:
        """Return the prompts, each text as the message of a chat if the chat template is used, or the messages."""
        if asked.is_plain:
            return asked.prompts
        template, variables = self._choose_chat_template(asked)
        if asked.messages is not None:
            return [ChatMessages(asked.messages, template, variables)]
        is_chat = self.defaults.uses_chat_template
        if is_chat is None:
            is_chat = system is not None or template is not None or variables is not None
        if not is_chat and asked.sets_system:
            raise InvalidLineError(
                "not used, because --no-chat applies to prompts; write messages", origin="system"
            )
        if not is_chat:
            return asked.prompts
        before = [] if system is None else [{"role": "system", "content": system}]
        return [
            ChatMessages([*before, {"role": "user", "content": prompt}], template, variables)
            if isinstance(prompt, str)
            else prompt
            for prompt in asked.prompts
        ]

    def _choose_chat_template(self, asked: AskedRequest) -> tuple[str | None, Mapping[str, Any] | None]:
        """Return the chat template of a request and its variables, from its fields or the flags."""
        defaults = self.defaults
        source, variables = asked.chat_template, asked.chat_template_kwargs
        if (
            defaults.uses_chat_template is False
            and asked.messages is None
            and (source is not None or variables is not None)
        ):
            raise InvalidLineError(
                "not used, because --no-chat applies to prompts; write messages", origin="chat_template"
            )
        try:
            source = defaults.chat_template if source is None else chat_template_source(source)
        except ModelError as error:
            raise error.within(f"{asked.place}chat_template") from None
        if variables is not None or defaults.chat_template_kwargs is not None:
            variables = {**(defaults.chat_template_kwargs or {}), **(variables or {})}
        return source, variables


def _is_negative_prompt(override: Override) -> bool:
    """Return whether a field of its own sets the negative prompt."""
    is_table = override.target == "guidance" and isinstance(override.value, dict)
    return is_table and not override.origin.endswith("guidance") and [*override.value] == ["negative_prompt"]


def _with_chain_changes(
    settings: Settings,
    changes: ChainChanges,
    rearrangements: Iterable[ChainRearrangement],
    chain_origin: str,
    unused: list[str],
) -> Settings:
    """Return the settings with the changes that fields make, before the flags' rearrangements."""
    overrides = _overrides_with_effect(settings, changes, unused)
    names = {step.name for step in settings.steps if not step.is_off}
    if overrides or changes.rearrangements:
        settings = change_chain(settings, overrides, (*rearrangements, *changes.rearrangements), chain_origin)
    final_names = {step.name for step in settings.steps}
    unused += changes.unused_names
    unused += {WATERMARK} & (names - final_names)
    unused += [override.origin for override in overrides if not _is_in_chain(override, final_names)]
    return settings


def _overrides_with_effect(settings: Settings, changes: ChainChanges, unused: list[str]) -> list[Override]:
    """Return the overrides that a greedy chain can use; the names of others are appended to ``unused``."""
    if not settings.steps[-1].sampler.about.is_greedy or changes.rearrangements:
        return changes.overrides
    kept = []
    for override in changes.overrides:
        if find_sampler(override.target.partition(".")[0]).about.keeps_top_token:
            unused.append(override.origin)
        else:
            kept.append(override)
    return kept


def _is_in_chain(override: Override, names: set[str]) -> bool:
    sampler = override.target.partition(".")[0]
    family = find_sampler(sampler).about.family
    return sampler in names or (bool(family) and any(find_sampler(name).about.family == family for name in names))


def grammar_of(settings: Settings, *, is_lenient: bool) -> GrammarSpec | None:
    """Return the grammar of settings, if any. Its errors name the field, the flag or the preset that has it."""
    # ``is_lenient``: ignore unsupported parts of a JSON Schema.
    from ..grammars.spec import grammar_table, resolve_grammar

    value, origin = settings["grammar"].value, settings["grammar"].origin
    if value is None:
        return None
    try:
        table = grammar_table(value)
        if is_lenient and not table.keys().isdisjoint(("json_schema", "json_schema_file")):
            value = {"schema_lenient": True, **table}
        grammar = resolve_grammar(value, grammar_folders(), settings.grammar_folder)
    except GrammarError as error:
        raise error.within(origin) from None
    return replace(grammar, label=f"{origin}: {grammar.label}" if origin.startswith("preset ") else origin)
