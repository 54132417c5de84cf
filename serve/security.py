"""Who may send requests: the checks of headers before any body is read.

A browser sends requests of every page that its user opens, also to servers of the user's machine. Two headers
show it. `Host` is the name in the address: after DNS rebinding, it is the name of the attacker's page, while the
address is this machine. `Origin` is the page that sends the request. Other programs send no `Origin`.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from ..common.errors import UsageError
from ..common.files import TextFileError, read_text_file
from ..common.text import short_repr
from .errors import ForbiddenError, HeadersTooLargeError, UnauthorizedError

_OPEN_PATHS = frozenset(("/", "/health", "/v1/health"))
_OPEN_FOLDER = "/page/"
MAX_HEADER_BYTES = 32_768
MAX_HEADER_COUNT = 100
_MAX_KEY_FILE_BYTES = 1_000_000
_KEY = re.compile(r"[\x21-\x7e]+")
_ORIGIN = re.compile(
    r"""
    null  # a page that was opened as a file
    | [a-z][a-z0-9+.-]*://  # the scheme
      (\[[0-9a-f:.]+\] | [a-z0-9._-]+)  # an IPv6 address, or a name or an IPv4 address
      (:\d{1,5})?  # the port
    """,
    re.VERBOSE,
)
_ORIGIN_RULE = (
    "an origin is written like http://localhost:3000, in lowercase and without a path; "
    "null stands for pages that are opened as files"
)
_HOST_NAME = re.compile(r"[a-z0-9._-]+")
_HOST_NAME_RULE = "a name is written like server.example.org, without a port"
_PREFIX = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9._~-]*)+")
_PREFIX_RULE = "a prefix is written like /llm: after each slash a letter or a digit, then also ._~-"
# The header Host: an IPv6 address in brackets, or a name or an IPv4 address; then the port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{0,5})?")
# Names of headers, separated by commas. Browsers ask for a few names; more than 1,000 characters are refused.
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~ ,-]{1,1000}")
# Headers of TabbyAPI and Anthropic, and of Azure, whose value is the key.
_KEY_HEADERS = ("x-api-key", "x-admin-key", "api-key")
_LOOPBACK_NAMES = frozenset(("localhost", "localhost.localdomain", "ip6-localhost"))
# The headers of a response that a page of another origin may read.
_READABLE_HEADERS = "retry-after, www-authenticate, x-gen-ignored, x-request-id"


@dataclass(frozen=True)
class Access:
    """The rules for the requests that the server answers."""

    # The address that the server listens on.
    host: str = "127.0.0.1"
    # A client must send one of these keys. If there are none, no key is needed.
    keys: Sequence[str] = ()
    # The origins of pages that may send requests.
    origins: frozenset[str] = frozenset()
    # Names by which clients may call this server, besides its address.
    host_names: frozenset[str] = frozenset()
    # The beginning of all paths, such as "/llm"; empty: none.
    prefix: str = ""
    max_body_bytes: int = 16_000_000
    # The limit for a body of lines. It is higher, because the lines are read one after another.
    max_lines_bytes: int = 128_000_000
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def own_path(self, path: str) -> str | None:
        """Return a path without the prefix; None if it does not begin with it."""
        if not self.prefix:
            return path
        if path == self.prefix:
            return "/"
        return path.removeprefix(self.prefix) if path.startswith(f"{self.prefix}/") else None

    def has_key(self, headers: Headers) -> bool:
        """Return whether the headers contain a key. The time of the comparison does not depend on the key."""
        allowed_digests = [self._digest(key.encode()) for key in self.keys]
        is_found = False
        for sent_key in _sent_keys(headers):
            sent_digest = self._digest(sent_key)
            for allowed_digest in allowed_digests:  # all of them, so that the time tells nothing
                is_found |= hmac.compare_digest(sent_digest, allowed_digest)
        return is_found

    def _digest(self, key: bytes) -> bytes:
        return hmac.digest(self._salt, key, "sha256")

    def knows_host(self, header: str) -> bool:
        """Return whether a `Host` header names this server."""
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = match[1].strip("[]").lower().rstrip(".")
        own_name = self.host.lower().rstrip(".")
        if name in _LOOPBACK_NAMES or name in self.host_names or name == own_name:
            return True
        # DNS rebinding needs a name. A page whose address is a number was loaded from that address.
        return is_loopback(name) or (is_any_address(self.host) and _is_address(name))

    def knows_origin(self, origin: str, host: str) -> bool:
        """Return whether a page of this origin may send requests to the server that it calls ``host``."""
        own_origins = (f"http://{host.lower()}", f"https://{host.lower()}")
        return origin in self.origins or origin.lower() in own_origins


def read_access(  # noqa: PLR0913 - a parameter for each flag
    host: str,
    *,
    api_keys: Sequence[str],
    api_key_file: Path | None,
    has_no_auth: bool,
    origins: Sequence[str],
    host_names: Sequence[str],
    prefix: str = "",
) -> Access:
    """Return the rules of the flags."""
    # ``has_no_auth``: whether an address that other machines reach may be open. Raises ``UsageError``.
    keys = list(api_keys)
    for key in api_keys:
        _check_key("--api-key", key)
    if api_key_file is not None:
        keys += _read_keys(api_key_file)
    if keys and has_no_auth:
        raise UsageError("--no-auth: a key is given as well; leave out one of the two")
    if not keys and not has_no_auth and not is_loopback(host):
        raise UsageError(
            f"--host {host}: other machines can reach this address; choose a key (--api-key-file FILE or "
            "--api-key KEY), or allow every request with --no-auth"
        )
    for origin in origins:
        _check_matches(f"--cors {origin}", origin, _ORIGIN, _ORIGIN_RULE)
    known_names = {name: name.lower().rstrip(".") for name in host_names}
    for name, known_name in known_names.items():
        _check_matches(f"--allow-host {name}", known_name, _HOST_NAME, _HOST_NAME_RULE)
    own_prefix = prefix.rstrip("/")
    if own_prefix:
        _check_matches(f"--prefix {prefix}", own_prefix, _PREFIX, _PREFIX_RULE)
    names = frozenset(known_names.values())
    return Access(host, tuple(dict.fromkeys(keys)), frozenset(origins), names, own_prefix)


def _read_keys(path: Path) -> list[str]:
    try:
        text = read_text_file(path, _MAX_KEY_FILE_BYTES)
    except TextFileError as error:
        raise UsageError(f"--api-key-file {path}: {error}") from None
    keys: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        key = line.strip()
        if key:
            _check_key(f"--api-key-file {path}, line {number}", key)
            keys.append(key)
    if not keys:
        raise UsageError(f"--api-key-file {path}: the file has no key; write one key per line")
    return keys


def _check_key(origin: str, key: str) -> None:
    # The message does not repeat the key, because terminals are recorded.
    _check_matches(origin, key, _KEY, "a key consists of printable ASCII characters without spaces")


def _check_matches(origin: str, value: str, pattern: re.Pattern[str], rule: str) -> None:
    """Raise ``UsageError`` for a value that does not match a pattern."""
    if not pattern.fullmatch(value):
        raise UsageError(f"{origin}: {rule}")


def needs_no_key(path: str) -> bool:
    """Return whether everyone may read a path: the page, which asks for the key, or the state of the server."""
    return path in _OPEN_PATHS or path.startswith(_OPEN_FOLDER)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def is_any_address(host: str) -> bool:
    """Return whether an address stands for all addresses of this machine."""
    return _is_address(host) and ip_address(host).is_unspecified


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _sent_keys(headers: Headers) -> Iterable[bytes]:
    for value in headers.getlist("authorization"):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip().encode("latin-1")
    for name in _KEY_HEADERS:
        for value in headers.getlist(name):
            yield value.strip().encode("latin-1")


def check_request(scope: Scope, access: Access, added_headers: dict[str, str]) -> Response | None:
    """Check the headers of a request."""
    # ``added_headers``: gets the headers that a page of an allowed origin needs. Returns the response to a page
    # that asks whether it may send a request. Raises ``RequestError`` for a request that may not be sent.
    headers = Headers(scope=scope)
    # h11 limits only headers that arrive in several parts.
    if _header_bytes(scope, headers) > MAX_HEADER_BYTES:
        raise HeadersTooLargeError(f"the headers have more than {MAX_HEADER_BYTES:,} bytes")
    if len(headers.raw) > MAX_HEADER_COUNT:
        raise HeadersTooLargeError(f"there are more than {MAX_HEADER_COUNT} headers")
    _check_sender(scope, access, headers)
    if access.origins:
        added_headers["vary"] = "Origin"
        origin = headers.get("origin")
        if origin is not None and origin in access.origins:
            added_headers["access-control-allow-origin"] = origin
            added_headers["access-control-expose-headers"] = _READABLE_HEADERS
    if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
        return Response(status_code=204, headers=_preflight_headers(headers))
    if access.keys and not needs_no_key(scope["path"]) and not access.has_key(headers):
        raise UnauthorizedError("this server needs its key, as Authorization: Bearer KEY")
    return None


def _header_bytes(scope: Scope, headers: Headers) -> int:
    """Return the size of the headers and the address of a request."""
    separator_bytes = len(b": \r\n")
    address_bytes = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return address_bytes + sum(len(name) + len(value) + separator_bytes for name, value in headers.raw)


def _check_sender(scope: Scope, access: Access, headers: Headers) -> None:
    """Raise ``ForbiddenError`` for a request to another server's name, or for one of a foreign page."""
    host = headers.get("host", "")
    is_browser = "host" in headers or scope["http_version"] != "1.0"
    if is_browser and not access.knows_host(host):
        raise ForbiddenError(
            f"Host: {short_repr(host)} is not a name of this server; allow it with --allow-host NAME"
        )
    origin = headers.get("origin")
    if origin is not None and not access.knows_origin(origin, host):
        raise ForbiddenError(
            f"Origin: pages of {short_repr(origin)} may not send requests; allow them with --cors ORIGIN"
        )
    # A page loads an image or a script without the header Origin.
    is_foreign_page = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    is_link = headers.get("sec-fetch-mode") == "navigate"
    if origin is None and is_foreign_page and not is_link:
        raise ForbiddenError("Sec-Fetch-Site: pages of other servers may not load anything from this one")


def _preflight_headers(headers: Headers) -> dict[str, str]:
    allowed = {"access-control-allow-methods": "GET, POST, PUT, DELETE, OPTIONS", "access-control-max-age": "600"}
    requested = headers.get("access-control-request-headers", "")
    if _HEADER_NAMES.fullmatch(requested):
        allowed["access-control-allow-headers"] = requested
    for network in ("private", "local"):
        if headers.get(f"access-control-request-{network}-network") == "true":
            allowed[f"access-control-allow-{network}-network"] = "true"
    return allowed
