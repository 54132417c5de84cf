"""From the fields of a request to the requests of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from ..common.seeds import fixed_seed, following_seed
from ..engine.chat_template import Message, content_text
from ..engine.drafts import DraftOptions
from ..engine.generation import build_chain, negative_prompt_ids, prompt_token_ids, start_constraint
from ..engine.guidance import guidance_model, with_system_message
from ..engine.model import Model
from ..engine.native_template import builtin_chat_templates
from ..engine.request import ChatMessages, GenerationRequest
from ..engine.templates import format_chat, is_chat_template, open_chat_template
from ..engine.token_records import LogprobRequest, check_trace_count
from ..grammars.compile_guard import CompileGuard
from ..grammars.errors import GrammarError
from ..grammars.grammar import Grammar
from ..grammars.spec import GrammarSpec
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..presets.foreign.requests import RequestTool
from ..presets.overrides import WATERMARK, Override, parse_set
from ..presets.setting_table import find_setting_name
from ..presets.settings import Settings, override_settings
from ..requests.errors import InvalidLineError
from ..requests.fields import (
    MAX_DRAFT_TOKENS,
    ChatFields,
    GenerationFields,
    PromptFields,
    read_settings,
    set_arguments,
)
from ..requests.lines import ParsedRequest
from ..requests.messages import template_fields_of, unused_reasoning_of
from ..requests.resolve import BatchDefaults, RequestResolver, text_rules
from ..requests.sampler_fields import ChainChanges, first_given, read_bias_changes, read_chain_changes
from ..requests.tool_fields import find_tool, read_tool_chain
from ..requests.unknown_fields import limited
from ..samplers.chain import Chain
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .errors import ContextLengthError, InvalidRequestError, setting_message
from .limits import check_logprobs, without_paths
from .requested_names import check_grammar_source, find_listed_preset

# The errors of settings that cannot be used. Their messages say why. `ServerState.run` reports them.
SETTING_ERRORS = (PresetError, SamplingError, GrammarError, ModelError, InvalidLineError)


@dataclass(frozen=True)
class Choice:
    """One text of an answer. ``prompt`` is the prompt as text, in a chat with the chat template."""

    request: GenerationRequest
    prompt: str
    # Whether `gen run` with the text of the prompt gives the same tokens. It has no flag for tokens that end a
    # text, and other token ids than those of the prompt's text cannot be typed.
    is_repeatable: bool

    @property
    def chain(self) -> Chain:
        """The chain of the request, which is built."""
        return cast("Chain", self.request.chain)


@dataclass(frozen=True)
class Asked:
    """All that a request asks for."""

    fields: PromptFields | ChatFields
    # Those of the first prompt first.
    choices: tuple[Choice, ...]
    choices_per_prompt: int
    # The names of fields without effect.
    ignored: tuple[str, ...]
    # How many of the most likely tokens are listed for each token of the answer.
    top_logprob_count: int
    # The same for each token of the prompt; None: no such logprobs.
    prompt_logprob_count: int | None


# The preset of a server that is started without one. Nobody chose the order of its chain.
DEFAULT_PRESET = "default"
# A function that shortens the prompt of a request, whose prompt is tokens; it returns a short one unchanged.
Fit = Callable[[GenerationRequest], GenerationRequest]


class RequestMaker:
    """Makes the engine's requests from the fields of requests."""

    # ``reuses_answers``: whether prompts may reuse generated tokens, where a request does not say it; None: they
    # never may, because the server is deterministic.

    def __init__(
        self,
        defaults: BatchDefaults,
        model: Model,
        note: Callable[[str], object],
        guard: CompileGuard,
        reuses_answers: bool | None = False,
    ) -> None:
        self.guard, self.model = guard, model
        self._note, self._reuses_answers = note, reuses_answers
        self.resolver = RequestResolver(defaults, model.metadata, note, notes_requests=False)
        guidance = text_rules(self.resolver.default_settings()).guidance
        if guidance is not None:
            guidance_model(model, guidance)  # loaded before the first request, or refused
        self._has_own_order = (
            defaults.preset != DEFAULT_PRESET
            or defaults.chain is not None
            or any(rearrangement.step_names is not None for rearrangement in defaults.rearrangements)
        )
        self._draft, self._has_lookup = defaults.draft, defaults.lookup > 0
        if defaults.draft is not None:
            defaults.draft.open_for(model)
            # Measured now for any limit of a request: a probe during an answer would stop the other requests.
            model.draft_exactness(max(MAX_DRAFT_TOKENS, defaults.draft.n_max, defaults.lookup))

    def make(self, fields: PromptFields | ChatFields, ignored: Sequence[str], fit: Fit | None = None) -> Asked:
        """Return what a request asks for, with prompts as tokens and compiled grammars."""
        # ``fit`` makes prompts fit into the context; without it, those that do not fit are errors. Raises
        # ``InvalidRequestError``.
        try:
            return self._make(fields, ignored, fit)
        except SETTING_ERRORS as error:
            message = without_paths(setting_message(error), self.model.path)
            raise InvalidRequestError(message, _named_field(message, fields)) from None

    def _make(self, fields: PromptFields | ChatFields, ignored: Sequence[str], fit: Fit | None) -> Asked:
        unused = [*ignored]
        messages, beginning = (
            _messages(fields, unused) if isinstance(fields, ChatFields) else (None, fields.beginning or "")
        )
        if not beginning and isinstance(fields, ChatFields) and fields.add_generation_prompt is False:
            unused.append("add_generation_prompt")  # only a continued message needs no prompt
        parsed, settings = self._parse(fields, messages, unused)
        first_seed = fixed_seed(settings["seed"].value)
        asked_logprobs = _read_logprobs(fields, unused)
        prompt_count = asked_logprobs.prompt_count
        prompts = fields.prompts() if isinstance(fields, PromptFields) else [None]
        count = first_given(fields, ("n", "n_cmpl"), unused)[1] or 1
        if fields.cache_prompt and self._reuses_answers is None:
            unused.append("cache_prompt")
        if fields.best_of is not None and fields.best_of != count:
            unused.append("best_of")
        self._check_against_vocabulary(fields)
        asked_logprobs.request.check(self.model.vocabulary)
        draft = self._read_draft(fields, unused)
        choices: list[Choice] = []
        grammars: dict[GrammarSpec, Grammar] = {}
        for prompt in prompts:
            request = replace(
                self._resolve(replace(parsed, prompt=prompt), settings, fields),
                exact_reuse=not (self._reuses_answers if fields.cache_prompt is None else fields.cache_prompt),
                logprobs=asked_logprobs.request,
                echo=bool(fields.echo) or prompt_count is not None,
                stop_token_ids=tuple(fields.stop_token_ids or ()),
                beginning=beginning,
                ends_at_eog=not fields.bypass_eos,
                draft=draft,
            )
            if fields.speculative is False:
                request = replace(request, lookup=0)
            if isinstance(request.constraint, GrammarSpec):
                unused += (f"grammar {path}" for path in request.constraint.ignored_schema_paths)
            if prompt is not None and not prompt and self.model.vocabulary.bos is None:
                raise InvalidRequestError("the prompt is empty; this model needs at least one token", "prompt")
            for number in range(count):
                seeded = replace(request, seed=following_seed(first_seed, number))
                choices.append(self._choice(seeded, grammars, fit))
        check_logprobs([choice.request for choice in choices], self.model.context_length)
        ignored = tuple(limited(list(dict.fromkeys(unused))))
        return Asked(fields, tuple(choices), count, ignored, asked_logprobs.top_count, prompt_count)

    def _resolve(self, parsed: ParsedRequest, settings: Settings, fields: GenerationFields) -> GenerationRequest:
        """Return the request of a prompt. Errors of its grammar begin with the field that has the grammar."""
        origin = settings["grammar"].origin.removeprefix("--")
        is_of_request = _named_field(origin, fields) is not None
        try:
            request = self.resolver.resolve(parsed, settings)
        except GrammarError as error:
            if not is_of_request or str(error).startswith(origin):
                raise
            raise error.within(origin) from None
        if is_of_request and isinstance(request.constraint, GrammarSpec):
            return replace(request, constraint=replace(request.constraint, label=origin))
        return request

    def _read_draft(self, fields: GenerationFields, unused: list[str]) -> DraftOptions | None:
        """Return the draft model of a request with its limits; None without drafts of a model."""
        limits = {
            name: value
            for name in ("n_max", "n_min", "p_min")
            if (value := getattr(fields, f"speculative_{name}")) is not None
        }
        if self._draft is None:
            unused += [f"speculative.{name}" for name in limits]
            if fields.speculative and not self._has_lookup:
                unused.append("speculative")
            return None
        if fields.speculative is False:
            return None
        draft = replace(self._draft, **limits)
        if 0 < draft.n_max < draft.n_min:
            name, relation, other = ("n_min", "more", "n_max") if "n_min" in limits else ("n_max", "less", "n_min")
            value, other_value = getattr(draft, name), getattr(draft, other)
            message = f"speculative.{name}: {value} is {relation} than speculative.{other}, {other_value}"
            raise InvalidRequestError(
                f'{message}; set both, or "speculative": false for no drafts', f"speculative.{name}"
            )
        return draft

    def _check_against_vocabulary(self, fields: GenerationFields) -> None:
        for name in ("stop_token_ids", "logprob_token_ids"):
            self._check_ids(getattr(fields, name) or (), name)
        if fields.trace is not None:
            check_trace_count(fields.trace, self.model.vocabulary)

    def _check_ids(self, ids: Sequence[int], field: str) -> None:
        try:
            self.model.vocabulary.check(ids)
        except ModelError as error:
            raise InvalidRequestError(f"{field}: {error}", field) from None

    def _parse(
        self, fields: GenerationFields, messages: list[Message] | None, unused: list[str]
    ) -> tuple[ParsedRequest, Settings]:
        """Return the request, and its settings. Names are checked, so that no file is read for a request."""
        if fields.preset is not None and fields.preset != "model":
            find_listed_preset(fields.preset, "preset")
        template = fields.chat_template
        if template is not None and not is_chat_template(template) and template not in builtin_chat_templates():
            raise InvalidRequestError("chat_template: neither Jinja nor the name of a template", "chat_template")
        if messages is None and (template is not None or fields.chat_template_kwargs is not None):
            name = "chat_template_kwargs" if template is None else "chat_template"
            raise InvalidRequestError(
                f"{name}: a prompt gets no chat template; send messages to /v1/chat/completions", name
            )
        parsed = ParsedRequest(
            id="",
            line_number=0,
            prompt=None,
            messages=messages,
            overrides=tuple(read_settings(fields, unused)),
            preset=fields.preset,
            chain=fields.chain,
            set_arguments=tuple(set_arguments(fields.set_ or [])),
            trace_top_count=fields.trace,
            chat_template=template,
            chat_template_kwargs=fields.chat_template_kwargs,
            template_fields=template_fields_of(
                fields.messages if isinstance(fields, ChatFields) else None, fields.chat_template_kwargs
            ),
        )
        unused += self.resolver.unread_fields(parsed)
        try:
            set_overrides = [parse_set(argument) for argument in parsed.set_arguments]
        except PresetError as error:
            raise InvalidRequestError(str(error).removeprefix("--"), "set") from None
        for override in (*set_overrides, *parsed.overrides):
            if override.target == "guidance" and isinstance(override.value, Mapping) and "model" in override.value:
                raise InvalidRequestError(
                    "guidance.model: a request cannot name a model; a preset of this server can",
                    "guidance",
                )
            if find_setting_name(override.target) == "grammar" and override.value is not None:
                check_grammar_source(override.value, override.origin.removeprefix("--"))
        settings = self.resolver.settings(parsed)
        parsed, settings = self._without_unused_negative(parsed, settings, unused)
        tool = find_tool(fields)
        if tool is not None and settings.steps[-1].name == "dist":
            return parsed, self._with_tool_chain(tool, fields, settings, unused)
        return self._with_chain_changes(parsed, fields, settings, unused)

    def _with_chain_changes(
        self, parsed: ParsedRequest, fields: GenerationFields, settings: Settings, unused: list[str]
    ) -> tuple[ParsedRequest, Settings]:
        """Return the request and its settings with the usual meaning of the fields, which is llama-server's."""
        changes = read_chain_changes(fields, [step.name for step in settings.steps])
        unused += changes.unused_names
        overrides = _overrides_with_effect(settings, changes, unused)
        rearrangements = tuple(changes.rearrangements)
        parsed = replace(parsed, overrides=(*parsed.overrides, *overrides), rearrangements=rearrangements)
        names = {step.name for step in settings.steps if not step.is_off}
        if overrides or rearrangements:
            settings = self.resolver.settings(parsed)
        final_names = {step.name for step in settings.steps}
        unused += {WATERMARK} & (names - final_names)
        unused += [override.origin for override in overrides if not _is_in_chain(override, final_names)]
        return parsed, settings

    def _with_tool_chain(
        self, tool: RequestTool, fields: GenerationFields, settings: Settings, unused: list[str]
    ) -> Settings:
        """Return the settings with the chain that the fields mean to a tool."""
        keeps_order = self._has_own_order or fields.preset is not None or fields.chain is not None
        steps, unused_names = read_tool_chain(tool, fields, settings.steps, keeps_order=keeps_order)
        unused += unused_names
        unused += {WATERMARK} & ({step.name for step in settings.steps} - {step.name for step in steps})
        settings = replace(settings, steps=steps)
        for override in read_bias_changes(fields).overrides:
            settings = override_settings(settings, override)
        return settings

    def _without_unused_negative(
        self, parsed: ParsedRequest, settings: Settings, unused: list[str]
    ) -> tuple[ParsedRequest, Settings]:
        """Return the request without the field ``negative_prompt`` if no scale gives it an effect."""
        kept = tuple(override for override in parsed.overrides if override.origin != "negative_prompt")
        if len(kept) == len(parsed.overrides) or (settings["guidance"].value or {}).get("scale", 1) != 1:
            return parsed, settings
        unused.append("negative_prompt")
        parsed = replace(parsed, overrides=kept)
        return parsed, self.resolver.settings(parsed)

    def _choice(self, request: GenerationRequest, grammars: dict[GrammarSpec, Grammar], fit: Fit | None) -> Choice:
        """Return a choice. Tokens, chain and grammar are made here, not in the thread of the engine."""
        model, prompt, field = self.model, request.prompt, "prompt"
        if isinstance(prompt, ChatMessages):
            template = open_chat_template(model, prompt.template, prompt.variables)
            guidance, messages = request.rules.guidance, prompt.messages
            if not request.beginning:
                # the end of the template is exact
                request = replace(request, rules=replace(request.rules, heal=False))
            prompt = format_chat(model, messages, template, self._note, request.beginning)
            if guidance is not None and isinstance(guidance.negative_prompt, str) and guidance.negative_prompt:
                negative_messages = with_system_message(messages, guidance.negative_prompt)
                text = format_chat(model, negative_messages, template, beginning=request.beginning)
                request = request.guided_by(replace(guidance, negative_prompt=text))
            field = "messages"
        ids = self._prompt_ids(prompt, field)
        request = replace(request, prompt=tuple(ids))
        if fit is not None and (fitted := fit(request)) is not request:
            request, prompt = fitted, cast("tuple[int, ...]", fitted.prompt)
            ids = list(prompt)
        self._check_length(ids, field)
        negative_ids = negative_prompt_ids(model, request, ids)
        if negative_ids is not None:
            self._check_length(negative_ids, "negative_prompt")
        shown = prompt if isinstance(prompt, str) else model.vocabulary.detokenize(ids).decode("utf-8", "replace")
        constraint = request.constraint
        if isinstance(constraint, GrammarSpec):
            if constraint not in grammars:
                constraint.try_compilation(self.guard)  # in another process first, because it could take very long
                grammars[constraint] = constraint.compile(model.vocabulary)
            constraint = start_constraint(constraint, model, grammars[constraint])
        guidance = request.rules.guidance
        return Choice(
            replace(request, constraint=constraint, chain=build_chain(model, request)),
            shown,
            is_repeatable=request.ends_at_eog
            and not request.stop_token_ids
            and not (guidance is not None and isinstance(guidance.negative_prompt, tuple))
            and not (request.beginning and request.constraint is not None)
            and "\0" not in shown
            and (isinstance(prompt, str) or prompt_token_ids(model.vocabulary, shown) == ids),
        )

    def _prompt_ids(self, prompt: str | Sequence[int], field: str) -> list[int]:
        """Return the tokens of a prompt. ``field``: for errors."""
        if not isinstance(prompt, str):
            self._check_ids(prompt, field)
        return prompt_token_ids(self.model.vocabulary, prompt)

    def _check_length(self, ids: Sequence[int], field: str) -> None:
        """Raise ``ContextLengthError`` for a prompt that leaves no token of the context free."""
        context = self.model.context_length
        if len(ids) >= context:
            excess = f"{len(ids):,} tokens do not fit into the context of {context:,} tokens; shorten the prompt"
            raise ContextLengthError(f"{field}: {excess}", field, len(ids), context)


def _named_field(message: str, fields: GenerationFields) -> str | None:
    """Return the field of a request that a message begins with; None if the request has no such field."""
    name = re.split("[ :.]", message, maxsplit=1)[0]
    given = {type(fields).model_fields[name].alias or name for name in fields.model_fields_set}
    return name if name in given else None


def _messages(fields: ChatFields, unused: list[str]) -> tuple[list[Message], str]:
    """Return the messages of a chat, and the beginning of the answer: a last message of the assistant."""
    messages = [message.template_message() for message in fields.messages]
    unused += unused_reasoning_of(fields.messages)
    last = messages[-1]
    is_complete = last["role"] != "assistant" or "tool_calls" in last or fields.continue_final_message is False
    if is_complete or len(messages) == 1:
        return messages, ""
    unused += (f"messages[{len(messages) - 1}].{path}" for path, _ in fields.messages[-1].template_fields())
    return messages[:-1], content_text(last["content"])


def _is_in_chain(override: Override, names: set[str]) -> bool:
    sampler = override.target.partition(".")[0]
    family = find_sampler(sampler).about.family
    return sampler in names or (bool(family) and any(find_sampler(name).about.family == family for name in names))


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


class _AskedLogprobs(NamedTuple):
    """The logprobs that a request asks for; for the counts see `Asked`."""

    request: LogprobRequest
    top_count: int
    prompt_count: int | None


def _read_logprobs(fields: GenerationFields, unused: list[str]) -> _AskedLogprobs:
    """Return the logprobs that are asked for. Names of fields without effect are appended to ``unused``."""
    prompt_count = fields.prompt_logprobs
    if isinstance(prompt_count, bool):
        prompt_count = 1 if prompt_count else None
    counts = {} if prompt_count is None else {"prompt_logprobs": prompt_count}
    has_logprobs = fields.logprobs is not None and fields.logprobs is not False
    if has_logprobs:
        counts["logprobs"] = 0 if fields.logprobs is True else fields.logprobs or 0
        counts["top_logprobs"] = fields.top_logprobs or 0
    elif fields.top_logprobs:
        unused.append("top_logprobs")
    if fields.n_probs or fields.logprob_token_ids or fields.trace:  # a trace is part of a token's logprobs
        counts["n_probs"] = fields.n_probs or 0
    if not counts:
        names = ("logprobs_from", "post_sampling_probs", "return_tokens_as_token_ids")
        unused += [name for name in names if getattr(fields, name)]
        return _AskedLogprobs(LogprobRequest(), 0, None)
    source = fields.logprobs_from or ("chain" if fields.post_sampling_probs else "model")
    if fields.post_sampling_probs and source == "model":
        unused.append("post_sampling_probs")
    label = max(counts, key=counts.__getitem__)
    top_count = max((count for name, count in counts.items() if name != "prompt_logprobs"), default=0)
    request = LogprobRequest(counts[label], source, tuple(fields.logprob_token_ids or ()), label, lowest=0)
    return _AskedLogprobs(request, top_count, prompt_count)
