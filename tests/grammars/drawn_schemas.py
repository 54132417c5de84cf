"""Random small schemas with all keywords, and small values to compare them on."""

import random

VALUES = [
    *(None, True, False, 0, 1, 2, 3, 4, 5, 6, -1, -2, 1.5, -0.5, 2.25, 10, 12),
    *("", "a", "b", "ab", "ba", "abc", "aab"),
    *([], [1], [2], ["a"], [1, 2], [2, 1], [1, 1], [1, "a"], ["a", "b"], [1, 2, 3], [[1], [1]]),
    *([None], [True, 1], [1, True, "a", None]),
    *({}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": "a"}, {"a": 1, "b": 2}, {"a": 1, "b": "b"}, {"c": 1}),
    *({"a": 1, "c": 2}, {"ab": 1}, {"ab": "x", "b": 3}, {"a": {"a": 1}}, {"a": {"a": 2}, "b": []}),
    *({"a": 1, "b": 2, "c": 3}, {"ba": 0, "aa": 5}, {"a": None}, {"c": {"b": 1}}),
]
_TYPES = [
    *("integer", "number", "string", "object", "array", "boolean", "null"),
    *(["string", "null"], ["integer", "object"], ["number", "array"]),
]
_PATTERNS = ["a", "^a", "b$", "^ab?$", "^(a|b)*$", "^$", "[bc]"]
_LEAVES = [True, False, {}, {"type": "integer"}, {"type": "string"}, {"const": 1}]
_MAX_DEPTH = 2


class SchemaMaker:
    """A maker of random schemas; the same seed makes the same schema."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self, depth=0):
        if depth > _MAX_DEPTH or (depth and self.random.random() < 0.08):
            return self.random.choice(_LEAVES)
        makers = self.makers(depth + 1)
        keywords = [self.random.choice(_KEYWORDS) for _ in range(self.random.choice([1, 1, 2, 2, 3]))]
        return {keyword: makers[keyword]() for keyword in keywords}

    def makers(self, depth):
        choose, number = self.random.choice, self.random.randint

        def part():
            return self.schema(depth)

        def several():
            return [part() for _ in range(number(2, 3))]

        def table(names, most):
            return {name: part() for name in self.random.sample(names, number(1, most))}

        return {
            "type": lambda: choose(_TYPES),
            "const": lambda: choose(VALUES),
            "enum": lambda: self.random.sample(VALUES, number(1, 4)),
            "minimum": lambda: choose([0, 1, -1, 1.5, 2]),
            "maximum": lambda: choose([0, 1, 3, 2.5, 10]),
            "exclusiveMinimum": lambda: choose([0, 1, -2]),
            "exclusiveMaximum": lambda: choose([3, 2.25, 5]),
            "multipleOf": lambda: choose([1, 2, 3, 0.5, 0.25, 1.5]),
            **dict.fromkeys(("minLength", "minContains", "maxContains", "minProperties"), lambda: number(0, 2)),
            **dict.fromkeys(("maxLength", "minItems", "maxItems", "maxProperties"), lambda: number(0, 3)),
            "pattern": lambda: choose(_PATTERNS),
            "uniqueItems": lambda: self.random.random() < 0.7,
            **dict.fromkeys(
                (
                    *("items", "contains", "additionalProperties", "propertyNames"),
                    *("not", "if", "then", "else"),
                ),
                part,
            ),
            "prefixItems": lambda: [part() for _ in range(number(1, 2))],
            "properties": lambda: table(["a", "b", "c", "ab"], 3),
            "patternProperties": lambda: table(["a", "^a", "b$", "^[ab]+$"], 2),
            "required": lambda: self.random.sample(["a", "b", "c"], number(1, 2)),
            "dependentRequired": lambda: {choose("ab"): [choose("abc")]},
            "dependentSchemas": lambda: {choose("ab"): part()},
            **dict.fromkeys(("allOf", "anyOf", "oneOf"), several),
        }


_KEYWORDS = [
    *("type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "items", "prefixItems"),
    *("contains", "minContains", "maxContains", "properties", "properties", "patternProperties"),
    *("additionalProperties", "required", "required", "minProperties", "maxProperties", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "allOf", "anyOf", "oneOf", "oneOf", "not", "not", "not"),
    *("if", "then", "else"),
]
