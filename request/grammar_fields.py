"""The fields that set a grammar, under the names of all clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from ..common.errors import InvalidFieldError
from ..common.strict_json import parse_strict_json, placed_json_problem
from ..common.strict_model import Json, StrictModel
from ..grammars.errors import GrammarError
from ..grammars.gbnf.literals import literal


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


class TextFormat(ResponseFormat):
    """The format as `/v1/responses` writes it: the fields of a schema stand beside the type."""

    name: str | None = None
    description: str | None = None
    strict: bool | None = None

    def repeated(self) -> Json:
        """Return the format as answers repeat it."""
        if self.type != "json_schema":
            return {"type": self.type}
        names = {"name": self.name or "schema", "description": self.description, "strict": self.strict}
        return {"type": self.type, "schema": self.schema_ if isinstance(self.schema_, dict) else {}, **names}


class TextOptions(StrictModel):
    """The field ``text`` of `/v1/responses`."""

    format: TextFormat | None = None


class StructuredOutputs(StrictModel):
    """vLLM's ``structured_outputs``: exactly one of these."""

    json_: Json | bool | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(default=None, min_length=1)
    grammar: str | None = None
    json_object: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _reject_tags(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("structural_tag") is not None:
            raise ValueError("structural_tag is not supported; give a grammar, or json for the complete answer")
        return fields

    @model_validator(mode="after")
    def _check_is_one(self) -> StructuredOutputs:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of json, regex, choice, grammar and json_object")
        return self

    def as_grammar(self) -> str | Json | None:
        """Return the grammar, as a preset writes it; None if no field is given."""
        if self.json_ is not None:
            return {"json_schema": parsed_schema("structured_outputs.json", self.json_)}
        if self.regex is not None:
            return {"regex": self.regex}
        if self.choice is not None:
            return choice_grammar("structured_outputs.choice", self.choice)
        if self.grammar is not None:
            return text_grammar(self.grammar)
        return "json_object" if self.json_object else None


def parsed_schema(name: str, value: Json | bool | str) -> Json | bool:
    """Return a JSON Schema, which some clients send as a text."""
    if not isinstance(value, str):
        return value
    try:
        parsed: Json | bool = parse_strict_json(value)
    except json.JSONDecodeError as error:
        problem = f"not JSON: {placed_json_problem(error)}"
        raise InvalidFieldError(problem, tuple(name.split("."))) from None
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(f"not JSON: {error}", tuple(name.split("."))) from None
    return parsed


def text_grammar(text: str) -> str | Json:
    """Return a grammar by its text: a name, GBNF, llguidance's Lark, or a JSON Schema."""
    stripped = text.strip()
    if stripped.startswith("{"):
        return {"json_schema": parsed_schema("grammar", stripped)}
    if "::=" in stripped:
        return {"gbnf": text}
    is_lark = stripped.startswith("%llguidance") or "start:" in stripped.replace(" ", "")
    return {"lark": text} if is_lark else stripped


def choice_grammar(name: str, choices: list[str]) -> Json:
    """Return the grammar that matches exactly one of the texts of a field."""
    literals = []
    for index, text in enumerate(choices):
        try:
            literals.append(literal(text))
        except GrammarError as error:
            raise InvalidFieldError(str(error), (*name.split("."), index)) from None
    return {"gbnf": f"root ::= {' | '.join(literals)}"}


def _text_or_table(_name: str, value: str | Json) -> str | Json | None:
    if isinstance(value, str):
        return text_grammar(value) if value.strip() else None
    return value or None


def _schema(name: str, value: Json | bool | str) -> Json | None:
    is_empty = isinstance(value, str) and not value.strip()
    return None if is_empty else {"json_schema": parsed_schema(name, value)}


def _regex(_name: str, value: str) -> Json | None:
    return {"regex": value} if value else None


def _format(_name: str, value: ResponseFormat) -> str | Json | None:
    return value.grammar()


def _format_of_text(_name: str, value: TextOptions) -> str | Json | None:
    return None if value.format is None else value.format.grammar()


def _structured(_name: str, value: StructuredOutputs) -> str | Json | None:
    return value.as_grammar()


# The fields that set a grammar, each with its reader. A reader gets the name of the field and its value. It
# returns the grammar as a preset writes it; None if there is no grammar.
GRAMMAR_FIELDS: Mapping[str, Callable[[str, Any], str | Json | None]] = {
    **dict.fromkeys(("grammar", "grammar_string", "ebnf", "guided_grammar"), _text_or_table),
    **dict.fromkeys(("json_schema", "guided_json"), _schema),
    **dict.fromkeys(("regex", "guided_regex"), _regex),
    "guided_choice": choice_grammar,
    "response_format": _format,
    "text": _format_of_text,
    "structured_outputs": _structured,
}
