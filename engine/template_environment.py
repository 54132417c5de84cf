"""Jinja for chat templates: a sandbox in which a template reaches nothing but its variables, and which ends.

Every loop turn, call, filter and operator counts against a `WorkBudget`, and what would be large is refused before
it is made. So the time and the memory of a rendering are limited without a clock, and alike on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from .template_budget import CALL_WORK, NODE_WORK, TURN_WORK, current_budget
from .template_filters import METHODS, budgeted_filters, budgeted_tests, check_method, check_operator

MAX_SOURCE_CHARACTERS = 200_000
"""Of a template. llama.cpp's largest has 17,000."""


class _GenerationTag(Extension):
    """The tag ``{% generation %}`` of transformers, which marks what the assistant wrote: its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment in which chat templates are compiled, with the extensions that transformers has."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        # Constants are not folded: nothing may be computed while a template is compiled, outside a budget.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], optimized=False
        )
        self.finalize = _finalize
        self.concat: Any = _concat
        del self.globals["lipsum"]
        self.filters: Any = budgeted_filters(self.filters)
        self.tests: Any = budgeted_tests(self.tests)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function or a method of the template's values.

        Args:
            context: The template's variables.
            function: What the template calls.
            args: Its positional arguments.
            kwargs: Its named arguments.
        """
        budget = current_budget.get()
        budget.spend(CALL_WORK)
        if isinstance(function, (Macro, LoopContext)):
            return super().call(context, function, *args, **kwargs)
        check_method(budget, function, args, kwargs)
        return budget.check(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right``.

        Args:
            context: The template's variables.
            operator: One of `intercepted_binops`.
            left: Its left operand.
            right: Its right operand.
        """
        budget = current_budget.get()
        budget.spend(CALL_WORK)
        if operator == "+":  # as in llama.cpp: what is not defined is an empty text
            left = "" if isinstance(left, jinja2.Undefined) and isinstance(right, str) else left
            right = "" if isinstance(right, jinja2.Undefined) and isinstance(left, str) else right
        check_operator(budget, operator, left, right)
        return budget.check(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """True for an attribute that templates may use."""
        for kind, names in METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Compile a template; Jinja documents this as the place to change it."""
        metered = _Metering().visit(source)
        metered.set_environment(self)
        return super()._generate(metered, *args, **kwargs)


@jinja2.pass_context
def _finalize(_: Context, value: Any) -> str:
    """The text of an expression in ``{{ }}``. The context is not used; with it, constants are not folded."""
    return current_budget.get().text(value)


def _concat(parts: Iterable[str]) -> str:
    """Join the pieces of the output, of a macro or of a block."""
    budget = current_budget.get()
    length, pieces = 0, []
    for part in parts:
        length += len(part)
        budget.spend(1 + len(part))
        budget.check_length(length)
        pieces.append(part)
    return "".join(pieces)


class _Metering(NodeTransformer):
    """Lets a template count its work: in each turn of a loop and each call, and where it joins and compares.

    The filters that do it have a blank in their names, so that no template can name or replace them.
    """

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what stands in place of a node."""
        if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
            self._meter(node)
            return node
        self.generic_visit(node)
        match node:
            case nodes.Concat():
                return _filtered("gen concat", nodes.List(node.nodes, lineno=node.lineno))
            case nodes.Compare():
                for operand in node.ops:
                    operand.expr = _filtered("gen scan", operand.expr)
            case nodes.Tuple(ctx="load") if node.items:
                return _filtered("gen check", node)
            case nodes.Getitem(ctx="load", arg=nodes.Slice()):
                return _filtered("gen check", node)
        return node

    def _meter(self, node: Any) -> None:
        """Let each turn of a loop, also one that is filtered out, and each call count what it executes."""
        units = TURN_WORK + NODE_WORK * sum(_count(child) for child in node.body)
        test = getattr(node, "test", None)
        test_units = 0 if test is None else TURN_WORK + NODE_WORK * _count(test)
        self.generic_visit(node)
        if test is not None:
            node.test = _filtered("gen pass", node.test, nodes.Const(test_units))
        tick = _filtered("gen pass", nodes.Const(None, lineno=node.lineno), nodes.Const(units))
        node.body.insert(0, nodes.ExprStmt(tick, lineno=node.lineno))


def _filtered(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _count(node: nodes.Node) -> int:
    """How many nodes a part of a template has."""
    return 1 + sum(1 for _ in _descendants(node))


def _descendants(node: nodes.Node) -> Iterator[nodes.Node]:
    pending = [node]
    while pending:
        for child in pending.pop().iter_child_nodes():
            pending.append(child)
            yield child
