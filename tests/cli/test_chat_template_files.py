"""`--chat-template` with the files of transformers: a template in JSON, and the folder of a model."""

import json

import pytest

TEMPLATE = "{{ bos_token }}{% for m in messages %}<{{ m.content }}>{% endfor %}"
OTHER = "x{% for m in messages %}{{ m.content }}{% endfor %}"
NAMED = [{"name": "tool_use", "template": OTHER}, {"name": "default", "template": TEMPLATE}]
JSON = {"tokenizer_class": "X", "bos_token": "<other>", "chat_template": TEMPLATE}
FILES = {
    "tokenizer_config.json": ({"tokenizer_config.json": JSON}, "tokenizer_config.json"),
    "several templates": ({"tokenizer_config.json": JSON | {"chat_template": NAMED}}, "tokenizer_config.json"),
    "chat_template.json": ({"chat_template.json": {"chat_template": TEMPLATE}}, "chat_template.json"),
    "a folder": ({"tokenizer_config.json": JSON}, "."),
    "a folder with a newer file": (
        {"tokenizer_config.json": JSON | {"chat_template": OTHER}, "chat_template.jinja": TEMPLATE},
        ".",
    ),
    "a folder with the file of a processor": (
        {"tokenizer_config.json": {"a": 1}, "chat_template.json": {"chat_template": TEMPLATE}},
        ".",
    ),
}


@pytest.fixture
def folder(home, request):
    files, name = request.param
    path = home / "work" / "model"
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    for file, content in files.items():
        (path / file).write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return f"model/{name}"


BOS = "<|im_start|>"
"""The text of the model's own token, not that of the file."""


@pytest.mark.parametrize("folder", FILES.values(), ids=FILES, indirect=True)
@pytest.mark.parametrize("flag", ["--chat-template", "--chat-template-file"])
def test_the_template_of_a_file(gen, folder, flag):
    words = ("Hi", flag, folder, "-n", "1", "--format", "openai", "--echo", "--logprobs", "0")
    (choice,) = json.loads(gen(*words).out)["choices"]
    assert choice["text"].startswith(f"{BOS}<Hi>")


@pytest.mark.parametrize("folder", [FILES["tokenizer_config.json"]], ids=["batch"], indirect=True)
def test_the_template_of_a_file_in_a_batch(gen, home, folder):
    line = {"id": "a", "messages": [{"role": "user", "content": "Hi"}], "seed": 1}
    (home / "work" / "in.jsonl").write_text(
        json.dumps(line | {"chat_template": folder}) + "\n" + json.dumps(line | {"id": "b"})
    )
    ours, flag = gen("batch", "in.jsonl", "--format", "jsonl", "-n", "4", "--chat-template", folder).lines
    assert ours["text"] == flag["text"]
    assert ours["usage"]["prompt_tokens"] < 10


WRONG = {
    "JSON without a template": (
        {"tokenizer_config.json": {"a": "{{ 1 }}"}},
        "tokenizer_config.json",
        "no chat_template",
    ),
    "an empty folder": ({}, ".", "this folder has none of the files chat_template.jinja, chat_template.json,"),
}


@pytest.mark.parametrize(
    ("folder", "message"),
    [((files, name), text) for files, name, text in WRONG.values()],
    ids=WRONG,
    indirect=["folder"],
)
def test_files_without_a_template(gen, folder, message):
    assert message in gen("Hi", "--chat-template", folder, "-n", "1", code=2).err
