"""Parsing of a batch's requests: lines in OpenAI's batch format or in the short form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from ..common.errors import problem_message, problem_sentence
from ..common.strict_json import encode_exact_json, parse_strict_json, without_whole_floats
from ..common.text import nearest_name, short_repr
from ..presets.foreign.lists import read_biased_token
from ..presets.overrides import ChainRearrangement, Override
from ..presets.parameter_names import request_names
from ..presets.setting_table import SETTINGS
from .errors import InvalidLineError
from .unknown_fields import TooManyFieldsError, UnknownFieldError, fields_without_effect

Json = dict[str, Any]

MAX_CHOICES = 128  # the maximum of ``n``, as in OpenAI's API


@dataclass(frozen=True)
class ParsedRequest:
    """The request of a line, in whichever format the line is written."""

    id: str
    line_number: int  # number of the line in the input, counted from 1
    prompt: str | list[int] | None  # text or token ids; None if there are ``messages``
    # messages of a chat, in the form that chat templates expect; None if there is a ``prompt``
    messages: list[Json] | None
    overrides: tuple[Override, ...]  # settings that take precedence over the preset's
    preset: str | None = None  # name or file of a preset; None uses the preset of the flags
    chain: str | None = None  # a chain, as ``--chain`` accepts it; None uses the chain of the preset or the flags
    set_arguments: tuple[str, ...] = ()  # more settings, as ``--set`` accepts them
    # number of most likely tokens whose logprobs are reported; -1 reports all tokens, None uses the flags' number
    top_logprob_count: int | None = None
    logprobs_field: str = "logprobs"  # the field that sets this number
    logprobs_from: str = "model"  # the distribution whose logprobs are reported: ``model``, ``chain`` or ``both``
    # number of candidates that are traced through the chain; None uses the flags' number
    trace_top_count: int | None = None
    chat_template: str | None = None  # name, file or source of a chat template; None uses the flags' template
    # variables of the chat template; None if the line sets none
    chat_template_kwargs: TemplateVariables | None = None
    # changes of the order of the steps and of the selecting step
    rearrangements: tuple[ChainRearrangement, ...] = ()
    choice_count: int = 1  # number of texts of the answer. Their seeds count up.
    # settings of a beam search, as arguments of `BeamSearch`; empty if the line sets none
    beam_settings: Mapping[str, Any] = field(default_factory=dict)
    # the paths of fields that have no effect, such as ``body.messages[1].annotations``
    ignored: tuple[str, ...] = ()
    # the paths of fields that only some chat templates read, each with the name that templates have for it
    template_fields: Mapping[str, str] = field(default_factory=dict)


def parse_request(record: Json, line_number: int, *, strict_fields: bool = False) -> ParsedRequest:
    """Return the request of a line. Raises ``InvalidLineError``."""
    # Unknown fields of the short form always are errors, because no other program writes it.
    try:
        if "custom_id" in record or "body" in record or "url" in record:
            ignored = fields_without_effect(OpenAILine, record, is_strict=strict_fields)
            line = OpenAILine.model_validate(record)
            return _parse_openai_line(line, line_number, ignored, strict_fields=strict_fields)
        fields_without_effect(_ShortLine, record, is_strict=True)
        return _parse_short_line(_ShortLine.model_validate(record), line_number)
    except ValidationError as error:
        raise InvalidLineError(first_problem(error)) from None
    except UnknownFieldError as error:
        raise InvalidLineError(f"{error.path}: there is no such field{_unknown_field_hint(error)}") from None
    except TooManyFieldsError as error:
        raise InvalidLineError(str(error)) from None


def find_request_id(record: object) -> str | None:
    if isinstance(record, Mapping):
        custom_id, short_id = record.get("custom_id"), without_whole_floats(record.get("id"))
        if isinstance(custom_id, str):
            return custom_id
        if _is_id(short_id):
            return str(short_id)
    return None


class StrictModel(BaseModel):
    """A pydantic model that converts no types, except whole floats to integers; a null field counts as absent."""

    # Unknown fields are left out. `fields_without_effect` finds them.

    model_config = ConfigDict(extra="ignore", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        integers = _integer_fields(cls)
        return {
            name: without_whole_floats(value) if name in integers else value
            for name, value in fields.items()
            if value is not None
        }


@cache
def _integer_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the fields whose numbers are integers."""
    types = {field.alias or name: set(_types_in(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, found in types.items() if int in found and float not in found)


def _types_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _types_in(part)


def _check_template_variables(variables: Json) -> Json:
    """Raise ``ValueError`` for a text where templates expect true or false: every text counts as true."""
    value = variables.get("enable_thinking")
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"enable_thinking: {short_repr(value)} is not true or false")
    return variables


TemplateVariables = Annotated[Json, AfterValidator(_check_template_variables)]  # variables of a chat template


# the fields with the text of a part, by its type
_PART_FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "input_text", "output_text"), ("text",)),
    "refusal": ("refusal",),
    "thinking": ("thinking",),
    "reasoning": ("reasoning", "text"),
}
_REASONING_PARTS = ("thinking", "reasoning")


class MessagePart(StrictModel):
    """A part of a message: text of the answer, of a refusal, or of reasoning. The models get nothing else."""

    type: Literal["text", "input_text", "output_text", "refusal", "thinking", "reasoning"]
    text: str | None = None
    refusal: str | None = None
    thinking: str | list[MessagePart] | None = None
    reasoning: str | None = None

    @field_validator("type", mode="before")
    @classmethod
    def _check_type(cls, value: object) -> object:
        if not isinstance(value, str) or value not in _PART_FIELDS:
            raise ValueError(f"{short_repr(value)} is not supported; the models read text only")
        return value

    @model_validator(mode="after")
    def _check_text(self) -> MessagePart:
        names = _PART_FIELDS[self.type]
        if all(getattr(self, name) is None for name in names):
            raise ValueError(f"a part of the type {self.type} needs the field {' or '.join(names)}")
        return self

    @property
    def is_reasoning(self) -> bool:
        """True if the text is reasoning, and not a part of the answer."""
        return self.type in _REASONING_PARTS

    @property
    def content(self) -> str:
        values = (getattr(self, name) for name in _PART_FIELDS[self.type])
        value = next(value for value in values if value is not None)
        return value if isinstance(value, str) else "".join(part.content for part in value)


class ChatMessage(StrictModel):
    """A message of a chat. Servers return reasoning as ``reasoning_content`` or as ``reasoning``."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[MessagePart] = ""
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _check_content(self) -> ChatMessage:
        if self.role in ("system", "developer", "user") and "content" not in self.model_fields_set:
            raise ValueError("there is no content")
        return self

    @property
    def _parts(self) -> list[MessagePart]:
        return self.content if isinstance(self.content, list) else []

    def template_message(self) -> Json:
        parts = [{"type": "text", "text": part.content} for part in self._parts if not part.is_reasoning]
        content = self.content if isinstance(self.content, str) else parts
        values = {
            "reasoning_content": self._reasoning,
            "tool_calls": [_with_arguments_as_object(call) for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "name": self.name,
        }
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": content, **{name: value for name, value in values.items() if value}}

    @property
    def _reasoning(self) -> str:
        texts = (self.reasoning_content, self.reasoning)
        return next(filter(None, texts), "".join(part.content for part in self._parts if part.is_reasoning))

    def template_fields(self) -> Iterator[tuple[str, str]]:
        """Yield the paths of the fields that only some templates read, each with the name that they have there."""
        for name in ("reasoning_content", "reasoning", "tool_calls", "tool_call_id", "name"):
            if getattr(self, name):
                yield name, "reasoning_content" if name == "reasoning" else name
        for index, part in enumerate(self._parts):
            if part.is_reasoning:
                yield f"content[{index}]", "reasoning_content"

    def unused_reasoning(self) -> Iterator[str]:
        """Yield the paths of reasoning that has no effect, because another field has other reasoning."""
        chosen = self._reasoning
        if self.reasoning and self.reasoning != chosen:
            yield "reasoning"
        if self.reasoning_content or self.reasoning:
            yield from (f"content[{index}]" for index, part in enumerate(self._parts) if part.is_reasoning)


def _with_arguments_as_object(call: Json) -> Json:
    """Return the call of a tool with its arguments as an object. Clients send their JSON; templates write JSON."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = parse_strict_json(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call


def template_fields_of(
    messages: Sequence[ChatMessage] | None, variables: Mapping[str, Any] | None, place: str = ""
) -> dict[str, str]:
    """Return the paths of fields that only some chat templates read, each with its name in templates."""
    fields = {f"{place}chat_template_kwargs.{name}": name for name in variables or ()}
    for index, message in enumerate(messages or ()):
        fields |= {f"{place}messages[{index}].{path}": name for path, name in message.template_fields()}
    return fields


def unused_reasoning_of(messages: Sequence[ChatMessage], place: str = "") -> list[str]:
    """Return the paths of reasoning in messages that has no effect, because another field has other reasoning."""
    return [
        f"{place}messages[{index}].{path}"
        for index, message in enumerate(messages)
        for path in message.unused_reasoning()
    ]


class ToolChoice(StrictModel):
    """Whether the answer has to call a tool. It never does, so only a request that does not insist is taken."""

    tool_choice: Any = None
    function_call: Any = None

    @field_validator("tool_choice", "function_call")
    @classmethod
    def _check_is_optional(cls, value: object) -> object:
        kind = value
        if isinstance(kind, dict):
            tools = kind.get("allowed_tools")
            kind = tools.get("mode") if isinstance(tools, dict) else kind.get("type", "function")
        if kind and kind not in ("none", "auto"):
            raise ValueError(f"{short_repr(value)} is not none or auto; no tools are called")
        return value


def setting_fields(names: Iterable[str]) -> type[StrictModel]:
    """Return a model with a field for each of these settings, by the table of settings."""
    fields: dict[str, Any] = {name: (SETTINGS[name].kind.field_type, None) for name in names}
    return create_model("SettingFields", __base__=StrictModel, **fields)


def setting_overrides(fields: StrictModel, names: Iterable[str]) -> Iterator[Override]:
    """Yield the settings that fields of the same names set."""
    for name in names:
        value = getattr(fields, name)
        if value is not None:
            # The numbers of a JSON Schema are written as given.
            yield Override(name, name, value if name == "grammar" else without_whole_floats(value))


if TYPE_CHECKING:

    class _SettingFields(StrictModel):
        system: str | None = None
else:
    _SettingFields = setting_fields(SETTINGS)


class _ShortLine(_SettingFields):
    id: Annotated[str, Field(min_length=1)] | int | None = None
    prompt: str | list[int] | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    preset: str | None = None
    chain: str | None = None
    set_: list[str] | Json = Field(default_factory=list, alias="set")
    json_schema: Json | bool | None = None
    logprobs: int | None = Field(default=None, ge=-1)
    logprobs_from: Literal["model", "chain", "both"] = "model"
    trace: int | None = Field(default=None, ge=1)
    chat_template: str | None = None
    chat_template_kwargs: TemplateVariables | None = None
    beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None

    @field_validator("early_stopping", mode="before")
    @classmethod
    def _check_early_stopping(cls, value: object) -> object:
        if value not in (None, True, False, "never"):
            raise ValueError(f"{short_repr(value)} is not true, false or 'never'")
        return value

    @field_validator("id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not _is_id(value):
            raise ValueError(f"{short_repr(value)} is not a string or an integer")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> _ShortLine:
        for first, second in (("prompt", "messages"), ("system", "messages"), ("grammar", "json_schema")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise ValueError(f"{first} and {second} exclude each other")
        has_template = self.chat_template is not None or self.chat_template_kwargs is not None
        if has_template and isinstance(self.prompt, list):
            raise ValueError("a chat template cannot be used with a prompt of token ids; write the prompt as text")
        if self.system is not None and isinstance(self.prompt, list):
            raise ValueError("system: not used with a prompt of token ids; write the prompt as text")
        if self.prompt is None and self.messages is None:
            raise ValueError("there is neither a prompt nor messages")
        return self


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _parse_short_line(line: _ShortLine, line_number: int) -> ParsedRequest:
    overrides = list(setting_overrides(line, SETTINGS))
    if line.json_schema is not None:
        overrides.append(Override("json_schema", "grammar", {"json_schema": line.json_schema}))
    if line.logprobs_from != "model" and line.logprobs is None:
        raise InvalidLineError("logprobs_from needs logprobs")
    return ParsedRequest(
        id=f"line-{line_number}" if line.id is None else str(line.id),
        line_number=line_number,
        prompt=line.prompt,
        messages=None if line.messages is None else [message.template_message() for message in line.messages],
        overrides=tuple(overrides),
        preset=line.preset,
        chain=line.chain,
        set_arguments=tuple(set_arguments(line.set_)),
        top_logprob_count=line.logprobs,
        logprobs_from=line.logprobs_from,
        trace_top_count=line.trace,
        chat_template=line.chat_template,
        chat_template_kwargs=line.chat_template_kwargs,
        beam_settings={
            name: value
            for name, value in (
                ("beam_count", line.beams),
                ("length_penalty", line.length_penalty),
                ("early_stopping", line.early_stopping),
            )
            if value is not None
        },
        ignored=tuple(unused_reasoning_of(line.messages or ())),
        template_fields=template_fields_of(line.messages, line.chat_template_kwargs),
    )


def set_arguments(values: list[str] | Json) -> list[str]:
    """Return settings as ``--set`` accepts them; ``values``: the same, or values by the names of settings."""
    if isinstance(values, list):
        return values
    return [f"{name}={encode_exact_json(setting_value(value))}" for name, value in values.items()]


def setting_value(value: Any) -> Any:
    """Return a setting without whole floats, except in tables: numbers in a JSON Schema are written as given."""
    return value if isinstance(value, dict) else without_whole_floats(value)


class SchemaFormat(StrictModel):
    name: str | None = None
    description: str | None = None
    schema_: Json | bool = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """The format of the answer: free text, any JSON object, or JSON of a schema.

    OpenAI writes the schema in ``json_schema``, llama-server and llama-cpp-python in ``schema``.
    """

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    schema_: Json | bool | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _check_consistency(self) -> ResponseFormat:
        given_fields = [name for name in ("json_schema", "schema_") if getattr(self, name) is not None]
        if self.type == "text" and given_fields:
            raise ValueError('"type": "text" has no schema; the type of a schema is "json_schema"')
        if self.type == "json_object" and self.json_schema is not None:
            raise ValueError('"type": "json_object" has its schema in the field schema, not in json_schema')
        if self.type == "json_schema" and len(given_fields) != 1:
            raise ValueError('"type": "json_schema" needs a schema, in the field json_schema or in schema')
        return self

    def grammar(self) -> str | Json | None:
        """Return the grammar of the format; None for free text."""
        schema = self.schema_ if self.json_schema is None else self.json_schema.schema_
        if self.type == "json_object" and schema in (None, True, {}):
            return "json_object"
        return None if schema is None else {"json_schema": schema}


class OpenAIBody(ToolChoice):
    """The fields that both bodies of OpenAI's format have, and some fields of llama.cpp's server."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repeat_penalty: float | None = None
    min_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: ResponseFormat | None = None
    grammar: str | Json | None = None

    def overrides(self) -> Iterator[Override]:
        """Yield the settings that the body sets. Raises ``ValueError``."""
        for name, target in _SETTING_OF_FIELD.items():
            value = getattr(self, name, None)
            if value is not None:
                yield Override(f"body.{name}", target, value)
        if self.logit_bias is not None:
            yield Override("body.logit_bias", "logit_bias.bias", _parse_token_biases(self.logit_bias))
        if self.response_format is not None and self.response_format.grammar() is not None:
            if self.grammar is not None:
                raise ValueError("body: response_format and grammar both set a grammar; use one of them")
            yield Override("body.response_format", "grammar", self.response_format.grammar())


# for fields of a body: the setting that the field sets, as ``--set`` names it
_SETTING_OF_FIELD = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "temperature": "temperature.t",
    "top_p": "top_p.p",
    "top_k": "top_k.k",
    "min_p": "min_p.p",
    "frequency_penalty": "penalties.frequency",
    "presence_penalty": "penalties.presence",
    "repeat_penalty": "penalties.repeat",
    "min_tokens": "min_tokens.n",
    "seed": "seed",
    "stop": "stop",
    "grammar": "grammar",
}


def _parse_token_biases(bias_by_name: Mapping[str, float]) -> dict[int, float]:
    """Return biases by token id; in JSON, the ids are strings. Raises ``ValueError``."""
    biases = {read_biased_token(name): bias for name, bias in bias_by_name.items()}
    for name in biases:
        if not isinstance(name, int):
            raise ValueError(f"body.logit_bias: {name!r} is not a token's id")
    return cast("dict[int, float]", biases)


class CompletionBody(OpenAIBody):
    """The body of ``/v1/completions``."""

    prompt: str | list[int]
    logprobs: int | None = Field(default=None, ge=0)

    @field_validator("prompt", mode="before")
    @classmethod
    def _unwrap_single_prompt(cls, prompt: Any) -> Any:
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
            if len(prompt) > 1:
                raise ValueError(f"there are {len(prompt)} prompts; write a line for each of them")
            return prompt[0]
        return prompt


class ChatBody(OpenAIBody):
    """The body of ``/v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)
    chat_template: str | None = None
    chat_template_kwargs: TemplateVariables | None = None


# a URL that ends in a route, as Azure writes it: /chat/completions, /openai/deployments/NAME/chat/completions
_URL_PATTERN = re.compile(
    r"(?:(?:https?://[^/\s]+)?(?:/[^?#\s]*?)??/)?(?P<route>(?:chat/)?completions)/?(?:[?#]\S*)?"
)


class OpenAILine(StrictModel):
    custom_id: str = Field(min_length=1)
    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions"]
    body: Json

    @field_validator("url", mode="before")
    @classmethod
    def _find_route(cls, value: object) -> object:
        """Return the route that a URL of OpenAI's or Azure's names: a path, or an address with or without /v1."""
        if not isinstance(value, str):
            return value
        match = _URL_PATTERN.fullmatch(value)
        if match is None:
            raise ValueError(
                f"{short_repr(value)} is not answered by gen batch: it answers /v1/chat/completions and"
                " /v1/completions"
            )
        return f"/v1/{match['route']}"

    @field_validator("custom_id", mode="before")
    @classmethod
    def _check_id(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"{short_repr(value)} is not a string, as OpenAI's format requires")
        return value


def _parse_openai_line(
    line: OpenAILine, line_number: int, ignored: list[str], *, strict_fields: bool
) -> ParsedRequest:
    """Return the request of a line; ``ignored``: the paths of fields outside of the body without effect."""
    body_model = CompletionBody if line.url == "/v1/completions" else ChatBody
    ignored = ignored + fields_without_effect(body_model, line.body, is_strict=strict_fields, place="body.")
    try:
        body: CompletionBody | ChatBody
        if line.url == "/v1/completions":
            body = CompletionBody.model_validate(line.body)
            overrides = tuple(body.overrides())
            return ParsedRequest(
                line.custom_id,
                line_number,
                body.prompt,
                None,
                overrides,
                top_logprob_count=body.logprobs,
                logprobs_field="body.logprobs",
                choice_count=body.n or 1,
                ignored=tuple(ignored),
            )
        body = ChatBody.model_validate(line.body)
        overrides = tuple(body.overrides())
    except ValidationError as error:
        raise InvalidLineError(first_problem(error, "body")) from None
    except ValueError as error:
        raise InvalidLineError(str(error)) from None
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidLineError("body.top_logprobs needs logprobs: true")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        raise InvalidLineError("body: max_tokens and max_completion_tokens are the same setting; use one of them")
    top_logprob_count = (body.top_logprobs or 0) if body.logprobs else None
    messages = [message.template_message() for message in body.messages]
    return ParsedRequest(
        line.custom_id,
        line_number,
        None,
        messages,
        overrides,
        top_logprob_count=top_logprob_count,
        logprobs_field="body.top_logprobs",
        chat_template=body.chat_template,
        chat_template_kwargs=body.chat_template_kwargs,
        choice_count=body.n or 1,
        ignored=(*ignored, *unused_reasoning_of(body.messages, "body.")),
        template_fields=template_fields_of(body.messages, body.chat_template_kwargs, "body."),
    )


def first_problem(error: ValidationError, prefix: str = "") -> str:
    """Return the message for the first invalid field, beginning with ``prefix`` and the path of the field."""
    errors = error.errors(include_url=False)
    # A field of several types gets an error for each type; the intended type has the error with the longest path.
    errors_of_field = [other for other in errors if other["loc"][:1] == errors[0]["loc"][:1]]
    first_error = max(errors_of_field, key=lambda other: len(other["loc"]))
    path = [part for part in first_error["loc"] if not _is_type_name(part)]
    errors_of_other_types = [
        other for other in errors_of_field if [p for p in other["loc"] if not _is_type_name(p)] == path
    ]
    message = problem_message(first_error, *errors_of_other_types)
    return problem_sentence([prefix, *path] if prefix else path, message)


def _unknown_field_hint(error: UnknownFieldError) -> str:
    """Return the end of the error message for an unknown field."""
    if error.model is _ShortLine:
        name, known = error.name, [field.alias or key for key, field in _ShortLine.model_fields.items()]
        nearest = nearest_name(name, [*known, *_SETTING_OF_FIELD])
        others = {other: key for key, each in SETTINGS.items() for other in request_names(each.names)}
        setting = None if nearest in known else others.get(name) or _SETTING_OF_FIELD.get(nearest or name)
        if setting is not None:
            return f'; write "{setting}": …' if setting in known else f'; write "set": {{"{setting}": …}}'
        if nearest is None and (name in ChatBody.model_fields or name in CompletionBody.model_fields):
            return "; it is a field of OpenAI's format, whose lines have custom_id, method, url and body"
    else:
        nearest = error.similar
    return f"; did you mean {nearest}?" if nearest else "; logitsmith has no such setting, or cannot change it"


def _is_type_name(part: object) -> bool:
    """Return whether a part of a path is the name by which pydantic distinguishes the types of a field."""
    if not isinstance(part, str):
        return False
    return part in ("str", "int", "float", "bool") or "[" in part or part.startswith(("_", "constrained-"))
