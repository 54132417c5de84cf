"""What `gen score` computes: the tokens of a text, and the choices after a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...logprobs.events import PromptToken


def scored_text(
    model: Model,
    text: str,
    stride: int | None,
    progress: Callable[[int, int], None] | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> Iterator[PromptToken]:
    """Score each token of a text.

    Args:
        model: the model.
        text: what is scored.
        stride: tokens from window to window, if the text exceeds the context; None: half of it.
        progress: gets the scored and the total number of tokens.
        is_interrupted: says whether to stop before the next token.
    """
    from ...engine.scoring import score

    ids = model.vocabulary.tokenize_prompt(text.encode())
    return score(model, ids, stride, progress=progress, is_interrupted=is_interrupted)


def scored_choices(
    model: Model,
    prompt: str,
    choices: list[str],
    progress: Callable[[int, int], None] | None = None,
    *,
    is_strict: bool = False,
) -> dict[str, Any]:
    """Score choices after a prompt: ``choices`` holds the scores, ``notes`` what to know about them.

    A prompt that does not fit into the context with a choice loses its first tokens for that choice.

    Args:
        model: the model.
        prompt: the text before each choice.
        choices: the texts.
        progress: called with the number of tokens that were read, and of all.
        is_strict: raise ``ModelError`` for a prompt that does not fit with a choice.
    """
    from ...common.text import count_noun
    from ...engine.scoring import fit_prompt
    from ...engine.vocabulary import tokenize_continuation
    from ...logprobs.scores import choice_scores

    notes = []
    cut: list[_CutChoice] = []
    for choice in choices:
        prompt_ids, ids, is_separate = tokenize_continuation(model.vocabulary, prompt, choice)
        kept = prompt_ids if is_strict else fit_prompt(model, prompt_ids, ids)
        truncated = len(prompt_ids) - len(kept)
        cut.append(_CutChoice(choice, tuple(kept), ids, truncated))
        if is_separate:
            notes.append(f"{choice!r} would join the prompt's last token; it is scored behind it, on its own")
        longer = [other for other in choices if other != choice and other.startswith(choice)]
        if longer:
            notes.append(f"{choice!r} begins {longer[0]!r}, so their probabilities overlap")
        if truncated:
            notes.append(
                f"with {_shortened(choice)} the prompt exceeds the context of {model.context.length:,} tokens; "
                f"its beginning, {count_noun(truncated, 'token')}, was left out"
            )
    steps = _score_cut_choices(model, cut, progress)
    scores = choice_scores([(one.text, steps[one.text]) for one in cut], [one.truncated for one in cut])
    return {"choices": scores, **({"notes": notes} if notes else {})}


class _CutChoice(NamedTuple):
    """A choice as it is scored: after ``prompt_ids``, which lack the prompt's first ``truncated`` tokens."""

    text: str
    prompt_ids: tuple[int, ...]
    ids: list[int]
    truncated: int


def _score_cut_choices(
    model: Model, choices: Sequence[_CutChoice], progress: Callable[[int, int], None] | None
) -> dict[str, list[PromptToken]]:
    """Return the scored tokens of each choice by its text. Choices that share a prompt are scored together."""
    from ...engine.scoring import score_choices
    from ...models.errors import ModelError

    groups: dict[tuple[int, ...], list[_CutChoice]] = {}
    for choice in choices:
        groups.setdefault(choice.prompt_ids, []).append(choice)
    total = sum(map(len, groups)) + sum(len(choice.ids) - 1 for choice in choices)
    done = 0

    def report(count: int, _: int) -> None:
        if progress is not None:
            progress(done + count, total)

    steps: dict[str, list[PromptToken]] = {}
    for prompt_ids, group in groups.items():
        try:
            scored = score_choices(model, prompt_ids, [choice.ids for choice in group], progress=report)
        except ModelError as error:
            problem = _with_text(error.problem, [choice.text for choice in group])
            raise ModelError(problem, advice=error.advice) from None
        steps |= {choice.text: tokens for choice, tokens in zip(group, scored, strict=True)}
        done += len(prompt_ids) + sum(len(choice.ids) - 1 for choice in group)
    return steps


def _with_text(message: str, choices: list[str]) -> str:
    """The engine counts choices; people know them by their text."""
    for number, choice in enumerate(choices, 1):
        name = f"choice {number} "
        if message.startswith(name):
            return f"the choice {_shortened(choice)} {message.removeprefix(name)}"
    return message


def _shortened(choice: str) -> str:
    return repr(choice if len(choice) <= 40 else choice[:40] + "…")
