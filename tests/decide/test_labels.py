"""Labels of rows, and the labelled messages of the examples."""

import json
import subprocess
import sys

import pytest
import yaml
from logitsmith.decide import QuestionError, choice, label_indices, predicate, read_questions, score

from ..examples.conftest import EXAMPLES

ANGRY = predicate("The customer is angry.", "angry")
TOPIC = choice("What is it about?", ["billing", 7, None, True, 1.5], "topic")
URGENCY = score("How urgent?", ["low", "mid", "high"], "urgency")
STARS = score("How many stars?", ["1", "2", "3"], "stars")


@pytest.mark.parametrize(
    ("question", "label", "number"),
    [
        (ANGRY, True, 0),
        (ANGRY, False, 1),
        (ANGRY, "Yes", 0),
        (ANGRY, " no", 1),
        (ANGRY, "TRUE", 0),
        (ANGRY, None, None),
        (ANGRY, "", None),
        (TOPIC, " ", None),
        (TOPIC, "billing", 0),
        (TOPIC, '"Billing"', 0),
        (TOPIC, 7, 1),
        (TOPIC, "7", 1),
        (TOPIC, None, 2),
        (TOPIC, True, 3),
        (TOPIC, 1.5, 4),
        (URGENCY, "mid", 1),
        (URGENCY, 0, 0),
        (URGENCY, 2.0, 2),
        (URGENCY, "2", 2),
        (STARS, 1, 0),
        (STARS, "3", 2),
        (STARS, None, None),
    ],
)
def test_a_label_is_the_number_of_an_option(question, label, number):
    assert label_indices([question], {"input": "", "label": label}) == [number]
    assert label_indices([ANGRY, question], {"labels": {question.name: label}})[question != ANGRY] == number


@pytest.mark.parametrize(
    ("questions", "row", "message"),
    [
        ([ANGRY], {"label": "maybe"}, "label: 'maybe' is not Yes, No, true or false"),
        ([ANGRY], {"label": 1}, "label: 1 is not Yes, No, true or false"),
        ([TOPIC], {"label": 8}, "label: 8 is not billing, 7, null, true or 1.5"),
        ([TOPIC], {"label": float("nan")}, "label: nan is not JSON"),
        ([TOPIC], {"label": ["billing"]}, r"label: \['billing'\] is not billing, 7"),
        ([URGENCY], {"label": 3}, "label: 3 is not low, mid, high or a number from 0 to 2"),
        ([URGENCY], {"label": -1}, "label: -1 is not low, mid, high or a number"),
        ([URGENCY], {"label": True}, "label: true is not low, mid, high or a number"),
        ([STARS], {"label": 0}, "label: 0 is not 1, 2 or 3"),
        ([choice("Which?", list(range(100)))], {"label": 100}, "19 or one of 80 more"),
        ([ANGRY, TOPIC], {"label": True}, 'label: there are 2 questions; give "labels"'),
        ([ANGRY], {"labels": {"angy": True}}, "labels: unknown question 'angy'; did you mean angry"),
        ([ANGRY, URGENCY], {"labels": {"angry": "yes", "urgency": "top"}}, "labels.urgency: 'top' is not low"),
        ([ANGRY], {"labels": [True]}, r"labels: \[true\] is not an object"),
        ([ANGRY], {"input": ""}, 'there is neither "label" nor "labels"'),
        ([ANGRY], {"label": True, "labels": {}}, 'there are both "label" and "labels"'),
    ],
)
def test_a_wrong_label(questions, row, message):
    with pytest.raises(QuestionError, match=message):
        label_indices(questions, row)


def test_the_labelled_messages_of_the_examples():
    lines = (EXAMPLES / "decide" / "labelled.jsonl").read_text()
    made = subprocess.run([sys.executable, EXAMPLES / "decide" / "messages.py"], capture_output=True, check=True)
    assert made.stdout.decode() == lines
    rows = [json.loads(line) for line in lines.splitlines()]
    questions = read_questions(yaml.safe_load((EXAMPLES / "decide" / "questions.yaml").read_text()))
    labels = [tuple(label_indices(questions, row)) for row in rows]
    assert len({row["input"] for row in rows}) == 240
    assert {pair: labels.count(pair) for pair in labels} == {(a, b): 40 for a in range(2) for b in range(3)}
