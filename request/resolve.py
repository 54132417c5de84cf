"""Makes the requests of the engine. A value is taken from the request, else from a flag, else from the preset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..engine.chat_template import CONTINUED_REASONING
from ..engine.request import BeamSearch, ChatMessages, GenerationRequest
from ..engine.token_records import LogprobRequest
from ..grammars.errors import GrammarError
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..presets.overrides import WATERMARK, ChainRearrangement, Override
from ..presets.setting_table import SWITCH_NAMES
from ..presets.settings import Settings, change_chain, last_phase_chain, resolve_settings
from ..samplers.registry import find_sampler
from .asked import AskedRequest
from .engine_request import make_request
from .errors import InvalidLineError
from .forced import with_forced_settings
from .sampler_fields import ChainChanges, SamplerFields, read_bias_changes, read_chain_changes
from .sources import chat_template_source, grammar_folders, open_preset, preset_of_model
from .thinking import fields_of_budget, is_budget, template_switches, unread_origins
from .tool_fields import find_tool, read_tool_chain

if TYPE_CHECKING:
    from ..engine.chat_template import ChatTemplate
    from ..engine.drafts import DraftOptions
    from ..grammars.spec import GrammarSpec
    from ..presets.preset import Preset
    from ..samplers.chain import StepSpec
    from .story_context import LeftOut
    from .story_reader import StoryReader


CHAT_TEMPLATE_KEY = "tokenizer.chat_template"
DEFAULT_PRESET = "default"  # the preset that is used if nobody chooses one


@dataclass(frozen=True)
class RequestDefaults:
    """The values of the flags, which apply to every request that does not set them itself."""

    preset: str = DEFAULT_PRESET
    chain: str | None = None  # a chain, as ``--chain`` accepts it; None uses the preset's
    overrides: tuple[Override, ...] = ()  # settings that take precedence over the preset's
    # changes of the order of the steps and of the selecting step. They apply to chains of requests, too.
    rearrangements: tuple[ChainRearrangement, ...] = ()
    # whether prompts are inserted into the chat template. None: only prompts with a system message, a template
    # or variables of a template are inserted.
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
    # maximum number of tokens in a draft that is looked up in the text so far; 0: no such drafts
    lookup: int = 0
    draft: DraftOptions | None = None  # the draft model, and the limits of its drafts; None without a draft model
    # settings that win over those of requests; None: there are none
    forced: AskedRequest | None = None
    beams: BeamSearch | None = None  # the beam search by which requests are answered; None: tokens are drawn

    @property
    def has_own_order(self) -> bool:
        """True if a flag chose the order of the chain: a preset, a chain or an order of its steps."""
        return (
            self.preset != DEFAULT_PRESET
            or self.chain is not None
            or any(rearrangement.step_names is not None for rearrangement in self.rearrangements)
        )

    def flags_without_effect(self, asked: AskedRequest) -> list[str]:
        """Return the flags for chats, each in words, if the request's prompt never becomes a chat."""
        if not asked.is_plain:
            return []
        chat_flags = {
            "--chat": self.uses_chat_template,
            "--chat-template": self.chat_template,
            "--chat-template-kwargs": self.chat_template_kwargs,
        }
        given_flags = [flag for flag, value in chat_flags.items() if value]
        given_flags += [override.origin for override in self.overrides if override.target == "system"]
        return [f"{flag} for a prompt of /v1/completions" for flag in given_flags]


class RequestResolver:
    """Makes the requests of the engine. What is asked takes precedence over the defaults."""

    # ``note`` is called with a sentence for each setting of a preset that cannot be imported. Methods raise
    # ``PresetError``, ``GrammarError``, ``ModelError`` or ``InvalidLineError`` for invalid settings.

    # ``model_name``: of the loaded model, as requests name it; None: it is not known. ``story_reader`` makes the
    # prompts of stories; None: a request with a story is an error.

    def __init__(
        self,
        defaults: RequestDefaults,
        metadata: Mapping[str, str],
        note: Callable[[str], object],
        model_name: str | None = None,
        story_reader: StoryReader | None = None,
    ) -> None:
        self.defaults = defaults
        self.story_reader = story_reader
        self.model_name = model_name
        self._metadata = metadata
        self._note = note
        self._presets: dict[str, Preset] = {}
        self._load_preset(defaults.preset)  # an error in the preset must end a batch before its first line

    def default_settings(self) -> Settings:
        forced = self.defaults.forced
        place = "" if forced is None else forced.place  # errors name the flag
        return self.settings(AskedRequest(place=place), [])

    def settings(self, asked: AskedRequest, unused: list[str]) -> Settings:
        """Return the settings of a request. Names of fields without effect are appended to ``unused``."""
        forced = self.defaults.forced
        if forced is None:
            settings = self._settings_of(asked, unused)
        else:
            settings = self._settings_of(with_forced_settings(asked, forced, unused), unused)
            if forced.sampler_fields is not None:
                settings = self._with_usual_changes(settings, forced, forced.sampler_fields, unused)
        unused += self._overruled_variables(asked, settings)
        return settings

    def _settings_of(self, asked: AskedRequest, unused: list[str]) -> Settings:
        """Return the settings of a request, as its client understands them."""
        asked = self._without_unusable_budget(asked, unused)
        settings = self._resolve(asked)
        guidance = settings["guidance"].value or {}
        is_guided = guidance.get("scale", 1) != 1
        negative_prompts = [override for override in asked.overrides if _is_negative_prompt(override)]
        if negative_prompts and not is_guided:
            # Without guidance a client's negative prompt has no effect, and must not replace that of the preset.
            unused += [override.origin for override in negative_prompts]
            other_overrides = tuple(override for override in asked.overrides if override not in negative_prompts)
            settings = self._resolve(replace(asked, overrides=other_overrides))
        if asked.sampler_fields is None:
            return settings
        return self._with_sampler_fields(settings, asked, asked.sampler_fields, unused)

    def _without_unusable_budget(self, asked: AskedRequest, unused: list[str]) -> AskedRequest:
        """Return a request without a client's budget for a reasoning that there is not."""
        budgets = [override for override in asked.overrides if is_budget(override, asked.place)]
        if not budgets or self._may_think(asked):
            return asked
        for budget in budgets:
            unused += fields_of_budget(budget, asked.place)
        others = tuple(override for override in asked.overrides if override not in budgets)
        return replace(asked, overrides=others)

    def _may_think(self, asked: AskedRequest) -> bool:
        """Return whether the model may begin its reasoning, or go on with it."""
        template = None if asked.is_plain else self._chat_template(asked)
        if template is None or not template.reads(CONTINUED_REASONING):
            return False
        variables = self._template_variables(asked, self._resolve(asked)) or {}
        is_off = any(item in variables.items() for item in template.switch("enable_thinking", False).items())
        return not is_off and not template.is_in_answer(asked.beginning, asked.reasoning)

    def _resolve(self, asked: AskedRequest) -> Settings:
        """Return the settings of a request without the fields that change the chain."""
        defaults = self.defaults
        request_has_chain = asked.sets_chain or last_phase_chain(asked.overrides) is not None
        return resolve_settings(
            self._preset_of(asked),
            chain=asked.chain if request_has_chain else defaults.chain,
            chain_origin=asked.chain_origin,
            flags=(*defaults.overrides, *asked.overrides),
            rearrangements=defaults.rearrangements,
        )

    def _with_sampler_fields(
        self, settings: Settings, asked: AskedRequest, fields: SamplerFields, unused: list[str]
    ) -> Settings:
        """Return the settings with the changes that the fields make, as the client's tool understands them."""
        tool = find_tool(fields)
        # A tool's own meaning is known only for a chain that ends in a plain draw. For other chains, and for
        # unknown clients, the fields mean what they mean to llama-server.
        ends_in_plain_draw = settings.steps[-1].name == "dist"
        if tool is None or not ends_in_plain_draw:
            return self._with_usual_changes(settings, asked, fields, unused)
        keeps_order = self.defaults.has_own_order or asked.sets_chain
        with _place_in_errors(asked.place):
            new_steps, unused_names = read_tool_chain(tool, fields, settings.steps, keeps_order=keeps_order)
            bias_changes = read_bias_changes(fields)
        bias_changes.place_names(asked.place)
        unused += [asked.place + name for name in unused_names]
        if _loses_watermark(settings.steps, new_steps):
            unused.append(WATERMARK)
        return change_chain(replace(settings, steps=new_steps), bias_changes.overrides)

    def _with_usual_changes(
        self, settings: Settings, asked: AskedRequest, fields: SamplerFields, unused: list[str]
    ) -> Settings:
        """Return the settings with the changes that the fields make for llama-server."""
        with _place_in_errors(asked.place):
            changes = read_chain_changes(fields, [step.name for step in settings.steps])
        changes.place_names(asked.place)
        return _with_chain_changes(settings, changes, self.defaults.rearrangements, asked.chain_origin, unused)

    def requests(
        self,
        asked: AskedRequest,
        settings: Settings,
        seed: int,
        request_id: object = None,
        left_out: list[LeftOut] | None = None,
    ) -> Iterator[GenerationRequest]:
        """Yield a request for each prompt, or one for the messages. ``seed`` is used if the settings have none.

        What has no room of a story is appended to ``left_out``.
        """
        story = settings.story
        for request in self.requests_without_story(asked, settings, seed, request_id):
            if story is None:
                yield request
            elif self.story_reader is None:
                problem = "memory, authors_note and world_info need the model here to count tokens; leave --on out"
                raise InvalidLineError(problem)
            else:
                context = self.story_reader.read(story, request)
                if left_out is not None:
                    left_out += context.without_room
                yield self.story_reader.insert(context, request)

    def requests_without_story(
        self, asked: AskedRequest, settings: Settings, seed: int, request_id: object = None
    ) -> Iterator[GenerationRequest]:
        """Yield the requests with their prompts as they were asked, see `requests`."""
        defaults = self.defaults
        beams = self._beams(asked)
        has_drafts = beams is None  # only a text whose tokens are drawn one by one uses drafts
        own_seed = settings["seed"].value
        if own_seed is not None:
            seed = own_seed
        request = replace(
            make_request(settings, "", self.grammar(settings), seed),
            id=request_id,
            beginning=asked.beginning,
            echo=asked.has_echo,
            logprobs=asked.logprobs or LogprobRequest(defaults.top_logprob_count, label="--logprobs"),
            trace=defaults.trace_top_count if asked.trace_top_count is None else asked.trace_top_count,
            stop_token_ids=asked.stop_token_ids,
            ends_at_eog=asked.ends_at_eog,
            lookup=defaults.lookup if has_drafts else 0,
            draft=defaults.draft if has_drafts else None,
            beams=beams,
            confidence=True,
        )
        for prompt in self._prompts(asked, settings):
            yield replace(request, prompt=prompt)

    def _beams(self, asked: AskedRequest) -> BeamSearch | None:
        """Return the beam search of a request; None if tokens are drawn."""
        default_beams = self.defaults.beams
        fields = asked.beam_settings
        if default_beams is None and not fields:
            return None
        if default_beams is None and "beam_count" not in fields:
            first_field = next(iter(fields))
            raise InvalidLineError(f"{first_field} needs beams, the number of texts of a beam search")
        if asked.choice_count > 1:
            raise InvalidLineError(
                "the answer of a beam search is its best text; leave n out", origin=f"{asked.place}n"
            )
        beams = BeamSearch(**fields) if default_beams is None else replace(default_beams, **fields)
        beams.check()
        return beams

    def unread_fields(self, asked: AskedRequest) -> list[str]:
        """Return the paths of the fields that the chat template of a request does not read."""
        switches = [override for override in asked.overrides if override.target in SWITCH_NAMES]
        if not asked.template_fields and not switches:
            return []
        template = None if asked.is_plain else self._chat_template(asked)
        fields = asked.template_fields.items()
        unread = [path for path, name in fields if template is None or not template.reads(name)]
        return [*unread, *(origin.replace(" ", ".") for origin in unread_origins(switches, template))]

    def _chat_template(self, asked: AskedRequest) -> ChatTemplate | None:
        """Return the chat template of a request without its variables; None if there is none."""
        from ..engine.templates import open_template_without_model

        source = self._template_source(asked) or self._metadata.get(CHAT_TEMPLATE_KEY)
        return None if source is None else open_template_without_model(source)

    def grammar(self, settings: Settings) -> GrammarSpec | None:
        return grammar_of(settings, is_lenient=self.defaults.is_schema_lenient)

    def _preset_of(self, asked: AskedRequest) -> Preset:
        if asked.preset is None:
            return self._load_preset(self.defaults.preset)
        try:
            return self._load_preset(asked.preset)
        except PresetError as error:
            raise error.within(asked.place + asked.preset_field) from None
        except InvalidLineError as error:
            raise error.at(asked.place + error.origin) from None

    def _load_preset(self, name: str) -> Preset:
        if name not in self._presets:
            self._presets[name] = self._preset_of_model() if name == "model" else self._open_preset(name)
        return self._presets[name]

    def _open_preset(self, name: str) -> Preset:
        # The check of the flags has reported already what cannot be imported from their preset.
        is_reported = name == self.defaults.preset
        return open_preset(name, None if is_reported else self._note)

    def _preset_of_model(self) -> Preset:
        preset = preset_of_model(self._metadata, self._note)
        if preset is None:
            problem = "this model names no sampling settings (general.sampling.*)"
            raise InvalidLineError(problem, origin="preset model")
        return preset

    def _prompts(self, asked: AskedRequest, settings: Settings) -> Sequence[str | list[int] | ChatMessages]:
        """Return the messages, or the prompts; with a chat template, each text is a chat of one user's message."""
        if asked.is_plain:
            return asked.prompts
        system = settings["system"].value
        template, variables = self._template_source(asked), self._template_variables(asked, settings)
        if asked.messages is not None:
            return [ChatMessages(asked.messages, template, variables, asked.reasoning)]
        is_chat = self.defaults.uses_chat_template
        if is_chat is None:
            is_chat = system is not None or template is not None or variables is not None
        if not is_chat and asked.sets_system:
            raise InvalidLineError(
                "not used, because --no-chat applies to prompts; write messages", origin="system"
            )
        if not is_chat:
            return asked.prompts
        system_messages = [] if system is None else [{"role": "system", "content": system}]
        prompts: list[str | list[int] | ChatMessages] = []
        for prompt in asked.prompts:
            if isinstance(prompt, str):
                messages = [*system_messages, {"role": "user", "content": prompt}]
                prompts.append(ChatMessages(messages, template, variables))
            else:  # token ids
                prompts.append(prompt)
        return prompts

    def _template_source(self, asked: AskedRequest) -> str | None:
        """Return the chat template of a request, from its fields or the flags; None: the model's."""
        defaults = self.defaults
        has_own_template = asked.chat_template is not None or asked.chat_template_kwargs is not None
        if has_own_template and asked.messages is None and defaults.uses_chat_template is False:
            raise InvalidLineError(
                "not used, because --no-chat applies to prompts; write messages", origin="chat_template"
            )
        if asked.chat_template is None:
            return defaults.chat_template
        try:
            return chat_template_source(asked.chat_template)
        except ModelError as error:
            raise error.within(f"{asked.place}chat_template") from None

    def _template_variables(self, asked: AskedRequest, settings: Settings) -> Mapping[str, Any] | None:
        """Return the variables of the chat template; None if nothing sets any."""
        given = (self.defaults.chat_template_kwargs, asked.chat_template_kwargs)
        has_switches = any(settings[name].value is not None for name in SWITCH_NAMES)
        template = self._chat_template(asked) if has_switches else None
        switches = {} if template is None else template_switches(settings, template)
        if given == (None, None) and not switches:
            return None
        own_switches = self._own_switches(asked, settings, template)
        return {**switches, **(given[0] or {}), **(given[1] or {}), **own_switches}

    def _own_switches(
        self, asked: AskedRequest, settings: Settings, template: ChatTemplate | None
    ) -> dict[str, Any]:
        """Return the variables of the chat template that win over those of the request."""
        forced = self.defaults.forced
        overrides = (*asked.overrides, *(() if forced is None else forced.overrides))
        names = {override.target for override in overrides}
        return {} if template is None else template_switches(settings, template, names)

    def _overruled_variables(self, asked: AskedRequest, settings: Settings) -> Iterator[str]:
        """Yield the paths of variables of the chat template that the switches of the request overrule."""
        given = asked.chat_template_kwargs or {}
        template = self._chat_template(asked) if given else None
        switches = self._own_switches(asked, settings, template)
        for name, value in given.items():
            if template is None or not template.reads(name):
                continue  # `unread_fields` names it
            variables = template.switch(name, value) if name in SWITCH_NAMES else {name: value}
            if any(switches.get(variable, value) != value for variable, value in variables.items()):
                yield f"{asked.place}chat_template_kwargs.{name}"


@contextmanager
def _place_in_errors(place: str) -> Iterator[None]:
    """While inside, put a place such as ``body.`` before the fields that errors name."""
    try:
        yield
    except PresetError as error:
        raise error.at(place + error.origin, error.place) from None


def _is_negative_prompt(override: Override) -> bool:
    """Return whether the override comes from the field ``negative_prompt``, not from a table ``guidance``."""
    return (
        override.target == "guidance"
        and not override.origin.endswith("guidance")
        and isinstance(override.value, dict)
        and list(override.value) == ["negative_prompt"]
    )


def _loses_watermark(old_steps: Iterable[StepSpec], new_steps: Iterable[StepSpec]) -> bool:
    return WATERMARK in _names_of(old_steps) and WATERMARK not in _names_of(new_steps)


def _names_of(steps: Iterable[StepSpec]) -> set[str]:
    return {step.name for step in steps}


def _with_chain_changes(
    settings: Settings,
    changes: ChainChanges,
    rearrangements: Iterable[ChainRearrangement],
    chain_origin: str,
    unused: list[str],
) -> Settings:
    """Return the settings with the changes that fields make, before the flags' rearrangements."""
    overrides = _overrides_with_effect(settings, changes, unused)
    changed = settings
    if overrides or changes.rearrangements:
        changed = change_chain(settings, overrides, (*rearrangements, *changes.rearrangements), chain_origin)
    unused += changes.unused_names
    active_steps = [step for step in settings.steps if not step.is_off]
    if _loses_watermark(active_steps, changed.steps):
        unused.append(WATERMARK)
    step_names = _names_of(changed.steps)
    unused += [override.origin for override in overrides if not _is_in_chain(override, step_names)]
    return changed


def _overrides_with_effect(settings: Settings, changes: ChainChanges, unused: list[str]) -> list[Override]:
    """Return the overrides that can change the chosen token; the names of others are appended to ``unused``."""
    is_greedy = settings.steps[-1].sampler.about.is_greedy
    if not is_greedy or changes.rearrangements:
        return changes.overrides
    # A greedy chain chooses the top token, which some samplers never change.
    effective_overrides = []
    for override in changes.overrides:
        if find_sampler(_sampler_name(override)).about.keeps_top_token:
            unused.append(override.origin)
        else:
            effective_overrides.append(override)
    return effective_overrides


def _sampler_name(override: Override) -> str:
    """Return the sampler of a target such as ``top_p.p``."""
    return override.target.partition(".")[0]


def _is_in_chain(override: Override, step_names: set[str]) -> bool:
    """Return whether the chain has the override's sampler, or another one of its family."""
    sampler = _sampler_name(override)
    if sampler in step_names:
        return True
    family = find_sampler(sampler).about.family
    return bool(family) and any(find_sampler(name).about.family == family for name in step_names)


def grammar_of(settings: Settings, *, is_lenient: bool) -> GrammarSpec | None:
    """Return the grammar of settings, if any. Its errors name the field, the flag or the preset that sets it."""
    # ``is_lenient``: whether unsupported parts of a JSON Schema are ignored
    from ..grammars.spec import grammar_table, resolve_grammar

    value = settings["grammar"].value
    origin = settings["grammar"].origin
    if value is None:
        return None
    try:
        table = grammar_table(value)
        has_schema = "json_schema" in table or "json_schema_file" in table
        if is_lenient and has_schema:
            value = {"schema_lenient": True, **table}
        grammar = resolve_grammar(value, grammar_folders(), settings.grammar_folder)
    except GrammarError as error:
        raise error.within(origin) from None
    label = f"{origin}: {grammar.label}" if origin.startswith("preset ") else origin
    is_inline = table.keys().isdisjoint(("name", "file", "json_schema_file", "lark_file"))
    is_of_preset = origin.startswith("preset ")
    label = origin if is_inline and not is_of_preset else f"{origin}: {grammar.label}"
    return replace(grammar, label=label)
