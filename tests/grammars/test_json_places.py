"""The places of the scalar values of a JSON text."""

import json
import random

import pytest
from logitsmith.grammars.json_places import scalar_places

PLACES = {
    "a text alone": ('"a"', {"": '"a"'}),
    "a number alone": (" -1.5e3 ", {"": "-1.5e3"}),
    "an object": ('{"a": 1,"b":"x"}', {"/a": "1", "/b": '"x"'}),
    "arrays": ("[1, [true, null], []]", {"/0": "1", "/1/0": "true", "/1/1": "null"}),
    "objects in an array": ('[{"a": 1}, {"a": {}, "b": [2]}]', {"/0/a": "1", "/1/b/0": "2"}),
    "keys with a slash and a tilde": ('{"a/b": 1, "c~d": 2, "": 3}', {"/a~1b": "1", "/c~0d": "2", "/": "3"}),
    "keys with escapes": (r'{"\u00e9\"": 1, "é😀": 2}', {'/é"': "1", "/é😀": "2"}),
    "signs in texts": ('{"a": "{[,:]}\\\\", "b": "\\""}', {"/a": '"{[,:]}\\\\"', "/b": '"\\""'}),
    "a key twice": ('{"a": 1, "a": 22}', {"/a": "22"}),
    "nothing": ("", None),
    "a text that is cut": ('{"a": "b', None),
    "more than one value": ("1 2", None),
    "no number": ("NaN", None),
    "deep arrays": ("[" * 600 + "]" * 600, None),
    "half of a character": (b'"\xc3"', None),
}


def found(text):
    data = text if isinstance(text, bytes) else text.encode()
    places = scalar_places(data)
    return places and {place.pointer: data[place.start : place.end].decode() for place in places}


@pytest.mark.parametrize(("text", "expected"), PLACES.values(), ids=PLACES)
def test_places(text, expected):
    assert found(text) == expected


def random_value(rng, depth):
    kind = rng.randrange(7 if depth else 5)
    if kind == 5:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {random_text(rng): random_value(rng, depth - 1) for _ in range(rng.randrange(4))}
    return [None, rng.random() < 0.5, rng.randrange(-99, 99), rng.gauss(0, 1e6), random_text(rng)][kind]


def random_text(rng):
    return "".join(rng.choice('ab"\\/~{}[]:, \n\té中😀\x7f') for _ in range(rng.randrange(5)))


def leaves(value, pointer=""):
    if isinstance(value, (list, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
    else:
        yield pointer, value


@pytest.mark.parametrize("seed", range(40))
def test_each_scalar_value_has_its_place(seed):
    rng = random.Random(seed)
    value = random_value(rng, 4)
    text = json.dumps(value, ensure_ascii=seed % 2 == 0, indent=seed % 3 or None)
    assert {pointer: json.loads(shown) for pointer, shown in (found(text) or {}).items()} == dict(leaves(value))
