"""Loading: options, threads, chat templates, and files that are not models."""

import re
import struct
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from logitsmith.common.machine import physical_cores
from logitsmith.engine import AdapterError, Model, ModelError, build_prompt, format_chat
from logitsmith.engine.native.binding import libggml, pop_last_error, set_log_sink

from .small_models import make_vocabulary, write_file


@pytest.fixture
def load(pruned_model):
    return partial(Model.load, pruned_model)


@pytest.mark.parametrize(
    "options", [{"mmap": True}, {"mmap": False}, {"mlock": True}, {"batch": 8}, {"gpu_layers": "all"}], ids=str
)
def test_options_give_the_same_tokens(load, options):
    prompt = "One two three four five six seven eight nine ten"
    with load(n_ctx=256) as plain, load(n_ctx=256, **options) as other:
        rows = []
        for model in (plain, other):
            model.context.read(model.vocabulary.tokenize(prompt.encode()))
            rows.append(model.context.logits().copy())
    assert (rows[0] == rows[1]).all()


def test_batch_larger_than_the_context(load):
    with load(n_ctx=64, batch=10**9) as model:
        model.context.read([5] * 60)


def test_closed_model_says_so(load):
    model = load()
    vocabulary = model.vocabulary
    model.close()
    for use in (
        lambda: vocabulary.tokenize(b"a"),
        lambda: vocabulary.piece(5),
        lambda: vocabulary.detokenize([5]),
        lambda: model.context,
    ):
        with pytest.raises(ModelError, match="the model is closed"):
            use()


def test_the_abort_handler_gets_the_reason():
    # In a process of its own, since it ends there; ggml's own function, as its assertions call it.
    program = (
        "import os\n"
        "from logitsmith.engine.native.binding import set_abort_handler\n"
        "def leave(reason):\n print(reason.strip()[:11], flush=True); os._exit(7)\n"
        "set_abort_handler(leave)\n"
        "from llama_cpp._ggml import libggml\n"
        "libggml.ggml_abort(b'file.c', 1, b'a reason why')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "file.c:1" in done.stdout) == (7, True), done
    assert done.stderr == ""


def test_threads_default_to_the_physical_cores(load):
    with load() as model:
        assert model.threads == physical_cores() >= 1
    with load(threads=1) as model:
        assert model.threads == 1


def test_loading_reports_its_progress_and_can_be_stopped(load):
    parts = []
    load(progress=lambda part: parts.append(part) or True).close()
    assert parts
    assert parts == sorted(parts)
    assert parts[-1] == pytest.approx(1.0)
    with pytest.raises(ModelError, match="could not load"):
        load(progress=lambda part: False)


def test_log_lines_are_discarded_without_a_sink(load, capfd):
    load().close()
    assert capfd.readouterr() == ("", "")
    lines = []
    set_log_sink(lines.append)
    try:
        load().close()
    finally:
        set_log_sink(None)
    assert any("llama" in line for line in lines)
    assert capfd.readouterr() == ("", "")


def test_metadata(model):
    assert model.metadata["general.architecture"] == "llama"
    assert len(model.metadata["tokenizer.chat_template"]) > 200


@pytest.mark.parametrize(
    ("options", "is_chat"),
    [
        ({}, False),
        ({"system": "Be brief."}, True),
        ({"chat": True}, True),
        ({"chat": False, "system": "Be brief."}, False),
    ],
    ids=["default", "system message", "chat", "no chat"],
)
def test_build_prompt(model, options, is_chat):
    prompt = build_prompt(model, "Hé?", **options)
    messages = [{"role": "user", "content": "Hé?"}]
    if "system" in options:
        messages.insert(0, {"role": "system", "content": options["system"]})
    assert prompt == (format_chat(model, messages) if is_chat else "Hé?")


def test_model_without_template_and_template_that_raises(model, monkeypatch):
    monkeypatch.setattr(model, "chat_template", None)
    with pytest.raises(ModelError, match="has no chat template"):
        format_chat(model, [{"role": "user", "content": "x"}])
    monkeypatch.setattr(model, "chat_template", "{{ raise_exception('only one turn') }}")
    with pytest.raises(ModelError, match="the model's chat template rejects these messages: only one turn"):
        format_chat(model, [{"role": "user", "content": "x"}])


def test_gguf_that_holds_no_model(tmp_path):
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    with pytest.raises(ModelError, match=r"llama\.cpp could not load the model"):
        Model.load(path)


LORA = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
MODEL = {"general.architecture": "llama"} | make_vocabulary("gpt2")
NO_ADAPTERS = {
    "a model": (
        MODEL | {"general.type": "model"},
        "this is not a LoRA adapter: its general.type is 'model', not 'adapter'; give a LoRA adapter",
    ),
    "no type": (MODEL, "this is not a LoRA adapter: it has no general.type; give"),
    "another adapter": (
        LORA | {"adapter.type": "ia3"},
        "this is not a LoRA adapter: its adapter.type is 'ia3', not 'lora'; give",
    ),
    "no type of adapter": (LORA | {"adapter.type": ""}, "this is not a LoRA adapter: it has no adapter.type"),
    "of another architecture": (
        LORA | {"general.architecture": "qwen2"},
        "this LoRA adapter is made for qwen2, and the model is llama; give an adapter made for the model",
    ),
    "of another model": (
        LORA | {"adapter.lora.alpha": 4.0},
        "llama.cpp could not load this adapter: .*LoRA tensor 'w' has unexpected suffix",
    ),
}


@pytest.mark.parametrize(("metadata", "message"), NO_ADAPTERS.values(), ids=NO_ADAPTERS)
def test_bad_adapters(tmp_path, pruned_model, metadata, message):
    path = tmp_path / "lora.gguf"
    write_file(path, metadata, {"w": np.zeros((4, 32), dtype=np.float32)})
    with pytest.raises(AdapterError, match=rf"^{re.escape(str(path))}: {message}") as caught:
        Model.load(pruned_model, lora=[(path, 1.0)])
    assert "\n" not in str(caught.value)


def test_a_lora_file_that_is_not_a_gguf(tmp_path, pruned_model):
    path = tmp_path / "lora.gguf"
    with pytest.raises(AdapterError, match=r"lora.gguf: there is no such file"):
        Model.load(pruned_model, lora=[(str(path), 1.0)])
    path.write_bytes(b"not one")
    with pytest.raises(AdapterError, match=r"lora.gguf: not a GGUF file"):
        Model.load(pruned_model, lora=[(path, 1.0)])


ERROR, INFO, CONTINUED = 4, 2, 5
LOGGED = {
    "continued": ([(ERROR, b"load: expected a, but got:"), (CONTINUED, b" b\n")], "load: expected a, but got: b"),
    "several lines": ([(ERROR, b"load: no:\n  first\n\tsecond\n")], "load: no: first second"),
    "dots after another line": ([(ERROR, b"no\n"), (INFO, b"loading "), (CONTINUED, b"...")], "no"),
    "two": ([(ERROR, b"a "), (CONTINUED, b"b\n"), (ERROR, b"c\n")], "a b; c"),
}


@pytest.mark.parametrize(("messages", "reason"), LOGGED.values(), ids=LOGGED)
def test_a_reason_of_llama_cpp_is_whole_and_on_one_line(messages, reason):
    pop_last_error()  # another test's model may have left one
    for level, text in messages:
        libggml.ggml_log_internal(level, b"%s", text)
    assert pop_last_error() == reason
