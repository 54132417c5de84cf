"""The work on a batch: lines in, results out, whatever is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...engine import BatchAnswer, Model, ModelError, Request, generate_many
from ...grammars import GrammarError
from ...logprobs import batch_error
from ...presets import PresetError
from ...samplers import SamplingError
from ..render.batch import Tally, Watch
from .ask import Ask, WrongLineError, ask, id_of
from .journal import Results
from .lines import Arriving, Line
from .prepare import Kitchen
from .shape import Shape


@dataclass(frozen=True)
class Way:
    """How the requests are worked on, see `generate_many`."""

    parallel: int
    apart: bool
    stopping: Callable[[], bool]


class Work:
    """A batch under way: what comes in is answered, counted, and kept."""

    def __init__(self, kitchen: Kitchen, shape: Shape, results: Results, tally: Tally) -> None:
        self._kitchen, self._shape = kitchen, shape
        self._results, self._tally = results, tally
        self._asked: dict[object, tuple[Ask, Line]] = {}
        self._seen: dict[str, int] = {}

    def run(self, model: Model, lines: Iterable[Line] | Arriving, way: Way, watch: Watch) -> None:
        """Answer all lines that have no result yet."""
        outcomes = generate_many(
            model,
            self._requests(lines),
            way.parallel,
            apart=way.apart,
            stopping=way.stopping,
            progress=watch.made,
        )
        for outcome in outcomes:
            asked, line = self._asked.pop(outcome.key)
            if isinstance(outcome, BatchAnswer):
                self._results.add(self._shape.answer(asked, outcome))
                self._tally.done += 1
            else:
                self._fail(asked.id, line, "generation_failed", str(outcome.error))
            watch.look()

    @property
    def strangers(self) -> int:
        """How many of the results that were there belong to no line that came."""
        return len(self._results.done) - self._tally.before

    def _requests(self, lines: Iterable[Line] | Arriving) -> Iterator[Request | None]:
        """The requests that have no result yet; lines that are none get one at once. None: there is none yet."""
        for line in self._arrived(lines) if isinstance(lines, Arriving) else lines:
            request = None if line is None else self._request(line)
            if line is None or request is not None:
                yield request

    def _arrived(self, lines: Arriving) -> Iterator[Line | None]:
        while True:
            try:
                line = lines.next(wait=not self._asked)
            except StopIteration:
                return
            yield line

    def _request(self, line: Line) -> Request | None:
        """What a line asks for, if it is to be answered."""
        name = id_of(line.content) or f"line-{line.number}"
        if (line.number, line.digest) in self._results.done:
            self._seen.setdefault(name, line.number)
            self._tally.before += 1
            self._tally.old_failures += 1
            return None
        try:
            if isinstance(line.content, WrongLineError):
                raise line.content
            asked = ask(line.content, line.number)
            first = self._seen.setdefault(asked.id, line.number)
            if first != line.number:
                raise WrongLineError(f"the id {asked.id!r} is on line {first} already")
            if asked.id in self._results.done:
                self._tally.before += 1
                return None
            self._shape.check(asked)
            request = self._kitchen.request(asked)
        except (WrongLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            self._seen.setdefault(name, line.number)
            self._fail(name, line, "invalid_request", str(error))
            return None
        self._asked[request.key] = asked, line
        return request

    def _fail(self, name: str, line: Line, code: str, message: str) -> None:
        self._results.add(self._shape.failure(name, batch_error(code, message, line.number, line.digest)))
        self._tally.failed += 1
