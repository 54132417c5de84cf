"""Downloads from a hub on 127.0.0.1 that serves ranges, cuts connections and lies."""

import hashlib
import random
import subprocess
import sys
from itertools import cycle

import pytest

huggingface_hub = pytest.importorskip("huggingface_hub")

from logitsmith.engine import ModelError, pull_model, resolve_model  # noqa: E402
from logitsmith.models import hub as hub_requests  # noqa: E402
from logitsmith.models.resolve import parse_hub_reference  # noqa: E402

from ..hub_server import HubServer, Repository  # noqa: E402

BYTES = random.Random(1).randbytes(5_000_000)
NAME = "Tiny-Q4_K_M.gguf"


@pytest.fixture(scope="module")
def hub():
    server = HubServer()
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path, home, hub, monkeypatch):
    """An empty cache; the hub is ours, and waits between tries are short."""
    constants = huggingface_hub.constants
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub_requests, "_RETRY_WAIT_SECONDS", 0.01)
    hub.repositories.clear()
    return folder


def serve(hub, name="me/Tiny-GGUF", **settings):
    settings.setdefault("files", {NAME: BYTES, "README.md": b"hello"})
    hub.repositories[name] = Repository(**settings)
    return hub.repositories[name]


def pull(text="me/Tiny-GGUF", progress=lambda _: None):
    return pull_model(parse_hub_reference(text), progress)


def leftovers(cache):
    return sorted(path.name for path in cache.rglob("*.incomplete"))


def test_a_download(hub, cache):
    repository = serve(hub)
    steps = []
    path = pull(progress=steps.append)
    assert path.read_bytes() == BYTES
    assert path.name == NAME
    assert path.resolve().name == hashlib.sha256(BYTES).hexdigest()
    assert resolve_model("hf:me/Tiny-GGUF") == path
    assert repository.ranges == [""]
    assert [step.done_bytes for step in steps if not step.is_checking] == sorted(
        step.done_bytes for step in steps if not step.is_checking
    )
    assert (steps[-1].file, steps[-1].done_bytes, steps[-1].total_bytes) == (NAME, 5_000_000, 5_000_000)
    assert leftovers(cache) == []


def test_the_librarys_own_download_finds_it(hub, cache):
    repository = serve(hub)
    path = pull()
    before = len(repository.ranges)
    assert huggingface_hub.hf_hub_download("me/Tiny-GGUF", NAME) == str(path)
    assert len(repository.ranges) == before


def test_a_complete_file_is_not_downloaded_again(hub, cache):
    repository = serve(hub)
    assert pull() == pull()
    assert repository.ranges == [""]


def test_a_connection_that_breaks_is_replaced(hub, cache):
    repository = serve(hub, cut_after=2_000_000)
    assert pull().read_bytes() == BYTES
    assert repository.ranges == ["", "bytes=2000000-", "bytes=4000000-"]


def test_a_later_call_resumes(hub, cache):
    repository = serve(hub)

    def stop(step):
        if step.done_bytes >= 1_500_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(progress=stop)
    (part,) = cache.rglob("*.incomplete")
    kept = part.stat().st_size
    assert kept >= 1_500_000
    assert pull().read_bytes() == BYTES
    assert repository.ranges == ["", f"bytes={kept}-"]
    assert leftovers(cache) == []


def test_a_hub_without_ranges_sends_all_again(hub, cache):
    repository = serve(hub, cut_after=2_000_000, cuts=1, has_ranges=False)
    assert pull().read_bytes() == BYTES
    assert repository.ranges == ["", "bytes=2000000-"]


def test_it_gives_up_and_keeps_what_came(hub, cache, monkeypatch):
    serve(hub, cut_after=0)
    with pytest.raises(
        ModelError, match=r"0 of 5,000,000 bytes were received, then the connection broke .*contin"
    ):
        pull()
    assert len(leftovers(cache)) == 1


LIES = {
    "other bytes": ({"sent": BYTES[::-1]}, "the downloaded file differs from the hub", []),
    "more bytes": (
        {"sent": BYTES + b"x"},
        f"{NAME}: the hub announced 5,000,000 bytes, but sends 5,000,001; pull again later",
        [1],
    ),
    "fewer bytes": (
        {"sent": BYTES[:-1]},
        f"{NAME}: the hub announced 5,000,000 bytes, but sends 4,999,999; pull again later",
        [1],
    ),
    "more bytes, without a length": (
        {"sent": BYTES + b"x", "names_length": False},
        f"{NAME}: the hub announced 5,000,000 bytes, but 5,000,001 were received; pull again later",
        [],
    ),
    "fewer bytes, without a length": (
        {"sent": BYTES[:-1], "names_length": False},
        f"{NAME}: the hub announced 5,000,000 bytes, but sends 4,999,999; pull again later",
        [1],
    ),
    "fewer bytes, without ranges": (
        {"sent": BYTES[:-1], "names_length": False, "has_ranges": False},
        f"{NAME}: 4,999,999 of 5,000,000 bytes were received, then the connection ended; they are kept",
        [1],
    ),
    "a larger size everywhere": (
        {"listed_size": 6_000_000, "head_size": 6_000_000},
        f"{NAME}: the hub announced 6,000,000 bytes, but sends 5,000,000; pull again later",
        [1],
    ),
    "a smaller size everywhere": (
        {"listed_size": 4_000_000, "head_size": 4_000_000},
        f"{NAME}: the hub announced 4,000,000 bytes, but sends 5,000,000; pull again later",
        [1],
    ),
    "no size": ({"listed_size": -1}, f"{NAME}: the hub announces no size for this file", []),
    "a size in the list": ({"listed_size": 6_000_000}, "the hub contradicts itself: 6,000,000 bytes", []),
    "a size in the headers": ({"head_size": 4_000_000}, "the hub contradicts itself: 5,000,000 bytes", []),
    "another checksum": (
        {"listed_checksum": "0" * 64},
        "the downloaded file differs from the hub's: its checksum is",
        [],
    ),
    "a path as the checksum": ({"listed_checksum": "../../../x"}, "sent '../../../x' in place of a checksum", []),
}


@pytest.mark.parametrize(("lie", "expected", "kept"), LIES.values(), ids=LIES)
def test_lies(hub, cache, lie, expected, kept):
    serve(hub, **lie)
    with pytest.raises(ModelError) as caught:
        pull()
    assert expected in str(caught.value)
    assert len(leftovers(cache)) == len(kept)
    assert list(cache.rglob("*.gguf")) == []


def test_parts_that_grow_and_shrink_are_not_progress(hub, cache):
    """A hub without ranges that breaks each connection, now later, now earlier."""
    repository = serve(hub, has_ranges=False, cut_after=cycle([2_000_000, 1_000_000]))
    with pytest.raises(ModelError, match=r" of 5,000,000 bytes were received, then the connection broke"):
        pull()
    assert len(repository.ranges) == 6


STALLS = {
    "the list": ({"silent": "GET /api/"}, r"cannot be reached \(.*timed out"),
    "the headers": ({"silent": "HEAD /"}, r"cannot be reached \(.*timed out"),
    "the content": (
        {"silent": "GET /me/Tiny-GGUF/resolve"},
        r"0 of 5,000,000 bytes were received, then none for 0.3 seconds; they are kept, and the same command",
    ),
    "after the headers": (
        {"stalls_after": 0},
        r"0 of 5,000,000 bytes were received, then none for 0.3 seconds; they are kept, and the same command",
    ),
}


@pytest.mark.parametrize(("settings", "message"), STALLS.values(), ids=STALLS)
def test_a_hub_that_stalls(hub, cache, monkeypatch, settings, message):
    monkeypatch.setattr(hub_requests, "_STALL_SECONDS", 0.3)
    monkeypatch.setattr(hub_requests, "_READ_TIMEOUT_SECONDS", 0.2)
    serve(hub, **settings)
    with pytest.raises(ModelError, match=message):
        pull()


def test_a_hub_that_stalls_after_some_bytes(hub, cache, monkeypatch):
    """Few bytes count as progress, too: the limit is one without any byte."""
    monkeypatch.setattr(hub_requests, "_STALL_SECONDS", 0.5)
    monkeypatch.setattr(hub_requests, "_READ_TIMEOUT_SECONDS", 0.1)
    repository = serve(hub, stalls_after=1_000_000)
    assert pull().read_bytes() == BYTES
    assert repository.ranges == ["", *(f"bytes={n}000000-" for n in range(1, 5))]


def test_a_cache_that_cannot_be_written(hub, cache):
    serve(hub)
    cache.write_text("not a folder")
    with pytest.raises(ModelError, match=rf"^{cache}.*: (Not a directory|File exists)"):
        pull()


def test_split_files(hub, cache):
    names = [f"Q8_0/Big-Q8_0-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    serve(hub, files={name: name.encode() for name in names})
    path = pull("me/Tiny-GGUF:Q8_0")
    assert path.as_posix().endswith(names[0])
    assert [(path.parent / name.rpartition("/")[2]).read_text() for name in names] == names


def test_a_part_that_the_repository_lacks(hub, cache):
    serve(hub, files={"Big-Q8_0-00001-of-00002.gguf": b"x"})
    with pytest.raises(ModelError, match=r"the repository lacks Big-Q8_0-00002-of-00002.gguf, a part"):
        pull()


CHOICES = {
    "the preferred one": ("me/Many", "x-Q4_K_M.gguf"),
    "a quantization": ("me/Many:q2_k", "x-Q2_K.gguf"),
    "a file": ("me/Many/x-Q8_0.gguf", "x-Q8_0.gguf"),
}


@pytest.mark.parametrize(("text", "expected"), CHOICES.values(), ids=CHOICES)
def test_choices(hub, cache, text, expected):
    names = ("mmproj-x-Q4_K_M.gguf", "x-Q2_K.gguf", "x-Q4_K_M.gguf", "x-Q8_0.gguf")
    serve(hub, "me/Many", files={name: name.encode() for name in names})
    assert pull(text).name == expected


def test_the_users_token_opens_a_private_repository(hub, cache, monkeypatch):
    repository = serve(hub, token="hf_secret")
    with pytest.raises(ModelError, match="no such repository, or it is private: set HF_TOKEN or run"):
        pull()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert pull().read_bytes() == BYTES
    assert {authorization for *_, authorization in repository.requests[1:]} == {"Bearer hf_secret"}


def test_a_token_that_does_not_help(hub, cache, monkeypatch):
    serve(hub, token="hf_secret")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(ModelError, match="or it is private: your token may not read it"):
        pull()


def test_the_token_is_not_sent_to_another_host(hub, cache, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    repository = serve(hub, token="hf_secret", redirects_to="localhost")
    assert pull().read_bytes() == BYTES
    content = [request for request in repository.requests if request[0] == "GET" and "/resolve/" in request[1]]
    assert [authorization for *_, authorization in content] == ["Bearer hf_secret", ""]


REFUSALS = {
    "unknown repository": ({}, "me/Absent", "has no such repository"),
    "gated": ({"is_gated": True}, "me/Tiny-GGUF", "its author grants access to each user: request it on http"),
    "out of order": ({"status": 500}, "me/Tiny-GGUF", "returned the HTTP status 500; try again later"),
    "no file of the quantization": ({}, "me/Tiny-GGUF:Q2_K", f"no file fits; the repository has {NAME}"),
    "no GGUF": ({"files": {"model.safetensors": b"x"}}, "me/Tiny-GGUF", "the repository holds no GGUF file"),
    "a name that none has": ({}, "me/a--b", "Cannot have -- or"),
}


@pytest.mark.parametrize(("settings", "text", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(hub, cache, settings, text, expected):
    serve(hub, **settings)
    with pytest.raises(ModelError) as caught:
        pull(text)
    assert expected in str(caught.value)


def test_no_server_answers(cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"127.0.0.1:9 cannot be reached \(Connection refused\)"):
        pull()


def test_offline_by_choice(hub, cache, monkeypatch):
    serve(hub)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set, so nothing is downloaded"):
        pull()


def test_without_the_extra(hub, cache, monkeypatch):
    monkeypatch.setattr("logitsmith.models.hub.can_pull", lambda: False)
    with pytest.raises(ModelError, match=r"downloads need the extra hub: .*\[hub\]"):
        pull()


def test_an_installation_without_the_extra():
    program = (
        "import sys; sys.modules['huggingface_hub'] = None\n"
        "from logitsmith.engine import ModelError, pull_model\n"
        "from logitsmith.models.resolve import parse_hub_reference\n"
        "try: pull_model(parse_hub_reference('hf:a/b'))\n"
        "except ModelError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("hf:a/b: downloads need the extra hub: ")


def test_a_disk_that_is_full(hub, cache, monkeypatch):
    serve(hub)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(ModelError, match=r"5,000,000 bytes must be downloaded; the disk of .* has 10 bytes free"):
        pull()


def test_another_process_downloads_it(hub, cache):
    serve(hub)
    lock = cache / ".locks/models--me--Tiny-GGUF" / f"{hashlib.sha256(BYTES).hexdigest()}.lock"
    lock.parent.mkdir(parents=True)
    with (
        huggingface_hub.utils.WeakFileLock(lock),
        pytest.raises(ModelError, match="another process is downloading it"),
    ):
        pull()
