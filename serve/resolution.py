"""From the fields of a request to the requests of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from ..common.errors import LogitsmithError
from ..common.seeds import fixed_seed, following_seed
from ..engine.drafts import DraftOptions
from ..engine.generation import (
    build_chain,
    check_grammar_rules,
    negative_prompt_ids,
    prompt_token_ids,
    start_constraint,
)
from ..engine.guidance import guidance_model
from ..engine.model import Model
from ..engine.native_template import builtin_chat_templates
from ..engine.phases import DEFAULT_THINKING_END
from ..engine.request import ChatMessages, GenerationRequest
from ..engine.templates import format_request, is_chat_template, open_chat_template
from ..engine.token_records import check_trace_count
from ..grammars.compile_guard import CompileGuard
from ..grammars.constraint import Constraint
from ..grammars.errors import GrammarError
from ..grammars.grammar import Grammar
from ..grammars.spec import GrammarSpec
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..presets.story import Story
from ..requests.asked import AskedRequest, ask
from ..requests.engine_request import text_rules
from ..requests.errors import InvalidLineError
from ..requests.fields import MAX_DRAFT_TOKENS, GenerationFields, MessageFields, PromptFields, TokenPromptFields
from ..requests.resolve import RequestDefaults, RequestResolver
from ..requests.story_context import LeftOut, StoryContext
from ..requests.story_reader import StoryReader
from ..requests.unknown_fields import limited
from ..samplers.chain import Chain
from ..samplers.errors import SamplingError
from .errors import ContextLengthError, InvalidRequestError, client_message
from .limits import check_logprobs, check_overrides, check_steps
from .requested_names import check_grammar_source, find_listed_preset

# The errors of settings that cannot be used. Their messages say why. `ServerState.run` reports them.
SETTING_ERRORS = (PresetError, SamplingError, GrammarError, ModelError, InvalidLineError)
_MAX_LEFT_OUT = 100  # parts of stories that an answer names


@dataclass(frozen=True)
class Choice:
    """One text of an answer."""

    request: GenerationRequest
    # The prompt as text; for messages, what the chat template made of them.
    prompt: str
    # Whether `gen run` with this text generates the same tokens.
    is_repeatable: bool

    @property
    def chain(self) -> Chain:
        """The chain of the request, which is built."""
        return cast("Chain", self.request.chain)


@dataclass(frozen=True)
class PreparedRequest:
    """A request that the engine can run: prompts are tokenized, chains built, and grammars compiled."""

    fields: PromptFields | MessageFields
    asked: AskedRequest
    # The texts to be generated: first all texts of the first prompt, then those of the second one.
    choices: tuple[Choice, ...]
    # The names of fields without effect.
    ignored: tuple[str, ...]
    # What has no room of the stories of the prompts.
    left_out: tuple[LeftOut, ...] = ()


class ReadStory(NamedTuple):
    """What the model reads of a request's story."""

    context: StoryContext
    prompt: str
    ids: list[int]
    max_prompt_tokens: int
    ignored: tuple[str, ...]


# A function that shortens the prompt of a request, which is token ids. It returns a short prompt unchanged.
Fit = Callable[[GenerationRequest], GenerationRequest]


class RequestMaker:
    """Makes the engine's requests from the fields of requests."""

    # ``reuses_answers``: whether a prompt may reuse generated tokens if the request does not say so. None: no
    # prompt ever may, because the server is deterministic.

    def __init__(
        self,
        defaults: RequestDefaults,
        model: Model,
        note: Callable[[str], object],
        guard: CompileGuard,
        reuses_answers: bool | None = False,
    ) -> None:
        self.guard = guard
        self.model = model
        self._note = note
        self._reuses_answers = reuses_answers
        self.story_reader = StoryReader(model, note)
        self.resolver = RequestResolver(defaults, model.metadata, note, story_reader=self.story_reader)
        guidance = text_rules(self.resolver.default_settings()).guidance
        if guidance is not None:
            guidance_model(model, guidance)  # loaded before the first request, or refused
        self._draft = defaults.draft
        self._has_lookup = defaults.lookup > 0
        if defaults.draft is not None:
            defaults.draft.open_for(model)
            # Measured now for any limit of a request: a probe during an answer would stop the other requests.
            model.draft_exactness(max(MAX_DRAFT_TOKENS, defaults.draft.n_max, defaults.lookup))

    def make(
        self, fields: PromptFields | MessageFields, ignored: Sequence[str], fit: Fit | None = None
    ) -> PreparedRequest:
        """Return what a request asks for, with prompts as tokens and compiled grammars."""
        # ``fit`` shortens prompts that do not fit into the context. Without it, such a prompt is an error. Raises
        # ``InvalidRequestError``.
        with _client_errors(fields):
            return self._make(fields, ignored, fit)

    def _make(
        self, fields: PromptFields | MessageFields, ignored: Sequence[str], fit: Fit | None
    ) -> PreparedRequest:
        asked = ask(fields, ignored).with_preset_of_model(self.model.name)
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
        prompt_field = fields.conversation_field if isinstance(fields, MessageFields) else "prompt"
        choices: list[Choice] = []
        grammars: dict[GrammarSpec, Grammar] = {}
        left_out: list[LeftOut] = []
        for resolved in self.resolver.requests(asked, settings, seed=0, left_out=left_out):
            if isinstance(resolved.constraint, GrammarSpec):
                unused += (f"grammar {path}" for path in resolved.constraint.ignored_schema_paths)
            is_empty = isinstance(resolved.prompt, (str, list)) and not resolved.prompt
            if is_empty and self.model.vocabulary.bos is None:
                raise InvalidRequestError("the prompt is empty; this model needs at least one token", "prompt")
            reuses_answers = self._reuses_answers if fields.cache_prompt is None else fields.cache_prompt
            request = replace(
                resolved, exact_reuse=not reuses_answers, draft=draft, confidence=fields.tells_confidence
            )
            if fields.speculative is False:
                request = replace(request, lookup=0)
            if isinstance(fields, TokenPromptFields) and fields.answer_start is not None:
                if settings.story is None:
                    request = self._with_parts(request, fields.answer_start)
                else:  # the prompt is another one
                    unused.append("answer_start")
            for number in range(asked.choice_count):
                seeded_request = replace(request, seed=following_seed(first_seed, number))
                choices.append(self._choice(seeded_request, prompt_field, grammars, fit))
        check_logprobs([choice.request for choice in choices], self.model.context_length)
        unused_once = list(dict.fromkeys(unused))
        return PreparedRequest(
            fields,
            asked,
            tuple(choices),
            ignored=tuple(limited(unused_once)),
            left_out=tuple(left_out[:_MAX_LEFT_OUT]),
        )

    def read_story(self, fields: PromptFields | MessageFields, ignored: Sequence[str]) -> ReadStory:
        """Return what the model would read of a request's story. Raises ``InvalidRequestError``."""
        with _client_errors(fields):
            asked = ask(fields, ignored).with_preset_of_model(self.model.name)
            _check_names(asked)
            unused = list(asked.ignored)
            settings = self.resolver.settings(asked, unused)
            request, *others = self.resolver.requests_without_story(asked, settings, seed=0)
            if others:
                raise InvalidRequestError("what the model reads of one prompt only can be shown", "prompt")
            context = self.story_reader.read(settings.story or Story(), request)
            shown = self.story_reader.insert(context, request)
            prompt = cast("str", format_request(self.model, shown, self._note).prompt)
        ids = prompt_token_ids(self.model.vocabulary, prompt)
        return ReadStory(context, prompt, ids, self.story_reader.max_prompt_tokens(request), tuple(unused))

    def has_story(self, fields: PromptFields) -> bool:
        """Return whether a request or its preset has a memory, an author's note or world info."""
        with _client_errors(fields):
            asked = ask(fields).with_preset_of_model(self.model.name)
            return self.resolver.settings(asked, []).story is not None

    def _read_draft(self, fields: GenerationFields, unused: list[str]) -> DraftOptions | None:
        """Return the draft model of a request with its limits; None without drafts of a model."""
        limits = {name: getattr(fields, f"speculative_{name}") for name in ("n_max", "n_min", "p_min")}
        limits = {name: value for name, value in limits.items() if value is not None}
        if self._draft is None:
            unused += [f"speculative.{name}" for name in limits]
            if fields.speculative and not self._has_lookup:
                unused.append("speculative")
            return None
        if fields.speculative is False:
            return None
        draft = replace(self._draft, **limits)
        if 0 < draft.n_max < draft.n_min:
            if "n_min" in limits:
                field = "speculative.n_min"
                problem = f"{draft.n_min} is more than speculative.n_max, {draft.n_max}"
            else:
                field = "speculative.n_max"
                problem = f"{draft.n_max} is less than speculative.n_min, {draft.n_min}"
            advice = 'set both, or "speculative": false for no drafts'
            raise InvalidRequestError(f"{field}: {problem}; {advice}", field)
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

    def _choice(
        self, request: GenerationRequest, field: str, grammars: dict[GrammarSpec, Grammar], fit: Fit | None
    ) -> Choice:
        """Return a choice. Tokens, chain and grammar are made here, so that the engine's thread need not wait."""
        # ``field``: the field that has the prompt, for errors.
        model = self.model
        if isinstance(request.prompt, ChatMessages):
            request = format_request(self.model, request, self._note)
        prompt = cast("str | Sequence[int]", request.prompt)
        ids = self._prompt_ids(prompt, field)
        request = replace(request, prompt=tuple(ids))
        check_grammar_rules(request)
        if fit is not None:
            fitted = fit(request)
            if fitted is not request:
                request = fitted
                prompt = cast("tuple[int, ...]", fitted.prompt)
                ids = list(prompt)
        self._check_length(ids, field)
        negative_ids = negative_prompt_ids(model, request, ids)
        if negative_ids is not None:
            self._check_length(negative_ids, "negative_prompt")
        if isinstance(prompt, str):
            prompt_text = prompt
        else:
            prompt_text = model.vocabulary.detokenize(ids).decode("utf-8", "replace")
        constraint = self._start_constraint(request, grammars)
        return Choice(
            replace(request, constraint=constraint, chain=build_chain(model, request)),
            prompt_text,
            is_repeatable=_has_command(request, prompt_text)
            and (isinstance(prompt, str) or prompt_token_ids(model.vocabulary, prompt_text) == ids),
        )

    def _with_parts(self, request: GenerationRequest, answer_start: int) -> GenerationRequest:
        """Return a request whose answer, which begins at a token of the prompt, has the template's reasoning."""
        ids = self._prompt_ids(cast("str | Sequence[int]", request.prompt), "prompt")
        prompt, beginning = (
            b"".join(map(self.model.vocabulary.piece, part)).decode("utf-8", "replace")
            for part in (ids[:answer_start], ids[answer_start:])
        )
        template = open_chat_template(self.model, self.resolver.defaults.chat_template)
        return request.with_chat_text(ids, template.reasoning_after(prompt + beginning, beginning))

    def _start_constraint(
        self, request: GenerationRequest, grammars: dict[GrammarSpec, Grammar]
    ) -> Constraint | None:
        """Return a request's constraint. Each grammar is compiled once, and kept in ``grammars``."""
        spec = request.constraint
        if not isinstance(spec, GrammarSpec):
            return spec
        if spec not in grammars:
            spec.try_compilation(self.guard)  # in another process first, because it could take very long
            grammars[spec] = spec.compile(self.model.vocabulary)
        return start_constraint(spec, self.model, grammars[spec])

    def _prompt_ids(self, prompt: str | Sequence[int], field: str) -> list[int]:
        """Return the tokens of a prompt. ``field``: for errors."""
        if not isinstance(prompt, str):
            self._check_ids(prompt, field)
        return prompt_token_ids(self.model.vocabulary, prompt)

    def _check_length(self, ids: Sequence[int], field: str) -> None:
        """Raise ``ContextLengthError`` for a prompt that leaves no token of the context free."""
        context = self.model.context_length
        if len(ids) >= context:
            problem = f"{len(ids):,} tokens do not fit into the context of {context:,} tokens; shorten the prompt"
            raise ContextLengthError(f"{field}: {problem}", field, len(ids), context)


def _has_command(request: GenerationRequest, prompt_text: str) -> bool:
    """Return whether the flags of `gen run` can express a request."""
    guidance = request.rules.guidance
    begins_with_answer = request.reasoning is None or request.reasoning.place == "after"
    has_own_grammar = request.constraint is not None and (bool(request.beginning) or not begins_with_answer)
    # A prompt without a template begins the first phase at once, and ends it with this tag.
    begins_with_phase = request.reasoning is None or (
        request.reasoning.place == "inside" and request.reasoning.tags.end == DEFAULT_THINKING_END
    )
    return (
        request.ends_at_eog
        and not request.stop_token_ids
        and not (guidance is not None and isinstance(guidance.negative_prompt, tuple))
        and not has_own_grammar
        and (begins_with_phase or not request.rules.phases)
        and "\0" not in prompt_text
    )


@contextmanager
def _client_errors(fields: PromptFields | MessageFields) -> Iterator[None]:
    """While inside, turn errors of settings into those that the client reads."""
    try:
        yield
    except SETTING_ERRORS as error:
        raise InvalidRequestError(client_message(error), _field_of(error, fields)) from None


def _field_of(error: LogitsmithError, fields: GenerationFields) -> str | None:
    """Return the field of a request that an error is about; None if the request has no such field."""
    return _field_at(error.origin or str(next(iter(error.place), "")), fields)


def _field_at(origin: str, fields: GenerationFields) -> str | None:
    """Return the field with which an origin such as ``set top_p`` or ``grammar.json_schema`` begins."""
    given_names = {type(fields).model_fields[name].alias or name for name in fields.model_fields_set}
    matching_names = [name for name in given_names if re.match(rf"{re.escape(name)}(?!\w)", origin)]
    return max(matching_names, key=len, default=None)


def _check_names(asked: AskedRequest) -> None:
    """Raise ``RequestError`` if a request names a file, or a model, of this machine."""
    if asked.preset is not None and asked.preset != "model":
        find_listed_preset(asked.preset, asked.preset_field)
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
