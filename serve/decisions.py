"""OpenAI's route `/v1/decisions`: answers to questions with a closed list of options."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..common.errors import Place as ErrorPlace, place_suffix
from ..common.strict_model import Json
from ..decide.decider import Asked, Asking, Decider, DecideSettings, Decision, Place, next_step
from ..decide.errors import QuestionError
from ..decide.questions import Question, read_questions
from ..decide.wording import DEFAULT_TEMPLATE, Wording
from ..engine.batch import BatchAnswer
from ..engine.model import Model
from ..engine.paths import PathRequest, PathsRead
from ..engine.request import GenerationRequest
from ..logprobs.events import Done, Start
from ..requests.asked import preset_of_model
from ..requests.decision_fields import FIELDS_OF_SOME_QUESTIONS, DecisionFields, with_plain_instructions
from ..requests.fields import read_body
from ..requests.unknown_fields import limited
from .answers import as_request_error, collect, refusals_told, until_client_leaves
from .errors import InvalidRequestError, TimedOutError, client_message
from .limits import check_decision
from .request_log import RequestRecord, record_of
from .state import RouteSpec, ServerState, read_json


async def decisions(request: Request, state: ServerState) -> Response:
    """Answer questions about an input, each by the probabilities of its options."""
    model, _ = state.loaded()
    state.check_queue()
    record = await read_json(request, state)
    fields, ignored = read_body(DecisionFields, record, is_strict=state.is_strict(request))
    if preset_of_model(fields.model, model.name) is not None:
        ignored.append("model")  # a preset chooses tokens, and a decision reads the model's own probabilities
    questions = _read_questions(cast("Json", record)["questions"], ignored, is_strict=state.is_strict(request))
    check_decision(fields, questions)
    input_text = fields.input_text()
    state.log_prompts(request, lambda: [input_text])
    is_program = fields.prompt_template is not None
    decider = await state.run_in_time(
        request, partial(_decider, model, state, questions, fields, ignored), is_program=is_program
    )
    ignored = limited(ignored)
    request_record = record_of(request.scope)
    request_record.ignored = ignored
    run = _Run(state, decider, input_text, request_record, has_own_template=is_program)
    decision = await until_client_leaves(request.receive, run.decision())
    exactness = decision.exactness
    return JSONResponse(
        {
            "answers": [answer.as_json() for answer in decision.answers],
            "model": model.name,
            "usage": decision.usage.as_json(),
            "x_gen": {"ignored": ignored, "exactness": str(exactness)},
        }
    )


def _read_questions(questions: Sequence[object], ignored: list[str], *, is_strict: bool) -> list[Question]:
    """Return the questions. Fields of other types of questions are appended to ``ignored``, or are errors."""

    def report(place: ErrorPlace, _names: Iterable[str]) -> None:
        if place[-1] not in FIELDS_OF_SOME_QUESTIONS:  # `read_body` has found it
            return
        path = place_suffix(place).removeprefix(".")
        if is_strict:
            raise InvalidRequestError(f"{path}: this question has no such field", path)
        ignored.append(path)

    try:
        return read_questions(with_plain_instructions(questions), report)
    except QuestionError as error:
        raise InvalidRequestError(
            client_message(error), place_suffix(error.place).removeprefix(".") or "questions"
        ) from None


def _decider(
    model: Model, state: ServerState, questions: Sequence[Question], fields: DecisionFields, ignored: list[str]
) -> Decider:
    """Return what asks the questions. Names of fields without effect are appended to ``ignored``."""
    defaults = state.defaults
    wording = Wording.for_model(
        model,
        chat_template=defaults.chat_template,
        variables=defaults.chat_template_kwargs,
        thinks=fields.reasoning_budget > 0,
        template=DEFAULT_TEMPLATE if fields.prompt_template is None else fields.prompt_template,
    )
    settings = DecideSettings(
        wording,
        fields.method,
        fields.permutations,
        fields.prior,
        fields.reasoning_budget,
        min_confidence=fields.min_confidence,
    )
    decider = Decider(model, questions, settings)
    if fields.reasoning_budget and not decider.thinks:
        ignored.append("reasoning_budget")
    return decider


class _Run:
    """A decision, whose prompts are requests of the engine: at most as many at a time as there are slots."""

    def __init__(
        self,
        state: ServerState,
        decider: Decider,
        input_text: str,
        record: RequestRecord,
        *,
        has_own_template: bool,
    ) -> None:
        self._state = state
        self._decider = decider
        self._input_text = input_text
        self._record = record
        self._has_own_template = has_own_template
        self._has_begun = False
        self._asked: dict[Place, Asked] = {}

    async def decision(self) -> Decision:
        """Return the answers. Raises ``RequestError``."""
        places = self._decider.places()
        try:
            async with asyncio.timeout(self._state.engine.max_seconds):
                await self._ask_all([place for place in places if not place.is_prior])
                await self._ask_all([place for place in places if place.is_prior])
        except TimeoutError:
            raise TimedOutError("the decision took longer than this server allows; ask fewer questions") from None
        return await self._state.run(partial(self._decider.answers, self._asked))

    async def _ask_all(self, places: Sequence[Place]) -> None:
        """Ask about one input. The first prompt is read alone, because the others share its tokens."""
        waiting = iter(places)
        for first in places[:1]:
            self._asked[first] = await self._ask(next(waiting))

        async def ask_waiting() -> None:
            for place in waiting:
                self._asked[place] = await self._ask(place)

        tasks = [asyncio.ensure_future(ask_waiting()) for _ in range(self._state.engine.counts.slots)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, place: Place) -> Asked:
        asking = self._decider.ask(place, self._input_text)
        outcome: PathsRead | BatchAnswer | None = None
        while True:
            step = await self._next_step(asking, outcome)
            if isinstance(step, Asked):
                return step
            if isinstance(step, PathRequest):
                outcome = await self._read(step, place)
            else:
                outcome = await self._think(step)
            self._has_begun = True

    async def _next_step(
        self, asking: Asking, outcome: PathsRead | BatchAnswer | None
    ) -> PathRequest | GenerationRequest | Asked:
        """Return the next request for a prompt, or what was asked."""
        try:
            return await self._state.run(partial(next_step, asking, outcome), is_program=self._has_own_template)
        except InvalidRequestError as error:
            if self._has_own_template:
                error.param = "prompt_template"
            raise

    async def _read(self, request: PathRequest, place: Place) -> PathsRead:
        with refusals_told():
            outcome = await self._state.engine.read_paths(request, is_next=self._has_begun)
        self._record.push(outcome)
        if isinstance(outcome, PathsRead):
            return outcome
        if isinstance(outcome.error, QuestionError):
            raise InvalidRequestError(client_message(outcome.error), f"questions[{place.question}]")
        error = as_request_error(outcome)
        if error.param == "prompt":
            error.param = "input"
        raise error

    async def _think(self, request: GenerationRequest) -> BatchAnswer:
        engine = self._state.engine
        with refusals_told():
            stream = engine.submit([request], is_next=self._has_begun)
        ((start, *_, done),) = await collect(engine, stream, self._record)
        return BatchAnswer(None, cast("Start", start), (), cast("Done", done))


ROUTES = (
    RouteSpec("/v1/decisions", decisions, "POST", DecisionFields, keys=("answers", "model", "usage", "x_gen")),
)
