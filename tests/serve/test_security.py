"""Who may send requests to `gen serve`: keys, hosts and origins."""

import pytest
from logitsmith.common.errors import UsageError
from logitsmith.serve.errors import ForbiddenError
from logitsmith.serve.security import MAX_HEADER_BYTES, MAX_HEADER_COUNT, Access, check_request, read_access
from starlette.datastructures import Headers

from .conftest import PAGE
from .gen_serve import post_bytes

NO_FLAGS = {"api_keys": (), "api_key_file": None, "has_no_auth": False, "origins": (), "host_names": ()}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"authorization": "Bearer first-key"}, 200, id="bearer"),
        pytest.param({"authorization": "bearer  second-key"}, 200, id="case-and-spaces"),
        pytest.param({"x_api_key": "second-key"}, 200, id="x-api-key"),
        pytest.param({"x_admin_key": "first-key"}, 200, id="tabby-admin"),
        pytest.param({"api_key": "first-key"}, 200, id="azure"),
        pytest.param({"authorization": "Bearer wrong", "x_api_key": "first-key"}, 200, id="one-of-two"),
        pytest.param({}, 401, id="none"),
        pytest.param({"authorization": "Bearer "}, 401, id="empty"),
        pytest.param({"authorization": "Bearer first-keyy"}, 401, id="longer"),
        pytest.param({"authorization": "Bearer first"}, 401, id="beginning"),
        pytest.param({"authorization": "Basic Zmlyc3Qta2V5"}, 401, id="basic"),
        pytest.param({"authorization": "first-key"}, 401, id="no-scheme"),
        pytest.param({"x_api_key": "\xff\xfe"}, 401, id="not-ascii"),
    ],
)
def test_key(locked, headers, status):
    got, sent, answer = locked.request("GET", "/v1/models", **headers)
    assert got == status
    if status == 401:
        assert sent["www-authenticate"] == "Bearer"
        assert answer["error"]["code"] == "invalid_api_key"
        assert "first-key" not in str(answer)


def test_no_key_in_the_query(locked):
    assert locked.request("GET", "/v1/models?key=first-key&api_key=first-key")[0] == 401


def test_paths_that_are_open(locked):
    assert locked.request("GET", "/health")[0] == 200
    assert locked.request("GET", "/")[0] != 401
    for path in ("//health", "/health/", "/HEALTH", "/%2e/health", "/health/../v1/models", "/docs"):
        assert locked.request("GET", path)[0] in (401, 404), path


def test_a_body_without_a_key_is_not_used(locked):
    assert b"401" in locked.send(post_bytes({"prompt": "a"}, connection="close")).split(b"\r\n")[0]


def test_keys_are_not_logged(locked):
    start = len(locked.lines)
    locked.request("GET", "/v1/models?first-key", authorization="Bearer first-key")
    locked.wait_for("/v1/models 200", start)
    assert not any("key" in str(line) for line in locked.lines[start:])


def test_an_authorization_that_is_not_needed_does_no_harm(server):
    for value in ("Bearer ", "Bearer x", "Basic eDp5", ""):
        assert server.request("GET", "/v1/models", authorization=value)[0] == 200


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        pytest.param("127.0.0.1:8080", True, id="address"),
        pytest.param("127.8.0.1", True, id="other-loopback"),
        pytest.param("localhost", True, id="localhost"),
        pytest.param("LocalHost.:9000", True, id="case-dot-port"),
        pytest.param("[::1]:8080", True, id="ipv6"),
        pytest.param("evil.example", False, id="rebound"),
        pytest.param("localhost.evil.example", False, id="beginning"),
        pytest.param("evil.example#localhost", False, id="fragment"),
        pytest.param("localhost@evil.example", False, id="user"),
        pytest.param("192.168.1.7", False, id="other-address"),
        pytest.param("", False, id="empty"),
        pytest.param("127.0.0.1:80:80", False, id="two-ports"),
    ],
)
def test_host(server, host, is_known):
    status = server.request("GET", "/health", host=host)[0]
    assert status == (200 if is_known else 403)


def test_hosts_of_a_server_for_all_addresses(locked):
    for host, status in (("192.168.1.7:80", 200), ("gen.example.ORG", 200), ("other.example", 403)):
        assert locked.request("GET", "/health", host=host)[0] == status


def test_a_request_without_host(server):
    assert server.send(b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert server.send(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
    twice = b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n"
    assert server.send(twice).startswith(b"HTTP/1.1 400")


def test_a_request_without_host_is_rejected_also_without_h11():
    scope = {"http_version": "1.1", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    with pytest.raises(ForbiddenError):
        check_request(scope, Access(), {})
    assert check_request(scope | {"http_version": "1.0"}, Access(), {}) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"origin": "http://127.0.0.1:1"}, 403, id="other-port"),
        pytest.param({"origin": "http://evil.example"}, 403, id="page"),
        pytest.param({"origin": "null"}, 403, id="file"),
        pytest.param({"origin": ""}, 403, id="empty"),
        pytest.param({"origin": "http://localhost", "host": "localhost"}, 200, id="own"),
        pytest.param({"origin": "https://localhost", "host": "localhost"}, 200, id="own-behind-tls"),
        pytest.param({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, 403, id="image"),
        pytest.param({"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"}, 403, id="image-of-other-port"),
        pytest.param({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 200, id="link"),
        pytest.param({"sec_fetch_site": "same-origin"}, 200, id="same-origin"),
    ],
)
def test_pages_without_cors(server, headers, status):
    got, sent, _ = server.request("GET", "/health", **headers)
    assert got == status
    assert "access-control-allow-origin" not in sent


def test_a_form_of_a_page_is_rejected(server):
    """A page may send text/plain without asking first."""
    body = {"prompt": "a", "max_tokens": 1}
    headers = {"origin": "http://evil.example", "content_type": "text/plain"}
    assert server.post("/v1/completions", body, **headers)[0] == 403


def test_preflight(locked):
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "authorization, x-custom"}
    status, sent, _ = locked.request(
        "OPTIONS", "/v1/completions", origin=PAGE, access_control_request_private_network="true", **asked
    )
    assert status == 204
    assert sent["access-control-allow-origin"] == PAGE
    assert sent["access-control-allow-headers"] == "authorization, x-custom"
    assert sent["access-control-allow-private-network"] == "true"
    assert "access-control-allow-credentials" not in sent
    for origin in ("http://localhost:30000", "https://localhost:3000", "http://localhost:3000.evil.example"):
        assert locked.request("OPTIONS", "/v1/completions", origin=origin, **asked)[0] == 403


def test_an_allowed_page_reads_answers_and_errors(locked):
    for origin in (PAGE, "null"):
        for headers, status in (({"x_api_key": "first-key"}, 200), ({}, 401)):
            got, sent, _ = locked.request("GET", "/v1/models", origin=origin, **headers)
            assert (got, sent["access-control-allow-origin"]) == (status, origin)
            assert "Origin" in sent["vary"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param("x: " + "a" * MAX_HEADER_BYTES, 431, id="long"),
        pytest.param("\r\n".join(f"x{number}: a" for number in range(MAX_HEADER_COUNT)), 431, id="many"),
        pytest.param("x: " + "a" * 20_000, 200, id="allowed"),
    ],
)
def test_headers(server, head, status):
    request = f"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n\r\n"
    assert server.send(request.encode()).split()[1] == str(status).encode()


def test_a_long_path(server):
    request = f"GET /{'a' * MAX_HEADER_BYTES} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert server.send(request.encode()).startswith(b"HTTP/1.1 431")


WRONG_FLAGS = {
    "open address": ({"host": "0.0.0.0"}, "--api-key-file FILE"),
    "open IPv6": ({"host": "::"}, "--no-auth"),
    "open name": ({"host": "gen.example"}, "--no-auth"),
    "both": ({"api_keys": ("k",), "has_no_auth": True}, "--no-auth"),
    "empty key": ({"api_keys": ("",)}, "--api-key"),
    "key with a space": ({"api_keys": ("a b",)}, "--api-key"),
    "origin without a scheme": ({"origins": ("localhost:3000",)}, "--cors"),
    "origin with a path": ({"origins": ("http://a/",)}, "--cors"),
    "any origin": ({"origins": ("*",)}, "--cors *"),
    "host with a port": ({"host_names": ("a:80",)}, "--allow-host"),
    "any host": ({"host_names": ("*",)}, "--allow-host"),
    "prefix without a slash": ({"prefix": "llm"}, "--prefix llm"),
    "prefix with dots": ({"prefix": "/a/../b"}, "--prefix"),
    "prefix with a space": ({"prefix": "/a b"}, "--prefix"),
}


@pytest.mark.parametrize(("flags", "named"), WRONG_FLAGS.values(), ids=WRONG_FLAGS)
def test_flags_that_are_wrong(flags, named):
    flags = {"host": "127.0.0.1"} | NO_FLAGS | flags
    with pytest.raises(UsageError) as caught:
        read_access(flags.pop("host"), **flags)
    assert named in str(caught.value)


WRONG_FILES = {
    "missing": None,
    "empty": b"",
    "blank lines": b"\n  \n",
    "a space": b"good\nsecret bad\n",
    "an encoding": b"caf\xe9\n",
    "half a character": b"\xff\xfe\n",
}


@pytest.mark.parametrize("content", WRONG_FILES.values(), ids=WRONG_FILES)
def test_files_of_keys_that_are_wrong(tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_access("127.0.0.1", **NO_FLAGS | {"api_key_file": path})
    assert "--api-key-file" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_all_keys_are_compared(monkeypatch):
    """The time does not show which key matched, or whether one did."""
    import hmac

    compared = []
    original = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(pair) or original(*pair))
    access = Access(keys=("a", "b", "c"))
    assert access.has_key(Headers({"authorization": "Bearer a"}))
    assert not access.has_key(Headers({"authorization": "Bearer d"}))
    assert len(compared) == 6
    assert {len(part) for pair in compared for part in pair} == {32}
