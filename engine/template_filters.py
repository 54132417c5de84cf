"""What a chat template may call: filters, tests, methods and operators, each within the budget."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from jinja2.utils import Namespace

from .template_budget import CALL_WORK, TemplateLimitError, WorkBudget, current_budget

Function = Callable[..., Any]

_TEXT_FILTERS = "capitalize e escape format indent lower replace safe string title trim truncate upper wordcount"
"""These read their value as text."""
_COMPARING_FILTERS = "dictsort groupby max min sort unique"
_OTHER_FILTERS = """
    abs count d default first float int items join last length list map reject rejectattr reverse select selectattr
    sum
"""
"""The rest of Jinja's filters are for pages of the web, or make texts of any length."""
_TEXT_METHODS = """
    capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit islower
    isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex
    rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
"""

METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, frozenset(_TEXT_METHODS.split())),
    (dict, frozenset(("copy", "get", "items", "keys", "values"))),
    (list, frozenset(("copy", "count", "index"))),
    (tuple, frozenset(("count", "index"))),
    (int, frozenset()),
    (float, frozenset(("is_integer",))),
    (bytes, frozenset()),
    (type, frozenset()),
)
"""The methods that templates may call, by type."""

_MAX_FIELD_WIDTH = 9_999
"""Characters to which a field of a format is filled up, such as ``%9999d``."""
_WIDE_FIELD = re.compile(r"\d{5}|\*|\{[^{}]*\{")
"""A field that may be wider, or whose width is computed."""
_SORT_WORK = 100
"""For each item of a list that is sorted: about twenty comparisons."""


def budgeted_filters(filters: Mapping[str, Function]) -> dict[str, Function]:
    """Return the filters that templates may use, each within the budget of the rendering."""
    names = f"{_TEXT_FILTERS} {_COMPARING_FILTERS} {_OTHER_FILTERS}".split()
    return {
        **{name: _budgeted(name, filters[name]) for name in names},
        "tojson": _to_json,
        "gen pass": _pass,
        "gen concat": _concat,
        "gen scan": lambda value: current_budget.get().scan(value),
        "gen check": lambda value: current_budget.get().check(value),
    }


def budgeted_tests(tests: Mapping[str, Function]) -> dict[str, Function]:
    """Return the tests, such as ``is in``, each within the budget of the rendering."""

    def budgeted(function: Function) -> Function:
        @wraps(function)
        def test(*args: Any) -> bool:
            budget = current_budget.get()
            budget.spend(CALL_WORK)
            for arg in args[1:]:
                budget.scan(arg)
            return bool(function(*args))

        return test

    return {name: budgeted(function) for name, function in tests.items()}


def _budgeted(name: str, function: Function) -> Function:
    first = 1 if hasattr(function, "jinja_pass_arg") else 0  # before the value stands what Jinja passes
    is_text, is_comparing = name in _TEXT_FILTERS.split(), name in _COMPARING_FILTERS.split()

    @wraps(function)
    def filter_(*args: Any, **kwargs: Any) -> Any:
        budget = current_budget.get()
        budget.spend(CALL_WORK)
        before, value, rest = args[:first], args[first], args[first + 1 :]
        if isinstance(value, Namespace):
            raise TemplateLimitError("it filters a namespace, which may hold itself")
        if is_text:
            value = budget.text(value)
            budget.spend(len(value))
        elif is_comparing:
            budget.spend(_SORT_WORK * budget.tree_size(value).nodes)
        elif hasattr(value, "__len__"):
            budget.spend(len(value))
        _check_filter(budget, name, value, rest, kwargs)
        result = function(*before, value, *rest, **kwargs)
        return budget.check(list(result) if isinstance(result, Iterator) else result)

    return filter_


def _check_filter(
    budget: WorkBudget, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise ``TemplateLimitError`` for a filter whose result would be too large."""
    given = (*args, *kwargs.values())
    if name == "replace" and len(args) > 1:
        _check_replace(budget, value, *args)
    elif name == "join":
        _check_join(budget, value, kwargs.get("d", args[0] if args else ""))
    elif name == "indent":
        width = kwargs.get("width", args[0] if args else 4)
        budget.check_length(
            len(value) + (value.count("\n") + 1) * (width if isinstance(width, int) else len(width))
        )
    elif name == "format":
        _check_format(budget, value, "%", given)
    elif name == "sum" and not all(isinstance(arg, (int, float, str)) for arg in given):
        raise TemplateLimitError("it adds up what are no numbers")


def check_method(budget: WorkBudget, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ``TemplateLimitError`` for a method of a text whose result would be too large.

    Args:
        budget: What the template may still compute.
        function: The method.
        args: Its positional arguments.
        kwargs: Its named arguments.
    """
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


def check_operator(budget: WorkBudget, operator: str, left: Any, right: Any) -> None:
    """Raise ``TemplateLimitError`` for an operator whose result would be too large.

    Args:
        budget: What the template may still compute.
        operator: The operator, as it is written.
        left: Its left operand.
        right: Its right operand.
    """
    if operator == "%" and isinstance(left, str):
        _check_format(budget, left, "%", (right,))
    elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
        budget.check_length(len(left) + len(right))
    elif operator == "*":
        if hasattr(right, "__len__"):
            left, right = right, left
        if hasattr(left, "__len__"):
            budget.check_length(len(left) * right if isinstance(right, int) else 0)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        budget.check_integer_bits(left.bit_length() * right)


def _check_replace(budget: WorkBudget, text: str, old: Any, new: Any, *_: Any) -> None:
    if isinstance(old, str) and isinstance(new, str):
        budget.check_length(len(text) + text.count(old) * len(new))


def _check_join(budget: WorkBudget, values: Any, separator: Any) -> None:
    budget.check_length(budget.tree_size(values).characters)
    if hasattr(values, "__len__") and isinstance(separator, str):
        budget.check_length(len(values) * len(separator))


def _check_format(budget: WorkBudget, text: str, mark: str, values: tuple[Any, ...]) -> None:
    if _WIDE_FIELD.search(text):
        raise TemplateLimitError(f"it formats with a field that may be wider than {_MAX_FIELD_WIDTH:,} characters")
    size = budget.tree_size(values).characters
    widths = sum(map(int, re.findall(r"\d+", text)))
    budget.check_length(len(text) + text.count(mark) * size + widths)


def _pass(value: Any, units: int) -> Any:
    """Return the value, and count work."""
    current_budget.get().spend(units)
    return value


def _concat(values: list[Any]) -> str:
    """Join the operands of ``~``."""
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
    """Return a value as JSON; like transformers, and unlike Jinja, without escapes for HTML."""
    budget = current_budget.get()
    budget.spend(CALL_WORK)
    budget.spend(budget.tree_size(value).characters)
    if indent is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    budget.check_length(indent if isinstance(indent, int) else len(indent))
    length, chunks = 0, []
    for chunk in encoder.iterencode(value):
        length += len(chunk)
        budget.spend(CALL_WORK + len(chunk))
        budget.check_length(length)
        chunks.append(chunk)
    return "".join(chunks)
