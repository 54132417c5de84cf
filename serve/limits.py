"""Limits on what one request may ask for. Each error names the field.

Without these limits, a small body could fill the memory or keep the server busy for hours.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..common.text import count_noun
from ..engine.request import ChatMessages, GenerationRequest
from ..presets.parameter_names import request_names
from ..presets.setting_table import SETTINGS
from ..requests.fields import ChatFields, GenerationFields, PromptFields
from .errors import InvalidRequestError

# Maximum number of commas in a body. Values take much more memory than their text.
MAX_JSON_VALUES = 1_000_000
MAX_PROMPTS = 1_024
# Maximum number of prompts multiplied by the choices of each.
MAX_CHOICES = 1_024
MAX_MESSAGES = 4_096
# Maximum number of stop strings, of banned strings, and of other entries of a list.
MAX_ITEMS = 1_024
# Maximum length of a stop string and of a banned string.
MAX_STRING_CHARACTERS = 4_096
MAX_TEMPLATE_CHARACTERS = 100_000
# Maximum number of logprobs in an answer: those of each token, multiplied by the tokens and choices.
MAX_LOGPROB_ENTRIES = 2_000_000

_STOPS = request_names(SETTINGS["stop"].names)
# The fields with lists and tables of any size: prompts and messages have limits of their own, a vocabulary may be
# listed, and the process that compiles grammars is limited.
_UNLIMITED = frozenset(
    (
        *("prompt", "messages", "allowed_token_ids", "allowed_tokens"),
        *("grammar", "json_schema", "guided_json"),
    )
)
# The fields with strings that are limited. Most are searched in the text after each token.
_STRINGS = (*_STOPS, "bad_words", "banned_strings", "chain", "preset")


def check_fields(fields: PromptFields | ChatFields) -> None:
    """Raise ``InvalidRequestError`` for a request that is too large, before anything is computed for it."""
    if isinstance(fields, PromptFields):
        prompts = fields.prompts()
        _check_count("prompt", len(prompts), MAX_PROMPTS, "prompt")
        name, count = ("n", fields.n) if fields.n or not fields.n_cmpl else ("n_cmpl", fields.n_cmpl)
        _check_count(name, len(prompts) * (count or 1), MAX_CHOICES, "choice")
    else:
        _check_count("messages", len(fields.messages), MAX_MESSAGES, "message")
    for name, value in fields:
        if isinstance(value, (list, dict)) and name not in _UNLIMITED:
            _check_count(name.rstrip("_"), len(value), MAX_ITEMS, "item")
    for name in _STRINGS:
        value = getattr(fields, name)
        for text in [value] if isinstance(value, str) else value or ():
            if isinstance(text, str):
                _check_count(name, len(text), MAX_STRING_CHARACTERS, "character")
    if fields.chat_template is not None:
        _check_count("chat_template", len(fields.chat_template), MAX_TEMPLATE_CHARACTERS, "character")


def _check_count(name: str, count: int, limit: int, noun: str) -> None:
    if count > limit:
        raise InvalidRequestError(f"{name}: {count_noun(count, noun)}; the limit is {limit:,}", name)


def check_logprobs(requests: Sequence[GenerationRequest], context: int) -> None:
    """Raise ``InvalidRequestError`` if the logprobs of an answer would take too much memory."""
    # ``context``: length, tokens.
    total, field = 0, "logprobs"
    for request in requests:
        prompt_count = 0 if isinstance(request.prompt, ChatMessages) else len(request.prompt)
        generated = context - prompt_count if request.max_tokens is None else request.max_tokens
        tokens = min(max(generated, 0), context) + (prompt_count if request.echo else 0)
        top_count, trace_count = request.logprobs.top_count or 0, request.trace or 0
        total += tokens * (top_count + trace_count)
        field = request.logprobs.label if top_count >= trace_count else "trace"
    if total > MAX_LOGPROB_ENTRIES:
        raise InvalidRequestError(
            f"{field}: the answer may have {total:,} logprobs; the limit is {MAX_LOGPROB_ENTRIES:,}; lower "
            f"{field}, max_tokens or n",
            field,
        )


def brings_program(fields: GenerationFields) -> bool:
    """Return whether a request has a grammar or a template, whose work must not delay other requests."""
    names = (
        *("grammar", "grammar_string", "ebnf", "guided_grammar", "json_schema", "guided_json", "regex"),
        *("guided_regex", "guided_choice", "response_format", "structured_outputs", "chat_template", "set_"),
        *("preset", "chain"),
    )
    return any(getattr(fields, name) not in (None, "", {}, []) for name in names)


def public_origin(origin: str) -> str:
    """Return where a file comes from. The path of a folder is not told."""
    return origin if origin == "built-in" else "user"
