"""The writer of YAML. Readers of YAML 1.1 and of YAML 1.2 find the same values in its texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from .yaml_reader import Yaml12Loader


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes what YAML 1.2 reads as a number, too, such as ``1e-3``."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True  # a list that occurs twice is written twice

    def represent_data(self, data: Any) -> yaml.Node:
        is_other_mapping = isinstance(data, Mapping) and not isinstance(data, dict)
        return super().represent_data(dict(data) if is_other_mapping else data)


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Only in double quotes, a line end is an escape and needs no second line.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if text.isprintable() else '"')


def _configure_dumper() -> None:
    _Dumper.add_representer(str, _represent_string)
    _Dumper.add_multi_representer(str, _represent_string)  # for subclasses
    _Dumper.add_multi_representer(float, yaml.SafeDumper.represent_float)
    for first_character, resolvers in Yaml12Loader.yaml_implicit_resolvers.items():
        for tag, pattern in resolvers:
            _Dumper.add_implicit_resolver(tag, pattern, [first_character])


_configure_dumper()


def write_yaml(value: Any, *, one_line: bool = False) -> str:
    """Return a value as YAML: lines, or one line without a line end."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=one_line, sort_keys=False, allow_unicode=True, width=math.inf
    )
    # PyYAML ends a single value without quotes by a line of three dots.
    text = text.removesuffix("\n...\n").removesuffix("\n")
    return text if one_line else f"{text}\n"


def write_step(step: str | Mapping[str, Any]) -> str:
    """Return a step of a chain on one line, such as ``top_k: {k: 40}``."""
    text = write_yaml(step, one_line=True)
    return text[1:-1] if isinstance(step, Mapping) else text
