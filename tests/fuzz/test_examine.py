"""What counts as a finding, and that mutated inputs are odd but not endless."""

import random

import pytest

from . import target as target_module
from .mutators import MAX_BYTES, mutate
from .target import TOO_SLOW, Target, examine
from .targets import TARGETS


class OwnError(Exception):
    pass


def failing(error):
    def check(data):
        raise error

    return check


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (OwnError("line 1: a sentence"), None),
        (OwnError(" "), "OwnError without a message"),
        (OwnError("\ud800"), "OwnError that cannot be printed"),
        (KeyError("a"), "KeyError in ?"),
        (AssertionError("a\nb"), "AssertionError in ?: b"),
    ],
)
def test_errors(error, key):
    finding = examine(Target("x", failing(error), (OwnError,), [b""]), b"")
    assert (finding and finding.key) == key


def test_a_hang(monkeypatch):
    def hang(data):
        while True:
            pass

    monkeypatch.setattr(target_module, "MAX_SECONDS", -0.3)
    assert examine(Target("x", hang, (OwnError,), [b""]), b"").key == TOO_SLOW


def test_mutated_inputs_are_many_and_bounded():
    chance = random.Random(1)
    for target in TARGETS.values():
        made = {mutate(seed, chance, target.words, target.seeds) for seed in target.seeds for _ in range(5)}
        assert len(made) > len(target.seeds)
        assert max(map(len, made)) <= max(MAX_BYTES, *map(len, target.seeds))
