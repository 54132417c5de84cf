"""`gen decide`: questions about a text and about tables, resumed tables, calibrations, and what is wrong."""

import csv
import io
import json

import numpy as np
import pytest
from logitsmith.cli.render.decisions import show_answers
from logitsmith.decide import DecideSettings, Decision, Usage, choice, predicate, read_questions
from logitsmith.decide.answers import Measurement, answer as answer_of
from logitsmith.decide.reading import OptionReading, SpellingReading
from logitsmith.jobs.decisions import CsvResults, CsvRows, DecisionPlan, JsonRows, Row
from logitsmith.jobs.journal import settings_differences
from logitsmith.requests.errors import InvalidLineError
from logitsmith.requests.recorded_settings import ModelDescription

from ..engine.small_models import write_model

pytestmark = pytest.mark.usefixtures("with_pruned_model")

ONE = ("-t", "1", "-c", "512")
TEXT = "I was charged twice."
ANGRY = ("--predicate", "The customer is angry.")
TOPIC = ("--choice", "What is it about?", "--options", "billing", "--options", "No", "--option", "None")
LEVELS = ("--score", "How urgent is it?", "--levels", "low", "--levels", "mid", "--level", "high")
QUESTIONS = """\
questions:
  - name: topic
    type: choice
    instructions: What is it about?
    choices: [billing, 3, {value: No, description: x}]
  - {name: angry, type: predicate, instructions: The customer is angry.}
  - {name: urgency, type: score, instructions: "How urgent is it?", levels: [low, high]}
"""


@pytest.fixture
def work(home):
    folder = home / "work"
    (folder / "q.yaml").write_text(QUESTIONS)
    return folder


def decided(gen, *arguments):
    return json.loads(gen("decide", TEXT, *arguments, *ONE, "--format", "json").out)


def test_a_choice_as_json(gen):
    found = decided(gen, *TOPIC)
    (answer,) = found["answers"]
    assert answer["type"] == "choice"
    assert [one["value"] for one in answer["probabilities"]] == ["billing", "No", "None"]
    assert sum(one["probability"] for one in answer["probabilities"]) == pytest.approx(1)
    assert answer["choice"] == max(answer["probabilities"], key=lambda one: one["probability"])["value"]
    assert found["usage"]["input_tokens"] > 0
    assert found["exactness"] in ("exact", "to rounding")
    assert "tokens" not in answer


def test_several_questions_of_a_file_in_yaml_and_json(gen, work):
    (topic, angry, urgency) = decided(gen, "--questions", "q.yaml")["answers"]
    assert [one["value"] for one in topic["probabilities"]] == ["billing", 3, "No"]
    assert 0 <= angry["probability"] <= 1
    assert 0 <= urgency["score"] <= 1
    alone = {"questions": [{"name": "angry", "type": "predicate", "instructions": "The customer is angry."}]}
    (work / "q.json").write_text(json.dumps(alone, indent="\t"))
    (again,) = decided(gen, "--questions", "q.json")["answers"]
    assert again["logprobs"] == pytest.approx(angry["logprobs"], abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "piped"),
    [((TEXT,), ""), (("-f", "mail.txt"), ""), ((), TEXT + "\n"), (("-",), TEXT), (("-p", TEXT), "")],
)
def test_the_sources_of_the_text(gen, work, arguments, piped):
    (work / "mail.txt").write_text(TEXT + "\n")
    found = json.loads(gen("decide", *arguments, *ANGRY, *ONE, "--format", "jsonl", stdin=piped).out)
    assert found == decided(gen, *ANGRY)


def test_bars_for_a_person(gen_server, environment, home, pruned_model):
    words = ("decide", TEXT, *LEVELS, *ONE, "--permutations", "2", "--min-confidence", "1")
    pages = {
        60: f"  high  1.00 ± 0.00  {'█' * 39}",
        40: f"  high  1.00 ± 0.00  {'█' * 19}",
        24: "  high  1.00 ± 0.00",
    }
    for columns, best in pages.items():
        screen, code = gen_server.run_on_terminal(
            words, columns=columns, cwd=home / "work", env={**environment, "COLUMNS": str(columns)}, timeout=60
        )
        assert code == 0, screen
        lines = [line.rstrip() for line in screen.splitlines()]
        assert lines[:4] == ["How urgent is it?", "  low   0.00 ± 0.00", "  mid   0.00 ± 0.00", best]
        assert " ".join(lines[4:]).replace("  ", " ").startswith(" mean 2.00 of 0 to 2")
        assert "rather write something else" in " ".join(" ".join(lines).split())


def test_the_most_probable_option_is_the_first(gen):
    lines = gen("decide", TEXT, *TOPIC, *ONE).out.splitlines()
    assert lines[0] == "What is it about?"
    shares = [float(line.split()[1]) for line in lines[1:4]]
    assert shares == sorted(shares, reverse=True)
    many = [word for number in range(30) for word in ("--options", f"a{number}b")]
    assert "  10 others: " in gen("decide", TEXT, "--choice", "Which?", *many, *ONE).out


def test_the_tokens_behind_a_number(gen):
    (answer,) = decided(gen, *ANGRY, "--trace")["answers"]
    (yes, _) = answer["tokens"]
    spelled = yes[0]
    assert sum(spelled["token_logprobs"]) + spelled["end_logprob"] == pytest.approx(spelled["logprob"])
    assert "log values" not in gen("decide", TEXT, *ANGRY, *ONE, "--trace").out


@pytest.mark.parametrize("method", ["sequence", "grammar"])
def test_the_log_values_behind_a_mean_without_the_prior(gen, method):
    asked = (*TOPIC, "--permutations", "2", "--prior", "N/A", "--trace", "--method", method)
    (answer,) = decided(gen, *asked)["answers"]
    values = np.array(answer["log_values"]) - np.array(answer["prior_log_values"])
    shares = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    assert [one["probability"] for one in answer["probabilities"]] == pytest.approx(list(shares.mean(axis=0)))
    if method == "sequence":
        assert answer["log_values"][0] == answer["logprobs"]
        shown = " ".join(gen("decide", TEXT, *asked, *ONE).out.split())
        assert "tokens with logprobs" in shown
        assert f"prior, order 2 No {answer['prior_log_values'][1][1]:.2f}, None" in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (ANGRY, 10),
        (("--predicate", "x", "--prior", TEXT), 0),  # divided by itself: 0.5 each
        ((*ANGRY, "--min-confidence", "0.5"), 10),
        (("--predicate", "x", "--prior", TEXT, "--min-confidence", "0.6"), 11),
        (TOPIC, 0),
        ((*LEVELS, "--prior", TEXT, "--min-confidence", "0.5"), 11),
    ],
)
def test_exit_codes(gen, arguments, code):
    gen("decide", TEXT, *arguments, *ONE, "--exit-code", code=code)


def test_a_model_without_a_chat_template_gets_a_plain_prompt(gen, work):
    (work / "t.jinja").write_text(
        "{{ input }}|{{ question }}|{% for one in options %}{{ one.label }},{% endfor %}"
    )
    plain, chat = (decided(gen, *ANGRY, "--prompt-template", "t.jinja", flag) for flag in ("--no-chat", "--chat"))
    assert plain["usage"]["input_tokens"] < chat["usage"]["input_tokens"]


CSV = (
    '\ufeff"id";body;"note"\n1;"I was charged twice!";a\n'
    '2;"It is broken,\nplease; help";b\n3;x\n\n4;"";"say ""hi"""\n'
)


def rows_of(path, delimiter=";"):
    with path.open(newline="") as file:
        return list(csv.reader(file, delimiter=delimiter, strict=True))


def test_a_table_of_excel(gen, work):
    (work / "mails.csv").write_text(CSV)
    table = ("decide", "--table", "mails.csv", "--column", "body", "--questions", "q.yaml", *ONE)
    result = gen(*table, "-o", "out.csv", "-np", "3", "--min-confidence", "0.9", code=1)
    assert "3 answered, 1 failed" in result.err
    header, *rows = rows_of(work / "out.csv")
    names = [f"{name}{end}" for name in ("topic", "angry", "urgency") for end in ("", "_confidence", "_unsure")]
    assert header == ["id", "body", "note", *names, "error"]
    assert [row[:3] for row in rows] == [
        ["1", "I was charged twice!", "a"],
        ["2", "It is broken,\nplease; help", "b"],
        ["3", "x", ""],
        ["4", "", 'say "hi"'],
    ]
    assert rows[2][3:] == [""] * 9 + ["line 5: it has 2 fields, and the first row names 3"]
    assert all(row[5] in ("true", "false") and 0 <= float(row[6]) <= 1 for row in rows if not row[-1])
    lines = gen(*table, "--format", "jsonl", "-np", "1", code=1).lines
    assert [line["id"] for line in lines] == ["1", "2", "3", "4"]
    assert lines[0]["answers"][1]["probability"] == pytest.approx(float(rows[0][6]), abs=1e-3)
    again = gen("decide", "--table", "out.csv", "--column", "note", *ANGRY, *ONE, code=2)
    assert 'the results need a column "error", and there is one already' in again.err


def test_a_table_of_json_lines(gen, work):
    rows = [{"text": TEXT, "id": 1}, {"text": 3}, {"text": "x", "answers": []}, {"a": 1, "b": 2}, {"only": "x"}]
    (work / "in.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows) + '{"text": NaN}\n[]\n{"text": 1e400}\n'
    )
    found = gen("decide", "--table", "in.jsonl", *ANGRY, *ONE, "--trace", code=1).lines
    assert [bool(line["answers"]) for line in found] == [True, *[False] * 7]
    assert found[0] | {"answers": None} == rows[0] | {"answers": None, "error": None}
    messages = [line["error"]["message"] for line in found if line["error"]]
    for message, part in zip(
        messages,
        ["not a string", "rename", '"a", "b"', '"only"', "not JSON", "an object", "too large"],
        strict=True,
    ):
        assert part in message
    without_text = gen("decide", "--table", "-", *ANGRY, *ONE, stdin='{"a": 1, "b": 2}\n{"text": "x"}\n', code=2)
    assert 'stdin: line 1: there is no field "input" or "text", but "a", "b"' in without_text.err
    piped = gen("decide", "--table", "-", *ANGRY, *ONE, stdin=json.dumps(rows[0]) + "\n").lines
    assert piped[0]["answers"][0]["probability"] == pytest.approx(found[0]["answers"][0]["probability"])


def write_table(path, count=12):
    texts = [TEXT, "", "Please hurry, the printer is on fire!\nNow.", "It is said that the sea was calm." * 3]
    rows = [{"n": number, "text": texts[number % len(texts)] + str(number)} for number in range(count)]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with path.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([["n", "text"], *[row.values() for row in rows]])


def test_eight_at_a_time_are_one_at_a_time_to_rounding(gen, work):
    write_model(work / "f32.gguf", "llama")
    write_table(work / "in")
    table = ("decide", "-m", "f32.gguf", "--table", "in.jsonl", "--questions", "q.yaml", *ONE)
    alone, together = (gen(*table, "-np", number).lines for number in ("1", "8"))
    assert [line["n"] for line in together] == list(range(12))
    for one, other in zip(alone, together, strict=True):
        for answer, other_answer in zip(one["answers"], other["answers"], strict=True):
            assert answer["logprobs"] == pytest.approx(other_answer["logprobs"], abs=1e-3)


@pytest.mark.parametrize("kind", ["csv", pytest.param("jsonl", marks=pytest.mark.slow)])
def test_a_table_that_was_cut_off_anywhere_is_continued(gen, work, kind):
    write_table(work / "in", 6)
    table = ("decide", "--table", f"in.{kind}", *ANGRY, *ONE, "-np", "1", "-o")
    gen(*table, f"whole.{kind}")
    whole = (work / f"whole.{kind}").read_bytes()
    settings = (work / f"whole.{kind}.settings.json").read_bytes()
    for share in (0.0, 0.05, 0.4, 0.45, 0.8, 0.999, 1.0):
        (work / f"cut.{kind}").write_bytes(whole[: int(len(whole) * share)])
        (work / f"cut.{kind}.settings.json").write_bytes(settings)
        gen(*table, f"cut.{kind}", "--resume")
        assert (work / f"cut.{kind}").read_bytes() == whole, share


def test_results_of_another_run_are_not_continued(gen, work):
    write_table(work / "in", 3)
    table = ("decide", "--table", "in.jsonl", *ONE, "-o", "out.jsonl")
    gen(*table, *ANGRY)
    for arguments, reason in {
        ANGRY: "out.jsonl already exists; continue it with --resume",
        (*ANGRY, "--resume", "--method", "grammar"): 'made with method "sequence", now "grammar"',
        (*LEVELS, "--resume"): "made with another question list",
        (*ANGRY, "--resume", "--no-chat"): "made with chat none, now false",
        (*ANGRY, "--resume", "--prior", ""): 'made with prior none, now ""',
    }.items():
        assert reason in gen(*table, *arguments, code=1).err
    settings = work / "out.jsonl.settings.json"
    content = settings.read_text()
    settings.write_text("{")
    damaged = gen(*table, *ANGRY, "--resume", code=1)
    assert "does not contain settings of results; name another file with -o" in damaged.err
    settings.unlink()
    missing = gen(*table, *ANGRY, "--resume", code=1)
    assert "which says how out.jsonl was made, is missing; name another file with -o" in missing.err
    settings.write_text(content)
    (work / "in.jsonl").write_text('{"text": "another"}\n')
    assert "line 1 belongs to another row" in gen(*table, *ANGRY, "--resume", code=1).err
    (work / "in.jsonl").write_text('{"n": 0, "text": "I was charged twice.0"}\n')
    assert "2 rows more than the table has" in gen(*table, *ANGRY, "--resume", code=1).err


FIRST, SECOND = {"type": "predicate", "instructions": "a"}, {"type": "predicate", "instructions": "b"}


@pytest.mark.parametrize(
    ("questions", "others"),
    [
        ([FIRST], [SECOND]),
        ([FIRST, SECOND], [SECOND, FIRST]),
        ([FIRST, SECOND], [FIRST]),
        ([FIRST | {"name": "2"}, SECOND], [FIRST | {"name": "3"}, SECOND]),
        ([FIRST | {"name": "2"}, SECOND], [FIRST | {"name": "2"}, FIRST]),
    ],
)
def test_questions_in_another_order_or_of_another_name_are_other_questions(questions, others):
    model = ModelDescription("a", {"fingerprint": "1"}, {})
    found = [DecisionPlan(read_questions(each)).recorded_settings(model, {}) for each in (questions, others)]
    assert settings_differences(*found) == ["another question list"]


def texts_of(*rows, column=None):
    file = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    with JsonRows(column).open(file) as found:
        return [row.text if row.error is None else str(row.error) for row in found]


@pytest.mark.parametrize(
    ("rows", "second"),
    [
        (({"input": "x", "id": "1"}, {"id": "17"}), 'there is no field "input", but "id"; --column names another'),
        (({"text": "x"}, {"input": "y"}), 'there is no field "text", but "input"; --column names another'),
        (({"text": "x"}, {"input": "y", "text": "z"}), "z"),
        (({"mail": "x"}, {"mail": "y", "id": "1"}), "y"),
        (({"mail": "x"}, {"input": "y"}), 'there is no field "mail", but "input"; --column names another'),
        (({"mail": "x"}, {}), 'there is no field "mail", but none; --column names another'),
    ],
)
def test_the_first_row_says_which_field_has_the_texts_of_all(rows, second):
    assert texts_of(*rows) == ["x", second]
    assert texts_of(3, *rows) == ["it is not an object", "x", second]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("text", None), 'the results need a column "text", and there is one already; rename it, or the question'),
        (("a", "a_confidence"), 'the results would have two columns "a_confidence"; rename a question'),
        (("answer_2", None), 'the results would have two columns "answer_2"; rename a question'),
        (("error", None), 'the results would have two columns "error"; rename a question'),
    ],
)
def test_a_column_that_the_results_would_have_twice(names, reason):
    questions = [predicate("It rains.", name) for name in names]
    with pytest.raises(InvalidLineError, match=reason):
        CsvResults(CsvRows(["text"], ",", None), DecisionPlan(questions))


def test_a_fit_and_its_use(gen, work):
    rows = [{"input": f"{TEXT} {number}", "labels": {"angry": number % 2 == 0}} for number in range(8)]
    (work / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (work / "one.yaml").write_text("- {name: angry, type: predicate, instructions: The customer is angry.}\n")
    fit = ("decide", "--fit", "labelled.jsonl", "--questions", "one.yaml", *ONE, "-o", "cal.json")
    result = gen(*fit, "--fit-bias")
    assert [line.split()[0] for line in result.out.splitlines()[3:]] == ["accuracy", "log", "brier", "ece"]
    assert "few have one of the options" in result.err
    stored = json.loads((work / "cal.json").read_text())
    (plain,) = decided(gen, "--questions", "one.yaml")["answers"]
    (calibrated,) = decided(gen, "--questions", "one.yaml", "--calibration", "cal.json")["answers"]
    assert calibrated["logprobs"] == plain["logprobs"]
    assert abs(calibrated["probability"] - 0.5) < abs(plain["probability"] - 0.5)
    assert stored["questions"][0]["question"]["name"] == "angry"
    refused = gen("decide", TEXT, *TOPIC, *ONE, "--calibration", "cal.json", code=1)
    assert "the calibration has no question like" in refused.err
    (work / "labelled.jsonl").write_text('{"input": "x", "label": "yes"}\n{"input": "x", "label": "maybe"}\n')
    assert "labelled.jsonl: line 2: label: 'maybe' is not" in gen(*fit, code=2).err


@pytest.mark.parametrize(
    ("output", "reason", "code"),
    [
        ("no/cal.json", "no/cal.json: there is no folder no", 1),
        (".", "it is a folder, not a file", 1),
        ("labelled.jsonl", "-o and --fit are the same file", 2),
        ("q.yaml", "-o and --questions are the same file", 2),
        ("letter.txt", "-o would replace letter.txt, which is no calibration; name another file", 2),
    ],
)
def test_a_calibration_that_cannot_be_written_is_refused_before_a_model_is_looked_for(
    gen, work, output, reason, code
):
    (work / "labelled.jsonl").write_text('{"input": "x", "label": "yes"}\n')
    (work / "letter.txt").write_text(TEXT)
    fit = ("decide", "--fit", "labelled.jsonl", "--questions", "q.yaml", "-m", "none.gguf", "-o", output)
    assert reason in gen(*fit, code=code).err
    assert (work / "letter.txt").read_text() == TEXT


def read_answer(question, shares, undecided=0.0):
    """The answer to a question by the method grammar."""
    spellings = tuple((SpellingReading(option.label, (), 0.0),) for option in question.options)
    reading = OptionReading(spellings, (), tuple(shares), undecided)
    return answer_of(question, [Measurement(tuple(range(len(shares))), reading)])


def test_what_a_grammar_left_undecided_is_shown(capsys):
    question = predicate("It rains.", "wet")
    answers = [read_answer(question, (0.75, 0.25), undecided) for undecided in (0.125, 1e-10)]
    show_answers(answers[:1])
    assert "undecided 0.12: texts with this probability were not followed" in capsys.readouterr().out
    show_answers(answers[1:])
    assert "undecided" not in capsys.readouterr().out
    plan = DecisionPlan([question], DecideSettings(method="grammar", min_confidence=0.5))
    results = CsvResults(CsvRows(["text"], ",", None), plan)
    line = results.line(Row(2, {"text": "a"}, ""), Decision(answers[:1], Usage(), None))
    assert results.header == "text,wet,wet_confidence,wet_unsure,wet_undecided,error"
    assert line == "a,0.75,0.75,null,0.125,"


def test_one_option_that_is_not_shown_is_one_other(capsys):
    show_answers([read_answer(choice("Which?", list(range(21))), [1 / 21] * 21)])
    assert "  1 other: 0.05 together" in capsys.readouterr().out


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcde", "bcdef", strict=True)
)
FILES = {
    "bomb.yaml": BOMB,
    "tag.yaml": "- !!python/object/apply:os.system [ls]\n",
    "self.yaml": "questions: &q [*q]\n",
    "empty.yaml": "",
    "nan.yaml": '- {type: choice, instructions: "?", choices: [.nan, 1]}\n',
    "field.yaml": '- {type: predicate, instructions: "?", nam: x}\n',
    "many.yaml": '- {type: predicate, instructions: "?"}\n' * 401,
    "long.yaml": f'- {{type: predicate, instructions: "{"a " * 600}"}}\n',
    "bad.jinja": "{% for x in y %}",
    "short.jinja": "{{ input }}",
    "nothing.jsonl": "\n",
    "nothing.csv": "",
    "heading.csv": "text\n",
    "twice.csv": "text,text\n1,2\n",
    "taken.csv": "text,answer\n1,2\n",
    "columns.csv": "a;b\n1;2\n",
    "rows.jsonl": '{"text": "x"}\n',
    "two.yaml": '- {type: predicate, instructions: "?"}\n' * 2,
    "cal.json": "{",
}
OPTIONS = ("--options", "A", "--options", "B")
WRONG = {
    "no question": ((), "there is no question"),
    "two kinds of question": ((*ANGRY, *TOPIC), "--predicate and --choice are given"),
    "a choice without options": (("--choice", "x"), "--choice needs --options"),
    "options without a choice": ((*ANGRY, *OPTIONS), "--options needs --choice"),
    "levels without a score": ((*ANGRY, "--levels", "a"), "--levels needs --score"),
    "one option": (("--choice", "x", "--options", "A"), "--options: it has 1 option, and 2 to 255 are allowed"),
    "equal options": (("--choice", "x", "--options", "Yes", "--options", ' "yes" '), "are equal without blanks"),
    "an empty option": (("--choice", "x", "--options", "A", "--options", " "), "empty without blanks"),
    "an empty statement": (("--predicate", " "), "--predicate: the text of the question is empty"),
    "256 options": (
        ("--choice", "x", *[word for number in range(256) for word in ("--options", str(number))]),
        "it has 256 options, and 2 to 255 are allowed",
    ),
    "401 questions": (("--questions", "many.yaml"), "many.yaml: there are 401 questions, and 1 to 400"),
    "no questions": (("--questions", "empty.yaml"), "empty.yaml: there is no list of questions"),
    "a missing file": (("--questions", "none.yaml"), "none.yaml"),
    "a bomb": (("--questions", "bomb.yaml"), "expand to more than 100000 values"),
    "a tag": (("--questions", "tag.yaml"), "the tag !!python/object/apply:os.system is not allowed"),
    "an anchor of itself": (("--questions", "self.yaml"), "self.yaml"),
    "no json": (("--questions", "cal.json"), "cal.json: line 1, column 2: it is not JSON"),
    "not a number": (("--questions", "nan.yaml"), "nan.yaml: questions[0].choices[0]: nan is not JSON"),
    "an unknown field": (("--questions", "field.yaml"), "did you mean name?"),
    "a wrong template": ((*ANGRY, "--prompt-template", "bad.jinja"), "--prompt-template: "),
    "a share that is none": ((*ANGRY, "--min-confidence", "nan"), "--min-confidence: nan is not within 0..1"),
    "no orders": ((*ANGRY, "--permutations", "0"), "--permutations: 0 is not within 1.."),
    "an exit code of two questions": (("--questions", "two.yaml", "--exit-code"), "there are 2"),
    "csv of a text": ((*ANGRY, "--format", "csv"), "--format csv needs --table"),
    "a file of results of a text": ((*ANGRY, "-o", "x"), "-o needs --table or --fit"),
    "reasoning without a chat": ((*ANGRY, "--reasoning-budget", "9", "--no-chat"), "omit --no-chat"),
}
WRONG_ROWS = {
    "an exit code of a table": (("rows.jsonl", "--exit-code"), "--exit-code is for a single input"),
    "a text and a table": (("rows.jsonl", TEXT), "there are a text and a file of rows"),
    "an empty table": (("nothing.jsonl",), "nothing.jsonl has no rows"),
    "an empty pipe": (("-", "-c", "512"), "stdin has no rows"),
    "an empty csv": (("nothing.csv",), "nothing.csv: the file is empty; its first row names the columns"),
    "a csv without rows": (("heading.csv",), "heading.csv has no rows"),
    "two equal columns": (("twice.csv",), 'two columns are named "text"'),
    "a column of the results": (("taken.csv",), 'the results need a column "answer"'),
    "an unknown column": (("columns.csv",), 'no column "input" or "text", but "a", "b"; --column names another'),
    "a wrong column": (("columns.csv", "--column", "c"), 'there is no column "c", but "a", "b"'),
    "a field that the first row lacks": (
        ("rows.jsonl", "--column", "c"),
        'rows.jsonl: line 1: there is no field "c", but "text"; --column names another',
    ),
    "json of a table": (("rows.jsonl", "--format", "json"), "results of a table are jsonl or csv"),
    "csv of json": (("rows.jsonl", "--format", "csv"), "--format csv needs a table in CSV"),
    "resuming stdout": (("rows.jsonl", "--resume"), "--resume needs a file of results"),
    "overwriting the table": (("rows.jsonl", "-o", "rows.jsonl"), "-o and --table are the same file, rows.jsonl"),
    "tokens in csv": (("columns.csv", "--trace"), "--trace needs --format jsonl"),
}


@pytest.fixture
def with_files(work):
    for name, content in FILES.items():
        (work / name).write_text(content)


@pytest.mark.usefixtures("with_files")
@pytest.mark.parametrize(("arguments", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_usage(gen, arguments, reason):
    result = gen("decide", TEXT, *arguments, code=2)
    assert reason in result.err
    assert not result.out
    assert len(result.err.splitlines()) == 1


@pytest.mark.usefixtures("with_files")
@pytest.mark.parametrize(("arguments", "reason"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_wrong_tables(gen, arguments, reason):
    result = gen("decide", "--table", *arguments, *ANGRY, code=2)
    assert reason in result.err
    assert not result.out


@pytest.mark.usefixtures("with_files")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("--questions", "long.yaml"),
            "a ': the prompt has 679 tokens and the context holds 512; shorten it, or give a larger -c",
        ),
        (
            ("--choice", "Which?", "--options", "b " * 500, "--options", "A"),
            "'Which?': the prompt has ",
        ),
        (
            ("--choice", "Which?", "--options", "b " * 500, "--options", "A", "--prompt-template", "short.jinja"),
            "tokens, the option 'b b b",
        ),
        ((*ANGRY, "--calibration", "cal.json"), "cal.json: it is not JSON"),
        ((*ANGRY, "--calibration", "none.json"), "none.json"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(gen, arguments, reason):
    result = gen("decide", TEXT, *arguments, *ONE, code=1)
    assert reason in result.err
    assert not result.out
