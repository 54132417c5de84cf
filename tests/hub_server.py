"""A small Hugging Face hub on 127.0.0.1, for ``HF_ENDPOINT``: it serves ranges, cuts connections and lies."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

COMMIT = "1234567890abcdef1234567890abcdef12345678"


@dataclass
class Repository:
    """A repository, and how the hub misbehaves when it serves it.

    Attributes:
        files: The content of each file, by its path.
        token: Needed to see the repository; None: none.
        is_gated: The author has not let the user in.
        cut_after: Bytes after which each connection breaks, or an iterator of them; None: it does not break.
        cuts: How many connections break; the later ones do not.
        has_ranges: False: a request for the rest of a file is answered with the whole.
        listed_size: What the list says of each file's size instead of the truth.
        head_size: What the file's own headers say instead of the truth.
        sent: Bytes that are sent instead of the file's.
        listed_checksum: What the list and the headers name instead of the true checksum.
        redirects_to: Another host name, to which the content is redirected.
        status: An HTTP status that answers everything; None: none.
        stalls_after: Bytes of a body after which the hub sends nothing, and keeps the connection; None: never.
        silent: A part of a path; a request for such a path gets no answer. None: all are answered.
        names_length: False: the body's length is not announced, and the closed connection ends the body.
    """

    files: dict[str, bytes]
    token: str | None = None
    is_gated: bool = False
    cut_after: int | Iterator[int] | None = None
    cuts: int = 1_000_000
    has_ranges: bool = True
    listed_size: int | None = None
    head_size: int | None = None
    sent: bytes | None = None
    listed_checksum: str | None = None
    redirects_to: str | None = None
    status: int | None = None
    stalls_after: int | None = None
    silent: str | None = None
    names_length: bool = True
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Method, path, Range and Authorization of each request."""

    def checksum(self, path: str) -> str:
        return self.listed_checksum or hashlib.sha256(self.files[path]).hexdigest()

    @property
    def ranges(self) -> list[str]:
        """The Range of each request for content."""
        return [range_ for method, path, range_, _ in self.requests if method == "GET" and "/resolve/" in path]


class HubServer:
    """A hub that serves ``repositories`` until it is closed."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.end = Event()
        """Ends the requests that get no answer."""
        hub = self

        class Handler(_Handler):
            repositories = hub.repositories
            end = hub.end

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.end.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error unless it is the client's, who may leave in the middle of a file."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is a second write, which would wait 40 ms for an answer
    repositories: dict[str, Repository] = {}  # noqa: RUF012 - set by the server
    end = Event()

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, has_body: bool) -> None:
        listing = re.fullmatch(r"/api/models/([^/]+/[^/?]+)(?:/revision/\w+)?(?:\?.*)?", self.path)
        content = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/([^?]+)(?:\?.*)?", self.path)
        match = listing or content
        repository = self.repositories.get(match[1]) if match else None
        if match is None or repository is None:
            self._send(404, has_body=has_body, headers={"X-Error-Code": "RepoNotFound"})
            return
        authorization = self.headers.get("Authorization", "")
        repository.requests.append((self.command, self.path, self.headers.get("Range", ""), authorization))
        is_elsewhere = self.headers.get("Host", "").split(":")[0] == repository.redirects_to
        if repository.silent is not None and repository.silent in f"{self.command} {self.path}":
            self.end.wait()
            self.close_connection = True
        elif repository.status is not None:
            self._send(repository.status, has_body=has_body)
        elif repository.token is not None and authorization != f"Bearer {repository.token}" and not is_elsewhere:
            self._send(401, has_body=has_body, headers={"X-Error-Code": "RepoNotFound"})
        elif repository.is_gated:
            self._send(403, has_body=has_body, headers={"X-Error-Code": "GatedRepo"})
        elif listing:
            self._list(match[1], repository)
        elif match[2] not in repository.files:
            self._send(404, has_body=has_body, headers={"X-Error-Code": "EntryNotFound"})
        elif repository.redirects_to is not None and not is_elsewhere:
            location = f"http://{repository.redirects_to}:{self.server.server_address[1]}{self.path}"
            self._send(302, {**self._headers(repository, match[2]), "Location": location}, has_body=has_body)
        else:
            self._serve(repository, match[2], has_body)

    def _list(self, name: str, repository: Repository) -> None:
        siblings = [
            {
                "rfilename": path,
                "size": repository.listed_size or len(data),
                "blobId": hashlib.sha1(data).hexdigest(),
                "lfs": {
                    "sha256": repository.checksum(path),
                    "size": repository.listed_size or len(data),
                    "pointerSize": 134,
                },
            }
            for path, data in repository.files.items()
        ]
        self._send(200, {}, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode())

    def _headers(self, repository: Repository, path: str) -> dict[str, str]:
        return {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Etag": f'"{repository.checksum(path)}"',
            "X-Linked-Size": str(repository.head_size or len(repository.files[path])),
            "Accept-Ranges": "bytes",
        }

    def _serve(self, repository: Repository, path: str, has_body: bool) -> None:
        data = repository.files[path] if repository.sent is None else repository.sent
        headers, start = self._headers(repository, path), 0
        range_ = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if range_ and repository.has_ranges:
            start = int(range_[1])
            if start >= len(data):
                self._send(416, {"Content-Range": f"bytes */{len(data)}"}, has_body=has_body)
                return
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if not has_body:
            self._send(200, headers, has_body=False)
            return
        body = data[start:]
        if repository.stalls_after is not None and len(body) > repository.stalls_after:
            self._send(206 if start else 200, headers, body[: repository.stalls_after], promised=len(body))
            self.end.wait()
            self.close_connection = True
            return
        if not repository.names_length:
            self._send(206 if start else 200, headers | {"Connection": "close"}, body, promised=-1)
            return
        cut_after = repository.cut_after
        if isinstance(cut_after, Iterator):
            cut_after = next(cut_after)
        if cut_after is None or repository.cuts <= 0 or len(body) <= cut_after:
            self._send(206 if start else 200, headers, body)
            return
        repository.cuts -= 1
        self._send(206 if start else 200, headers, body[:cut_after], promised=len(body))
        self.close_connection = True

    def _send(
        self,
        status: int,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        has_body: bool = True,
        promised: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        length = len(body) if promised is None else promised
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if has_body:
            self.wfile.write(body)
            self.wfile.flush()


def serve_folder(hub: HubServer, name: str, *paths: Path) -> Repository:
    """Serve files as a repository."""
    repository = Repository({path.name: path.read_bytes() for path in paths})
    hub.repositories[name] = repository
    return repository
