"""Grammars on the command line."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("with_pruned_model")

SCHEMA = (
    '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["a"],'
    ' "additionalProperties": false}'
)
RUN = ("-t", "1", "--seed", "1", "-n", "40")


@pytest.fixture
def files(home):
    work = home / "work"
    (work / "yes.gbnf").write_text('root ::= "yes" | other\nother ::= "no"\n')
    (work / "schema.json").write_text(SCHEMA)
    (work / "two.lark").write_text('start: "two" "2"\n')
    (work / "digits.regex").write_text("[0-9]{3}\n")
    (work / "bad.gbnf").write_text('root ::= "a"\n  itm\n')
    (work / "grammars").mkdir()
    (work / "grammars" / "mine.gbnf").write_text('# My own\nroot ::= "mine"\n')
    (work / "p.yaml").write_text("grammar: {regex: '[xy]{2}'}\n")
    return work


KINDS = {
    "a name": (["--grammar", "yes_no"], ["yes", "no", "Yes", "No"]),
    "GBNF": (["--grammar", 'root ::= "a" | "b"'], ["a", "b"]),
    "a name of ours": (["--grammar", "mine"], ["mine"]),
    "a GBNF file": (["--grammar-file", "yes.gbnf"], ["yes", "no"]),
    "another root": (["--grammar-file", "yes.gbnf", "--grammar-root", "other"], ["no"]),
    "regex": (["--regex", "a{3}"], ["aaa"]),
    "lark": (["--lark-file", "two.lark"], ["two2"]),
    "a preset": (["-P", "./p.yaml"], ["xx", "xy", "yx", "yy"]),
    "a flag over a preset": (["-P", "./p.yaml", "--regex", "b"], ["b"]),
    "a setting": (["--set", "grammar={regex: cc}"], ["cc"]),
}


@pytest.mark.parametrize(("arguments", "texts"), KINDS.values(), ids=KINDS)
def test_every_way_to_name_a_grammar(gen, files, arguments, texts):
    assert gen("Say it:", *RUN, *arguments).out in texts


@pytest.mark.parametrize(
    "arguments", [["-j", SCHEMA], ["--json-schema-file", "schema.json"]], ids=["text", "file"]
)
def test_json_schema(gen, files, arguments):
    value = json.loads(gen("A number:", *RUN, *arguments).out)
    assert 0 <= value["a"] <= 99


def test_jsonl_tells_of_the_grammar(gen, files):
    lines = gen("A number:", *RUN, "-j", SCHEMA, "--format", "jsonl").lines
    assert lines[0]["grammar"] == {"kind": "json_schema", "root": "root", "source": SCHEMA}
    assert lines[-1]["finish_reason"] == "grammar"
    assert lines[-1]["complete"] is True
    assert lines[-1]["forced_tokens"] > 1
    plain = gen("A number:", *RUN, "-j", SCHEMA, "--format", "jsonl", "--no-jump").lines
    assert plain[-1]["forced_tokens"] == 0


def test_broken_off_and_closed(gen, files):
    broken = gen("A number:", "-t", "1", "-n", "1", "-j", SCHEMA)
    assert "does not complete the grammar" in broken.err
    assert "--grammar-complete" in broken.err
    closed = gen("A number:", "-t", "1", "-n", "1", "-j", SCHEMA, "--grammar-complete")
    assert json.loads(closed.out)
    assert not closed.err


def test_a_preset_names_its_files_from_its_folder(gen, files):
    (files / "sub").mkdir()
    (files / "sub" / "p.yaml").write_text("grammar: {file: ../yes.gbnf, root: other}\n")
    assert gen("x", *RUN, "-P", "sub/p.yaml").out == "no"
    assert "ok" in gen("presets", "check", "sub/p.yaml").out
    (files / "sub" / "q.yaml").write_text("grammar: {file: yes.gbnf}\n")
    assert "q.yaml: " in gen("presets", "check", "sub/q.yaml", code=2).err
    (files / "r.yaml").write_text("grammar: {file: bad.gbnf}\n")
    assert "bad.gbnf: line 2, column 6" in gen("presets", "check", "./r.yaml", code=2).err


@pytest.mark.bundled_model
def test_grammar_after(gen, files):
    text = gen("One two three", *RUN, "--temp", "0", "--grammar-after", "numbers", "--regex", " [xyz]{3}").out
    before, after = text.split("numbers", 1)
    assert before == "-digit "
    assert (after[0], after[1:].strip("xyz"), len(after)) == (" ", "", 4)


def test_why_a_text_is_not_whole(gen, files):
    never = gen("x", *RUN[:2], "-n", "3", "--regex", "a", "--grammar-after", "@@").err
    assert "3 tokens, see -n" in never
    assert "; the grammar begins after '@@'" in never
    stopped = gen("x", *RUN, "--grammar", 'root ::= "abc" [0-9]{5}', "--stop", "c").err
    assert "does not complete the grammar: the stop string 'c' was reached" in stopped


WRONG = {
    "two grammars": (["--regex", "a", "--grammar", "json"], "--grammar and --regex"),
    "an unknown name": (["--grammar", "jso"], "did you mean json?"),
    "a mistake": (["--grammar-file", "bad.gbnf"], "bad.gbnf: line 2, column 6"),
    "a mistake in what is shown": (["--show-config", "--grammar-file", "bad.gbnf"], "bad.gbnf: line 2, column 6"),
    "no such file": (["--grammar-file", "none.gbnf"], "none.gbnf: "),
    "a folder": (["--grammar-file", "grammars"], "grammars: "),
    "not JSON": (["-j", "{"], "gen: --json-schema: line 1, column 2"),
    "a keyword": (["-j", '{"uniqueItems": true}'], "gen: --json-schema: /uniqueItems: "),
    "lenient without a schema": (["--regex", "a", "--schema-lenient"], "schema_lenient"),
    "a regex": (["--regex", "a("], "gen: --regex: line 1, column 2"),
    "a token that is none": (["--grammar", "root ::= <nothing>"], "<nothing>"),
    "a root for a regex": (["--regex", "a", "--grammar-root", "b"], "GBNF"),
    "a root that is none": (["--grammar", "json", "--grammar-root", "objct"], "did you mean object?"),
    "after nothing": (["--regex", "a", "--grammar-after", ""], "empty"),
    "an unknown key": (["--set", "grammar={rgex: a}"], "'rgex'"),
    "no grammar to be lenient": (["--schema-lenient"], "--schema-lenient needs a grammar"),
    "a root without a grammar": (["--grammar-root", "a"], "--grammar-root needs a grammar"),
    "after without a grammar": (["--grammar-after", "a"], "--grammar-after needs a grammar"),
    "complete without a grammar": (["--grammar-complete"], "--grammar-complete needs a grammar"),
}


@pytest.mark.parametrize(("arguments", "named"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(gen, files, arguments, named):
    result = gen("x", "-t", "1", "-n", "3", *arguments, code=2)
    assert named in result.err
    assert not result.out


def test_lists_and_shows(gen, files):
    listing = gen("grammars").out
    assert "json_lines" in listing
    assert "My own" in listing
    assert gen("grammars", "show", "mine").out == '# My own\nroot ::= "mine"\n'


CHECKED = {
    "a name": (["json"], "[1]", ""),
    "a name alone": (["json"], "", ""),
    "a schema": (["schema.json", "--text", '{\n  "a": 5\n}'], "", ""),
    "a regex": (["digits.regex", "--text", "123"], "", ""),
    "a file of the text": (["json", "--text-file", "-"], "[1]\n", ""),
    "a wrong place": (["json", "--text", '{"a": 1,\n "b" 2}'], "", "line 2, column 6: '2' is not allowed here"),
    "a mark below wide characters": (["mine", "--text", "mi日本"], "", "\n  mi日本\n    ^"),
    "a mark behind wide characters": (["japanese", "--text", "日本x"], "", "\n  日本x\n      ^"),
    "a wrong text of a pipe": (["json"], "x", "'x' is not allowed here"),
    "an early end": (["json", "--text-file", "-"], "[1", "ends too early"),
    "an empty text": (["json", "--text", ""], "", "ends too early"),
}


@pytest.mark.parametrize(("arguments", "stdin", "fault"), CHECKED.values(), ids=CHECKED)
def test_texts_are_checked(gen, files, arguments, stdin, fault):
    result = gen("grammars", "check", *arguments, stdin=stdin, code=1 if fault else 0)
    assert fault in result.out


NOT_CHECKED = {
    "a mistake": (["bad.gbnf"], "line 2, column 6"),
    "no UTF-8": (["mine", "--text", b"\xff"], "UTF-8"),
    "a rule of a schema": (["schema.json", "--root", "x"], "--root"),
    "a rule of a regex": (["--regex", "a", "--root", "b"], "--regex: grammar: "),
    "no grammar": ([], "--regex"),
    "a name and a flag": (["json", "--regex", "a"], "--regex"),
    "two flags": (["-j", "{}", "--regex", "a"], "--json-schema and --regex"),
    "a lenient regex": (["digits.regex", "--schema-lenient"], "--schema-lenient"),
}


@pytest.mark.parametrize(("arguments", "named"), NOT_CHECKED.values(), ids=NOT_CHECKED)
def test_what_cannot_be_checked_is_refused(gen, files, arguments, named):
    assert named in gen("grammars", "check", *arguments, code=2).err


GRAMMAR_FLAGS = {
    "a regex": (["--regex", "a{2}"], "aa", "regex"),
    "a schema": (["-j", '{"const": 5}'], "5", "JSON Schema"),
    "a file": (["--grammar-file", "grammars/mine.gbnf"], "mine", "grammars/mine.gbnf"),
    "GBNF": (["--grammar", 'root ::= "a"'], "a", "grammar"),
    "a name": (["--grammar", "mine"], "mine", "grammar mine"),
    "a rule": (["--grammar", 'root ::= "a"\nother ::= "b"', "--grammar-root", "other"], "b", "grammar"),
}


@pytest.mark.parametrize(("flags", "sentence", "label"), GRAMMAR_FLAGS.values(), ids=GRAMMAR_FLAGS)
def test_the_flags_of_a_run_give_a_grammar_to_check_and_sample(gen, files, flags, sentence, label):
    assert gen("grammars", "sample", *flags).out == f"{sentence}\n"
    assert gen("grammars", "check", *flags, "--text", sentence).out == f"{label}: the text matches\n"


NOT_TWO = '{"enum": ["2", "3"], "pattern": "(?!2)"}'
LEFT_OUT = "gen: note: left out of the JSON Schema: /pattern\n"


def test_a_lenient_schema_lists_what_it_leaves_out(gen, home):
    (home / "work" / "s.json").write_text(NOT_TWO)
    assert gen("x", *RUN, "-j", NOT_TWO, "--schema-lenient", "--show-config").err == LEFT_OUT
    run = gen("x", *RUN, "-jf", "s.json", "--schema-lenient")
    assert (run.err, run.out in ('"2"', '"3"')) == (LEFT_OUT, True)
    for arguments in (["check", "s.json", "--text", '"3"'], ["sample", "s.json"]):
        assert "/pattern: " in gen("grammars", *arguments, code=2).err
        assert gen("grammars", *arguments, "--schema-lenient").err == LEFT_OUT
    shown = gen("grammars", "show", "s.json", "--schema-lenient").out
    assert json.loads(shown) == {"enum": ["2", "3"]}


def test_the_lines_of_a_batch_are_lenient_too(gen, home):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": json.loads(NOT_TWO)}}
    body = {"model": "x", "messages": [{"role": "user", "content": "x"}], "response_format": form, "max_tokens": 3}
    lines = [{"custom_id": i, "method": "POST", "url": "/v1/chat/completions", "body": body} for i in "ab"]
    lines.append({"id": "c", "prompt": "x", "json_schema": json.loads(NOT_TWO)})
    (home / "work" / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = gen("batch", "r.jsonl", "--format", "jsonl", "-t", "1", "--schema-lenient")
    assert {line["text"] for line in result.lines} <= {'"2"', '"3"'}
    assert result.err.count(LEFT_OUT) == 1
    refused = gen("batch", "r.jsonl", "--format", "jsonl", "-t", "1", code=1)
    assert all("/pattern: " in line["error"]["message"] for line in refused.lines)


OPEN = '"properties": {"a": {"enum": [1]}}, "required": ["a"]'
CLOSED = '"additionalProperties": false'
HINT = 'gen: note: the JSON Schema allows other keys too{}; "additionalProperties": false forbids them\n'
OPEN_SCHEMAS = {
    "open": (f"{{{OPEN}}}", HINT.format("")),
    "closed": (f"{{{OPEN}, {CLOSED}}}", ""),
    "open below": (
        f'{{"properties": {{"b": {{"items": {{{OPEN}}}}}}}, {CLOSED}}}',
        HINT.format(" at /properties/b/items"),
    ),
    "no object": ('{"type": "integer"}', ""),
}


@pytest.mark.parametrize(("schema", "hint"), OPEN_SCHEMAS.values(), ids=OPEN_SCHEMAS)
def test_a_schema_that_is_open_is_hinted_at(gen, schema, hint):
    assert gen("x", *RUN, "-j", schema, "--show-config").err == hint


def test_an_unknown_format_is_noted(gen, files):
    (files / "bytes.json").write_text('{"items": {"type": "string", "format": "phone"}}')
    result = gen("grammars", "check", "bytes.json", "--text", '["YQ=="]')
    assert "left out of the JSON Schema: /items/format" in result.err


def test_samples_match_their_grammar(gen, files):
    one, two = gen("grammars", "sample", "number", "-n", "2", "--seed", "4").out.splitlines()
    assert gen("grammars", "sample", "number", "--seed", "4").out == one + "\n"
    for text in (one, two):
        assert gen("grammars", "check", "number", "--text", text).out.endswith("matches\n")
    for name in ("schema.json", "digits.regex", "two.lark"):
        for text in gen("grammars", "sample", name, "-n", "3").out.splitlines():
            assert gen("grammars", "check", name, "--text", text).out.endswith("matches\n")
    assert "--schema-lenient is for" in gen("grammars", "sample", "digits.regex", "--schema-lenient", code=2).err
