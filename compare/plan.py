"""The texts of a comparison: all arms continue the same prompts with the same seeds. Results can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import LogitsmithError
from ..common.files import open_input
from ..common.intervals import Values
from ..common.journal import JournalError
from ..common.seeds import following_seed
from ..common.strict_json import parse_strict_json
from ..engine.generation import check_grammar_rules
from ..engine.request import ChatMessages
from ..grammars.spec import GrammarSpec
from ..jobs.batch import BatchCounts, BatchRun
from ..jobs.journal import ExistingResults, ResultJournal, settings_digest
from ..jobs.lines import InputLine, line_digest, read_json_lines
from ..requests.errors import InvalidLineError
from ..requests.lines import RequestLine, read_request_line
from ..requests.recorded_settings import batch_settings, describe_model
from ..requests.resolve import RequestDefaults, RequestResolver
from ..requests.story_reader import StoryReader
from .arms import Arm
from .text_measures import Measure, MeasuredText, measure_texts

if TYPE_CHECKING:
    from ..engine.model import Model
    from ..engine.request import GenerationRequest
    from ..presets.settings import Settings

# the maximum number of texts of one prompt and arm, and the distance of the seeds of two prompts
MAX_SEEDS = 10_000
_PROMPT_FIELDS = frozenset({"id", "prompt", "messages"})


def read_prompts(path: Path) -> list[RequestLine]:
    """Return the prompts of a JSONL file: ``{"id", "prompt"}`` or ``{"id", "messages"}`` on each line."""
    # Raises ``InvalidLineError`` that names the file and the line.
    prompts: list[RequestLine] = []
    with open_input(path) as file:
        for line in read_json_lines(file):
            try:
                prompts.append(_parse_prompt(line, {prompt.id for prompt in prompts}))
            except InvalidLineError as error:
                raise InvalidLineError(f"{path}: line {line.number}: {error}") from None
    if not prompts:
        raise InvalidLineError(f"{path}: the file has no prompts")
    return prompts


def _parse_prompt(line: InputLine, used_ids: set[str]) -> RequestLine:
    if isinstance(line.content, InvalidLineError):
        raise line.content
    other_fields = sorted(line.content.keys() - _PROMPT_FIELDS)
    if other_fields:
        raise InvalidLineError(
            f"{other_fields[0]} is not a field of a prompt: it has id and prompt or messages; arms have settings"
        )
    prompt = read_request_line({"id": str(line.number), **line.content}, line.number)
    if prompt.id in used_ids:
        raise InvalidLineError(f"the id {prompt.id!r} is already used; give another one")
    return prompt


def text_prompt(text: str) -> RequestLine:
    return read_request_line({"id": "1", "prompt": text}, 1)


Note = Callable[[str], object]


def _ignore(message: str) -> None:
    """Do nothing with a note about a preset. It was printed when the arms were checked."""


@dataclass(frozen=True)
class Plan:
    """The design of a comparison."""

    arms: Sequence[Arm]  # the other arms are compared with the first one
    prompts: Sequence[RequestLine]
    seed: int  # seed of the first text of the first prompt
    seed_count: int  # number of texts of each prompt and arm
    defaults: RequestDefaults  # the settings of all arms, which an arm may override

    @property
    def text_count(self) -> int:
        return len(self.arms) * len(self.prompts) * self.seed_count

    def seeds(self, prompt: RequestLine) -> list[int]:
        """Return the seeds of a prompt's texts, the same for each arm. They count up."""
        # Prompts share no seeds. Texts with the same random numbers resemble each other, so means over prompts
        # would vary more than the intervals say.
        first_number = (prompt.number - 1) * MAX_SEEDS
        return [following_seed(self.seed, first_number + index) for index in range(self.seed_count)]

    def resolver(
        self, metadata: Mapping[str, str], note: Note = _ignore, story_reader: StoryReader | None = None
    ) -> RequestResolver:
        return RequestResolver(self.defaults, metadata, note, story_reader=story_reader)

    def resolver_of(self, model: Model) -> RequestResolver:
        return self.resolver(model.metadata, story_reader=StoryReader(model, _ignore))

    def settings(self, arm: Arm, metadata: Mapping[str, str]) -> Settings:
        return self.resolver(metadata).settings(arm.apply_to(self.prompts[0].asked, self.seed), [])

    def requests(self, arm: Arm, model: Model) -> list[GenerationRequest]:
        """Return the requests of an arm, one for each prompt, with the first seed."""
        resolver = self.resolver_of(model)
        requests: list[GenerationRequest] = []
        for prompt in self.prompts:
            asked = arm.apply_to(prompt.asked, self.seed)
            requests += resolver.requests(asked, resolver.settings(asked, []), self.seed, prompt.id)
        return requests

    def request_id(self, arm: Arm, prompt: RequestLine, seed: int) -> str:
        """Return the id of a text's request, which names it in the results."""
        return f"{prompt.id}/{arm.name}/{seed}"

    def lines(self, arms: Sequence[Arm]) -> Iterator[InputLine]:
        """Yield the requests of some arms as lines of a batch, the arms of one prompt and seed side by side."""
        for prompt in self.prompts:
            for seed, arm in product(self.seeds(prompt), arms):
                content = self._line_content(arm, prompt, seed)
                digest = line_digest(json.dumps(content, sort_keys=True).encode())
                yield InputLine(prompt.number, content, digest)

    def _line_content(self, arm: Arm, prompt: RequestLine, seed: int) -> dict[str, Any]:
        """Return the fields of a text's request."""
        asked = prompt.asked
        content: dict[str, Any] = {"id": self.request_id(arm, prompt, seed)}
        if asked.messages is None:
            content["prompt"] = asked.prompts[0]
        else:
            content["messages"] = asked.messages
        content |= {"seed": seed, "logprobs": 0, "logprobs_from": "both"}
        if arm.preset is not None:
            content["preset"] = arm.preset
        if arm.chain is not None:
            content["chain"] = arm.chain
        if arm.sets:
            content["set"] = list(arm.sets)
        return content


class TextTable:
    """The texts of a comparison, kept in memory, and in a file if there is one."""

    def __init__(self, journal: ResultJournal | None = None, path: Path | None = None) -> None:
        self._journal = journal
        # the results that existed before the run
        self.existing_results: ExistingResults = {} if journal is None else journal.existing_results
        self.is_file = journal is not None and journal.is_file  # whether results are stored
        self.failures: dict[str, str] = {}  # for each text that could not be generated, by its id: why
        self._texts: dict[str, MeasuredText] = {}
        if self.existing_results and path is not None:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    self._keep_stored(parse_strict_json(line), f"{path}: line {number}")

    def _keep_stored(self, result: Mapping[str, Any], place: str) -> None:
        """Keep a result of an earlier run. Raises ``JournalError`` for a result of another command."""
        try:
            self._keep(result)
        except (KeyError, TypeError):
            raise JournalError(
                f"{place} was not written by gen compare: it lacks logprobs of both; choose another file"
            ) from None

    def _keep(self, result: Mapping[str, Any]) -> None:
        if result["error"] is None:
            self._texts[result["id"]] = MeasuredText.from_result(result)
            self.failures.pop(result["id"], None)
        else:
            self.failures[result["id"]] = result["error"]["message"]

    def add(self, line: str) -> None:
        """Keep the text of a line of results, and store the line."""
        if self._journal is not None:
            self._journal.add(line)
        self._keep(parse_strict_json(line.encode()))

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def text(self, request_id: str) -> MeasuredText | None:
        return self._texts.get(request_id)

    def values(self, plan: Plan, arm: Arm, measure: Measure) -> Values:
        """Return the values of a measure, float64 (prompts, seeds); NaN where there is none."""
        return np.array([measure_texts(measure, self.texts(plan, arm, prompt)) for prompt in plan.prompts])

    def texts(self, plan: Plan, arm: Arm, prompt: RequestLine) -> list[MeasuredText | None]:
        """Return the texts of an arm and a prompt, one for each seed."""
        return [self.text(plan.request_id(arm, prompt, seed)) for seed in plan.seeds(prompt)]


def make_run(  # noqa: PLR0913 - what a run consists of
    plan: Plan,
    arms: Sequence[Arm],
    model: Model,
    table: TextTable,
    counts: BatchCounts,
    *,
    describe_error: Callable[[Exception], str],
) -> BatchRun:
    """Return the run that generates the texts of the arms that share a model."""
    # Raises ``JournalError`` if existing results were made with other settings, and ``PresetError`` for a preset.
    resolver = plan.resolver_of(model)
    settings = batch_settings(describe_model(model), resolver, plan.seed, {"context": model.context.length})
    run = BatchRun(
        resolver,
        table,
        counts,
        settings_digest(settings),
        base_seed=plan.seed,
        note=_ignore,
        is_openai=False,
        keeps_mismatched_results=False,
        advice="use the same settings, or choose another file with --results",
        describe_error=describe_error,
    )
    run.check_results(plan.lines(arms))
    return run


def check_arms(plan: Plan, metadata: Mapping[str, str], note: Note) -> None:
    """Raise ``PresetError``, ``InvalidLineError`` or ``GrammarError`` if an arm's settings are not allowed."""
    resolver = plan.resolver(metadata, note)
    for arm in plan.arms:
        try:
            asked = arm.apply_to(plan.prompts[0].asked, plan.seed)
            for request in resolver.requests_without_story(asked, resolver.settings(asked, []), plan.seed):
                if isinstance(request.constraint, GrammarSpec):
                    request.constraint.check()
                if not isinstance(request.prompt, ChatMessages):
                    check_grammar_rules(request)
            if asked.sets_system and any(prompt.asked.messages is not None for prompt in plan.prompts):
                raise InvalidLineError("system: not used for prompts that are messages; write it into them")
        except LogitsmithError as error:
            raise InvalidLineError.of(error.within(f"arm {arm.name}")) from None
