"""A request that is to be answered, with what its result has to say of it."""

from __future__ import annotations

from dataclasses import dataclass

from .request_resolver import ResolvedRequest


@dataclass(frozen=True)
class AcceptedRequest:
    """A request that has no result yet.

    Attributes:
        line: the number of its line, from 1.
        digest: the digest of the line's text.
        request_id: tells that an answer belongs to this text, model and flags.
        is_chat: True if it is a chat, and not a text to write on from.
        resolved: all that it asks for.
    """

    line: int
    digest: str
    request_id: str
    is_chat: bool
    resolved: ResolvedRequest

    @property
    def id(self) -> str:
        """The request's id."""
        return self.resolved.id
