"""Questions that can be asked, and those that cannot."""

import pytest
from logitsmith.decide import QuestionError, choice, predicate, read_questions, score
from logitsmith.decide.spellings import spellings_of


def of_choices(*values):
    return {"type": "choice", "instructions": "Which?", "choices": list(values)}


def of_levels(*values):
    return {"type": "score", "instructions": "How?", "levels": list(values)}


@pytest.mark.parametrize(
    ("record", "question"),
    [
        pytest.param({"type": "predicate", "instructions": "Wet?"}, predicate("Wet?"), id="predicate"),
        pytest.param(of_choices("a", "b"), choice("Which?", ["a", "b"]), id="bare values"),
        pytest.param(of_choices({"value": "a"}, {"value": "b"}), choice("Which?", ["a", "b"]), id="tables"),
        pytest.param(of_choices(True, 1, None), choice("Which?", [True, 1, None]), id="JSON types"),
        pytest.param(of_choices("No", "None"), choice("Which?", ["No", "None"]), id="one begins another"),
        pytest.param(
            of_levels({"label": "low", "description": "little"}, "high"),
            score("How?", ["low", "high"], descriptions=["little", None]),
            id="levels",
        ),
    ],
)
def test_questions_are_read(record, question):
    assert read_questions([record]) == [question]
    assert read_questions({"questions": [record]}) == [question]
    assert read_questions([question.as_json()]) == [question]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        pytest.param("x", "questions[0]: 'x' is not a table", id="no table"),
        pytest.param({"type": "chioce"}, "questions[0].type: 'chioce' is not predicate, choice", id="type"),
        pytest.param({"type": "predicate"}, 'there is no "instructions"', id="no text"),
        pytest.param({"type": "predicate", "instructions": " "}, "is empty", id="an empty text"),
        pytest.param({"type": "predicate", "instructions": 3}, "instructions: 3 is not a text", id="a number"),
        pytest.param({"type": "choice", "instructions": "x"}, "choices: a choice needs a list", id="no choices"),
        pytest.param(of_choices(), "choices: it has 0 options, and 2 to 255 are allowed", id="none"),
        pytest.param(of_choices("a"), "choices: it has 1 option, and", id="one"),
        pytest.param(of_choices(*range(256)), "it has 256 options", id="too many"),
        pytest.param(of_choices("Yes", ' "yes" '), "choices[1]: ' \"yes\" ' and 'Yes' are equal", id="equal"),
        pytest.param(of_choices("true", True), "are equal", id="equal as texts"),
        pytest.param(of_choices("a", ' "" '), "choices[1]: it is empty", id="an empty option"),
        pytest.param(of_choices("a", float("nan")), "choices[1]: nan is not JSON", id="NaN"),
        pytest.param(of_choices("a", "\ud800"), "half of a surrogate pair", id="half a surrogate pair"),
        pytest.param(
            {"type": "predicate", "instructions": "\ud800"},
            "instructions: it holds half",
            id="half a pair in the text",
        ),
        pytest.param(of_levels("a"), "levels: it has 1 level, and", id="one level"),
        pytest.param(
            of_choices("a", {"valeu": "b"}),
            'choices[1]: there is no "value"; an option is its value, or {value: …, description: …}',
            id="no value",
        ),
        pytest.param(of_choices("a", {"value": "b", "descripton": "x"}), "description", id="an unknown field"),
        pytest.param(of_levels("a", 3), "levels[1].label: 3 is not a text", id="a level that is no text"),
        pytest.param(of_choices("a", "b") | {"levels": []}, "the field 'levels' is unknown", id="a foreign field"),
    ],
)
def test_wrong_questions_are_refused(record, message):
    with pytest.raises(QuestionError) as error:
        read_questions([record])
    assert message in str(error.value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([], id="none"),
        pytest.param([{"type": "predicate", "instructions": "x"}] * 401, id="too many"),
        pytest.param({"question": []}, id="no list"),
        pytest.param([{"type": "predicate", "instructions": "x", "name": "n"}] * 2, id="a name twice"),
    ],
)
def test_wrong_lists_are_refused(value):
    with pytest.raises(QuestionError):
        read_questions(value)


def test_unknown_fields_may_be_reported():
    found = []
    record = of_choices("a", {"value": "b", "x": 1}) | {"y": 2}
    (question,) = read_questions([record], lambda place, known: found.append(place))
    assert len(question.options) == 2
    assert sorted(found) == [("questions", 0, "choices", 1, "x"), ("questions", 0, "y")]


@pytest.mark.parametrize(
    ("label", "bare"),
    [
        pytest.param("yes", ["yes", "YES", "Yes"], id="small"),
        pytest.param("New York", ["New York", "new york", "NEW YORK", "New york"], id="two words"),
        pytest.param("3", ["3"], id="no letters"),
        pytest.param("straße", ["straße", "STRASSE", "Straße"], id="a letter without a capital"),
    ],
)
def test_spellings_are_a_closed_list(label, bare):
    expected = {f"{blank}{quote}{text}{quote}" for text in bare for quote in ("", '"') for blank in ("", " ")}
    spellings = spellings_of(label)
    assert set(spellings) == expected
    assert len(spellings) == len(expected)
