"""The reasoning before an answer, by a model whose next token is known: phases, parts, budgets, and grammars."""

from dataclasses import replace

import pytest
from logitsmith.engine import (
    BeamSearch,
    ChatMessages,
    Done,
    Model,
    Start,
    Token,
    generate,
    generate_beams,
    generate_many,
)
from logitsmith.engine.next_token import trace_request
from logitsmith.engine.request import GenerationRequest
from logitsmith.grammars.spec import GrammarSpec
from logitsmith.logprobs.parts import TokenParts, join_parts

from .scripted_model import write_scripted_model

CHAT = (
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n\n{% endif %}{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}"
)
BEFORE, INSIDE, AFTER = (CHAT + end + "{% endif %}" for end in ("<A>", "<A><think>\n", "<A><think></think>"))
SPELLED, PLAIN, BOTH, BEYOND, LOOP = (BEFORE.replace("<A>", name) for name in ("<B>", "<C>", "<D>", "<E>", "<L>"))
HARMONY = (
    "{% for m in messages %}{{ m.role }}"
    "{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}"
    "<|channel|>final<|message|>{{ m.content }}{% endfor %}<F>"
)
FINAL = HARMONY.replace("<F>", "<H>")
FINAL_MARK = "<|channel|>final<|message|>"
TWO_BLOCKS = HARMONY.replace("<F>", "<G>")
BLOCKS = ["<|channel|>analysis<", "|message|>why", "<|end|> ", "<|start|>assistant<", "|channel|>analysis<|"]
BLOCKS += ["message|>how", "ever", "<|end|>"]
SCRIPTS = [
    ["<A>", "<think>", "\n", "hm", "</think>", "\n\n", "yes", ".", "<end>"],
    ["<B>", "<", "thi", "nk>\n", "we", "ll", "</", "thin", "k>", "no", "!", "<end>"],
    ["<C>", "<t", "able>", "<end>"],
    ["<D>", "<think", "ers>", "<end>"],
    ["<E>", "<think>\nI", "</t", "hink", ">no", "<end>"],
    ["hink", ">", "no"],
    ["<F>", "<|channel|>", "analysis", "<|message|>", "so", "<|end|>", "<|start|>", "assistant", FINAL_MARK, "ok"],
    ["<G>", *BLOCKS],
    ["<H>", FINAL_MARK, "ok", "<end>"],
    ["<L>", "<think>\nla", "la", "la"],
    ["<|return|>", "<|call|>"],  # with these, <|end|> does not end a text
]
CONTROL = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|return|>", "<|call|>", FINAL_MARK]
CHANNELS = f"<|channel|>analysis<|message|>so<|end|><|start|>assistant{FINAL_MARK}ok"
ANSWERED = f"<|start|>assistant{FINAL_MARK}ok"
THOUGHT = "<think>\nhm</think>\n\nyes."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripted") / "model.gguf"
    with Model.load(write_scripted_model(path, SCRIPTS, BEFORE, CONTROL)) as model:
        yield model


def request(template=BEFORE, grammar=None, chain="temp0.5", **fields):
    chat = ChatMessages([{"role": "user", "content": "Hi"}], template)
    constraint = None if grammar is None else GrammarSpec("the grammar", "gbnf", f"root ::= {grammar}")
    return GenerationRequest.of(chat, chain, constraint, **fields)


def outcome(events):
    """The end of a run, after a check of its parts: each token has one, and streams have the same parts."""
    start, tokens, done = events[0], [e for e in events if isinstance(e, Token)], events[-1]
    assert isinstance(start, Start)
    assert isinstance(done, Done)
    assert [token.index for token in tokens] == list(range(len(tokens)))
    assert all(token.part for token in tokens)
    assert done.reasoning_tokens == sum(token.part == "reasoning" for token in tokens)
    assert "".join(token.text for token in tokens) + done.rest == done.complete_text
    parts = TokenParts(start.reasoning)
    pieces = [piece for token in tokens for piece in parts.push(token)] + parts.finish(done)
    assert join_parts(pieces) == (done.reasoning, done.text)
    return done


TEXTS = {  # what the model writes, its reasoning, its answer, and the number of tokens of the reasoning
    "a start tag": (request(), THOUGHT, "hm", "yes.", 5),
    "an open reasoning": (request(INSIDE), "hm</think>\n\nyes.", "hm", "yes.", 3),
    "a reasoning that is over": (request(AFTER), "\n\nyes.", "", "\n\nyes.", 0),
    "spelled tags": (request(SPELLED), "<think>\nwell</think>no!", "well", "no!", 8),
    "nearly a tag": (request(PLAIN), "<table>", "", "<table>", 0),
    "a token that is nearly a tag": (request(BOTH), "<thinkers>", "", "<thinkers>", 0),
    "cut in the start tag": (request(SPELLED, max_tokens=2), "<thi", "<thi", "", 2),
    "cut in the reasoning": (request(max_tokens=3), "<think>\nhm", "hm", "", 3),
    "cut in the end tag": (request(SPELLED, max_tokens=7), "<think>\nwell</thin", "well</thin", "", 7),
    "no token": (request(max_tokens=0), "", "", "", 0),
    "a stop string in the reasoning": (request(stop="hm"), "<think>\n", "", "", 3),
    "a stop string in a tag": (request(SPELLED, stop="</thi"), "<think>\nwell", "well", "", 7),
    "a stop string after the reasoning": (request(stop="\n\ny"), "<think>\nhm</think>", "hm", "", 5),
    "text that is held back": (request(stop=["k>\nhm!", "\n\nyes!"]), THOUGHT, "hm", "yes.", 5),
    "a budget": (
        request(phases=[{"max_tokens": 1, "adds_end": True}]),
        "<think>\n</think>\n\nyes.",
        "",
        "yes.",
        4,
    ),
    "no budget left": (
        request(phases=[{"max_tokens": 0, "then": "!", "adds_end": True}]),
        "<think>!</think>\n\nyes.",
        "!",
        "yes.",
        4,
    ),
    "a budget of an open reasoning": (
        request(INSIDE, phases=[{"max_tokens": 0, "adds_end": True}]),
        "</think>\n\nyes.",
        "",
        "yes.",
        2,
    ),
    "a budget without a reasoning": (
        request(PLAIN, phases=[{"max_tokens": 0, "adds_end": True}]),
        "<table>",
        "",
        "<table>",
        0,
    ),
    "an end of one's own": (
        request(phases=[{"until": "\n"}]),
        THOUGHT,
        "<think>",
        "hm</think>\n\nyes.",
        2,
    ),
    "a phase without an end": (
        request(INSIDE, phases=[{"max_tokens": 1, "then": "\n\n"}]),
        "hm\n\nyes.",
        "hm",
        "yes.",
        2,
    ),
    "a grammar": (request(grammar='"yes"'), "<think>\nhm</think>\n\nyes", "hm", "yes", 5),
    "a grammar without a reasoning": (request(PLAIN, '"<table>"'), "<table>", "", "<table>", 0),
    "a grammar that shares a token with the tag": (
        request(SPELLED, '"<b>" | "yes"'),
        "<think>\nwell</think>\n\nyes",
        "well",
        "yes",
        9,
    ),
    "a token beyond the end tag": (request(BEYOND), "<think>\nI</think>no", "I", "no", 4),
    "a token beyond the end tag before a grammar": (
        request(BEYOND, '"yes"'),
        "<think>\nI</think>\n\nyes",
        "I",
        "yes",
        5,
    ),
    "a grammar with blanks of its own": (
        request(grammar='"\\n\\n" "yes"'),
        "<think>\nhm</think>\n\nyes",
        "hm",
        "yes",
        5,
    ),
    "a grammar after a budget": (
        request(grammar='"yes"', phases=[{"max_tokens": 1, "adds_end": True}]),
        "<think>\n</think>\n\nyes",
        "",
        "yes",
        4,
    ),
    "a sentence that is completed": (
        request(grammar='"yes"', max_tokens=2, complete_sentence=True),
        "<think>\n</think>\n\nyes",
        "",
        "yes",
        4,
    ),
    "a grammar after a given reasoning": (
        request(grammar='"ab" "yes"', beginning="<think>hm</think>ab"),
        "yes",
        "",
        "yes",
        0,
    ),
    "a grammar after a reasoning that was begun": (
        request(grammar='"yes"', beginning="<think>hm"),
        "</think>\n\nyes",
        "",
        "yes",
        2,
    ),
    "channels": (request(HARMONY), CHANNELS, "so", "ok", 8),
    "channels and a grammar": (request(HARMONY, '"ok"'), CHANNELS, "so", "ok", 8),
    "channels and a budget": (
        request(HARMONY, '"ok"', phases=[{"max_tokens": 0, "adds_end": True}]),
        CHANNELS.replace("so", ""),
        "",
        "ok",
        7,
    ),
    "two blocks": (request(TWO_BLOCKS), "".join(BLOCKS) + ANSWERED, "why\nhowever", "ok", 11),
    "a budget of two blocks": (
        request(TWO_BLOCKS, phases=[{"max_tokens": 1, "adds_end": True}]),
        "".join(BLOCKS).replace("ever", "") + ANSWERED,
        "why\nhow",
        "ok",
        10,
    ),
    "a second block that is cut off": (
        request(TWO_BLOCKS, max_tokens=5),
        "".join(BLOCKS[:5]),
        "why\n<|start|>assistant<|channel|>analysis<|",
        "",
        5,
    ),
    "cut between channels": (
        request(HARMONY, max_tokens=7),
        CHANNELS.removesuffix(FINAL_MARK + "ok"),
        "so\n<|start|>assistant",
        "",
        7,
    ),
    "the answer's channel": (request(FINAL), FINAL_MARK + "ok", "", "ok", 1),
    "the answer's channel and a grammar": (request(FINAL, '"ok"'), FINAL_MARK + "ok", "", "ok", 1),
}


@pytest.mark.parametrize(("asked", "text", "reasoning", "answer", "count"), TEXTS.values(), ids=TEXTS)
def test_texts(model, asked, text, reasoning, answer, count):
    done = outcome(list(generate(model, asked)))
    found = (done.complete_text, done.reasoning, done.text, done.reasoning_tokens)
    assert found == (text, reasoning, answer, count)


def test_a_batch_writes_the_same_texts(model):
    requests = [replace(row[0], id=name) for name, row in TEXTS.items()]
    answers = {answer.id: outcome(answer.events) for answer in generate_many(model, requests, 3)}
    texts = {name: (done.complete_text, done.reasoning, done.text) for name, done in answers.items()}
    assert texts == {name: row[1:4] for name, row in TEXTS.items()}


WITHOUT_REASONING = {  # phases of a chat whose template shows no reasoning, and the text
    "a budget": ([{"max_tokens": 0, "then": "!", "adds_end": True}], "<table>"),
    "an end of one's own": ([{"max_tokens": 1, "until": "x", "adds_end": True}], "<tx"),
    "a phase without an end": ([{"max_tokens": 1, "then": "!"}], "<t!"),
}


@pytest.mark.parametrize(("phases", "text"), WITHOUT_REASONING.values(), ids=WITHOUT_REASONING)
def test_phases_of_a_chat_without_reasoning(model, phases, text):
    asked = request("{{ messages[-1].content }}<C>", phases=phases, max_tokens=2)
    assert list(generate(model, asked))[-1].complete_text == text


BEAMED = [
    name
    for name, row in TEXTS.items()
    if not (row[0].rules.phases or row[0].complete_sentence or row[2:] == ("", "", 0))
]


@pytest.mark.parametrize("name", BEAMED)
def test_the_best_of_two_beams_has_the_same_parts(model, name):
    asked, text, reasoning, answer, count = TEXTS[name]
    best, *_ = generate_beams(model, replace(asked, beams=BeamSearch(2), chain="temp0.5"))
    done = outcome(best)
    assert (done.complete_text, done.reasoning, done.text, done.reasoning_tokens) == (
        text,
        reasoning,
        answer,
        count,
    )


@pytest.mark.parametrize("guard", [{"bans": ["yes"]}, {"bans": ["<think>"], "ban_then": "keep"}, {"bans": ["hm"]}])
@pytest.mark.parametrize("grammar", [None, '"yes" | "no"'])
def test_going_back(model, guard, grammar):
    """After a return, phase and grammar are those of that place."""
    done = outcome(list(generate(model, request(grammar=grammar, max_tokens=12, **guard))))
    assert done.discarded_tokens
    assert guard["bans"][0] not in done.complete_text
    assert grammar is None or done.text in ("yes", "no", "")


@pytest.mark.parametrize("grammar", [None, '"yes"'])
def test_a_loop_ends_the_reasoning(model, grammar):
    guard = {"action": "end-thinking", "min_tokens": 2, "repeats": 2}
    phases = [{"adds_end": True}]
    done = outcome(list(generate(model, request(LOOP, grammar, loop_guard=guard, phases=phases, max_tokens=20))))
    assert (done.text, done.loop_period) == ("yes" if grammar else "yes.", 1)


@pytest.mark.parametrize("template", [BEFORE, PLAIN, INSIDE])
def test_the_chain_goes_on_from_the_reasoning_to_the_answer(model, template):
    """With the same seed, the tokens are those of the prompt as a plain text."""
    asked = request(template, chain="temp12", seed=4, max_tokens=30)
    events = list(generate(model, asked))
    plain = list(generate(model, GenerationRequest.of(events[0].prompt_ids, "temp12", seed=4, max_tokens=30)))
    assert [e.id for e in events if isinstance(e, Token)] == [e.id for e in plain if isinstance(e, Token)]


def test_a_text_without_a_template_has_no_parts(model):
    *tokens, done = list(generate(model, "<A>", "greedy"))[1:]
    assert {token.part for token in tokens} == {None}
    assert (done.text, done.reasoning, done.reasoning_tokens) == (THOUGHT, None, None)


NEXT = {"before": (BEFORE, {"<think>"}), "inside": (INSIDE, {"hm"}), "after": (AFTER, {"no"})}


@pytest.mark.parametrize(("template", "expected"), NEXT.values(), ids=NEXT)
def test_the_next_token_under_a_grammar(model, template, expected):
    """The grammar does not apply to a reasoning, and allows one where it may begin."""
    found = trace_request(model, request(template, '"no"', chain="top_k2 > temp1"), top=2)
    last_probs = {candidate.data.decode(): candidate.probs[-1] for candidate in found.trace.candidates}
    assert expected <= {text for text, prob in last_probs.items() if prob}
