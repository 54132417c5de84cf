"""Small random grammars, and what they mean by brute force.

A grammar is a dictionary of rules; a node is a tuple: ``("text", "ab")``, ``("class", "ab", negated)``,
``("dot",)``, ``("seq", nodes)``, ``("alt", nodes)``, ``("repeat", node, least, most)`` or ``("ref", name)``.
`gbnf` prints a grammar; `Brute` follows a text by its meaning and knows nothing of how the package does.
"""

from __future__ import annotations

import sys
from functools import cache

from hypothesis import strategies as st

ALPHABET = "abéè"
NAMES = ("root", "x", "y")

COUNTS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def may_be_empty(node):
    """Return True if a node can match the empty text. A reference counts as nullable."""
    match node:
        case ("text", text):
            return not text
        case ("seq", nodes):
            return all(map(may_be_empty, nodes))
        case ("alt", nodes):
            return any(map(may_be_empty, nodes))
        case ("repeat", inner, min_count, max_count):
            return min_count == 0 or max_count == 0 or may_be_empty(inner)
        case ("ref", _):
            return True
    return False


@st.composite
def leaves(draw, rich, names):
    """A node without nodes in it. ``names``: the rules that it may refer to."""
    kinds = ["text", "text", "class"] + ["ref", "ref"] * bool(names) + ["class", "dot", "negated"] * rich
    match draw(st.sampled_from(kinds)):
        case "text":
            return ("text", draw(st.text(ALPHABET, max_size=3)))
        case "class":
            return ("class", draw(sets(ALPHABET)), False)
        case "negated":
            return ("class", draw(sets(ALPHABET + "z")), True)
        case "dot":
            return ("dot",)
    return ("ref", draw(st.sampled_from(names)))


def sets(characters):
    return st.sets(st.sampled_from(characters), min_size=1).map(lambda found: "".join(sorted(found)))


@st.composite
def nodes(draw, rule, depth, guarded, rich):
    """A node of a rule. ``guarded``: text came before it, so that any rule may follow, else only later ones."""
    kind = draw(st.sampled_from(["leaf"] * 5 + ["seq", "seq", "alt", "alt", "repeat"] * bool(depth)))
    if kind == "leaf":
        return draw(leaves(rich, NAMES if guarded else NAMES[rule + 1 :]))
    if kind == "repeat":
        least, most = draw(st.sampled_from([*COUNTS, *COUNTS, (2, 2), (1, 3), (2, None), (0, 2)]))
        return ("repeat", draw(nodes(rule, depth - 1, guarded, rich)), least, most)
    items = []
    for _ in range(draw(st.integers(2, 3))):
        items.append(draw(nodes(rule, depth - 1, guarded, rich)))
        guarded = guarded or (kind == "seq" and not may_be_empty(items[-1]))
    return (kind, tuple(items))


@st.composite
def grammars(draw, rich=False, depth=3):
    """Rules root, x and y without left recursion, each of which can come to an end."""
    rules = {name: draw(nodes(place, depth, False, rich)) for place, name in enumerate(NAMES)}
    # A rule that never ends is given a way out.
    while stuck := [name for name in rules if name not in ending(rules)]:
        rules[stuck[-1]] = ("alt", (rules[stuck[-1]], ("text", draw(st.text(ALPHABET, min_size=1, max_size=2)))))
    return rules


def ending(rules):
    """The rules that have a sentence."""
    found = set()

    def ends(node):
        match node:
            case ("seq", nodes):
                return all(map(ends, nodes))
            case ("alt", nodes):
                return any(map(ends, nodes))
            case ("repeat", inner, least, _):
                return least == 0 or ends(inner)
            case ("ref", name):
                return name in found
        return True

    while more := {name for name, body in rules.items() if name not in found and ends(body)}:
        found |= more
    return found


def gbnf(rules):
    """The grammar in GBNF."""
    return "\n".join(f"{name} ::= {printed(body)}" for name, body in rules.items()) + "\n"


def printed(node):
    match node:
        case ("text", text):
            return f'"{text}"'
        case ("class", characters, negated):
            return f"[{'^' * negated}{characters}]"
        case ("dot",):
            return "."
        case ("seq", nodes):
            return "(" + " ".join(map(printed, nodes)) + ")"
        case ("alt", nodes):
            return "(" + " | ".join(map(printed, nodes)) + ")"
        case ("repeat", inner, least, most):
            sign = COUNTS.get((least, most)) or (
                f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            )
            return f"({printed(inner)}){sign}"
        case ("ref", name):
            return name
    raise ValueError(node)


@cache
def characters_by_beginning():
    """Return the number of characters except NUL that begin with each incomplete sequence of bytes."""
    found = {}
    for code in range(1, 0x110000):
        if not 0xD800 <= code <= 0xDFFF:
            data = chr(code).encode()
            for length in range(len(data)):
                found[data[:length]] = found.get(data[:length], 0) + 1
    return found


class Brute:
    """A brute-force matcher of one text. Only for rules whose sentences are finite.

    ``whole``: True if the text is a sentence. ``begins``: True if the text is the beginning of a sentence. The
    text is matched byte by byte, so that it may end inside a character.
    """

    def __init__(self, rules, data):
        self.rules = rules
        self.data = data
        self._known = {}
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 10_000)  # a sentence of some hundred characters nests as deeply
        try:
            ends, self.begins = self._follow(rules["root"], 0)
        finally:
            sys.setrecursionlimit(limit)
        self.whole = len(data) in ends
        self.begins = self.begins or self.whole

    def _follow(self, node, start):
        """Return the possible ends of a node at ``start``, and whether the text can end inside the node."""
        key = (id(node), start)
        if key not in self._known:
            self._known[key] = self._find(node, start)
        return self._known[key]

    def _find(self, node, start):
        rest = self.data[start:]
        match node:
            case ("text", text):
                data = text.encode()
                ends = {start + len(data)} if rest.startswith(data) else set()
                return ends, len(rest) < len(data) and data.startswith(rest)
            case ("class", characters, False):
                every = [character.encode() for character in characters]
                ends = {start + len(data) for data in every if rest.startswith(data)}
                return ends, any(len(rest) < len(data) and data.startswith(rest) for data in every)
            case ("class", characters, True):
                return self._any_but(characters, rest, start)
            case ("dot",):
                return self._any_but("", rest, start)
            case ("seq", nodes):
                return self._sequence(nodes, {start})
            case ("alt", nodes):
                parts = [self._follow(option, start) for option in nodes]
                return set().union(*(ends for ends, _ in parts)), any(inside for _, inside in parts)
            case ("repeat", inner, least, most):
                places, inside = self._sequence([inner] * least, {start})
                ends = set(places)
                for _ in range(len(self.data) + 1 if most is None else most - least):
                    places, more = self._sequence([inner], places)
                    ends, inside = ends | places, inside or more
                return ends, inside
            case ("ref", name):
                return self._follow(self.rules[name], start)
        raise ValueError(node)

    def _sequence(self, nodes, places):
        inside = False
        for node in nodes:
            parts = [self._follow(node, place) for place in places]
            inside = inside or any(more for _, more in parts)
            places = set().union(*(ends for ends, _ in parts))
        return places, inside

    def _any_but(self, characters, rest, start):
        for length in range(1, 5):
            try:
                character = rest[:length].decode()
            except UnicodeDecodeError:
                continue
            if len(character) == 1:
                return (set() if character in {*characters, "\0"} else {start + length}), False
        left = characters_by_beginning().get(rest, 0)
        return set(), left > sum(character.encode().startswith(rest) for character in characters)


def whole(rules, text):
    return Brute(rules, text.encode()).whole


def begins(rules, data):
    return Brute(rules, data).begins
