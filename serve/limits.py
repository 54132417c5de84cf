"""Limits on what one request may ask for. Each error names the field.

Without these limits, a small body could fill the memory or keep the server busy for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..common.text import count_noun
from ..engine.request import ChatMessages, GenerationRequest
from ..presets.overrides import Override
from ..requests.fields import ChatFields, GenerationFields, PromptFields
from ..requests.grammar_fields import GRAMMAR_FIELDS
from ..samplers.chain import StepSpec
from .errors import InvalidRequestError

# Maximum number of commas in a body. Values take much more memory than their text.
MAX_JSON_VALUES = 1_000_000
MAX_PROMPTS = 1_024
# Maximum number of prompts multiplied by the choices of each.
MAX_TEXTS = 1_024
MAX_MESSAGES = 4_096
# Maximum number of stop strings, of banned strings, and of other entries of a list or a table.
MAX_ITEMS = 1_024
# Maximum length of a stop string and of a banned string.
MAX_STRING_CHARACTERS = 4_096
MAX_TEMPLATE_CHARACTERS = 100_000
MAX_SET_CHARACTERS = 1_000_000  # a grammar, or token ids
# Maximum number of logprobs in an answer: those of each token, multiplied by the tokens and choices.
MAX_LOGPROB_ENTRIES = 2_000_000

# The fields with lists and tables of any size: prompts and messages have limits of their own, a vocabulary may be
# listed, and the process that compiles grammars is limited.
_UNLIMITED = {"prompt", "messages", "allowed_token_ids", "allowed_tokens", *GRAMMAR_FIELDS}
# The settings of any size: the process that compiles grammars is limited, a negative prompt is a prompt, and a
# vocabulary may be listed.
_UNLIMITED_SETTINGS = ("grammar", "guidance", "allow.tokens")


def check_fields(fields: PromptFields | ChatFields) -> None:
    """Raise ``InvalidRequestError`` for a request that is too large, before anything is computed for it."""
    if isinstance(fields, PromptFields):
        prompts = fields.prompts()
        _check_count("prompt", len(prompts), MAX_PROMPTS, "prompt")
        name, count = ("n", fields.n) if fields.n or not fields.n_cmpl else ("n_cmpl", fields.n_cmpl)
        _check_count(name, len(prompts) * (count or 1), MAX_TEXTS, "choice")
    else:
        _check_count("messages", len(fields.messages), MAX_MESSAGES, "message")
    for name, value in fields:
        if isinstance(value, (list, dict)) and name not in _UNLIMITED:
            _check_count(name.rstrip("_"), len(value), MAX_ITEMS, "item")
    for name, text, limit in (
        ("chain", fields.chain, MAX_STRING_CHARACTERS),
        ("preset", fields.preset, MAX_STRING_CHARACTERS),
        ("chat_template", fields.chat_template, MAX_TEMPLATE_CHARACTERS),
        ("samplers", fields.samplers if isinstance(fields.samplers, str) else "", MAX_STRING_CHARACTERS),
        *(("set", text, MAX_SET_CHARACTERS) for text in fields.set_ or () if isinstance(fields.set_, list)),
    ):
        _check_count(name, len(text or ""), limit, "character")


def check_overrides(overrides: Iterable[Override]) -> None:
    """Raise ``InvalidRequestError`` for a setting of a request that is too large, whichever field sets it."""
    for override in overrides:
        if override.target not in _UNLIMITED_SETTINGS:
            _check_value(override.origin, override.value)


def check_steps(steps: Iterable[StepSpec], is_of_request: Callable[[str], bool]) -> None:
    """Raise ``InvalidRequestError`` for a parameter of a sampler that a request sets, and that is too large."""
    # ``is_of_request``: whether a request set a parameter, by the origin of its value.
    for step in steps:
        for name, origin in step.origins.items():
            if is_of_request(origin) and f"{step.name}.{name}" not in _UNLIMITED_SETTINGS:
                _check_value(origin, getattr(step.sampler, name))


def _check_value(origin: str, value: object) -> None:
    """Raise ``InvalidRequestError`` for a value with too many items, or with too long a string, at any depth."""
    # Strings are searched in the text after each token.
    if isinstance(value, str):
        _check_count(origin, len(value), MAX_STRING_CHARACTERS, "character")
    elif isinstance(value, (Mapping, Sequence)):
        _check_count(origin, len(value), MAX_ITEMS, "item")
        if isinstance(value, Mapping):  # of the steps of a phase, allow has token ids
            value = [*value, *(item for key, item in value.items() if key != "allow")]
        for item in value:
            _check_value(origin, item)


def _check_count(name: str, count: int, limit: int, noun: str) -> None:
    if count > limit:
        message = f"{name}: {count_noun(count, noun)}; the limit is {limit:,}"
        raise InvalidRequestError(message, name.partition(" ")[0])


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
    names = (*GRAMMAR_FIELDS, "chat_template", "set_", "preset", "chain")
    return any(getattr(fields, name) not in (None, "", {}, []) for name in names)


def public_origin(origin: str) -> str:
    """Return where a file comes from. The path of a folder is not told."""
    return origin if origin == "built-in" else "user"
