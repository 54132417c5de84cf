"""Rules in llguidance's dialect of Lark, without those that no text matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .schema_case import UntranslatableError


class RuleName(str):
    """The name of a rule."""

    __slots__ = ()


# A part of an alternative: a rule, or an expression of Lark that some text matches
Item = RuleName | str
Alternative = tuple[Item, ...]


class Rule(NamedTuple):
    repeated: list[Alternative]  # any number of these come first
    alternatives: list[Alternative]  # one of these comes then


_MAX_ALTERNATIVES = 20_000


class RuleWriter:
    """The rules of one grammar."""

    def __init__(self) -> None:
        self._rules: dict[RuleName, Rule] = {}
        self._terminals: dict[str, str] = {}  # names by expression
        self._alternative_count = 0

    def new_name(self, prefix: str) -> RuleName:
        """Return a name for a rule that is added later."""
        name = RuleName(f"{prefix}{len(self._rules)}")
        self._rules[name] = Rule([], [])
        return name

    def terminal(self, expression: str) -> str:
        """Return the name of a terminal with this expression."""
        return self._terminals.setdefault(expression, f"T{len(self._terminals)}")

    def add(
        self, name: RuleName, alternatives: Sequence[Alternative], repeated: Sequence[Alternative] = ()
    ) -> None:
        self._rules[name] = Rule(list(repeated), list(alternatives))
        self._alternative_count += len(alternatives) + len(repeated)
        if self._alternative_count > _MAX_ALTERNATIVES:
            raise UntranslatableError(f"the translation needs more than {_MAX_ALTERNATIVES:,} rules")

    def lark(self, start: RuleName) -> str | None:
        """Return the grammar without rules that match no text; None if that is the start rule."""
        productive = self._productive_rules()
        if start not in productive:
            return None

        def is_possible(alternative: Alternative) -> bool:
            return all(not isinstance(item, RuleName) or item in productive for item in alternative)

        lines = [f"start: {start}"]
        pending = [start]
        written = {start}
        while pending:
            name = pending.pop()
            repeated, alternatives = self._rules[name]
            repeated = [alternative for alternative in repeated if is_possible(alternative)]
            alternatives = [alternative for alternative in alternatives if is_possible(alternative)]
            text = " | ".join(map(_sequence, alternatives))
            if repeated:
                text = f"({' | '.join(map(_sequence, repeated))})* ({text})"
            lines.append(f"{name}: {text}")
            for alternative in (*repeated, *alternatives):
                for item in alternative:
                    if isinstance(item, RuleName) and item not in written:
                        written.add(item)
                        pending.append(item)
        lines += [f"{name}: {expression}" for expression, name in self._terminals.items()]
        return "\n".join(lines) + "\n"

    def _productive_rules(self) -> set[RuleName]:
        """Return the rules that some finite text matches."""
        productive: set[RuleName] = set()
        users: dict[RuleName, set[RuleName]] = {}
        for name, rule in self._rules.items():
            for alternative in rule.alternatives:
                for item in alternative:
                    if isinstance(item, RuleName):
                        users.setdefault(item, set()).add(name)
        pending = list(self._rules)
        while pending:
            name = pending.pop()
            if name in productive:
                continue
            if any(
                all(not isinstance(item, RuleName) or item in productive for item in alternative)
                for alternative in self._rules[name].alternatives
            ):
                productive.add(name)
                pending += users.get(name, ())
        return productive


def _sequence(alternative: Alternative) -> str:
    return " ".join(alternative) or '""'
