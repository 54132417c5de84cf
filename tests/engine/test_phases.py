"""Phases, forced endings, the loop guard's end of thinking, and token healing, on a model that does not exist."""

import pytest
from logitsmith.engine.decoder import Decoder, LogitsRequest
from logitsmith.engine.healing import PromptHealer, removable_token_count
from logitsmith.engine.phase_tracker import PhaseTracker, RunningPhase
from logitsmith.engine.text_guard import TextGuard
from logitsmith.engine.text_rules import TextRules
from logitsmith.engine.text_stream import TextStream
from logitsmith.engine.token_records import LogprobReader, LogprobRequest
from logitsmith.grammars import compile_grammar
from logitsmith.grammars.bans import parse_bans
from logitsmith.logprobs.events import Token
from logitsmith.samplers import build
from logitsmith.samplers.chain_state import ChainStates
from logitsmith.samplers.loop_guard import LoopGuard

from .rewind_reference import VOCABULARIES, fake_logits
from .test_rewind import Sequence

WORDS = VOCABULARIES["words"]


def run(first, last="temp1", *, seed=3, max_tokens=20, grammar=None, guard=None, healer=None, change=None):
    """Return the tokens, the finish reason and the text of a run. ``first``: fields of the first phase."""
    prompt = (0, 3)
    chains = [first.pop("chain", "temp1"), last] if first is not None else [last]
    phases = []
    for number, steps in enumerate(chains):
        chain = build(steps, seed=seed, vocab=WORDS)
        ends = number < len(chains) - 1
        phases.append(RunningPhase(chain, ChainStates(chain), **(first if ends else {})))
    sequence = Sequence(WORDS, prompt)
    decoder = Decoder(
        vocabulary=WORDS,
        capacity=sequence,
        phases=PhaseTracker(phases, prompt),
        constraint=None if grammar is None else compile_grammar(grammar, WORDS).start(),
        reader=LogprobReader(WORDS, LogprobRequest()),
        stream=TextStream(),
        jump=True,
        guard=guard and TextGuard(guard),
        healer=healer,
    )
    running, tokens, rows = decoder.decode(max_tokens, None), [], None
    try:
        while True:
            output = running.send(rows)
            rows = None
            if isinstance(output, LogitsRequest):
                rows = [row if change is None else change(row) for row in sequence.answer(output)]
            elif isinstance(output, Token):
                tokens.append(output.id)
    except StopIteration as end:
        decoder.stream.finish()
        return tokens, end.value, decoder.stream.text


def ids(text):
    return tuple(WORDS.tokenize(text.encode()))


def expected_tokens(seed, prompt, first_count, forced, count, first="temp1", last="temp1"):
    """Draw each phase with a separate chain that has accepted everything before it."""
    tokens = []
    for steps, end in ((first, first_count), (last, count)):
        chain = build(steps, seed=seed, vocab=WORDS)
        chain.reset(prompt)
        for token in tokens:
            chain.accept(token)
        while len(tokens) < end:
            token = chain.sample(fake_logits(WORDS, [*prompt, *tokens]))
            chain.accept(token)
            tokens.append(token)
        if steps is first and end == first_count:
            tokens += forced
            forced = ()
    return tokens


def test_a_phase_ends_after_its_budget_and_the_next_chain_begins_with_the_first_number():
    first, last = "penalties(repeat=1.5) > temp2", "penalties(repeat=1.4) > temp0.7"
    forced = ids("ab .")
    tokens, reason, _ = run({"chain": first, "until": b"zz", "max_tokens": 4, "then": forced}, last, seed=5)
    expected = expected_tokens(5, (0, 3), 4, forced, 20, first, last)
    end = expected.index(WORDS.end) + 1 if WORDS.end in expected else 20
    assert tokens == expected[:end]
    assert reason in ("length", "stop")


@pytest.mark.parametrize("seed", range(6))
def test_a_phase_ends_with_the_token_that_completes_its_end(seed):
    tokens, _, _ = run({"chain": "temp3", "until": b"b"}, "greedy", seed=seed, max_tokens=12)
    pieces = [WORDS.piece(token) for token in tokens]
    first_end = next((n for n, piece in enumerate(pieces) if b"b" in piece), len(pieces))
    chain = build("greedy", vocab=WORDS)
    for place in range(first_end + 1, len(tokens)):
        assert tokens[place] == chain.sample(fake_logits(WORDS, [0, 3, *tokens[:place]]))


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_the_grammar_applies_to_the_last_phase(budget):
    tokens, _, text = run(
        {"until": b"zz", "max_tokens": budget, "then": ids(".")}, grammar='root ::= ("ab" | "ba")+', max_tokens=8
    )
    assert text.split(".", budget and 1)[-1].strip("ab") in ("", ".")
    assert len(tokens) <= 8


def test_without_a_budget_an_end_is_not_forced():
    tokens, _, _ = run({"until": b"zz", "then": ids(".")}, max_tokens=9)
    assert tokens == expected_tokens(3, (0, 3), 9, (), 9)[: len(tokens)]


def test_bans_do_not_take_back_the_forced_end():
    guard = TextRules(parse_bans(["ab"]))
    _, reason, text = run({"until": b"zz", "max_tokens": 3, "then": ids("ab.")}, guard=guard, max_tokens=10)
    assert text.count("ab") == 1
    assert reason in ("length", "stop")


def test_a_loop_ends_the_thinking_and_then_the_text():
    guard = TextRules(loop_guard=LoopGuard(action="end-thinking", min_tokens=4, repeats=4))

    def same(row):
        row[:] = 0
        row[0] = 9
        return row

    first = {"until": b"zz", "then": ids("c.")}
    _, reason, text = run(first, "greedy", guard=guard, change=same, max_tokens=40)
    assert text == "aaaac.aaaa"
    assert reason == "loop"


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        pytest.param(("a", " a"), 0, id="no longer token"),
        pytest.param((" ", "a"), 1, id="a letter that begins a longer token"),
        pytest.param(("c", " "), 1, id="a space"),
        pytest.param(("c", "a", "b"), 2, id="two tokens"),
        pytest.param(("a", "b"), 1, id="never the whole prompt"),
    ],
)
def test_removable_tokens(prompt, count):
    spelling = [WORDS.pieces.index(piece.encode()) for piece in prompt]
    assert removable_token_count(WORDS, spelling) == count


@pytest.mark.parametrize("seed", range(8))
def test_healed_tokens_spell_the_end_of_the_prompt(seed):
    healer = PromptHealer(WORDS, b"ab")
    tokens, _, text = run(None, seed=seed, healer=healer, max_tokens=6)
    data = b"".join(WORDS.piece(token) for token in tokens if token != WORDS.end)
    assert data.startswith(b"ab")
    assert text == data[2:].decode()
