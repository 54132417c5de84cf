"""Limits on what one request may ask for. Each error names the field.

Without these limits, a small body could fill the memory or keep the server busy for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..common.text import count_noun
from ..decide.questions import Question, order_count
from ..engine.request import ChatMessages, GenerationRequest
from ..presets.overrides import Override
from ..requests.decision_fields import DecisionFields
from ..requests.fields import GenerationFields, MessageFields, PromptFields
from ..requests.grammar_fields import GRAMMAR_FIELDS
from ..samplers.chain import StepSpec
from .errors import InvalidRequestError

# Maximum number of commas in a body. Values take much more memory than their text.
MAX_JSON_VALUES = 1_000_000
MAX_PROMPTS = 1_024
# Maximum number of prompts multiplied by the choices of each.
MAX_TEXTS = 1_024
MAX_MESSAGES = 4_096
# Maximum number of prompts of a decision: each question in all orders of its options, also about the prior.
MAX_DECISION_PROMPTS = 4_096
# Maximum number of stop strings, of banned strings, and of other entries of a list or a table.
MAX_ITEMS = 1_024
# Maximum length of a stop string and of a banned string.
MAX_STRING_CHARACTERS = 4_096
MAX_TEMPLATE_CHARACTERS = 100_000
MAX_SET_CHARACTERS = 1_000_000  # a grammar, or token ids
# Maximum number of logprobs in an answer: those of each token, multiplied by the tokens and choices.
MAX_LOGPROB_ENTRIES = 2_000_000

# The fields whose lists and tables may have any number of items. Prompts, messages and world info have limits of
# their own. Allowed tokens may be a whole vocabulary. A grammar is limited by the process that compiles it.
_UNLIMITED = {"prompt", "messages", "input", "world_info", "allowed_token_ids", "allowed_tokens", *GRAMMAR_FIELDS}
# The settings of any size, for the same reasons. The negative prompt of guidance is a prompt.
_UNLIMITED_SETTINGS = ("grammar", "guidance", "allow.tokens")


def check_fields(fields: PromptFields | MessageFields) -> None:
    """Raise ``InvalidRequestError`` for a request that is too large, before anything is computed for it."""
    if isinstance(fields, PromptFields):
        prompt_count = len(fields.prompts())
        _check_count("prompt", prompt_count, MAX_PROMPTS, "prompt")
        if fields.n_cmpl and not fields.n:
            _check_count("n_cmpl", prompt_count * fields.n_cmpl, MAX_TEXTS, "choice")
        else:
            _check_count("n", prompt_count * (fields.n or 1), MAX_TEXTS, "choice")
    else:
        _check_count(fields.conversation_field, len(fields.placed_messages()), MAX_MESSAGES, "message")
    for name, value in fields:
        if isinstance(value, (list, dict)) and name not in _UNLIMITED:
            _check_count(name.rstrip("_"), len(value), MAX_ITEMS, "item")
    _check_length("chain", fields.chain, MAX_STRING_CHARACTERS)
    _check_length("preset", fields.preset, MAX_STRING_CHARACTERS)
    _check_length("chat_template", fields.chat_template, MAX_TEMPLATE_CHARACTERS)
    if isinstance(fields.samplers, str):
        _check_length("samplers", fields.samplers, MAX_STRING_CHARACTERS)
    if isinstance(fields.set_, list):
        for assignment in fields.set_:
            _check_length("set", assignment, MAX_SET_CHARACTERS)


def check_decision(fields: DecisionFields, questions: Sequence[Question]) -> None:
    """Raise ``InvalidRequestError`` for a decision that is too large, before anything is computed for it."""
    if not isinstance(fields.input, str):
        _check_count("input", len(fields.input), MAX_MESSAGES, "item")
    _check_length("prompt_template", fields.prompt_template, MAX_TEMPLATE_CHARACTERS)
    prompt_count = sum(order_count(len(question.options), fields.permutations) for question in questions)
    if fields.prior is not None:
        prompt_count *= 2
    _check_count("permutations", prompt_count, MAX_DECISION_PROMPTS, "prompt")


def check_overrides(overrides: Iterable[Override]) -> None:
    """Raise ``InvalidRequestError`` for a setting of a request that is too large, whichever field sets it."""
    for override in overrides:
        if override.target not in _UNLIMITED_SETTINGS:
            _check_value(override.origin, override.value)


def check_steps(steps: Iterable[StepSpec], is_of_request: Callable[[str], bool]) -> None:
    """Raise ``InvalidRequestError`` if a request gives a parameter of a sampler too large a value."""
    # ``is_of_request``: whether an origin, such as ``set top_p``, is a field of the request. It takes long.
    for step in steps:
        for name, origin in step.origins.items():
            value = getattr(step.sampler, name)
            has_limit = isinstance(value, (Mapping, Sequence)) and f"{step.name}.{name}" not in _UNLIMITED_SETTINGS
            if has_limit and is_of_request(origin):
                _check_value(origin, value)


def _check_value(origin: str, value: object) -> None:
    """Raise ``InvalidRequestError`` for a value with too many items, or with too long a string, at any depth."""
    if isinstance(value, str):  # a string may be searched for in the text after each token
        _check_length(origin, value, MAX_STRING_CHARACTERS)
    elif isinstance(value, Mapping):
        _check_count(origin, len(value), MAX_ITEMS, "item")
        for key, item in value.items():
            _check_value(origin, key)
            if key != "allow":  # this step of a phase has token ids, possibly of a whole vocabulary
                _check_value(origin, item)
    elif isinstance(value, Sequence):
        _check_count(origin, len(value), MAX_ITEMS, "item")
        for item in value:
            _check_value(origin, item)


def _check_length(name: str, text: str | None, limit: int) -> None:
    _check_count(name, len(text or ""), limit, "character")


def _check_count(name: str, count: int, limit: int, noun: str) -> None:
    if count > limit:
        field = name.partition(" ")[0]  # "set" of the origin "set top_p"
        raise InvalidRequestError(f"{name}: {count_noun(count, noun)}; the limit is {limit:,}", field)


def check_logprobs(requests: Sequence[GenerationRequest], context_length: int) -> None:
    """Raise ``InvalidRequestError`` if the logprobs of an answer would take too much memory."""
    total = 0
    field = "logprobs"
    for request in requests:
        prompt_tokens = 0 if isinstance(request.prompt, ChatMessages) else len(request.prompt)
        max_tokens = context_length - prompt_tokens if request.max_tokens is None else request.max_tokens
        returned_tokens = min(max(max_tokens, 0), context_length)
        if request.echo:
            returned_tokens += prompt_tokens
        top_count = request.logprobs.top_count or 0
        trace_count = request.trace or 0
        total += returned_tokens * (top_count + trace_count)
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
    may_name_preset = ":" in (fields.model or "")
    return may_name_preset or any(getattr(fields, name) not in (None, "", {}, []) for name in names)


def public_origin(origin: str) -> str:
    """Return where a file comes from. The path of a folder is not told."""
    return origin if origin == "built-in" else "user"
