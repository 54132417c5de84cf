"""From a resolved request of a batch to a request of the engine."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.generation import GenerationRequest
from ...engine.model import Model
from ...engine.templates import ChatTemplate, build_prompt, format_chat, open_chat_template
from ...samplers.building import build
from ..errors import note
from .request_resolver import ResolvedRequest


class RequestBuilder:
    """Builds the engine's requests for a model.

    Raises ``SamplingError``, ``GrammarError`` or ``ModelError`` for requests that this model cannot answer.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._reported_notes: set[str] = set()

    def build(self, request: ResolvedRequest) -> GenerationRequest:
        """Return the engine's request; its ``key`` is the request's id."""
        vocabulary = self._model.vocabulary
        return GenerationRequest(
            prompt=self._prompt(request),
            chain=build(request.steps, seed=request.seed, vocab=vocabulary),
            constraint=None if request.grammar is None else request.grammar.start(vocabulary),
            stop=request.stop,
            max_tokens=request.max_tokens,
            logprobs=request.logprobs,
            complete_sentence=request.completes_sentence,
            trace=request.trace,
            key=request.id,
        )

    def _prompt(self, request: ResolvedRequest) -> str | Sequence[int]:
        if request.messages is not None:
            return format_chat(self._model, request.messages, self._chat_template(request), self._report)
        if isinstance(request.prompt, str):
            return build_prompt(
                self._model,
                request.prompt,
                system=request.system,
                chat=request.chat,
                template=self._chat_template(request),
                report=self._report,
            )
        return request.prompt or ""

    def _chat_template(self, request: ResolvedRequest) -> ChatTemplate | None:
        chosen = request.template
        return None if chosen is None else open_chat_template(self._model, chosen.source, chosen.variables)

    def _report(self, sentence: str) -> None:
        """Print a note, once in a batch."""
        if sentence not in self._reported_notes:
            self._reported_notes.add(sentence)
            note(sentence)
