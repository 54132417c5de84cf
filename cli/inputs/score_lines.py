"""`gen score --jsonl`: a file of prompts and texts in, their scores out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...common.files import input_name, is_stdin, open_input
from ..errors import FAILED, flag_sentence, say
from ..interrupt import Interrupt
from .json_lines import InvalidLineError, number_lines, parse_object
from .scoring import scored_choices, scored_text

if TYPE_CHECKING:
    from ...engine.model import Model


def score_lines(
    model: Model, path: Path, stride: int | None, interrupt: Interrupt, *, is_strict: bool = False
) -> None:
    """Print the scores of a file of prompts and texts. A line without a score gets a record with its error.

    Args:
        model: the model.
        path: the file; ``-``: stdin.
        stride: tokens from window to window, if a text exceeds the context; None: half of the context.
        interrupt: Ctrl-C, after which no other line is scored.
        is_strict: True if a prompt that does not fit into the context with its choices is an error; otherwise its
            first tokens are left out.
    """
    from ...models.errors import AbortedError, ModelError
    from ..render.progress import counting

    failures = 0
    with open_input(path) as file, counting("Scoring", count_lines(path)) as step:
        for number, line in number_lines(file):
            try:
                print(scored_line(model, line, number, stride, None, is_strict), flush=True)
            except AbortedError:  # by the second Ctrl-C
                raise
            except (ModelError, InvalidLineError) as error:
                failures += 1
                problem = flag_sentence(error)
                print(failed_line(line, number, problem), flush=True)
                say(f"gen: {input_name(path)}: line {number}: {problem}")
            step()
            if interrupt.requested:
                return
    if failures:
        raise typer.Exit(FAILED)


def count_lines(path: Path) -> int | None:
    """The lines that are not empty; None if they can be read only once."""
    if is_stdin(path) or not path.is_file():
        return None
    with open_input(path) as file:
        return sum(1 for _ in number_lines(file))


def stride_problem(stride: int | None, model: Model) -> str | None:
    """What is wrong with a stride that is not less than the context; None: nothing."""
    length = model.context.length
    if stride is None or stride < length:
        return None
    return f"--stride: {stride:,} is not less than the context of {length:,} tokens, see -c"


def failed_line(line: bytes, number: int, message: str, code: str = "invalid_request") -> str:
    """Return the record of a line that has no score, as JSON.

    Args:
        line: the line.
        number: its number in the file, from 1.
        message: why it has no score.
        code: the kind of the failure.
    """
    from ...common.strict_json import encode_json
    from ...logprobs.scores import failed_score

    try:
        name = parse_object(line).get("id")
    except InvalidLineError:
        name = None
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        name = None
    return encode_json(failed_score(message, number, name, code))


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
        is_strict: see `score_lines`.
    """
    from ...common.strict_json import encode_json

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
    from ...logprobs.scores import text_score

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


def _get_text(record: dict[str, Any], key: str) -> str:
    text = record.get(key)
    if not isinstance(text, str):
        raise InvalidLineError(f'there is no "{key}"' if text is None else f'"{key}" is not a text')
    return text
