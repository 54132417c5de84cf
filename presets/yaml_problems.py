"""What is wrong with a YAML text, in words of ours: PyYAML names the states of its parser."""

from __future__ import annotations

import re

import yaml

_UNCLOSED = {
    r"expected ',' or '\]', but got '<stream end>'": "this [ is never closed",
    r"expected ',' or '\}', but got '<stream end>'": "this { is never closed",
    r"found unexpected (?:end of stream|document separator)": "this quote is never closed",
}
"""Faults that are shown where the unclosed part begins."""
_IN_WORDS = {
    r"expected ',' or '([\]}])', but got .*": r"a comma or \1 is missing",
    r"found character '\\t' that cannot start any token": "YAML is indented with spaces, not with tabs",
    r"found character '(.)' that cannot start any token": r"a text that begins with \1 stands in quotes",
    r"mapping values are not allowed here": (
        "no colon can stand here; keys of one table are indented alike, and a text with a colon stands in quotes"
    ),
    r"could not find expected ':'": "a key without its colon, as in key: value",
    r"expected <block end>, but found '(?:<scalar>|[\]},])'": "more stands behind the end of the value",
    r"expected <block end>, but found .*": (
        "this does not go on from the lines above; indent one list or table alike"
    ),
    r"sequence entries are not allowed here": "no dash can stand here; each item of a list begins a line",
    r"mapping keys are not allowed here": "no key can stand here; it begins a line",
    r"expected the node content, but found .*": "a value is missing",
    r"expected '<document start>', but found .*": "more stands behind the end of the value",
    r"but found another document": "a second document begins here; one can be read",
    r"found undefined alias '(.*)'": r"*\1 stands for nothing; no &\1 comes before it",
    r"second occurrence": "this & name stands twice",
    r"found unknown escape character (?:'(.*)'|\"(.*)\")": r"\\\1\2 is no escape in double quotes",
    r"found unhashable key": "a list or a table cannot be a key",
    r"could not determine a constructor for the tag '(.*)'": r"the tag \1 is not allowed",
}


def yaml_problem(error: yaml.MarkedYAMLError) -> tuple[str, yaml.Mark | None]:
    """Return what is wrong, and where that is; messages of our own loaders stay as they are."""
    problem = " ".join((error.problem or error.context or "").split())
    mark = error.problem_mark or error.context_mark
    for pattern, words in _UNCLOSED.items():
        if re.fullmatch(pattern, problem):
            return words, error.context_mark or mark
    for pattern, words in _IN_WORDS.items():
        match = re.fullmatch(pattern, problem)
        if match is not None:
            return match.expand(words), mark
    is_of_the_parser = isinstance(error, (yaml.scanner.ScannerError, yaml.parser.ParserError))
    return ("this is not YAML" if is_of_the_parser else problem), mark
