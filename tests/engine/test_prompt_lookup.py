"""Prompt lookup: the same tokens in fewer batches."""

import random

import pytest
from logitsmith.engine import (
    Done,
    Token,
    generate,
)
from logitsmith.engine.context import Context
from logitsmith.engine.drafts import PromptLookup
from logitsmith.grammars import resolve_grammar
from logitsmith.samplers import build

LIST = "red apple, green apple, red apple, green apple, red apple, green"
PROSE = "The sea was calm, and nobody on the pier had expected"


def run(model, prompt, chain="temp0.8 > top-k40", seed=3, **options):
    options.setdefault("max_tokens", 40)
    events = list(generate(model, prompt, build(chain, seed=seed, vocab=model.vocabulary), **options))
    assert isinstance(events[-1], Done)
    return [event for event in events if isinstance(event, Token)], events[-1]


CHAINS = [
    "greedy",
    "temp1",
    "penalties(repeat=1.3) > temp1",
    "temp1.5 > mirostat",
    "temp1.5 > mirostat-v2",
    "min-p0.05 > adaptive-p0.4",
    "xtc(probability=0.5, threshold=0.05) > temp1",
    "dry > temp0.7",
]


def guess(monkeypatch, prompt, tokens, seed=1):
    """Replace all drafts by the next of ``tokens``, with some errors."""
    draw = random.Random(seed)

    def draft(lookup, limit):
        place = len(lookup._text_tokens) - len(prompt)
        coming = list(tokens[place : place + draw.randrange(min(limit, 7) + 1)])
        return [token if draw.random() < 0.85 else draw.randrange(3, 8_000) for token in coming]

    monkeypatch.setattr(PromptLookup, "draft", draft)


@pytest.mark.parametrize("chain", CHAINS)
def test_state_of_samplers_stays_in_step(model, monkeypatch, chain):
    options = {"max_tokens": 20, "top_logprobs": 2, "logprobs_from": "both"}
    plain, done = run(model, PROSE, chain, **options)
    guess(monkeypatch, model.vocabulary.tokenize_prompt(PROSE.encode()), [token.id for token in plain])
    guessed, end = run(model, PROSE, chain, lookup=8, **options)
    assert guessed == plain
    assert (end.text, end.finish_reason) == (done.text, done.finish_reason)
    assert 0 < end.accepted_tokens <= end.drafted_tokens


def test_text_that_repeats_itself_takes_fewer_batches(model, monkeypatch):
    batches = []
    push = Context.append_batch

    def counted(context, ids):
        batches.append(len(ids))
        return push(context, ids)

    monkeypatch.setattr(Context, "append_batch", counted)
    _, done = run(model, LIST, "greedy", lookup=16, max_tokens=60)
    assert done.accepted_tokens > 30
    assert len(batches) < 30


GRAMMARS = {
    "forced words": 'root ::= " apple, " ("green"|"red") " apple, " ("red"|"blue") " apple, the very end."',
    "an end that a guess may hold": 'root ::= " apple, green apple"',
    "two ways to the end": 'root ::= " apple, green apple" | " apple, blue apple"',
    "letters": 'root ::= " apple, " [a-z]{5} " apple"',
    "open": 'root ::= (" apple, " [a-z]+)+ "."',
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("jump", [True, False])
@pytest.mark.parametrize("chain", ["greedy", "temp2"])
@pytest.mark.parametrize("name", GRAMMARS)
def test_guessed_tokens_obey_the_grammar(model, monkeypatch, name, chain, jump, seed):
    """Also if it forces tokens, or ends the text, within a draft."""
    spec = resolve_grammar({"gbnf": GRAMMARS[name]})
    runs = []
    for max_drafted in (0, 8, 8):
        constraint = spec.start(model.vocabulary)
        tokens, done = run(
            model, LIST, chain, seed, constraint=constraint, jump=jump, lookup=max_drafted, max_tokens=16
        )
        runs.append((tokens, done.finish_reason, done.text, done.complete, done.forced_tokens))
        if len(runs) == 2:  # the third time with better guesses
            guess(monkeypatch, model.vocabulary.tokenize_prompt(LIST.encode()), [token.id for token in tokens])
    monkeypatch.undo()
    assert runs[0] == runs[1] == runs[2]


def after_a_right_draft(most, text):
    """A lookup whose last draft was right, so that a short match is enough."""
    lookup = PromptLookup(most, text)
    lookup.record_acceptance(1, 1)
    return lookup


def test_drafts_follow_the_latest_longest_match():
    lookup = after_a_right_draft(2, [1, 2, 3, 4, 5, 2, 3, 9, 2, 3])
    assert lookup.draft(8) == [9, 2]
    assert lookup.draft(1) == [9]
    assert after_a_right_draft(2, [9, 2, 3, 7, 7, 2, 3, 8, 9, 2, 3]).draft(8) == [7, 7]
    assert after_a_right_draft(8, [1, 2, 3, 4]).draft(8) == []
    assert after_a_right_draft(8, [1]).draft(8) == after_a_right_draft(8, []).draft(8) == []


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], 4),
        ([(4, 4)], 2),
        ([(4, 4), (8, 4)], 2),
        ([(4, 4), (8, 3)], 4),
        ([(4, 0)], 4),
    ],
    ids=["at first", "after a right draft", "after one that is half right", "after less than half", "after none"],
)
def test_how_long_a_match_must_be(outcomes, expected):
    lookup = PromptLookup(8, range(10, 20))
    for outcome in outcomes:
        lookup.record_acceptance(*outcome)
    for token in range(20, 24):  # any pause ends
        lookup.add(token)
    matches = []
    for token in range(10, 15):
        lookup.add(token)
        if lookup.draft(8):
            matches.append(token - 9)
    assert matches[0] == expected


def test_drafts_grow_while_they_are_right_and_pause_when_they_are_wrong():
    lookup = PromptLookup(16, [1, 2] * 20)
    sizes = []
    for right in (4, 8, 8, 5, 3, 0, 0):
        draft = lookup.draft(99)
        sizes.append(len(draft))
        lookup.record_acceptance(len(draft), right)
        if 2 * right < len(draft):
            assert lookup.draft(99) == []
            while not lookup.draft(99):
                lookup.add(lookup._text_tokens[-2])
    assert sizes == [4, 8, 16, 8, 5, 4, 4]
    assert (lookup.drafted_token_count, lookup.accepted_token_count) == (49, 28)


def test_a_draft_continues_the_latest_occurrence_of_the_last_tokens():
    draw = random.Random(5)
    for _ in range(300):
        text = [draw.randrange(3) for _ in range(draw.randrange(2, 40))]
        expected = []
        for size in (4, 3, 2):
            ends = [p for p in range(size, len(text)) if text[p - size : p] == text[-size:]]
            if len(text) >= size and ends:
                round_ = text[ends[-1] :]
                expected = (round_ * 2)[:2]
                break
        lookup = after_a_right_draft(2, text)
        assert lookup.draft(9) == expected
        for token in (other := [draw.randrange(3) for _ in range(3)]):
            lookup.add(token)
        lookup.remove_last(len(other))
        assert lookup.draft(9) == expected
