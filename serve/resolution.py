"""From the fields of a request to the requests of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from ..common.errors import LogitsmithError
from ..common.seeds import fixed_seed, following_seed
from ..engine.drafts import DraftOptions
from ..engine.generation import build_chain, check_heal, negative_prompt_ids, prompt_token_ids, start_constraint
from ..engine.guidance import guidance_model, with_system_message
from ..engine.model import Model
from ..engine.native_template import builtin_chat_templates
from ..engine.request import ChatMessages, GenerationRequest
from ..engine.templates import format_chat, is_chat_template, open_chat_template
from ..engine.token_records import check_trace_count
from ..grammars.compile_guard import CompileGuard
from ..grammars.errors import GrammarError
from ..grammars.grammar import Grammar
from ..grammars.spec import GrammarSpec
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..requests.asked import AskedRequest, ask
from ..requests.engine_request import text_rules
from ..requests.errors import InvalidLineError
from ..requests.fields import MAX_DRAFT_TOKENS, ChatFields, GenerationFields, PromptFields
from ..requests.resolve import RequestDefaults, RequestResolver
from ..requests.unknown_fields import limited
from ..samplers.chain import Chain
from ..samplers.errors import SamplingError
from .errors import ContextLengthError, InvalidRequestError, client_message
from .limits import check_logprobs, check_overrides, check_steps
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
class PreparedRequest:
    """A request whose texts can be generated: prompts are tokens, chains and grammars are made."""

    fields: PromptFields | ChatFields
    asked: AskedRequest
    # Those of the first prompt first.
    choices: tuple[Choice, ...]
    # The names of fields without effect.
    ignored: tuple[str, ...]


# A function that shortens the prompt of a request, whose prompt is tokens; it returns a short one unchanged.
Fit = Callable[[GenerationRequest], GenerationRequest]


class RequestMaker:
    """Makes the engine's requests from the fields of requests."""

    # ``reuses_answers``: whether prompts may reuse generated tokens, where a request does not say it; None: they
    # never may, because the server is deterministic.

    def __init__(
        self,
        defaults: RequestDefaults,
        model: Model,
        note: Callable[[str], object],
        guard: CompileGuard,
        reuses_answers: bool | None = False,
    ) -> None:
        self.guard, self.model = guard, model
        self._note, self._reuses_answers = note, reuses_answers
        self.resolver = RequestResolver(defaults, model.metadata, note)
        guidance = text_rules(self.resolver.default_settings()).guidance
        if guidance is not None:
            guidance_model(model, guidance)  # loaded before the first request, or refused
        self._draft, self._has_lookup = defaults.draft, defaults.lookup > 0
        if defaults.draft is not None:
            defaults.draft.open_for(model)
            # Measured now for any limit of a request: a probe during an answer would stop the other requests.
            model.draft_exactness(max(MAX_DRAFT_TOKENS, defaults.draft.n_max, defaults.lookup))

    def make(
        self, fields: PromptFields | ChatFields, ignored: Sequence[str], fit: Fit | None = None
    ) -> PreparedRequest:
        """Return what a request asks for, with prompts as tokens and compiled grammars."""
        # ``fit`` makes prompts fit into the context; without it, those that do not fit are errors. Raises
        # ``InvalidRequestError``.
        try:
            return self._make(fields, ignored, fit)
        except SETTING_ERRORS as error:
            raise InvalidRequestError(client_message(error), _field_of(error, fields)) from None

    def _make(self, fields: PromptFields | ChatFields, ignored: Sequence[str], fit: Fit | None) -> PreparedRequest:
        asked = ask(fields, ignored)
        _check_names(asked)
        check_overrides(asked.overrides)
        unused = [*asked.ignored, *self.resolver.unread_fields(asked)]
        settings = self.resolver.settings(asked, unused)
        check_steps(settings.steps, lambda origin: _field_at(origin, fields) is not None)
        first_seed = fixed_seed(settings["seed"].value)
        if fields.cache_prompt and self._reuses_answers is None:
            unused.append("cache_prompt")
        self._check_against_vocabulary(fields)
        if asked.logprobs is not None:
            asked.logprobs.check(self.model.vocabulary)
        draft = self._read_draft(fields, unused)
        choices: list[Choice] = []
        grammars: dict[GrammarSpec, Grammar] = {}
        for request in self.resolver.requests(asked, settings, seed=0):
            if isinstance(request.constraint, GrammarSpec):
                unused += (f"grammar {path}" for path in request.constraint.ignored_schema_paths)
            if (
                isinstance(request.prompt, (str, list))
                and not request.prompt
                and self.model.vocabulary.bos is None
            ):
                raise InvalidRequestError("the prompt is empty; this model needs at least one token", "prompt")
            for number in range(asked.choice_count):
                choice = replace(
                    request,
                    seed=following_seed(first_seed, number),
                    exact_reuse=not (self._reuses_answers if fields.cache_prompt is None else fields.cache_prompt),
                    lookup=0 if fields.speculative is False else request.lookup,
                    draft=draft,
                )
                choices.append(self._choice(choice, grammars, fit))
        check_logprobs([choice.request for choice in choices], self.model.context_length)
        return PreparedRequest(fields, asked, tuple(choices), tuple(limited(list(dict.fromkeys(unused)))))

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
            self.model.vocabulary.check(ids, field)
        except ModelError as error:
            raise InvalidRequestError(str(error), field) from None

    def _choice(self, request: GenerationRequest, grammars: dict[GrammarSpec, Grammar], fit: Fit | None) -> Choice:
        """Return a choice. Tokens, chain and grammar are made here, not in the thread of the engine."""
        model, prompt, field = self.model, request.prompt, "prompt"
        if isinstance(prompt, ChatMessages):
            template = open_chat_template(model, prompt.template, prompt.variables)
            guidance, messages = request.rules.guidance, prompt.messages
            prompt = format_chat(model, messages, template, self._note, request.beginning)
            request = request.with_chat_text(prompt)
            if guidance is not None and isinstance(guidance.negative_prompt, str) and guidance.negative_prompt:
                negative_messages = with_system_message(messages, guidance.negative_prompt)
                text = format_chat(model, negative_messages, template, beginning=request.beginning)
                request = request.guided_by(replace(guidance, negative_prompt=text))
            field = "messages"
        ids = self._prompt_ids(prompt, field)
        request = replace(request, prompt=tuple(ids))
        check_heal(request)
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


def _field_of(error: LogitsmithError, fields: GenerationFields) -> str | None:
    """Return the field of a request that an error is about; None if the request has no such field."""
    return _field_at(error.origin or str(next(iter(error.place), "")), fields)


def _field_at(origin: str, fields: GenerationFields) -> str | None:
    """Return the field with which an origin such as ``set top_p`` or ``grammar.json_schema`` begins."""
    given = {type(fields).model_fields[name].alias or name for name in fields.model_fields_set}
    return max((name for name in given if re.match(rf"{re.escape(name)}(?!\w)", origin)), key=len, default=None)


def _check_names(asked: AskedRequest) -> None:
    """Raise ``InvalidRequestError`` for what would be read from a file, or loaded, for a request."""
    if asked.preset is not None and asked.preset != "model":
        find_listed_preset(asked.preset, "preset")
    template = asked.chat_template
    if template is not None and not is_chat_template(template) and template not in builtin_chat_templates():
        raise InvalidRequestError("chat_template: neither Jinja nor the name of a template", "chat_template")
    for override in asked.overrides:
        if override.target == "guidance" and isinstance(override.value, Mapping) and "model" in override.value:
            raise InvalidRequestError(
                "guidance.model: a request cannot name a model; a preset of this server can",
                override.origin.partition(" ")[0],
            )
        if override.target == "grammar" and override.value is not None:
            check_grammar_source(override.value, override.origin)
