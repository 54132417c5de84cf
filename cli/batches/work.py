"""The work on a batch: lines in, results out, whatever is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...engine import Answer, Model, ModelError, Request, generate_many
from ...grammars import GrammarError
from ...presets import PresetError
from ...samplers import SamplingError
from ..render.batch import Tally, Watch
from .ask import Ask, WrongLineError, ask, id_of
from .journal import Results
from .lines import Line
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
        self._asked: dict[object, Ask] = {}

    def run(self, model: Model, lines: Iterable[Line], way: Way, watch: Watch) -> None:
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
            asked = self._asked.pop(outcome.key)
            if isinstance(outcome, Answer):
                self._results.add(self._shape.answer(asked, outcome))
                self._tally.done += 1
            else:
                self._fail(asked.id, asked.line, "generation_failed", str(outcome.error))
            watch.look()

    def _requests(self, lines: Iterable[Line]) -> Iterator[Request]:
        """The requests that have no result yet; lines that are none get one at once."""
        seen: dict[str, int] = {}
        for line in lines:
            if line.number in self._results.done:
                self._note_id(line, seen)
                continue
            try:
                asked = _asked(line)
                if asked.id in seen:
                    raise WrongLineError(f"the id {asked.id!r} is on line {seen[asked.id]} already")
                seen[asked.id] = line.number
                if asked.id in self._results.done:
                    continue
                self._shape.check(asked)
                request = self._kitchen.request(asked)
            except (WrongLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
                self._fail(self._note_id(line, seen), line.number, "invalid_request", str(error))
                continue
            self._asked[request.key] = asked
            yield request

    @staticmethod
    def _note_id(line: Line, seen: dict[str, int]) -> str | None:
        """The name of a line that failed, which no later line may have."""
        name = id_of(line.content)
        if name is not None:
            seen.setdefault(name, line.number)
        return name

    def _fail(self, name: str | None, line: int, code: str, message: str) -> None:
        self._results.add(self._shape.failure(name, line, code, f"line {line}: {message}"))
        self._tally.failed += 1


def _asked(line: Line) -> Ask:
    if isinstance(line.content, WrongLineError):
        raise line.content
    return ask(line.content, line.number)
