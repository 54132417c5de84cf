"""Texts that go back, against a reference that replays each attempt from the start."""

import random
import re

import numpy as np
import pytest
from logitsmith.engine.decoder import Decoder, LogitsRequest
from logitsmith.engine.drafts import PromptLookup
from logitsmith.engine.phase_tracker import PhaseTracker, RunningPhase
from logitsmith.engine.text_guard import TextGuard
from logitsmith.engine.text_rules import TextRules
from logitsmith.engine.text_stream import TextStream
from logitsmith.engine.token_records import LogprobReader, LogprobRequest
from logitsmith.grammars import compile_grammar
from logitsmith.grammars.bans import TextBan
from logitsmith.logprobs.events import Rewind, Token
from logitsmith.samplers import build
from logitsmith.samplers.chain_state import ChainStates
from logitsmith.samplers.loop_guard import LoopGuard

from .rewind_reference import VOCABULARIES, Reference, Rules, fake_logits

CHAINS = {
    "plain": "temp1",
    "history": 'penalties(repeat=1.3, last_n=8) > dry(multiplier=0.8, breakers=[" "]) > temp1',
    "ngram": "no-repeat-ngram4 > repetition_penalty1.2 > min-p0.02 > temp1.2",
    "xtc": "xtc(probability=0.5, threshold=0.1) > temp1",
    "watermark": "synthid(keys=[5, 6, 7], ngram_len=2, context_history_size=3) > dist",
    "mirostat": "mirostat(tau=2)",
    "mirostat_v2": "temp1 > mirostat_v2(tau=2)",
    "adaptive_p": "min-p0.02 > adaptive_p0.3",
    "greedy": "penalties(repeat=1.3) > greedy",
    "lengths": "k_shift(k=2, steps=3) > length_decay(factor=1.3, start=2) > temp1",
    "sequences": 'sequence_bias(bias={"ab": 2, "ba b": -3, "a€": 1}, ids=[[[0, 1], 2.5], [[1, 0], -9]]) > temp1',
    "scripts": 'scripts=["Latin"] > temp1',
}
GRAMMARS = (None, None, None, 'root ::= ([a-c] | " ")+', 'root ::= ("ab" | "ba" | " ")*')


class Sequence:
    """The sequence of a model: it checks what a decoder removes and appends."""

    max_rows, length = 8, 400

    def __init__(self, vocabulary, prompt):
        self.vocabulary, self.tokens, self.prompt_length = vocabulary, list(prompt), len(prompt)

    @property
    def remaining(self):
        return self.length - len(self.tokens)

    def answer(self, request):
        assert request.drop_count <= len(self.tokens) - self.prompt_length
        del self.tokens[len(self.tokens) - request.drop_count :]
        if not request.tokens:
            return [fake_logits(self.vocabulary, self.tokens)]
        rows = []
        for token in request.tokens:
            self.tokens.append(token)
            rows.append(fake_logits(self.vocabulary, self.tokens))
        return rows


def decode(reference, lookup=0, guarded=True, interrupt_after=None):
    """Run a decoder by the settings of a reference; return its events and its finish reason."""
    vocabulary, rules, prompt = reference.vocabulary, reference.rules, reference.prompt
    chain = build(reference.chain, seed=reference.seed, vocab=vocabulary)
    loop = rules.loop and LoopGuard(
        action="rewind",
        min_period=rules.loop[0],
        max_period=rules.loop[1],
        repeats=rules.loop[2],
        min_tokens=rules.loop[3],
    )
    sequence = Sequence(vocabulary, prompt)
    decoder = Decoder(
        vocabulary=vocabulary,
        capacity=sequence,
        phases=PhaseTracker([RunningPhase(chain, ChainStates(chain))], prompt),
        constraint=None if reference.grammar is None else compile_grammar(reference.grammar, vocabulary).start(),
        reader=LogprobReader(vocabulary, LogprobRequest(0)),
        stream=TextStream(),
        jump=reference.seed % 2 == 0,
        drafts=PromptLookup(lookup, prompt) if lookup else None,
        guard=TextGuard(TextRules([ban_of(ban) for ban in rules.bans], rules.retries, rules.then, loop))
        if guarded
        else None,
    )
    run = decoder.decode(reference.max_tokens, None)
    events, rows = [], None
    try:
        while True:
            output = run.send(rows)
            rows = sequence.answer(output) if isinstance(output, LogitsRequest) else None
            if not isinstance(output, LogitsRequest):
                events.append(output)
    except StopIteration as end:
        decoder.stream.finish()
        return events, end.value, decoder.stream.text


def ban_of(ban):
    strings, ignores_case, whole_words, name = ban
    return TextBan(name, len(strings) > 1, ignores_case, whole_words)


def random_reference(seed):
    chooser = random.Random(seed)
    vocabulary = VOCABULARIES[chooser.choice(sorted(VOCABULARIES))]
    phrases = ["ab", "a", "ba b", "ss", "bab", "é", "a€", "aab", "c", "b a", "Aß", "abc.", "aaa"]
    bans = [
        ([p := chooser.choice(phrases)], chooser.random() < 0.7, chooser.random() < 0.3, p)
        for _ in range(chooser.randint(1, 3))
    ]
    if chooser.random() < 0.3:
        bans.append((["abb", "bbb", "cbb"], False, False, "[abc]bb"))
    loop = (1, 4, 3, chooser.choice([4, 9])) if chooser.random() < 0.4 else None
    then = chooser.choice(["step_back", "keep", "stop"])
    rules = Rules(bans, chooser.choice([0, 1, 2, 20]), then, loop)
    grammar = chooser.choice(GRAMMARS) if vocabulary is VOCABULARIES["words"] else None
    prompt = [chooser.randrange(vocabulary.end) for _ in range(chooser.randint(1, 5))]
    chain = CHAINS[chooser.choice(sorted(CHAINS))]
    return Reference(vocabulary, chain, seed % 2**32, prompt, rules, chooser.randint(1, 22), grammar)


def check_against_reference(seed):
    reference = random_reference(seed)
    tokens, reason, rewinds, logprobs = reference.run()
    for lookup in (0, 4):
        events, decoded_reason, text = decode(reference, lookup)
        made = [event for event in events if isinstance(event, Token)]
        assert [event.id for event in made] == tokens
        assert decoded_reason == reason
        assert [
            (event.index, event.ban, event.dropped, event.attempt) for event in events if isinstance(event, Rewind)
        ] == rewinds
        assert np.allclose([event.distributions[0].logprob for event in made], logprobs, atol=1e-5)
        assert [event.index for event in made] == list(range(len(tokens)))
        assert text.startswith("".join(event.text for event in made))


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_runs_equal_the_reference(first):
    for seed in range(first, first + 20):
        check_against_reference(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_ten_thousand_random_runs_equal_the_reference(first):
    for seed in range(first, first + 500):
        check_against_reference(seed)


@pytest.mark.parametrize("seed", range(20))
def test_without_a_match_the_run_is_the_one_without_bans(seed):
    reference = random_reference(seed)
    reference.rules.bans, reference.rules.loop = [(["zzz"], True, False, "zzz")], None
    guarded, reason, text = decode(reference)
    free, free_reason, free_text = decode(reference, guarded=False)
    assert (guarded, reason, text) == (free, free_reason, free_text)


@pytest.mark.parametrize(
    "first", [0, 100, *(pytest.param(first, marks=pytest.mark.slow) for first in range(200, 10_000, 100))]
)
def test_no_finished_text_has_a_banned_phrase(first):
    """`re` looks for the phrases in texts under random bans, which are never kept."""
    returned = 0
    for seed in range(first, first + 100):
        reference = random_reference(seed)
        rules = reference.rules
        if rules.then == "keep":
            rules.then = ("step_back", "stop")[seed % 2]
        events, _, text = decode(reference, lookup=seed % 3)
        returned += any(isinstance(event, Rewind) for event in events)
        for strings, ignores_case, whole_words, name in rules.bans:
            searched = text.casefold() if ignores_case else text
            pattern = "|".join(re.escape(string.casefold() if ignores_case else string) for string in strings)
            pattern = rf"(?<!\w)(?:{pattern})(?!\w)" if whole_words else pattern
            assert not re.search(pattern, searched), (seed, name, text)
    assert returned > 10


def test_the_distribution_at_a_place_is_the_chains_without_the_dropped_tokens():
    vocabulary = VOCABULARIES["letters"]
    logits = fake_logits(vocabulary, [0])
    banned = int(logits.argmax())
    text = vocabulary.piece(banned).decode()
    logits[[banned, vocabulary.end]] = -np.inf
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    counts = np.zeros(vocabulary.size)
    for seed in range(3000):
        reference = Reference(vocabulary, "temp1", seed, [0], Rules([([text], True, False, text)]), 1)
        events, _, _ = decode(reference)
        tokens = [event.id for event in events if isinstance(event, Token)]
        if any(isinstance(event, Rewind) for event in events) and tokens[0] != vocabulary.end:
            counts[tokens[0]] += 1
    assert counts.sum() > 100
    spread = np.sqrt(expected * (1 - expected) / counts.sum())
    assert (np.abs(counts / counts.sum() - expected) <= 4 * spread + 1e-9).all()
