"""The parts of a running text: which tokens belong to the reasoning, and what the reasoning and the answer say."""

from __future__ import annotations

from dataclasses import replace

from ..logprobs.events import Done, Reasoning, Token
from ..logprobs.parts import TextPart, TokenParts, join_parts


class TextParts:
    """The parts of one text. It holds tokens back of which later ones decide the part."""

    def __init__(self, reasoning: Reasoning) -> None:
        self._parts = TokenParts(reasoning)
        self._pieces: list[TextPart] = []
        self._undecided: list[Token] = []
        self._reasoning_token_count = 0

    def push(self, token: Token) -> list[Token]:
        """Add the next token, and return the tokens that are decided now: they belong where this one does."""
        self._undecided.append(token)
        if token.part is None:
            return []
        tokens = [replace(undecided, part=token.part) for undecided in self._undecided]
        self._undecided = []
        for decided in tokens:
            self._pieces += self._parts.push(decided)
        if token.part == "reasoning":
            self._reasoning_token_count += len(tokens)
        return tokens

    def release(self) -> list[Token]:
        """Return the undecided tokens at the end. A tag that is cut off belongs to the reasoning."""
        if not self._undecided:
            return []
        has_tag = any(token.data.strip() for token in self._undecided)
        last = self._undecided.pop()
        return self.push(replace(last, part="reasoning" if has_tag else "answer"))

    def divide(self, done: Done) -> Done:
        """Return the last event, which has the complete text, with the text divided into its parts."""
        texts = join_parts([*self._pieces, *self._parts.finish(done)])
        return replace(
            done,
            text=texts.answer,
            reasoning=texts.reasoning,
            reasoning_tokens=self._reasoning_token_count,
            tagged_text=done.text,
        )
