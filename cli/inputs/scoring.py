"""What `gen score` computes: the tokens of a text, and the choices after a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...engine import Model, PromptToken


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
    from ...engine import score

    ids = model.vocabulary.tokenize_prompt(text.encode())
    return score(model, ids, stride, progress=progress, is_interrupted=is_interrupted)


def scored_choices(
    model: Model, prompt: str, choices: list[str], progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Score choices after a prompt: ``choices`` holds the scores, ``notes`` what to know about them.

    Args:
        model: the model.
        prompt: the text before each choice.
        choices: the texts.
        progress: called with the number of tokens that were read, and of all.
    """
    from ...engine import ModelError, score_choices, tokenize_continuation
    from ...logprobs import choice_scores

    notes = []
    choice_ids = []
    prompt_ids: list[int] = []
    for choice in choices:
        prompt_ids, ids, is_separate = tokenize_continuation(model.vocabulary, prompt, choice)
        choice_ids.append(ids)
        if is_separate:
            notes.append(f"{choice!r} would join the prompt's last token; it is scored behind it, on its own")
        longer = [other for other in choices if other != choice and other.startswith(choice)]
        if longer:
            notes.append(f"{choice!r} begins {longer[0]!r}, so their probabilities overlap")
    try:
        steps = score_choices(model, prompt_ids, choice_ids, progress=progress)
    except ModelError as error:
        raise ModelError(_with_text(str(error), choices)) from None
    scores = choice_scores(list(zip(choices, steps, strict=True)))
    return {"choices": scores, **({"notes": notes} if notes else {})}


def _with_text(message: str, choices: list[str]) -> str:
    """The engine counts choices; people know them by their text."""
    for number, choice in enumerate(choices, 1):
        name = f"choice {number} "
        if message.startswith(name):
            shown = choice if len(choice) <= 40 else choice[:40] + "…"
            return f"the choice {shown!r} {message.removeprefix(name)}"
    return message
