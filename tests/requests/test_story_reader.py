"""The prompts of lines with a story, for a model."""

import json
from types import SimpleNamespace

import pytest
from logitsmith.engine import Model
from logitsmith.engine.request import ChatMessages
from logitsmith.jobs.batch import BatchCounts, BatchRun
from logitsmith.jobs.lines import InputLine
from logitsmith.presets import Preset
from logitsmith.presets.settings import preset_of_text, resolve_settings, settings_text
from logitsmith.presets.story import Story
from logitsmith.presets.yaml_writer import write_yaml
from logitsmith.requests.lines import read_request_line
from logitsmith.requests.resolve import RequestDefaults, RequestResolver
from logitsmith.requests.story_reader import StoryReader

from ..engine.small_models import write_model

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
STORY = {
    "memory": "Sea.",
    "authors_note": {"text": "sad", "depth": 1},
    "world_info": [{"keys": ["a"], "content": "A."}],
}
MESSAGES = [{"role": "user", "content": "a b"}]
WITH_STORY = [
    {"role": "system", "content": "Sea.\nA."},
    {"role": "user", "content": "[Author's note: sad]\n\na b"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("stories") / "small.gguf"
    with Model.load(
        write_model(path, "llama", changes={"tokenizer.chat_template": TEMPLATE}), n_ctx=256, threads=1
    ) as loaded:
        yield loaded


def openai_line(url, **body):
    return {"custom_id": "1", "method": "POST", "url": url, "body": body}


TEXT_WITH_STORY = "Sea.\nA.\nx\n[Author's note: sad]\na b"
# Each row: a line, and its prompt.
LINES = {
    "prompt": ({"prompt": "x\na b", **STORY}, TEXT_WITH_STORY),
    "token ids": ({"prompt": "x\na b", **STORY}, TEXT_WITH_STORY),
    "messages": ({"messages": MESSAGES, **STORY}, WITH_STORY),
    "system": (
        {"prompt": "a b", "system": "Hi.", **STORY},
        [{"role": "system", "content": "Sea.\nA.\nHi."}, WITH_STORY[1]],
    ),
    "completions": (openai_line("/v1/completions", prompt="x\na b", **STORY), TEXT_WITH_STORY),
    "chat": (openai_line("/v1/chat/completions", messages=MESSAGES, **STORY), WITH_STORY),
    "responses": (openai_line("/v1/responses", input="a b", **STORY), WITH_STORY),
    "set": ({"prompt": "x\na b", "set": STORY}, TEXT_WITH_STORY),
    "set of a body": (openai_line("/v1/completions", prompt="x\na b", set=STORY), TEXT_WITH_STORY),
    "nothing": ({"prompt": "a b", "memory": ""}, "a b"),
}


def read_line(model, record, resolver=None):
    resolver = resolver or RequestResolver(
        RequestDefaults(), model.metadata, print, story_reader=StoryReader(model, print)
    )
    asked = read_request_line(record, 1).asked
    (request,) = resolver.requests(asked, resolver.settings(asked, []), seed=0)
    return request


@pytest.mark.parametrize("name", LINES)
def test_lines(model, name):
    record, expected = LINES[name]
    if name == "token ids":
        record = {**record, "prompt": model.vocabulary.tokenize_prompt(record["prompt"].encode())}
    request = read_line(model, record)
    prompt = request.prompt.messages if isinstance(request.prompt, ChatMessages) else request.prompt
    assert prompt == expected


# Each row: a line, and its prompt, with a preset that has the story.
LINES_WITH_PRESET = {
    "preset": ({}, TEXT_WITH_STORY),
    "another memory": ({"memory": "Hill."}, TEXT_WITH_STORY.replace("Sea", "Hill")),
    "no memory": ({"memory": ""}, TEXT_WITH_STORY.removeprefix("Sea.\n")),
    "another note": ({"authors_note": {"text": "glad", "depth": 1}}, TEXT_WITH_STORY.replace("sad", "glad")),
    "no note": ({"authors_note": ""}, "Sea.\nA.\nx\na b"),
    "no entries": ({"world_info": []}, TEXT_WITH_STORY.replace("A.\n", "", 1)),
}


@pytest.mark.parametrize(("fields", "expected"), LINES_WITH_PRESET.values(), ids=LINES_WITH_PRESET)
def test_a_preset_has_the_story(model, tmp_path, fields, expected):
    path = tmp_path / "story.yaml"
    path.write_text(write_yaml(STORY))
    assert read_line(model, {"prompt": "x\na b", "preset": str(path), **fields}).prompt == expected


@pytest.mark.parametrize("max_tokens", [1, 100, 1_000, -1])
@pytest.mark.parametrize("record", [{"prompt": "word " * 500}, {"messages": [*MESSAGES, *MESSAGES] * 20}])
def test_the_prompt_leaves_room_for_the_answer(model, record, max_tokens):
    request = read_line(model, {**record, "max_tokens": max_tokens, **STORY})
    reader = StoryReader(model, print)
    tokens = reader.token_sizes(request.prompt) if isinstance(request.prompt, str) else None
    if tokens is None:
        text = "".join(f"[{message['role']}]{message['content']}" for message in request.prompt.messages)
        tokens = reader.token_sizes(f"{text}[assistant]")
    assert len(tokens) <= 256 - min(max_tokens if max_tokens > 0 else 64, 128)
    assert len(tokens) > 60


def test_the_sizes_are_those_of_the_text(model):
    for text in ("", "a", "Sea.\n", "é<s>", " b"):
        assert sum(StoryReader(model, print).token_sizes(text)) == len(text.encode())


def test_a_line_needs_a_model_to_count_tokens():
    written = []
    sink = SimpleNamespace(existing_results={}, is_file=False, add=written.append)
    resolver = RequestResolver(RequestDefaults(), {}, print)
    run = BatchRun(
        resolver,
        sink,
        BatchCounts(),
        "",
        base_seed=0,
        note=print,
        is_openai=False,
        keeps_mismatched_results=False,
    )
    lines = [InputLine(1, {"prompt": "a", "memory": "Sea."}, "1"), InputLine(2, {"prompt": "a"}, "2")]
    assert len(list(run.iterate_new_requests(lines))) == 1
    assert "leave --on out" in json.loads(written[0])["error"]["message"]


def story_of(fields):
    return resolve_settings(Preset.from_table(fields)).story


def test_what_is_stored_is_read_again():
    settings = resolve_settings(Preset.from_table(STORY))
    assert resolve_settings(preset_of_text(settings_text(settings), "")).story == settings.story
    assert story_of(settings.story.as_fields()) == settings.story
    assert story_of(Story().as_fields()) == Story()
    assert story_of({}) is None
