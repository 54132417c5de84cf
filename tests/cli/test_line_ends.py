"""The line end of a file's last line is not part of its text, whether the file is of Windows or of Unix."""

import json
from io import BytesIO, TextIOWrapper

import pytest
from logitsmith.cli.chat.typed_input import PipedInput
from logitsmith.jobs.token_texts import TextKind, read_token_texts

ENDS = {"none": b"", "newline": b"\n", "carriage return and newline": b"\r\n"}
QUIET = ("-t", "1", "-n", "0", "--echo")


@pytest.fixture(params=ENDS.values(), ids=ENDS)
def end(request):
    return request.param


def prompt_text(gen, *arguments, **options):
    return gen(*arguments, *QUIET, **options).out


def test_prompts_of_files_and_pipes(gen, home, end):
    (home / "work" / "prompt.txt").write_bytes(b"The sea\r\nwas" + end)
    assert prompt_text(gen, "-f", "prompt.txt") == "The sea\r\nwas"
    assert prompt_text(gen, "-", stdin=b"The sea\r\nwas" + end) == "The sea\r\nwas"
    assert prompt_text(gen, "was", stdin=b"The sea" + end) == "The sea\nwas"


@pytest.mark.parametrize("text", [b"a\n", b"a\r\n", b"a\r", b"a\n\r"])
def test_one_line_end_is_dropped(gen, text):
    assert prompt_text(gen, "-", stdin=text + b"\r\n") == text.decode()


def test_scores(gen, home, end):
    (home / "work" / "text.txt").write_bytes(b"The sea was calm." + end)
    sources = {"text.txt": b"", "-": b"The sea was calm." + end}
    scores = [
        json.loads(gen("score", "-f", name, "-t", "1", "--format", "json", stdin=stdin).out)
        for name, stdin in sources.items()
    ]
    assert [score["tokens"] for score in scores] == [["The", " sea", " was", " calm", "."]] * 2


def test_negative_prompts(gen, home, end):
    (home / "work" / "negative.txt").write_bytes(b"The land" + end)
    flags = ("--cfg-scale", "2", "--cfg-negative-prompt-file", "negative.txt", "-t", "1", "-n", "1")
    start = gen("The sea", *flags, "--format", "jsonl").lines[0]
    assert start["guidance"]["negative_prompt"] == "The land"


def test_regexes_of_files(gen, home, end):
    (home / "work" / "digits.regex").write_bytes(b"[0-9]+" + end)
    assert "matches" in gen("grammars", "check", "digits.regex", "--text", "12").out


def test_texts_that_are_checked(gen, home, end):
    (home / "work" / "text.txt").write_bytes(b"12" + end)
    (home / "work" / "digits.regex").write_bytes(b"[0-9]+")
    assert "matches" in gen("grammars", "check", "digits.regex", "--text-file", "text.txt").out


def test_texts_whose_watermark_is_searched(end):
    data = b"The sea\r\nwas" + end
    (found,) = read_token_texts(data, TextKind.text, lambda text: [*text.encode()])
    assert bytes(found.tokens) == b"The sea\r\nwas"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [(b"Hi there", "Hi there"), (b'"""\r\nHi\r\nthere\r\n"""', "Hi\r\nthere")],
    ids=["a line", "a block"],
)
def test_turns_of_a_piped_chat(monkeypatch, lines, wanted, end):
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(lines + end)))
    assert PipedInput().read() == wanted
