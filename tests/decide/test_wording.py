"""Prompts of questions: the wording, and where the answer begins in templates of models that think."""

import pytest
from logitsmith.decide import Decider, DecideSettings, Wording, choice, decide, predicate, score
from logitsmith.engine import Model, ModelError

from ..engine.scripted_model import write_scripted_model

OPENS = (
    "{% for message in messages %}[{{ message.content }}]{% endfor %}{% if add_generation_prompt %}A:<think>\n"
    "{% endif %}{# </think> #}"
)
NEVER_CLOSES = OPENS.replace("{# </think> #}", "")
SWITCHES = (
    "{% for message in messages %}[{{ message.content }}]{% endfor %}{% if add_generation_prompt %}A:"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
MAY_THINK = (
    "{% for message in messages %}{% if message.role == 'assistant' %}A:"
    "{{ message.content.split('</think>')[-1] }}{% else %}[{{ message.content }}]{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A:{% endif %}{# <think> #}"
)


@pytest.mark.parametrize(
    ("template", "end", "end_with_thought"),
    [
        pytest.param(OPENS, "A:<think></think>", "A:<think>Yes!</think>", id="opened by the prompt"),
        pytest.param(NEVER_CLOSES, "A:<think></think>", "A:<think>Yes!</think>", id="opened, and never closed"),
        pytest.param(SWITCHES, "A:<think>\n\n</think>\n\n", "A:<think>Yes!</think>", id="a switch"),
        pytest.param(MAY_THINK, "A:<think></think>", "A:<think>Yes!</think>", id="no switch"),
    ],
)
def test_the_answer_begins_after_the_reasoning(pruned, template, end, end_with_thought):
    wording = Wording.for_model(pruned, chat_template=template)
    assert wording.prompt("Q").endswith(end)
    thinking = Wording.for_model(pruned, chat_template=template, thinks=True)
    assert thinking.prompt("Q", "Yes!").endswith(end_with_thought)


def test_the_model_thinks_before_it_answers(pruned):
    wording = Wording.for_model(pruned, chat_template=OPENS, thinks=True)
    decider = Decider(pruned, [predicate("It rains.")], DecideSettings(wording, reasoning_budget=12))
    (outcome,) = decide(decider, ["Wet."], 2)
    (answer,) = outcome.decision.answers
    thought = answer.measured[0].reasoning
    assert 0 < outcome.decision.usage.reasoning_tokens <= 12
    assert thought
    (again,) = decide(decider, ["Wet."], 1)
    assert again.decision.answers[0].measured[0].reasoning == thought


def test_thinking_ends_with_the_thought(tmp_path):
    script = ["A", ":", "<think>", "wet", "</think>", "yes", "<end>"]
    path = write_scripted_model(tmp_path / "model.gguf", [script], OPENS.replace("\n", ""))
    with Model.load(path, n_ctx=512, gpu_layers=0) as model:
        wording = Wording.for_model(model, thinks=True)
        decider = Decider(
            model, [choice("Is it wet?", ["yes", "no"])], DecideSettings(wording, reasoning_budget=50)
        )
        (outcome,) = decide(decider, ["Rain."], 2)
    (answer,) = outcome.decision.answers
    assert answer.measured[0].reasoning == "wet"
    assert outcome.decision.usage.reasoning_tokens == 2  # the word, and the end tag
    assert answer.main_value == "yes"
    assert answer.mass > 0.9


def test_wording():
    question = choice("Which?", ["a", "b"], "letter", descriptions=["the first", None])
    text = Wording().text(question, question.options[::-1], "An input.")
    expected = "An input.\n\nWhich?\n- b\n- a: the first\nAnswer with exactly one of these 2 options.\nAnswer:"
    assert text == expected
    statement = predicate("It rains.")
    assert "Is this true" in Wording().text(statement, statement.options, "")
    levels = score("How much?", ["low", "high"])
    assert "2 levels" in Wording().text(levels, levels.options, "")


def test_all_variables_of_templates():
    source = "{{ name }}|{{ type }}|{{ input }}|{{ question }}|{{ options | map(attribute='label') | join(',') }}"
    question = choice("Which?", ["a", True, None, 1.5], "letter")
    expected = "letter|choice|text|Which?|a,true,null,1.5"
    assert Wording(source).text(question, question.options, "text") == expected


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ ''.__class__.__mro__ }}", id="a way out of the sandbox"),
        pytest.param("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", id="work"),
        pytest.param("{{ 'x' * 10**10 }}", id="memory"),
        pytest.param("{% if %}", id="not Jinja"),
    ],
)
def test_hostile_templates_are_refused(source):
    question = predicate("It rains.")
    with pytest.raises(ModelError, match="the prompt template"):
        Wording(source).text(question, question.options, "")
