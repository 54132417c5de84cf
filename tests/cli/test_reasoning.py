"""The reasoning apart from the answer, in the outputs of `gen run` and `gen batch`."""

import io
import json

import pytest
from logitsmith.cli.render.answers import render_text
from logitsmith.engine import ChatMessages, Model, generate

from ..engine.scripted_model import write_scripted_model

TEMPLATE = "{{ messages[-1].content }}<A>{# <think></think> #}"
SCRIPT = ["<A>", "<think>", "\n", "hm", "</think>", "\n\n", "yes", ".", "<end>"]
WHOLE = "<think>\nhm</think>\n\nyes."
USAGE = {"reasoning_tokens": 5}


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    path = tmp_path_factory.mktemp("thinking") / "model.gguf"
    return write_scripted_model(path, [SCRIPT], TEMPLATE)


@pytest.fixture
def ask(gen, thinking):
    def ask(*flags, command=("run", "Hi", "--chat", "--temp", "0"), **variables):
        return gen(*command, *flags, GEN_MODEL=str(thinking), **variables)

    return ask


TEXTS = {
    "the answer": ((), "yes."),
    "all": (("--show-reasoning",), WHOLE),
    "only reasoning": (("-n", "3"), ""),
    "a budget": (("--show-reasoning", "--reasoning-budget", "1"), "<think>\n</think>\n\nyes."),
    "a grammar": (("--grammar", 'root ::= "yes"'), "yes"),
    "samples": (("--samples", "2"), "--- 1 of 2, seed 0 ---\nyes.\n--- 2 of 2, seed 1 ---\nyes.\n"),
}


@pytest.mark.parametrize(("flags", "text"), TEXTS.values(), ids=TEXTS)
def test_a_pipe_gets_the_answer(ask, flags, text):
    assert ask("--seed", "0", *flags).out == text


def test_a_note_about_a_text_without_an_answer(ask):
    assert "the text ends in the reasoning, before an answer" in ask("-n", "3").err


UNUSED = "--reasoning-budget has no effect: the chat template shows no reasoning"


def test_a_budget_that_the_template_has_no_use_for(ask):
    flags = ("-n", "4", "--reasoning-budget", "1")
    assert UNUSED not in ask(*flags).err
    assert UNUSED not in ask(*flags, command=("run", "Hi")).err  # the text of a prompt may open a reasoning
    without_reasoning = ask(*flags, "--chat-template", "chatml")
    assert UNUSED in without_reasoning.err
    assert without_reasoning.out == ask("-n", "4", "--chat-template", "chatml").out


def test_a_terminal_shows_the_reasoning_dimmed(thinking, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with Model.load(thinking) as model:
        for no_color, shown in (("", "\x1b[2mhm\x1b[0m\n\nyes.\n"), ("1", "hm\n\nyes.\n")):
            monkeypatch.setenv("NO_COLOR", no_color)
            out = Terminal()
            render_text(generate(model, ChatMessages([{"role": "user", "content": "Hi"}]), "greedy"), out)
            assert out.getvalue() == shown


def test_jsonl(ask):
    start, *tokens, done = ask("--format", "jsonl").lines
    assert start["reasoning"]["tags"] == {"start": "<think>", "end": "</think>", "answer_prefixes": []}
    assert [token["part"] for token in tokens] == ["reasoning"] * 5 + ["answer"] * 3
    assert "".join(token["text"] for token in tokens) == WHOLE
    assert (done["text"], done["reasoning"]) == ("yes.", "hm")
    assert done["usage"]["completion_tokens_details"] == USAGE


def test_openai_chat_whole_and_streamed(ask):
    flags = ("--format", "openai-chat", "--logprobs", "0")
    whole = json.loads(ask(*flags).out)
    message = whole["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("yes.", "hm")
    assert whole["usage"]["completion_tokens_details"] == USAGE
    chunks = [
        json.loads(line[6:]) for line in ask(*flags, "--stream").out.splitlines() if line.startswith("data: {")
    ]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    for field in ("content", "reasoning_content"):
        assert "".join(delta.get(field) or "" for delta in deltas) == message[field]
    listed = [
        entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert listed == whole["choices"][0]["logprobs"]["content"]
    assert [entry["part"] for entry in listed] == ["reasoning"] * 5 + ["answer"] * 2
    assert not any("content" in delta for delta in deltas[1:6])  # the answer begins after the reasoning


def test_batch(ask, home):
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    (home / "work" / "in.jsonl").write_text(json.dumps(line))
    results = {}
    for name in ("jsonl", "openai"):
        ask(command=("batch", "in.jsonl", "-o", name, "--format", name))
        results[name] = json.loads((home / "work" / name).read_text())
    own, answer = results["jsonl"], results["openai"]["response"]["body"]
    assert (own["text"], own["reasoning"]) == ("yes.", "hm")
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("yes.", "hm")
    assert own["usage"]["completion_tokens_details"] == answer["usage"]["completion_tokens_details"] == USAGE


def test_formats_with_a_field_for_the_reasoning_need_no_flag(ask):
    assert "jsonl always has the reasoning" in ask("--show-reasoning", "--format", "jsonl", code=2).err
