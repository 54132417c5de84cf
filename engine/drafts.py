"""Drafts of the next tokens: from the text so far, or from a smaller model with the same vocabulary.

A draft saves time if the model reads several tokens in one batch faster than one by one. The chain draws every
token anyway, and a draft only counts as far as the chain draws its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..models.errors import ModelError
from .context import Context, common_token_count
from .native.context import Logits
from .vocabulary import Vocabulary, first_different_token

if TYPE_CHECKING:
    from .model import Model


class DraftSource(Protocol):
    """A source of drafts, which follows the text."""

    @property
    def drafted_token_count(self) -> int: ...

    @property
    def accepted_token_count(self) -> int: ...

    def add(self, token: int) -> None:
        """Append one token to the text."""

    def remove_last(self, count: int) -> None:
        """Remove the last ``count`` tokens of the text."""

    def draft(self, max_count: int) -> list[int]:
        """Return a guess of the next tokens, at most ``max_count``, possibly none."""
        ...

    def record_acceptance(self, drafted_count: int, accepted_count: int) -> None:
        """Record how many tokens of the last draft were right."""


# Number of tokens at the end of the text that must occur earlier, for a draft. The first draft needs the longest
# match, and so does a draft after a wrong one. After a right draft, a short match is enough.
_MAX_MATCH_TOKENS = 4
_MIN_MATCH_TOKENS = 2
# Length of the first draft, and of a draft after a wrong one. On CPUs the first rows of a batch cost most.
_FIRST_DRAFT_TOKENS = 4
# Limit of the pause after wrong drafts, in tokens. The pause begins with one token, and doubles with each wrong
# draft.
_MAX_PAUSE_TOKENS = 32


class PromptLookup:
    """Drafts of up to ``max_tokens`` tokens, which followed an earlier occurrence of the text's last tokens."""

    # A wrong draft costs time. So the first draft needs a long match. While all tokens of the drafts are right,
    # the length doubles, and a short match is enough. If less than half of a draft was right, it cost more time
    # than it saved, and there is no draft for some tokens. All of this depends on the tokens alone, never on
    # measured times, so that a repeated run has the same batches. Source: prompt lookup decoding (A. Saxena 2023);
    # similar to llama.cpp's examples/lookup.

    def __init__(self, max_tokens: int, text: Iterable[int]) -> None:
        self._max_tokens = max_tokens
        self._text_tokens: list[int] = []
        # For each sequence of tokens, the index in the text after its latest occurrence
        self._continuations: dict[tuple[int, ...], int] = {}
        self._max_draft_tokens = min(_FIRST_DRAFT_TOKENS, max_tokens)
        self._min_match_tokens = _MAX_MATCH_TOKENS
        self._paused_tokens = 0
        self._next_pause_tokens = 1
        # For each added token, the entries of `_continuations` that it replaced, to remove the token again
        self._replaced_entries: list[list[tuple[tuple[int, ...], int | None]]] = []
        self.drafted_token_count = 0
        self.accepted_token_count = 0
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        end = len(self._text_tokens)
        replaced_entries = []
        for match_length in range(_MIN_MATCH_TOKENS, min(_MAX_MATCH_TOKENS, end) + 1):
            sequence = tuple(self._text_tokens[end - match_length :])
            replaced_entries.append((sequence, self._continuations.get(sequence)))
            self._continuations[sequence] = end
        self._replaced_entries.append(replaced_entries)
        self._text_tokens.append(token)
        if self._paused_tokens > 0:
            self._paused_tokens -= 1

    def remove_last(self, count: int) -> None:
        for _ in range(count):
            self._text_tokens.pop()
            for sequence, continuation_start in reversed(self._replaced_entries.pop()):
                if continuation_start is None:
                    del self._continuations[sequence]
                else:
                    self._continuations[sequence] = continuation_start

    def draft(self, max_count: int) -> list[int]:
        if self._paused_tokens:
            return []
        longest_match = min(_MAX_MATCH_TOKENS, len(self._text_tokens))
        for match_length in range(longest_match, self._min_match_tokens - 1, -1):
            continuation_start = self._continuations.get(tuple(self._text_tokens[-match_length:]))
            if continuation_start is not None:
                # A continuation that reaches the end of the text is repeated.
                period = len(self._text_tokens) - continuation_start
                return [
                    self._text_tokens[continuation_start + step % period]
                    for step in range(min(max_count, self._max_draft_tokens))
                ]
        return []

    def record_acceptance(self, drafted_count: int, accepted_count: int) -> None:
        """Adapt the length of drafts to the last draft, of which ``accepted_count`` tokens were right."""
        self.drafted_token_count += drafted_count
        self.accepted_token_count += accepted_count
        if accepted_count == drafted_count:
            self._max_draft_tokens = min(self._max_tokens, 2 * self._max_draft_tokens)
            self._min_match_tokens = _MIN_MATCH_TOKENS
            self._next_pause_tokens = 1
            return
        self._max_draft_tokens = min(max(_FIRST_DRAFT_TOKENS, accepted_count), self._max_tokens)
        if 2 * accepted_count >= drafted_count:
            self._next_pause_tokens = 1
        else:
            self._min_match_tokens = _MAX_MATCH_TOKENS
            self._paused_tokens = self._next_pause_tokens
            self._next_pause_tokens = min(2 * self._next_pause_tokens, _MAX_PAUSE_TOKENS)


@dataclass(frozen=True)
class DraftOptions:
    """The draft model of a request, and the limits of its drafts.

    Attributes:
        model: path of a GGUF file with the vocabulary of the model, see `vocabulary_difference`.
        n_max: maximum number of tokens in a draft; 0: no drafts.
        n_min: minimum number of tokens in a draft, at most ``n_max``; a shorter draft is not read.
        p_min: a draft ends before a token whose probability, of the draft model's softmax, is below this.
    """

    model: str | Path
    n_max: int = 3
    n_min: int = 0
    p_min: float = 0.0

    def check(self) -> None:
        """Raise ``ModelError`` for a limit that is not allowed."""
        for name, value in (("n_max", self.n_max), ("n_min", self.n_min)):
            if value < 0:
                raise ModelError(f"{name}: {value} is not ≥ 0", origin="draft")
        if 0 < self.n_max < self.n_min:
            raise ModelError(
                f"draft: n_min: {self.n_min} is more than n_max, {self.n_max}, so that no draft is read",
                advice="lower n_min, or raise n_max",
            )
        if not (isfinite(self.p_min) and 0 <= self.p_min <= 1):
            raise ModelError(f"p_min: {self.p_min:g} is not within 0..1", origin="draft")

    def open_for(self, model: Model) -> Model | None:
        """Return the draft model, which is loaded once and closed with ``model``; None if no draft is possible.

        Raises ``ModelError`` if a limit is not allowed, if one of the models is recurrent, or if their
        vocabularies differ.
        """
        self.check()
        if not self.n_max:
            return None
        if not model.can_truncate:
            raise ModelError(
                "not supported by recurrent models, which cannot discard wrong guesses", origin="draft"
            )
        draft_model = model.companion(self.model)
        if not draft_model.can_truncate:
            raise ModelError(
                f"draft: {draft_model.path} is recurrent, and cannot discard wrong guesses",
                advice="give another draft model",
            )
        difference = vocabulary_difference(model.vocabulary, draft_model.vocabulary)
        if difference:
            raise ModelError(
                f"draft: {draft_model.path} cannot draft for {model.path}: {difference}",
                advice="give a draft model of the same family",
            )
        return draft_model

    def as_setting(self) -> dict[str, Any]:
        """Return the options as JSON. The model has the name of its file."""
        return {"model": Path(self.model).stem, "n_max": self.n_max, "n_min": self.n_min, "p_min": self.p_min}


# Number of tokens by which the sizes of two vocabularies may differ, as in llama.cpp. Models of a family often
# have different padding.
_MAX_SIZE_DIFFERENCE = 128
# The tokens before this id may differ, as in llama.cpp. They are often special tokens with other names.
_FIRST_COMPARED_TOKEN = 5


def vocabulary_difference(vocabulary: Vocabulary, draft_vocabulary: Vocabulary) -> str:
    """Return the first difference that prevents a vocabulary from drafting for another; empty if there is none."""
    # Compared as in llama.cpp: types, whether BOS and EOS are added and their ids, sizes (±128), texts from id 5
    # on.
    if draft_vocabulary.kind != vocabulary.kind:
        return f"its vocabulary is of the type {draft_vocabulary.kind}, not {vocabulary.kind}"
    bos = _AddedToken(vocabulary.adds_bos, vocabulary.bos)
    draft_bos = _AddedToken(draft_vocabulary.adds_bos, draft_vocabulary.bos)
    eos = _AddedToken(vocabulary.adds_eos, vocabulary.eos)
    draft_eos = _AddedToken(draft_vocabulary.adds_eos, draft_vocabulary.eos)
    difference = _added_token_difference("beginning-of-sequence token", bos, draft_bos)
    difference = difference or _added_token_difference("end-of-sequence token", eos, draft_eos)
    if difference:
        return difference
    if abs(draft_vocabulary.size - vocabulary.size) > _MAX_SIZE_DIFFERENCE:
        sizes = f"{draft_vocabulary.size:,} tokens, not {vocabulary.size:,}"
        return f"it has {sizes}; at most {_MAX_SIZE_DIFFERENCE} more or fewer are allowed"
    texts = vocabulary.texts
    draft_texts = draft_vocabulary.texts
    token = first_different_token(texts, draft_texts, _FIRST_COMPARED_TOKEN)
    if token is None:
        return ""
    return f"token {token} is {_shown(draft_texts[token])}, not {_shown(texts[token])}"


class _AddedToken(NamedTuple):
    """A token that a tokenizer may add to each text."""

    is_added: bool
    token: int | None


def _added_token_difference(name: str, added: _AddedToken, draft_added: _AddedToken) -> str:
    """Return how a draft model differs from the model in a token that is added; empty if it does not."""
    if added.is_added and not draft_added.is_added:
        return f"it does not add the {name} to a text, and the model adds it"
    if draft_added.is_added and not added.is_added:
        return f"it adds the {name} to a text, and the model does not add it"
    if added.is_added and draft_added.token != added.token:
        return f"its {name} is {_token_words(draft_added.token)}, not {_token_words(added.token)}"
    return ""


def _token_words(token: int | None) -> str:
    return "missing" if token is None else str(token)


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))


# makes a draft model read a text, of which it may reuse the beginning; returns the logits after it, float32 (V,),
# valid until the next call, or None if it was interrupted
ReadTokens = Callable[[Sequence[int]], Logits | None]


class DraftText:
    """The text of a single run, which a draft model reads in a separate context."""

    def __init__(self, context: Context, is_interrupted: Callable[[], bool] | None) -> None:
        self._context = context
        self._is_interrupted = is_interrupted
        self._has_begun = False

    def read(self, tokens: Sequence[int]) -> Logits | None:
        """Read a text; see `ReadTokens`."""
        # The first text of a run is read as an empty context reads it. So the drafts of a run depend on its text
        # alone, and a repeated run has the same batches.
        context = self._context
        is_first = not self._has_begun
        kept_count = 0 if is_first else common_token_count(context.tokens, list(tokens))
        # llama.cpp calls `is_interrupted` at each node of the graph, which costs more than reading a few tokens.
        is_long = len(tokens) - kept_count > context.max_rows
        is_interrupted = self._is_interrupted if is_long else None
        context.read(tokens, is_interrupted=is_interrupted, exact=is_first)
        self._has_begun = True
        return context.logits() if len(context.tokens) == len(tokens) else None


class ModelDraft:
    """Drafts of a draft model: after the text, always the model's most likely token."""

    # The draft model reads the same text. When its context is full, it forgets the first half of the text. The
    # limits of `DraftOptions` are those of llama.cpp, except that llama.cpp computes the probability for ``p_min``
    # from the ten most likely tokens alone.

    def __init__(
        self, options: DraftOptions, draft_model: Model, vocabulary: Vocabulary, read: ReadTokens
    ) -> None:
        self._options = options
        self._read = read
        self._length = draft_model.context_length
        self._last_token = draft_model.vocabulary.size - 1
        self._common_token_count = min(draft_model.vocabulary.size, vocabulary.size)
        self._text_tokens: list[int] = []
        self.drafted_token_count = 0
        self.accepted_token_count = 0

    def add(self, token: int) -> None:
        self._text_tokens.append(min(token, self._last_token))  # the draft model may have fewer tokens

    def remove_last(self, count: int) -> None:
        del self._text_tokens[max(0, len(self._text_tokens) - count) :]

    def draft(self, max_count: int) -> list[int]:
        max_draft_tokens = min(max_count, self._options.n_max, self._length // 2)
        if max_draft_tokens < max(1, self._options.n_min):
            return []
        tokens = self._text_tokens
        while len(tokens) + max_draft_tokens > self._length:
            del tokens[: (len(tokens) + 1) // 2]
        if not tokens:
            return []
        text_length = len(tokens)
        try:
            while len(tokens) < text_length + max_draft_tokens:
                logits = self._read(tokens)
                if logits is None:
                    return []
                token = int(logits[: self._common_token_count].argmax())
                if self._options.p_min and _probability(logits, token) < self._options.p_min:
                    break
                tokens.append(token)
            draft = tokens[text_length:]
        finally:
            del tokens[text_length:]
        return draft if len(draft) >= self._options.n_min else []

    def record_acceptance(self, drafted_count: int, accepted_count: int) -> None:
        self.drafted_token_count += drafted_count
        self.accepted_token_count += accepted_count


def _probability(logits: Logits, token: int) -> float:
    highest = logits.max()
    weights = np.exp(logits - highest)
    return float(weights[token] / weights.sum())


class FirstDraft:
    """The drafts of the first of several sources that has one."""

    def __init__(self, sources: Sequence[DraftSource]) -> None:
        """Begin with sources that have the same text. The first one takes precedence."""
        self._sources = sources
        self._last_source = sources[0]

    @property
    def drafted_token_count(self) -> int:
        return sum(source.drafted_token_count for source in self._sources)

    @property
    def accepted_token_count(self) -> int:
        return sum(source.accepted_token_count for source in self._sources)

    def add(self, token: int) -> None:
        for source in self._sources:
            source.add(token)

    def remove_last(self, count: int) -> None:
        for source in self._sources:
            source.remove_last(count)

    def draft(self, max_count: int) -> list[int]:
        for source in self._sources:
            draft = source.draft(max_count)
            if draft:
                self._last_source = source
                return draft
        return []

    def record_acceptance(self, drafted_count: int, accepted_count: int) -> None:
        """Report the last draft to the source that made it."""
        self._last_source.record_acceptance(drafted_count, accepted_count)
