"""A second way to go back: each attempt replays the text from its start, with the tokens dropped at each place.

Nothing here is shared with the decoder: matches are found by comparing every substring, the state of a chain by
replaying all draws with their random numbers, the grammar by accepting all tokens again.
"""

import codecs
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from logitsmith.grammars import compile_grammar
from logitsmith.samplers import build
from logitsmith.samplers.mersenne_twister import MersenneTwister


class FakeVocabulary:
    """The tokens of a model that does not exist. The last token ends the text."""

    def __init__(self, pieces):
        self.pieces = [*pieces, b"<end>"]
        self.size = len(self.pieces)
        self.end = self.size - 1
        self.eog = self.control = frozenset({self.end})
        self.newline, self.bos = None, None
        self.suppressed = frozenset()

    def piece(self, token):
        return self.pieces[token]

    def token(self, token):
        return self.pieces[token], token == self.end, token == self.end

    def is_control(self, token):
        return token == self.end

    def check(self, tokens, name=""):
        assert all(0 <= token < self.size for token in tokens)

    def tokenize(self, data, special=False):
        tokens, place = [], 0
        while place < len(data):
            token = max(
                (t for t in range(self.end) if data.startswith(self.pieces[t], place) and self.pieces[t]),
                key=lambda t: len(self.pieces[t]),
            )
            tokens.append(token)
            place += len(self.pieces[token])
        return tokens


VOCABULARIES = {
    "letters": FakeVocabulary([b"a", b"b", b"c", b" "]),
    "words": FakeVocabulary([b"a", b"b", b"A", b" ", b"ab", b"ba", b" a", b"abc", b"c", b"."]),
    "bytes": FakeVocabulary([b"a", b"\xc3", b"\xa9", b"\xc3\xa9", b" ", b"\xe2\x82", b"\xac", b"b", b"\xff"]),
    "case": FakeVocabulary([b"a", b"A", b"b", b"B", b"\xc3\x9f", b"s", b"S", b" ", b"ss"]),
    "long": FakeVocabulary([b"a", b"aa", b"aaa", b"b", b"bb", b"ab ", b" ba", b" ", b"b a", b"c"]),
}


def fake_logits(vocabulary, tokens):
    """Logits that depend on the last three tokens."""
    key = blake2b(repr((vocabulary.size, tuple(tokens[-3:]))).encode(), digest_size=8).digest()
    generator = np.random.default_rng(int.from_bytes(key, "little"))
    logits = (2.5 * generator.standard_normal(vocabulary.size)).astype(np.float32)
    logits[vocabulary.end] -= 3
    return logits


class ScriptedNumbers(MersenneTwister):
    """Random numbers of an earlier attempt; after them, the numbers that follow."""

    def __init__(self, source):
        super().__init__(0)
        self.source, self.script, self.used = source, [], []

    def _next(self, draw):
        number = self.script.pop(0) if self.script else draw()
        self.used.append(number)
        return number

    def uniform(self):
        return self._next(self.source.uniform)

    def uniform_float(self):
        return self._next(self.source.uniform_float)


@dataclass
class Rules:
    """The rules of a text: bans as lists of strings, which a regex stands for, too."""

    bans: list = field(default_factory=list)  # of (strings, ignores_case, whole_words, name)
    retries: int = 20
    then: str = "step_back"
    loop: tuple | None = None  # min_period, max_period, repeats, min_tokens


@dataclass
class Reference:
    """One text under rules."""

    vocabulary: FakeVocabulary
    chain: str
    seed: int
    prompt: list
    rules: Rules
    max_tokens: int
    grammar: str | None = None

    def run(self):
        """Return the tokens, the finish reason, the rewinds and the logprobs."""
        self.sources = [
            MersenneTwister(self.seed)
            for step in build(self.chain, seed=self.seed, vocab=self.vocabulary).steps
            if hasattr(step, "_random")
        ]
        self.tokens, self.numbers, self.dropped, self.attempts = [], [], {}, {}
        self.rewinds, self.logprobs, self.released = [], [], 0
        reason = self.make_tokens()
        while reason == "banned" and self.rules.then != "keep":
            count = len(self.tokens)
            at_end = sorted(self.matches(count, True) - self.matches(count, False))
            if not at_end:
                break
            start, number, _ = at_end[0]
            self.go_back(self.characters(count)[0][start][1], self.rules.bans[number][3])
        return self.tokens, reason, self.rewinds, self.logprobs

    def make_tokens(self):
        """Make the tokens; return the finish reason."""
        while True:
            reason = self.reason()
            if reason is None:
                if not self.draw():
                    return "banned"
                end = self.judge(at_end=False)
            else:
                end = self.judge(at_end=True)
                if end is None:
                    return reason
            if isinstance(end, str) and end != "back":
                return end
            self.released = max(self.released, self.undecided())

    def reason(self):
        if self.tokens and self.tokens[-1] == self.vocabulary.end:
            return "stop"
        if self.grammar is not None and self.is_exhausted():
            return "grammar"
        return "length" if len(self.tokens) >= self.max_tokens else None

    def grammar_state(self, count):
        state = compile_grammar(self.grammar, self.vocabulary).start()
        for token in self.tokens[:count]:
            state.accept(token)
        return state

    def is_exhausted(self):
        state = self.grammar_state(len(self.tokens))
        return state.is_complete and not state.mask()[: self.vocabulary.end].any()

    def mask(self, place):
        mask = np.ones(self.vocabulary.size, bool)
        if self.grammar is not None:
            mask &= self.grammar_state(place).mask()
        for token in self.dropped.get(place, ()):
            mask[token] = False
        return mask

    def draw(self):
        """Replay all draws with their numbers, and draw the next token. False if no token is left."""
        chain = build(self.chain, seed=self.seed, vocab=self.vocabulary)
        randoms = [ScriptedNumbers(source) for source in self.sources]
        for step, numbers in zip((s for s in chain.steps if hasattr(s, "_random")), randoms, strict=True):
            step._random = numbers
            numbers.restart = lambda: None
        chain.reset(self.prompt)
        for place in range(len(self.tokens) + 1):
            is_new = place == len(self.tokens)
            for random, script in zip(
                randoms, [[]] * len(randoms) if is_new else self.numbers[place], strict=True
            ):
                random.script, random.used = list(script), []
            mask = self.mask(place) if is_new else self.masks[place]
            if not mask.any():
                return False
            logits = fake_logits(self.vocabulary, self.prompt + self.tokens[:place])
            token = chain.sample(logits, None if mask.all() else mask)
            if is_new:
                self.masks = [*getattr(self, "masks", [])[:place], mask]
                self.tokens.append(token)
                self.numbers = [*self.numbers[:place], [list(random.used) for random in randoms]]
                shifted = logits.astype(np.float64) - logits.max()
                self.logprobs = [*self.logprobs[:place], shifted[token] - np.log(np.exp(shifted).sum())]
                return True
            assert token == self.tokens[place], "the replay draws another token"
            chain.accept(token)
        raise AssertionError

    def characters(self, count):
        """Return the complete characters of the first tokens, each with the token of its first byte."""
        decoder, characters, first = codecs.getincrementaldecoder("utf-8")("replace"), [], None
        for index, token in enumerate(self.tokens[:count]):
            if token == self.vocabulary.end:
                continue
            for byte in self.vocabulary.pieces[token]:
                first = index if first is None else first
                new = decoder.decode(bytes([byte]))
                for number, character in enumerate(new):
                    characters.append((character, first if number == 0 else index))
                first = index if decoder.getstate()[0] and new else (first if decoder.getstate()[0] else None)
        return characters, first

    def matches(self, count, at_end):
        """Return start and ban of each match that is decided after the first tokens."""
        text = "".join(character for character, _ in self.characters(count)[0])
        found = set()
        for number, (strings, ignores_case, whole_words, _) in enumerate(self.rules.bans):
            for start in range(len(text)):
                for end in range(start + 1, len(text) + 1):
                    part = text[start:end]
                    if not any(covers(part, string, ignores_case) for string in strings):
                        continue
                    if whole_words:
                        if start and is_word(text[start - 1]):
                            continue
                        if end == len(text) and not at_end:
                            continue
                        if end < len(text) and is_word(text[end]):
                            continue
                    found.add((start, number, end))
        return found

    def judge(self, at_end):
        """Return None if nothing happens, "back" after a return, or the finish reason."""
        count = len(self.tokens)
        old = self.matches(count if at_end else count - 1, False)
        new = self.matches(count, at_end) - old
        characters, _ = self.characters(count)
        for start, number, _ in sorted(new, key=lambda match: match[:2]):
            place, name = characters[start][1], self.rules.bans[number][3]
            if self.attempts.get(place, 0) < self.rules.retries:
                return self.go_back(place, name)
            if self.rules.then == "keep":
                continue
            if self.rules.then == "step_back":
                earlier = place - 1
                while earlier >= self.released and self.attempts.get(earlier, 0) >= max(self.rules.retries, 1):
                    earlier -= 1
                if earlier >= self.released:
                    return self.go_back(earlier, name)
            self.go_back(place, name)
            return "banned"
        if self.rules.loop is not None and not at_end:
            return self.judge_loop()
        return None

    def judge_loop(self):
        min_period, max_period, repeats, min_tokens = self.rules.loop
        tokens, count = self.tokens, len(self.tokens)
        for period in range(min_period, max_period + 1):
            length = max(repeats * period, min_tokens)
            if length <= count and all(
                tokens[i] == tokens[i - period] for i in range(count - length + period, count)
            ):
                place = count - length + period
                if self.attempts.get(place, 0) < self.rules.retries and place >= self.released:
                    return self.go_back(place, None)
                return "loop"
        return None

    def go_back(self, place, name):
        dropped = self.tokens[place:]
        attempt = self.attempts.get(place, 0) + 1
        self.attempts = {p: n for p, n in self.attempts.items() if p <= place} | {place: attempt}
        self.dropped = {p: ids for p, ids in self.dropped.items() if p <= place}
        self.dropped.setdefault(place, []).append(dropped[0])
        self.rewinds.append((place, name, tuple(dropped), attempt))
        del self.tokens[place:], self.numbers[place:], self.logprobs[place:]
        return "back"

    def open_places(self, count):
        """Return the tokens to which the text would return for a match or loop that later tokens complete."""
        places = set()
        if self.rules.bans:
            characters, incomplete = self.characters(count)
            text = "".join(character for character, _ in characters)
            places = {characters[start][1] for start in range(len(text)) if self.is_live(text, start)}
            places |= set() if incomplete is None else {incomplete}
        if self.rules.loop is not None:
            min_period, max_period, *_ = self.rules.loop
            for period in range(min_period, max_period + 1):
                run = 0
                while (last := count - 1 - run) >= period and self.tokens[last] == self.tokens[last - period]:
                    run += 1
                places |= {count - run} if run else set()
        return places

    def undecided(self):
        """Return the index of the first token that must be held back."""
        count = len(self.tokens)

        def close(places):
            while True:
                more = places.union(
                    *(self.open_places(place) for place in places if self.released <= place < count)
                )
                if more == places:
                    return places
                places = more

        places = close(self.open_places(count))
        if self.rules.bans and self.rules.then == "step_back":
            places = close(places | {place - 1 for place in places} | {count - 1})
        return min(places, default=count)

    def is_live(self, text, start):
        for strings, ignores_case, whole_words, _ in self.rules.bans:
            if whole_words and start and is_word(text[start - 1]):
                continue
            for string in strings:
                first = text[start].casefold() if ignores_case else text[start]
                ending = text[start:].casefold() if ignores_case else text[start:]
                wanted = string.casefold() if ignores_case else string
                for offset in range(len(first)):
                    rest = ending[offset:]
                    if wanted.startswith(rest) and (wanted != rest or whole_words):
                        return True
        return False


def covers(part, string, ignores_case):
    """Return whether a string begins in the first character of a part of the text and ends in the last one."""
    if not ignores_case:
        return part == string
    folded, wanted = part.casefold(), string.casefold()
    first, last = len(part[0].casefold()), len(folded) - len(part[-1].casefold())
    return any(folded.startswith(wanted, at) and at + len(wanted) > last for at in range(first))


def is_word(character):
    return character.isalnum() or character == "_"
