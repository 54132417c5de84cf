"""JSON Schemas mean what the official JSON Schema Test Suite says: no instance is accepted or refused wrongly.

`make schema-suite` brings the suite; JSON_SCHEMA_TEST_SUITE may name its folder of drafts. The proof prints how
many groups of each file are refused.

A grammar accepts an object's keys in one order only. So an instance counts as accepted if it is accepted in any
order of its keys.
"""

import json
import os
import sys
from collections import Counter
from itertools import islice, permutations, product
from pathlib import Path
from typing import NamedTuple

import pytest
from logitsmith.grammars import GrammarError, compile_grammar
from logitsmith.grammars.schema_keywords import FORMATS

SUITE = Path(os.environ.get("JSON_SCHEMA_TEST_SUITE", Path(sys.prefix, "schema-suite", "tests")))
MAX_REFUSED = {"draft4": 6, "draft6": 15, "draft7": 18, "draft2019-09": 61, "draft2020-12": 67}
"""Groups of each draft whose schema may be refused."""
MAX_ORDERS = 5_000
"""Orders of keys in which an instance is tried."""
OTHER_RULES = {
    "format": "formats restrict, where the suite takes them for annotations",
    "refRemote": "no other document is opened",
    "vocabulary": "keywords of all drafts are read, whichever $schema names",
    "ref overrides any sibling keywords": "they count in every draft",
    "$ref prevents a sibling id from changing the base uri": "likewise",
    "$ref prevents a sibling $id from changing the base uri": "likewise",
}
"""Files and groups of the suite that are left out, because the manual promises something else."""


class Fault(NamedTuple):
    """An instance that is not treated as its schema says."""

    kind: str
    file: str
    group: str
    test: str
    schema: str
    instance: str


class Verdicts:
    """What becomes of a draft's groups: counts by file, the messages of refusals, and the faults."""

    def __init__(self, draft):
        self.taken, self.refused = Counter(), Counter()
        self.messages, self.faults = [], []
        self.narrow_formats = []  # faults that a format may have: it need not match every text that it allows
        for path in files(draft):
            for group in json.loads(path.read_text(encoding="utf-8")):
                if group["description"] not in OTHER_RULES:
                    self._judge(path, group)

    def _judge(self, path, group):
        schema = json.dumps(group["schema"])
        try:
            grammar = compile_grammar(schema, kind="json_schema")
        except GrammarError as error:
            self.refused[path.stem] += 1
            self.messages.append((path.stem, group["description"], str(error)))
            return
        self.taken[path.stem] += 1
        for test in group["tests"]:
            texts = map(json.dumps, islice(orders(test["data"]), MAX_ORDERS))
            is_accepted = any(grammar.matches(text) for text in texts)
            if is_accepted != test["valid"]:
                kind = "wrong acceptance" if is_accepted else "wrong refusal"
                names = (path.stem, group["description"], test["description"])
                is_narrow_format = path.parent.name == "format" and not is_accepted
                faults = self.narrow_formats if is_narrow_format else self.faults
                faults.append(Fault(kind, *names, schema, json.dumps(test["data"])))

    def table(self):
        lines = [f"{'':32} {'groups':>7} {'taken':>7} {'refused':>7}"]
        for name in sorted(self.taken | self.refused):
            taken, refused = self.taken[name], self.refused[name]
            lines.append(f"{name:32} {taken + refused:7} {taken:7} {refused:7}")
        taken, refused = self.taken.total(), self.refused.total()
        lines.append(f"{'all files':32} {taken + refused:7} {taken:7} {refused:7}")
        lines.append(f"allowed texts that a format does not match: {len(self.narrow_formats)}")
        return "\n".join(lines)


def files(draft):
    """The files of a draft, and those of the formats."""
    folder = SUITE / draft
    yield from (path for path in sorted(folder.glob("*.json")) if path.stem not in OTHER_RULES)
    yield from (path for path in sorted(folder.glob("optional/format/*.json")) if path.stem in FORMATS)


def orders(value):
    """The value with the keys of its objects in every order."""
    if isinstance(value, dict):
        for items in permutations(value.items()):
            for values in product(*(list(islice(orders(item), MAX_ORDERS)) for _, item in items)):
                yield dict(zip((key for key, _ in items), values, strict=True))
    elif isinstance(value, list):
        yield from map(list, product(*(list(islice(orders(item), MAX_ORDERS)) for item in value)))
    else:
        yield value


@pytest.mark.slow
@pytest.mark.skipif(not SUITE.is_dir(), reason="the JSON Schema Test Suite is not here: make schema-suite")
@pytest.mark.parametrize("draft", MAX_REFUSED)
def test_schemas_mean_what_the_suite_says(draft):
    verdicts = Verdicts(draft)
    print(verdicts.table())
    assert verdicts.faults == []
    assert verdicts.refused.total() <= MAX_REFUSED[draft]
