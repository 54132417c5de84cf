"""A store, a conversation and a small model with a chat template."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from logitsmith.chats.conversation import Conversation
from logitsmith.chats.records import StoreError
from logitsmith.chats.session import ChatSession
from logitsmith.chats.store import ChatStore
from logitsmith.engine import GenerationRequest, Model, Token
from logitsmith.samplers import StepSpec, parse_chain

from ..engine.small_models import write_model

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{# <think> #}"
)
"""Like many templates, it removes the reasoning from earlier answers."""
WITHOUT_REASONING = TEMPLATE.replace("</think>", "</").replace("{# <think> #}", "")
"""The same for a model that does not reason, which a grammar makes write a known answer at once."""
OPTIONS = {"n_ctx": 512, "batch": 128, "threads": 1}


@pytest.fixture(scope="session")
def model_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat-model")
    return write_model(folder / "small.gguf", "llama", changes={"tokenizer.chat_template": TEMPLATE})


@pytest.fixture(scope="session")
def model(model_path) -> Iterator[Model]:
    with Model.load(model_path, **OPTIONS) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def cold_model(model_path) -> Iterator[Model]:
    """The same file, loaded into a separate context."""
    with Model.load(model_path, **OPTIONS) as loaded:
        yield loaded


@pytest.fixture
def store(tmp_path):
    with_file = ChatStore.open(tmp_path / "chats" / "chats.db")
    yield with_file
    with_file.close()


@pytest.fixture
def notes():
    return []


@pytest.fixture
def conversation(store, notes):
    conversation = Conversation.new(store, report=notes.append)
    yield conversation
    with suppress(StoreError):  # a test may have closed it
        conversation.save_before_exit()


@pytest.fixture
def session(model, conversation, notes):
    model.context.truncate(0)
    return ChatSession(model, conversation, report=notes.append)


def settings(seed=1, chain="temp0.8", **options):
    options.setdefault("max_tokens", 30)
    steps = [StepSpec(sampler) for sampler in parse_chain(chain)]
    return GenerationRequest("", steps, seed=seed, **options)


def ids(events):
    return [event.id for event in events if isinstance(event, Token)]
