"""Logprobs of texts that are given: a prompt's own, a whole text's, and those of several ways to go on."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from ..logprobs import Distribution
from .context import Progress
from .distribution import LogprobReader, LogprobRequest
from .errors import ModelError
from .events import PromptToken
from .model import Model
from .vocabulary import Vocabulary

Interrupted = Callable[[], bool]
Said = tuple[Distribution, ...]

CHOSEN_ONLY = LogprobRequest(0)


def score_prompt(
    model: Model,
    ids: Sequence[int],
    wanted: LogprobRequest = CHOSEN_ONLY,
    progress: Progress | None = None,
    interrupted: Interrupted | None = None,
) -> Iterator[PromptToken]:
    """Read a prompt and tell of each of its tokens; token i's logprob is the one given tokens 0 to i - 1.

    The first token has none. One pass, with the logits of at most 32 MB at a time. Ends early once ``interrupted``
    returns True.
    """
    return _told(model, ids, _read(model, ids, LogprobReader(model.vocabulary, wanted), progress, interrupted))


def score(  # noqa: PLR0913 - each is one thing to be said by name
    model: Model,
    ids: Sequence[int],
    stride: int | None = None,
    *,
    wanted: LogprobRequest = CHOSEN_ONLY,
    progress: Progress | None = None,
    interrupted: Interrupted | None = None,
) -> Iterator[PromptToken]:
    """Tell of each token of a text, however long it is.

    A text longer than the context is read in windows that begin ``stride`` tokens apart (default: half of it);
    each tells of the tokens that the one before did not reach, so that all but the first window's tokens have at
    least context - stride tokens before them. A window begins with BOS if the text does. Raises ``ModelError``.
    """
    if not ids:
        raise ModelError("there is nothing to score: the text has no tokens")
    model.vocabulary.check(ids)
    length = model.context.length
    if stride is None:
        stride = max(1, length // 2)
    if not 0 < stride < length:
        raise ModelError(f"stride: {stride} is not within 1..{length - 1}, less than the context")
    reader = LogprobReader(model.vocabulary, wanted)
    return _told(model, ids, _windows(model, ids, stride, reader, (progress, interrupted)))


def score_choices(
    model: Model, prompt: Sequence[int], choices: Sequence[Sequence[int]], wanted: LogprobRequest = CHOSEN_ONLY
) -> list[list[PromptToken]]:
    """Tell of the tokens of each of several continuations of a prompt, which is read once for all of them.

    Raises ``ModelError`` where a choice is empty, or does not fit into the context behind the prompt.
    """
    context = model.context
    if not prompt:
        raise ModelError("the prompt has no tokens, so that nothing comes before a choice")
    for number, ids in enumerate(choices, 1):
        model.vocabulary.check(ids)
        if not ids:
            raise ModelError(f"choice {number} has no tokens")
        if len(prompt) + len(ids) - 1 > context.length:
            raise ModelError(
                f"choice {number} does not fit: the prompt has {len(prompt):,} tokens, the choice {len(ids):,}, "
                f"and the context holds {context.length:,}; give a larger -c"
            )
    model.vocabulary.check(prompt)
    reader = LogprobReader(model.vocabulary, wanted)
    context.read(prompt, small=True)
    behind = context.logits().copy()
    found = []
    for ids in choices:
        context.back_to(len(prompt))
        rows = chain([behind], context.push_each(ids[:-1]))
        said = (reader.read(row, token) for token, row in zip(ids, rows, strict=True))
        found.append(list(_told(model, ids, said)))
    return found


def tokenize_continuation(vocabulary: Vocabulary, prompt: str, choice: str) -> tuple[list[int], list[int], bool]:
    """The tokens of a prompt and of a choice behind it, and whether the two together would be cut otherwise.

    Where the whole text begins with the prompt's own tokens, the choice has the rest; else its own, cut apart.
    Raises ``ModelError`` where the choice has no tokens of its own.
    """
    before = vocabulary.tokenize_prompt(prompt.encode())
    whole = vocabulary.tokenize_prompt((prompt + choice).encode())
    if whole[: len(before)] == before:
        return before, whole[len(before) :], False
    data = choice.encode()
    # SentencePiece puts a blank before a text; behind a line end it does not.
    for ids in (vocabulary.tokenize(data, special=True), vocabulary.tokenize(b"\n" + data, special=True)[1:]):
        if b"".join(map(vocabulary.piece, ids)) == data:
            return before, ids, True
    raise ModelError(
        f"{choice!r} cannot be cut into tokens by itself, and behind the prompt it joins its last one"
    )


def _read(
    model: Model,
    ids: Sequence[int],
    reader: LogprobReader,
    progress: Progress | None,
    interrupted: Interrupted | None,
) -> Iterator[Said]:
    yield ()
    for place, logits in enumerate(model.context.read_each(ids), 1):
        if progress is not None:
            progress(place, len(ids))
        if interrupted is not None and interrupted():
            return
        if place < len(ids):
            yield reader.read(logits, ids[place])


def _windows(
    model: Model,
    ids: Sequence[int],
    stride: int,
    reader: LogprobReader,
    watch: tuple[Progress | None, Interrupted | None],
) -> Iterator[Said]:
    progress, interrupted = watch
    length = model.context.length
    bos = [ids[0]] if ids[0] == model.vocabulary.bos else []
    done = 0
    for start in range(0, len(ids), stride):
        head = bos if start else []
        window = [*head, *ids[start : start + length - len(head)]]
        first = done - start + len(head)
        for said in islice(_read(model, window, reader, None, interrupted), first, None):
            done += 1
            if progress is not None:
                progress(done, len(ids))
            yield said
        if done == len(ids) or (interrupted is not None and interrupted()):
            return


def _told(model: Model, ids: Iterable[int], said: Iterable[Said]) -> Iterator[PromptToken]:
    """Put each token beside what is said of it, as far as that goes. An added BOS is not part of the text."""
    vocabulary = model.vocabulary
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    # What is said comes first, so that it is asked once more at the end: only then the last token is read.
    for place, (found, token) in enumerate(zip(said, ids, strict=False)):
        data = vocabulary.piece(token)
        added = place == 0 and vocabulary.adds_bos and token == vocabulary.bos
        text = "" if added else decoder.decode(data)
        yield PromptToken(place, token, data, text, added, found)
