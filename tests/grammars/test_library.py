# ruff: noqa: RUF001 - full-width letters are what some rows are about
import ast
import csv
import datetime
import io
import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from email.headerregistry import Address
from urllib.parse import urlsplit

import pytest
from logitsmith.grammars import compile_grammar, list_grammars
from markdown_it import MarkdownIt

from .vocabularies import BYTE_VOCABULARY

JSON_VALUES = {
    "an empty object": "{}",
    "an empty array": "[]",
    "a string": '"hello"',
    "an empty string": '""',
    "zero": "0",
    "minus zero": "-0",
    "a negative decimal": "-12.50",
    "an exponent": "1e10",
    "a decimal with an exponent": "-1.5E-7",
    "true": "true",
    "null": "null",
    "members": '{"a": 1, "b": [true, false, null], "c": {"d": "e"}}',
    "without spaces": '{"a":[1,{"b":2}],"c":""}',
    "indented": '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}',
    "indented by tabs": '{\n\t"a":\t1\n}',
    "a space in empty brackets": "[ ]",
    "every short escape": r'"\" \\ \/ \b \f \n \r \t"',
    "an escaped code point": r'"\u00e9\uD83D\uDE00"',
    "other letters": '{"ключ": "值", "é": "ñ"}',
    "emoji": '"😀👩‍🚀"',
    "spaces inside a string": '"   "',
    "one key twice": '{"a": 1, "a": 2}',
    "deep": "[" * 60 + "]" * 60,
    "deep objects": '{"a":' * 30 + "1" + "}" * 30,
    "long": json.dumps([{"id": i, "name": f"n{i}", "ok": i % 2 == 0} for i in range(20)], indent=2),
}


NOT_JSON = {
    "nothing": "",
    "a comma at the end of an array": "[1,]",
    "a comma at the end of an object": '{"a": 1,}',
    "a comma at the start": "[,1]",
    "two commas": "[1,,2]",
    "no comma": "[1 2]",
    "a leading zero": "01",
    "a leading zero behind a sign": "-01",
    "a plus": "+1",
    "no digit before the point": ".5",
    "no digit after the point": "1.",
    "no digit in the exponent": "1e",
    "hexadecimal": "0x1F",
    "NaN": "NaN",
    "infinity": "-Infinity",
    "single quotes": "{'a': 1}",
    "a key without quotes": "{a: 1}",
    "a number as a key": "{1: 2}",
    "no colon": '{"a" 1}',
    "no value": '{"a":}',
    "an unclosed string": '"abc',
    "an unclosed object": '{"a": 1',
    "an unclosed array": "[[]",
    "one bracket too many": "[]]",
    "the wrong bracket": "[1}",
    "an unknown escape": r'"\x41"',
    "a short code point": r'"\u12"',
    "a lone backslash": '"\\"',
    "a line break in a string": '"a\nb"',
    "a tab in a string": '"a\tb"',
    "an escape character in a string": '"\x1b[0m"',
    "DEL in a string": '"\x7f"',
    "capitals": "True",
    "a comment": "[1] // one",
    "two values": "{} {}",
    "a line break behind": "{}\n",
    "a space before": " {}",
    "many spaces": "[1,   2]",
    "many line breaks": "[1,\n\n2]",
    "a deep one with one bracket less": "[" * 60 + "]" * 59,
}


def in_brackets(table):
    """Each value as the one element of an array; what is an array or an object stays as it is."""
    return {why: text if text.lstrip().startswith(("{", "[")) else f"[{text}]" for why, text in table.items()}


def those(table, *starts):
    return {why: text for why, text in table.items() if text.startswith(starts)}


TAKEN = {
    "json": in_brackets(JSON_VALUES),
    "json_array": those(JSON_VALUES, "[")
    | {
        "of one": "[1]",
        "of all kinds": '[{}, [], "", 0, true, false, null]',
        "of arrays": "[[1], [2, 3]]",
        "of objects": '[{"a": 1}, {"a": {"b": []}}]',
        "of numbers": "[-1, 0.5, 1e-3]",
        "lines": "[\n  1,\n  2\n]",
        "escapes": r'["\"", "\\", "\u0041"]',
        "emoji": '["😀", "é"]',
        "without spaces": '["a","b"]',
    },
    "json_object": those(JSON_VALUES, "{")
    | {
        "of all kinds": '{"a": {}, "b": [], "c": "", "d": 0, "e": true, "f": null}',
        "of objects": '{"a": {"b": {"c": []}}}',
        "lines": '{\n  "a": 1\n}',
        "a space in empty braces": "{ }",
        "an empty key": '{"": 0}',
        "an escape in a key": r'{"\u00e9\"": 0}',
        "emoji": '{"😀": "é"}',
    },
    "json_lines": {
        "one line": '{"a": 1}\n',
        "two lines": '{"a": 1}\n{"b": 2}\n',
        "an empty object": "{}\n",
        "without spaces": '{"a":[1,2],"b":{"c":null}}\n',
        "escapes": '{"a": "line\\nbreak \\u00e9"}\n',
        "emoji": '{"a": "😀"}\n',
        "nested": '{"a": {"b": {"c": [[], {}]}}}\n',
        "numbers": '{"a": -0.5e3}\n',
        "many lines": '{"i": 7, "s": "x"}\n' * 40,
    },
    "arithmetic": {
        "the shortest": "1=1",
        "a space between tokens": "1 + 1 = 2",
        "parentheses": "(a + 3) * 2 = 14",
        "both sides": "2 * x - 1 = y / 4 + 3",
        "two lines": "1 + 1 = 2\n2 + 2 = 4",
        "a line break at the end": "1 + 1 = 2\n",
        "signs": "-x = 3 * -2 - -1",
        "a power": "2^10 = 1024",
        "decimals": "0.5 * 2.25 = 1.125",
        "names": "total = price_1 * count2",
        "nested": "((1 + (2 * (3 - 4))) / 5) = -0.2",
        "deep": "(" * 40 + "1" + ")" * 40 + " = 1",
        "long": " + ".join(["1"] * 100) + " = 100",
    },
    "list": {
        "one item": "- apples",
        "a line break at the end": "- apples\n",
        "several": "- apples\n- pears\n- plums\n",
        "words": "- two words, and more.",
        "one letter": "- a",
        "other letters": "- été\n- 日本語",
        "emoji": "- 🍎 apple",
        "punctuation": "- **bold**, `code` & (more): 5 €!",
        "a dash inside": "- well-known - or not",
        "long": "- item\n" * 60,
    },
    "csv": {
        "a header": "id,name",
        "one column": "id\n1\n2",
        "a record": "id,name\n1,Ann",
        "a line break at the end": "id,name\n1,Ann\n",
        "two characters as a line break": "id,name\r\n1,Ann\r\n",
        "a quoted field": 'id,name\n1,"Ann"\n',
        "a quoted comma": 'id,name\n1,"Lee, Ann"\n',
        "a quoted quote": 'id,name\n1,"Ann ""Annie"" Lee"\n',
        "an empty quoted field": 'id,name\n1,""\n',
        "empty fields": "a,b,c\n1,,3\n,,\n",
        "spaces at the edges": "a, b\n1 , 2\n",
        "a field of one space": "a,b\n , \n",
        "one empty quoted field alone": 'a\n""\n',
        "spaces in quotes": 'a\n"   "\n',
        "words": "name,note\nAnn Lee,see me at 5; please!\n",
        "other letters": "имя,名\né,ß\n",
        "emoji": "a,b\n😀,👍🏽\n",
        "records of another width": "a,b\n1\n1,2,3\n",
        "long": "id,name,value\n" + '17,"Lee, Ann",3.5\n' * 40,
    },
    "chess": {
        "half a move": "1. e4",
        "a move": "1. e4 e5",
        "two moves": "1. e4 e5 2. Nf3 Nc6",
        "a half move at the end": "1. d4 d5 2. c4",
        "captures": "1. e4 d5 2. exd5 Qxd5 3. Nc3 Qa5",
        "castling": "1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4. O-O Nf6",
        "castling on the queen's side": "1. d4 d5 2. Nc3 Nc6 3. Bf4 Bf5 4. Qd2 Qd7 5. O-O-O O-O-O",
        "a check": "1. e4 f5 2. Qh5+ g6",
        "a mate": "1. f3 e5 2. g4 Qh4#",
        "a mate with its result": "1. f3 e5 2. g4 Qh4# 0-1",
        "promotion": "1. h4 g5 2. hxg5 h6 3. gxh6 Nf6 4. h7 Bg7 5. hxg8=Q+",
        "which piece, by file and rank": "1. Nbd2 R1e7 2. Qa1b2 N5xd4",
        "a result": "1. e4 e5 1/2-1/2",
        "no result yet": "1. e4 *",
        "several lines": "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6",
        "long": "1. Nf3 Nf6 " + " ".join(f"{i}. Ng1 Ng8" for i in range(2, 120)) + " 1/2-1/2",
    },
    "yes_no": {"yes": "yes", "no": "no", "Yes": "Yes", "No": "No"},
    "number": {
        "zero": "0",
        "an integer": "42",
        "a negative one": "-7",
        "a plus": "+7",
        "a decimal": "3.14",
        "a zero before the point": "-0.001",
        "zeros at the end": "10.00",
        "an exponent": "6e23",
        "an exponent with a sign": "6.626E-34",
        "a plus in the exponent": "1e+5",
        "twenty digits": "1" * 20,
        "twenty digits on each side": "9" * 20 + "." + "9" * 20,
    },
    "date_iso": {
        "a date": "2024-07-31",
        "the first one": "0001-01-01",
        "the last one": "9999-12-31",
        "30 days": "2023-04-30",
        "28 February": "2023-02-28",
        "a leap day": "2024-02-29",
        "a leap day in a year that ends with 96": "1996-02-29",
        "a leap day of a century": "2000-02-29",
        "an early leap day": "0004-02-29",
        "minutes": "2024-07-31T23:59",
        "seconds": "2024-07-31T00:00:59",
        "milliseconds": "2024-07-31T12:30:15.123",
        "UTC": "2024-07-31T12:30:15Z",
        "an offset": "2024-07-31T12:30+05:30",
        "all of it": "2024-02-29T12:30:15.123456-03:00",
    },
    "email": {
        "a plain one": "jane@example.org",
        "dots": "jane.b.doe@mail.example.co.uk",
        "a tag": "jane+news@example.org",
        "other signs": "!#$%&'*+-/=?^_`{|}~@example.org",
        "digits": "007@123.example",
        "hyphens": "a@my--host.x-y.org",
        "one letter each": "a@b.cd",
        "capitals": "Jane.Doe@EXAMPLE.ORG",
        "an internationalised name in ASCII": "a@xn--bcher-kva.xn--p1ai",
        "the longest local part": "a" * 64 + "@example.org",
        "the longest label": "a@" + "b" * 63 + ".org",
        "as many labels as there may be": "a@" + "b." * 8 + "org",
    },
    "url": {
        "a host": "https://example.org",
        "a slash": "http://example.org/",
        "ftp": "ftp://ftp.example.org/pub/file.txt",
        "one label": "http://localhost",
        "a port": "http://localhost:8080/",
        "the highest port": "http://a.org:65535",
        "an IPv4 address": "http://192.168.0.1/index.html",
        "the highest address": "http://255.255.255.255",
        "a path": "https://example.org/a/b-c/d_e~f.html",
        "an empty segment": "https://example.org/a//b/",
        "a query": "https://example.org/search?q=cats&page=2",
        "a query without a path": "https://example.org?q",
        "a fragment": "https://example.org/a#top",
        "all of it": "https://www.example.co.uk:443/a/b.php?x=1&y=2/3?#sec:1.2",
        "percent-encoding": "https://example.org/a%20b/%E2%82%AC?q=%26",
        "an empty query and fragment": "https://example.org/?#",
        "signs": "https://example.org/!$&'()*+,;=:@-._~",
        "an internationalised name in ASCII": "https://xn--bcher-kva.example/",
        "long": "https://example.org/" + "segment/" * 60,
    },
    "c_subset": {
        "main": "int main(void) { return 0; }",
        "no parameters": "int f() {}",
        "no spaces where none are needed": "int f(int a,int b){return a+b*2;}",
        "a prototype": "double power(double base, int n);",
        "variables": "int a; int b = 2, c = 3;\nfloat x = -1.5e3;",
        "pointers": 'const char *name = "C"; char** argv; int*p;',
        "arrays": 'int a[3] = {1, 2, 3};\nchar s[] = "abc";\nint m[2][2];',
        "types": "unsigned int u; signed char c; long n; unsigned long w; short s;",
        "if and else": "int sign(int x) { if (x > 0) return 1; else if (x < 0) { return -1; } else return 0; }",
        "while": "int f(int n) { while (n >= 10) { n /= 10; if (n == 13) break; continue; } return n; }",
        "for": "int sum(int a[], int n) {\n  int s = 0;\n  for (int i = 0; i < n; i++) s += a[i];\n  return s;\n}",
        "for without its parts": "void f(void) { int i; for (;;) { i = 0; } for (i = 9; i; i--) i = 2; }",
        "calls": 'int puts(const char *s); void f(int n) { puts("hi"); if (n) f(n - 1); }',
        "precedence": "int f(int a, int b, int c) { return a + b * c - (a - b) / -c % 7; }",
        "conditions": "int f(int a, int b) { return a != b && !(a <= b || b == 3) ? a : b > 2 ? 1 : 0; }",
        "signs": "int f(int a) { return -a * -2 - (-3) + a * -1; }",
        "steps": "void f(int a[]) { int i = 0; a[i++] = 1; a[i]++; i--; a[i + 1] %= 3; }",
        "an address in a declaration": "void f(int a[]) { int *p = &a[1]; p[0] = 2; }",
        "an address": 'int scan(const char *f, int *p); void f(void) { int a[2]; scan("%d", &a[1]); }',
        "escapes": r"""char *s = "a\n\t\"q\" \x41 \\"; char c = '\''; char d = '\0'; char e = '"';""",
        "other letters": 'char *s = "naïve 😀";',
        "hexadecimal": "int mask = 0xFF00;",
        "blocks": "void f(void) { { int a = 1; { a = 2; } } }",
        "an empty line in a block": "void f(int a) {\n    a = 1;\n\n    a = 2;\n}\n",
        "an empty line between functions": "void f(void) {\n}\n\nvoid g(void) {\n\tf();\n}\n",
        "deep": "int f(int x) { return " + "(" * 30 + "x" + ")" * 30 + "; }",
        "deep blocks": "void f(int x) { " + "while (x) { " * 20 + "x--; " + "} " * 20 + "}",
    },
    "sql_select": {
        "everything": "SELECT * FROM users",
        "a semicolon": "SELECT * FROM users;",
        "columns": "SELECT id, name, u.age FROM users u",
        "without spaces": "SELECT id,name FROM users WHERE id=1",
        "aliases": "SELECT name AS n, age a FROM users AS u",
        "every column of a table": "SELECT u.* FROM users u",
        "distinct": "SELECT DISTINCT name FROM users",
        "functions": "SELECT COUNT(*), COUNT(DISTINCT name), MAX(age) - MIN(age) AS span, UPPER(name) FROM users",
        "a function in small letters": "SELECT lower(name), coalesce(age, 0) FROM users",
        "joins": "SELECT * FROM users u JOIN orders o ON u.id = o.user_id LEFT OUTER JOIN items USING (order_id)",
        "a join with all": "SELECT * FROM users CROSS JOIN items, orders",
        "a condition": "SELECT id FROM users WHERE age >= 18 AND name <> 'Ann' OR NOT id != 3",
        "parentheses": "SELECT id FROM users WHERE (age < 18 OR age > 65) AND (name = 'A')",
        "like": "SELECT id FROM users WHERE name LIKE 'A%' AND name NOT LIKE '%z'",
        "in": "SELECT id FROM users WHERE id IN (1, 2, 3) AND name NOT IN ('a','b')",
        "between": "SELECT id FROM users WHERE age BETWEEN 18 AND 65 AND id NOT BETWEEN 1 AND -2",
        "null": "SELECT id FROM users WHERE age IS NULL OR name IS NOT NULL",
        "groups": "SELECT name, COUNT(*) FROM users GROUP BY name, age HAVING COUNT(*) > 1",
        "order": "SELECT id FROM users ORDER BY age DESC NULLS LAST, name ASC, id",
        "limit": "SELECT id FROM users LIMIT 10 OFFSET 20;",
        "arithmetic": "SELECT -age * 2 + (id - 1) / -3 % 4 AS x, name || '!' FROM users",
        "an escaped quote": "SELECT id FROM users WHERE name = 'O''Brien'",
        "an empty string": "SELECT id FROM users WHERE name = ''",
        "quoted names": 'SELECT "id" AS "my ""id""" FROM "users" WHERE "users"."age" > 1.5',
        "capitals in names": "SELECT U.Name FROM Users U WHERE userId = 1",
        "other letters": "SELECT id FROM users WHERE name = 'Žofie 😀'",
        "lines": "SELECT id,\n       name\nFROM users\nWHERE age > 3\n  AND id < 9\nORDER BY id;",
        "deep": "SELECT id FROM users WHERE " + "(" * 30 + "id = 1" + ")" * 30,
        "all of it": "SELECT u.name, SUM(o.total) AS sum FROM users u INNER JOIN orders o ON o.user_id = u.id "
        "WHERE o.total > 10 AND (u.name LIKE 'A%' OR u.age IS NULL) GROUP BY u.name HAVING SUM(o.total) > 100 "
        "ORDER BY sum DESC LIMIT 5 OFFSET 10;",
    },
    "python_literal": {
        "None": "None",
        "True": "True",
        "an integer": "-42",
        "a plus": "+1",
        "underscores": "1_000_000",
        "hexadecimal": "0xFF_ff",
        "octal": "0o17",
        "binary": "0b_1010",
        "a float": "3.25",
        "a float without digits behind": "1.",
        "a float without digits before": ".5e-3",
        "an exponent": "1_0.0_1E+1_0",
        "a string": "'a \"b\" c'",
        "a string in double quotes": '"it\'s"',
        "an empty string": "''",
        "escapes": r"'\a\b\f\n\r\t\v\0\'\"\\ \x41 \u00e9 \U0001F600 \U0010ffff'",
        "other letters": "'é 日本 😀'",
        "bytes": r"b'abc \x00\xff \n'",
        "bytes in double quotes": 'B"it\'s"',
        "an empty tuple": "()",
        "a tuple of one": "(1,)",
        "a tuple": "(1, 'a', None)",
        "a comma at the end": "[1, 2,]",
        "an empty list": "[]",
        "an empty dictionary": "{}",
        "a dictionary": "{'a': 1, (1, 2): [3], None: {},}",
        "a set": "{1, 'a', (2, 3)}",
        "nested": "{'a': [(1, {2, 3}), {'b': {'c': (None,)}}]}",
        "lines": "[\n    1,\n    {'a': 2},\n]",
        "deep": "[" * 60 + "]" * 60,
        "deep keys": "{" + "(" * 20 + "1" + ",)" * 20 + ": 1}",
        "long": repr([{"id": i, "pair": (i, i / 4), "name": f"n{i}"} for i in range(30)]),
    },
    "markdown_table": {
        "a header alone": "| a | b |\n| --- | --- |",
        "a row": "| a | b |\n| --- | --- |\n| 1 | 2 |",
        "a line break at the end": "| a |\n| --- |\n| 1 |\n",
        "alignment": "| a | b | c | d |\n| :--- | ---: | :---: | - |\n| 1 | 2 | 3 | 4 |\n",
        "without spaces": "|a|b|\n|-|-|\n|1|2|\n",
        "padded": "| name  | age |\n| ----- | --- |\n| Ann   |  31 |\n",
        "empty cells": "| a | b |\n| --- | --- |\n| | 2 |\n||  |\n",
        "a narrower row": "| a | b |\n| --- | --- |\n| 1 |\n",
        "a wider row": "| a |\n| --- |\n| 1 | 2 |\n",
        "an escaped pipe": "| a |\n| --- |\n| x \\| y |\n",
        "formatting": "| **a** | `b` |\n| --- | --- |\n| [c](d) | e & f |\n",
        "other letters": "| Größe | 名前 |\n| --- | --- |\n| 😀 | é |\n",
        "many columns": "|" + " a |" * 30 + "\n|" + " --- |" * 30 + "\n|" + " 1 |" * 30 + "\n",
    },
    "japanese": {
        "hiragana": "おはよう。",
        "katakana": "コーヒー。",
        "kanji": "日本語。",
        "a sentence": "私は猫が好きです。",
        "commas": "今日は、雨が降り、寒い。",
        "two sentences": "何時ですか？３時です。",
        "two lines": "雨が降る。\n傘をさす。",
        "digits": "２０２４年７月３１日。",
        "a quotation": "彼は「はい、そうです。」と言った。",
        "a quotation in another": "「『雪国』を読んだ」と言う。",
        "brackets": "東京（とうきょう）は大きい！",
        "a repeated kanji": "人々は時々笑う。",
        "an exclamation": "えーっ！？",
        "an ellipsis": "そうか……",
        "a middle dot": "ジョン・スミスさん。",
        "long": "吾輩は猫である。名前はまだ無い。" * 15,
    },
}

REFUSED = {
    "json": NOT_JSON
    | {f"in brackets: {why}": text for why, text in in_brackets(NOT_JSON).items() if text != "[]"}
    | {"a string alone": '"a"', "a number alone": "1", "true alone": "true", "null alone": "null"}
    | {"many digits": "[" + "1" * 21 + "]", "many decimals": "[0." + "1" * 21 + "]"},
    "json_array": those(NOT_JSON, "[")
    | {"nothing": "", "an object": "{}", "a number": "1", "a line break behind": "[]\n"},
    "json_object": those(NOT_JSON, "{")
    | {"nothing": "", "an array": "[]", "null": "null", "an array around": "[{}]", "a space before": " {}"},
    "json_lines": {
        "nothing": "",
        "no line break at the end": '{"a": 1}',
        "a line break alone": "\n",
        "a blank line": '{"a": 1}\n\n{"b": 2}\n',
        "an array": "[1]\n",
        "a number": "1\n",
        "an object of two lines": '{"a":\n1}\n',
        "two objects in a line": '{"a": 1} {"b": 2}\n',
        "an array around": '[{"a": 1}]\n',
        "a comma at the end": '{"a": 1,}\n',
        "a comma between the lines": '{"a": 1},\n{"b": 2}\n',
        "an unclosed one at the end": '{"a": 1}\n{"b": 2\n',
        "a space before": ' {"a": 1}\n',
        "another line break": '{"a": 1}\r\n',
        "a control character": '{"a": "\x02"}\n',
    },
    "arithmetic": {
        "nothing": "",
        "no equals sign": "1 + 1",
        "two equals signs": "1 = 1 = 1",
        "nothing on the right": "1 + 1 =",
        "nothing on the left": "= 2",
        "an operator at the end": "1 + = 2",
        "two operators": "1 * / 2 = 3",
        "two signs": "--1 = 1",
        "an unclosed parenthesis": "(1 + 2 = 3",
        "a parenthesis too many": "1 + 2) = 3",
        "empty parentheses": "() = 0",
        "no operator": "2 x = 4",
        "a product without a sign": "2x = 4",
        "a leading zero": "007 = 7",
        "no digit behind the point": "1. = 1",
        "two spaces": "1  + 1 = 2",
        "a blank line": "1 = 1\n\n2 = 2",
        "a space at the end": "1 = 1 ",
        "words": "one plus one = two",
        "another equals sign": "1 ＝ 1",
    },
    "list": {
        "nothing": "",
        "no dash": "apples",
        "no space": "-apples",
        "no text": "- ",
        "a dash alone": "-",
        "another bullet": "* apples",
        "a number": "1. apples",
        "two spaces": "-  apples",
        "two spaces inside": "- red  apples",
        "a blank line": "- a\n\n- b",
        "two line breaks at the end": "- a\n\n",
        "a second line without a dash": "- a\nb",
        "a nested item": "- a\n  - b",
        "a tab": "- a\tb",
        "another line break": "- a\r\n",
        "a control character": "- a\x07",
        "a line break before": "\n- a",
    },
    "csv": {
        "nothing": "",
        "a line break alone": "\n",
        "a column without a name": "a,,b\n1,2,3\n",
        "a comma at the end of the header": "a,b,\n1,2,3\n",
        "a blank line": "a,b\n\n1,2\n",
        "two line breaks at the end": "a,b\n1,2\n\n",
        "a blank line before": "\na,b\n",
        "an unclosed quote": 'a,b\n1,"2\n',
        "a quote inside": 'a,b\n1,x"y\n',
        "text behind a quote": 'a,b\n1,"x"y\n',
        "a space before a quoted quote": 'a,b\n1, "x"\n"\n',
        "a lone quote in quotes": 'a\n"x"y"\n',
        "a tab": "a,b\n1\t,2\n",
        "a line break in quotes": 'a\n"x\ny"\n',
        "a carriage return alone": "a,b\r1,2\r",
        "a control character": "a\nx\x08y\n",
        "a control character in quotes": 'a\n"\x1b[1m"\n',
        "DEL": "a\n\x7f\n",
        "many spaces": "a,b\n1,     2\n",
        "a space alone in a line": "a\n \n",
    },
    "chess": {
        "nothing": "",
        "no move": "1.",
        "no number": "e4 e5",
        "the wrong first number": "2. e4 e5",
        "no space after the number": "1.e4 e5",
        "the first number again": "1. e4 e5 1. d4 d5",
        "a number without a move": "1. e4 e5 2.",
        "a number too early": "1. e4 2. d4",
        "three moves": "1. e4 e5 Nf3",
        "a square that is not there": "1. e9",
        "a file that is not there": "1. i4",
        "no square": "1. N",
        "no promotion": "1. e8",
        "promotion in the middle": "1. e4=Q",
        "promotion to a king": "1. e8=K",
        "a promoted knight": "1. Ne8=Q",
        "zeros for castling": "1. 0-0",
        "castling too long": "1. O-O-O-O",
        "small letters for pieces": "1. nf3",
        "a move after the mate": "1. e4 e5 2. Qh5# Ke7",
        "draws after a mate": "1. e4 e5 2. Qh5# 1/2-1/2",
        "a move after the result": "1. e4 e5 1-0 2. d4",
        "a result alone": "1-0",
        "a comment": "1. e4 {best by test} e5",
        "two spaces": "1. e4  e5",
        "a line break at the end": "1. e4 e5\n",
        "a double check sign": "1. e4++",
    },
    "yes_no": {
        "nothing": "",
        "capitals": "YES",
        "mixed": "yEs",
        "a part": "ye",
        "one letter": "y",
        "both": "yesno",
        "either": "yes or no",
        "a full stop": "yes.",
        "a space before": " yes",
        "a line break behind": "no\n",
        "maybe": "maybe",
        "other letters": "ｙｅｓ",
    },
    "number": {
        "nothing": "",
        "a sign alone": "-",
        "a leading zero": "007",
        "a point alone": ".",
        "no digit before": ".5",
        "no digit behind": "5.",
        "two points": "1.2.3",
        "two signs": "--1",
        "no exponent": "1e",
        "a decimal exponent": "1e1.5",
        "a separator": "1,000",
        "an underscore": "1_000",
        "hexadecimal": "0x10",
        "infinity": "inf",
        "letters": "12a",
        "a space after": "1 ",
        "a line break behind": "1\n",
        "full-width digits": "１２",
        "too many digits": "1" * 21,
    },
    "date_iso": {
        "nothing": "",
        "year zero": "0000-01-01",
        "month zero": "2024-00-10",
        "month 13": "2024-13-01",
        "day zero": "2024-01-00",
        "32 January": "2024-01-32",
        "31 April": "2024-04-31",
        "31 November": "2024-11-31",
        "30 February": "2024-02-30",
        "29 February in a common year": "2023-02-29",
        "29 February of a century": "1900-02-29",
        "29 February of the year zero": "0000-02-29",
        "no zeros": "2024-1-1",
        "slashes": "2024/01/01",
        "the basic format": "20240101",
        "a week": "2024-W01-1",
        "day first": "31-01-2024",
        "a month alone": "2024-01",
        "hour 24": "2024-01-01T24:00",
        "minute 60": "2024-01-01T12:60",
        "second 60": "2024-01-01T23:59:60",
        "an hour alone": "2024-01-01T12",
        "no digit behind the point": "2024-01-01T12:00:00.",
        "a space for T": "2024-01-01 12:00",
        "a zone without a time": "2024-01-01Z",
        "a small z": "2024-01-01T12:00z",
        "an offset without minutes": "2024-01-01T12:00+05",
        "two zones": "2024-01-01T12:00Z+00:00",
        "full-width digits": "２０２４-01-01",
        "a line break behind": "2024-01-01\n",
    },
    "email": {
        "nothing": "",
        "no at sign": "jane.example.org",
        "no local part": "@example.org",
        "no domain": "jane@",
        "one label": "jane@localhost",
        "two at signs": "jane@doe@example.org",
        "a dot at the start": ".jane@example.org",
        "a dot before the at sign": "jane.@example.org",
        "two dots": "jane..doe@example.org",
        "two dots in the domain": "jane@example..org",
        "a dot at the end": "jane@example.org.",
        "a hyphen at the start of a label": "jane@-example.org",
        "a hyphen at the end of a label": "jane@example-.org",
        "an underscore in the domain": "jane@my_host.org",
        "one letter at the end": "jane@example.o",
        "an address of digits": "jane@192.168.0.1",
        "an address literal": "jane@[192.168.0.1]",
        "a space": "jane doe@example.org",
        "a comma": "jane,doe@example.org",
        "quotes": '"jane doe"@example.org',
        "a display name": "Jane <jane@example.org>",
        "other letters": "jané@example.org",
        "a label that is too long": "a@" + "b" * 64 + ".org",
        "a local part that is too long": "a" * 65 + "@example.org",
        "too many labels": "a@" + "b." * 9 + "org",
        "a control character": "jane\x00@example.org",
        "a line break behind": "jane@example.org\n",
    },
    "url": {
        "nothing": "",
        "no scheme": "example.org/a",
        "another scheme": "mailto:jane@example.org",
        "a scheme in capitals": "HTTP://example.org",
        "one slash": "http:/example.org",
        "no host": "http://",
        "a path for a host": "http:///a",
        "a dot at the end of the host": "http://example.org.",
        "two dots": "http://example..org",
        "a hyphen at the start": "http://-a.org",
        "an underscore in the host": "http://my_host.org",
        "an octet of 256": "http://1.2.3.256",
        "three octets": "http://1.2.3",
        "an octet with a leading zero": "http://01.2.3.4",
        "no port": "http://a.org:",
        "port zero": "http://a.org:0",
        "port 65536": "http://a.org:65536",
        "a port of letters": "http://a.org:http",
        "a space": "http://a.org/a b",
        "a bare percent sign": "http://a.org/100%",
        "a half percent-encoding": "http://a.org/%2",
        "a percent-encoding of other letters": "http://a.org/%zz",
        "angle brackets": "http://a.org/<b>",
        "a backslash": "http://a.org\\b",
        "two fragments": "http://a.org/#a#b",
        "brackets in the path": "http://a.org/[1]",
        "other letters": "http://a.org/é",
        "a user": "http://jane@a.org/",
        "an IPv6 address": "http://[::1]/",
        "a control character": "http://a.org/\x0b",
        "a line break behind": "http://a.org/\n",
    },
    "c_subset": {
        "nothing": "",
        "a statement outside": "return 0;",
        "no semicolon": "int a = 1",
        "no semicolon in a block": "void f(void) { return }",
        "an unclosed block": "int f(void) { return 0;",
        "a brace too many": "void f(void) {} }",
        "an unclosed parenthesis": "int f(int a { return a; }",
        "no type": "f(void) { return 0; }",
        "no name": "int = 3;",
        "no space after a type": "inta;",
        "no space after return": "int f(int x) { return1; }",
        "a name that begins with a digit": "int 2a;",
        "a variable of no type": "void a;",
        "a comma at the end of the parameters": "int f(int a,) { return a; }",
        "a parameter without a name": "int f(int) { return 1; }",
        "a comma at the end of a call": "void f(int a) { f(a,); }",
        "no operand": "int a = 1 + ;",
        "two operators": "int a = 1 * / 2;",
        "a decrement of a number": "int a = 3--2;",
        "a sum on the left": "void f(int a) { a + 1 = 2; }",
        "a number on the left": "void f(void) { 1 = 2; }",
        "a statement without effect": "void f(int a) { a + 1; }",
        "an empty condition": "void f(void) { if () return; }",
        "a condition without parentheses": "void f(int a) { if a return; }",
        "an else alone": "void f(int a) { else return; }",
        "two parts in for": "void f(int a) { for (a = 0; a < 3) return; }",
        "an assignment in a condition": "void f(int a) { while (a = 1) return; }",
        "a dangling if": "void f(int a) { if (a) if (a > 1) return; else f(a); }",
        "an address with a sign": "void f(int a) { int *p = -&a; }",
        "an unclosed string": 'char *s = "abc;',
        "a line break in a string": 'char *s = "a\nb";',
        "a control character in a string": 'char *s = "\x1b";',
        "an unknown escape": r'char *s = "\q";',
        "two letters": "int c = 'ab';",
        "no letter": "int c = '';",
        "a leading zero": "int a = 08;",
        "a function in a function": "int f(void) { int g(void) { return 1; } return g(); }",
        "an include": "#include <stdio.h>\nint a;",
        "a comment": "int a; // one",
        "other letters in a name": "int é;",
        "many spaces": "int   a;",
        "many line breaks": "int a;\n\n\n\nint b;",
    },
    "sql_select": {
        "nothing": "",
        "no columns": "SELECT FROM users",
        "no source": "SELECT 1",
        "no table": "SELECT id FROM",
        "another statement": "DELETE FROM users",
        "two statements": "SELECT * FROM users; SELECT * FROM users;",
        "small letters": "select * from users",
        "a comma at the end of the columns": "SELECT id, FROM users",
        "a comma at the end of the tables": "SELECT id FROM users, WHERE id = 1",
        "no comma": "SELECT id name age FROM users",
        "a keyword as a name": "SELECT id FROM WHERE id = 1",
        "no space": "SELECT idFROM users",
        "a number and no space": "SELECT 1FROM users",
        "an empty condition": "SELECT id FROM users WHERE",
        "two conditions": "SELECT id FROM users WHERE id = 1 name = 'a'",
        "no operand": "SELECT id FROM users WHERE id =",
        "a chain of comparisons": "SELECT id FROM users WHERE 1 < id < 3",
        "two equals signs": "SELECT id FROM users WHERE id == 1",
        "an and at the end": "SELECT id FROM users WHERE id = 1 AND",
        "half a between": "SELECT id FROM users WHERE id BETWEEN 1",
        "an empty in": "SELECT id FROM users WHERE id IN ()",
        "in without parentheses": "SELECT id FROM users WHERE id IN 1, 2",
        "is a value": "SELECT id FROM users WHERE id IS 3",
        "a comment in an expression": "SELECT id--1 FROM users",
        "having without groups": "SELECT id FROM users HAVING id > 1",
        "order before where": "SELECT id FROM users ORDER BY id WHERE id = 1",
        "limit before order": "SELECT id FROM users LIMIT 1 ORDER BY id",
        "a negative limit": "SELECT id FROM users LIMIT -1",
        "a join without a condition": "SELECT * FROM users JOIN orders",
        "a join of no table": "SELECT * FROM users JOIN ON id = 1",
        "an unclosed string": "SELECT id FROM users WHERE name = 'a",
        "a lone quote": "SELECT id FROM users WHERE name = 'O'Brien'",
        "an unclosed name": 'SELECT "id FROM users',
        "an empty name": 'SELECT "" FROM users',
        "an unclosed parenthesis": "SELECT id FROM users WHERE (id = 1",
        "an unknown function in capitals": "SELECT FOO(id) FROM users",
        "a subquery": "SELECT id FROM users WHERE id IN (SELECT id FROM users)",
        "a union": "SELECT id FROM users UNION SELECT id FROM users",
        "many spaces": "SELECT   id FROM users",
        "a line break in a string": "SELECT id FROM users WHERE name = 'a\nb'",
        "a control character in a string": "SELECT id FROM users WHERE name = '\x01'",
        "a line break behind": "SELECT id FROM users\n",
        "other letters in a name": "SELECT naïve FROM users",
    },
    "python_literal": {
        "nothing": "",
        "a name": "foo",
        "true": "true",
        "null": "null",
        "minus None": "-None",
        "two signs": "--1",
        "a leading zero": "012",
        "an underscore at the end": "1_",
        "two underscores": "1__0",
        "an underscore at the start": "_1",
        "no digits in hexadecimal": "0x",
        "a wrong digit in octal": "0o8",
        "a wrong digit in binary": "0b2",
        "a point alone": ".",
        "no exponent": "1e",
        "an underscore before the point": "1_.5",
        "infinity": "inf",
        "a sum": "1 + 1",
        "a call": "set()",
        "an unclosed string": "'abc",
        "the other quote": "'abc\"",
        "a quote inside": "'it's'",
        "a line break in a string": "'a\nb'",
        "a control character in a string": "'\x1b'",
        "an unknown escape": r"'\d'",
        "a short escape": r"'\x4'",
        "a code point that is too high": r"'\U00110000'",
        "other letters in bytes": "b'é'",
        "a code point in bytes' place": "b'日'",
        "another prefix": "f'a'",
        "a comma alone": "(,)",
        "two commas": "[1,,2]",
        "a comma at the start": "[,1]",
        "no comma": "[1 2]",
        "an unclosed list": "[1, 2",
        "the wrong bracket": "(1, 2]",
        "a dictionary without a value": "{'a':}",
        "a dictionary and a set": "{'a': 1, 2}",
        "a list as a key": "{[1]: 2}",
        "a set of dictionaries": "{{}}",
        "a list in a key": "{(1, [2]): 3}",
        "a comma alone in braces": "{,}",
        "a space before": " 1",
        "a line break behind": "1\n",
        "many spaces": "[1,    2]",
    },
    "markdown_table": {
        "nothing": "",
        "a header without its dashes": "| a | b |",
        "no dashes": "| a | b |\n| 1 | 2 |",
        "fewer dashes": "| a | b |\n| --- |\n| 1 | 2 |",
        "more dashes": "| a | b |\n| --- | --- | --- |\n",
        "no pipe at the start": "a | b |\n--- | --- |\n",
        "no pipe at the end": "| a | b\n| --- | ---\n",
        "a row without a pipe": "| a |\n| --- |\n1\n",
        "an unclosed row": "| a |\n| --- |\n| 1",
        "a colon in the middle": "| a |\n| -:- |\n",
        "a colon alone": "| a |\n| : |\n",
        "equals signs": "| a |\n| === |\n",
        "a column without a name": "| a | |\n| --- | --- |\n",
        "a blank line": "| a |\n| --- |\n\n| 1 |\n",
        "two line breaks at the end": "| a |\n| --- |\n| 1 |\n\n",
        "text behind": "| a |\n| --- |\n| 1 |\nend",
        "a tab": "| a |\n| --- |\n|\t1 |\n",
        "a control character": "| a |\n| --- |\n| \x1b |\n",
        "a backslash before the last pipe": "| a |\n| --- |\n| 1 \\|\n",
        "many spaces": "| a |\n| --- |\n|" + " " * 40 + "|\n",
    },
    "japanese": {
        "nothing": "",
        "a full stop alone": "。",
        "no full stop": "私は猫",
        "two full stops": "雨。。",
        "a comma at the start": "、雨。",
        "a comma at the end": "雨、。",
        "two commas": "雨、、雪。",
        "Latin letters": "私はcatです。",
        "ASCII digits": "3時です。",
        "an ASCII full stop": "雨です.",
        "an ASCII exclamation mark": "雨!",
        "a space": "雨 です。",
        "a full-width space": "雨　です。",
        "an unclosed quotation": "「はい。",
        "the wrong bracket": "「はい』です。",
        "an empty quotation": "「」です。",
        "a long mark at the start": "ーあ。",
        "a repetition mark at the start": "々人。",
        "too many long marks": "あーーー。",
        "half-width katakana": "ｱｲ。",
        "emoji": "雨😀。",
        "hangul": "한국。",
        "two line breaks": "雨。\n\n雪。",
        "a line break at the end": "雨。\n",
        "a control character": "雨\x07。",
    },
}


@pytest.fixture(scope="module")
def grammars():
    return {
        entry.name: compile_grammar(entry.path.read_text(encoding="utf-8"), BYTE_VOCABULARY, kind="gbnf")
        for entry in list_grammars()
    }


def test_every_grammar_is_in_both_tables():
    names = [entry.name for entry in list_grammars()]
    assert names == sorted(names)
    assert set(names) == set(TAKEN) == set(REFUSED)


def test_a_file_that_is_no_text_is_listed_without_a_description(tmp_path):
    (tmp_path / "a.gbnf").write_bytes(b"PK\x03\x04")
    (tmp_path / "b.gbnf").write_text("# B\n")
    entries = [entry for entry in list_grammars([("mine", tmp_path)]) if entry.origin == "mine"]
    assert [(entry.name, entry.description) for entry in entries] == [("a", ""), ("b", "B")]


@pytest.mark.parametrize("entry", list_grammars(), ids=lambda entry: entry.name)
def test_the_first_comment_describes_it(entry):
    lines = entry.path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {entry.description}"
    assert 10 < len(entry.description) <= 70
    assert max(map(len, lines)) <= 115


@pytest.mark.parametrize("name", TAKEN)
def test_takes_and_refuses(grammars, name):
    assert [why for why, text in TAKEN[name].items() if not grammars[name].matches(text)] == []
    assert [why for why, text in REFUSED[name].items() if grammars[name].matches(text)] == []


def json_of(*kinds):
    def read(text):
        if not isinstance(json.loads(text), kinds):
            raise ValueError(f"{text} is another kind of JSON")

    return read


def read_json_lines(text):
    lines = text.removesuffix("\n").split("\n")
    for line in lines:
        json_of(dict)(line)


def read_equations(text):
    for line in text.splitlines():
        ast.parse(line.replace("^", "**").replace("=", "=="), mode="eval")


def markdown_of(kind):
    def read(text):
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        if [token.type for token in tokens if token.level == 0 and token.nesting == 1] != [kind]:
            raise ValueError(f"{text} is another kind of Markdown")

    return read


def read_csv(text):
    records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if len(records) != len(text.splitlines()) or not all(records):
        raise ValueError(f"{text} has another number of records")


def read_email(text):
    if Address(addr_spec=text).addr_spec != text:
        raise ValueError(f"{text} is not the address")


def read_url(text):
    parts = urlsplit(text)
    if not parts.hostname or parts.port == 0:
        raise ValueError(f"{text} is no URL of a host")


def read_sql(text):
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            "CREATE TABLE users (id, name, age, userId); CREATE TABLE items (order_id);"
            "CREATE TABLE orders (order_id, user_id, total);"
        )
        try:
            database.execute(f"EXPLAIN {text}")
        except sqlite3.OperationalError as error:
            if text in TAKEN["sql_select"].values() or "syntax error" in str(error):
                raise


READERS = {
    "json": json_of(dict, list),
    "json_array": json_of(list),
    "json_object": json_of(dict),
    "json_lines": read_json_lines,
    "arithmetic": read_equations,
    "list": markdown_of("bullet_list_open"),
    "markdown_table": markdown_of("table_open"),
    "csv": read_csv,
    "number": float,
    "date_iso": lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")),
    "email": read_email,
    "url": read_url,
    "python_literal": ast.literal_eval,
    "sql_select": read_sql,
}
"""What else reads such a text; raises an error otherwise."""


def one_change_away(text, characters):
    """Each text with one or two characters less, or twice, or with another character."""
    for start in range(len(text) + 1):
        for end in range(start + 1, min(start + 3, len(text) + 1)):
            yield text[:start] + text[end:]
            yield text[:end] + text[start:]
        for character in characters:
            yield text[:start] + character + text[start:]
            yield text[:start] + character + text[start + 1 :]


@pytest.mark.parametrize(("name", "read"), READERS.items(), ids=READERS)
def test_another_program_reads_what_a_grammar_takes(grammars, name, read):
    """Also of the texts that are one change away: what the grammar still takes is read."""
    used = {character for text in TAKEN[name].values() for character in text}
    signs = sorted({"0", "9", "a", *(character for character in used if not character.isalnum())})
    for text in TAKEN[name].values():
        read(text)
    short = [text for text in sorted(TAKEN[name].values(), key=len)[:7] if len(text) < 60]
    changed = {new for text in short for new in one_change_away(text, signs)}
    taken = [text for text in changed if grammars[name].matches(text)]
    for text in taken:
        read(text)
    assert len(taken) > 20


@pytest.mark.parametrize("year", [1, 4, 100, 400, 1582, 1700, 1999, 2000, 2023, 2024, 2100, 9996, 9999])
def test_dates_are_those_of_the_calendar(grammars, year):
    for month in range(14):
        for day in (0, 1, 28, 29, 30, 31, 32):
            try:
                datetime.date(year, month, day)
                exists = True
            except ValueError:
                exists = False
            assert grammars["date_iso"].matches(f"{year:04}-{month:02}-{day:02}") == exists


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_c_compiler_takes_all(tmp_path):
    for why, text in TAKEN["c_subset"].items():
        (tmp_path / f"{why}.c").write_text(text, encoding="utf-8")
    command = ["cc", "-std=c99", "-fsyntax-only", "-Werror=implicit", *map(str, tmp_path.glob("*.c"))]
    done = subprocess.run(command, text=True, capture_output=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
