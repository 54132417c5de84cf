"""The stories in a folder of the server, over its routes."""

import json
import shutil

import pytest
from logitsmith.common.errors import UsageError
from logitsmith.requests.resolve import RequestDefaults
from logitsmith.serve import story_folder
from logitsmith.serve.app import make_app
from logitsmith.serve.engine_thread import EngineThread
from logitsmith.serve.state import ServerState
from logitsmith.serve.story_folder import StoryFolder, safe_name
from starlette.testclient import TestClient

DATA = {"format": "gen serve page", "tokens": [{"id": 5, "text": " sea"}, {"id": 6, "text": "\n"}], "settings": {}}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "stories"


@pytest.fixture
def client(folder):
    """Requests to a server in this process, which has no model."""
    state = ServerState(EngineThread(1, max_waiting=1), RequestDefaults(), print, stories=StoryFolder(folder))
    with TestClient(make_app(state), base_url="http://127.0.0.1") as client:
        yield client
    state.close()


def create(client, title="The sea", text="The sea\n"):
    response = client.post("/gen/stories", json={"title": title, "text": text, "data": DATA})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_story_is_a_text_and_its_data_beside_it(client, folder):
    made = create(client, text="Das Meer — 海\n")
    assert (folder / "The sea.txt").read_text(encoding="utf-8") == "Das Meer — 海\n"
    assert json.loads((folder / "The sea.json").read_text()) == DATA
    assert '\n  {"id": 6, "text": "\\n"}\n' in (folder / "The sea.json").read_text()  # one line for each token
    read = client.get("/gen/stories/The sea")
    assert read.json() == {"name": "The sea", "text": "Das Meer — 海\n", "data": DATA, "version": made["version"]}
    assert read.headers["etag"] == f'"{made["version"]}"'
    assert client.get("/gen/stories").json()["stories"][0] | {"modified": 0} == {
        "name": "The sea",
        "words": 4,
        "modified": 0,
    }
    assert sorted(path.name for path in folder.iterdir()) == ["The sea.json", "The sea.txt"]


def test_a_new_story_replaces_none(client, folder):
    assert [create(client, text=text)["name"] for text in "abc"] == ["The sea", "The sea 2", "The sea 3"]
    (folder / "The sea 4.json").write_text("{}")
    assert create(client)["name"] == "The sea 5"
    assert (folder / "The sea.txt").read_text() == "a"


def test_a_story_is_changed_only_from_its_last_version(client, folder):
    first = create(client)
    body = {"text": "The lake", "data": DATA, "version": first["version"]}
    second = client.put("/gen/stories/The sea", json=body).json()
    assert second["version"] != first["version"]
    refused = client.put("/gen/stories/The sea", json=body)
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == "The sea: the files have changed since this version was read"
    (folder / "The sea.txt").write_text("By hand")
    body["version"] = second["version"]
    assert client.put("/gen/stories/The sea", json=body).status_code == 409
    assert client.delete(f"/gen/stories/The sea?version={second['version']}").status_code == 409
    assert (folder / "The sea.txt").read_text() == "By hand"
    version = client.get("/gen/stories/The sea").json()["version"]
    assert client.delete(f"/gen/stories/The sea?version={version}").status_code == 200
    assert list(folder.iterdir()) == []
    assert client.put("/gen/stories/The sea", json=body).status_code == 404


# Each row: a title, and the name of its files.
NAMES = {
    "The sea": "The sea",
    "../../etc/passwd": "etc passwd",
    "..": "Story",
    ".hidden": "hidden",
    "a/b\\c:d*e?": "a b c d e",
    " two\nlines. ": "two lines",
    "con": "_con",
    "LPT1.txt": "_LPT1.txt",
    "": "Story",
    "Fu\u0308r 海": "F\u00fcr 海",
    "x" * 400: "x" * 150,
    "海" * 60: "海" * 50,
    "\ud800a": "a",
    "<b>": "b",
}


@pytest.mark.parametrize(("title", "name"), NAMES.items())
def test_names_are_safe(title, name):
    assert safe_name(title) == name
    assert safe_name(name) == name


@pytest.mark.parametrize("name", ["..%2F..%2Fsecret", "%2e%2e", "..%5Csecret", ".hidden", "secret%00", "con"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_name_leaves_the_folder(client, folder, method, name):
    secret = folder.parent / "secret.txt"
    secret.write_text("secret")
    (folder / ".hidden.txt").write_text("secret")
    body = {"text": "", "data": {}, "version": ""} if method == "PUT" else None
    response = client.request(method, f"/gen/stories/{name}", json=body)
    assert response.status_code == 404
    assert "secret" not in response.json()["error"]["message"].partition(":")[2]
    assert secret.read_text() == "secret"
    assert client.get("/gen/stories").json() == {"stories": []}


def test_files_of_other_programs_are_read(client, folder):
    (folder / "plain.txt").write_bytes("\ufeffOne\r\ntwo".encode())
    read = client.get("/gen/stories/plain").json()
    assert (read["text"], read["data"]) == ("One\ntwo", None)
    # What cannot be read is told, and stays as it is.
    (folder / "broken.txt").write_text("text")
    (folder / "broken.json").write_text("{")
    response = client.get("/gen/stories/broken")
    assert response.status_code == 400
    assert "broken.json: it is not JSON" in response.json()["error"]["message"]
    (folder / "bytes.txt").write_bytes(b"\xff\xff\xff")
    assert client.get("/gen/stories/bytes").status_code == 400
    assert {story["name"]: story["words"] for story in client.get("/gen/stories").json()["stories"]} == {
        "plain": 2,
        "broken": 1,
        "bytes": None,
    }


def test_sizes_have_a_limit(client, folder, monkeypatch):
    monkeypatch.setattr(story_folder, "MAX_STORY_BYTES", 4)
    (folder / "large.txt").write_text("large")
    response = client.get("/gen/stories/large")
    assert response.status_code == 400
    assert "larger than" in response.json()["error"]["message"]


def test_a_story_that_cannot_be_written_is_told(client, folder):
    created = create(client)
    (folder / "The sea.json").unlink()
    (folder / "The sea.json").mkdir()
    response = client.put("/gen/stories/The sea", json={"text": "x", "data": DATA, "version": created["version"]})
    assert response.status_code == 400
    assert "it is a folder" in response.json()["error"]["message"]
    shutil.rmtree(folder)
    response = client.post("/gen/stories", json={"title": "x", "text": "x", "data": DATA})
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "x.txt cannot be written: No such file or directory"


def test_a_server_without_a_folder_says_so(folder):
    state = ServerState(EngineThread(1, max_waiting=1), RequestDefaults(), print)
    with TestClient(make_app(state), base_url="http://127.0.0.1") as client:
        response = client.get("/gen/stories")
        assert response.status_code == 404
        assert "--stories FOLDER" in response.json()["error"]["message"]
    state.close()
    folder.write_text("a file")
    with pytest.raises(UsageError, match="it is no folder"):
        StoryFolder(folder)
