r"""The escapes of llama.cpp's command line, in texts that are typed: \n \r \t \' \" \\ \xHH."""

import re

import pytest
from logitsmith.cli.flag_values import process_escapes

pytestmark = pytest.mark.usefixtures("with_pruned_model")

ESCAPES = {
    "no backslash": ("a b", "a b"),
    "characters": (r"\n\r\t", "\n\r\t"),
    "quotes": (r"\'\"", "'\""),
    "a backslash": (r"\\n", r"\n"),
    "two backslashes": (r"\\\n", "\\\n"),
    "a byte": (r"\x41\x0a", "A\n"),
    "the bytes of a character": (r"\xc3\xa9 \xF0\x9F\x98\x80", "é 😀"),
    "one digit": (r"\x4", r"\x4"),
    "no digits": (r"\xg1", r"\xg1"),
    "an unknown one": (r"\d+\z", r"\d+\z"),
    "a backslash at the end": ("a\\", "a\\"),
    "other letters": (r"é\n日", "é\n日"),
}


@pytest.mark.parametrize(("text", "processed"), ESCAPES.values(), ids=ESCAPES)
def test_escapes_are_those_of_llama_cpp(text, processed):
    assert process_escapes(text) == processed


PROMPT = r"1\n2\n3\n"


def prompt_tokens(result):
    return result.lines[0]["prompt_tokens"]


def test_a_prompt_given_as_an_argument(gen, home):
    (home / "work" / "p.txt").write_text(PROMPT)
    run = ("-n", "1", "--format", "jsonl")
    processed = prompt_tokens(gen(*run, stdin="1\n2\n3\n\n"))
    assert prompt_tokens(gen(PROMPT, *run)) == processed
    assert prompt_tokens(gen("-e", "-p", PROMPT, *run)) == processed
    as_it_is = prompt_tokens(gen("--no-escape", PROMPT, *run))
    assert as_it_is > processed
    assert prompt_tokens(gen("-f", "p.txt", *run)) == as_it_is
    assert prompt_tokens(gen(*run, stdin=PROMPT)) == as_it_is


@pytest.mark.bundled_model
def test_a_stop_text_matches_a_line_end(gen):
    run = ("A list:\n", "-n", "30", "--grammar", "list", "--format", "jsonl", "--seed", "1", "--ignore-eos")
    done = gen(*run, "--stop", r"\n").lines[-1]
    assert done["finish_reason"] == "stop"
    assert done["stop"] == "\n"
    assert gen(*run, "--stop", r"\n", "--no-escape").lines[-1]["finish_reason"] != "stop"


def test_stop_and_breakers_follow_one_rule(gen):
    texts = ("--stop", r"\x41\t", "--dry-multiplier", "1", "--dry-sequence-breaker", r"\x42\t")
    out = gen("x", "--show-config", *texts).out
    assert re.search(r'"A\\t"', out)
    assert re.search(r'"B\\t"', out)
    out = gen("x", "--show-config", "--no-escape", *texts).out
    assert re.search(r'"\\\\x41\\\\t"', out)
    assert re.search(r'"\\\\x42\\\\t"', out)
