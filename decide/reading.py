"""The model's probabilities of options after a prompt, from the logits of the tokens of their spellings."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import fsum, inf, isfinite, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.text import short_repr
from ..engine.context import common_token_count
from ..engine.native.context import Logits
from ..engine.paths import PathStep
from ..engine.vocabulary import Vocabulary
from ..models.errors import ModelError
from .errors import QuestionError

Reading = Generator[PathStep, Sequence[Logits], "OptionReading"]

# The search through divisions into tokens ends when what remains undecided is less likely than this, or after this
# number of rows of logits.
_MIN_UNDECIDED = 1e-9
_MAX_GRAMMAR_ROWS = 2000


class SpelledToken(NamedTuple):
    """A token of a spelling, with the model's logprob.

    Attributes:
        id: the token.
        logprob: ln of its probability after the tokens before it, nats.
    """

    id: int
    logprob: float


class SpellingReading(NamedTuple):
    """The tokens of a spelling, and the end after them.

    Attributes:
        text: the spelling.
        tokens: its tokens.
        end_logprob: ln of the probability that the answer ends there, nats.
    """

    text: str
    tokens: tuple[SpelledToken, ...]
    end_logprob: float

    @property
    def logprob(self) -> float:
        """The ln of the probability of the spelling and the end after it, nats."""
        return fsum(token.logprob for token in self.tokens) + self.end_logprob


@dataclass(frozen=True)
class OptionReading:
    """What was read for the options of a question.

    Attributes:
        spellings: the spellings of each option.
        shared: spellings that several options share, which belong to none of them.
        grammar_probabilities: for each option, the probability that a run under the options' grammar writes it;
            None with the method ``sequence``.
        undecided: the probability of the texts under the grammar that were not followed to an option.
    """

    spellings: tuple[tuple[SpellingReading, ...], ...]
    shared: tuple[str, ...] = ()
    grammar_probabilities: tuple[float, ...] | None = None
    undecided: float = 0.0

    @property
    def logprobs(self) -> list[float]:
        """The ln of the probability of each option: of the sum over its spellings, nats."""
        return [log_sum([spelling.logprob for spelling in spellings]) for spellings in self.spellings]


def log_sum(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Return ln of the sum of exp(value), in float64; -inf without values."""
    array = np.asarray(values, dtype=np.float64)
    highest = float(array.max(initial=-inf))
    if highest == -inf:
        return -inf
    return highest + log(float(np.exp(array - highest).sum()))


class _TokenizedSpellings(NamedTuple):
    texts: list[dict[tuple[int, ...], str]]  # the spellings of each option, by their tokens
    shared: tuple[str, ...]  # those that several options share, which belong to none of them


class OptionReader:
    """A reader of options, for one vocabulary.

    The end of an answer is any end-of-generation token. After a plain prompt it is also any token whose bytes
    begin with a line end.
    """

    def __init__(self, vocabulary: Vocabulary, *, is_plain: bool) -> None:
        self._vocabulary = vocabulary
        end_ids = set(vocabulary.eog)
        if is_plain:
            end_ids.update(
                token for token, piece in enumerate(vocabulary.pieces) if piece.startswith((b"\n", b"\r"))
            )
        self._end_ids = np.array(sorted(end_ids), dtype=np.intp)
        self._eog_ids = sorted(vocabulary.eog)

    def read(
        self, row: Logits, previous_token: int, spellings: Sequence[Sequence[str]], *, with_grammar: bool
    ) -> Reading:
        """Return a generator for a `PathRequest`, which reads the spellings of each option.

        Args:
            row: The logits after the prompt.
            previous_token: The last token of the prompt.
            spellings: The spellings of each option.
            with_grammar: Whether to compute what a run under the options' grammar draws.
        """
        tokenized = self._tokenize(previous_token, spellings)
        tree = _Node()
        for texts in tokenized.texts:
            for tokens, text in texts.items():
                tree.add(tokens, text)
        yield from self._read_tree(tree, row)
        readings = tuple(
            tuple(self._spelling(text, tokens, tree) for tokens, text in texts.items())
            for texts in tokenized.texts
        )
        if not with_grammar:
            return OptionReading(readings, tokenized.shared)
        grammar = _GrammarNode.of(
            {text.encode(): index for index, texts in enumerate(tokenized.texts) for text in texts.values()}
        )
        probabilities, undecided = yield from self._read_grammar(grammar, row, len(spellings))
        return OptionReading(readings, tokenized.shared, probabilities, undecided)

    def _tokenize(self, previous_token: int, spellings: Sequence[Sequence[str]]) -> _TokenizedSpellings:
        """Tokenize the spellings. A tokenizer may give several texts the same tokens."""
        tokenize = partial(self._vocabulary.tokenize_after, previous_token=previous_token, special=False)
        texts_of_options: list[dict[tuple[int, ...], str]] = []
        counts = Counter[tuple[int, ...]]()
        for texts in spellings:
            text_by_tokens: dict[tuple[int, ...], str] = {}
            for text in texts:
                text_by_tokens.setdefault(tuple(tokenize(text.encode())), text)
            texts_of_options.append(text_by_tokens)
            counts.update(text_by_tokens.keys())
        own = [
            {tokens: text for tokens, text in texts.items() if counts[tokens] == 1} for texts in texts_of_options
        ]
        for texts, own_texts in zip(spellings, own, strict=True):
            if not own_texts:
                raise QuestionError(f"every spelling of {texts[0]!r} is also one of another option")
        shared = {text for texts in texts_of_options for tokens, text in texts.items() if counts[tokens] > 1}
        return _TokenizedSpellings(own, tuple(sorted(shared)))

    def _read_tree(self, tree: _Node, row: Logits) -> Generator[PathStep, Sequence[Logits], None]:
        """Read each token of a tree once, and set the logprobs of its nodes."""
        self._set_logprobs(tree, row)
        for kept, nodes in tree.branches():
            rows = yield PathStep(kept, [node.token for node in nodes], f"the option {short_repr(nodes[-1].text)}")
            for node, node_row in zip(nodes, rows, strict=True):
                self._set_logprobs(node, node_row)

    def _set_logprobs(self, node: _Node, row: Logits) -> None:
        """Set the logprob of the end after a node, and those of its children."""
        logits = row.astype(np.float64)
        log_total = log_sum(logits)
        if not isfinite(log_total):
            raise ModelError("the model's logits are not finite numbers")
        if node.text is not None:
            node.end_logprob = log_sum(logits[self._end_ids]) - log_total
        for child in node.children.values():
            child.logprob = float(logits[child.token]) - log_total

    @staticmethod
    def _spelling(text: str, tokens: Sequence[int], tree: _Node) -> SpellingReading:
        nodes = list(tree.follow(tokens))
        read = tuple(SpelledToken(node.token, node.logprob) for node in nodes)
        return SpellingReading(text, read, nodes[-1].end_logprob)

    def _read_grammar(
        self, root: _GrammarNode, row: Logits, option_count: int
    ) -> Generator[PathStep, Sequence[Logits], tuple[tuple[float, ...], float]]:
        """Return the probability of each option under the grammar, and what remains undecided.

        A text is followed, the most likely first, until only one option can still be written.
        """
        probabilities = [0.0] * option_count
        path: tuple[int, ...] = ()
        waiting: list[_Prefix] = []
        row_count = 0
        undecided = self._divide(_Prefix(-1.0, (), root), row, probabilities, waiting)
        while waiting and undecided > _MIN_UNDECIDED and row_count < _MAX_GRAMMAR_ROWS:
            prefix = heapq.heappop(waiting)
            undecided += prefix.negative_probability
            kept = common_token_count(path, prefix.tokens[:-1])
            path = prefix.tokens
            *_, row = yield PathStep(kept, path[kept:])
            row_count += len(path) - kept
            undecided += self._divide(prefix, row, probabilities, waiting)
        total = fsum(probabilities)
        if not total:
            raise QuestionError("the options begin alike for so long that a grammar cannot tell them apart")
        return tuple(probability / total for probability in probabilities), max(0.0, undecided) if waiting else 0.0

    def _divide(self, prefix: _Prefix, row: Logits, probabilities: list[float], waiting: list[_Prefix]) -> float:
        """Divide the probability of a text among the tokens that may follow it; return the undecided part."""
        followers = self._followers(prefix.node)
        logits = row[[token for token, _ in followers]].astype(np.float64)
        weights = np.exp(logits - log_sum(logits))
        undecided = 0.0
        for (token, node), weight in zip(followers, weights.tolist(), strict=True):
            probability = -prefix.negative_probability * weight
            option = prefix.node.end_of if node is None else node.only_option
            if option is not None:
                probabilities[option] += probability
            elif node is not None and probability > 0:
                heapq.heappush(waiting, _Prefix(-probability, (*prefix.tokens, token), node))
                undecided += probability
        return undecided

    def _followers(self, node: _GrammarNode) -> list[tuple[int, _GrammarNode | None]]:
        """Return the tokens that may follow a text under the grammar, and the text then; None after an end."""
        if node.followers is None:
            node.followers = [
                (token, later)
                for data, later in node.later(self._longest_piece)
                for token in self._ids_by_piece.get(data, ())
            ]
            if node.end_of is not None:
                node.followers += [(token, None) for token in self._eog_ids]
        return node.followers

    @cached_property
    def _longest_piece(self) -> int:
        return max(map(len, self._ids_by_piece))

    @cached_property
    def _ids_by_piece(self) -> dict[bytes, list[int]]:
        control = self._vocabulary.control
        ids: dict[bytes, list[int]] = {}
        for token, piece in enumerate(self._vocabulary.pieces):
            if token not in control:
                ids.setdefault(piece, []).append(token)
        return ids


@dataclass
class _Node:
    """A token in the tree of all spellings, which share the nodes of their common beginnings."""

    token: int = -1
    children: dict[int, _Node] = field(default_factory=dict)
    text: str | None = None  # the spelling that ends here; None if none does
    logprob: float = -inf
    end_logprob: float = -inf

    def add(self, tokens: Sequence[int], text: str) -> None:
        node = self
        for token in tokens:
            node = node.children.setdefault(token, _Node(token))
        node.text = text

    def follow(self, tokens: Sequence[int]) -> Iterator[_Node]:
        node = self
        for token in tokens:
            node = node.children[token]
            yield node

    def branches(self, depth: int = 0) -> Iterator[tuple[int, list[_Node]]]:
        """Yield the nodes of the tree, each once: depths from which branches are followed to a leaf."""
        for child in self.children.values():
            nodes = [child]
            while nodes[-1].children:
                nodes.append(next(iter(nodes[-1].children.values())))
            yield depth, nodes
            for index in reversed(range(len(nodes))):
                node = nodes[index]
                others = dict(list(node.children.items())[1:])
                yield from _Node(children=others).branches(depth + index + 1)


@dataclass
class _GrammarNode:
    """A byte in the tree of the bytes of all spellings."""

    children: dict[int, _GrammarNode] = field(default_factory=dict)
    end_of: int | None = None  # the option of which a spelling ends here
    options: set[int] = field(default_factory=set)  # the options that can still be written
    followers: list[tuple[int, _GrammarNode | None]] | None = None

    @classmethod
    def of(cls, option_by_text: dict[bytes, int]) -> _GrammarNode:
        root = cls()
        for text, option in option_by_text.items():
            node = root
            node.options.add(option)
            for byte in text:
                node = node.children.setdefault(byte, cls())
                node.options.add(option)
            node.end_of = option
        return root

    @property
    def only_option(self) -> int | None:
        """The option that is written here with certainty; None if there are several."""
        return next(iter(self.options)) if len(self.options) == 1 else None

    def later(self, max_bytes: int, data: bytes = b"") -> Iterator[tuple[bytes, _GrammarNode]]:
        """Yield the texts of at most ``max_bytes`` that may follow ``data``, with their nodes."""
        if len(data) == max_bytes:
            return
        for byte, child in self.children.items():
            text = data + bytes((byte,))
            yield text, child
            yield from child.later(max_bytes, text)


class _Prefix(NamedTuple):
    """The beginning of a text under the grammar; sorted by probability, the highest first."""

    negative_probability: float
    tokens: tuple[int, ...]
    node: _GrammarNode
