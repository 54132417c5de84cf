"""Jinja for chat templates: a sandbox in which a template can use only its variables, and always ends.

A template is part of a model file, which may have any author. Every loop turn, call, filter and operator counts
against a `WorkBudget`, and a value that would be too large is rejected before it is computed. So the time and the
memory of a rendering are limited without a clock, and equally on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

# Maximum length of a template. llama.cpp's longest template has 17,000 characters.
MAX_SOURCE_CHARACTERS = 200_000
# Units of work of one rendering. A unit is one character of output, or work that takes as long as a few
# characters. For a hundred messages, the templates in llama.cpp's repository need 40,000 to 1,500,000 units. This
# limit takes a few seconds.
_MAX_WORK = 20_000_000
TURN_WORK = 20  # units of work for a turn of a loop
NODE_WORK = 4  # units of work for each node in the body of a loop
CALL_WORK = 100  # units of work for a filter, a test, an operator or a call
_WORK_PER_CHARACTER = 100  # Additional units of work for each character of the messages
MAX_TEXT_CHARACTERS = 4_000_000  # maximum length of each string that a template makes, including the prompt
_TEXT_PER_CHARACTER = 10  # Additional characters of a string for each character of the messages
_MAX_INTEGER_BITS = 4096
# Maximum number of tuples inside a tuple. Python does not store a tuple's hash, and computes it through all inner
# tuples.
_MAX_TUPLE_NODES = 10_000
_CONTAINER_TYPES = (list, tuple, Mapping, KeysView, ValuesView, ItemsView)


class TemplateLimitError(Exception):
    """A chat template computes more than a template for messages can need."""


class _TreeSize(NamedTuple):
    """The size of a value as a tree, in which a part counts each time it appears."""

    nodes: int
    characters: int


class WorkBudget:
    def __init__(self, input_characters: int) -> None:
        # Long messages and variables allow more work.
        self._max_work = _MAX_WORK + _WORK_PER_CHARACTER * input_characters
        self._remaining_work = self._max_work
        self._max_characters = MAX_TEXT_CHARACTERS + _TEXT_PER_CHARACTER * input_characters
        # The sizes of values, by their ``id``. The values are kept, so that Python does not reuse an id.
        self._tree_sizes: dict[int, tuple[object, _TreeSize]] = {}

    def spend(self, units: int) -> None:
        """Count work. Raises ``TemplateLimitError`` when the budget is used up."""
        self._remaining_work -= units
        if self._remaining_work < 0:
            raise TemplateLimitError(f"it does not end within {self._max_work:,} units of work")

    def check_length(self, length: int) -> None:
        """Raise ``TemplateLimitError`` if a string or a list of this length is too long to be made."""
        if length > self._max_characters:
            raise TemplateLimitError(f"it makes a text of more than {self._max_characters:,} characters")

    def check(self, value: Any) -> Any:
        """Count the length of a computed value as work, and return the value; raise if it is too large."""
        if isinstance(value, (str, *_CONTAINER_TYPES)):
            self.spend(1 + len(value))
            self.check_length(len(value))
            if isinstance(value, tuple):
                self._check_tuple(value)
        elif isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
            raise TemplateLimitError(f"it computes a number of more than {_MAX_INTEGER_BITS:,} bits")
        return value

    def check_integer_bits(self, bits: float) -> None:
        """Raise ``TemplateLimitError`` if an integer of this many bits is too large to be computed."""
        if bits > _MAX_INTEGER_BITS:
            raise TemplateLimitError(f"it computes a number of more than {_MAX_INTEGER_BITS:,} bits")

    def _check_tuple(self, value: tuple[Any, ...]) -> None:
        tuple_count = 0
        pending_tuples = [value]
        while pending_tuples:
            current_tuple = pending_tuples.pop()
            tuple_count += 1
            if tuple_count > _MAX_TUPLE_NODES:
                raise TemplateLimitError(f"it nests more than {_MAX_TUPLE_NODES:,} tuples")
            pending_tuples += (part for part in current_tuple if isinstance(part, tuple))

    def tree_size(self, value: Any) -> _TreeSize:
        """Return the size of a value as a tree. Raises ``TemplateLimitError`` if its text would be too long."""
        if isinstance(value, str):
            return _TreeSize(1, len(value))
        if isinstance(value, Namespace):
            raise TemplateLimitError("it writes a namespace, which may contain itself")
        if not isinstance(value, _CONTAINER_TYPES):
            return _TreeSize(1, 8)
        stored_size = self._tree_sizes.get(id(value))
        if stored_size is not None:
            _, size = stored_size
            return size
        child_values = [*value, *value.values()] if isinstance(value, Mapping) else list(value)
        self.spend(1 + len(child_values))
        child_sizes = [self.tree_size(part) for part in child_values]
        size = _TreeSize(
            1 + sum(part.nodes for part in child_sizes), 2 + sum(part.characters + 4 for part in child_sizes)
        )
        self.check_length(size.characters)
        self._tree_sizes[id(value)] = value, size
        return size

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            self.spend(self.tree_size(value).characters)
            value = str(value)
        self.check_length(len(value))
        return value

    def charge_for_scan(self, value: Any) -> Any:
        """Subtract the work of comparing or searching a value from the budget, and return the value."""
        if isinstance(value, (str, *_CONTAINER_TYPES)):
            size = self.tree_size(value)
            self.spend(size.nodes + size.characters // 64)
        return value


current_budget: ContextVar[WorkBudget] = ContextVar("current_budget")


Function = Callable[..., Any]

_TEXT_FILTERS = "capitalize e escape format indent lower replace safe string title trim truncate upper wordcount"
_COMPARING_FILTERS = "dictsort groupby max min sort unique"
# the others are not supported: they are for web pages, or make text of any length
_OTHER_FILTERS = """
    abs count d default first float int items join last length list map reject rejectattr reverse select selectattr
    sum
"""
_TEXT_METHODS = """
    capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit islower
    isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex
    rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
"""

_ALLOWED_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (dict, frozenset(("copy", "get", "items", "keys", "values"))),
    (list, frozenset(("copy", "count", "index"))),
    (tuple, frozenset(("count", "index"))),
    (int, frozenset()),
    (float, frozenset(("is_integer",))),
    (bytes, frozenset()),
    (type, frozenset()),
)

_MAX_FIELD_WIDTH = 9_999  # maximum width of a format field, such as ``%9999d``, in characters
_WIDE_FIELD = re.compile(r"\d{5}|\*|\{[^{}]*\{")  # A format field that may be wider, or whose width is computed
_SORT_WORK = 100  # work for each item of a list that is sorted: about twenty comparisons


def _budgeted_filters(filters: Mapping[str, Function]) -> dict[str, Function]:
    names = f"{_TEXT_FILTERS} {_COMPARING_FILTERS} {_OTHER_FILTERS}".split()
    return {
        **{name: _budgeted_filter(name, filters[name]) for name in names},
        "tojson": _to_json,
        "gen pass": _count_and_pass,
        "gen concat": _concatenate,
        "gen scan": lambda value: current_budget.get().charge_for_scan(value),
        "gen check": lambda value: current_budget.get().check(value),
    }


def _budgeted_tests(tests: Mapping[str, Function]) -> dict[str, Function]:
    """Return the tests, such as ``is in``; each counts its work."""

    def add_budget(function: Function) -> Function:
        @wraps(function)
        def run_test(*args: Any) -> bool:
            budget = current_budget.get()
            budget.spend(CALL_WORK)
            for arg in args[1:]:
                budget.charge_for_scan(arg)
            return bool(function(*args))

        return run_test

    return {name: add_budget(function) for name, function in tests.items()}


def _budgeted_filter(name: str, function: Function) -> Function:
    value_index = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja passes its context before the value
    converts_to_text = name in _TEXT_FILTERS.split()
    compares_values = name in _COMPARING_FILTERS.split()

    @wraps(function)
    def run_filter(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget.get()
        budget.spend(CALL_WORK)
        jinja_args = args[:value_index]
        value = args[value_index]
        filter_args = args[value_index + 1 :]
        if isinstance(value, Namespace):
            raise TemplateLimitError("it filters a namespace, which may contain itself")
        if converts_to_text:
            value = budget.text(value)
            budget.spend(len(value))
        elif compares_values:
            budget.spend(_SORT_WORK * budget.tree_size(value).nodes)
        elif hasattr(value, "__len__"):
            budget.spend(len(value))
        _check_filter(budget, name, value, filter_args, kwargs)
        result = function(*jinja_args, value, *filter_args, **kwargs)
        if isinstance(result, Iterator):
            result = list(result)
        return budget.check(result)

    return run_filter


def _check_filter(
    budget: WorkBudget, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise ``TemplateLimitError`` for a filter whose result would be too large."""
    all_args = (*args, *kwargs.values())
    first_arg = args[0] if args else None
    if name == "replace" and len(args) > 1:
        _check_replace(budget, value, *args)
    elif name == "join":
        _check_join(budget, value, separator=kwargs.get("d", first_arg))
    elif name == "indent":
        indentation = kwargs.get("width", args[0] if args else 4)  # a number of spaces, or a text
        width = indentation if isinstance(indentation, int) else len(indentation)
        line_count = value.count("\n") + 1
        budget.check_length(len(value) + line_count * width)
    elif name == "format":
        _check_format(budget, value, "%", all_args)
    elif name == "sum" and not all(isinstance(arg, (int, float, str)) for arg in all_args):
        raise TemplateLimitError("it adds values that are not numbers")


def _check_method(budget: WorkBudget, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ``TemplateLimitError`` for a method of a string whose result would be too large."""
    text = getattr(getattr(function, "__wrapped__", function), "__self__", None)
    if not isinstance(text, str):
        return
    budget.spend(len(text))
    match function.__name__:
        case "replace" if len(args) > 1:
            _check_replace(budget, text, *args)
        case "join":
            _check_join(budget, args[0], text)
        case "format" | "format_map":
            _check_format(budget, text, "{", (*args, *kwargs.values()))


def _check_operator(budget: WorkBudget, operator: str, left: Any, right: Any) -> None:
    """Raise ``TemplateLimitError`` for an operator whose result would be too large."""
    if operator == "%" and isinstance(left, str):
        _check_format(budget, left, "%", (right,))
    elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
        budget.check_length(len(left) + len(right))
    elif operator == "*":
        if hasattr(right, "__len__"):  # 3 * text
            left, right = right, left
        if hasattr(left, "__len__") and isinstance(right, int):
            budget.check_length(len(left) * right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        budget.check_integer_bits(left.bit_length() * right)


def _check_replace(budget: WorkBudget, text: str, old: Any, new: Any, *_: Any) -> None:
    if isinstance(old, str) and isinstance(new, str):
        budget.check_length(len(text) + text.count(old) * len(new))


def _check_join(budget: WorkBudget, values: Any, separator: Any) -> None:
    budget.check_length(budget.tree_size(values).characters)
    if hasattr(values, "__len__") and isinstance(separator, str):
        budget.check_length(len(values) * len(separator))


def _check_format(budget: WorkBudget, text: str, field_mark: str, values: tuple[Any, ...]) -> None:
    if _WIDE_FIELD.search(text):
        raise TemplateLimitError(f"it formats with a field that may be wider than {_MAX_FIELD_WIDTH:,} characters")
    value_characters = budget.tree_size(values).characters
    field_widths = sum(map(int, re.findall(r"\d+", text)))
    budget.check_length(len(text) + text.count(field_mark) * value_characters + field_widths)


def _count_and_pass(value: Any, units: int) -> Any:
    current_budget.get().spend(units)
    return value


def _concatenate(values: list[Any]) -> str:
    budget = current_budget.get()
    texts = [budget.text(value) for value in values]
    length = sum(map(len, texts))
    budget.check_length(length)
    budget.spend(length)
    return "".join(texts)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without escapes for HTML, as in transformers; Jinja's filter escapes them."""
    budget = current_budget.get()
    budget.spend(CALL_WORK)
    budget.spend(budget.tree_size(value).characters)
    if indent is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    budget.check_length(indent if isinstance(indent, int) else len(indent))
    length = 0
    chunks = []
    for chunk in encoder.iterencode(value):
        length += len(chunk)
        budget.spend(CALL_WORK + len(chunk))
        budget.check_length(length)
        chunks.append(chunk)
    return "".join(chunks)


class _GenerationTag(Extension):
    """The tag ``{% generation %}`` of transformers, which marks the assistant's text: its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment in which chat templates are compiled, with the extensions of transformers."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self) -> None:
        # Constants are not folded, because a budget counts only what is computed while a template is rendered.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], optimized=False
        )
        self.finalize = _finalize
        self.concat: Any = _join_output
        del self.globals["lipsum"]
        self.filters: Any = _budgeted_filters(self.filters)
        self.tests: Any = _budgeted_tests(self.tests)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = current_budget.get()
        budget.spend(CALL_WORK)
        if isinstance(function, (Macro, LoopContext)):
            return super().call(context, function, *args, **kwargs)
        _check_method(budget, function, args, kwargs)
        return budget.check(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current_budget.get()
        budget.spend(CALL_WORK)
        if operator == "+":  # as in llama.cpp, an undefined variable counts as an empty string
            if isinstance(left, jinja2.Undefined) and isinstance(right, str):
                left = ""
            if isinstance(right, jinja2.Undefined) and isinstance(left, str):
                right = ""
        _check_operator(budget, operator, left, right)
        return budget.check(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, names in _ALLOWED_METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        # Jinja documents this method as the place to change how a template is compiled.
        counted_source = _WorkCountingTransformer().visit(source)
        counted_source.set_environment(self)
        return super()._generate(counted_source, *args, **kwargs)


@jinja2.pass_context
def _finalize(_: Context, value: Any) -> str:
    # The unused context keeps Jinja from folding constants.
    return current_budget.get().text(value)


def _join_output(parts: Iterable[str]) -> str:
    budget = current_budget.get()
    length = 0
    checked_parts = []
    for part in parts:
        length += len(part)
        budget.spend(1 + len(part))
        budget.check_length(length)
        checked_parts.append(part)
    return "".join(checked_parts)


class _WorkCountingTransformer(NodeTransformer):
    """Inserts filters that count work into loop turns, calls, comparisons and joins."""

    # Their names contain a space, so that no template can call or replace them.

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
            self._insert_work_count(node)
            return node
        self.generic_visit(node)
        match node:
            case nodes.Concat():
                return _filter_node("gen concat", nodes.List(node.nodes, lineno=node.lineno))
            case nodes.Compare():
                for operand in node.ops:
                    operand.expr = _filter_node("gen scan", operand.expr)
            case nodes.Tuple(ctx="load") if node.items:
                return _filter_node("gen check", node)
            case nodes.Getitem(ctx="load", arg=nodes.Slice()):
                return _filter_node("gen check", node)
        return node

    def _insert_work_count(self, node: Any) -> None:
        """Make each call and each turn of a loop count the nodes that it executes. Skipped turns count, too."""
        units = TURN_WORK + NODE_WORK * sum(_node_count(child) for child in node.body)
        condition = getattr(node, "test", None)
        condition_units = 0 if condition is None else TURN_WORK + NODE_WORK * _node_count(condition)
        self.generic_visit(node)
        if condition is not None:
            node.test = _filter_node("gen pass", node.test, nodes.Const(condition_units))
        count_work = _filter_node("gen pass", nodes.Const(None, lineno=node.lineno), nodes.Const(units))
        node.body.insert(0, nodes.ExprStmt(count_work, lineno=node.lineno))


def _filter_node(name: str, value: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _node_count(node: nodes.Node) -> int:
    return 1 + sum(1 for _ in _descendants(node))


def _descendants(node: nodes.Node) -> Iterator[nodes.Node]:
    pending_nodes = [node]
    while pending_nodes:
        for child in pending_nodes.pop().iter_child_nodes():
            pending_nodes.append(child)
            yield child
