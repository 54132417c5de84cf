"""The fields of requests that have no effect: each is named, unless its name looks like a mistake.

Clients send many fields of other servers, and new ones with each release. Only a name that is nearly one of ours
is an error. Where nobody else writes the requests, every unknown field is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, get_args

from pydantic import BaseModel

from ..common.errors import LogitsmithError
from ..common.text import count_noun, nearest_name, short_repr

_ANYTHING = object()  # In `UNREPORTED_VALUES`: no value of the field has an effect that a client could miss

# fields of clients that have no effect here, each with the values that need not be named: they change nothing
UNREPORTED_VALUES: Mapping[str, tuple[Any, ...]] = {
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
        (
            (False,),
            "stream echo early_stopping include_stop_str_in_output render_special flat_logprobs reasoning_control",
        ),
        ((False,), "auto_max_new_tokens static_cache thinking_forced_open prediction"),
        ((False,), "repetition_detection legacy_api"),
        ((True,), "add_bos_token skip_special_tokens spaces_between_special_tokens"),
        ((_ANYTHING,), "use_default_badwordsids trim_stop ignore_eos_token bypass_eos_token"),
        ((-1, 0), "truncation_length num_ctx n_ctx max_context_length truncate_prompt_tokens"),
        ((0,), "penalty_alpha prompt_lookup_num_tokens repetition_decay"),
        ((1,), "length_penalty num_beams beam_width best_of"),
        (("",), "suffix guided_whitespace_pattern adapter reasoning_effort verbosity"),
        (("", "none"), "reasoning_format"),
        ((-1, ""), "reasoning_budget_tokens thinking_token_budget"),
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

_MAX_NAMED = 256  # Number of fields that are named. A long chat may have the same unknown fields in each message.
_MAX_NAME_CHARACTERS = 100
_MAX_DISTINCT = 1_000  # Number of different unknown names in one request. Each is compared with all known names.


class UnknownFieldError(LogitsmithError):
    """An unknown field that is an error."""

    def __init__(self, path: str, name: str, similar: str | None, model: type[BaseModel]) -> None:
        hint = f"; did you mean {similar}?" if similar else ""
        super().__init__(f"{short_repr(path)}: there is no such field{hint}")
        self.path = path  # such as ``messages[1].nmae``
        self.name = name
        self.similar = similar  # the known field whose name it nearly has; None if there is none
        self.model = model  # the table that does not have the field


class TooManyFieldsError(LogitsmithError):
    """A request with more unknown fields than any client sends."""


def fields_without_effect(
    model: type[BaseModel], record: Mapping[str, Any], *, is_strict: bool, place: str = ""
) -> list[str]:
    """Return the paths of fields without effect. Raises ``UnknownFieldError`` and ``TooManyFieldsError``."""
    # ``is_strict``: whether every unknown field is an error; otherwise only one whose name looks like a mistake.
    paths: list[str] = []
    names: set[str] = set()
    for path, name, table in _unknown_fields(model, record, place):
        if table is model and path == place + name and name in UNREPORTED_VALUES:
            quiet = UNREPORTED_VALUES[name]
            if quiet[0] is not _ANYTHING and record[name] not in quiet:
                paths.append(path)
            continue
        similar = similar_name(name, table)
        if is_strict or similar is not None:
            raise UnknownFieldError(path, name, similar or nearest_name(name, _tables_of_fields(table)), table)
        names.add(name)
        if len(names) > _MAX_DISTINCT:
            raise TooManyFieldsError(f"there are more than {_MAX_DISTINCT:,} unknown fields")
        cut = len(name) - _MAX_NAME_CHARACTERS
        paths.append(f"{path[:-cut]}…" if cut > 0 else path)
    return paths


def limited(paths: list[str]) -> list[str]:
    """Return the paths that an answer names; of very many, the first ones and the number of others."""
    others = len(paths) - _MAX_NAMED
    return paths if others <= 0 else [*paths[:_MAX_NAMED], f"and {count_noun(others, 'other field')}"]


def _unknown_fields(
    model: type[BaseModel], record: Mapping[str, Any], place: str
) -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Yield the path and the name of each unknown field, and the table that does not have it. Null is absent."""
    known = _tables_of_fields(model)
    for name, value in record.items():
        if value is None:
            continue
        if name not in known:
            yield place + name, name, model
            continue
        nested = known[name]
        if nested is not None:
            for path, table in _tables_in(value, place + name):
                yield from _unknown_fields(nested, table, f"{path}.")


def _tables_in(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _tables_in(item, f"{path}[{index}]")


@cache
def _tables_of_fields(model: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """Return the names of a model's fields, each with the model of its values; None for other values."""
    return {field.alias or name: _model_in(field.annotation) for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


@lru_cache(maxsize=4096)
def similar_name(name: str, model: type[BaseModel]) -> str | None:
    """Return the field of a model that a name is a misspelling of; None if the name may be another's field."""
    if len(name) > _MAX_NAME_CHARACTERS or name in _OTHER_WORDS:
        return None
    return next((known for known in _tables_of_fields(model) if _is_mistake(name, known)), None)


def _is_mistake(name: str, known: str) -> bool:
    """Return whether a name is a slip for a known one. A word of one letter more or less is none."""
    (letters, word_count), (known_letters, known_word_count) = _letters(name), _letters(known)
    is_other = word_count - known_word_count == len(letters) - len(known_letters) != 0
    return not is_other and _is_misspelling(letters, known_letters)


@lru_cache(maxsize=4096)
def _letters(name: str) -> tuple[str, int]:
    """Return a name in small letters without separators (``topp``), and its number of words of one letter."""
    words = re.findall(r"(?<![^\W_])[^\W\d_](?![^\W_])", name)
    return re.sub(r"[\W_]", "", name).lower(), len(words)


# names that differ from one of ours by a letter, and mean something else
_OTHER_WORDS = frozenset(("phase", "phrases", "present", "sampler", "samples"))
# Letters of a known name for which two swapped or doubled letters are a mistake; for which a missing or added
# letter is one, because there are ``mode`` and ``model``; and for which a wrong letter, or a slip at the
# beginning, is one, because there are ``top_a`` and ``top_p``, ``context`` and ``content``
_MIN_LETTERS_SWAPPED, _MIN_LETTERS_COUNT, _MIN_LETTERS_WRONG = 4, 6, 8
# a wrong vowel is a mistake in shorter names, too, such as ``grammer``: no other field differs by one
_VOWELS = frozenset("aeiou")


def _is_misspelling(name: str, known: str) -> bool:
    """Return whether a name differs from a known one by one slip. Both consist of small letters and digits."""
    if name == known:
        return True
    if len(known) < _MIN_LETTERS_SWAPPED or abs(len(name) - len(known)) > 1:
        return False
    pairs = enumerate(zip(name, known, strict=False))
    start = next((index for index, (a, b) in pairs if a != b), min(len(name), len(known)))
    rest, known_rest = name[start:], known[start:]
    if rest[:2] == known_rest[1::-1] and rest[2:] == known_rest[2:]:  # two letters are swapped
        return True
    if start == 0 and len(known) < _MIN_LETTERS_WRONG:
        return False
    if len(name) > len(known):
        is_doubled = start > 0 and rest[0] == name[start - 1]
        is_plural = rest == "s" and not is_doubled  # such as OpenRouter's models
        is_mistake = (is_doubled or len(known) >= _MIN_LETTERS_COUNT) and not is_plural
        return rest[1:] == known_rest and rest[0].isalpha() and is_mistake
    is_missing = len(name) < len(known)
    is_vowel = {rest[:1], known_rest[:1]} <= _VOWELS
    min_letters = _MIN_LETTERS_COUNT if is_missing or is_vowel else _MIN_LETTERS_WRONG
    letters, others = known_rest[:1] + ("" if is_missing else rest[:1]), rest if is_missing else rest[1:]
    return len(known) >= min_letters and others == known_rest[1:] and letters.isalpha()
