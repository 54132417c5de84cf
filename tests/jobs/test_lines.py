"""Files of lines: the forms in which other programs write them."""

import bz2
import gzip
import io
import json
import lzma

import pytest
from logitsmith.common.files import DamagedInputError
from logitsmith.jobs.lines import PromptTemplate, number_lines, read_csv_lines, read_json_lines
from logitsmith.requests.errors import InvalidLineError

OBJECTS = [{"id": "a", "prompt": "größe"}, {"id": "b", "messages": [{"role": "user", "content": "x"}]}]
LINES = "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in OBJECTS)
PRETTY = "".join(f"{json.dumps(item, indent=2, ensure_ascii=False)}\n" for item in OBJECTS)
ARRAY = json.dumps(OBJECTS, ensure_ascii=False)

FORMS = {
    "lines": LINES.encode(),
    "empty lines": f"\n \n{LINES}\n".encode(),
    "byte order mark": f"\ufeff{LINES}".encode(),
    "gzip": gzip.compress(LINES.encode()),
    "UTF-16 of PowerShell": f"\ufeff{LINES}".replace("\n", "\r\n").encode("utf-16-le"),
    "UTF-16, big-endian": f"\ufeff{LINES}".encode("utf-16-be"),
    "gzip of UTF-16": gzip.compress(f"\ufeff{LINES}".encode("utf-16-le")),
    "array on one line": ARRAY.encode(),
    "array, an object on each line": LINES.join("[]").replace("}\n{", "},\n{").encode(),
    "array, pretty-printed": json.dumps(OBJECTS, indent=4, ensure_ascii=False).encode(),
    "array of UTF-16": f"\ufeff{ARRAY}".encode("utf-16-le"),
    "pretty-printed objects": PRETTY.encode(),
    "pretty-printed, with commas between": PRETTY.replace("\n}\n{", "\n},\n{").encode(),
    "pretty-printed, first key beside the brace": PRETTY.replace('{\n  "id"', '{ "id"').encode(),
    "two arrays": "".join(f"[{json.dumps(item)}]\n" for item in OBJECTS).encode(),
    "indented, after a blank line": f"\n{PRETTY}".encode(),
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_forms_of_json(data):
    assert [line.content for line in read_json_lines(io.BytesIO(data))] == OBJECTS


BROKEN = {
    "array that ends early": (b'[{"id": 1}, {"id"', [{"id": 1}, InvalidLineError]),
    "array with a word": (b'[{"id": 1}, word, {"id": 2}]', [{"id": 1}, InvalidLineError]),
    "items that are no objects": (b'[1, {"id": 1}]', [InvalidLineError, {"id": 1}]),
    "pretty-printed, ends early": (b'{\n "id": 1\n}\n{\n', [{"id": 1}, InvalidLineError]),
    "a broken line among lines": (b'{"id": \n{"id": 2}\n', None),
    "a cut-off first line": (b'{"id": 1, "pro\n{"id": 2}\n', [InvalidLineError, {"id": 2}]),
    "not UTF-8": (b'{"id": "\xff"}\n{"id": 2}\n', [InvalidLineError, {"id": 2}]),
    "not UTF-8 in an array": (b'[{"id": "\xff"}, {"id": 2}]\n', [InvalidLineError, {"id": 2}]),
    "deep": (b"[" * 100_000, [InvalidLineError]),
}


@pytest.mark.parametrize(("data", "contents"), BROKEN.values(), ids=BROKEN)
def test_broken_json(data, contents):
    found = [line.content for line in read_json_lines(io.BytesIO(data))]
    shown = [InvalidLineError if isinstance(content, InvalidLineError) else content for content in found]
    assert shown == contents if contents is not None else InvalidLineError in shown


DAMAGED = {
    "gzip that ends early": gzip.compress(LINES.encode() * 1000)[:-20],
    "gzip with another content": gzip.compress(LINES.encode())[:12] + b"x" * 40,
    "ZIP": b"PK\x03\x04" + b"x" * 40,
    "zstd": b"\x28\xb5\x2f\xfd" + b"x" * 40,
    "xz": lzma.compress(LINES.encode()),
    "bzip2": bz2.compress(LINES.encode()),
    "Parquet": b"PAR1\x15" + b"\x00" * 40,
    "half a character of UTF-16": f"\ufeff{LINES}".encode("utf-16-le")[:-1],
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_files(data):
    with pytest.raises(DamagedInputError):
        list(number_lines(io.BytesIO(data)))


CSV = 'name,text\nada,"x, y"\n'
TABLES = {
    "comma": CSV.encode(),
    "semicolon": b'name;text\nada;"x, y"\n',
    "semicolon, not quoted": b"name;text\nada;x, y\n",
    "tab": b"name\ttext\nada\tx, y\n",
    "bar": b"name|text\nada|x, y\n",
    "gzip": gzip.compress(CSV.encode()),
    "UTF-16 of Excel": "\ufeffname\ttext\r\nada\tx, y\r\n".encode("utf-16-le"),
    "byte order mark": f"\ufeff{CSV}".encode(),
    "delimiter named by Excel": b'sep=;\r\nname;text\r\nada;"x, y"\r\n',
    "delimiter named by Excel, which is none of the usual ones": b"sep=^\nname^text\nada^x, y\n",
    "delimiter named by Excel, after a byte order mark": '\ufeff"sep=;"\nname;text\nada;x, y\n'.encode(),
}


@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES)
def test_forms_of_csv(data):
    (line,) = read_csv_lines(io.BytesIO(data), PromptTemplate("{name}: {text}"))
    assert line.content == {"prompt": "ada: x, y"}


def test_rows_are_counted_from_the_line_that_names_the_delimiter():
    data = b"sep=;\nname;text\nada;x\nbob\n"
    good, bad = read_csv_lines(io.BytesIO(data), PromptTemplate("{text}"))
    assert (good.number, bad.number) == (3, 4)
    assert isinstance(bad.content, InvalidLineError)


def test_delimiter_that_is_named():
    data = b"a;b^text\n1;2^x\n"
    (line,) = read_csv_lines(io.BytesIO(data), PromptTemplate("{text}"), "^")
    assert line.content == {"prompt": "x"}
    with pytest.raises(InvalidLineError, match="--delimiter"):
        list(read_csv_lines(io.BytesIO(b"name^text\na^x\n"), PromptTemplate("{text}")))
