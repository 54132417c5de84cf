"""From the fields of a request to the requests of the engine, and to what an answer says about them."""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..common.machine import SEED_MAX
from ..common.text import short_repr
from ..engine.drafts import DraftOptions
from ..engine.generation import build_chain, negative_prompt_ids, prompt_token_ids, start_constraint
from ..engine.guidance import guidance_model, with_system_message
from ..engine.model import Model
from ..engine.request import ChatMessages, GenerationRequest
from ..engine.templates import builtin_chat_templates, format_chat, is_chat_template, open_chat_template
from ..engine.token_records import LogprobRequest
from ..grammars.errors import GrammarError
from ..grammars.grammar import Grammar
from ..grammars.spec import GrammarSpec, grammar_table
from ..jobs.bodies import ParsedRequest
from ..jobs.errors import InvalidLineError
from ..jobs.resolve import BatchDefaults, RequestResolver, text_rules
from ..logprobs.events import Start
from ..models.errors import ModelError
from ..presets.errors import PresetError, preset_hint
from ..presets.overrides import WATERMARK, Override, find_setting_name, parse_set
from ..presets.search import PresetEntry, list_presets
from ..presets.settings import Settings
from ..samplers.building import chain_notation
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .bodies import MAX_DRAFT_TOKENS, ChatFields, GenerationFields, PromptFields, read_settings
from .compile_guard import CompileGuard
from .errors import InvalidRequestError
from .limits import check_logprobs, without_paths
from .sampler_fields import ChainChanges, Json, first_given, read_chain_changes

SETTING_ERRORS = (PresetError, SamplingError, GrammarError, ModelError, InvalidLineError)
"""The errors of settings that cannot be used. Their messages say why. `ServerState.run` reports them."""


@dataclass(frozen=True)
class Choice:
    """One text of an answer.

    Attributes:
        request: the request for the engine.
        prompt: the prompt as text, in a chat with the chat template.
        is_repeatable: whether `gen run` with the text of the prompt gives the same tokens. It has no flag for
            tokens that end a text, and other token ids than those of the prompt's text cannot be typed.
    """

    request: GenerationRequest
    prompt: str
    is_repeatable: bool


@dataclass(frozen=True)
class Asked:
    """All that a request asks for.

    Attributes:
        fields: the fields of the request.
        choices: the texts to be generated, those of the first prompt first.
        choices_per_prompt: number of texts for each prompt.
        ignored: the names of fields without effect.
        prompt_logprob_count: number of most likely tokens for each token of the prompt; None: no such logprobs.
    """

    fields: PromptFields | ChatFields
    choices: tuple[Choice, ...]
    choices_per_prompt: int
    ignored: tuple[str, ...]
    prompt_logprob_count: int | None


_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}", re.ASCII)
"""A name on a search path. Paths are not read for a request."""


def listed_presets() -> dict[str, PresetEntry]:
    """Return the presets of the search path by name. No other text is the name of a preset, nor read as a path."""
    entries = (entry for entry in list_presets() if not entry.is_shadowed)
    return {entry.name: entry for entry in entries if _NAME.fullmatch(entry.name)}


def find_listed_preset(name: str, field: str) -> PresetEntry:
    """Return a preset of the search path by its name, which the field ``field`` of a request holds.

    Raises ``InvalidRequestError``, which tells the most similar name.
    """
    known = listed_presets()
    if name not in known:
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
        self.guard, self.model = guard, model
        self._note, self._reuses_answers = note, reuses_answers
        self.resolver = RequestResolver(defaults, model.metadata, note, notes_schemas=False)
        self._max_token_bytes = max(map(len, model.vocabulary.pieces))
        guidance = text_rules(self.resolver.default_settings())["guidance"]
        if guidance is not None:
            guidance_model(model, guidance)  # loaded before the first request, or refused
        self._draft, self._has_lookup = defaults.draft, defaults.lookup > 0
        if defaults.draft is not None:
            defaults.draft.open_for(model)
            # Measured now for any limit of a request: a probe during an answer would stop the other requests.
            model.draft_exactness(max(MAX_DRAFT_TOKENS, defaults.draft.n_max, defaults.lookup))

    def make(self, fields: PromptFields | ChatFields, ignored: Sequence[str]) -> Asked:
        """Return what a request asks for. The prompts are tokens, and the grammars are compiled.

        ``ignored``: the names of fields without effect that are already known.
        Raises ``InvalidRequestError`` for a setting that cannot be used.
        """
        try:
            return self._make(fields, ignored)
        except SETTING_ERRORS as error:
            message = without_paths(str(error), self.model.path)
            raise InvalidRequestError(message, _named_field(message, fields)) from None

    def _make(self, fields: PromptFields | ChatFields, ignored: Sequence[str]) -> Asked:
        unused = [*ignored]
        messages, beginning = (
            _messages(fields) if isinstance(fields, ChatFields) else (None, fields.beginning or "")
        )
        if not beginning and isinstance(fields, ChatFields) and fields.add_generation_prompt is False:
            unused.append("add_generation_prompt")  # only a continued message needs no prompt
        parsed, settings = self._parse(fields, messages, unused)
        seed = settings.seed.value
        first_seed = secrets.randbelow(SEED_MAX + 1) if seed is None else seed
        logprobs, prompt_count = _read_logprobs(fields, unused)
        prompts = fields.prompts() if isinstance(fields, PromptFields) else [None]
        count = first_given(fields, ("n", "n_cmpl"), unused)[1] or 1
        if fields.cache_prompt and self._reuses_answers is None:
            unused.append("cache_prompt")
        if fields.best_of is not None and fields.best_of != count:
            unused.append("best_of")
        for name in ("stop_token_ids", "logprob_token_ids"):
            self._check_ids(getattr(fields, name) or (), name)
        draft = self._read_draft(fields, unused)
        choices: list[Choice] = []
        grammars: dict[GrammarSpec, Grammar] = {}
        for prompt in prompts:
            request = replace(
                self._resolve(replace(parsed, prompt=prompt), settings, fields),
                exact_reuse=not (self._reuses_answers if fields.cache_prompt is None else fields.cache_prompt),
                logprobs=logprobs,
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
                seeded = replace(request, seed=(first_seed + number) % (SEED_MAX + 1))
                choices.append(self._choice(seeded, grammars))
        check_logprobs([choice.request for choice in choices], self.model.context_length)
        return Asked(fields, tuple(choices), count, tuple(dict.fromkeys(unused)), prompt_count)

    def _resolve(self, parsed: ParsedRequest, settings: Settings, fields: GenerationFields) -> GenerationRequest:
        """Return the request of a prompt. Errors of its grammar begin with the field that has the grammar."""
        origin = settings.grammar.origin.removeprefix("--")
        is_of_request = _named_field(origin, fields) is not None
        try:
            request = self.resolver.resolve(parsed, settings)
        except GrammarError as error:
            if not is_of_request or str(error).startswith(origin):
                raise
            raise GrammarError(f"{origin}: {error}") from None
        if is_of_request and isinstance(request.constraint, GrammarSpec):
            return replace(request, constraint=replace(request.constraint, label=origin))
        return request

    def _read_draft(self, fields: GenerationFields, unused: list[str]) -> DraftOptions | None:
        """Return the draft model of a request with its limits; None without drafts of a model.

        ``unused``: the names of fields without effect, because the server has no drafts, are appended.
        """
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

    def _check_ids(self, ids: Sequence[int], field: str) -> None:
        try:
            self.model.vocabulary.check(ids)
        except ModelError as error:
            raise InvalidRequestError(f"{field}: {error}", field) from None

    def _parse(
        self, fields: GenerationFields, messages: list[dict[str, str]] | None, unused: list[str]
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
        sets = fields.set_
        if isinstance(sets, Mapping):
            sets = [f"{name}={json.dumps(value)}" for name, value in sets.items()]
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

    def _without_unused_negative(
        self, parsed: ParsedRequest, settings: Settings, unused: list[str]
    ) -> tuple[ParsedRequest, Settings]:
        """Return the request without the field ``negative_prompt`` if no scale gives it an effect.

        Clients of several APIs send it with every request. Its name is then added to ``unused``.
        """
        kept = tuple(override for override in parsed.overrides if override.origin != "negative_prompt")
        if len(kept) == len(parsed.overrides) or (settings.guidance.value or {}).get("scale", 1) != 1:
            return parsed, settings
        unused.append("negative_prompt")
        parsed = replace(parsed, overrides=kept)
        return parsed, self.resolver.settings(parsed)

    def _choice(self, request: GenerationRequest, grammars: dict[GrammarSpec, Grammar]) -> Choice:
        """Prepare a request: tokens, chain and grammar are made here, not in the thread of the engine.

        ``grammars``: the compiled grammars of the answer, which all choices share.
        """
        model, prompt, field = self.model, request.prompt, "prompt"
        if isinstance(prompt, ChatMessages):
            template = open_chat_template(model, prompt.template, prompt.variables)
            guidance, messages = request.guidance, prompt.messages
            if not request.beginning:
                request = replace(request, heal=False)  # the end of the template is exact
            prompt = format_chat(model, messages, template, self._note) + request.beginning
            if guidance is not None and isinstance(guidance.negative_prompt, str) and guidance.negative_prompt:
                negative_messages = with_system_message(messages, guidance.negative_prompt)
                text = format_chat(model, negative_messages, template) + request.beginning
                request = replace(request, guidance=replace(guidance, negative_prompt=text))
            field = "messages"
        ids = self._prompt_ids(prompt, field)
        request = replace(request, prompt=tuple(ids))
        negative_ids = negative_prompt_ids(model, request, ids)
        if negative_ids is not None:
            self._check_length(negative_ids, "negative_prompt")
        shown = prompt if isinstance(prompt, str) else model.vocabulary.detokenize(ids).decode("utf-8", "replace")
        constraint = request.constraint
        if isinstance(constraint, GrammarSpec):
            if constraint not in grammars:
                self.guard.check(constraint)  # in another process first, because it could take very long
                grammars[constraint] = constraint.compile(model.vocabulary)
            constraint = start_constraint(constraint, model, grammars[constraint])
        return Choice(
            replace(request, constraint=constraint, chain=build_chain(model, request)),
            shown,
            is_repeatable=request.ends_at_eog
            and not request.stop_token_ids
            and not (request.beginning and request.constraint is not None)
            and "\0" not in shown
            and (isinstance(prompt, str) or prompt_token_ids(model.vocabulary, shown) == ids),
        )

    def _prompt_ids(self, prompt: str | Sequence[int], field: str) -> list[int]:
        """Return the tokens of a prompt, which leave a token of the context free. ``field``: for errors."""
        context = self.model.context_length
        if isinstance(prompt, str) and len(prompt) > context * self._max_token_bytes:  # it need not be tokenized
            excess = f"{len(prompt):,} characters are more than {context:,} tokens, the context of this server"
            raise InvalidRequestError(f"{field}: {excess}", field)
        if not isinstance(prompt, str):
            self._check_ids(prompt, field)
        ids = prompt_token_ids(self.model.vocabulary, prompt)
        self._check_length(ids, field)
        return ids

    def _check_length(self, ids: Sequence[int], field: str) -> None:
        context = self.model.context_length
        if len(ids) >= context:
            excess = f"{len(ids):,} tokens do not fit into the context of {context:,} tokens; shorten the prompt"
            raise InvalidRequestError(f"{field}: {excess}", field)


def _named_field(message: str, fields: GenerationFields) -> str | None:
    """Return the field of a request that a message begins with; None if the request has no such field."""
    name = re.split("[ :.]", message, maxsplit=1)[0]
    given = {type(fields).model_fields[name].alias or name for name in fields.model_fields_set}
    return name if name in given else None


def _messages(fields: ChatFields) -> tuple[list[dict[str, str]], str]:
    """Return the messages of a chat, and the beginning of the answer: a last message of the assistant."""
    messages = [message.template_message() for message in fields.messages]
    if messages[-1]["role"] != "assistant" or fields.continue_final_message is False or len(messages) == 1:
        return messages, ""
    return messages[:-1], messages[-1]["content"]


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
            f"{origin}: a grammar is GBNF, a JSON Schema, a regex, Lark, or the name of a grammar",
            origin.partition(" ")[0],
        )


def _read_logprobs(fields: GenerationFields, unused: list[str]) -> tuple[LogprobRequest, int | None]:
    """Return the logprobs of each token, and the number of alternatives of each token of the prompt."""
    prompt_count = fields.prompt_logprobs
    if isinstance(prompt_count, bool):
        prompt_count = 1 if prompt_count else None
    counts = [] if prompt_count is None else [prompt_count]
    if fields.logprobs is not None and fields.logprobs is not False:
        counts += [0 if fields.logprobs is True else fields.logprobs, fields.top_logprobs or 0]
    if fields.n_probs or fields.logprob_token_ids or fields.trace:  # a trace is part of a token's logprobs
        counts.append(fields.n_probs or 0)
    if not counts:
        unused += [name for name in ("top_logprobs", "logprobs_from") if getattr(fields, name)]
        return LogprobRequest(), None
    source = fields.logprobs_from or ("chain" if fields.post_sampling_probs else "model")
    return LogprobRequest(max(counts), source, tuple(fields.logprob_token_ids or ())), prompt_count


def x_gen(asked: Asked, start: Start, exactness: str) -> Json:
    """Return the facts about an answer that only this server states.

    Args:
        asked: the request.
        start: the first event of the first choice.
        exactness: how far other requests can change the answer.
    """
    return {
        "seed": start.seed,
        "chain": chain_notation(start.chain),
        "ignored": list(asked.ignored),
        "exactness": exactness,
        "command": command_of(asked.choices[0], start),
    }


def command_of(choice: Choice, start: Start) -> str | None:
    """Return the command that repeats a choice in a terminal; None if no command can."""
    words = _command_words(choice, start, chain_notation(start.chain))
    # As a word of the command, "-" would be stdin.
    return shlex.join(words) if choice.is_repeatable and choice.prompt != "-" else None


def _command_words(choice: Choice, start: Start, chain: str) -> Iterator[str]:
    """Yield the words of the command that repeats a choice. The model is the one that the user has chosen."""
    yield from ("gen", "run", "--no-chat", "--chain", chain, "--seed", str(start.seed))
    yield from ("-n", "-1" if start.max_tokens is None else str(start.max_tokens))
    for text in start.stop:
        yield from ("--stop", text)
    if start.grammar is not None:
        description = start.grammar
        table = {description["kind"]: description["source"]}
        if description.get("after"):
            table["after"] = description["after"]
        if description["kind"] == "gbnf" and description.get("root", "root") != "root":
            table["root"] = description["root"]
        yield from ("--set", f"grammar={json.dumps(table)}")
    for name, value in start.text_rules.items():
        setting = [*value, {}] if name == "phases" else value  # the last phase has the chain of the command
        yield from ("--set", f"{name}={json.dumps(setting)}")
    if any("\\" in text for text in (choice.prompt, *start.stop)):
        yield "--no-escape"
    yield from ("--", choice.prompt)
