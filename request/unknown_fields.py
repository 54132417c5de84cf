"""The fields of requests that have no effect.

Clients send many fields of other servers, and new ones with each release. So an answer names the unknown fields,
and only a field whose name looks like a misspelling of a known one (``temprature``) is an error. In a strict
request every unknown field is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from ..common.errors import LogitsmithError
from ..common.text import count_noun, nearest_name, short_repr

_ANYTHING = object()  # in `UNREPORTED_VALUES`: the field is not reported, whatever its value

# Fields of clients that have no effect here. A field is not reported if it has one of the values listed for it,
# because such a value changes nothing in the other servers either.
UNREPORTED_VALUES: Mapping[str, tuple[Any, ...]] = {
    name: values
    for values, names in (
        # labels of the sender and hints about storage; they never change an answer
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
        (("",), "suffix guided_whitespace_pattern adapter verbosity"),
        (("", "none"), "reasoning_format"),
        ((True, False), "parallel_tool_calls parse_tool_calls send_banned_tokens"),
        ((["text"],), "modalities"),
        (([],), "response_fields"),
        # KoboldAI's texts of its own interface, and its changes of the text
        ((False,), "use_story use_memory use_authors_note use_world_info frmttriminc frmtrmblln frmtrmspch"),
        ((False,), "frmtadsnsp use_userscripts singleline"),
        ((_ANYTHING,), "disable_input_formatting disable_output_formatting gui_settings robo_mode"),
        ((_ANYTHING,), "sampler_full_determinism replace_instruct_placeholders using_openai_tools smartcontext"),
        (("",), "soft_prompt genkey"),
    )
    for name in names.split()
}

# maximum number of fields that an answer names; a long chat may have the same unknown fields in each message
_MAX_REPORTED_PATHS = 256
_MAX_NAME_CHARACTERS = 100
# maximum number of different unknown names in one request, because each is compared with all known names
_MAX_DISTINCT_NAMES = 1_000


class UnknownFieldError(LogitsmithError):
    """An unknown field that is an error."""

    def __init__(self, path: str, name: str, similar: str | None, model: type[BaseModel]) -> None:
        hint = f"; did you mean {similar}?" if similar else ""
        super().__init__(f"{short_repr(path)}: there is no such field{hint}")
        self.path = path  # such as ``messages[1].nmae``
        self.name = name  # such as ``nmae``
        self.similar = similar  # the known field with nearly the same name, such as ``name``, if there is one
        self.model = model  # the table that does not have the field


class TooManyFieldsError(LogitsmithError):
    """A request with more unknown fields than any client sends."""


def fields_without_effect(
    model: type[BaseModel], record: Mapping[str, Any], *, is_strict: bool, place: str = ""
) -> list[str]:
    """Return the paths of fields without effect. Raises ``UnknownFieldError`` and ``TooManyFieldsError``."""
    # ``is_strict``: whether every unknown field is an error; otherwise only one whose name looks like a mistake.
    # ``place``: prefix of the paths.
    paths: list[str] = []
    distinct_names: set[str] = set()
    for unknown in _unknown_fields(model, record, place):
        name = unknown.name
        is_at_top = unknown.path == place + name and unknown.model is model
        if is_at_top and name in UNREPORTED_VALUES:
            unreported_values = UNREPORTED_VALUES[name]
            if _ANYTHING not in unreported_values and record[name] not in unreported_values:
                paths.append(unknown.path)
            continue
        similar = similar_name(name, unknown.model)
        if is_strict or similar is not None:
            suggestion = similar or nearest_name(name, _tables_of_fields(unknown.model))
            raise UnknownFieldError(unknown.path, name, suggestion, unknown.model)
        distinct_names.add(name)
        if len(distinct_names) > _MAX_DISTINCT_NAMES:
            raise TooManyFieldsError(f"there are more than {_MAX_DISTINCT_NAMES:,} unknown fields")
        paths.append(unknown.short_path)
    return paths


def limited(paths: list[str]) -> list[str]:
    """Return the paths that an answer names. If there are too many, the rest is only counted."""
    rest_count = len(paths) - _MAX_REPORTED_PATHS
    if rest_count <= 0:
        return paths
    return [*paths[:_MAX_REPORTED_PATHS], f"and {count_noun(rest_count, 'other field')}"]


class _UnknownField(NamedTuple):
    path: str  # such as ``messages[1].nmae``
    name: str
    model: type[BaseModel]  # the table that does not have the field

    @property
    def short_path(self) -> str:
        """The path, with a very long name cut off."""
        excess = len(self.name) - _MAX_NAME_CHARACTERS
        return f"{self.path[:-excess]}…" if excess > 0 else self.path


def _unknown_fields(model: type[BaseModel], record: Mapping[str, Any], place: str) -> Iterator[_UnknownField]:
    """Yield the unknown fields of a record and of the tables in it. A field that is null counts as absent."""
    model_by_field = _tables_of_fields(model)
    for name, value in record.items():
        if value is None:
            continue
        if name not in model_by_field:
            yield _UnknownField(place + name, name, model)
            continue
        nested_model = model_by_field[name]
        if nested_model is not None:
            for path, table in _tables_in(value, place + name):
                yield from _unknown_fields(nested_model, table, f"{path}.")


def _tables_in(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each table of a value, which may be a list of tables, with its path."""
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
    """Return the model in an annotation such as ``list[MessagePart] | None``; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        model = _model_in(part)
        if model is not None:
            return model
    return None


@lru_cache(maxsize=4096)
def similar_name(name: str, model: type[BaseModel]) -> str | None:
    """Return the field of a model that a name is a misspelling of; None if there is none."""
    if len(name) > _MAX_NAME_CHARACTERS or name in _OTHER_WORDS:
        return None
    return next((known for known in _tables_of_fields(model) if _is_mistake(name, known)), None)


def _is_mistake(name: str, known_name: str) -> bool:
    """Return whether a name is a misspelling of a known name."""
    letters = _letters(name)
    known_letters = _letters(known_name)
    # Names that differ by a word of one letter mean different things, such as ``top`` and ``top_p``.
    added_letters = len(letters) - len(known_letters)
    added_words = _one_letter_word_count(name) - _one_letter_word_count(known_name)
    differs_by_word = added_letters != 0 and added_letters == added_words
    return not differs_by_word and _is_misspelling(letters, known_letters)


@lru_cache(maxsize=4096)
def _letters(name: str) -> str:
    """Return a name in small letters without separators: ``topp`` for ``top_p``."""
    return re.sub(r"[\W_]", "", name).lower()


@lru_cache(maxsize=4096)
def _one_letter_word_count(name: str) -> int:
    words = re.split(r"[\W_]+", name)
    return sum(len(word) == 1 and not word.isdecimal() for word in words)


# names of other fields, which differ from one of ours by a letter
_OTHER_WORDS = frozenset(("phase", "phrases", "present", "sampler", "samples"))
# A slip counts as a mistake only if the known name is long enough. Short names have neighbors that mean something
# else: ``mode`` and ``model`` differ by a missing letter, ``top_a`` and ``top_p`` by a wrong one, ``context`` and
# ``content`` too.
_MIN_LETTERS_FOR_SWAP = 4  # two letters are swapped, or one is doubled
_MIN_LETTERS_FOR_COUNT = 6  # a letter is missing, or there is one too many
_MIN_LETTERS_FOR_WRONG = 8  # a letter is wrong, or the slip is in the first letter
# a wrong vowel is a mistake in shorter names, too, such as ``grammer``: no other field differs by one
_VOWELS = frozenset("aeiou")


def _is_misspelling(name: str, known: str) -> bool:
    """Return whether a name differs from a known one by one slip. Both consist of small letters and digits."""
    if len(known) < _MIN_LETTERS_FOR_SWAP or abs(len(name) - len(known)) > 1:
        return name == known
    start = _common_length(name, known)
    rest = name[start:]
    known_rest = known[start:]
    is_swapped = rest[:2] == known_rest[1::-1] and rest[2:] == known_rest[2:]
    if is_swapped or name == known:
        return True
    if start == 0 and len(known) < _MIN_LETTERS_FOR_WRONG:
        return False
    if len(name) > len(known):
        return _has_extra_letter(rest, known_rest, name[:start])
    if len(name) < len(known):
        is_missing = rest == known_rest[1:] and known_rest[0].isalpha()
        return is_missing and len(known) >= _MIN_LETTERS_FOR_COUNT
    return _has_wrong_letter(rest, known_rest, len(known))


def _common_length(name: str, known: str) -> int:
    """Return the number of letters at the beginning of two names that are the same."""
    for index, (letter, known_letter) in enumerate(zip(name, known, strict=False)):
        if letter != known_letter:
            return index
    return min(len(name), len(known))


def _has_wrong_letter(rest: str, known_rest: str, known_length: int) -> bool:
    """Return whether two names of one length differ by the first letter of their rests only."""
    is_wrong = rest[1:] == known_rest[1:] and rest[0].isalpha() and known_rest[0].isalpha()
    is_wrong_vowel = rest[0] in _VOWELS and known_rest[0] in _VOWELS
    min_letters = _MIN_LETTERS_FOR_COUNT if is_wrong_vowel else _MIN_LETTERS_FOR_WRONG
    return is_wrong and known_length >= min_letters


def _has_extra_letter(rest: str, known_rest: str, beginning: str) -> bool:
    """Return whether a name has one letter too many, and else equals the known name."""
    # ``beginning``: the letters that both names begin with, before ``rest`` and ``known_rest``
    is_doubled = rest[0] == beginning[-1:]
    is_plural = rest == "s" and not is_doubled  # a field of its own, such as OpenRouter's ``models``
    known_length = len(beginning) + len(known_rest)
    is_long_enough = is_doubled or known_length >= _MIN_LETTERS_FOR_COUNT
    return rest[1:] == known_rest and rest[0].isalpha() and is_long_enough and not is_plural
