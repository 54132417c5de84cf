"""The bodies of requests, and what they ask for, whichever client wrote them.

Clients say one thing under several names. Every name is accepted on every route. Fields that some client sends and
that have no effect here are listed in `IGNORED_FIELDS`; the answer names them. Other unknown fields are errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from ..common.text import nearest_name, short_repr
from ..jobs.bodies import MAX_CHOICES, ChatMessage, ResponseFormat, StrictModel, first_problem
from ..presets.overrides import Override
from .errors import InvalidRequestError
from .sampler_fields import Json, SamplerFields, banned_texts, first_given

_ANYTHING = object()
"""In `IGNORED_FIELDS`: no value of the field has an effect that a client could miss."""

IGNORED_FIELDS: Mapping[str, tuple[Any, ...]] = {
    name: values
    for values, names in (
        # labels of the sender and hints about storage, which never change an answer
        ((_ANYTHING,), "api_type api_server user metadata store service_tier safety_identifier prompt_cache_key"),
        ((_ANYTHING,), "prompt_cache_retention request_id priority id_slot quiet verbose backend_sampling"),
        ((_ANYTHING,), "guided_decoding_backend detokenize speculative.type speculative.types"),
        # settings of other engines; the values listed here are those that change nothing
        ((0, False), "sse_ping_interval return_progress n_indent n_keep n_discard"),
        ((0, -1), "n_cache_reuse t_max_predict_ms max_tokens_second"),
        (([],), "lora preserved_tokens grammar_triggers images audio tools functions control_vectors"),
        ((False,), "timings_per_token grammar_lazy speculative_ngram grammar_retain_state use_beam_search"),
        ((False,), "early_stopping include_reasoning include_stop_str_in_output render_special flat_logprobs"),
        ((False,), "auto_max_new_tokens static_cache enable_thinking thinking_forced_open prediction"),
        ((False,), "repetition_detection legacy_api"),
        ((True,), "add_bos_token skip_special_tokens spaces_between_special_tokens"),
        ((_ANYTHING,), "use_default_badwordsids trim_stop ignore_eos_token bypass_eos_token"),
        ((-1, 0), "truncation_length num_ctx n_ctx max_context_length truncate_prompt_tokens"),
        ((0,), "penalty_alpha prompt_lookup_num_tokens"),
        ((1,), "length_penalty num_beams beam_width"),
        (("",), "suffix guided_whitespace_pattern adapter"),
        (("none", "auto"), "tool_choice function_call"),
        (("", "none"), "reasoning_effort verbosity"),
        ((-1, "", "none"), "reasoning_format reasoning_budget_tokens thinking_token_budget"),
        ((True, False), "parallel_tool_calls parse_tool_calls send_banned_tokens"),
        ((["text"],), "modalities"),
        (([],), "response_fields"),
        # KoboldAI's texts of its own interface, and its changes of the text
        ((False,), "use_story use_memory use_authors_note use_world_info frmttriminc frmtrmblln frmtrmspch"),
        ((False,), "frmtadsnsp use_userscripts singleline"),
        ((_ANYTHING,), "disable_input_formatting disable_output_formatting gui_settings robo_mode"),
        ((_ANYTHING,), "sampler_full_determinism replace_instruct_placeholders using_openai_tools smartcontext"),
        (("",), "soft_prompt memory genkey"),
    )
    for name in names.split()
}
"""The fields that are accepted without an effect, each with the values that need not be reported."""


MAX_DRAFT_TOKENS = 64
"""Limit of the tokens that a request lets the draft model guess at a time. Other requests wait meanwhile."""


class StructuredOutputs(StrictModel):
    """vLLM's ``structured_outputs``: exactly one of these."""

    json_: Json | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(default=None, min_length=1)
    grammar: str | None = None
    json_object: bool | None = None

    @model_validator(mode="after")
    def _check_is_one(self) -> StructuredOutputs:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of json, regex, choice, grammar and json_object")
        return self

    def as_grammar(self) -> str | Json | None:
        """Return the grammar, as a preset writes it; None if no field is given."""
        if self.json_ is not None:
            return {"json_schema": _parsed_schema("structured_outputs.json", self.json_)}
        if self.regex is not None:
            return {"regex": self.regex}
        if self.choice is not None:
            return _choice_grammar(self.choice)
        if self.grammar is not None:
            return text_grammar(self.grammar)
        return "json_object" if self.json_object else None


class StreamOptions(StrictModel):
    """OpenAI's ``stream_options``."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationFields(SamplerFields):
    """The fields that every route for text has."""

    model: str | None = None
    preset: str | None = None
    chain: str | None = None
    set_: list[str] | Json | None = Field(default=None, alias="set")
    seed: int | None = None
    sampler_seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_new_tokens: int | None = None
    max_length: int | None = None
    n_predict: int | None = None
    num_predict: int | None = None
    stop: str | list[str] | None = None
    stop_sequence: str | list[str] | None = None
    stopping_strings: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    grammar: str | Json | None = None
    grammar_string: str | None = None
    json_schema: Json | bool | str | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Json | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = Field(default=None, min_length=1)
    guided_grammar: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    bans: str | Json | list[str | Json] | None = None
    ban_retries: int | None = None
    ban_then: str | None = None
    rewind_count_max: int | None = None
    loop_guard: str | Json | bool | None = None
    phases: list[Json] | None = None
    heal: bool | None = None
    speculative: bool | None = None
    speculative_n_max: Annotated[int, Field(ge=0, le=MAX_DRAFT_TOKENS)] | None = Field(
        default=None, alias="speculative.n_max"
    )
    speculative_n_min: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="speculative.n_min")
    speculative_p_min: Annotated[float, Field(ge=0, le=1)] | None = Field(default=None, alias="speculative.p_min")
    guidance: Json | None = None
    guidance_scale: float | None = None
    cfg_scale: float | None = None
    negative_prompt: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    cache_prompt: bool | None = None
    n_cmpl: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0)] | bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    n_probs: Annotated[int, Field(ge=0)] | None = None
    post_sampling_probs: bool | None = None
    logprobs_from: Literal["model", "chain", "both"] | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0)] | bool | None = None
    return_tokens_as_token_ids: bool | None = None
    return_tokens: bool | None = None
    trace: Annotated[int, Field(ge=1)] | None = None
    echo: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: Json | None = None


class PromptFields(GenerationFields):
    """A text to be continued, or several.

    ``beginning``: the end of the prompt that belongs to the answer already, so that a grammar reads it first.
    """

    prompt: str | list[int] | list[str] | list[list[int]]
    beginning: str | None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _check_prompt(cls, prompt: Any) -> Any:
        if isinstance(prompt, list) and not prompt:
            raise ValueError("the list is empty")
        return prompt

    def logged(self) -> Sequence[Any]:
        """Return what a log of prompts contains."""
        return self.prompts()

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts, each a text or token ids."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if all(isinstance(item, int) for item in prompt):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)  # type: ignore[arg-type]


class ChatFields(GenerationFields):
    """The messages of a chat."""

    messages: list[ChatMessage] = Field(min_length=1)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    def logged(self) -> Sequence[Any]:
        """Return what a log of prompts contains."""
        return [message.template_message() for message in self.messages]


class OpenFields(StrictModel):
    """Fields of a request whose other fields are of no interest, such as a model's name."""

    model_config = ConfigDict(extra="ignore")


_Fields = TypeVar("_Fields", bound=StrictModel)


def read_body(fields_type: type[_Fields], record: object) -> tuple[_Fields, list[str]]:
    """Return the fields of a request, and the names of those without effect.

    Raises ``InvalidRequestError`` for an unknown field or a value that is not allowed.
    """
    if not isinstance(record, dict):
        raise InvalidRequestError(f"the body is {short_repr(record)}, not a JSON object")
    known = {field.alias or name for name, field in fields_type.model_fields.items()}
    without_effect = [name for name in record if name in IGNORED_FIELDS and name not in known]
    ignored = [
        name
        for name in without_effect
        if IGNORED_FIELDS[name][0] is not _ANYTHING and record[name] not in (None, *IGNORED_FIELDS[name])
    ]
    used = {name: value for name, value in record.items() if name not in without_effect}
    try:
        return fields_type.model_validate(used), ignored
    except ValidationError as error:
        errors = error.errors(include_url=False)
        name = str(errors[0]["loc"][0]) if errors[0]["loc"] else None
        if errors[0]["type"] == "extra_forbidden" and name is not None and len(errors[0]["loc"]) == 1:
            near = nearest_name(name, sorted(known))
            hint = f"; did you mean {near}?" if near else ""
            raise InvalidRequestError(f"{short_repr(name)}: there is no such field{hint}", name) from None
        raise InvalidRequestError(first_problem(error, fields_type), name) from None


def fields_without_place(fields: GenerationFields, names: Sequence[str]) -> list[str]:
    """Return the names of given fields that an API's answers have no place for.

    Args:
        fields: the fields of a request.
        names: the fields of other APIs for which the answers have no place. They have none for a second source of
            logprobs, either.
    """
    given = [name for name in names if getattr(fields, name)]
    return [*given, "logprobs_from"] if fields.logprobs_from == "both" else given


_LENGTHS = ("max_completion_tokens", "max_tokens", "max_new_tokens", "n_predict", "max_length", "num_predict")


def read_settings(fields: GenerationFields, unused: list[str]) -> list[Override]:
    """Return the settings of a request other than those of the chain. Raises ``InvalidRequestError``.

    ``unused``: the names of fields without effect are appended.
    """
    overrides: list[Override] = []
    name, seed = first_given(fields, ("seed", "sampler_seed"), unused)
    if seed is not None and seed >= 0:
        overrides.append(Override(name, "seed", seed))
    name, length = first_given(fields, _LENGTHS, unused)
    if length is not None:
        overrides.append(Override(name, "max_tokens", length))
    name, stop = first_given(fields, ("stop", "stop_sequence", "stopping_strings"), unused)
    if stop is not None:
        texts = [stop] if isinstance(stop, str) else stop
        overrides.append(Override(name, "stop", [text for text in texts if text]))
    grammars = list(_grammars(fields))
    if len(grammars) > 1 and any(grammar != grammars[0][1] for _, grammar in grammars):
        names = " and ".join(name for name, _ in grammars)
        raise InvalidRequestError(f"{names} both set a grammar; use one of them", grammars[1][0])
    if grammars:
        overrides.append(Override(grammars[0][0], "grammar", grammars[0][1]))
    overrides += _text_rules(fields)
    overrides += _guidance(fields, unused)
    return overrides


def _guidance(fields: GenerationFields, unused: list[str]) -> Iterator[Override]:
    """Yield the settings of guidance. Names of values that ``guidance`` sets otherwise are added to ``unused``."""
    table = fields.guidance or {}
    if fields.guidance is not None:
        yield Override("guidance", "guidance", table)
    scale_name, scale = first_given(fields, ("guidance_scale", "cfg_scale"), unused)
    # Clients send an empty negative prompt if their user wrote none.
    values = ((scale_name, "scale", scale), ("negative_prompt", "negative_prompt", fields.negative_prompt or None))
    for name, key, value in values:
        if value is not None and key not in table:
            yield Override(name, "guidance", {key: value})
        elif value is not None and table[key] != value:
            unused.append(name)


def _text_rules(fields: GenerationFields) -> Iterator[Override]:
    """Yield the settings of bans, the loop guard, phases and healing."""
    own_bans = [] if fields.bans is None else fields.bans if isinstance(fields.bans, list) else [fields.bans]
    other_bans = banned_texts(fields)
    if fields.bans is not None or other_bans:
        yield Override("bans" if own_bans else "banned_strings", "bans", [*own_bans, *other_bans])
    if fields.ban_retries is not None:
        yield Override("ban_retries", "ban_retries", fields.ban_retries)
    elif fields.rewind_count_max is not None and fields.rewind_count_max > 0:
        yield Override("rewind_count_max", "ban_retries", fields.rewind_count_max)
    for name in ("ban_then", "loop_guard", "phases", "heal"):
        value = getattr(fields, name)
        if value is not None:
            yield Override(name, name, value)


def _grammars(fields: GenerationFields) -> Iterator[tuple[str, str | Json]]:
    """Yield the grammars of a request, as a preset writes them, each with the name of its field."""
    for name in ("grammar", "grammar_string", "ebnf", "guided_grammar"):
        value = getattr(fields, name)
        if value and not (isinstance(value, str) and value.isspace()):
            yield name, text_grammar(value) if isinstance(value, str) else value
    for name in ("json_schema", "guided_json"):
        value = getattr(fields, name)
        if value not in (None, {}, ""):
            yield name, {"json_schema": _parsed_schema(name, value)}
    for name in ("regex", "guided_regex"):
        if value := getattr(fields, name):
            yield name, {"regex": value}
    if fields.guided_choice:
        yield "guided_choice", _choice_grammar(fields.guided_choice)
    if fields.response_format is not None and (value := fields.response_format.grammar()) is not None:
        yield "response_format", value
    if fields.structured_outputs is not None and (value := fields.structured_outputs.as_grammar()) is not None:
        yield "structured_outputs", value


def _parsed_schema(name: str, value: Json | bool | str) -> Json | bool:
    """Return a JSON Schema, which some clients send as a text."""
    if not isinstance(value, str):
        return value
    try:
        parsed: Json | bool = json.loads(value)
    except ValueError:
        raise InvalidRequestError(f"{name}: this text is not JSON", name) from None
    return parsed


def text_grammar(text: str) -> str | Json:
    """Return a grammar by its text: a name, GBNF, llguidance's Lark, or a JSON Schema."""
    stripped = text.strip()
    if stripped.startswith("{"):
        return {"json_schema": _parsed_schema("grammar", stripped)}
    if "::=" in stripped:
        return {"gbnf": text}
    if stripped.startswith("%llguidance") or "start:" in stripped.replace(" ", ""):
        return {"lark": text}
    return stripped


def _choice_grammar(choices: list[str]) -> Json:
    """Return the grammar that matches exactly one of the texts."""
    return {"gbnf": "root ::= " + " | ".join(json.dumps(choice, ensure_ascii=True) for choice in choices)}
