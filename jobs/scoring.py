"""Scores of `gen score`: of the tokens of a text, of choices after a prompt, and of the lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..requests.errors import InvalidLineError
from .lines import parse_object

if TYPE_CHECKING:
    from ..engine.model import Model
    from ..engine.vocabulary import Continuation, Vocabulary
    from ..logprobs.events import PromptToken


def scored_text(
    model: Model,
    text: str,
    stride: int | None,
    progress: Callable[[int, int], None] | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> Iterator[PromptToken]:
    # If the text exceeds the context, windows of it are scored. The next window begins ``stride`` tokens later, by
    # default half of the context.
    from ..engine.scoring import score

    ids = model.vocabulary.tokenize_prompt(text.encode())
    return score(model, ids, stride, progress=progress, is_interrupted=is_interrupted)


def scored_choices(
    model: Model,
    prompt: str,
    choices: list[str],
    progress: Callable[[int, int], None] | None = None,
    *,
    rejects_long_prompts: bool = False,
) -> dict[str, Any]:
    """Return scores of choices after a prompt, as lm-evaluation-harness computes them, with ``notes``."""
    # White space at the end of the prompt belongs to the choices. An empty choice has the sum 0. If the prompt and
    # a choice do not fit into the context, the prompt loses its first tokens for that choice; with
    # ``rejects_long_prompts``, ``ModelError`` is raised instead.
    from ..common.text import count_noun
    from ..engine.scoring import fit_prompt
    from ..logprobs.scores import choice_scores

    notes = []
    choices_in_context: list[_ChoiceInContext] = []
    for choice in dict.fromkeys(choices):
        prompt_ids, ids, is_separate = _tokenize(model.vocabulary, prompt, choice)
        kept_ids = prompt_ids if rejects_long_prompts else fit_prompt(model, prompt_ids, ids)
        dropped_token_count = len(prompt_ids) - len(kept_ids)
        choices_in_context.append(_ChoiceInContext(choice, tuple(kept_ids), ids, dropped_token_count))
        if is_separate:
            notes.append(f"{choice!r} would join the prompt's last token; it is scored as separate tokens")
        repetition_count = choices.count(choice)
        if repetition_count > 1:
            notes.append(f"{choice!r} is given {repetition_count} times, and each counts in the probabilities")
        longer_choices = [other for other in choices if other != choice and other.startswith(choice)]
        if longer_choices:
            notes.append(f"{choice!r} begins {longer_choices[0]!r}, so their probabilities overlap")
        if dropped_token_count:
            notes.append(
                f"with {_short_choice(choice)} the prompt exceeds the context of {model.context.length:,} tokens; "
                f"its beginning, {count_noun(dropped_token_count, 'token')}, was left out"
            )
    tokens_of_choice = _score_choices_in_context(model, choices_in_context, progress)
    dropped_count_of_choice = {choice.text: choice.dropped_token_count for choice in choices_in_context}
    scores = choice_scores(
        [(choice, tokens_of_choice[choice]) for choice in choices],
        [dropped_count_of_choice[choice] for choice in choices],
    )
    return {"choices": scores, "notes": notes} if notes else {"choices": scores}


def _tokenize(vocabulary: Vocabulary, prompt: str, choice: str) -> Continuation:
    """Tokenize a prompt and a choice. An empty prompt becomes BOS, or EOS if the model has no BOS."""
    from ..engine.vocabulary import tokenize_continuation

    continuation = tokenize_continuation(vocabulary, prompt, choice)
    first_token = vocabulary.eos if vocabulary.bos is None else vocabulary.bos
    if continuation.prompt_ids or first_token is None:
        return continuation
    choice_ids = continuation.choice_ids
    if choice_ids and choice_ids[0] == first_token:
        choice_ids = choice_ids[1:]  # the token moves from the choice to the prompt
    return continuation._replace(prompt_ids=[first_token], choice_ids=choice_ids)


class _ChoiceInContext(NamedTuple):
    """A choice and the part of the prompt that fits into the context before it."""

    text: str
    prompt_ids: tuple[int, ...]  # tokens of the prompt, without the first ``dropped_token_count``
    ids: list[int]
    dropped_token_count: int  # number of tokens at the beginning of the prompt that do not fit


def _score_choices_in_context(
    model: Model, choices: Sequence[_ChoiceInContext], progress: Callable[[int, int], None] | None
) -> dict[str, list[PromptToken]]:
    """Return the scored tokens by the text of the choice. Choices that share a prompt are scored together."""
    from ..engine.scoring import check_choice, score_choices

    tokens_of_choice: dict[str, list[PromptToken]] = {choice.text: [] for choice in choices}
    choices_of_prompt: dict[tuple[int, ...], list[_ChoiceInContext]] = {}
    for choice in choices:
        if choice.ids:  # an empty choice has no tokens to score
            choices_of_prompt.setdefault(choice.prompt_ids, []).append(choice)
    # the model reads each prompt once, and all tokens of a choice except the last one
    token_count_of_prompt = {
        prompt_ids: len(prompt_ids) + sum(len(choice.ids) - 1 for choice in choice_group)
        for prompt_ids, choice_group in choices_of_prompt.items()
    }
    total_count = sum(token_count_of_prompt.values())
    finished_count = 0

    def report(read_count: int, _: int) -> None:
        if progress is not None:
            progress(finished_count + read_count, total_count)

    for prompt_ids, choice_group in choices_of_prompt.items():
        for choice in choice_group:
            check_choice(model, prompt_ids, choice.ids, f"the choice {_short_choice(choice.text)}")
        ids_of_choices = [choice.ids for choice in choice_group]
        tokens_of_group = score_choices(model, prompt_ids, ids_of_choices, progress=report)
        for choice, tokens in zip(choice_group, tokens_of_group, strict=True):
            tokens_of_choice[choice.text] = tokens
        finished_count += token_count_of_prompt[prompt_ids]
    return tokens_of_choice


_MAX_SHOWN_CHARACTERS = 40


def _short_choice(choice: str) -> str:
    is_short = len(choice) <= _MAX_SHOWN_CHARACTERS
    return repr(choice if is_short else choice[:_MAX_SHOWN_CHARACTERS] + "…")


@dataclass(frozen=True)
class LineScore:
    number: int  # number of the line in the file, counted from 1
    output: str  # the line with its scores or its error, as JSON
    problem: str | None = None  # message of the error; None if the line has scores


def scored_lines(
    model: Model,
    lines: Iterable[tuple[int, bytes]],
    stride: int | None,
    *,
    rejects_long_prompts: bool = False,
    describe_error: Callable[[Exception], str] = str,
) -> Iterator[LineScore]:
    """Yield the scores of lines, each of which has a text, or a prompt and choices. Raises ``AbortedError``."""
    from ..models.errors import AbortedError, ModelError

    for number, line in lines:
        try:
            output = scored_line(model, line, number, stride, rejects_long_prompts=rejects_long_prompts)
            yield LineScore(number, output)
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
    rejects_long_prompts: bool = False,
) -> str:
    """Return a line with its scores, as JSON; the line's other fields stay."""
    # Raises ``InvalidLineError``, ``ModelError``.
    # ``progress`` gets the number of tokens read since the last call. A token in two overlapping windows counts
    # twice.
    from ..common.strict_json import encode_json

    record = parse_object(line)
    scores = _score_record(model, record, stride, progress, rejects_long_prompts)
    scores |= {"line": number, "error": None}
    duplicates = [name for name in scores if name in record and name != "choices"]
    if duplicates:
        raise InvalidLineError(f'"{duplicates[0]}" is a field of the result; rename this field of the line')
    try:
        return encode_json(record | scores)
    except (ValueError, RecursionError):
        raise InvalidLineError("it contains a number that JSON does not have, or is nested too deeply") from None


def _score_record(
    model: Model,
    record: dict[str, Any],
    stride: int | None,
    progress: Callable[[int], None] | None,
    rejects_long_prompts: bool,
) -> dict[str, Any]:
    from ..logprobs.scores import text_score

    if "choices" not in record:
        is_interrupted = None if progress is None else _token_counting_check(progress)
        text = _get_text(record, "text")
        return text_score(list(scored_text(model, text, stride, is_interrupted=is_interrupted)))
    prompt = _get_text(record, "prompt")
    choices = record["choices"]
    has_choices = isinstance(choices, list) and bool(choices)
    if not has_choices or not all(isinstance(choice, str) for choice in choices):
        raise InvalidLineError('"choices" is not a list of strings with at least one')
    report_read_count = None if progress is None else _report_new_tokens_to(progress)
    scores = scored_choices(model, prompt, choices, report_read_count, rejects_long_prompts=rejects_long_prompts)
    return {"logprobs_from": "model"} | scores


def _get_text(record: dict[str, Any], key: str) -> str:
    text = record.get(key)
    if text is None:
        raise InvalidLineError(f'there is no "{key}"')
    if not isinstance(text, str):
        raise InvalidLineError(f'"{key}" is not a string')
    return text


def _token_counting_check(progress: Callable[[int], None]) -> Callable[[], bool]:
    """Return a check that never interrupts, and reports one token at each call."""
    # Unlike the progress of `scored_text`, the check is called again for the tokens of overlapping windows.

    def is_interrupted() -> bool:
        progress(1)
        return False

    return is_interrupted


def _report_new_tokens_to(progress: Callable[[int], None]) -> Callable[[int, int], None]:
    """Return a progress callback that passes on the number of tokens read since its last call."""
    reported_count = 0

    def report(read_count: int, _total_count: int) -> None:
        nonlocal reported_count
        progress(read_count - reported_count)
        reported_count = read_count

    return report


def failed_line(line: bytes, number: int, message: str, code: str = "invalid_request") -> str:
    """Return the output for a line without scores, as JSON."""
    from ..common.strict_json import encode_json
    from ..logprobs.scores import failed_score

    try:
        line_id = parse_object(line).get("id")
    except InvalidLineError:
        line_id = None
    if not isinstance(line_id, (str, int)) or isinstance(line_id, bool):
        line_id = None
    return encode_json(failed_score(message, number, line_id, code))


def stride_problem(stride: int | None, model: Model) -> str | None:
    """Return the message for a stride that is not less than the context; None if the stride can be used."""
    length = model.context.length
    if stride is None or stride < length:
        return None
    return f"--stride: {stride:,} is not less than the context of {length:,} tokens, which -c sets"
