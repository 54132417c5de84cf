"""Scores: logprobs of the tokens of a prompt, of a text of any length, and of a prompt's continuations."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from ..common.errors import Word
from ..common.text import count_noun
from ..logprobs.events import PromptToken
from ..logprobs.records import Distribution
from ..models.errors import AbortedError, ModelError
from .context import Progress
from .model import Model
from .native.context import Logits
from .token_records import LogprobReader, LogprobRequest

CHOSEN_ONLY = LogprobRequest(0)

WITH_TOP_TOKEN = LogprobRequest(1)


def score_prompt(
    model: Model,
    ids: Sequence[int],
    logprobs: LogprobRequest = CHOSEN_ONLY,
    progress: Progress | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> Iterator[PromptToken]:
    """Read a prompt in small batches, and yield each token with its logprob, given the tokens before it.

    Args:
        model: The model, whose context is used.
        ids: The tokens of the prompt. The first one gets no logprob.
        logprobs: The logprobs to read.
        progress: Called after each token.
        is_interrupted: Called after each token. Once it returns True, reading ends.

    Raises ``ModelError``.
    """
    scorer = _Scorer(model, LogprobReader(model.vocabulary, logprobs), is_interrupted)
    return _join_prompt_tokens(model, ids, scorer.until_aborted(scorer.read(ids, progress)))


def scored_tokens(
    model: Model, ids: Sequence[int], rows: Iterator[Logits], logprobs: LogprobRequest
) -> Iterator[PromptToken]:
    """Yield each token of a prompt with the model's logprobs, from the logits after each; the first gets none."""
    scorer = _Scorer(model, LogprobReader(model.vocabulary, replace(logprobs, source="model")), None)
    return _join_prompt_tokens(model, ids, scorer.read_rows(rows, ids, None))


def score(  # noqa: PLR0913 - the arguments are public
    model: Model,
    ids: Sequence[int],
    stride: int | None = None,
    *,
    logprobs: LogprobRequest = CHOSEN_ONLY,
    progress: Progress | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> Iterator[PromptToken]:
    """Yield each token of a text of any length with its logprob.

    A text longer than the context is read in overlapping scoring windows. Each window yields only the tokens that
    the previous one did not have. After the first window, every token has at least context - stride tokens before
    it. A window begins with BOS if the text does.

    Args:
        model: The model, whose context is used.
        ids: The tokens of the text.
        stride: Distance between the beginnings of two windows, in tokens; None: half the context.
        logprobs: The logprobs to read.
        progress: Called after each token.
        is_interrupted: Called after each token. Once it returns True, reading ends.

    Raises ``ModelError``.
    """
    if not ids:
        raise ModelError("the text has no tokens to score")
    model.vocabulary.check(ids)
    length = model.context.length
    if stride is None:
        stride = max(1, length // 2)
    if not 0 < stride < length:
        raise ModelError(f"{stride} is not within 1..{length - 1} (less than the context)", origin="stride")
    scorer = _Scorer(model, LogprobReader(model.vocabulary, logprobs), is_interrupted)
    return _join_prompt_tokens(model, ids, scorer.until_aborted(scorer.read_windows(ids, stride, progress)))


def score_choices(
    model: Model,
    prompt: Sequence[int],
    choices: Sequence[Sequence[int]],
    logprobs: LogprobRequest = WITH_TOP_TOKEN,
    progress: Progress | None = None,
) -> list[list[PromptToken]]:
    """Return the tokens of each continuation of a prompt, with their logprobs.

    Args:
        model: The model, whose context is used.
        prompt: The tokens of the prompt. They are read once for all choices.
        choices: The tokens of each continuation.
        logprobs: The logprobs to read.
        progress: Called after each batch of the prompt, and after each choice.

    Raises ``ModelError`` if the prompt or a choice is empty, or if a choice does not fit into the context.
    """
    context = model.context
    _check_choices(model, prompt, choices)
    reader = LogprobReader(model.vocabulary, logprobs)
    total_tokens = len(prompt) + sum(len(ids) - 1 for ids in choices)

    def report_prompt(count: int, _: int) -> None:
        if progress is not None:
            progress(count, total_tokens)

    context.read(prompt, report_prompt, small_batches=True)
    first_row = context.logits().copy()
    tokens_by_choice = []
    done_tokens = len(prompt)
    for ids in choices:
        context.truncate(len(prompt))
        rows = chain([first_row], context.append_in_small_batches(ids[:-1]))
        distributions = (reader.read_of_text(row, token) for token, row in zip(ids, rows, strict=True))
        tokens_by_choice.append(list(_join_prompt_tokens(model, ids, distributions, prompt[-1])))
        done_tokens += len(ids) - 1
        if progress is not None:
            progress(done_tokens, total_tokens)
    return tokens_by_choice


def fit_prompt(model: Model, prompt: Sequence[int], choice: Sequence[int]) -> list[int]:
    """Return the end of a prompt that fits into the context with a choice, as in lm-evaluation-harness."""
    # BOS stays if another token fits after it. The complete prompt is returned if the choice alone does not fit.
    max_prompt_tokens = model.context.length - (len(choice) - 1)
    if max_prompt_tokens < 1 or len(prompt) <= max_prompt_tokens:
        return list(prompt)  # `score_choices` rejects a choice that does not fit without a prompt
    bos = [prompt[0]] if prompt[0] == model.vocabulary.bos and max_prompt_tokens > 1 else []
    return [*bos, *prompt[len(prompt) - (max_prompt_tokens - len(bos)) :]]


def _check_choices(model: Model, prompt: Sequence[int], choices: Sequence[Sequence[int]]) -> None:
    if not prompt:
        raise ModelError("the prompt has no tokens; a choice needs at least one token before it")
    for number, choice in enumerate(choices, 1):
        model.vocabulary.check(choice)
        if not choice:
            raise ModelError(f"choice {number} has no tokens")
        check_choice(model, prompt, choice, f"choice {number}")
    model.vocabulary.check(prompt)


def check_choice(model: Model, prompt: Sequence[int], choice: Sequence[int], choice_words: str) -> None:
    """Raise ``ModelError`` if a choice does not fit into the context after the prompt."""
    if len(prompt) + len(choice) - 1 > model.context.length:
        raise ModelError(
            f"{choice_words} does not fit: the prompt has {count_noun(len(prompt), 'token')}, "
            f"the choice {len(choice):,}, and the context holds {model.context.length:,}",
            advice=("give a larger ", Word.N_CTX),
        )


Distributions = tuple[Distribution, ...]  # the distributions of one token, one per source


@dataclass(frozen=True)
class _Scorer:
    """A reader of texts that yields the distributions that each token was taken from; () for the first token."""

    model: Model
    logprob_reader: LogprobReader
    is_interrupted: Callable[[], bool] | None  # called after each token. Once it returns True, reading ends.

    def until_aborted(self, distributions: Iterator[Distributions]) -> Iterator[Distributions]:
        """Yield distributions until `Model.abort` ends the computation; without ``is_interrupted``, raise."""
        try:
            yield from distributions
        except AbortedError:
            if self.is_interrupted is None:
                raise

    def read(self, ids: Sequence[int], progress: Progress | None) -> Iterator[Distributions]:
        """Read a text that fits into the context, and yield the distributions of each token."""
        return self.read_rows(self.model.context.read_each(ids), ids, progress)

    def read_rows(
        self, rows: Iterator[Logits], ids: Sequence[int], progress: Progress | None
    ) -> Iterator[Distributions]:
        """Yield the distributions of each token from the logits after each token, including the last one's."""
        yield ()
        for token_count, logits in enumerate(rows, 1):
            if progress is not None:
                progress(token_count, len(ids))
            if self.is_interrupted is not None and self.is_interrupted():
                return
            if token_count < len(ids):
                yield self.logprob_reader.read_of_text(logits, ids[token_count])

    def read_windows(self, ids: Sequence[int], stride: int, progress: Progress | None) -> Iterator[Distributions]:
        """Read a text of any length in overlapping windows, and yield the distributions of each token."""
        context_length = self.model.context.length
        bos = [ids[0]] if ids[0] == self.model.vocabulary.bos else []
        yielded_tokens = 0
        for start in range(0, len(ids), stride):
            added_bos = bos if start else []
            window = [*added_bos, *ids[start : start + context_length - len(added_bos)]]
            first_new_index = yielded_tokens - start + len(added_bos)
            for distributions in islice(self.read(window, None), first_new_index, None):
                yielded_tokens += 1
                if progress is not None:
                    progress(yielded_tokens, len(ids))
                yield distributions
            if yielded_tokens == len(ids) or (self.is_interrupted is not None and self.is_interrupted()):
                return


def _join_prompt_tokens(
    model: Model, ids: Iterable[int], distributions: Iterable[Distributions], previous_token: int | None = None
) -> Iterator[PromptToken]:
    """Join each token with its distributions, until either iterable ends. An added BOS has no text."""
    vocabulary = model.vocabulary
    is_beginning = previous_token is None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    # zip tries to take one more item of its first argument at the end. That makes the model read the last token.
    for index, (token_distributions, token) in enumerate(zip(distributions, ids, strict=False)):
        data = vocabulary.piece(token)
        is_added = is_beginning and index == 0 and vocabulary.adds_bos and token == vocabulary.bos
        text = "" if is_added else decoder.decode(data)
        added_bytes = vocabulary.added_bytes(token, previous_token)
        yield PromptToken(index, token, data, text, is_added, token_distributions, added_bytes)
        previous_token = token
