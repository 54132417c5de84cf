"""From lines to the requests that are to be answered: each line gets one result, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from ...grammars.errors import GrammarError
from ...logprobs.openai import batch_id
from ...models.errors import ModelError
from ...presets.errors import PresetError
from ...samplers.errors import SamplingError
from ..inputs.json_lines import InvalidLineError
from ..render.batch import BatchProgress
from .accepted_request import AcceptedRequest
from .input_lines import BackgroundItems, InputLine, as_they_come
from .journal import ExistingResults, JournalError
from .request import find_request_id, line_sentence, parse_request
from .request_resolver import RequestResolver
from .result_writer import ResultWriter


class RequestIntake:
    """Takes lines and lets the requests through that have no result yet; a wrong line gets its failure here.

    Args:
        resolver: finds out what requests ask for.
        writer: writes failures.
        existing: the results from before the start.
        progress: counts them.
        settings_digest: the digest of what answers depend on beside their requests.
        keeps_others: results stay also where they came from another text, or with other settings.
    """

    def __init__(
        self,
        resolver: RequestResolver,
        writer: ResultWriter,
        existing: ExistingResults,
        progress: BatchProgress,
        settings_digest: str,
        *,
        keeps_others: bool,
    ) -> None:
        self._resolver, self._writer, self._existing, self._progress = resolver, writer, existing, progress
        self._settings_digest, self._keeps_others = settings_digest, keeps_others
        self._line_of_id: dict[str, int] = {}

    def accepted(
        self, lines: Iterable[InputLine] | BackgroundItems[InputLine], is_idle: Callable[[], bool]
    ) -> Iterator[AcceptedRequest | None]:
        """Yield the requests that are to be answered; None: no line has come yet.

        ``is_idle``: True if nothing is being answered, so that a line may be waited for.
        """
        for line in as_they_come(lines, is_idle):
            request = None if line is None else self._accept(line)
            if line is None or request is not None:
                yield request

    def check_results(self, lines: Iterable[InputLine]) -> None:
        """Raise ``JournalError`` if a result that was there is not of its line's text or of these settings."""
        first, count = None, 0
        checked: set[str] = set()
        for line in lines:
            name = _name_of(line)
            if name not in checked and self._is_other(line):
                first, count = first or line, count + 1
            checked.add(name)  # a second line with this id has no result of its own
        if first is not None:
            _refuse(first, count)

    @property
    def unmatched_results(self) -> int:
        """How many of the results that were there belong to no line of this input."""
        return len(self._existing) - self._progress.existing

    def _is_other(self, line: InputLine) -> bool:
        """True if the result that was there for a line is not of its text, or not of these settings."""
        name = _name_of(line)
        request_id = self._existing.get(name)
        return request_id is not None and request_id != batch_id(name, line.digest, self._settings_digest)

    def _accept(self, line: InputLine) -> AcceptedRequest | None:
        """The request of a line; None if it has a result already, or gets one here because it is invalid."""
        name = _name_of(line)
        if (line.number, line.digest) in self._existing:
            self._line_of_id.setdefault(name, line.number)
            self._progress.existing += 1
            self._progress.existing_failures += 1
            return None
        try:
            return self._accept_valid(line)
        except (InvalidLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            if self._line_of_id.setdefault(name, line.number) != line.number:
                name = _unnamed(line)  # otherwise the record reads as a result of the line that has the id
            self._writer.failure(name, line.number, line.digest, "invalid_request", line_sentence(error))
            return None

    def _accept_valid(self, line: InputLine) -> AcceptedRequest | None:
        if isinstance(line.content, InvalidLineError):
            raise line.content
        request = parse_request(line.content, line.number)
        first_line = self._line_of_id.setdefault(request.id, line.number)
        if first_line != line.number:
            raise InvalidLineError(f"the id {request.id!r} is on line {first_line} already")
        if request.id in self._existing:
            if not self._keeps_others and self._is_other(line):
                _refuse(line, 1)
            self._progress.existing += 1
            return None
        self._writer.format.check(request)
        return AcceptedRequest(
            line=line.number,
            digest=line.digest,
            request_id=batch_id(request.id, line.digest, self._settings_digest),
            is_chat=request.messages is not None,
            resolved=self._resolver.resolve(request),
        )


def _refuse(line: InputLine, count: int) -> NoReturn:
    results = "the result" if count == 1 else f"{count:,} results, such as that"
    raise JournalError(
        f"{results} of {_name_of(line)!r} (line {line.number}) came from another text, or with another model "
        f"or other flags; --force keeps what is there and goes on"
    )


def _name_of(line: InputLine) -> str:
    """The id of a line's request, which may be invalid otherwise."""
    return find_request_id(line.content) or _unnamed(line)


def _unnamed(line: InputLine) -> str:
    """The id of a request that has none, or the id of another line."""
    return f"line-{line.number}"
