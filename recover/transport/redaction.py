"""Texts without the secrets of a URL and a key."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

import httpx

_SECRET_PARAMETER = re.compile(r"key|token|secret|sig|pass|code|auth", re.IGNORECASE)
_SHORT = 6
"""Characters. A shorter secret may be a part of a usual word, so it is replaced only where it is a whole word."""


class Redaction:
    """Replaces secrets by ***: as they are, as a URL spells them, and as basic authentication sends them."""

    def __init__(self, key: str | None, url: httpx.URL) -> None:
        secrets = [key, url.username, url.password]
        if url.userinfo:
            secrets.append(base64.b64encode(f"{url.username}:{url.password}".encode()).decode())
        secrets += [value for name, value in url.params.multi_items() if _SECRET_PARAMETER.search(name)]
        spellings = {
            spelling
            for secret in secrets
            if secret
            for spelling in (secret, quote(secret, safe=""), quote(secret))
        }
        self._pattern = re.compile("|".join(_patterns(spellings))) if spellings else None

    def of(self, text: str) -> str:
        """Return the text without secrets. Shorten it afterwards: a part of a secret is not recognised."""
        return text if self._pattern is None else self._pattern.sub("***", text)


def _patterns(secrets: Iterable[str]) -> list[str]:
    """Return a pattern for each secret; longer ones first, since they may contain shorter ones."""
    ordered = sorted(secrets, key=len, reverse=True)
    return [
        re.escape(secret) if len(secret) >= _SHORT else rf"(?<!\w){re.escape(secret)}(?!\w)" for secret in ordered
    ]
