"""YAML: which texts are which values, and what is said about the ones that are none."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st
from logitsmith.presets import PresetError
from logitsmith.presets.yaml_reader import MAX_FILE_BYTES, Yaml12Loader, parse_yaml_scalar, read_table

VALUES = {
    "exponent": ("1e-3", 0.001),
    "exponent_upper": ("2E3", 2000.0),
    "signed_exponent": ("-1.5e+2", -150.0),
    "point_first": (".5", 0.5),
    "point_last": ("5.", 5.0),
    "whole": ("20", 20),
    "signed": ("+3", 3),
    "leading_zero_is_decimal": ("010", 10),
    "octal": ("0o17", 15),
    "hexadecimal": ("0xff", 255),
    "minus_inf": ("-inf", -math.inf),
    "yaml_inf": (".inf", math.inf),
    "yaml_minus_inf": ("-.inf", -math.inf),
    "inf_is_a_text": ("inf", "inf"),
    "true": ("true", True),
    "false": ("False", False),
    "no_is_a_text": ("no", "no"),
    "on_is_a_text": ("on", "on"),
    "null": ("null", None),
    "tilde": ("~", None),
    "nothing": ("", None),
    "clock_is_a_text": ("12:30", "12:30"),
    "date_is_a_text": ("2026-01-02", "2026-01-02"),
    "underscore_is_a_text": ("1_000", "1_000"),
    "version_is_a_text": ("1.2.3", "1.2.3"),
    "quoted": ('"1e-3"', "1e-3"),
    "list": ("[a, b]", ["a", "b"]),
    "table": ("{5: -inf, no: 1}", {5: -math.inf, "no": 1}),
    "alias": ("[&x [1], *x]", [[1], [1]]),
    "tag_str": ("!!str 5", "5"),
    "escape": (r'"\n"', "\n"),
    "emoji": ("🙂", "🙂"),
}


@pytest.mark.parametrize(("text", "value"), VALUES.values(), ids=VALUES)
def test_value(text: str, value: object) -> None:
    read = parse_yaml_scalar(text)
    assert read == value
    assert type(read) is type(value)


def test_nan() -> None:
    assert math.isnan(parse_yaml_scalar(".nan"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_as_python_writes_it(number: float) -> None:
    assert parse_yaml_scalar(repr(number)) == number


WITH_A_PLACE = {
    "open_list": ("x: [a", 1, 4),
    "open_table": ("{a", 1, 1),
    "open_quote": ("a: 'x", 1, 4),
    "no_comma": ("[a b: c: d", 1, 8),
    "no_value": ("a: [b,,c]", 1, 7),
    "no_value_at_the_end": ("model: [", 1, 9),
    "no_colon": ("a: 1\nb", 2, 1),
    "indentation": ("a:\n  - b\n - c", 3, 2),
    "behind_the_end": ('a: "x" y', 1, 8),
    "dash": ("a: - b", 1, 4),
    "escape": ('a: "\\q"', 1, 6),
    "block_text": ("a: |0\n x", 1, 5),
    "two_anchors": ("[&a 1, &a 2]", 1, 8),
    "two_documents": ("--- a\n--- b", 2, 1),
    "control_character": ("a\n b\x07", 2, 3),
}


@pytest.mark.parametrize(("text", "line", "column"), WITH_A_PLACE.values(), ids=WITH_A_PLACE)
def test_pyyamls_error_is_one_line_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(PresetError, match=rf"^x\.yaml: line {line}, column {column}: [^\n]+$"):
        parse_yaml_scalar(text, "x.yaml")


TRAPS = {
    "two_colons": ("a: b: c", 5, "indent all keys of a table alike, and quote a string that contains a colon"),
    "at_sign": ("a: @x", 4, "quote a string that begins with @"),
    "percent": ("a: %x", 4, "quote a string that begins with %"),
    "star": ("a: *", 4, "quote a string that begins with *"),
    "word with stars": ("[*x*]", 4, "quote a string that begins with *"),
    "tab": ("a: [\n\tb]", 1, "indent with spaces, not with tabs"),
}


@pytest.mark.parametrize(("text", "column", "advice"), TRAPS.values(), ids=TRAPS)
def test_advice_about_a_trap(text: str, column: int, advice: str) -> None:
    with pytest.raises(PresetError, match=rf"column {column}: ") as caught:
        parse_yaml_scalar(text, "x.yaml")
    assert str(caught.value).endswith(f"; {advice}")


REFUSED = {
    "duplicate": ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' occurs twice"),
    "duplicate_inside": ("x: {a: 1, a: 2}", "line 1, column 11: the key 'a' occurs twice"),
    "duplicate_number": ("{1: a, 1.0: b}", "line 1, column 8: the key 1.0 occurs twice"),
    "list_as_key": ("{[a]: 1}", "line 1, column 2: a list or a table cannot be a key"),
    "python_tag": (
        "!!python/object/apply:os.system [x]",
        "line 1, column 1: the tag !!python/object/apply:os.system is not allowed",
    ),
    "own_tag": ("a: !mine 1", "line 1, column 4: the tag !mine is not allowed"),
    "binary_tag": ("!!binary aGk=", "line 1, column 1: the tag !!binary is not allowed"),
    "int_tag": ("!!int x", "line 1, column 1: it is not an integer"),
    "float_tag": ("!!float x", "line 1, column 1: it is not a number"),
    "bool_tag": ("!!bool x", "line 1, column 1: it is not true or false"),
    "map_tag": ("!!map [1]", "line 1, column 1: expected a mapping"),
    "too_many_digits": ("9" * 5000, "line 1, column 1: it is not an integer"),
    "nested": ("[" * 3000, "it is nested too deeply"),
    "nested_but_closed": ("[" * 70 + "]" * 70, "it is nested too deeply"),
    "itself": ("&a [*a]", "it is nested too deeply"),
    "billion_laughs": (
        "[&a [1,1,1,1,1,1,1,1,1,1],"
        + ",".join(f"&{b} [{','.join(['*' + a] * 10)}]" for a, b in pairwise("abcdef"))
        + "]",
        "its aliases expand to more than 100000 values",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(PresetError) as caught:
        parse_yaml_scalar(text, "x.yaml")
    assert str(caught.value) == f"x.yaml: {message}"


@pytest.mark.slow
def test_a_file_of_too_many_values_is_refused_before_it_is_read(monkeypatch) -> None:
    scanned = []
    monkeypatch.setattr(Yaml12Loader, "scan_plain", counted(Yaml12Loader.scan_plain, scanned))
    with pytest.raises(PresetError, match=r"^x\.yaml: line 100000, column 3: more than 100000 values$"):
        parse_yaml_scalar("- a\n" * 240_000, "x.yaml")
    assert len(scanned) < 100_010


def counted(function, calls):
    def count(*args):
        calls.append(args[1:])
        return function(*args)

    return count


@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"#%@ \n\t?,1.e<~\\"))
def test_any_text_is_a_value_or_a_sentence(text: str) -> None:
    try:
        parse_yaml_scalar(text, "x.yaml")
    except PresetError as error:
        said = str(error)
    else:
        return
    assert said.startswith("x.yaml: ")
    assert "\n" not in said


FILES = {
    "empty": (b"", "the file is empty; it must hold keys and values, as in key: value"),
    "comments": (b"# nothing\n", "the file is empty; it must hold keys and values, as in key: value"),
    "list": (b"- a\n", "the file holds a list; it must hold keys and values, as in key: value"),
    "text": (b"hello\n", "the file holds a single value; it must hold keys and values, as in key: value"),
    "not_utf8": (b"a: 1\nb: \xff\n", "line 2: the file is not UTF-8: byte 0xff at offset 8"),
    "utf16": ("a: 1".encode("utf-16")[:-1], "line 1: the file is not UTF-16: byte 0x31 at offset 8"),
    "too_large": (b"#" * (MAX_FILE_BYTES + 1), "it is larger than 1 MB; give a shorter text"),
    "syntax": (
        b"chain:\n  - top_k: 40\n  dist: 1\n",
        "line 3, column 3: while parsing a block collection, expected <block end>, but found '?'",
    ),
}


@pytest.mark.parametrize(("data", "message"), FILES.values(), ids=FILES)
def test_file_refused(project: Path, data: bytes, message: str) -> None:
    path = project / "x.yaml"
    path.write_bytes(data)
    with pytest.raises(PresetError) as caught:
        read_table(path, "x.yaml")
    assert str(caught.value) == f"x.yaml: {message}"


def test_missing_file(project: Path) -> None:
    with pytest.raises(PresetError, match=r"^x\.yaml: there is no such file$"):
        read_table(project / "x.yaml", "x.yaml")


def test_folder(project: Path) -> None:
    with pytest.raises(PresetError, match=r"^x: it is a folder, not a file$"):
        read_table(project, "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(project: Path) -> None:
    path = project / "x.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    with pytest.raises(PresetError, match=r"^x: the file may not be read \(permission denied\)$"):
        read_table(path, "x")


def test_null_byte_in_path() -> None:
    with pytest.raises(PresetError, match=r"^x: the file cannot be read \(embedded null byte\)$"):
        read_table(Path("a\0.yaml"), "x")


def test_largest_file_and_byte_order_mark(project: Path) -> None:
    path = project / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n".ljust(MAX_FILE_BYTES, b"#"))
    assert read_table(path, "x") == {"a": 1}


def test_pyyaml_itself_is_left_alone() -> None:
    assert yaml.safe_load("[no, 1e-3, 010]") == [False, "1e-3", 8]
