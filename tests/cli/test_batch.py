"""`gen batch`: what a user types, and the files that come of it."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from logitsmith.jobs.lines import BackgroundReader, InputLine

pytestmark = pytest.mark.usefixtures("with_pruned_model")

CHEAP = ("--parallel", "4", "-c", "256")


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def work(home):
    return home / "work"


def completion(name, **body):
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": {"max_tokens": 5, **body}}


def chat(name, text="Name a colour.", **body):
    messages = [{"role": "user", "content": text}]
    return {
        "custom_id": name,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "any", "messages": messages, "max_tokens": 5, **body},
    }


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


ROLES = "{% for m in messages %}{{ m.role }}:{{ m.content }} {% endfor %}{{ mood }}"
REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + ROLES


def test_chat_templates_of_lines(gen, work):
    short = {"max_tokens": 1, "messages": [{"role": "user", "content": "Hi there"}]}
    write(
        work / "in.jsonl",
        {"id": "flag", **short},
        {"id": "prompt", "prompt": "Hi there", "max_tokens": 1},
        {"id": "name", **short, "chat_template": "chatml", "chat_template_kwargs": {}},
        {"id": "kwargs", **short, "chat_template_kwargs": {"mood": " word" * 50}},
        chat("body", "Hi there", chat_template_kwargs={"mood": " word" * 50}),
        {"id": "unknown", **short, "chat_template": "chatm"},
        {"id": "refused", **short, "chat_template": "{{ raise_exception('never') }}"},
        {"id": "ids", "prompt": [1, 2], "chat_template": "chatml"},
        *({"id": f"system {n}", "max_tokens": 1, "chat_template": REFUSES_SYSTEM,
           "messages": [{"role": "system", "content": "S"}, *short["messages"]]} for n in range(2)),
    )  # fmt: skip
    result = gen("batch", "in.jsonl", "--format", "jsonl", "--chat-template", ROLES, *CHEAP, code=1)
    lines = {line["id"]: line for line in result.lines}
    tokens = {name: line["usage"]["prompt_tokens"] for name, line in lines.items() if "usage" in line}
    assert tokens["flag"] == tokens["prompt"] < tokens["name"] < tokens["kwargs"] == tokens["body"]
    assert "did you mean chatml?" in lines["unknown"]["error"]["message"]
    assert lines["refused"]["error"]["message"] == "line 7: the chat template rejects these messages: never"
    assert "a chat template cannot be used with a prompt of token ids" in lines["ids"]["error"]["message"]
    assert result.err.count("has no system role") == 1


def test_openai_lines_give_openai_results(gen, work):
    from openai.types import Completion
    from openai.types.chat import ChatCompletion

    asked = [
        completion("plain", prompt="The sea", logprobs=2, seed=7),
        completion("ids", prompt=[504, 2388], temperature=0, tools=None, stream_options=None, store=False),
        completion("one of one", prompt=["The sea"], seed=7),
        chat("chat", logprobs=True, top_logprobs=3),
        chat(
            "object", response_format={"type": "json_object"}, logit_bias={"75": 60, "109": 90}, max_tokens=9
        ),  # [ }
        chat(
            "schema",
            max_tokens=None,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        ),
        completion("biased", prompt="The", logit_bias={"282": 100}, temperature=0, stop=["x"], top_p=0.5),
    ]
    write(work / "in.jsonl", *asked)
    done = gen("batch", "in.jsonl", "-o", "out.jsonl", *CHEAP)
    found = {line["custom_id"]: line for line in read(work / "out.jsonl")}
    assert set(found) == {line["custom_id"] for line in asked}
    for line in asked:
        result = found[line["custom_id"]]
        assert set(result) == {"id", "custom_id", "response", "error"}
        assert result["id"].startswith("batch_req_")
        assert result["error"] is None
        assert result["response"]["status_code"] == 200
        kind = ChatCompletion if "chat" in line["url"] else Completion
        kind.model_validate(result["response"]["body"])
    body = {name: result["response"]["body"]["choices"][0] for name, result in found.items()}
    assert len(body["plain"]["logprobs"]["top_logprobs"]) == 5
    assert len(body["chat"]["logprobs"]["content"][0]["top_logprobs"]) == 3
    assert isinstance(json.loads(body["schema"]["message"]["content"])["ok"], bool)
    assert isinstance(json.loads(body["object"]["message"]["content"]), dict)
    assert body["biased"]["text"] == " of" * 5
    assert "7 answered, 0 failed" in done.err


def test_results_and_the_last_line_tell_whether_neighbours_can_matter(gen, work):
    write(work / "in.jsonl", *({"id": key, "prompt": "The sea", "max_tokens": 2} for key in "ab"))
    done = gen("batch", "in.jsonl", "--format", "jsonl", *CHEAP)
    told = {line["batch_exactness"] for line in done.lines}
    assert len(told) == 1
    assert re.fullmatch(r"exact|exact among themselves|to rounding \(.+\)", min(told))
    assert done.err.endswith(f"; answers {min(told)}\n")
    done = gen("batch", "in.jsonl", "--format", "jsonl", "--deterministic", *CHEAP)
    assert {line["batch_exactness"] for line in done.lines} == {"exact"}
    assert done.err.endswith("; answers exact\n")


def test_each_line_gets_what_gen_run_gives_it(gen, work):
    prompts = {"a": "The sea was", "b": "Once upon a time", "c": "My name"}
    write(work / "in.jsonl", *({"id": key, "prompt": text, "seed": 5} for key, text in prompts.items()))
    done = gen("batch", "in.jsonl", "--format", "jsonl", "-n", "12", "--temp", "1.1", "--logprobs", "0", *CHEAP)
    found = {line["id"]: line for line in done.lines}
    for key, text in prompts.items():
        alone = gen(text, "-s", "5", "-n", "12", "--temp", "1.1", "--format", "jsonl")
        assert found[key]["text"] == alone.lines[-1]["text"]
        assert [t["id"] for t in found[key]["tokens"]] == [t["id"] for t in alone.lines[1:-1]]
        assert [t["logprob"] for t in found[key]["tokens"]] == [t["logprob"] for t in alone.lines[1:-1]]


def test_the_short_form_says_everything_a_run_can(gen, work):
    write(
        work / "in.jsonl",
        {"id": "preset", "prompt": "The", "preset": "deterministic", "max_tokens": 4},
        {"id": "same", "prompt": "The", "set": {"temperature": 0}, "max_tokens": 4},
        {"id": "chain", "prompt": "The", "chain": "top-k1", "max_tokens": 4},
        {"id": "nothing", "prompt": "The", "max_tokens": 0},
        {"id": 7, "prompt": "Say", "grammar": 'root ::= "yes" | "no"', "set": ["top_k=2"]},
        {"messages": [{"role": "user", "content": "Hi"}], "json_schema": SCHEMA},
        {"id": "rows", "prompt": "A", "max_tokens": 1, "logprobs": -1, "logprobs_from": "both"},
    )
    done = gen("batch", "in.jsonl", "--format", "jsonl", "--seed", "3", *CHEAP)
    found = {line["id"]: line for line in done.lines}
    assert found["preset"]["text"] == found["same"]["text"] == found["chain"]["text"]
    assert (found["nothing"]["text"], found["nothing"]["finish_reason"]) == ("", "length")
    assert found["7"]["text"] in ("yes", "no")
    assert found["7"]["complete"] is True
    assert set(json.loads(found["line-6"]["text"])) == {"ok"}
    assert len(found["rows"]["tokens"][0]["row"]) == len(found["rows"]["tokens"][0]["chain"]["row"]) > 20_000


def test_seeds_come_from_the_id_and_the_seed_of_the_run(gen, work):
    write(work / "in.jsonl", *({"id": str(n), "prompt": "The", "max_tokens": 8} for n in range(3)))
    texts = []
    for seed in ("0", "0", "1"):
        lines = gen("batch", "in.jsonl", "--format", "jsonl", "--seed", seed, "--temp", "1.5", *CHEAP).lines
        texts.append({line["id"]: line["text"] for line in lines})
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0].values())) == 3


def test_whole_floats_are_integers(gen, work):
    whole = {"prompt": [5.0, 6.0], "max_tokens": 3.0, "seed": 1.0, "set": {"top_k.k": 9.0}}
    integers = {"prompt": [5, 6], "max_tokens": 3, "seed": 1, "set": {"top_k.k": 9}}
    bodies = [
        {"prompt": [5.0, 6.0], "max_tokens": 3.0, "seed": 1.0, "top_k": 9.0, "logit_bias": {"7.0": 0}},
        {"prompt": [5, 6], "max_tokens": 3, "seed": 1, "top_k": 9, "logit_bias": {"7": 0}},
    ]
    lines = [completion(name, **body) for name, body in zip("ab", bodies, strict=True)]
    write(work / "in.jsonl", {"id": 1.0, **whole}, {"id": 2, **integers}, *lines)
    texts = {line["id"]: line["text"] for line in gen("batch", "in.jsonl", "--format", "jsonl", *CHEAP).lines}
    assert texts["1"] == texts["2"]
    assert texts["a"] == texts["b"]


WRONG_NUMBERS = {
    "chat": (chat("a", logprobs=True, top_logprobs=60_000), "openai", "body.top_logprobs: 60000 is not"),
    "completion": (completion("a", prompt="a", logprobs=60_000), "jsonl", "body.logprobs: 60000 is not"),
    "short, as OpenAI's": ({"prompt": "a", "logprobs": 60_000}, "openai", "logprobs: 60000 is not"),
    "short": ({"prompt": "a", "logprobs": 60_000}, "jsonl", "logprobs: 60000 is not"),
    "a fraction": ({"prompt": "a", "max_tokens": 3.5}, "jsonl", "max_tokens: 3.5 is not"),
    "a fraction in a list": ({"prompt": [5, 6.5]}, "jsonl", "prompt"),
    "a huge float": (completion("a", prompt="a", top_k=1e300), "openai", "body.top_k: 1e+300 is not"),
}


@pytest.mark.parametrize(("line", "form", "message"), WRONG_NUMBERS.values(), ids=WRONG_NUMBERS)
def test_an_error_names_the_field_of_the_line(gen, work, line, form, message):
    write(work / "in.jsonl", line)
    (result,) = gen("batch", "in.jsonl", "--format", form, *CHEAP, code=1).lines
    assert result["error"]["message"].startswith(f"line 1: {message}")


CHAT_LINE = {"messages": [{"role": "user", "content": "b"}]}
BAD = {
    "not JSON": ("{nope", "not JSON"),
    "NaN": ('{"prompt": "a", "seed": NaN}', "NaN"),
    "a list": ("[1]", "object"),
    "half a surrogate pair": (r'{"prompt": "\ud800"}', "surrogate"),
    "nothing asked": ({"id": "x1"}, "prompt"),
    "both asked": ({"prompt": "a", **CHAT_LINE}, "exclude"),
    "a slip of the pen": ({"prompt": "a", "temprature": 1}, "temperature.t"),
    "OpenAI's name of a setting": ({"prompt": "a", "max_completion_tokens": 1}, "max_tokens"),
    "a wrong value": ({"prompt": "a", "set": {"top_p": 3}}, "top_p"),
    "no such preset": ({"prompt": "a", "preset": "nonsuch"}, "nonsuch"),
    "system and messages": ({"system": "s", **CHAT_LINE}, "system"),
    "no healing": ({"prompt": "a", "heal": "yes"}, "heal: "),
    "too many retries": ({"prompt": "a", "ban_retries": 1001}, "0..1000"),
    "a wrong chain": ({"prompt": "a", "chain": "top-q3"}, "'top-q'"),
    "a wrong grammar": ({"prompt": "a", "grammar": "root ::= ("}, "line 1"),
    "a wrong schema": ({"prompt": "a", "json_schema": {"type": "nonsuch"}}, "nonsuch"),
    "too long": ({"prompt": "word " * 400}, "-c"),
    "a keyword that is not supported": ({"prompt": "a", "json_schema": {"uniqueItems": True}}, "--schema-lenient"),
    "a schema that is a file": ({"prompt": "a", "grammar": {"json_schema": "a.json"}}, "json_schema_file"),
    "a step that is ignored": ({"prompt": "a", "chain": "greedy", "set": {"min_p": 0.1}}, "min_p"),
    "no token of that id": ({"prompt": [10**9]}, "1000000000"),
    "n": (completion("c1", prompt="a", n=0), "body.n"),
    "a misspelled field": (completion("c3", prompt="a", temprature=1), "body.temprature"),
    "a picture": (chat("c9", messages=[{"role": "user", "content": [{"type": "image_url"}]}]), "body.messages[0]"),
    "several prompts": (completion("c10", prompt=["a", "b"]), "prompts"),
    "no content": (chat("c11", messages=[{"role": "user"}]), "content"),
    "url": (completion("c4", prompt="a") | {"url": "/v1/embeddings"}, "url"),
    "bias": (completion("c8", prompt="a", logit_bias={"5": "x"}), "body.logit_bias"),
    **{f"an id like {value}": ({"id": value, "prompt": "a"}, "id: ") for value in (1.5, True, ["a"], "")},
    "a custom_id that is a number": (completion(12, prompt="a"), "custom_id: 12"),
    "twice": ({"id": "good", "prompt": "b"}, "'good'"),
    "whole rows": ({"prompt": "a", "logprobs": -1}, "logprobs: -1"),
}


# Each row: a second line with the id of the first one.
TAKEN = {
    "a good line": {"id": "a", "prompt": "The"},
    "a bad line": {"id": "a", "prompt": 3},
    "OpenAI's format": completion("a", prompt="The"),
}


@pytest.mark.parametrize("form", ["openai", "jsonl"])
@pytest.mark.parametrize("second", TAKEN.values(), ids=TAKEN)
def test_the_error_of_a_second_line_does_not_take_the_id_of_the_first(gen, work, form, second):
    write(work / "in.jsonl", {"id": "a", "prompt": "The", "max_tokens": 1}, second)
    arguments = ("batch", "in.jsonl", "-o", "out.jsonl", "--format", form, *CHEAP)
    gen(*arguments, code=1)
    results = {line["custom_id" if form == "openai" else "id"]: line for line in read(work / "out.jsonl")}
    assert results.keys() == {"a", "line-2"}
    assert results["a"]["error"] is None
    assert results["line-2"]["error"]["line"] == 2
    before = (work / "out.jsonl").read_bytes()
    gen(*arguments, "--resume", code=1)
    assert (work / "out.jsonl").read_bytes() == before


def test_a_bad_line_becomes_an_error_with_its_number_and_the_rest_goes_on(gen, work):
    good = [{"id": "good", "prompt": "The", "max_tokens": 3}]
    last = [{"id": "last", "prompt": "The", "max_tokens": 3}]
    write(work / "in.jsonl", *good, *(line for line, _ in BAD.values()), "", *last)
    done = gen("batch", "in.jsonl", "-o", "out.jsonl", *CHEAP, code=1)
    results = read(work / "out.jsonl")
    failed = {line["error"]["line"]: line["error"] for line in results if line["error"]}
    answered = {line["custom_id"] for line in results if line["response"]}
    assert answered == {"good", "last"}
    assert len(results) == len(BAD) + 2
    for number, (name, (_, why)) in enumerate(BAD.items(), 2):
        assert why in failed[number]["message"], name
        assert failed[number]["message"].startswith(f"line {number}: "), name
    assert f"2 answered, {len(BAD)} failed" in done.err
    again = gen("batch", "in.jsonl", "-o", "out.jsonl", "--resume", *CHEAP, code=1)
    assert read(work / "out.jsonl") == results
    assert f"0 answered, 0 failed, {len(results)} already existed, {len(BAD)} of them failed" in again.err


def test_csv_rows_fill_a_template(gen, work):
    out = io.StringIO()
    csv.writer(out).writerows([["id", "text", "n"], ["r1", 'a "b",\nc', "1"], ["", "{x}", "2"], ["r3", "short"]])
    (work / "in.csv").write_text("\ufeff" + out.getvalue())
    done = gen(
        "batch", "in.csv", "--template", "{n}. {{Say}} {text}:", "--format", "jsonl", "-n", "3", *CHEAP, code=1
    )
    found = {line["id"]: line for line in done.lines}
    assert set(found) == {"r1", "line-4", "line-5"}
    assert found["line-5"]["error"]["message"] == "line 5: it has 2 fields, and the first row names 3"
    alone = gen('1. {Say} a "b",\nc:', "-n", "3", "--format", "jsonl", "-s", str(found["r1"]["seed"]))
    assert alone.lines[-1]["text"] == found["r1"]["text"]


def test_stdin_to_stdout(gen):
    line = json.dumps({"id": "x", "prompt": "The", "max_tokens": 3})
    assert gen("batch", "-", "--format", "jsonl", *CHEAP, stdin=line).lines[0]["id"] == "x"


@pytest.mark.bundled_model
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_pipe_that_is_closed_ends_a_batch_quietly(start_gen, work, kind):
    write(work / "in.jsonl", *({"id": str(n), "prompt": "The", "max_tokens": 3} for n in range(40)))
    write(work / "in.csv", "id,text", *(f"{n},The" for n in range(40)))
    template = ["--template", "{text}", "-n", "3"] if kind == "csv" else []
    command = start_gen("batch", f"in.{kind}", *template, "--format", "jsonl", "-c", "256")
    assert command.stdout.readline()
    command.stdout.close()
    err = command.stderr.read()
    assert command.wait() == 0
    assert b"Traceback" not in err
    assert b"closed file" not in err


USAGE = {
    "resume without a file": (("--resume",), "--resume"),
    "csv without a template": (("-o", "x"), "CSV"),
    "a single brace": (("--template", "a { b"), "brace"),
    "no column": (("--template", "a"), "column"),
    "an unknown column": (("--template", "{nonsuch}"), "'nonsuch'"),
    "parallel": (("--template", "{a}", "--parallel", "0"), "1..256"),
    "length": (("--template", "{a}", "-n", "-3"), "-n: -3"),
    "chain": (("--template", "{a}", "--chain", "top-q"), "top-q"),
    "two grammars": (("--template", "{a}", "--grammar", "json", "--regex", "a"), "--regex"),
    "rows in openai": (("--template", "{a}", "--logprobs", "-1"), "--logprobs"),
    "over the requests": (("--template", "{a}", "-o", "in.csv"), "in.csv"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE)
def test_bad_usage_is_refused_before_anything_is_done(gen, work, arguments, message):
    (work / "in.csv").write_text("a\n1\n")
    done = gen("batch", "in.csv", *arguments, code=2)
    assert message in " ".join(done.err.replace("│", " ").split())
    assert (work / "in.csv").read_text() == "a\n1\n"


def test_results_that_are_there_are_never_written_over(gen, work):
    write(work / "in.jsonl", {"id": "x", "prompt": "The", "max_tokens": 2})
    (work / "out.jsonl").write_text("my diary\n")
    done = gen("batch", "in.jsonl", "-o", "out.jsonl", *CHEAP, code=1)
    assert "already exists; continue it with --resume" in done.err
    done = gen("batch", "in.jsonl", "-o", "out.jsonl", "--resume", *CHEAP, code=1)
    assert "line 1 is not a result" in done.err
    assert (work / "out.jsonl").read_text() == "my diary\n"
    assert "no such file" in gen("batch", "nonsuch.jsonl", *CHEAP, code=1).err.lower()


ALMOST_FULL = """
import resource
from logitsmith.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
main()
"""


def test_a_full_disk_is_told_of_and_gone_on_from(gen, work):
    write(work / "in.jsonl", *({"id": str(n), "prompt": "The", "max_tokens": 3} for n in range(8)))
    batch = ("batch", "in.jsonl", *CHEAP, "--format", "jsonl")
    assert "No space left on device" in gen(*batch, "-o", "/dev/full", code=1).err
    error = gen(*batch, "-o", "out.jsonl", program=ALMOST_FULL, code=1).err
    assert "File too large" in error
    assert "--resume" in error
    kept = read(work / "out.jsonl")
    assert 0 < len(kept) < 8
    gen(*batch, "-o", "out.jsonl", "--resume")
    assert read(work / "out.jsonl")[: len(kept)] == kept
    assert sorted(map(str, read(work / "out.jsonl"))) == sorted(map(str, gen(*batch).lines))


def wait_for_lines(path, count):
    end = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.bundled_model
def test_ctrl_c_finishes_what_is_begun_and_a_second_stops_at_once(start_gen, gen, work):
    write(work / "in.jsonl", *({"id": str(n), "prompt": "The", "max_tokens": 8 + n} for n in range(10)))
    batch = ("batch", "in.jsonl", "-o", "out.jsonl", *CHEAP)
    once = start_gen(*batch)
    wait_for_lines(work / "out.jsonl", 2)
    once.send_signal(signal.SIGINT)
    _, said = once.finish()
    assert once.returncode == 130
    assert b"being finished" in said
    assert b"--resume" in said
    first = len(read(work / "out.jsonl"))
    assert 2 <= first < 10
    twice = start_gen(*batch, "--resume")
    wait_for_lines(work / "out.jsonl", first + 1)
    twice.send_signal(signal.SIGINT)
    time.sleep(0.05)
    twice.send_signal(signal.SIGINT)
    _, said = twice.finish()
    assert twice.returncode == 130
    assert b"Traceback" not in said
    # what was begun beside the one that was waited for is not there
    assert len(read(work / "out.jsonl")) < first + 4
    gen(*batch, "--resume")
    assert sorted(int(line["custom_id"]) for line in read(work / "out.jsonl")) == list(range(10))


def test_two_runs_on_one_file_are_refused(gen, work, environment):
    endless = {"prompt": "The", "max_tokens": 900, "set": {"ignore_eos": True}}
    write(work / "in.jsonl", {"id": "first", "prompt": "A", "max_tokens": 1}, *[endless] * 40)
    batch = ("batch", "in.jsonl", "-o", "out.jsonl", "--parallel", "4", "-c", "1024")
    with subprocess.Popen([sys.executable, "-m", "logitsmith.cli", *batch], cwd=work, env=environment) as other:
        wait_for_lines(work / "out.jsonl", 1)
        assert "another run is writing to it" in gen(*batch, "--resume", code=1).err
        other.kill()


def test_results_reach_stdout_while_a_bar_is_on_the_terminal(start_gen, work):
    write(work / "in.jsonl", *({"id": str(n), "prompt": "The", "max_tokens": 3} for n in range(6)))
    leader, follower = pty.openpty()
    command = start_gen("batch", "in.jsonl", "--format", "jsonl", *CHEAP, stderr=follower)
    os.close(follower)
    shown = b""
    with suppress(OSError):  # Linux reports the end of a terminal so
        while part := os.read(leader, 1 << 16):
            shown += part
    written = command.stdout.read()
    os.close(leader)
    assert {json.loads(line)["id"] for line in written.splitlines()} == set("012345")
    assert b"6 answered" in shown


def test_a_line_that_was_corrected_is_answered_and_no_other_is_lost(gen, work):
    lines = [{"id": "a", "prompt": "The"}, {"id": "b", "promt": "The"}, {"id": "c", "prompt": "The"}]
    write(work / "in.jsonl", *lines)
    gen("batch", "in.jsonl", "-o", "out.jsonl", "-n", "2", *CHEAP, code=1)
    write(work / "in.jsonl", {"id": "d", "prompt": "The"}, {"id": "b", "prompt": "The"}, lines[2])
    done = gen("batch", "in.jsonl", "-o", "out.jsonl", "--resume", "-n", "2", *CHEAP)
    assert "2 answered, 0 failed, 1 already existed" in done.err
    answered = {line["custom_id"] for line in read(work / "out.jsonl") if line["response"]}
    assert answered == {"a", "b", "c", "d"}


FOREIGN = {
    "one line of JSON": '{"precious": "data"}',
    "a request without a line end": '{"id": "a", "prompt": "The"}',
    "requests": '{"id": "a", "prompt": "The"}\n',
    "the other format": '{"id": "a", "line": 1, "text": "x", "error": null}\n',
    "a text": "my diary",
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_nothing_but_results_is_gone_on_with(gen, work, content):
    write(work / "in.jsonl", {"id": "a", "prompt": "The", "max_tokens": 2})
    (work / "out.jsonl").write_text(content)
    done = gen("batch", "in.jsonl", "-o", "out.jsonl", "--resume", *CHEAP, code=1)
    assert "line 1 is not a result" in done.err
    assert (work / "out.jsonl").read_text() == content


def arrived(lines):
    while (line := lines.next(should_wait=True)) is None:
        pass
    return line


def test_a_pipe_is_not_read_far_ahead_of_the_work():
    taken = []
    lines = BackgroundReader(taken.append(n) or InputLine(n, {}, "") for n in range(1, 5001))
    assert lines.next(should_wait=True).number == 1
    time.sleep(0.2)
    assert len(taken) < 1100
    for number in range(2, 5001):
        assert arrived(lines).number == number
    with pytest.raises(StopIteration):
        arrived(lines)


def test_an_answer_does_not_wait_for_the_next_line(start_gen):
    command = start_gen("batch", "-", "--format", "jsonl", *CHEAP, has_stdin=True)
    for name in ("first", "second"):
        command.stdin.write((json.dumps({"id": name, "prompt": "The", "max_tokens": 2}) + "\n").encode())
        assert json.loads(command.stdout.readline())["id"] == name
    command.send_signal(signal.SIGINT)  # while nothing comes, and nothing is in work
    assert command.wait() == 130


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("make", [completion, chat], ids=["completion", "chat"])
def test_several_choices_are_the_texts_of_the_next_seeds(gen, work, make, parallel):
    body = {"prompt": "The sea"} if make is completion else {"max_tokens": 5}
    asked = [make("three", **body, n=3, seed=7), make("one", **body, seed=9)]
    singles = [make(str(seed), **body, seed=seed) for seed in (7, 8, 9)]
    write(work / "in.jsonl", *asked, *singles)
    gen("batch", "in.jsonl", "-o", "out.jsonl", "-np", str(parallel), *CHEAP)
    bodies = {line["custom_id"]: line["response"]["body"] for line in read(work / "out.jsonl")}
    choices = [bodies[str(seed)]["choices"][0] | {"index": index} for index, seed in enumerate((7, 8, 9))]
    assert bodies["three"]["choices"] == choices
    assert bodies["one"]["choices"] == [choices[2] | {"index": 0}]
    usages = [bodies[str(seed)]["usage"] for seed in (7, 8, 9)]
    assert bodies["three"]["usage"]["prompt_tokens"] == usages[0]["prompt_tokens"]
    assert bodies["three"]["usage"]["completion_tokens"] == sum(usage["completion_tokens"] for usage in usages)


def test_choices_without_a_seed_begin_with_the_seed_of_the_id(gen, work):
    write(work / "in.jsonl", completion("a", prompt="The sea", n=2))
    several = gen("batch", "in.jsonl", *CHEAP).lines[0]["response"]["body"]["choices"]
    write(work / "in.jsonl", completion("a", prompt="The sea"))
    assert gen("batch", "in.jsonl", *CHEAP).lines[0]["response"]["body"]["choices"] == several[:1]
    assert len(several) == 2


def test_a_failed_choice_is_one_failure(gen, work):
    write(work / "in.jsonl", completion("long", prompt="word " * 400, n=3), completion("good", prompt="a", n=2))
    run = gen("batch", "in.jsonl", "-o", "out.jsonl", "-c", "64", code=1)
    assert "1 answered, 1 failed" in run.err
    lines = {line["custom_id"]: line for line in read(work / "out.jsonl")}
    assert len(read(work / "out.jsonl")) == 2
    error = lines["long"]["error"]
    assert (error["code"], error["n_ctx"]) == ("context_length_exceeded", 64)
    assert error["n_prompt_tokens"] >= 400
    assert len(lines["good"]["response"]["body"]["choices"]) == 2
    again = gen("batch", "in.jsonl", "-o", "out.jsonl", "-c", "64", "--resume", code=1)
    assert "0 answered, 0 failed, 2 already existed" in again.err
