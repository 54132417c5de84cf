"""The scores of `gen score`: the tokens of a text, the choices after a prompt, and files of both, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import InvalidLineError
from .lines import parse_object

if TYPE_CHECKING:
    from ..engine.model import Model
    from ..logprobs.events import PromptToken


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
    from ..engine.scoring import score

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
    from ..common.text import count_noun
    from ..engine.scoring import fit_prompt
    from ..engine.vocabulary import tokenize_continuation
    from ..logprobs.scores import choice_scores

    notes = []
    cut: list[_FittedChoice] = []
    for choice in choices:
        prompt_ids, ids, is_separate = tokenize_continuation(model.vocabulary, prompt, choice)
        kept = prompt_ids if is_strict else fit_prompt(model, prompt_ids, ids)
        truncated = len(prompt_ids) - len(kept)
        cut.append(_FittedChoice(choice, tuple(kept), ids, truncated))
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
    steps = _score_fitted_choices(model, cut, progress)
    scores = choice_scores([(one.text, steps[one.text]) for one in cut], [one.truncated for one in cut])
    return {"choices": scores, **({"notes": notes} if notes else {})}


class _FittedChoice(NamedTuple):
    """A choice as it is scored: after ``prompt_ids``, which lack the prompt's first ``truncated`` tokens."""

    text: str
    prompt_ids: tuple[int, ...]
    ids: list[int]
    truncated: int


def _score_fitted_choices(
    model: Model, choices: Sequence[_FittedChoice], progress: Callable[[int, int], None] | None
) -> dict[str, list[PromptToken]]:
    """Return the scored tokens of each choice by its text. Choices that share a prompt are scored together."""
    from ..engine.scoring import score_choices
    from ..models.errors import ModelError

    groups: dict[tuple[int, ...], list[_FittedChoice]] = {}
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


@dataclass(frozen=True)
class LineScore:
    """The outcome of a line.

    Attributes:
        number: the line's number, from 1.
        output: the line with its scores, or with its error, as JSON.
        problem: why the line has no score; None if it has one.
    """

    number: int
    output: str
    problem: str | None = None


def scored_lines(
    model: Model,
    lines: Iterable[tuple[int, bytes]],
    stride: int | None,
    *,
    is_strict: bool = False,
    describe_error: Callable[[Exception], str] = str,
) -> Iterator[LineScore]:
    """Yield the scores of numbered lines, each with a prompt and choices, or a text. Raises ``AbortedError``.

    Args:
        model: the model.
        lines: the lines, numbered from 1.
        stride: tokens from window to window, if a text exceeds the context; None: half of the context.
        is_strict: True if a prompt that does not fit into the context with its choices is an error; otherwise its
            first tokens are left out.
        describe_error: what is wrong, in words for the record of a line.
    """
    from ..models.errors import AbortedError, ModelError

    for number, line in lines:
        try:
            yield LineScore(number, scored_line(model, line, number, stride, None, is_strict))
        except AbortedError:
            raise
        except (ModelError, InvalidLineError) as error:
            problem = describe_error(error)
            yield LineScore(number, failed_line(line, number, problem), problem)


def scored_line(
    model: Model,
    line: bytes,
    number: int,
    stride: int | None,
    progress: Callable[[int], None] | None = None,
    is_strict: bool = False,
) -> str:
    """Return the line with its scores, as JSON; its other fields stay.

    Args:
        model: scores the text.
        line: the line, a JSON object.
        number: its number in the file, from 1.
        stride: tokens from window to window, if a text exceeds the context; None: half of the context.
        progress: called with the number of tokens that were read since the last call, also where windows overlap.
        is_strict: see `scored_lines`.
    """
    from ..common.strict_json import encode_json

    record = parse_object(line)
    scores = _score(model, record, stride, progress, is_strict) | {"line": number, "error": None}
    duplicates = [name for name in scores if name in record and name != "choices"]
    if duplicates:
        raise InvalidLineError(f'"{duplicates[0]}" is a field of the result; rename it in the line')
    try:
        return encode_json(record | scores)
    except (ValueError, RecursionError):
        raise InvalidLineError("it holds a number that JSON has not, or is nested too deeply") from None


def _score(
    model: Model,
    record: dict[str, Any],
    stride: int | None,
    progress: Callable[[int], None] | None,
    is_strict: bool,
) -> dict[str, Any]:
    from ..logprobs.scores import text_score

    if "choices" not in record:
        count = None if progress is None else _counter(progress)
        text = _get_text(record, "text")
        return text_score(list(scored_text(model, text, stride, is_interrupted=count)))
    prompt = _get_text(record, "prompt")
    choices = record["choices"]
    if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
        raise InvalidLineError('"choices" is not a list of texts')
    if len(set(choices)) < len(choices):
        raise InvalidLineError('"choices" has a text twice')
    steps = None if progress is None else _steps(progress)
    scores = scored_choices(model, prompt, choices, steps, is_strict=is_strict)
    return {"logprobs_from": "model"} | scores


def _get_text(record: dict[str, Any], key: str) -> str:
    text = record.get(key)
    if not isinstance(text, str):
        raise InvalidLineError(f'there is no "{key}"' if text is None else f'"{key}" is not a text')
    return text


def _counter(progress: Callable[[int], None]) -> Callable[[], bool]:
    """Return an ``is_interrupted`` that counts: unlike the progress of scores, it is called for overlaps, too."""

    def count() -> bool:
        progress(1)
        return False

    return count


def _steps(progress: Callable[[int], None]) -> Callable[[int, int], None]:
    """Return what takes the number of all tokens that were read, and passes on how many are new."""
    told = 0

    def tell(done: int, _total: int) -> None:
        nonlocal told
        progress(done - told)
        told = done

    return tell


def failed_line(line: bytes, number: int, message: str, code: str = "invalid_request") -> str:
    """Return the record of a line that has no score, as JSON.

    Args:
        line: the line.
        number: its number in the file, from 1.
        message: why it has no score.
        code: the kind of the failure.
    """
    from ..common.strict_json import encode_json
    from ..logprobs.scores import failed_score

    try:
        name = parse_object(line).get("id")
    except InvalidLineError:
        name = None
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        name = None
    return encode_json(failed_score(message, number, name, code))


def stride_problem(stride: int | None, model: Model) -> str | None:
    """What is wrong with a stride that is not less than the context; None: nothing."""
    length = model.context.length
    if stride is None or stride < length:
        return None
    return f"--stride: {stride:,} is not less than the context of {length:,} tokens, see -c"
