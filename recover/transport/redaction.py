"""Secrets of a URL and a key, and texts without them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

import httpx

_NAMED = re.compile(r"key|token|secret|sig|pass|code|auth", re.IGNORECASE)
_SHORT = 6


class Redaction:
    """Puts *** where a text holds a secret: as it is, in a URL's spelling, or as basic auth sends it."""

    def __init__(self, key: str | None, url: httpx.URL) -> None:
        parts = [key, url.username, url.password]
        if url.userinfo:
            parts.append(base64.b64encode(f"{url.username}:{url.password}".encode()).decode())
        parts += [value for name, value in url.params.multi_items() if _NAMED.search(name)]
        spelt = {spelling for part in parts if part for spelling in (part, quote(part, safe=""), quote(part))}
        self._pattern = re.compile("|".join(_pattern(spelt))) if spelt else None

    def of(self, text: str) -> str:
        """The text without secrets. Cut it afterwards, not before: a part of a secret is not found."""
        return text if self._pattern is None else self._pattern.sub("***", text)


def _pattern(secrets: Iterable[str]) -> list[str]:
    """A longer one may hold a shorter one, so it comes first; short ones are found as words only."""
    ordered = sorted(secrets, key=len, reverse=True)
    return [re.escape(one) if len(one) >= _SHORT else rf"(?<!\w){re.escape(one)}(?!\w)" for one in ordered]
