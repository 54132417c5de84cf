"""Settings that win over those of requests: `gen serve --force NAME=VALUE`, by the name of any client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..presets.errors import PresetError
from ..presets.overrides import Override
from ..presets.setting_table import SETTINGS
from ..presets.yaml_reader import parse_yaml_scalar
from .asked import AskedRequest, ask
from .errors import InvalidFieldError
from .fields import PromptFields, read_body
from .sampler_fields import (
    CHAIN_FIELDS,
    HIGH_FIELDS,
    LOW_FIELDS,
    MIROSTAT_FIELDS,
    ORDER_FIELDS,
    SamplerFields,
    field_names,
    is_effective,
    parameter_targets,
)

_FLAG = "--force"
_PLACE = f"{_FLAG} "
_SYNONYMS = (MIROSTAT_FIELDS, LOW_FIELDS, HIGH_FIELDS, ORDER_FIELDS)


def read_forced(arguments: Iterable[str]) -> AskedRequest:
    """Return what the arguments of ``--force`` ask for. Raises ``PresetError``, which names the argument."""
    record: dict[str, Any] = {}
    for argument in arguments:
        name, equals_sign, text = argument.partition("=")
        if not equals_sign or not name:
            raise PresetError("write NAME=VALUE, such as temperature=0.7", origin=_PLACE + argument)
        record[name] = parse_yaml_scalar(text, _PLACE + name)
    try:
        fields, _ = read_body(PromptFields, {"prompt": "", **record}, is_strict=True)
        asked = ask(fields, place=_PLACE)
    except InvalidFieldError as error:
        raise PresetError(error.problem, origin=_FLAG, place=error.place) from None
    settings_of = {override.origin for override in asked.overrides}
    for name in record:
        is_setting = name in ("chain", "preset") or name in SamplerFields.model_fields
        if not is_setting and _PLACE + name not in settings_of:
            raise PresetError("it is no setting; gen settings lists the names", origin=_PLACE + name)
    return asked


def with_forced_settings(asked: AskedRequest, forced: AskedRequest, unused: list[str]) -> AskedRequest:
    """Return a request with forced settings, except parameters of samplers, which change its chain at the end.

    The fields of the request that set the same, with other values, are appended to ``unused``.
    """
    unused += _overruled(asked, forced)
    if forced.sets_chain:
        asked = _without_chain(asked, unused)
        asked = replace(asked, chain=forced.chain, preset=forced.preset or asked.preset)
    return replace(asked, overrides=(*asked.overrides, *forced.overrides))


def _overruled(asked: AskedRequest, forced: AskedRequest) -> Iterator[str]:
    """Yield the fields of a request whose values do not count."""
    forced_fields = forced.sampler_fields
    given_names = set() if forced_fields is None else forced_fields.model_fields_set
    sampler_values = {
        name: getattr(forced_fields, name) for name in SamplerFields.model_fields if name in given_names
    }
    forced_overrides = [*forced.overrides]
    for name, value in sampler_values.items():
        forced_overrides += (Override(name, target, value) for target in parameter_targets(name))
    for override in asked.overrides:
        if any(_sets_otherwise(override, other) for other in forced_overrides):
            yield override.origin
    if asked.sampler_fields is None:
        return
    for name, value in sampler_values.items():
        for other_name in _synonyms(name):
            sent_value = getattr(asked.sampler_fields, other_name)
            if sent_value is not None and sent_value != value:
                yield asked.place + other_name


def _sets_otherwise(override: Override, forced: Override) -> bool:
    """Return whether an override sets another value than the forced one for the same setting."""
    if override.target != forced.target:
        return False
    if (
        isinstance(override.value, dict)
        and isinstance(forced.value, dict)
        and SETTINGS[forced.target].kind.has_parts
    ):
        common_parts = override.value.keys() & forced.value.keys()
        return any(override.value[part] != forced.value[part] for part in common_parts)
    return bool(override.value != forced.value)


def _synonyms(name: str) -> Iterable[str]:
    return (
        next((names for names in _SYNONYMS if name in names), None)
        or field_names(parameter_targets(name))
        or (name,)
    )


def _without_chain(asked: AskedRequest, unused: list[str]) -> AskedRequest:
    """Return a request without its chain, and without the fields that change the chain."""
    if asked.chain is not None:
        unused.append(f"{asked.place}chain")
    kept_overrides = [each for each in asked.overrides if each.target in SETTINGS and each.target != "phases"]
    unused += [override.origin for override in asked.overrides if override not in kept_overrides]
    fields = asked.sampler_fields
    if fields is not None:
        names = [name for name in SamplerFields.model_fields if name in CHAIN_FIELDS & fields.model_fields_set]
        given_names = [name for name in names if getattr(fields, name) is not None]
        unused += [asked.place + name for name in given_names if is_effective(fields, name)]
        fields = fields.model_copy(update=dict.fromkeys(given_names))
    return replace(asked, chain=None, overrides=tuple(kept_overrides), sampler_fields=fields)
