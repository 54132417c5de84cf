"""From the fields of a request to the requests of the engine, and to what an answer says about them."""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.machine import SEED_MAX
from ..common.text import short_repr
from ..engine.generation import build_chain, prompt_token_ids, start_constraint
from ..engine.model import Model
from ..engine.request import ChatMessages, GenerationRequest
from ..engine.templates import builtin_chat_templates, format_chat, is_chat_template, open_chat_template
from ..engine.token_records import LogprobRequest
from ..grammars.errors import GrammarError
from ..grammars.grammar import Grammar
from ..grammars.spec import GrammarSpec, grammar_table
from ..jobs.bodies import ParsedRequest
from ..jobs.errors import InvalidLineError
from ..jobs.resolve import BatchDefaults, RequestResolver
from ..logprobs.events import Start
from ..models.errors import ModelError
from ..presets.errors import PresetError, preset_hint
from ..presets.overrides import Override, find_setting_name, parse_set
from ..presets.search import PresetEntry, list_presets
from ..presets.settings import Settings
from ..samplers.building import chain_notation
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .bodies import ChatFields, GenerationFields, PromptFields, read_settings
from .compile_guard import CompileGuard
from .errors import InvalidRequestError
from .limits import check_logprobs, check_prompt_bytes, check_prompt_tokens, without_paths
from .sampler_fields import ChainChanges, first_given, read_chain_changes

SETTING_ERRORS = (PresetError, SamplingError, GrammarError, ModelError, InvalidLineError)
"""The errors of settings that cannot be used. Their messages say why."""


@dataclass(frozen=True)
class Choice:
    """One text of an answer.

    Attributes:
        request: the request for the engine.
        prompt: the prompt as text, in a chat with the chat template.
        index: number of the choice in the answer, from 0.
        is_repeatable: whether `gen run` with the text of the prompt gives the same tokens. It has no flag for
            tokens that end a text, and other token ids than those of the prompt's text cannot be typed.
    """

    request: GenerationRequest
    prompt: str
    index: int
    is_repeatable: bool


@dataclass(frozen=True)
class Asked:
    """All that a request asks for.

    Attributes:
        choices: the texts to be generated, those of the first prompt first.
        choices_per_prompt: number of texts for each prompt.
        ignored: the names of fields without effect.
        is_stream: whether tokens are sent as they are generated.
        has_usage: whether a stream ends with the numbers of tokens.
        has_logprobs: whether tokens are sent with logprobs.
        echo: whether the answer begins with the prompt.
        prompt_logprob_count: number of most likely tokens for each token of the prompt; None: no such logprobs.
        writes_token_ids: whether tokens are written as ``token_id:7`` instead of their texts.
    """

    choices: tuple[Choice, ...]
    choices_per_prompt: int
    ignored: tuple[str, ...]
    is_stream: bool
    has_usage: bool
    has_logprobs: bool
    echo: bool
    prompt_logprob_count: int | None
    writes_token_ids: bool


_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}", re.ASCII)
"""A name on a search path. Paths are not read for a request."""


def is_preset_name(text: str) -> bool:
    """Return whether a text is the name of a preset on the search path. The text is never read as a path."""
    return bool(_NAME.fullmatch(text)) and text in _presets_by_name()


def _presets_by_name() -> dict[str, PresetEntry]:
    return {entry.name: entry for entry in list_presets() if not entry.is_shadowed}


def find_listed_preset(name: str, field: str) -> PresetEntry:
    """Return the preset of the search path that has this name.

    The name is never read as the path of a file, not even if there is such a file in the server's folder.

    Args:
        name: the name.
        field: the field of the request that holds the name, for the message.

    Raises ``InvalidRequestError``, which tells the most similar name.
    """
    known = _presets_by_name()
    if not _NAME.fullmatch(name) or name not in known:
        hint = preset_hint(name, sorted(known))
        raise InvalidRequestError(f"{field}: {short_repr(name)} is not the name of a preset; {hint}", field)
    return known[name]


class RequestMaker:
    """A maker of the engine's requests from the fields of requests.

    Args:
        defaults: the settings of requests that do not set them.
        model: the model.
        note: called with a sentence about settings that cannot be used.
        guard: compiles grammars in another process first.
        reuses_answers: whether prompts may reuse generated tokens, where a request does not say it; None: they
            never may, because the server is deterministic.
    """

    def __init__(
        self,
        defaults: BatchDefaults,
        model: Model,
        note: Callable[[str], object],
        guard: CompileGuard,
        reuses_answers: bool | None = False,
    ) -> None:
        self._guard, self._reuses_answers = guard, reuses_answers
        self._resolver = RequestResolver(defaults, model.metadata, note, notes_schemas=False)
        self._context = model.context_length
        self._max_token_bytes = max(map(len, model.vocabulary.pieces))
        self._model, self._note = model, note

    def default_settings(self) -> Settings:
        """Return the settings of a request that sets nothing."""
        return self._resolver.default_settings()

    def make(self, fields: PromptFields | ChatFields, ignored: Sequence[str]) -> Asked:
        """Return what a request asks for. The prompts are tokens, and the grammars are compiled.

        Args:
            fields: the fields of the request.
            ignored: the names of fields without effect that are already known.

        Raises ``InvalidRequestError`` with a sentence about a setting that cannot be used.
        """
        try:
            return self._make(fields, [*ignored])
        except SETTING_ERRORS as error:
            raise InvalidRequestError(without_paths(str(error), self._model.path)) from None

    def _make(self, fields: PromptFields | ChatFields, unused: list[str]) -> Asked:
        parsed, settings = self._parse(fields, unused)
        seed = settings.seed.value
        first_seed = secrets.randbelow(SEED_MAX + 1) if seed is None else seed
        logprobs, echo, prompt_count = _read_logprobs(fields, unused)
        prompts = fields.prompts() if isinstance(fields, PromptFields) else [None]
        count = first_given(fields, ("n", "n_cmpl"), unused)[1] or 1
        if fields.cache_prompt and self._reuses_answers is None:
            unused.append("cache_prompt")
        if fields.best_of is not None and fields.best_of != count:
            unused.append("best_of")
        choices: list[Choice] = []
        grammars: dict[GrammarSpec, Grammar] = {}
        for prompt in prompts:
            request = replace(
                self._resolver.resolve(replace(parsed, prompt=prompt), settings),
                exact_reuse=not (self._reuses_answers if fields.cache_prompt is None else fields.cache_prompt),
                logprobs=logprobs,
                echo=echo or prompt_count is not None,
                stop_token_ids=tuple(fields.stop_token_ids or ()),
                beginning=_messages(fields)[1] if isinstance(fields, ChatFields) else "",
                ends_at_eog=not fields.bypass_eos,
            )
            if isinstance(request.constraint, GrammarSpec):
                unused += (f"grammar {path}" for path in request.constraint.ignored_schema_paths)
            if prompt is not None and not prompt:
                self._check_empty_prompt()
            for number in range(count):
                seeded = replace(request, seed=(first_seed + number) % (SEED_MAX + 1))
                choices.append(self._choice(seeded, prompt, len(choices), grammars))
        check_logprobs([choice.request for choice in choices], self._context)
        return Asked(
            choices=tuple(choices),
            choices_per_prompt=count,
            ignored=tuple(dict.fromkeys(unused)),
            is_stream=bool(fields.stream),
            has_usage=fields.stream_options is not None and bool(fields.stream_options.include_usage),
            has_logprobs=_asks_for_logprobs(fields),
            echo=echo,
            prompt_logprob_count=prompt_count,
            writes_token_ids=bool(fields.return_tokens_as_token_ids),
        )

    def _check_empty_prompt(self) -> None:
        if self._model.vocabulary.bos is None:
            raise InvalidRequestError("the prompt is empty; this model needs at least one token", "prompt")

    def _parse(self, fields: PromptFields | ChatFields, unused: list[str]) -> tuple[ParsedRequest, Settings]:
        """Return the request, and its settings. Names are checked, so that no file is read for a request."""
        if fields.preset is not None and fields.preset != "model":
            find_listed_preset(fields.preset, "preset")
        template = fields.chat_template
        if template is not None and not is_chat_template(template) and template not in builtin_chat_templates():
            raise InvalidRequestError("chat_template: neither Jinja nor the name of a template", "chat_template")
        sets = fields.set_
        if isinstance(sets, Mapping):
            sets = [f"{name}={json.dumps(value)}" for name, value in sets.items()]
        messages = None
        if isinstance(fields, ChatFields):
            messages, beginning = _messages(fields)
            if fields.add_generation_prompt is False and not beginning:  # a continued message needs no prompt
                unused.append("add_generation_prompt")
        parsed = ParsedRequest(
            id="",
            line_number=0,
            prompt=None,
            messages=messages,
            overrides=tuple(read_settings(fields, unused)),
            preset=fields.preset,
            chain=fields.chain,
            set_arguments=tuple(sets or ()),
            trace_top_count=fields.trace,
            chat_template=template,
            chat_template_kwargs=fields.chat_template_kwargs,
        )
        _check_grammars((*map(parse_set, parsed.set_arguments), *parsed.overrides))
        settings = self._resolver.settings(parsed)
        changes = read_chain_changes(fields, [step.name for step in settings.steps])
        unused += changes.unused_names
        overrides = _overrides_with_effect(settings, changes, unused)
        rearrangements = tuple(changes.rearrangements)
        parsed = replace(parsed, overrides=(*parsed.overrides, *overrides), rearrangements=rearrangements)
        if overrides or rearrangements:
            settings = self._resolver.settings(parsed)
        final_names = {step.name for step in settings.steps}
        for override in overrides:
            sampler = override.target.partition(".")[0]
            if not _is_in_chain(sampler, final_names):
                unused.append(override.origin)
        return parsed, settings

    def _choice(
        self,
        request: GenerationRequest,
        prompt: str | list[int] | None,
        index: int,
        grammars: dict[GrammarSpec, Grammar],
    ) -> Choice:
        """Prepare a request: tokens, chain and grammar are made here, not in the thread of the engine.

        Args:
            request: the request.
            prompt: the prompt; None for a chat.
            index: number of the choice.
            grammars: the compiled grammars of the answer, which all choices share.
        """
        model = self._model
        messages = request.prompt
        if isinstance(messages, ChatMessages):
            template = open_chat_template(model, messages.template, messages.variables)
            shown = format_chat(model, messages.messages, template, self._note) + request.beginning
            check_prompt_bytes(shown, self._context, self._max_token_bytes, "messages")
            ids = prompt_token_ids(model.vocabulary, shown)
        else:
            check_prompt_bytes(messages, self._context, self._max_token_bytes, "prompt")
            ids = prompt_token_ids(model.vocabulary, messages)
            shown = prompt if isinstance(prompt, str) else ""
        check_prompt_tokens(len(ids), self._context, "messages" if prompt is None else "prompt")
        constraint = request.constraint
        if isinstance(constraint, GrammarSpec):
            constraint = start_constraint(constraint, model, self._compile(constraint, grammars))
        if isinstance(prompt, list):
            shown = model.vocabulary.detokenize(prompt).decode("utf-8", "replace")
        return Choice(
            replace(request, prompt=tuple(ids), constraint=constraint, chain=build_chain(model, request)),
            shown,
            index,
            is_repeatable=request.ends_at_eog
            and not request.stop_token_ids
            and "\0" not in shown
            and (not isinstance(prompt, list) or prompt_token_ids(model.vocabulary, shown) == list(ids)),
        )

    def _compile(self, spec: GrammarSpec, grammars: dict[GrammarSpec, Grammar]) -> Grammar:
        """Return the compiled grammar. Another process compiles it first, because it could take very long."""
        if spec not in grammars:
            self._guard.check(spec)
            grammars[spec] = spec.compile(self._model.vocabulary)
        return grammars[spec]


def _messages(fields: ChatFields) -> tuple[list[dict[str, str]], str]:
    """Return the messages of a chat, and the beginning of the answer: a last message of the assistant."""
    messages = [message.template_message() for message in fields.messages]
    if messages[-1]["role"] != "assistant" or fields.continue_final_message is False or len(messages) == 1:
        return messages, ""
    return messages[:-1], messages[-1]["content"]


def _is_in_chain(sampler: str, names: set[str]) -> bool:
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


def _check_grammars(overrides: Iterable[Override]) -> None:
    """Raise ``InvalidRequestError`` if an override names a file as the grammar. No file is read for a request."""
    for override in overrides:
        if find_setting_name(override.target) == "grammar" and override.value is not None:
            check_grammar_source(override.value, override.origin)


def check_grammar_source(value: Any, origin: str) -> None:
    """Raise ``InvalidRequestError`` for a grammar that would be read from a file.

    Args:
        value: the grammar, as presets write it. Other values are reported elsewhere, without reading a file.
        origin: the field of the request that holds the grammar, for the message.
    """
    try:
        table = grammar_table(value)
    except (GrammarError, TypeError, ValueError):
        return
    name = table.get("name")
    is_path = name is not None and not (isinstance(name, str) and _NAME.fullmatch(name))
    if is_path or any(str(key).endswith("file") for key in table):
        raise InvalidRequestError(
            f"{origin}: a grammar is GBNF, a JSON Schema, a regex, Lark, or the name of a grammar", "grammar"
        )


def _asks_for_logprobs(fields: GenerationFields) -> bool:
    return bool(
        (fields.logprobs is not None and fields.logprobs is not False)
        or fields.n_probs
        or fields.logprob_token_ids
    )


def _read_logprobs(fields: GenerationFields, unused: list[str]) -> tuple[LogprobRequest, bool, int | None]:
    """Return the logprobs of each token, whether the prompt is returned, and the number of its alternatives."""
    prompt_count = fields.prompt_logprobs
    if isinstance(prompt_count, bool):
        prompt_count = 1 if prompt_count else None
    counts = [count for count in (*_logprob_counts(fields), prompt_count) if count is not None]
    if not counts:
        unused += [name for name in ("top_logprobs", "logprobs_from") if getattr(fields, name)]
        return LogprobRequest(), bool(fields.echo), None
    source = fields.logprobs_from or ("chain" if fields.post_sampling_probs else "model")
    token_ids = tuple(fields.logprob_token_ids or ())
    return LogprobRequest(max(counts), source, token_ids), bool(fields.echo), prompt_count


def _logprob_counts(fields: GenerationFields) -> Iterator[int]:
    """Yield the numbers of alternatives that the fields of a request ask for; none without logprobs."""
    if fields.logprobs is not None and fields.logprobs is not False:
        yield 0 if fields.logprobs is True else fields.logprobs
        yield fields.top_logprobs or 0
    if fields.n_probs:
        yield fields.n_probs
    if fields.logprob_token_ids:
        yield 0


def x_gen(asked: Asked, start: Start, exactness: str) -> dict[str, Any]:
    """Return the facts about an answer that only this server states.

    Args:
        asked: the request.
        start: the first event of the first choice.
        exactness: how far other requests can change the answer.
    """
    notation, first = chain_notation(start.chain), asked.choices[0]
    return {
        "seed": start.seed,
        "chain": notation,
        "ignored": list(asked.ignored),
        "exactness": exactness,
        "command": shlex.join(_command_words(first, start, notation)) if first.is_repeatable else None,
    }


def _command_words(choice: Choice, start: Start, chain: str) -> Iterator[str]:
    """Yield the words of the command that repeats a choice. The model is the one that the user has chosen."""
    yield from ("gen", "run", "--no-chat", "--chain", chain, "--seed", str(start.seed))
    yield from ("-n", "-1" if start.max_tokens is None else str(start.max_tokens))
    for text in start.stop:
        yield from ("--stop", text)
    if start.grammar is not None:
        table = {start.grammar["kind"]: start.grammar["source"], **_grammar_options(start.grammar)}
        yield from ("--set", f"grammar={json.dumps(table)}")
    if choice.prompt:
        yield from ("--", choice.prompt)


def _grammar_options(description: Mapping[str, Any]) -> dict[str, Any]:
    options = {key: description[key] for key in ("after",) if description.get(key)}
    if description.get("kind") == "gbnf" and description.get("root", "root") != "root":
        options["root"] = description["root"]
    return options
