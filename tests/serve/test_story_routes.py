"""The routes of stories, and the fields of a story on the routes for text."""

import json

import pytest

STORY = {
    "memory": "A quiet story by the sea.",
    "authors_note": "short sentences",
    "world_info": [
        {"keys": ["lamp"], "content": "The lamp burns whale oil.", "insertion_order": 10},
        {"keys": ["Odile"], "content": "Odile reads letters backwards."},
    ],
}
TEXT = "The keeper of Ferrow woke before the tide. Nobody had lit the lamp."


def read(http, **fields):
    response = http.post("/gen/context", json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_parts_are_the_prompt(http):
    found = read(http, prompt=TEXT, max_tokens=4, **STORY)
    assert [part["kind"] for part in found["parts"]] == ["memory", "world_info", "authors_note", "text"]
    assert "".join(part["text"] for part in found["parts"]) == found["prompt"]
    assert sum(part["token_count"] for part in found["parts"]) == found["token_count"] == len(found["ids"])
    assert found["left_out"] == [
        {
            "kind": "world_info",
            "reason": "no_key",
            "message": "none of its keys is in the text",
            "token_count": found["left_out"][0]["token_count"],
            "entry": 1,
            "name": "Odile",
        }
    ]
    assert found["max_prompt_tokens"] == found["context_length"] - 4


@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/api/v1/generate"])
def test_an_answer_continues_what_is_read(http, path):
    settings = {"max_tokens": 4, "temperature": 0}
    ids = read(http, prompt=TEXT, **settings, **STORY)["ids"]

    def answer(**fields):
        body = http.post(path, json={**settings, **fields}).json()
        assert "error" not in body
        return body.get("choices") or body.get("results") or body["content"]

    assert answer(prompt=TEXT, **STORY) == answer(prompt=ids)


def test_a_long_text_is_shortened_from_its_start(http):
    text = " ".join(f"This is sentence {number}." for number in range(3_000))
    assert http.post("/v1/completions", json={"prompt": text, "max_tokens": 2}).status_code == 400
    found = read(http, prompt=text, max_tokens=2, memory="")
    assert found["token_count"] <= found["max_prompt_tokens"]
    assert text.endswith(found["prompt"])
    assert found["prompt"].startswith("This is sentence")
    assert [each["kind"] for each in found["left_out"]] == ["text"]
    answer = http.post("/v1/completions", json={"prompt": text, "max_tokens": 2, "memory": ""})
    assert [part["kind"] for part in answer.json()["x_gen"]["left_out"]] == ["text"]
    short = http.post("/v1/completions", json={"prompt": "The sea", "max_tokens": 2, "memory": "Blue."})
    assert "left_out" not in short.json()["x_gen"]


def test_a_chat_has_the_story_in_its_messages(http):
    messages = [{"role": "user", "content": TEXT}]
    found = read(http, messages=messages, max_tokens=4, **STORY)
    assert found["messages"] == [
        {"role": "system", "content": "A quiet story by the sea.\nThe lamp burns whale oil."},
        {"role": "user", "content": f"[Author's note: short sentences]\n\n{TEXT}"},
    ]
    settings = {"max_tokens": 4, "temperature": 0}
    bodies = [{"messages": messages, **STORY}, {"messages": found["messages"]}]
    answers = [http.post("/v1/chat/completions", json={**body, **settings}).json() for body in bodies]
    assert answers[0]["choices"] == answers[1]["choices"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"world_info": {"entries": [{"content": 5}]}}, "world_info.entries[0].content: 5 is not a string"),
        ({"world_info": {"a": 1}}, "world_info: there are no entries"),
        ({"authors_note": {"depth": -1}}, "authors_note.depth: -1 is not ≥ 0"),
    ],
)
def test_wrong_fields(http, fields, problem):
    response = http.post("/v1/completions", json={"prompt": "a", **fields})
    assert response.status_code == 400
    assert problem in response.json()["error"]["message"]


def test_a_file_is_read_and_written(http):
    pieces = [{"text": "One.", "alternatives": []}, {"text": " Two.", "alternatives": [" Three."]}]
    exported = http.post("/gen/export", json={"pieces": pieces, **STORY}).json()
    imported = http.post("/gen/import", content=json.dumps(exported)).json()
    assert imported["pieces"] == pieces
    assert imported["memory"] == STORY["memory"]
    assert imported["authors_note"]["text"] == STORY["authors_note"]
    assert [entry["keys"] for entry in imported["world_info"]["entries"]] == [["lamp"], ["Odile"]]
    broken = http.post("/gen/import", content=b"\x89PNG\r\n\x1a\n")
    assert broken.status_code == 400
    assert "no character card" in broken.json()["error"]["message"]


WRONG_STORIES = {
    "a depth below 0": ("authors_note", {"depth": -1}),
    "an unknown key": ("authors_note", {"txt": "a"}),
    "an entry without text": ("world_info", [{"content": 3}]),
}


@pytest.mark.parametrize(("name", "value"), WRONG_STORIES.values(), ids=WRONG_STORIES)
@pytest.mark.parametrize("path", ["/gen/export", "/gen/context"])
def test_a_wrong_part_of_a_story_is_named(http, path, name, value):
    text = {"text": "a"} if path == "/gen/export" else {"prompt": "a"}
    answer = http.post(path, json=text | {name: value})
    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]
