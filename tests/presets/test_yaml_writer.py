"""YAML that readers of both versions read as it was meant."""

import math
from types import MappingProxyType

import pytest
import yaml
from hypothesis import given, strategies as st
from logitsmith.presets.yaml_reader import parse_yaml
from logitsmith.presets.yaml_writer import write_step, write_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    [
        "1e-3",
        "-inf",
        "0o17",
        "no",
        "null",
        "~",
        "",
        "x...",
        "- a",
        "a: b",
        "*a",
        "%a",
        "@",
        "a,b",
        "[",
        "#",
        "\n\t",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("one_line", [False, True])
@given(value=VALUES)
def test_both_versions_read_the_value(one_line, value):
    text = write_yaml(value, one_line=one_line)
    assert parse_yaml(text, "x") == yaml.safe_load(text) == value
    assert text.count("\n") == 0 if one_line else text.endswith("\n")


def test_a_step_is_an_item_of_a_list():
    steps = ["dist", {"logit_bias": {"bias": {"a\nb": -math.inf, "k" * 200: 1.0}}}]
    text = "".join(f"- {write_step(step)}\n" for step in steps)
    assert text.startswith("- dist\n- logit_bias: {bias: {")
    assert parse_yaml(text, "x") == steps


def test_a_list_that_occurs_twice_is_written_twice():
    words = ["a", "b"]
    assert write_yaml(MappingProxyType({"x": words, "y": words}), one_line=True) == "{x: [a, b], y: [a, b]}"
