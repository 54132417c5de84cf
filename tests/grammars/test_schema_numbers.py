"""Numbers of JSON Schemas: ranges by brute force, exact constants, and the spelling of texts that are checked."""

from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from logitsmith.common.strict_json import WrittenNumber, encode_exact_json, parse_strict_json
from logitsmith.grammars import GrammarError, compile_grammar, find_mismatch, resolve_grammar

TESTS = {
    "minimum": lambda value, limit: value >= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "multipleOf": lambda value, limit: value % limit == 0,
}


def schema(source):
    return compile_grammar(source, kind="json_schema")


def drawn_limits(random):
    """Draw the limits of a schema, as they are written."""
    limits = {}
    width = random.choice([1, 12, 1000])
    low = f"{random.uniform(-width, width):.{random.choice([0, 1, 2, 3, 5])}f}"
    high = str(Decimal(low) + Decimal(random.randint(0, 300)).scaleb(-random.randint(0, 3)))
    for value, keywords in ((low, ["minimum", "exclusiveMinimum"]), (high, ["maximum", "exclusiveMaximum"])):
        keyword = random.choice([*keywords, None])
        if keyword:
            limits[keyword] = value
    if random.random() < 0.4:
        limits["multipleOf"] = random.choice(["0.1", "0.25", "0.01", "3", "1.5", "0.07"])
    return limits


def literals(limits, random):
    """Return numbers near the limits, as they may be written."""
    bases = [*limits.values(), "0", "1", f"{random.uniform(-20, 20):.2f}"]
    steps = (Decimal(count).scaleb(-places) for count in (0, 1, -1, 2, -3, 5, 9, -10) for places in range(5))
    near = {f"{Decimal(base) + step:f}" for step in steps for base in bases}
    if "multipleOf" in limits:
        near |= {f"{Decimal(limits['multipleOf']) * count:f}" for count in range(-20, 20)}
    return near


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["number", "integer", "allOf"])
def test_ranges_by_brute_force(kind, seed):
    random = Random(seed)
    for _ in range(12):
        limits = drawn_limits(random)
        keywords = [f'"{keyword}": {value}' for keyword, value in limits.items()]
        if kind == "allOf":
            source = f'{{"type": "number", "allOf": [{", ".join(f"{{{each}}}" for each in keywords)}]}}'
        else:
            source = "{" + ", ".join([f'"type": "{kind}"', *keywords]) + "}"
        texts = literals(limits, random)
        valid = {
            text
            for text in texts
            if all(TESTS[keyword](Fraction(text), Fraction(value)) for keyword, value in limits.items())
            and (kind != "integer" or Fraction(text).denominator == 1)
        }
        try:
            grammar = schema(source)
        except GrammarError:
            assert not valid, source
            continue
        assert {text for text in texts if grammar.matches(text)} == valid, source


# Each row: the schema, texts that match, texts that do not.
NUMBERS = {
    "no zero": ('{"type":"number","exclusiveMinimum":0,"maximum":0.5}', ["0.5", "1e-3"], ["0", "-0", "0.0"]),
    "fewer decimals": ('{"type":"number","minimum":0,"maximum":0.99}', ["0.9", "0", "0.990"], ["0.991", "1"]),
    "no type": ('{"minimum":0.5,"maximum":0.55}', ["0.5", '"a"', "null", "[1]"], ["0.4", "0.56"]),
    "several types": ('{"type":["integer","null"],"maximum":9.5}', ["9", "null", "-3.0"], ["10", "9.5", '"a"']),
    "draft 4": ('{"type":"number","minimum":0.5,"exclusiveMinimum":true}', ["0.51"], ["0.5", "0.50"]),
    "a reference and a limit": (
        '{"$ref":"#/$defs/a","maximum":0.99,"$defs":{"a":{"type":"number","minimum":0.25}}}',
        ["0.25", "0.9", "0.99"],
        ["0.24", "1"],
    ),
    "the greatest exact integer": (
        '{"type":"number","minimum":-9007199254740991,"maximum":9007199254740991}',
        ["9007199254740991", "-9007199254740991", "9007199254740990.5", "0.5"],
        ["9007199254740992", "-9007199254740992", "9007199254740991.5"],
    ),
    "above the greatest exact integer": (
        '{"exclusiveMinimum":9007199254740991}',
        ["9007199254740992", "9007199254740991.5", '"a"'],
        ["9007199254740991", "9007199254740991.0", "0"],
    ),
    "a power of two of 16 digits": (
        '{"type":["integer","number"],"exclusiveMaximum":4503599627370496}',
        ["4503599627370495", "4503599627370495.5"],
        ["4503599627370496"],
    ),
    "whole multiples up to the greatest exact integer": (
        '{"type":"number","minimum":0,"maximum":9007199254740991,"multipleOf":1}',
        ["9007199254740991", "0"],
        ["9007199254740992", "0.5"],
    ),
    "the greatest int64": ('{"type":"integer","maximum":9223372036854775807}', [str(2**63 - 1)], [str(2**63)]),
    "a round integer": ('{"const":4611686018427387904}', ["4611686018427387904"], ["4611686018427387905"]),
    "1.0 is 1": ('{"enum":[1.0, 2]}', ["1", "1.0", "2.0", "20e-1"], ["1.1", "3"]),
    "minus zero": ('{"enum":[-0.0]}', ["0", "-0", "0.0"], ["1"]),
    "0.3 of tenths": ('{"type":"number","minimum":0.3,"maximum":0.3,"multipleOf":0.1}', ["0.3"], ["0.2", "0.4"]),
    "nested constants": ('{"const":{"a":[0.1]}}', ['{"a":[0.1]}', '{"a":[1e-1]}'], ['{"a":[0.11]}']),
}  # fmt: skip


@pytest.mark.parametrize(("source", "matching", "others"), NUMBERS.values(), ids=NUMBERS)
def test_numbers(source, matching, others):
    grammar = schema(source)
    assert [text for text in matching if not grammar.matches(text)] == []
    assert [text for text in others if grammar.matches(text)] == []


# Each row: the schema, texts that match, texts that do not.
LONG_NUMBERS = {
    "an integer of an enum": (
        '{"enum":[1, 1234567890123456789]}',
        ["1234567890123456789"],
        ["1234567890123456788"],
    ),
    "the lowest int64": ('{"const":-9223372036854775808}', ["-9223372036854775808"], ["-9223372036854775807"]),
    "the lowest int64 as a limit": (
        '{"type":"integer","minimum":-9223372036854775808}',
        ["-9223372036854775808", "0"],
        ["-9223372036854775809"],
    ),
    "the greatest uint64": (
        '{"properties":{"a":{"type":"integer","maximum":18446744073709551615}}}',
        ['{"a":18446744073709551615}'],
        ['{"a":18446744073709551616}'],
    ),
    "an odd limit": ('{"type":"integer","maximum":9007199254740993}', ["9007199254740993"], ["9007199254740994"]),
    "many decimals": (
        '{"type":"number","minimum":0.1234567890123456789}',
        ["0.1234567890123456789", "1"],
        ["0.1234567890123456788"],
    ),
    "a huge exponent": ('{"type":"number","maximum":1e300}', ["1e300"], ["1e301"]),
    "in a definition": ('{"$ref":"#/$defs/a","$defs":{"a":{"const":1e-300}}}', ["1e-300"], ["0"]),
    "in a constant": ('{"const":{"a":[1234567890123456789]}}', ['{"a":[1234567890123456789]}'], ['{"a":[1]}']),
}


@pytest.mark.parametrize(("source", "matching", "others"), LONG_NUMBERS.values(), ids=LONG_NUMBERS)
def test_numbers_that_a_float_cannot_hold_are_exact(source, matching, others):
    grammar = schema(source)
    assert [text for text in matching if not grammar.matches(text)] == []
    assert [text for text in others if grammar.matches(text)] == []


@pytest.mark.parametrize(
    ("source", "path"), [('{"enum":[1e999999999]}', "/enum"), ('{"maximum":1e4000}', "/maximum")]
)
def test_numbers_of_thousands_of_digits_are_errors(source, path):
    with pytest.raises(GrammarError, match="cannot represent exactly") as caught:
        schema(source)
    assert caught.value.problem.startswith(path)
    assert caught.value.advice


@pytest.mark.parametrize("text", ["0.12345678901234567891", "1e400", "1E-500", "12345678901234567890.5"])
def test_a_number_stays_as_it_was_written(text):
    value = parse_strict_json(f'{{"a": [{text}]}}')
    assert isinstance(value["a"][0], WrittenNumber)
    assert encode_exact_json(value) == f'{{"a": [{text}]}}'
    assert text in resolve_grammar({"json_schema": value}).source


# Each row: the schema, and texts that match.
SPELLINGS = {
    "a character": ('{"type":"string"}', [r'"Jos\u00e9"', r'"\ud83d\ude00"', r'"\/"', r'"\u0022"', '"\x7f"']),
    "a control character": ('{"const":"\\u0001\\u001f"}', [r'"\u0001\u001F"']),
    "a pattern": ('{"type":"string","pattern":"^é$","maxLength":1}', [r'"\u00E9"', '"é"']),
    "an enum": ('{"enum":["a/b é"]}', [r'"a\/b \u00e9"', r'"\u0061/b é"']),
    "a key": ('{"properties":{"é":{"type":"integer"}},"additionalProperties":false}', [r'{"\u00e9":1}', "{}"]),
}  # fmt: skip


@pytest.mark.parametrize(("source", "texts"), SPELLINGS.values(), ids=SPELLINGS)
def test_any_spelling_of_json_matches(source, texts):
    grammar = schema(source)
    assert [text for text in texts if not grammar.matches(text) or find_mismatch(grammar, text)] == []


@pytest.mark.parametrize("text", [r"\u007b\u007d", r'"\ud83d"', r'"\x41"', "1.00.5", "01", r'{"a":1}\u0020', "1e"])
def test_what_is_not_json_does_not_match(text):
    assert not schema("{}").matches(text)


def test_a_mismatch_is_at_its_place_in_the_original_text():
    mismatch = find_mismatch(schema('{"enum":["éb"]}'), r'"\u00e9c"')
    assert (mismatch.offset, mismatch.column, mismatch.character) == (7, 8, "c")
