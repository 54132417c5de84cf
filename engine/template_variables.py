"""The variables that a chat template reads, and the defaults that it has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..common.errors import wrong_value
from ..models.errors import ModelError

if TYPE_CHECKING:
    from jinja2 import nodes

_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


@dataclass(frozen=True)
class TemplateVariables:
    """The variables of a template.

    Attributes:
        names: the variables that it reads.
        defaults: the constants that it takes for variables that are not set.
    """

    names: frozenset[str]
    defaults: Mapping[str, object]


@lru_cache(maxsize=16)
def variables_of(source: str) -> TemplateVariables:
    """Return the variables of a valid template."""
    from jinja2 import meta  # noqa: PLC0415 - only chats pay for Jinja

    from .template_sandbox import TemplateEnvironment  # noqa: PLC0415

    tree = TemplateEnvironment().parse(source)
    return TemplateVariables(frozenset(meta.find_undeclared_variables(tree)), dict(_defaults(tree)))


def _defaults(tree: nodes.Template) -> Iterator[tuple[str, object]]:
    """Yield variables with the constants of ``x|default(1)``, ``set x = 1`` and ``set x = x if … else 1``."""
    from jinja2 import nodes  # noqa: PLC0415

    for found in tree.find_all(nodes.Filter):
        if found.name in ("default", "d") and isinstance(found.node, nodes.Name):
            yield from (
                (found.node.name, value.value) for value in found.args[:1] if isinstance(value, nodes.Const)
            )
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name):
            value = assignment.node
            values = [value.expr1, value.expr2] if isinstance(value, nodes.CondExpr) else [value]
            yield from (
                (assignment.target.name, constant.value)
                for constant in values
                if isinstance(constant, nodes.Const)
            )


def check_variables(variables: Mapping[str, Any], defaults: Mapping[str, object]) -> None:
    """Raise ``ModelError`` for a value whose type is not that of the template's default."""
    for name, value in variables.items():
        kind = bool if name == "enable_thinking" else type(defaults.get(name))
        allowed_types = (int, float) if kind is float else (kind,)
        if kind in _TYPES and value is not None and type(value) not in allowed_types:
            raise ModelError(wrong_value(value, _TYPES[kind]), origin="chat_template_kwargs", place=(name,))
